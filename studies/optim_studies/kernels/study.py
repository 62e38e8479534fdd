"""The parameter-server kernels compared with NumPy, Numba and other installed packages, as a share of memory speed.

A row is one kernel at one size. Every round runs passes over a working set of `roof_set_mb` MB, then the kernel, then the
baselines. Times are medians over the rounds without compile time; roofs are from the best rounds. There are two roofs: the
best pass in place, and a copy that bypasses the cache and does not fetch the lines that it overwrites. A kernel faster than a
roof replaces it, so shares are at most 1. A kernel whose `working_set_mb` fits the cache has no share.

`share_of_loop` is the time of the best plain loop in place (`best_loop`, in C or Numba) over the kernel's time, at most 1.
`process` is the same kernel in a separate process that receives pushes through shared memory, and `ray` a server with Ray's
transport. After the first round the kernel's parameters are compared with NumPy's.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from optim.benchmarks.measuring import Times, medians, race, timed
from optim.benchmarks.study import AbstractStudy, Finding, StudySubject, register_study
from optim.benchmarks.suite import FULL, SMALL
from optim.core.driver import PhaseClock
from optim.core.limits import peak_memory
from optim.core.progress import Progress
from optim.core.stopping import StoppingCriterion
from optim_studies.kernels.baselines import KernelOptions

if TYPE_CHECKING:
    from optim_studies.kernels.baselines import KernelComparison
    from optim_studies.kernels.cases import DenseCase, SparseCase, StreamCase
    from optim_studies.kernels.memory_speed import Roofline

    Case = DenseCase | SparseCase | StreamCase

DENSE, SPARSE, STREAM = "dense", "sparse", "stream"
STREAMS = ("snapshot",)
LOOPS = ("c", "numba")
AGREEMENT = 1e-4
"""Maximum difference from NumPy's parameters after one update with learning rate 0.01."""

OTHERS = ("numpy", "numba", "c", "xla", "one_shard", "torch", "process", "ray")


SIZES: Mapping[str, KernelOptions] = MappingProxyType(
    {
        SMALL: KernelOptions(
            parameters=1 << 18, small_parameters=1 << 16, pushed=4096, rows=16_384, rounds=3, is_brief=True
        ),
        FULL: KernelOptions(),
    }
)

Row = tuple[str, str, int, int]
"""Dense, sparse or stream; the rule or kernel; workers; and parameters or the table's rows."""


