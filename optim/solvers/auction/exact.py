"""The exact solver: counts first, then linear programmes over kinds of bundles, branched where needed."""

from dataclasses import dataclass

import numpy as np

from optim.core.clock import PhaseClock
from optim.core.errors import InvalidOptionError
from optim.core.progress import Progress
from optim.core.registry import SUPPORTED, Support, register
from optim.core.solution import Solution
from optim.core.status import Termination
from optim.core.stopping import SolveState, StoppingCriterion
from optim.models.auction.instance import AuctionInstance, IntArray
from optim.models.auction.plan import Witness
from optim.models.auction.proof import BoundProof, CountProof
from optim.solvers.auction.allocation.allocator import Allocation, Allocator
from optim.solvers.auction.counting.relaxation import CountRelaxation
from optim.solvers.auction.kinds.kind_lp import KindLP
from optim.solvers.auction.kinds.tree import Branched, Tree
from optim.solvers.auction.packing.packer import Packer
from optim.solvers.auction.payments.options import PaymentOptions
from optim.solvers.auction.payments.settlement import Outcome, Without, make_solution
from optim.solvers.auction.tables import Tables
from optim.solvers.auction.warm_up import compile_loops

CLOSED_TOL = 1e-9
"""A bound that is no further than this from a value, in log units, proves it optimal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactOptions(PaymentOptions):
    """Options of `exact`.

    Parameters
    ----------
    main_nodes, payment_nodes
        Most linear programmes of the main tree, and of the tree of each payment.
    """

    main_nodes: int = 2_000
    payment_nodes: int = 200

    def __post_init__(self) -> None:
        PaymentOptions.__post_init__(self)
        for name in ("main_nodes", "payment_nodes"):
            if getattr(self, name) < 1:
                raise InvalidOptionError(f"{name} must be at least 1, got {getattr(self, name)}")


@register("exact", problem="auction")
class Exact:
    """Winner determination to optimality, with a proof that the checker recomputes.

    Notes
    -----
    1. The count relaxation (`count-dp`) gives a bound, exact where its solution can be placed.
    2. Otherwise a linear programme over kinds of bundles: machines are covered by packing patterns, equal racks
       are one class. Given whole numbers of bundles of each kind the choice of rows is a transportation
       problem, so that those numbers are all that has to be branched on.
    3. At each node a dynamic programme counts GPUs at the programme's prices less those of GPUs: this closes what
       the programme leaves open by selling parts of bundles, and its solution is tried as an allocation.
    4. The problem without each winner goes the same way, warm from the main programme: each payment is exact, or
       an interval with both ends proven.

    HiGHS solves the linear programmes; its MILP solver is not used, for what it claims can't be checked.
    """

    name: str
    problem: str
    summary = "counts, then linear programmes over kinds of bundles, branched; payments exact or in proven intervals"
    options_type = ExactOptions

    def supports(self, instance: AuctionInstance) -> Support:
        """Every auction is supported."""
        del instance
        return SUPPORTED

    def solve(
        self,
        instance: AuctionInstance,
        *,
        options: ExactOptions,
        stop: StoppingCriterion,
        seed: int,
        progress: Progress,
    ) -> Solution:
        """Return the allocation with all payments."""
        clock = PhaseClock()
        with clock.phase("compile"):
            compile_loops()
        with clock.phase("build"):
            search = _Search(instance, options, stop, seed, clock)
        with clock.phase("solve"):
            with clock.phase("main"):
                search.find_main()
            winners = np.flatnonzero(search.row >= 0).tolist()
            progress.start("payments", len(winners))
            without = {}
            with clock.phase("payments"):
                for done, app in enumerate(winners):
                    without[app] = search.without(app)
                    progress.update(done + 1)
            progress.finish()
        reason = stop(SolveState(elapsed_s=clock.elapsed_s, iterations=search.nodes))
        return make_solution(
            self,
            instance,
            Outcome(
                row=search.row,
                placement=search.placement,
                bound=search.bound,
                proof=search.proof,
                without=without,
                counts_others=True,
            ),
            rule=options.payment_rule,
            options=options,
            seed=seed,
            clock=clock,
            termination=Termination.NODE_LIMIT if reason is None else reason,
            iterations=search.nodes,
            counts={
                "rows": float(len(search.tables.row)),
                "by_count": float(search.by_count),
                "by_tree": float(search.by_tree),
                "unplaced": float(search.unplaced),
            },
        )


class _Search:
    """One auction: the main allocation, then the others' without each winner."""

    def __init__(
        self, instance: AuctionInstance, options: ExactOptions, stop: StoppingCriterion, seed: int, clock: PhaseClock
    ) -> None:
        self._options, self._stop, self._seed, self._clock = options, stop, seed, clock
        self.tables = Tables.build(instance)
        self._packer, self._allocator = Packer(instance, seed), Allocator(self.tables)
        self._relaxed = CountRelaxation(self.tables)
        self._tree: Tree | None = None
        self._allocation: Allocation | None = None
        self.row: IntArray = np.full(instance.num_apps, -1, dtype=np.int64)
        self.placement: IntArray = np.zeros((0, 3), dtype=np.int64)
        self.bound, self.proof = self._relaxed.bound, _COUNT
        self.nodes = self.by_count = self.by_tree = self.unplaced = 0

    def find_main(self) -> None:
        """Find the allocation of all apps."""
        choice = self._relaxed.choice()
        row = self.tables.chosen_rows(choice)
        placement = self._packer.place(row)
        if placement is not None:
            self.row, self.placement = row, placement
            return
        allocation = self._allocator.repaired(choice)
        found = self._branch(self.tables.welfare(allocation.choice), -1, self._options.main_nodes)
        if found.witness is None:
            self.row, self.placement = self.tables.chosen_rows(allocation.choice), allocation.placement
        else:
            placement = found.witness.placement
            self.row = found.witness.row
            placed = self._packer.place(self.row, is_thorough=True) if placement is None else placement
            assert placed is not None, "the packer found room for this choice before"
            self.placement = placed
        if found.bound < self.bound:
            self.bound, self.proof = found.bound, found.proof

    def without(self, app: int) -> Without:
        """Return both ends of what the others can have without one app."""
        tables = self.tables
        bound, choice = self._relaxed.without(app)
        witness = self._witness(choice)
        if witness is not None:
            self.by_count += 1
            return Without(reached=tables.welfare(choice), bound=bound, witness=witness)
        reached, witness = self._start(choice, app)
        if self._is_over():
            return Without(reached=reached, bound=bound, witness=witness)
        found = self._branch(reached, app, self._options.payment_nodes)
        self.by_tree += 1
        is_tighter = found.bound < bound - CLOSED_TOL
        return Without(
            reached=found.value,
            bound=found.bound if is_tighter else bound,
            witness=witness if found.witness is None else found.witness,
            proof=found.proof if is_tighter else None,
        )

    def _witness(self, choice: IntArray) -> Witness | None:
        """Return a choice of kept rows as a witness, None if no room is found for it."""
        row = self.tables.chosen_rows(choice)
        if not self.tables.has_named and self._packer.fits_first(row[row >= 0]):
            return Witness(row=row)
        placement = self._packer.place(row)
        return None if placement is None else Witness(row=row, placement=placement)

    def _start(self, choice: IntArray, app: int) -> tuple[float, Witness]:
        """Return an allocation without an app to start from: the main one filled up, or the counted one repaired."""
        if self._allocation is None:
            kept = np.full(self.tables.num_apps, -1, dtype=np.int64)
            position = {b: k for k, b in enumerate(self.tables.row.tolist())}
            for i in np.flatnonzero(self.row >= 0).tolist():
                kept[i] = position[int(self.row[i])]
            self._allocation = self._allocator.from_placement(kept, self.placement)
        candidates = (self._allocator.without(self._allocation, app), self._allocator.repaired(choice, app))
        best = max(candidates, key=lambda found: self.tables.welfare(found.choice))
        witness = Witness(row=self.tables.chosen_rows(best.choice), placement=best.placement)
        return self.tables.welfare(best.choice), witness

    def _branch(self, known: float, absent: int, node_limit: int) -> Branched:
        if self._tree is None:
            self._tree = Tree(KindLP(self.tables), self._packer)
        found = self._tree.run(
            known, absent=absent, node_limit=node_limit, stop=self._stop, elapsed_s=lambda: self._clock.elapsed_s
        )
        self.nodes += found.nodes
        self.unplaced += found.unplaced
        return found

    def _is_over(self) -> bool:
        return self._stop(SolveState(elapsed_s=self._clock.elapsed_s, iterations=self.nodes)) is not None


_COUNT: BoundProof = CountProof()
