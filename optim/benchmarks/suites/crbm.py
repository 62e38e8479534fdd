"""The study `crbm`: training the phase encoder's machine, beside batches in NumPy and beside one window at a time.

A row `batched` trains two machines from the same start on the same windows, one by the kernel and one in NumPy, taking
turns; both are then judged by the same error on containers that neither has seen. A row `one-by-one` is the public code's
way, a row `many-epochs` the whole training of a paper, and a row `sweep` many machines at once, whose times are for one of
them. Compile time is apart.
"""

import hashlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optim.benchmarks.record import Record, plain, provenance
from optim.benchmarks.registry import register_suite
from optim.benchmarks.spec import SMALL, BenchRequest, BenchSpec, Skipped
from optim.benchmarks.studies.crbm_training import CrbmOptions, TrainingBench
from optim.benchmarks.work import AbstractWork, Subject, describe_error
from optim.core.errors import InvalidOptionError
from optim.core.options import build_options, options_as_dict
from optim.core.progress import Progress
from optim.core.status import PointStatus, Termination
from optim.core.stopping import StoppingCriterion
from optim.solvers.solve import package_versions
from optim.workloads.containers.generator import ContainerOptions, generate_containers

PROBLEM = "phases"
FULL = "full"
BATCHED, ONE_BY_ONE, MANY_EPOCHS, SWEEP = "batched", "one-by-one", "many-epochs", "sweep"
WAYS = (BATCHED, ONE_BY_ONE, MANY_EPOCHS, SWEEP)

AGREEMENT = 0.01
"""Largest relative difference of the two machines' errors on unseen containers."""

SAMPLES_A_CONTAINER = 180
HELD_SHARE = 0.1

SIZES: Mapping[str, CrbmOptions] = MappingProxyType(
    {SMALL: CrbmOptions(), FULL: CrbmOptions(windows=200_000, alone=20_000, many=2_000, machines=256)}
)


class WindowSet(Subject):
    """Standardised series of generated containers, with the windows to train on and those held out."""

    def __init__(self, options: CrbmOptions, seed: int) -> None:
        self.options, self.seed = options, seed
        self.name = f"containers-{options.windows}-{seed}"
        self.problem = SimpleNamespace(name=PROBLEM)  # type: ignore[assignment]

    @cached_property
    def digest(self) -> str:
        """Digest of what the series are drawn from."""
        return hashlib.sha256(f"{self.name}-{self.options.delays}".encode()).hexdigest()[:16]

    @cached_property
    def parameters(self) -> dict[str, Any]:
        """Sizes."""
        options = self.options
        return {"windows": options.windows, "visible": 2, "delays": options.delays, "hidden": options.hidden}

    @cached_property
    def arrays(self) -> tuple[NDArray[np.float32], NDArray[np.int32], NDArray[np.int32]]:
        """Series (T, 2), ends of the windows to train on, and ends of those held out."""
        from optim.kernels.crbm import window_ends

        number = int(self.options.windows / SAMPLES_A_CONTAINER / (1 - HELD_SHARE) * 1.2) + 20
        series = generate_containers(ContainerOptions(num_containers=number), self.seed)
        values = np.log(series.values + 0.01 * series.values.mean(axis=0))
        values = (values - values.mean(axis=0)) / values.std(axis=0)
        ends = window_ends(series.lengths, self.options.delays)
        if ends.size <= self.options.windows:
            raise InvalidOptionError(
                f"{number} containers gave {ends.size} windows, too few for {self.options.windows}"
            )
        held = ends[self.options.windows :]
        return values.astype(np.float32), ends[: self.options.windows], held


@dataclass(frozen=True, kw_only=True)
class CrbmWork(AbstractWork):
    """Train in one way; `solver` names it."""

    def resolved_options(self) -> dict[str, Any]:
        """Return the study's complete options."""
        return plain(options_as_dict(build_options(CrbmOptions, self.options)))

    def run(self, stop: StoppingCriterion, progress: Progress) -> Record:
        """Train, time, and compare on unseen containers."""
        del stop
        try:
            options = build_options(CrbmOptions, self.options)
            begun = time.perf_counter()
            series, ends, held = self.subject.arrays  # type: ignore[attr-defined]
            bench = TrainingBench(series, ends, held, options, self.seed)
            build_s = time.perf_counter() - begun
            ways = {
                BATCHED: bench.batched,
                ONE_BY_ONE: bench.one_by_one,
                MANY_EPOCHS: bench.many_epochs,
                SWEEP: bench.sweep,
            }
            figures, seconds = ways[self.solver](progress)
            place = {"device": "cpu" if self.solver == ONE_BY_ONE else bench.device}
        except Exception as error:  # one way that fails must not end the others
            return self.failed(describe_error(error))
        apart = abs(figures["loss"] / figures.get("numpy_loss", figures["loss"]) - 1.0)
        problems = [] if apart <= AGREEMENT else [f"the two machines' errors differ by {100 * apart:.2f} %"]
        problems += [] if np.isfinite(figures["loss"]) else ["training diverged"]
        return Record(
            **self.identity() | {"parameters": {**self.subject.parameters, **place, **plain(figures)}},
            **provenance(),
            versions=dict(package_versions()),
            termination=Termination.COMPLETED.value,
            primal=PointStatus.FEASIBLE.value,
            objective=figures["loss"],
            seconds={"build": build_s, "verify": 0.0, **seconds},
            verified=not problems,
            violations=problems,
        )


def build(request: BenchRequest) -> Iterator[AbstractWork | Skipped]:
    """Yield each way for each seed.

    Raises
    ------
    InvalidOptionError
        If there is no such way or option.
    """
    options = build_options(CrbmOptions, {**options_as_dict(SIZES[request.size]), **request.options})
    for name in request.solvers or ():
        if name not in WAYS:
            raise InvalidOptionError(f"unknown way of training {name!r}; there are: {', '.join(WAYS)}")
    for seed in request.seeds:
        subject = WindowSet(options, seed)
        for way in request.solvers or WAYS:
            yield CrbmWork(suite=SPEC.name, subject=subject, solver=way, seed=seed, options=options_as_dict(options))


SPEC = register_suite(
    BenchSpec(
        name="crbm",
        problem=PROBLEM,
        summary="training the phase encoder's machine: the kernel beside NumPy, and one window at a time",
        build=build,
        sizes=(SMALL, FULL),
        columns=("device", "ms", "numpy_ms", "speedup", "cpu_ms", "cpu_speedup", "us_a_window", "loss", "numpy_loss"),
    )
)
