"""The study `capacity`: portfolios without bids that keep a required capacity, proven, and simulated hours of the same hazards."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from optim.benchmarks.study import AbstractStudy, Finding, StudySubject, register_study
from optim.benchmarks.suite import FULL, SMALL
from optim.core.arrays import FloatArray
from optim.core.driver import PhaseClock
from optim.core.errors import check_in
from optim.core.options import options_as_dict
from optim.core.progress import Progress
from optim.core.stopping import StoppingCriterion
from optim.models.bidding.decision import FootprintPlan
from optim.models.bidding.market.lifetimes import CommonShocks
from optim.models.files import verify
from optim.solvers.bidding.dinkelbach import DinkelbachSolver
from optim.solvers.solve import solve
from optim.workloads.bidding.generator import CapacityDraw, CapacityOptions, draw_capacity

FAR_OFF = 5.0
"""Maximum number of standard errors by which the simulated share may differ from the stated probability."""

MINUTES = 60
"""Steps per simulated hour."""


def simulate_capacity(
    shocks: CommonShocks, capacity: FloatArray, least: float, *, runs: int, seed: int
) -> tuple[float, float]:
    """Return the share of simulated hours at whose end the capacity is at least `least`, and its standard error.

    Each cause of loss is simulated separately, minute by minute, by code that is independent of the exact computation.

    Parameters
    ----------
    shocks
        Expected shocks of the hour.
    capacity
        Shape (kinds,): capacity of all machines of a type together.
    least
        Required capacity.
    runs, seed
        Number of hours, and seed of the simulation.
    """
    rng = np.random.default_rng(seed)
    markets = np.flatnonzero(capacity > 0)
    num_enough = 0
    for _ in range(runs):
        is_up = np.ones(len(markets), dtype=bool)
        for rate, place in (
            (shocks.own[markets], np.arange(len(markets))),
            (shocks.by_zone, shocks.zone[markets]),
            (shocks.by_region, shocks.region[shocks.zone[markets]]),
        ):
            struck = np.asarray((rng.random((MINUTES, len(rate))) < -np.expm1(-rate / MINUTES)).any(axis=0))
            is_up &= ~struck[place]
        num_enough += float(capacity[markets][is_up].sum()) >= least - 1e-9
    share = num_enough / runs
    return share, float(np.sqrt(max(share * (1 - share), 1 / runs) / runs))


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyOptions(CapacityOptions):
    """Options of the study: those of the generated decision, and two more.

    Parameters
    ----------
    hours
        Number of simulated hours.
    gap
        Relative gap to prove.
    """

    min_gpus: int = 16
    min_probability: float = 0.8
    hours: int = 4000
    gap: float = 1e-4

    def __post_init__(self) -> None:
        CapacityOptions.__post_init__(self)
        check_in("[1, 1e6]", self, "min_gpus")
        check_in("[100, 1e7]", self, "hours")
        check_in("[1e-9, 1)", self, "gap")


SIZES: Mapping[str, StudyOptions] = MappingProxyType(
    {SMALL: StudyOptions(zone_types=12), FULL: StudyOptions(hours=20_000)}
)


@dataclass(frozen=True, kw_only=True)
class CapacityWork(AbstractStudy):
    """Solve with and without the capacity requirement, verify the solution, and simulate hours."""

    options_type = StudyOptions

    def measure(self, stop: StoppingCriterion, progress: Progress) -> Finding:
        """Generate, solve, verify, simulate."""
        del progress
        options, clock = self.chosen, PhaseClock()
        with clock.phase("build"):
            draw = draw_capacity(options, self.seed)
        with clock.phase("solve"):
            solution = solve(draw.instance, DinkelbachSolver.name, options={"tol": options.gap}, stop=stop)
            free = replace(draw.instance, survival=None)
            without = solve(free, DinkelbachSolver.name, options={"tol": options.gap}, stop=stop)
        with clock.phase("verify"):
            problems = [str(each) for each in verify(draw.instance, solution).violations]
        findings: dict[str, float] = {"usd_per_work_without": without.objective or 0.0}
        if isinstance(solution.decision, FootprintPlan) and isinstance(without.decision, FootprintPlan):
            played = play(draw, solution.decision, options, self.seed)
            least = options.min_gpus
            findings |= {"kept_without": draw.probability(without.decision.counts, least), **played}
            findings |= {
                "usd_per_work": solution.objective or 0.0,
                "gap": solution.gap if solution.gap is not None else 1.0,
            }
            problems += contradictions(played)
        return Finding(
            findings=findings, seconds=clock.seconds, problems=problems, iterations=solution.stats.iterations
        )


def play(draw: CapacityDraw, plan: FootprintPlan, options: StudyOptions, seed: int) -> dict[str, float]:
    """Return the stated probability that the capacity lasts, the simulated share, and the share's standard error."""
    capacity, least = plan.counts * draw.capacity, options.min_gpus
    share, error = simulate_capacity(draw.shocks, capacity, least, runs=options.hours, seed=seed)
    return {"kept": draw.probability(plan.counts, least), "played": share, "standard_error": error}


def contradictions(played: Mapping[str, float]) -> list[str]:
    """Return contradictions: a simulated share far from the stated probability."""
    off = abs(played["played"] - played["kept"])
    if off <= FAR_OFF * played["standard_error"]:
        return []
    return [
        f"the capacity lasts in {played['played']:.4f} of the simulated hours, but the stated probability is {played['kept']:.4f}"
    ]


def _subjects(options: StudyOptions, seed: int) -> Iterator[tuple[StudySubject, Mapping[str, Any]]]:
    drawn_from = sorted(options_as_dict(options).items())
    name = f"capacity-{options.zone_types}-{options.min_gpus}gpus-{options.min_probability:g}-{seed}"
    yield StudySubject(name=name, topic="bidding", drawn_from=drawn_from), {}


SPEC = register_study(
    "capacity",
    "bidding",
    "portfolios without bids for a required capacity and probability: cost, proof, and simulated compared with stated probability",
    kind=CapacityWork,
    sizes=SIZES,
    subjects=_subjects,
    ways=("dinkelbach",),
    others="the study solves with dinkelbach alone",
    columns=("usd_per_work_without", "usd_per_work", "gap", "kept_without", "kept", "played", "standard_error"),
)
