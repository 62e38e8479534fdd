"""The exact solver: the count relaxation first, then branch and bound with linear programmes over bundle types."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from optim.core.arrays import IntArray
from optim.core.driver import Monitor, run_iteration
from optim.core.errors import check_choices, check_in
from optim.core.registry import register
from optim.core.solution import Termination
from optim.models.auction.decision import BoundProof, CountProof, PaymentRule
from optim.models.auction.instance import AuctionInstance
from optim.solvers.auction.allocation import Allocation, Allocator
from optim.solvers.auction.bundle_type_lp import BundleTypeLP
from optim.solvers.auction.bundle_type_tree import Tree
from optim.solvers.auction.counting import CountRelaxation
from optim.solvers.auction.packing import Packer
from optim.solvers.auction.payments import Payments, PaymentSolver
from optim.solvers.auction.settlement import CLOSED_TOL, AbstractAuctionSolver, Award, Interval, PaymentOptions
from optim.solvers.auction.tables import Tables


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactOptions(PaymentOptions):
    """Options of `exact`.

    Parameters
    ----------
    main_nodes
        Maximal number of linear programmes of the main tree.
    payment_nodes
        Maximal number of linear programmes of each payment's tree.
    payments
        `decided`: each payment is an interval whose ends give the same GPUs; `closed`: each payment is a point. A lottery's
        payments are always closed, since its odds are the shares.
    """

    main_nodes: int = 2_000
    payment_nodes: int = 200
    payments: str = Payments.DECIDED.value

    def __post_init__(self) -> None:
        PaymentOptions.__post_init__(self)
        check_in("[1, inf)", self, "main_nodes", "payment_nodes")
        check_choices(self, {"payments": [reach.value for reach in Payments]})


@register("exact", problem="auction")
class Exact(AbstractAuctionSolver[ExactOptions]):
    """Winner determination to optimality, with a proof that the checker recomputes.

    Notes
    -----
    1. The count relaxation (`CountRelaxation`) gives a bound, exact if its solution can be placed.
    2. Otherwise a linear programme over bundle types is solved: packing patterns cover the machines, and equal
       racks are one class. Given integral numbers of bundles of each type, the choice of rows is a transportation
       problem, so branching on these numbers suffices.
    3. At each node a dynamic programme counts GPUs at the programme's prices minus the prices of GPUs. It closes the
       gap left by selling fractions of bundles, and its solution is tried as an allocation.
    4. Payments are computed together (`PaymentSolver`): one programme's prices bound the other apps' welfare
       without each winner, and only the few undecided payments get a tree, warm-started from the main one.

    HiGHS solves the linear programmes; its MILP solver is not used, because its claims can't be checked.
    """

    summary: ClassVar[str] = (
        "a relaxation by counts of GPUs, then branch and bound over bundle types; payments as proven intervals that decide the grants"
    )
    options_type: ClassVar[type[ExactOptions]] = ExactOptions

    def is_default_for(self, instance: AuctionInstance) -> bool:
        """Return True: most auctions are solved to the optimum within seconds."""
        return True

    def award(self, instance: AuctionInstance, options: ExactOptions, monitor: Monitor, seed: int) -> Award:
        """Find the allocation of all apps, then the other apps' optimum without each winner."""
        clock = monitor.clock
        with clock.phase("build"):
            search = _Search(instance, options, monitor, seed)
        with clock.phase("solve"):
            with clock.phase("main"):
                search.find_main()
            with clock.phase("payments"):
                without = search.payments()
        deciding = search.deciding
        return Award(
            row=search.row,
            placement=search.placement,
            bound=search.bound,
            proof=search.proof,
            without=without,
            shared=deciding.shared,
            iterations=search.nodes + deciding.nodes,
            termination=search.termination,
            figures={
                "rows": float(len(search.tables.row)),
                "by_count": float(deciding.by_count),
                "by_tree": float(deciding.by_tree),
                "unplaced": float(search.unplaced + deciding.unplaced),
            },
        )


class _Search:
    """One auction: the main allocation, then the other apps' allocations without each winner."""

    def __init__(self, instance: AuctionInstance, options: ExactOptions, monitor: Monitor, seed: int) -> None:
        self._options, self._monitor = options, monitor
        self.tables = Tables.build(instance)
        self._packer, self._allocator = Packer(instance, seed), Allocator(self.tables)
        self._relaxed = CountRelaxation.of(self.tables)
        parts = (self.tables, self._packer, self._allocator, self._relaxed)
        self.deciding = PaymentSolver(*parts, lambda: self._lp, monitor)
        self.row: IntArray = np.full(instance.num_apps, -1, dtype=np.int64)
        self.placement: IntArray = np.zeros((0, 3), dtype=np.int64)
        self.bound = self._relaxed.bound
        self.proof: BoundProof = CountProof()
        self.nodes = self.unplaced = 0
        self.termination = Termination.NODE_LIMIT
        """Why the allocation isn't proven optimal, unless the monitor gives a reason."""

    @cached_property
    def _lp(self) -> BundleTypeLP:
        """The programme shared by all trees, so that each is warm-started."""
        return BundleTypeLP(self.tables)

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
        interval = self._branch(self.tables.welfare(repaired.choice))
        if interval.witness is not None:
            self.row, placement = interval.witness.row, interval.witness.placement
            placed = self._packer.place(self.row, is_thorough=True) if placement is None else placement
            assert placed is not None, "the packer placed this choice before"
            self.placement = placed
        if interval.proof is not None and interval.bound < self.bound:
            self.bound, self.proof = interval.bound, interval.proof

    def payments(self) -> dict[int, Interval]:
        """Return the interval of the other apps' optimum without each winner."""
        options = self._options
        deciding = self.deciding
        rule, payments = PaymentRule(options.rule), Payments(options.payments)
        return deciding.run(self._main, rule, payments, options.payment_nodes, earlier=self.nodes)

    def _branch(self, known: float) -> Interval:
        tree = Tree(self._lp, self._packer, known, proven=self.bound, node_limit=self._options.main_nodes)
        interval = run_iteration(tree, self._monitor)
        self.nodes, self.unplaced = tree.solved, tree.unplaced
        if interval.bound - interval.reached > CLOSED_TOL and tree.is_exhausted:
            self.termination = Termination.COMPLETED
        return interval
