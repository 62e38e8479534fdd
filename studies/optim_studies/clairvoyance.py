"""The study `clairvoyance`: lower bounds on the allocation of any plan, plans close to them, and the time to check both."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from optim.benchmarks.study import AbstractStudy, Finding, StudySubject, register_study
from optim.benchmarks.suite import FULL, SMALL
from optim.core.driver import PhaseClock
from optim.core.errors import check_in
from optim.core.options import options_as_dict
from optim.core.progress import Progress
from optim.core.stopping import StoppingCriterion
from optim.models.containers.clairvoyance import check_clairvoyant
from optim.rightsizing.clairvoyant import claim_of, clairvoyant
from optim.rightsizing.tuning import Slo
from optim.rightsizing.world import WorldOptions, make_world, split_series
from optim_studies.series import GENERATED, given_series, series_name

ALLOWED, HARMLESS = "allowed-harm", "harmless"


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundOptions:
    """Options of the study.

    Parameters
    ----------
    series
        ``generated``, or a file that `read_containers` reads.
    containers
        Number of generated containers; plans are for a fifth of them. With few containers, one cycle can open a gap above 1 %.
    interval_s, max_gap_s, cycle_minutes
        Interval of the grid and longest gap to interpolate, in seconds, and minutes between decisions.
    kills, throttled
        Allowed fractions of cycles killed and of samples throttled.
    """

    series: str = GENERATED
    containers: int = 300
    interval_s: float = 15.0
    max_gap_s: float = 60.0
    cycle_minutes: float = 10.0
    kills: float = 0.01
    throttled: float = 0.05

    def __post_init__(self) -> None:
        check_in("[3, inf)", self, "containers")
        check_in("(0, inf)", self, "interval_s", "max_gap_s", "cycle_minutes")
        check_in("(0, 1)", self, "kills", "throttled")


SIZES: Mapping[str, BoundOptions] = MappingProxyType({SMALL: BoundOptions(), FULL: BoundOptions(containers=500)})


@dataclass(frozen=True, kw_only=True)
class BoundWork(AbstractStudy):
    """Compute lower bound and plan, and check both; `solver` names the allowed violations."""

    options_type = BoundOptions
    is_stoppable = False

    def measure(self, stop: StoppingCriterion, progress: Progress) -> Finding:
        """Plan with the series, and check with a module independent of the planner."""
        del stop, progress
        options, clock = self.chosen, PhaseClock()
        wanted = Slo(kills=options.kills, throttled=options.throttled)
        with clock.phase("build"):
            series = given_series(options.series, options.containers, self.seed)
            training, _, test = split_series(series, _rules(options), self.seed)
            world = make_world(test, training, cycle_s=60.0 * options.cycle_minutes)
        with clock.phase("solve"):
            plan = clairvoyant(world, wanted, is_harmless=self.solver == HARMLESS)
        problems, gaps = [], {}
        with clock.phase("verify"):
            for column, name in enumerate(test.names):
                claim = claim_of(test, world, plan, wanted, column)
                claim = replace(claim, allowed=0.0) if self.solver == HARMLESS else claim
                problems += [f"{name}: {problem}" for problem in check_clairvoyant(test, claim)]
                gaps[f"{name}_gap"] = claim.total / claim.bound - 1.0
        return Finding(
            findings=gaps,
            measures={"check_s": clock.seconds["verify"]},
            parameters={"samples": test.num_samples, "series": test.num_segments},
            seconds=clock.seconds,
            problems=problems,
        )


def _rules(options: BoundOptions) -> WorldOptions:
    return WorldOptions(
        interval_s=options.interval_s, max_gap_s=options.max_gap_s, cycle_s=60.0 * options.cycle_minutes
    )


def _subjects(options: BoundOptions, seed: int) -> Iterator[tuple[StudySubject, Mapping[str, Any]]]:
    what = series_name(options.series, options.containers)
    yield StudySubject(name=f"{what}-{seed}", topic="phases", drawn_from=options_as_dict(options)), {}


SPEC = register_study(
    "clairvoyance",
    "phases",
    "lower bounds on the allocation of plans for containers, plans close to them, and their check from the series alone",
    kind=BoundWork,
    sizes=SIZES,
    subjects=_subjects,
    ways=(ALLOWED, HARMLESS),
    columns=("series", "samples", "cpu_gap", "memory_gap", "check_s"),
)
