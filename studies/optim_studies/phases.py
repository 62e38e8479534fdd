"""The study `phases`: savings of policies that know phases, by encoder, at equal kills and throttling.

Each row finds phases with one encoder on some generated containers, tunes policies to the same kills and throttled time on
others, and runs them on the rest. Results are savings relative to the rule that looks back one cycle. `truth` uses the generator's
phases, and `most` is an upper bound on the savings of any plan with the allowed kills and throttling.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np

from optim.benchmarks.study import AbstractStudy, Finding, StudySubject, register_study
from optim.benchmarks.suite import FULL, SMALL
from optim.core.arrays import IntArray
from optim.core.driver import PhaseClock
from optim.core.errors import InvalidOptionError, check_in
from optim.core.progress import Progress
from optim.core.stopping import StoppingCriterion
from optim.models.containers.series import ContainerSeries
from optim.phases import ENCODERS, adjusted_rand_index
from optim.rightsizing.comparison import ALL_RESOURCES, Row, compare_policies
from optim.rightsizing.policy import CLAIRVOYANT
from optim.rightsizing.tuning import Slo
from optim.rightsizing.world import TRUTH, CalibrationTestSplit, WorldOptions, find_phases, make_world, split_series
from optim.workloads.containers import ContainerOptions, generate_containers

POLICIES = ("phase-rule", "phase-price", "level-price", "vpa", CLAIRVOYANT)
WAYS = (TRUTH, *ENCODERS)
QUICK = (TRUTH, "window-statistics", "raw-window")
"""Encoders with little or no training."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseOptions:
    """Sizes of the study.

    Parameters
    ----------
    containers
        Number of generated containers: two fifths to learn from, two to tune on, one to test on.
    resamples
        Number of bootstrap resamples of the containers for intervals.
    kills, throttled
        Allowed share of cycles killed for memory, and of samples short of CPU.
    num_phases
        Number of phases to find; by default a rule chooses it.
    """

    containers: int = 100
    resamples: int = 100
    kills: float = 0.01
    throttled: float = 0.05
    num_phases: int | None = None

    def __post_init__(self) -> None:
        for name, least in (("containers", 10), ("resamples", 1)):
            if getattr(self, name) < least:
                raise InvalidOptionError(f"{name} must be at least {least}, got {getattr(self, name)}")
        if self.num_phases is not None and self.num_phases < 1:
            raise InvalidOptionError(f"num_phases must be at least 1, got {self.num_phases}")
        check_in("(0, 1)", self, "kills", "throttled")


SIZES: Mapping[str, PhaseOptions] = MappingProxyType(
    {SMALL: PhaseOptions(containers=50, resamples=20, num_phases=5), FULL: PhaseOptions(containers=500, resamples=1000)}
)


@dataclass(frozen=True, kw_only=True)
class PhaseWork(AbstractStudy):
    """Find phases with one encoder, which `solver` names, and run policies on them."""

    options_type = PhaseOptions
    is_stoppable = False

    def measure(self, stop: StoppingCriterion, progress: Progress) -> Finding:
        """Fit, label, tune, compare."""
        del stop
        options, clock = self.chosen, PhaseClock()
        wanted = WorldOptions(encoder=self.solver, num_phases=options.num_phases)
        with clock.phase("build"):
            training, tuned, test = split_series(drawn_containers(options.containers, self.seed), wanted, self.seed)
        with clock.phase("solve"):
            known, phases = find_phases(training, (tuned, test), wanted, self.seed)
        with clock.phase("verify"):
            compared = compare_policies(
                CalibrationTestSplit(
                    calibration=make_world(tuned, training, known), test=make_world(test, training, phases)
                ),
                POLICIES,
                Slo(kills=options.kills, throttled=options.throttled),
                num_resamples=options.resamples,
                seed=self.seed,
                progress=progress,
            )
            rows = {row.policy: row for group in compared for row in group if row.resource == ALL_RESOURCES}
        return Finding(
            findings={
                "ari": _agreement(test, phases.labels),
                "phases": phases.num_phases,
                "rule": rows["phase-rule"].reduction,
                "price": rows["phase-price"].reduction,
                "price_low": rows["phase-price"].reduction_low,
                "price_high": rows["phase-price"].reduction_high,
                "no_phases": rows["level-price"].reduction,
                "vpa": rows["vpa"].reduction,
                "most": rows[CLAIRVOYANT].most,
            },
            seconds=clock.seconds,
            problems=_problems(rows[CLAIRVOYANT]),
        )


@lru_cache(maxsize=1)
def drawn_containers(number: int, seed: int) -> ContainerSeries:
    """Return generated containers, cached for consecutive encoders."""
    return generate_containers(ContainerOptions(num_containers=number), seed)


def _problems(row: Row) -> list[str]:
    """Return an error if the clairvoyant plan exceeds the bound or is far below it."""
    most = row.most or 0.0
    return [] if most - FAR <= row.reduction <= most + ROUNDING else ["the clairvoyant plan doesn't attain the bound"]


FAR, ROUNDING = 0.05, 1e-9
"""Allowed distance of the plan's saving below the bound, and above it."""


def _agreement(series: ContainerSeries, labels: IntArray) -> float:
    """Return the adjusted Rand index over the samples with a phase."""
    known = labels >= 0
    truth = np.zeros_like(labels) if series.phase is None else series.phase
    return adjusted_rand_index(truth[known], labels[known])


def _subjects(options: PhaseOptions, seed: int) -> Iterator[tuple[StudySubject, Mapping[str, Any]]]:
    name = f"containers-{options.containers}-{seed}"
    yield StudySubject(name=name, topic="phases", parameters={"containers": options.containers}), {}


SPEC = register_study(
    "phases",
    "phases",
    "savings by phases at equal kills and throttling, by encoder, compared with rules without phases and an upper bound",
    kind=PhaseWork,
    sizes=SIZES,
    subjects=_subjects,
    ways=WAYS,
    small_ways=QUICK,
    columns=("ari", "phases", "rule", "price", "price_low", "price_high", "no_phases", "vpa", "most"),
)
