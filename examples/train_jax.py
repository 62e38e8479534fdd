"""Data-parallel training of a small network in JAX, profiled by `optim profile --command`.

    optim profile --command "python examples/train_jax.py --workers {workers}" --workers 1,2,4 --out profile.json

One process plays all workers, one after the other, so that each is timed alone as on a machine of its own. What a device
computes is waited for before the clock is read: here by `block_until_ready`, in a loop that calls the timer by `timer(loss)`. On a machine that does other work besides,
--processor-time counts this process' own seconds.
"""

import argparse
import os
import time

import jax
import jax.numpy as jnp
import numpy as np

from optim.profiling import StepTimer


def loss_of(model: dict[str, jax.Array], samples: jax.Array, labels: jax.Array) -> jax.Array:
    """Return the mean squared error of a network with one hidden layer."""
    return jnp.mean((jnp.tanh(samples @ model["inner"]) @ model["outer"] - labels) ** 2)


gradient_of = jax.jit(jax.grad(loss_of))


@jax.jit
def apply(model: dict[str, jax.Array], pushed: list[dict[str, jax.Array]]) -> dict[str, jax.Array]:
    """Step against the mean of the workers' gradients."""
    return jax.tree.map(lambda own, *gradients: own - 0.01 * sum(gradients) / len(gradients), model, *pushed)


def main() -> None:
    """Train for some steps."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=1536)
    parser.add_argument("--processor-time", action="store_true", help="on one thread, for busy machines")
    words = parser.parse_args()
    if words.processor_time:  # read when JAX first computes; the seconds of several threads would add up
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false"
    rng = np.random.default_rng(0)
    samples = rng.standard_normal((8 * words.batch, 128), dtype=np.float32)
    labels = samples @ rng.standard_normal((128, 10), dtype=np.float32)
    model = {
        "inner": jnp.asarray(rng.standard_normal((128, 256), dtype=np.float32) / 16),
        "outer": jnp.zeros((256, 10)),
    }
    clock = time.process_time if words.processor_time else time.perf_counter
    timer = StepTimer(model=model, samples=len(samples), batch=words.batch, epochs=200, clock=clock)
    for step in range(words.steps):
        first = step * words.batch % len(samples)
        parts = np.array_split(np.arange(first, first + words.batch), words.workers)
        with timer:
            gradients: list[dict[str, jax.Array]] = []
            for part in parts:
                with timer.alone():
                    gradients.append(jax.block_until_ready(gradient_of(model, samples[part], labels[part])))
            model = apply(model, gradients)
            jax.block_until_ready(model)


if __name__ == "__main__":
    main()
