"""Plans near a node's LP point: the compact programme over the jobs and completion slots that the point uses.

The packing LP says well which jobs to admit and when they complete, but the schedules of its point seldom fit together.
So jobs that the point admits entirely must be admitted, jobs that it rejects are removed, and each job may complete only in
slots in which one of its schedules does. HiGHS looks for better workers and PSs in the rest. Its points become plans that
are checked in integers; its claim that no better plan exists is ignored.

References
----------
Berthold, "RENS: the optimal rounding", Mathematical Programming Computation 2014, DOI 10.1007/s12532-013-0060-9.
"""

import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from optim.core.arrays import BoolArray, FloatArray
from optim.core.solution import Termination
from optim.models.admission.compact_index import compact_size
from optim.models.admission.decision import AdmissionPlan
from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.pricing.classes import PricedSchedules
from optim.solvers.lp.highs import CompiledModel, HighsOutcome, OnSolution, OptionValue, run_highs, silent_highs

MAX_PROGRAMME = 20_000
"""Maximum number of variables of the compact programme; 50 jobs, 24 slots and 10 servers have some 5,000."""

MAX_SHARE = 0.1
"""Simplex iterations since the last better plan, as a share of the tree's, above which no further support is searched."""

WEIGHT_TOL = 1e-6
"""Smaller weights of schedules count as 0, and total weights closer to 1 as 1."""

QUICK: Mapping[str, OptionValue] = MappingProxyType({"mip_max_nodes": 100, "mip_detect_symmetry": False})
"""Options of short searches. The first node of HiGHS' tree takes most of their time, and usually finds the plan."""


class CompactProgramme:
    """The compact programme (1)-(13) in HiGHS' form, built on first use; several threads may share it.

    Parameters
    ----------
    instance
        The instance.
    """

    def __init__(self, instance: AdmissionInstance) -> None:
        self.instance = instance
        self._lock = threading.Lock()
        self._model: Any = None
        self._compiled: CompiledModel | None = None

    def compiled(self) -> CompiledModel:
        """Return the programme; the first call loads Pyomo."""
        from optim.models.admission.compact_programme import compact_model

        with self._lock:
            if self._compiled is None:
                self._model = compact_model(self.instance)
                self._compiled = CompiledModel(self._model)
            return self._compiled

    def plan_of(self, values: FloatArray) -> AdmissionPlan:
        """Return the plan of the columns' values, checked in integers; always called from the same thread."""
        from optim.models.admission.compact_programme import plan_from_compact

        self.compiled().load(values)
        return plan_from_compact(self._model, self.instance)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Support:
    """Jobs and completion slots that an LP point uses.

    Parameters
    ----------
    is_required
        Shape (jobs,): whether the point admits the job entirely.
    is_allowed
        Shape (jobs, slots): whether some of the job's weight completes in the slot.
    """

    is_required: BoolArray
    is_allowed: BoolArray

    @classmethod
    def of(cls, schedules: PricedSchedules, weight: FloatArray, num_jobs: int) -> "Support":
        """Return the support of the schedules' weights."""
        on = np.flatnonzero(weight > WEIGHT_TOL)
        is_allowed = np.zeros((num_jobs, schedules.workers.shape[2]), dtype=np.bool_)
        is_allowed[schedules.jobs[on], schedules.completion[on]] = True
        total = np.bincount(schedules.jobs[on], weights=weight[on], minlength=num_jobs)
        return cls(is_required=total > 1.0 - WEIGHT_TOL, is_allowed=is_allowed)

    @property
    def key(self) -> bytes:
        """Bytes that are equal for equal supports."""
        return self.is_required.tobytes() + self.is_allowed.tobytes()


