"""The study `phases`: what phases are worth to a policy, by encoder, at equal risk.

Each row finds phases with one encoder on some generated containers, and runs policies on others. Their allocations are
those of the multipliers that meet the same under-provisioned time, as savings against the rule that looks back a cycle;
`truth` are the generator's own phases, and no policy can save more than `most`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np

from optim.benchmarks.spec import FULL, SMALL
from optim.benchmarks.study import AbstractStudy, Finding, StudySubject, register_study
from optim.core.clock import PhaseClock
from optim.core.errors import InvalidOptionError
from optim.core.progress import Progress
from optim.core.stopping import StoppingCriterion
from optim.models.containers.series import ContainerSeries, IntArray
from optim.phases import ENCODERS, adjusted_rand_index
from optim.simulation.containers.comparison import ALL_RESOURCES, Row, compare_policies
from optim.simulation.containers.preparation import TRUTH, WorldOptions, find_phases, split_series
from optim.simulation.containers.world import make_world
from optim.workloads.containers import ContainerOptions, generate_containers

POLICIES = ("phase-rule", "phase-shift", "phase-price", "level-price", "vpa", "oracle-cheapest")
WAYS = (TRUTH, *ENCODERS)
QUICK = (TRUTH, "window-statistics", "raw-window")
"""Encoders that need no training to speak of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseOptions:
    """Sizes of the study.

    Parameters
    ----------
    containers
        Generated containers; policies run on a fifth of them.
    resamples
        Resamples of containers for intervals.
    risk
        Under-provisioned time of all policies.
    num_phases
        Phases to be told apart; by rule if absent.
    """

    containers: int = 100
    resamples: int = 100
    risk: float = 0.05
    num_phases: int | None = None

    def __post_init__(self) -> None:
        for name, least in (("containers", 10), ("resamples", 1)):
            if getattr(self, name) < least:
                raise InvalidOptionError(f"{name} must be at least {least}, got {getattr(self, name)}")
        if self.num_phases is not None and self.num_phases < 1:
            raise InvalidOptionError(f"num_phases must be at least 1, got {self.num_phases}")
        if not 0 < self.risk < 1:
            raise InvalidOptionError(f"risk must be in (0, 1), got {self.risk}")


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
            training, test = split_series(drawn_containers(options.containers, self.seed), wanted, self.seed)
        with clock.phase("solve"):
            phases = find_phases(training, test, wanted, self.seed)
        progress.start(self.solver, len(POLICIES))
        with clock.phase("verify"):
            compared = compare_policies(
                make_world(test, training, phases),
                POLICIES,
                risk=options.risk,
                num_resamples=options.resamples,
                seed=self.seed,
                done=progress.update,
            )
            rows = {row.policy: row for group in compared for row in group if row.resource == ALL_RESOURCES}
        progress.finish()
        return Finding(
            findings={
                "ari": _agreement(test, phases.labels),
                "phases": phases.num_phases,
                "rule": rows["phase-rule"].reduction,
                "shift": rows["phase-shift"].reduction,
                "price": rows["phase-price"].reduction,
                "price_low": rows["phase-price"].reduction_low,
                "price_high": rows["phase-price"].reduction_high,
                "no_phases": rows["level-price"].reduction,
                "vpa": rows["vpa"].reduction,
                "most": rows["oracle-cheapest"].reduction,
            },
            seconds=clock.seconds,
            problems=_problems(list(rows.values()), options.risk),
        )


@lru_cache(maxsize=1)
def drawn_containers(number: int, seed: int) -> ContainerSeries:
    """Return generated containers; encoders that follow each other share them."""
    return generate_containers(ContainerOptions(num_containers=number), seed)


def _problems(rows: Sequence[Row], risk: float) -> list[str]:
    """Say which policies run a greater risk than they were tuned for, and which save more than can be saved."""
    (most,) = (row.reduction for row in rows if row.policy == "oracle-cheapest")
    risky = [row for row in rows if row.is_reached and row.under_time > risk]
    return [
        *(f"{row.policy} has {row.under_time:.4f} under-provisioned time" for row in risky),
        *(f"{row.policy} beats the bound" for row in rows if row.reduction > most),
    ]


def _agreement(series: ContainerSeries, labels: IntArray) -> float:
    """Return the adjusted Rand index over the samples that have a phase."""
    known = labels >= 0
    truth = np.zeros_like(labels) if series.phase is None else series.phase
    return adjusted_rand_index(truth[known], labels[known])


def _subjects(options: PhaseOptions, seed: int) -> Iterator[tuple[StudySubject, Mapping[str, Any]]]:
    name = f"containers-{options.containers}-{seed}"
    yield StudySubject(name=name, topic="phases", parameters={"containers": options.containers}), {}


SPEC = register_study(
    "phases",
    "phases",
    "what phases save at equal risk, by encoder, beside rules without phases and the most that can be saved",
    kind=PhaseWork,
    sizes=SIZES,
    subjects=_subjects,
    ways=WAYS,
    small_ways=QUICK,
    columns=("ari", "phases", "rule", "shift", "price", "price_low", "price_high", "no_phases", "vpa", "most"),
)
