"""The study `time-shares`: finish-time-fair shares by prices, by linear programmes, and by CVXPY."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np

from optim.benchmarks.study import AbstractStudy, Finding, StudySubject, register_study
from optim.benchmarks.suite import FULL, SMALL
from optim.core.arrays import FloatArray, IntArray
from optim.core.driver import PhaseClock
from optim.core.errors import InvalidOptionError, check_in
from optim.core.progress import Progress
from optim.core.stopping import StoppingCriterion
from optim.models.cluster.time_shares import ShareProblem, finish_time_model, worst_ratio
from optim.models.programmes import unfilled_sums
from optim.solvers.cluster.time_shares import Shares, finish_time_shares, finish_time_shares_by_programmes
from optim.workloads.traces.gavel import read_throughputs

ResultT = TypeVar("ResultT", Shares, float)

AGREEMENT = 1e-4
WIDTHS = (1, 2, 4)
TYPES = ("v100", "p100", "k80")


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeShareOptions:
    """Sizes of the study.

    Parameters
    ----------
    jobs, load
        Number of jobs, and GPUs requested per available GPU.
    throughputs
        File with Gavel's table of steps per second; by default speeds are drawn at random.
    repeats
        Number of timings per method; the minimum counts.

    Raises
    ------
    InvalidOptionError
        If a value is outside its range.
    """

    jobs: int = 512
    load: float = 4.0
    throughputs: Path | None = None
    repeats: int = 3

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_in("[2, 100000]", self, "jobs")
        check_in("[1, 1000]", self, "load")
        check_in("[1, 100]", self, "repeats")
        if self.throughputs is not None and not self.throughputs.is_file():
            raise InvalidOptionError(f"throughputs {self.throughputs} isn't a file; give the path of a file")


SIZES: Mapping[str, TimeShareOptions] = MappingProxyType(
    {SMALL: TimeShareOptions(jobs=64, repeats=1), FULL: TimeShareOptions(jobs=2048)}
)


def draw_problem(options: TimeShareOptions, seed: int) -> ShareProblem:
    """Return jobs of which different parts are done, on three types of GPU.

    Up to a third of a job's work is done. It took 0.9 to 1.05 times as long as in isolation.
    """
    rng = np.random.default_rng(seed)
    width: IntArray = rng.choice(WIDTHS, options.jobs)
    speed = _speeds(options.throughputs, width, rng)
    remaining_s = rng.uniform(0.5, 28.0, options.jobs) * 3600 * speed.max(axis=1)
    nothing = np.zeros(options.jobs)
    gpus = np.full(len(TYPES), max(*WIDTHS, round(width.sum() / options.load / len(TYPES))))
    problem = ShareProblem(
        throughput=speed, width=width, gpus=gpus, elapsed_s=nothing, left=remaining_s, isolated_s=nothing
    )
    isolated = remaining_s * rng.uniform(0.0, 0.5, options.jobs) / problem.isolated
    return replace(problem, isolated_s=isolated, elapsed_s=isolated * rng.uniform(0.9, 1.05, options.jobs))


def _speeds(path: Path | None, width: IntArray, rng: np.random.Generator) -> FloatArray:
    if path is None:
        return np.asarray(rng.uniform(1, 10, (len(width), 1)) / rng.uniform((1, 1.5, 3), (1.2, 3, 9), (len(width), 3)))
    table = read_throughputs(path)
    kinds = rng.choice(sorted(table.alone[TYPES[0]]), len(width)).tolist()
    return np.stack([table.rates(name, kinds, width)[0] for name in TYPES], axis=1)


@dataclass(frozen=True, kw_only=True)
class TimeShareWork(AbstractStudy):
    """Solve one problem by all methods."""

    options_type = TimeShareOptions
    is_stoppable = False

    def measure(self, stop: StoppingCriterion, progress: Progress) -> Finding:
        """Time all methods, and compare their results."""
        del stop
        chosen, clock = self.chosen, PhaseClock()
        progress.start("time shares", None)
        problem = draw_problem(chosen, self.seed)
        finish_time_shares(problem)  # compiles
        _state(problem)  # imports
        with clock.phase("solve"):
            ours_s, ours = _timed(lambda: finish_time_shares(problem), chosen.repeats)
        with clock.phase("programmes"):
            highs_s, highs = _timed(lambda: finish_time_shares_by_programmes(problem), chosen.repeats)
        with clock.phase("statement"):
            stated_s, stated = _timed(lambda: _state(problem), chosen.repeats)
        progress.finish()
        apart = max(abs(each - stated) for each in (worst_ratio(problem, ours.x), highs.value)) / stated
        measures = {"ours_s": ours_s, "highs_s": highs_s, "cvxpy_s": stated_s}
        measures |= {"over_highs": ours_s / highs_s, "cvxpy_over_ours": stated_s / ours_s}
        return Finding(
            findings={"rho": float(f"{ours.value:.5g}"), "agrees": apart <= AGREEMENT},
            measures=measures,
            seconds=clock.seconds,
            problems=[] if apart <= AGREEMENT else [f"worst ratios differ by {apart:g}"],
            iterations=ours.solves,
        )


@unfilled_sums
def _state(problem: ShareProblem) -> float:
    """Solve the problem as a user of CVXPY would."""
    model = finish_time_model(problem)
    model.solve(solver="CLARABEL")
    return float(model.value)


def _timed(solve: Callable[[], ResultT], repeats: int) -> tuple[float, ResultT]:
    """Return the minimum processor seconds, and the result."""
    least = np.inf
    for _ in range(repeats):
        begun = time.process_time()
        result = solve()
        least = min(least, time.process_time() - begun)
    return float(least), result


def _subjects(options: TimeShareOptions, seed: int) -> Iterator[tuple[StudySubject, Mapping[str, Any]]]:
    name = f"shares-{options.jobs}-{seed}"
    yield StudySubject(name=name, topic="cluster", drawn_from=options, parameters={"jobs": options.jobs}), {}


SPEC = register_study(
    "time-shares",
    "cluster",
    "finish-time-fair shares of three types of GPU: by prices, by linear programmes, and as stated in CVXPY",
    kind=TimeShareWork,
    sizes=SIZES,
    subjects=_subjects,
    ways=("prices",),
    others="the study compares methods for one problem, not solvers",
    columns=("rho", "ours_s", "highs_s", "cvxpy_s", "over_highs", "cvxpy_over_ours"),
)
