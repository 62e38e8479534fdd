"""The exact solver: counts first, then linear programmes over kinds of bundles, branched where needed."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from optim.core.driver import Monitor, Standing, drive
from optim.core.ranges import check_in
from optim.core.registry import register
from optim.core.status import Termination
from optim.models.auction.instance import AuctionInstance, IntArray
from optim.models.auction.proof import BoundProof, CountProof
from optim.solvers.auction.allocation.allocator import Allocation, Allocator
from optim.solvers.auction.counting.relaxation import CountRelaxation
from optim.solvers.auction.kinds.kind_lp import KindLP
from optim.solvers.auction.kinds.tree import Tree
from optim.solvers.auction.packing.packer import Packer
from optim.solvers.auction.payments.options import PaymentOptions
from optim.solvers.auction.payments.others import Others
from optim.solvers.auction.payments.settlement import CLOSED_TOL, AbstractAuctionSolver, Award, Bracket
from optim.solvers.auction.tables import Tables


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
        check_in("[1, inf)", self, "main_nodes", "payment_nodes")


@register("exact", problem="auction")
class Exact(AbstractAuctionSolver[ExactOptions]):
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

    summary: ClassVar[str] = (
        "counts, then linear programmes over kinds of bundles, branched; payments exact or in proven intervals"
    )
    options_type: ClassVar[type[ExactOptions]] = ExactOptions

    def award(self, instance: AuctionInstance, options: ExactOptions, monitor: Monitor, seed: int) -> Award:
        """Find the allocation of all apps, then what the others can have without each winner."""
        clock = monitor.clock
        with clock.phase("build"):
            search = _Search(instance, options, monitor, seed)
        with clock.phase("solve"):
            with clock.phase("main"):
                search.find_main()
            winners = np.flatnonzero(search.row >= 0).tolist()
            monitor.progress.start("payments", len(winners))
            without = {}
            with clock.phase("payments"):
                for app in winners:
                    without[app] = search.without(app)
                    monitor.progress.update(len(without))
            monitor.progress.finish()
        monitor.is_over(Standing(iterations=search.nodes))
        return Award(
            row=search.row,
            placement=search.placement,
            bound=search.bound,
            proof=search.proof,
            without=without,
            iterations=search.nodes,
            termination=Termination.NODE_LIMIT,
            figures={
                "rows": float(len(search.tables.row)),
                "by_count": float(search.by_count),
                "by_tree": float(search.by_tree),
                "unplaced": float(search.unplaced),
            },
        )


class _Search:
    """One auction: the main allocation, then the others' without each winner."""

    def __init__(self, instance: AuctionInstance, options: ExactOptions, monitor: Monitor, seed: int) -> None:
        self._options, self._monitor = options, monitor
        self.tables = Tables.build(instance)
        self._packer, self._allocator = Packer(instance, seed), Allocator(self.tables)
        self._relaxed = CountRelaxation(self.tables)
        self._others = Others(self.tables, self._packer, self._allocator, self._relaxed, lambda: self._main)
        self.row: IntArray = np.full(instance.num_apps, -1, dtype=np.int64)
        self.placement: IntArray = np.zeros((0, 3), dtype=np.int64)
        self.bound = self._relaxed.bound
        self.proof: BoundProof = CountProof()
        self.nodes = self.by_count = self.by_tree = self.unplaced = 0

    @cached_property
    def _lp(self) -> KindLP:
        """The programme that all trees share, so that each starts warm."""
        return KindLP(self.tables)

    @cached_property
    def _main(self) -> Allocation:
        """The allocation of all apps."""
        return self._allocator.from_placement(self.row, self.placement)

    def find_main(self) -> None:
        """Find the allocation of all apps."""
        choice = self._relaxed.choice()
        self.row = self.tables.chosen_rows(choice)
        placement = self._packer.place(self.row)
        if placement is not None:
            self.placement = placement
            return
        repaired = self._allocator.repaired(choice)
        self.row, self.placement = self.tables.chosen_rows(repaired.choice), repaired.placement
        found = self._branch(self.tables.welfare(repaired.choice), -1, self._options.main_nodes)
        if found.witness is not None:
            self.row, placement = found.witness.row, found.witness.placement
            placed = self._packer.place(self.row, is_thorough=True) if placement is None else placement
            assert placed is not None, "the packer found room for this choice before"
            self.placement = placed
        if found.proof is not None and found.bound < self.bound:
            self.bound, self.proof = found.bound, found.proof

    def without(self, app: int) -> Bracket:
        """Return both ends of what the others can have without one app."""
        counted = self._others.without(app)
        if counted.is_closed:
            self.by_count += 1
            return counted
        if self._monitor.is_over(Standing(iterations=self.nodes)):
            return counted
        found = self._branch(counted.reached, app, self._options.payment_nodes)
        self.by_tree += 1
        is_tighter = found.bound < counted.bound - CLOSED_TOL
        return Bracket(
            reached=found.reached,
            bound=found.bound if is_tighter else counted.bound,
            witness=found.witness or counted.witness,
            proof=found.proof if is_tighter else None,
        )

    def _branch(self, known: float, absent: int, node_limit: int) -> Bracket:
        tree = Tree(self._lp, self._packer, known, absent=absent, node_limit=node_limit)
        found = drive(tree, self._monitor)
        self.nodes += tree.solved
        self.unplaced += tree.unplaced
        return found
