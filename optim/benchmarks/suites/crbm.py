"""The study `crbm`: training the phase encoder's machine, beside batches in NumPy and beside one window at a time.

A row `batched` trains two machines from the same start on the same windows, one by the kernel and one in NumPy, taking
turns; both are then judged by the same error on containers that neither has seen. A row `one-by-one` is the public code's
way, a row `many-epochs` the whole training of a paper, and a row `sweep` many machines at once, whose times are for one of
them. Compile time is apart.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optim.benchmarks.spec import FULL, SMALL
from optim.benchmarks.studies.crbm_training import CrbmOptions, TrainingBench
from optim.benchmarks.study import AbstractStudy, Finding, StudySubject, register_study
from optim.core.clock import PhaseClock
from optim.core.errors import InvalidOptionError
from optim.core.progress import Progress
from optim.core.stopping import StoppingCriterion
from optim.workloads.containers.generator import ContainerOptions, generate_containers

BATCHED, ONE_BY_ONE, MANY_EPOCHS, SWEEP = "batched", "one-by-one", "many-epochs", "sweep"
WAYS = (BATCHED, ONE_BY_ONE, MANY_EPOCHS, SWEEP)

AGREEMENT = 0.01
"""Largest relative difference of the two machines' errors on unseen containers."""

SAMPLES_A_CONTAINER = 180
HELD_SHARE = 0.1

SIZES: Mapping[str, CrbmOptions] = MappingProxyType(
    {SMALL: CrbmOptions(), FULL: CrbmOptions(windows=200_000, alone=20_000, many=2_000, machines=256)}
)


@dataclass(frozen=True, kw_only=True)
class CrbmWork(AbstractStudy):
    """Train in one way; `solver` names it."""

    options_type = CrbmOptions

    def measure(self, stop: StoppingCriterion, progress: Progress) -> Finding:
        """Train, time, and compare on unseen containers."""
        clock = PhaseClock()
        with clock.phase("build"):
            windows = drawn_windows(self.chosen.windows, self.chosen.delays, self.seed)
            bench = TrainingBench(*windows, self.chosen, self.seed)
        ways = {
            BATCHED: bench.batched,
            ONE_BY_ONE: bench.one_by_one,
            MANY_EPOCHS: bench.many_epochs,
            SWEEP: bench.sweep,
        }
        figures, seconds = ways[self.solver](stop, progress)
        loss = figures.pop("loss")
        apart = abs(figures.get("numpy_loss", loss) / loss - 1.0)
        problems = [] if apart <= AGREEMENT else [f"the two machines' errors differ by {100 * apart:.2f} %"]
        problems += [] if np.isfinite(loss) else ["training diverged"]
        return Finding(
            findings={"loss": loss},
            measures={"device": "cpu" if self.solver == ONE_BY_ONE else bench.device, **figures},
            seconds=clock.seconds | seconds,
            problems=problems,
        )


@lru_cache(maxsize=1)
def drawn_windows(
    windows: int, delays: int, seed: int
) -> tuple[NDArray[np.float32], NDArray[np.int32], NDArray[np.int32]]:
    """Return standardised series of generated containers (T, 2), ends of the windows to train on, and of those held out."""
    from optim.kernels.crbm import window_ends

    number = int(windows / SAMPLES_A_CONTAINER / (1 - HELD_SHARE) * 1.2) + 20
    series = generate_containers(ContainerOptions(num_containers=number), seed)
    values = np.log(series.values + 0.01 * series.values.mean(axis=0))
    values = (values - values.mean(axis=0)) / values.std(axis=0)
    ends = window_ends(series.lengths, delays)
    if ends.size <= windows:
        raise InvalidOptionError(f"{number} containers gave {ends.size} windows, too few for {windows}")
    return values.astype(np.float32), ends[:windows], ends[windows:]


def _subjects(options: CrbmOptions, seed: int) -> Iterator[tuple[StudySubject, Mapping[str, Any]]]:
    sizes = {"windows": options.windows, "visible": 2, "delays": options.delays, "hidden": options.hidden}
    name = f"containers-{options.windows}-{seed}"
    yield StudySubject(name=name, topic="phases", drawn_from=options.delays, parameters=sizes), {}


SPEC = register_study(
    "crbm",
    "phases",
    "training the phase encoder's machine: the kernel beside NumPy, and one window at a time",
    kind=CrbmWork,
    sizes=SIZES,
    subjects=_subjects,
    ways=WAYS,
    columns=("device", "ms", "numpy_ms", "speedup", "cpu_ms", "cpu_speedup", "us_a_window", "loss", "numpy_loss"),
)
