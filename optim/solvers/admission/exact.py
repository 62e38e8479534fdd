"""Proven optimal plans: branch and price, in parallel with two searches that find plans early.

The tree of packing LPs has tight bounds, and the checker verifies its proof, but its LP points are seldom integral. So two
searches find plans, each in a thread that releases Python's lock to the tree: the neighbourhood search and, on small
instances, HiGHS on the compact programme (1)-(13). HiGHS first continues the tree's short searches in the supports of LP
points (`branching.support_search`) that ended at their limit, then solves the whole programme. Each better plan prunes nodes
of the tree, and the neighbourhood search continues from it. HiGHS' points become plans whose rows are checked in integers and
whose value is computed from the instance; the solver does not rely on HiGHS' bounds.
"""

import queue
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from optim.core.arrays import FloatArray
from optim.core.driver import Monitor, Outcome
from optim.core.errors import InvalidOptionError
from optim.core.registry import register
from optim.core.solution import Termination
from optim.models.admission.compact_index import compact_size
from optim.models.admission.decision import AdmissionPlan
from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.branch_and_price import BranchAndPriceOptions, PlanGuide, grow_tree
from optim.solvers.admission.branching.support_search import (
    MAX_PROGRAMME,
    CompactProgramme,
    RestrictedProgramme,
    Support,
)
from optim.solvers.admission.compact_milp import MAX_VARIABLES
from optim.solvers.admission.scaling import ScaledSolver
from optim.solvers.admission.warm_up import (
    compile_columns,
    compile_first_order,
    compile_moves,
    compile_nodes,
    has_large_master,
)
from optim.solvers.lp.highs import HighsState, run_highs, silent_highs

DEFAULT_PROGRAMME = 1_000
"""Maximum number of variables for which `exact` is the default solver: 16 jobs, 12 slots and 6 servers have some 600."""

HEAD_START_S = 10.0
"""Seconds without an unfinished support after which HiGHS starts on the whole compact programme."""

MAX_REST = 32.0
"""Maximum pause of the search after cycles without a better plan, in durations of a cycle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactOptions(BranchAndPriceOptions):
    """Options of `exact`: those of `branch-and-price`, and two more.

    Parameters
    ----------
    max_variables
        Largest compact programme, in variables, that HiGHS searches in parallel with the tree; 0 for none.
    parallel
        Whether further threads search for plans. If not, the run is that of `branch-and-price`, and reproducible.
    """

    max_variables: int = MAX_PROGRAMME
    parallel: bool = True

    def __post_init__(self) -> None:
        BranchAndPriceOptions.__post_init__(self)
        if not 0 <= self.max_variables <= MAX_VARIABLES:
            raise InvalidOptionError(f"max_variables must be between 0 and {MAX_VARIABLES}, got {self.max_variables}")


@register("exact", problem="admission")
class Exact(ScaledSolver[ExactOptions]):
    """Prove the optimum by a tree of packing LPs, with plans from searches in parallel threads.

    Notes
    -----
    Completed runs with the same seed have the same status and objective. Which of several optimal plans is returned,
    and the tree that proves it, depend on the times at which the threads pass plans. Under a limit of time or nodes,
    objective and bound depend on them as well.

    The count `claimed_bound` is HiGHS' own bound, for which there is no proof.
    """

    summary = "proven optimal plans: the tree of branch-and-price, with plans from searches in parallel threads"
    options_type = ExactOptions
    is_reproducible = False

    def warm_up(self, instance: AdmissionInstance, options: ExactOptions) -> None:
        """Compile the loops of the tree."""
        compile_columns(is_shared=instance.has_shared_servers)
        if has_large_master(instance):
            compile_first_order()
        compile_moves(is_shared=instance.has_shared_servers)
        compile_nodes(is_shared=instance.has_shared_servers)

    def is_default_for(self, instance: AdmissionInstance) -> bool:
        """Return whether the optimum of an instance of this size is usually proven within a minute."""
        return compact_size(instance) <= DEFAULT_PROGRAMME

    def run(self, instance: AdmissionInstance, options: ExactOptions, monitor: Monitor, seed: int) -> Outcome:
        """Return the best plan and the bound of the tree's leaves; any stop leaves both."""
        if not options.parallel or instance.num_jobs == 0:
            return grow_tree(instance, options, monitor, seed, task=self.name)

        def start_finders(guide: PlanGuide, first: AdmissionPlan, programme: CompactProgramme) -> Finders:
            finders: list[AbstractFinder] = []
            if guide.num_moves:
                finders.append(SearchThread(guide, first, instance))
            if compact_size(instance) <= options.max_variables:
                finders.append(CompactThread(programme, monitor, seed))
            return Finders(finders, instance)

        return grow_tree(instance, options, monitor, seed, task=self.name, start_partner=start_finders)


class AbstractFinder(ABC):
    """A thread that searches for plans; `name` is the thread's name."""

    def __init__(self, name: str) -> None:
        self._has_to_stop = threading.Event()
        self._error: BaseException | None = None
        self._found: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._guarded, name=name, daemon=True)

    @property
    def is_running(self) -> bool:
        """Whether the thread is running."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to stop, and wait for its end."""
        self._has_to_stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def find_plans(self) -> list[AdmissionPlan]:
        """Return the plans found since the last call; raise the thread's error if there is one."""
        if self._error is not None:
            raise self._error
        plans = []
        while not self._found.empty():
            plans.append(self._plan_of(self._found.get()))
        return plans

    def learn(self, plan: AdmissionPlan) -> None:
        """Receive the best plan known; the default ignores it."""
        del plan

    def search_fully(self, support: Support, cutoff: float) -> None:
        """Receive a support in which a short search ended at its limit; the default ignores it."""
        del support, cutoff

    def counts(self) -> dict[str, float]:
        """Return counts for the solution's statistics."""
        return {}

    @abstractmethod
    def _run(self) -> None:
        """Put plans into the queue until none can be better, or the thread must stop."""

    @abstractmethod
    def _plan_of(self, found: Any) -> AdmissionPlan:
        """Convert an entry of the queue to a plan; called in the tree's thread."""

    def _guarded(self) -> None:
        try:
            self._run()
        except BaseException as error:
            self._error = error


