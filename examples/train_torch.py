"""Data-parallel training of a small network in PyTorch, profiled by `optim profile --command`.

    optim profile --command "python examples/train_torch.py --workers {workers}" --workers 1,2,4 --out profile.json

One process plays all workers, one after the other, so that each is timed alone as on a machine of its own: `timer.alone`
is what makes a step last as long as the slowest of them. With `torch.distributed`, where each worker is a process, the
loop needs no `alone`: `with timer:` around the step is all. On a machine that does other work besides, --processor-time
counts this process' own seconds.
"""

import argparse
import time

import torch

from optim.profiling import StepTimer


def main() -> None:
    """Train for some steps."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=1536)
    parser.add_argument("--processor-time", action="store_true", help="on one thread, for busy machines")
    words = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    samples = torch.randn(8 * words.batch, 128)
    labels = samples @ torch.randn(128, 10)
    model = torch.nn.Sequential(torch.nn.Linear(128, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
    parameters = list(model.parameters())
    clock = time.process_time if words.processor_time else time.perf_counter
    timer = StepTimer(model=model, samples=len(samples), batch=words.batch, epochs=200, clock=clock)
    for step in range(words.steps):
        first = step * words.batch % len(samples)
        parts = torch.arange(first, first + words.batch).chunk(words.workers)
        with timer:
            gradients = []
            for part in parts:
                with timer.alone():
                    loss = torch.nn.functional.mse_loss(model(samples[part]), labels[part])
                    gradients.append(torch.autograd.grad(loss, parameters))
            with torch.no_grad():
                for own, *pushed in zip(parameters, *gradients, strict=True):
                    own.sub_(sum(pushed), alpha=0.01 / words.workers)


if __name__ == "__main__":
    main()
