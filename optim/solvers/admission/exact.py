"""Proven optimal plans: branch and price, and beside it the compact programme by HiGHS, which finds plans early.

The tree of packing LPs has the better bounds, and its proof is checked; but its points are seldom whole. On small
instances HiGHS' heuristics find the best plan of the compact programme (1)-(13) long before the tree would. So both run
at once, each in a thread: HiGHS leaves Python's lock to the tree. It starts from the tree's first plan; each better
point that it finds is turned into a plan, whose rows are checked in integers and whose value is worked out from the
instance, and cuts off nodes of the tree. What HiGHS claims to have proven proves nothing here.
"""

import math
import queue
import threading
from dataclasses import dataclass, replace

from optim.core.arrays import FloatArray
from optim.core.driver import Monitor, Outcome
from optim.core.errors import InvalidOptionError
from optim.core.registry import register
from optim.core.solution import Termination
from optim.models.admission.compact_programme import compact_size
from optim.models.admission.decision import AdmissionPlan
from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.branch_and_price import BranchAndPriceOptions, grow_tree
from optim.solvers.admission.compact_milp import MAX_VARIABLES
from optim.solvers.admission.scaling import ScaledSolver
from optim.solvers.admission.warm_up import (
    compile_columns,
    compile_first_order,
    compile_moves,
    compile_nodes,
    has_large_master,
)
from optim.solvers.lp.highs import CompiledModel, HighsState, run_highs, silent_highs

SMALL_PROGRAMME = 20_000
"""Variables up to which HiGHS finds better plans of the compact programme than the tree does: 50 jobs, 24 slots, 10 servers
have some 10,000."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactOptions(BranchAndPriceOptions):
    """Options of `exact`: those of `branch-and-price`, and one.

    Parameters
    ----------
    max_variables
        Largest compact programme that HiGHS solves beside the tree; larger ones leave all time to the tree, and 0 does so
        always.
    """

    max_variables: int = SMALL_PROGRAMME

    def __post_init__(self) -> None:
        BranchAndPriceOptions.__post_init__(self)
        if not 0 <= self.max_variables <= MAX_VARIABLES:
            raise InvalidOptionError(f"max_variables must be between 0 and {MAX_VARIABLES}, got {self.max_variables}")


@register("exact", problem="admission")
class Exact(ScaledSolver[ExactOptions]):
    """Prove the optimum: a tree of packing LPs, which takes plans from the compact programme that runs beside it.

    Notes
    -----
    A run that comes to its end gives the same status and objective for the same seed. Which of several best plans it
    gives, and the tree that proves it, depend on when HiGHS hands a plan over; under a limit of time or nodes so do
    objective and bound. With ``max_variables=0`` the run is that of `branch-and-price`.

    The count `claimed_bound` is HiGHS' own bound, which comes without a proof.
    """

    summary = "proven optimal plans: the tree of branch-and-price, with plans from the compact programme beside it"
    options_type = ExactOptions
    is_reproducible = False

    def warm_up(self, instance: AdmissionInstance, options: ExactOptions) -> None:
        """Compile what the tree needs."""
        compile_columns(is_shared=instance.has_shared_servers)
        if has_large_master(instance):
            compile_first_order()
        compile_moves(is_shared=instance.has_shared_servers)
        compile_nodes(is_shared=instance.has_shared_servers)

    def run(self, instance: AdmissionInstance, options: ExactOptions, monitor: Monitor, seed: int) -> Outcome:
        """Return the best plan and the bound of the tree's leaves; any stop leaves both."""
        if instance.num_jobs == 0 or compact_size(instance) > options.max_variables:
            return grow_tree(instance, options, monitor, seed, task=self.name)
        compact = CompactThread(instance, monitor, seed)
        try:
            outcome = grow_tree(
                instance,
                options,
                monitor,
                seed,
                task=self.name,
                on_start=compact.start,
                find_elsewhere=compact.find_plan,
            )
        finally:
            compact.stop()
        claimed = {} if compact.bound is None else {"claimed_bound": compact.bound}
        return replace(outcome, counts={**outcome.counts, "plans_handed_over": float(compact.num_plans), **claimed})


class CompactThread:
    """HiGHS on the compact programme, in a thread of its own.

    Parameters
    ----------
    instance, monitor, seed
        As a solver's `run` gets them; of the monitor only the clock counts here, as the tree asks it.
    """

    def __init__(self, instance: AdmissionInstance, monitor: Monitor, seed: int) -> None:
        self._instance, self._monitor, self._seed = instance, monitor, seed
        self._points: queue.SimpleQueue[FloatArray] = queue.SimpleQueue()
        self._has_to_stop = threading.Event()
        self._model: object = None
        self._compiled: CompiledModel | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="compact programme", daemon=True)
        self.bound: float | None = None
        """What HiGHS claims that no plan exceeds."""
        self.num_plans = 0
        """Plans that were handed over."""

    @property
    def is_running(self) -> bool:
        """Whether HiGHS is at work."""
        return self._thread.is_alive()

    def start(self, plan: AdmissionPlan) -> None:
        """Start HiGHS."""
        self._first = plan
        self._thread.start()

    def find_plan(self) -> AdmissionPlan | None:
        """Return the plan of the newest point, None if there is none since the last time.

        Raises
        ------
        SolverError
            If HiGHS didn't run.
        """
        if self._error is not None:
            raise self._error
        values = None
        while not self._points.empty():
            values = self._points.get()
        if values is None:
            return None
        from optim.models.admission.compact_programme import plan_from_compact

        assert self._compiled is not None
        self._compiled.load(values)
        self.num_plans += 1
        return plan_from_compact(self._model, self._instance)

    def stop(self) -> None:
        """End HiGHS, and wait until it has ended."""
        self._has_to_stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        from optim.models.admission.compact_programme import compact_model

        try:
            self._model = compact_model(self._instance)
            if self._has_to_stop.is_set():
                return
            self._compiled = CompiledModel(self._model)
            outcome = run_highs(
                silent_highs(self._compiled.lp),
                time_limit_s=self._monitor.remaining_s,
                seed=self._seed,
                options={"mip_rel_gap": 0.0},
                watch=self._watch,
                on_solution=self._points.put,
            )
            self.bound = outcome.bound
            if outcome.values is not None:
                self._points.put(outcome.values)
        except BaseException as error:
            self._error = error

    def _watch(self, state: HighsState) -> Termination | None:
        if state.bound is not None and math.isfinite(state.bound):
            self.bound = state.bound
        return Termination.INTERRUPTED if self._has_to_stop.is_set() else None