class Finders:
    """Threads that search for plans in parallel with a tree; each receives the others' plans.

    Parameters
    ----------
    finders
        The threads, which are started here.
    instance
        Instance of the plans.
    """

    def __init__(self, finders: Sequence[AbstractFinder], instance: AdmissionInstance) -> None:
        self._finders, self._instance = finders, instance
        self._last: AdmissionPlan | None = None
        self._num_plans = 0
        for finder in finders:
            finder.start()

    def exchange(self, plan: AdmissionPlan) -> AdmissionPlan | None:
        """Pass a new best plan to the threads; return the best of their plans if it is better, else None."""
        if plan is not self._last:
            self._last = plan
            for finder in self._finders:
                finder.learn(plan)
        found = [found for finder in self._finders for found in finder.find_plans()]
        best = max([plan, *found], key=lambda one: one.objective(self._instance))
        if best is plan:
            return None
        self._num_plans += 1
        return best

    def search_fully(self, support: Support, cutoff: float) -> None:
        """Pass a support to the threads that search supports."""
        for finder in self._finders:
            finder.search_fully(support, cutoff)

    def stop(self) -> None:
        """Stop all threads, and wait for them."""
        for finder in self._finders:
            finder.stop()

    def counts(self) -> dict[str, float]:
        """Return the number of better plans that the threads found, and the threads' statistics."""
        figures = {"plans_handed_over": float(self._num_plans)}
        for finder in self._finders:
            figures |= finder.counts()
        return figures


class SearchThread(AbstractFinder):
    """The neighbourhood search, in cycles; after cycles without a better plan it pauses, each time twice as long.

    Parameters
    ----------
    guide
        The search, which only this thread may use afterwards.
    first
        The plan to begin with.
    instance
        The instance.
    """

    def __init__(self, guide: PlanGuide, first: AdmissionPlan, instance: AdmissionInstance) -> None:
        super().__init__("search for plans")
        self._guide, self._known, self._instance = guide, first, instance
        guide.should_stop = self._has_to_stop.is_set

    def learn(self, plan: AdmissionPlan) -> None:
        """Start the next cycle from this plan."""
        self._known = plan

    def _plan_of(self, found: AdmissionPlan) -> AdmissionPlan:
        return found

    def _run(self) -> None:
        rest = 1.0
        while not self._has_to_stop.is_set():
            known, begun = self._known, time.perf_counter()
            plan = self._guide.improve(known)
            if plan.objective(self._instance) > known.objective(self._instance):
                self._found.put(plan)
                self._known, rest = plan, 1.0
                continue
            self._has_to_stop.wait(rest * (time.perf_counter() - begun))
            rest = min(2.0 * rest, MAX_REST)


class CompactThread(AbstractFinder):
    """HiGHS on one thread: on the compact programme of supports that the tree's short searches left, then on the whole one.

    Parameters
    ----------
    programme
        The compact programme.
    monitor, seed
        The arguments of a solver's `run`; this thread uses only the time left from the monitor.
    """

    def __init__(self, programme: CompactProgramme, monitor: Monitor, seed: int) -> None:
        super().__init__("compact programme")
        self._programme, self._monitor, self._seed = programme, monitor, seed
        self._unfinished: queue.SimpleQueue[tuple[Support, float] | None] = queue.SimpleQueue()
        self.bound: float | None = None
        """Upper bound on every plan's value as claimed by HiGHS; None before the end of its run."""

    def search_fully(self, support: Support, cutoff: float) -> None:
        """Receive a support for a search without a limit."""
        self._unfinished.put((support, cutoff))

    def stop(self) -> None:
        """Ask the thread to stop, and wait for its end."""
        self._has_to_stop.set()
        self._unfinished.put(None)
        super().stop()

    def counts(self) -> dict[str, float]:
        """Return HiGHS' bound."""
        return {} if self.bound is None else {"claimed_bound": self.bound}

    def _plan_of(self, found: FloatArray) -> AdmissionPlan:
        return self._programme.plan_of(found)

    def _run(self) -> None:
        self._search_supports()
        if self._has_to_stop.is_set():
            return
        compiled = self._programme.compiled()
        if not compiled.columns:
            return
        outcome = run_highs(
            silent_highs(compiled.lp),
            time_limit_s=self._monitor.remaining_s,
            seed=self._seed,
            options={"mip_rel_gap": 0.0},
            watch=self._watch,
            on_solution=self._found.put,
            has_interrupts=False,
        )
        self.bound = outcome.bound
        if outcome.values is not None:
            self._found.put(outcome.values)

    def _search_supports(self) -> None:
        """Search the supports in the order of their arrival, until none is left."""
        wait_s = HEAD_START_S
        restricted: RestrictedProgramme | None = None
        while True:
            try:
                unfinished = self._unfinished.get(timeout=wait_s)
            except queue.Empty:
                return
            if unfinished is None:
                return
            restricted, wait_s = restricted or RestrictedProgramme(self._programme), 0.0
            restricted.run(*unfinished, self._has_to_stop.is_set, options={}, on_solution=self._found.put)

    def _watch(self, state: HighsState) -> Termination | None:
        del state
        return Termination.INTERRUPTED if self._has_to_stop.is_set() else None