def rows_of(options: KernelOptions) -> list[Row]:
    """Return the rows to measure."""
    if options.is_brief:
        dense = [("sgd", 4, options.parameters), ("adam", 4, options.parameters)]
        sparse = [("sgd", options.rows), ("adagrad", options.rows)]
    else:
        large, small = options.parameters, options.small_parameters
        dense = [("sgd", 4, large), ("sgd", 16, large), ("sgd", 4, small), ("sgd", 16, small)]
        dense += [("sgd-bfloat16", 4, large), ("momentum", 4, large), ("adagrad", 4, large), ("adam", 4, large)]
        # The same push into a tenth of the rows takes as long, unless a loop copies the table.
        sparse = [("sgd", options.rows), ("sgd", max(1, options.rows // 10)), ("adagrad", options.rows)]
        sparse += [("adagrad", max(1, options.rows // 10)), ("adam", options.rows), ("pull", options.rows)]
    stream = [(name, 1, options.small_parameters) for name in STREAMS]
    tables = [(SPARSE, rule, 1, rows) for rule, rows in sparse]
    return [(DENSE, *row) for row in dense] + tables + [(STREAM, *row) for row in stream]


def name_of(row: Row) -> str:
    """Return the name of a row's subject."""
    kind, rule, workers, size = row
    names = {DENSE: f"{kind}-{rule}-w{workers}-{size}", STREAM: f"{rule}-{size}"}
    return names.get(kind, f"{kind}-{rule}-{size}")


def case_of(row: Row, options: KernelOptions) -> "Case":
    """Return the case of a row."""
    from optim_studies.kernels.cases import DenseCase, SparseCase, StreamCase

    kind, rule, workers, size = row
    if kind == STREAM:
        return StreamCase(kernel=rule, parameters=size)
    if kind == DENSE:
        name, _, half = rule.partition("-")
        return DenseCase(rule=name, workers=workers, parameters=size, is_half=bool(half))
    return SparseCase(rule=rule, pushed=options.pushed, width=options.width, rows=size, skew=options.skew)


@dataclass(frozen=True, kw_only=True)
class KernelWork(AbstractStudy):
    """Run a kernel and the other implementations in rounds."""

    options_type = KernelOptions
    subject: StudySubject

    def measure(self, stop: StoppingCriterion, progress: Progress) -> Finding:
        """Measure one row."""
        from optim_studies.kernels.memory_speed import Roofline

        row, _ = self.subject.drawn_from
        case, clock = case_of(row, self.chosen), PhaseClock()
        with clock.phase("build"):
            contest, roofline = case.contest(np.random.default_rng(self.seed)), Roofline()
        try:
            return self._compare(case, contest, roofline, clock, stop, progress)
        finally:
            contest.close()
            roofline.close()

    def _compare(
        self,
        case: "Case",
        contest: "KernelComparison",
        roofline: "Roofline",
        clock: PhaseClock,
        stop: StoppingCriterion,
        progress: Progress,
    ) -> Finding:
        import jax

        from optim_studies.kernels.baselines import JAX

        calls = {**roofline.calls(), **contest.calls}
        compile_s = {name: timed(call)[0] for name, call in calls.items()}
        error, checksum = contest.error(), contest.checksum()
        rounds = race(calls, self.chosen.rounds, stop, progress, always=(JAX, *roofline.calls()))
        figures = _figures(case.moved, roofline, rounds)
        return Finding(
            parameters={
                "kernel": case.kernel,
                "workers": case.workers,
                "parameters": case.parameters,
                "shape": case.shape,
                "device": jax.devices()[0].device_kind,
            },
            findings={"checksum": checksum},
            measures={
                **figures,
                "error": error,
                "shards": contest.shards,
                "peak_memory_mb": peak_memory() / 2**20,
                "compile_ms": max(0.0, 1e3 * compile_s[JAX] - figures["milliseconds"]),
            },
            seconds=clock.seconds | {"compile": compile_s[JAX], "solve": float(np.sum(rounds[JAX], axis=0)[0])},
            problems=[] if error <= AGREEMENT else [f"parameters differ from NumPy's by {error:.2e}"],
            iterations=len(rounds[JAX]),
            is_whole=len(rounds[JAX]) == self.chosen.rounds,
        )


def _figures(moved: int, roofline: "Roofline", times: Times) -> dict[str, Any]:
    """Return medians, speeds and shares."""
    from optim.core.limits import last_level_cache
    from optim_studies.kernels.baselines import JAX
    from optim_studies.kernels.memory_speed import COPY, IN_PLACE

    wall, spent = medians(times), medians(times, 1)
    speed = moved / wall[JAX] / 1e9
    speeds_by_kind = roofline.speeds({name: min(each[0] for each in seconds) for name, seconds in times.items()})
    in_place, copy = (speeds_by_kind[name] / 1e9 if name in speeds_by_kind else None for name in (IN_PLACE, COPY))
    is_beyond = moved > last_level_cache()
    best_loop = min((name for name in LOOPS if name in wall), key=lambda name: wall[name], default=None)
    return {
        "milliseconds": 1e3 * wall[JAX],
        "processor_ms": 1e3 * spent[JAX],
        "gigabytes_per_s": speed,
        "share_of_roof": _share(speed, copy, is_beyond),
        "share_of_in_place": _share(speed, in_place, is_beyond),
        "share_of_loop": min(1.0, wall[best_loop] / wall[JAX]) if best_loop else None,
        "best_loop": best_loop,
        "roof_gigabytes_per_s": copy,
        "in_place_gigabytes_per_s": in_place,
        "working_set_mb": moved / 1e6,
        "roof_set_mb": roofline.set_bytes / 1e6,
        **{f"{name}_ms": 1e3 * wall[name] if name in wall else None for name in OTHERS},
        **{f"{name}_processor_ms": 1e3 * spent[name] if name in spent else None for name in OTHERS},
        **{f"speedup_over_{name}": wall[name] / wall[JAX] if name in wall else None for name in OTHERS},
        "rounds": len(times[JAX]),
    }


def _share(speed: float, roofline: float | None, is_beyond: bool) -> float | None:
    """Return the kernel's speed over the memory's, at most 1; None if the working set fits the cache."""
    return speed / max(roofline, speed) if is_beyond and roofline is not None else None


def _subjects(options: KernelOptions, seed: int) -> Iterator[tuple[StudySubject, Mapping[str, Any]]]:
    del seed
    for row in rows_of(options):
        pushed = (options.pushed, options.width, *(options.skew,) * (options.skew > 0)) if row[0] == SPARSE else ()
        yield StudySubject(name=name_of(row), topic="kernels", drawn_from=(row, pushed)), {}


SPEC = register_study(
    "kernels",
    "kernels",
    "parameter-server kernels compared with NumPy, Numba and others, as a share of memory speed",
    kind=KernelWork,
    sizes=SIZES,
    subjects=_subjects,
    ways=("jax",),
    columns=(
        "milliseconds",
        "gigabytes_per_s",
        "share_of_roof",
        "share_of_in_place",
        "share_of_loop",
        "best_loop",
        "roof_set_mb",
        "peak_memory_mb",
    ),
)
