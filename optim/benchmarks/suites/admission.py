"""Admission suite: all solvers on the reference instances, or on instances of the user."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from optim.benchmarks.cases import GIVEN_LIMIT_S, Case, register_solver_suite
from optim.benchmarks.records import Record
from optim.benchmarks.suite import BenchRequest, SolveWork
from optim.core.files import prepare_folder
from optim.core.options import build_options
from optim.core.progress import Progress
from optim.core.solution import Solution, Termination
from optim.core.stopping import StoppingCriterion
from optim.models.admission.instance import AdmissionInstance
from optim.models.files import save
from optim.models.reference import history_names
from optim.solvers.admission.online import OnlineOptions, tied_runs
from optim.workloads.admission.generator import drawn_days
from optim.workloads.instances import InstanceRequest, InstanceSource, NamedSource, ProfiledSource

LEARNER = "online-learned"
"""The solver that learns from earlier days."""

TIES = ("min over ties", "median over ties", "max over ties")
"""Columns: objective of `online` over random orders of ties (jobs of a slot, schedules with equal payoff)."""

TIE_ORDERS = 20
"""Number of random orders per row of `online`, outside its measured time."""

USUAL_DAYS = 4
"""Default number of shipped instances of earlier days to learn from."""

_LOG = logging.getLogger(__name__)

EXACT_SOLVERS = frozenset({"branch-and-price", "compact-milp", "exact"})
"""Solvers with search trees for tiny and small instances, skipped on larger ones unless requested."""

PROFILED_LIMIT_S = 15.0
"""Time limit per solve in seconds on instances generated from a profile."""

BRIEF: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "column-generation": {"tol": 1e-3},
        "dorm": {"relative_gap": 0.1, "max_waiting": 5},
        "search": {"lp_tol": 1e-2, "cut_rounds": 0, "num_moves": 5_000},
    }
)
"""Options with which solvers finish in seconds, without a time limit, on all but large instances, so that rows are comparable."""

TINY: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {"search": {"num_moves": 5_000}, "branch-and-price": {"max_nodes": 10}}
)
"""Options with which solvers finish tiny and small instances in seconds; `exact` has no limit, so that it proves its optimum."""


@dataclass(frozen=True, kw_only=True)
class AdmissionWork(SolveWork):
    """A solve whose record contains, for `online`, the effect of tie-breaking."""

    def attempt(self, stop: StoppingCriterion, progress: Progress) -> tuple[Solution, Record]:
        """Solve and verify, and run random orders of ties."""
        solution, record = super().attempt(stop, progress)
        if self.solver != "online" or not record.verified or record.termination != Termination.COMPLETED:
            return solution, record
        return solution, replace(record, findings=self._over_ties())

    def _over_ties(self) -> dict[str, float]:
        """Return the minimum, median and maximum objective over random orders of ties."""
        options = build_options(OnlineOptions, self.options)
        runs = tied_runs(self.subject.instance, options, num_orders=TIE_ORDERS, seed=self.seed)
        earned = [run.objective for run in runs]
        figures = (min(earned), float(np.median(earned)), max(earned))
        return {name: round(figure, 4) for name, figure in zip(TIES, figures, strict=True)}


def _small() -> tuple[Case, ...]:
    """Return cases that all solvers together solve in two minutes; the time limits matter only on slow or shared machines."""
    tiny = [NamedSource(name) for name in ("tiny-0", "tiny-1", "tiny-2", "small-0")]
    generated = InstanceRequest(jobs=40, slots=30, worker_servers=6, ps_servers=6).sources() or ()
    return (
        *(Case(source=source, time_limit_s=60.0, options=TINY) for source in tiny),
        *(
            Case(source=source, time_limit_s=30.0, left_out=EXACT_SOLVERS, options=BRIEF)
            for source in (*generated, NamedSource("medium-0"))
        ),
    )


def _full() -> tuple[Case, ...]:
    """Return all reference instances, with the time limits of the published results."""
    small = [f"{size}-{number}" for size in ("tiny", "small") for number in range(3)]
    large = [f"{size}-{number}" for size in ("light", "medium", "heavy") for number in range(3)]
    slow_on_wide = EXACT_SOLVERS | {"search"}
    return (
        *(Case(source=NamedSource(name), time_limit_s=300.0) for name in small),
        *(Case(source=NamedSource(name), time_limit_s=300.0, left_out=EXACT_SOLVERS) for name in large),
        Case(source=NamedSource("wide-0"), time_limit_s=300.0, left_out=slow_on_wide),
        Case(source=NamedSource("large-0"), time_limit_s=600.0, left_out=EXACT_SOLVERS),
    )


def _given(source: InstanceSource) -> Case:
    return Case(source=source, time_limit_s=PROFILED_LIMIT_S if isinstance(source, ProfiledSource) else GIVEN_LIMIT_S)


def _history(
    request: BenchRequest, instance: AdmissionInstance, seed: int, solvers: Sequence[str]
) -> Mapping[str, Mapping[str, Any]]:
    """Return the option with instances of earlier days for `LEARNER`: shipped ones if any, otherwise generated ones if requested."""
    is_given = {"history", f"{LEARNER}.history"} & set(request.options)
    if LEARNER not in solvers or is_given or request.histories == 0:
        return {}
    shipped = history_names(instance.name)
    if shipped:
        return {LEARNER: {"history": ",".join(shipped[: request.histories or USUAL_DAYS])}}
    if request.histories is None:
        return {}
    files = []
    for day in drawn_days(instance, request.histories, seed):
        files.append(str(request.folder / "histories" / f"{day.name}.json.gz"))
        prepare_folder(Path(files[-1]))
        save(day, files[-1])
    _LOG.info("%s: no instances of earlier days are shipped; using %d generated ones", instance.name, len(files))
    return {LEARNER: {"history": ",".join(files)}}


SPEC = register_solver_suite(
    "admission",
    "all solvers on the reference instances, or on your instances",
    _small,
    _full,
    given=_given,
    columns=TIES,
    further=_history,
    kind=AdmissionWork,
)