class RestrictedProgramme:
    """HiGHS on the compact programme, restricted to one support after the other.

    Parameters
    ----------
    programme
        The compact programme.
    """

    def __init__(self, programme: CompactProgramme) -> None:
        compiled = programme.compiled()
        lp = compiled.lp
        self._lower, self._upper = np.array(lp.col_lower_), np.array(lp.col_upper_)
        names = [variable.parent_component().local_name for variable in compiled.columns]
        indices = [variable.index() for variable in compiled.columns]
        self._is_admission = np.array([name == "admitted" for name in names])
        self._is_completion = np.array([name == "completes" for name in names])
        # Indices are a job; job and slot; job, segment, server and slot; job, segment and slot; job, slot and workers.
        self._job = np.array([np.ravel(index)[0] for index in indices])
        self._slot = np.array(
            [np.ravel(index)[1 if name == "step" else -1] for name, index in zip(names, indices, strict=True)]
        )
        self._highs = silent_highs(lp)
        cost = np.array(lp.col_cost_)
        valued = np.flatnonzero(cost)
        self._cutoff_row, self._offset = lp.num_row_, lp.offset_
        self._highs.addRow(-math.inf, math.inf, len(valued), valued.astype(np.int32), cost[valued])

    def run(
        self,
        support: Support,
        cutoff: float,
        should_stop: Callable[[], bool],
        *,
        options: Mapping[str, OptionValue],
        on_solution: OnSolution | None = None,
    ) -> HighsOutcome:
        """Run HiGHS on the programme of a support, for points of a value of at least `cutoff`.

        Parameters
        ----------
        support, cutoff
            The restrictions.
        should_stop
            Called several times per second.
        options, on_solution
            As in `run_highs`.
        """
        last = np.where(support.is_allowed, np.arange(support.is_allowed.shape[1]), -1).max(axis=1)
        is_out = np.where(self._is_admission, last[self._job] < 0, self._slot > last[self._job])
        completion = np.flatnonzero(self._is_completion)
        is_out[completion] = ~support.is_allowed[self._job[completion], self._slot[completion]]
        lower = np.where(self._is_admission & support.is_required[self._job], 1.0, self._lower)
        every = np.arange(len(lower), dtype=np.int32)
        self._highs.changeColsBounds(len(lower), every, lower, np.where(is_out, 0.0, self._upper))
        self._highs.changeRowBounds(self._cutoff_row, cutoff - self._offset, math.inf)
        return run_highs(
            self._highs,
            options={"mip_rel_gap": 0.0, **options},
            watch=lambda _: Termination.INTERRUPTED if should_stop() else None,
            on_solution=on_solution,
            has_interrupts=False,
        )


class SupportSearch:
    """Short searches in the supports of a tree's nodes, with an effort that follows their success.

    Parameters
    ----------
    programme
        The compact programme.
    on_unfinished
        Called with a support and a cutoff where a search ended at its limit.
    """

    def __init__(
        self, programme: CompactProgramme, on_unfinished: Callable[[Support, float], None] | None = None
    ) -> None:
        self._programme, self._on_unfinished = programme, on_unfinished
        self._is_possible = 0 < compact_size(programme.instance) <= MAX_PROGRAMME
        self._restricted: RestrictedProgramme | None = None
        self._tried: set[bytes] = set()
        self._spent = 0

    def better_plan(
        self, support: Support, cutoff: float, tree_iterations: int, should_stop: Callable[[], bool]
    ) -> AdmissionPlan | None:
        """Return a plan of more than `cutoff` within a support; None if none was found.

        Parameters
        ----------
        support
            A support that was tried before is not tried again.
        cutoff
            Value that the plan must exceed.
        tree_iterations
            Simplex iterations of the tree so far; a share of them limits the searches without success.
        should_stop
            Called several times per second.
        """
        if not self._is_possible or self._spent > MAX_SHARE * tree_iterations or support.key in self._tried:
            return None
        self._tried.add(support.key)
        if self._restricted is None:
            self._restricted = RestrictedProgramme(self._programme)
        outcome = self._restricted.run(support, cutoff, should_stop, options=QUICK)
        if outcome.is_aborted:
            raise KeyboardInterrupt
        self._spent += outcome.simplex_iterations
        if outcome.termination is Termination.NODE_LIMIT and self._on_unfinished is not None:
            self._on_unfinished(support, cutoff)
        if outcome.values is None:
            return None
        plan = self._programme.plan_of(outcome.values)
        if plan.objective(self._programme.instance) <= cutoff:
            return None
        self._spent = 0
        return plan
