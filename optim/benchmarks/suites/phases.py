"""The study `phases`: what phases are worth to a policy, by encoder, at equal risk.

Each row finds phases with one encoder on some generated containers, and runs policies on others. Their allocations are
those of the multipliers that meet the same under-provisioned time, as savings against the rule that looks back a cycle;
`truth` are the generator's own phases, and `bound` is what no policy can exceed.
"""

import hashlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np

from optim.benchmarks.record import Record, plain, provenance
from optim.benchmarks.registry import register_suite
from optim.benchmarks.spec import SMALL, BenchRequest, BenchSpec, Skipped
from optim.benchmarks.work import AbstractWork, Subject, describe_error
from optim.core.errors import InvalidOptionError
from optim.core.options import build_options, options_as_dict
from optim.core.progress import Progress
from optim.core.status import PointStatus, Termination
from optim.core.stopping import StoppingCriterion
from optim.models.containers.series import ContainerSeries, IntArray
from optim.phases import ENCODERS, adjusted_rand_index
from optim.simulation.containers.comparison import ALL_RESOURCES, compare_policies
from optim.simulation.containers.preparation import TRUTH, WorldOptions, find_phases, split_series
from optim.simulation.containers.world import make_world
from optim.solvers.solve import package_versions
from optim.workloads.containers import ContainerOptions, generate_containers

PROBLEM = "phases"
FULL = "full"
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


class ContainerSet(Subject):
    """Generated containers."""

    def __init__(self, options: PhaseOptions, seed: int) -> None:
        self.options, self.seed = options, seed
        self.name = f"containers-{options.containers}-{seed}"
        self.problem = SimpleNamespace(name=PROBLEM)  # type: ignore[assignment]

    @cached_property
    def digest(self) -> str:
        """Digest of what the series are drawn from."""
        return hashlib.sha256(self.name.encode()).hexdigest()[:16]

    @cached_property
    def parameters(self) -> dict[str, Any]:
        """Sizes."""
        return {"containers": self.options.containers}

    @cached_property
    def series(self) -> ContainerSeries:
        """The containers."""
        return generate_containers(ContainerOptions(num_containers=self.options.containers), self.seed)


@dataclass(frozen=True, kw_only=True)
class PhaseWork(AbstractWork):
    """Find phases with one encoder, which `solver` names, and run policies on them."""

    def resolved_options(self) -> dict[str, Any]:
        """Return the study's complete options."""
        return plain(options_as_dict(build_options(PhaseOptions, self.options)))

    def run(self, stop: StoppingCriterion, progress: Progress) -> Record:
        """Fit, label, tune, compare."""
        del stop
        try:
            return self._study(progress)
        except Exception as error:  # one encoder that fails must not end the others
            return self.failed(describe_error(error))

    def _study(self, progress: Progress) -> Record:
        options = build_options(PhaseOptions, self.options)
        chosen = WorldOptions(encoder=self.solver, num_phases=options.num_phases)
        begun = time.perf_counter()
        training, test = split_series(self.subject.series, chosen, self.seed)  # type: ignore[attr-defined]
        built = time.perf_counter()
        phases = find_phases(training, test, chosen, self.seed)
        fitted = time.perf_counter()
        world = make_world(test, training, phases)
        progress.start(self.solver, len(POLICIES))
        compared = compare_policies(
            world,
            POLICIES,
            risk=options.risk,
            num_resamples=options.resamples,
            seed=self.seed,
            done=progress.update,
        )
        rows = [row for group in compared for row in group if row.resource == ALL_RESOURCES]
        progress.finish()
        ended = time.perf_counter()
        saving = {row.policy: row.reduction for row in rows}
        price = next(row for row in rows if row.policy == "phase-price")
        figures = {
            "ari": _agreement(test, phases.labels),
            "phases": phases.num_phases,
            "rule": saving["phase-rule"],
            "shift": saving["phase-shift"],
            "price": saving["phase-price"],
            "price_low": price.reduction_low,
            "price_high": price.reduction_high,
            "no_phases": saving["level-price"],
            "vpa": saving["vpa"],
            "bound": saving["oracle-cheapest"],
        }
        problems = [
            f"{row.policy} has {row.under_time:.4f} under-provisioned time"
            for row in rows
            if row.is_reached and row.under_time > options.risk
        ]
        problems += [f"{row.policy} beats the bound" for row in rows if row.reduction > saving["oracle-cheapest"]]
        return Record(
            **self.identity() | {"parameters": {**self.subject.parameters, **plain(figures)}},
            **provenance(),
            versions=dict(package_versions()),
            termination=Termination.COMPLETED.value,
            primal=PointStatus.FEASIBLE.value,
            objective=saving["phase-price"],
            seconds={"build": built - begun, "compile": 0.0, "solve": fitted - built, "verify": ended - fitted},
            verified=not problems,
            violations=problems,
        )


def _agreement(series: ContainerSeries, labels: IntArray) -> float:
    """Return the adjusted Rand index over the samples that have a phase."""
    known = labels >= 0
    truth = np.zeros_like(labels) if series.phase is None else series.phase
    return adjusted_rand_index(truth[known], labels[known])


def build(request: BenchRequest) -> Iterator[AbstractWork | Skipped]:
    """Yield each encoder for each seed.

    Raises
    ------
    InvalidOptionError
        If there is no such encoder or option.
    """
    options = build_options(PhaseOptions, {**options_as_dict(SIZES[request.size]), **request.options})
    for name in request.solvers or ():
        if name not in WAYS:
            raise InvalidOptionError(f"unknown encoder {name!r}; there are: {', '.join(WAYS)}")
    for seed in request.seeds:
        subject = ContainerSet(options, seed)
        for way in request.solvers or (QUICK if request.size == SMALL else WAYS):
            yield PhaseWork(suite=SPEC.name, subject=subject, solver=way, seed=seed, options=options_as_dict(options))


SPEC = register_suite(
    BenchSpec(
        name="phases",
        problem=PROBLEM,
        summary="what phases save at equal risk, by encoder, beside rules without phases and the bound",
        build=build,
        sizes=(SMALL, FULL),
        columns=("ari", "phases", "rule", "shift", "price", "price_low", "price_high", "no_phases", "vpa", "bound"),
    )
)
