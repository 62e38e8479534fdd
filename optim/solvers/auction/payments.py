"""Intervals of payments: for each winner, the other apps' optimum without it, bounded until the payment is decided."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

import numpy as np

from optim.core.arrays import IntArray
from optim.core.driver import Monitor, SolverState, run_iteration
from optim.models.auction.data import Locality
from optim.models.auction.decision import BoundProof, CountProof, PaymentRule, PriceProof, Witness, sorted_entries
from optim.models.auction.payment import grant_size
from optim.solvers.auction.allocation import NO_APP, Allocation, Allocator
from optim.solvers.auction.bundle_type_lp import BundleTypeLP, count_with_prices
from optim.solvers.auction.bundle_type_tree import Tree
from optim.solvers.auction.counting import CountRelaxation
from optim.solvers.auction.packing import Packer
from optim.solvers.auction.settlement import CLOSED_TOL, Award, Interval
from optim.solvers.auction.tables import Tables


def bounded_award(
    tables: Tables,
    allocator: Allocator,
    allocation: Allocation,
    *,
    iterations: int = 0,
    figures: Mapping[str, float] | None = None,
) -> Award:
    """Return an allocation with the better of two bounds, and the interval of the other apps' optimum without each winner.

    The bounds are those of the count relaxation and of the linear programme over types. The lower end of an interval
    comes from giving the winner's GPUs to the other apps greedily.
    """
    relaxed = CountRelaxation.of(tables)
    proof: BoundProof = CountProof()
    bound, point = relaxed.bound, BundleTypeLP(tables).solve({})
    if point.value < bound:
        bound, proof = point.value, point.proof
    row: IntArray = tables.chosen_rows(allocation.choice)
    return Award(
        row=row,
        placement=allocation.placement,
        bound=max(bound, tables.welfare(allocation.choice)),
        proof=proof,
        without={
            i: _bracket(tables, allocator.without(allocation, i), relaxed.without(i)[0])
            for i in np.flatnonzero(row >= 0).tolist()
        },
        iterations=iterations,
        figures=figures or {},
    )


def _bracket(tables: Tables, reached: Allocation, bound: float) -> Interval:
    value = tables.welfare(reached.choice)
    witness = Witness(row=tables.chosen_rows(reached.choice), placement=reached.placement)
    return Interval(reached=value, bound=max(bound, value), witness=witness)


MIN_PROGRESS = 1e-12
"""Allocations whose log welfare differs by at most this are equal up to the order of summation."""


class Payments(StrEnum):
    """Precision of the payments."""

    DECIDED = "decided"
    """Tighten each interval until both ends give the same GPUs."""
    CLOSED = "closed"
    """Tighten each interval to a point."""


@dataclass(slots=True)
class PaymentState:
    """A winner whose payment is being computed.

    Parameters
    ----------
    app, bundle, gang
        The winner, its awarded GPUs, and its gang size.
    others
        Log welfare of the other apps in the allocation.
    bound, proof
        Upper bound on the other apps' log welfare without the winner, and its proof; None for the count relaxation.
    reached, witness
        Best known log welfare of the other apps without the winner, and its allocation; None for the main allocation.
    """

    app: int
    bundle: int
    gang: int
    others: float
    bound: float
    reached: float
    proof: BoundProof | None = None
    witness: Witness | None = None
    tree: Tree | None = None

    def improve(self, value: float, witness: Callable[[], Witness | None]) -> None:
        """Store an allocation of the other apps if it is better than the known one."""
        if value > self.reached + MIN_PROGRESS:
            known = witness()
            if known is not None:
                self.reached, self.witness = value, known

    def lower(self, bound: float, proof: BoundProof | None) -> None:
        """Store a bound if it is better than the known one."""
        if bound < self.bound - CLOSED_TOL:
            self.bound, self.proof = bound, proof

    def is_settled(self, rule: PaymentRule, payments: Payments, reached: float, bound: float) -> bool:
        """Return whether the interval suffices: its ends meet, or give the same GPUs."""
        if bound - reached <= CLOSED_TOL:
            return True
        if payments is Payments.CLOSED or rule is PaymentRule.LOTTERY:  # a lottery's odds are the share
            return False
        ends = (math.exp(min(0.0, self.others - end)) for end in (bound, reached))
        low, high = (grant_size(rule, share, self.bundle, self.gang) for share in ends)
        return low == high

    @property
    def bracket(self) -> Interval:
        """The interval of the other apps' optimum."""
        bound = max(self.bound, self.reached)
        return Interval(reached=self.reached, bound=bound, witness=self.witness, proof=self.proof)


class PaymentSolver:
    """All payments of an auction: cheap steps for all winners before expensive steps for a single winner.

    1. The count relaxation bounds each payment from one side; giving the winner's GPUs to the other apps greedily bounds it
       from the other side.
    2. The prices of one linear programme of all apps, with counted GPUs, bound the other apps' welfare without each winner.
    3. If the count bound is the best, the solver tries to place the rows that attain it.
    4. Each remaining winner gets a tree. The trees run in turns of growing length, until all winners are settled or at
       their limit. Of identical winners, only one is searched per turn.

    An allocation without winner i also serves another winner j if i fits into j's bundle: the two exchange places.

    Parameters
    ----------
    tables, packer, allocator, relaxed
        Components of the auction's solver.
    lp
        Returns the programme shared by all trees, so that each is warm-started.
    monitor
        Ends the run by its stopping rule.
    """

    def __init__(
        self,
        tables: Tables,
        packer: Packer,
        allocator: Allocator,
        relaxed: CountRelaxation,
        lp: Callable[[], BundleTypeLP],
        monitor: Monitor,
    ) -> None:
        self._tables, self._packer, self._allocator, self._relaxed = tables, packer, allocator, relaxed
        self._lp, self._monitor = lp, monitor
        self._main: Allocation = allocator.empty()
        self.shared: PriceProof | None = None
        self.nodes = self.by_count = self.by_tree = self.unplaced = 0
        self._earlier = 0

    def run(
        self, main: Allocation, rule: PaymentRule, payments: Payments, node_limit: int, *, earlier: int = 0
    ) -> dict[int, Interval]:
        """Return the interval of the other apps' optimum without each winner.

        Parameters
        ----------
        main
            The allocation of all apps.
        rule, payments
            Rule that rounds shares to GPUs, and the precision of payments.
        node_limit
            Maximal number of linear programmes of a winner's tree.
        earlier
            Number of programmes that the run has solved before.
        """
        self._main, self._earlier, claims = main, earlier, self._claims(main)

        def still_open() -> list[PaymentState]:
            unsettled = [c for c in claims if not c.is_settled(rule, payments, c.reached, c.bound)]
            self._monitor.progress.update(len(claims) - len(unsettled))
            return unsettled

        self._monitor.progress.start("payments", len(claims))
        for claim in still_open():
            filled = self._allocator.without(main, claim.app)
            claim.improve(self._tables.welfare(filled.choice), partial(self._witness, filled))
        unsettled = still_open()
        if unsettled:
            self._price(unsettled)
        for claim in still_open():
            # Allocations found for other winners may have settled this payment. Without a proof, the count bound is the best.
            is_settled = claim.is_settled(rule, payments, claim.reached, claim.bound)
            if claim.proof is None and not is_settled and not self._monitor.is_over():
                self._count(claim)
                self._pass_on(claim, still_open())
        self.by_count = len(claims) - len(still_open())
        self._branch(still_open, rule, payments, node_limit)
        self._monitor.progress.finish()
        return {claim.app: claim.bracket for claim in claims}

    def _is_over(self) -> bool:
        return self._monitor.is_over(SolverState(iterations=self._earlier + self.nodes))

    def _claims(self, main: Allocation) -> list[PaymentState]:
        tables, choice = self._tables, main.choice
        welfare = tables.welfare(choice)
        return [
            PaymentState(
                app=app,
                bundle=int(tables.size[choice[app]]),
                gang=int(tables.instance.apps.gang[app]),
                others=welfare - float(tables.weight[choice[app]]),
                bound=self._relaxed.bound_without(app),
                reached=welfare - float(tables.weight[choice[app]]),
            )
            for app in np.flatnonzero(choice >= 0).tolist()
        ]

    def _witness(self, allocation: Allocation) -> Witness:
        return Witness(row=self._tables.chosen_rows(allocation.choice), placement=allocation.placement)

    def _price(self, claims: Sequence[PaymentState]) -> None:
        """Bound the other apps' welfare without each winner by the prices of one programme."""
        lp = self._lp()
        priced = count_with_prices(lp, lp.solve({}), {}, NO_APP)
        self.nodes += 1
        for claim in claims:
            claim.lower(priced.bound_without(claim.app), priced.proof)
        if any(claim.proof is priced.proof for claim in claims):
            self.shared = priced.proof

    def _count(self, claim: PaymentState) -> None:
        """Place the rows that the count relaxation chooses without a winner, or a repaired choice."""
        tables, packer = self._tables, self._packer
        _, choice = self._relaxed.without(claim.app)
        claim.improve(tables.welfare(choice), partial(packer.witness, tables, choice))
        if claim.bound - claim.reached > CLOSED_TOL:
            repaired = self._allocator.repaired(choice, claim.app)
            claim.improve(tables.welfare(repaired.choice), partial(self._witness, repaired))

    def _branch(
        self, still_open: Callable[[], list[PaymentState]], rule: PaymentRule, payments: Payments, node_limit: int
    ) -> None:
        """Continue the winners' trees in turns, each twice as long as the last."""
        spent: set[int] = set()
        turn = 1
        unsettled = still_open()
        self.by_tree = len(unsettled)
        while unsettled:
            seen: set[tuple[int, int, float, float]] = set()
            for claim in unsettled:
                look = self._look(claim)
                if look in seen or claim.is_settled(rule, payments, claim.reached, claim.bound):
                    continue
                if self._is_over():
                    return
                seen.add(look)
                claim.tree = claim.tree or self._tree(claim, rule, payments)
                self._go_on(claim, claim.tree, min(claim.tree.solved + turn, node_limit))
                self._pass_on(claim, unsettled)
                if claim.tree.is_exhausted or claim.tree.solved >= node_limit:
                    spent.add(claim.app)
            unsettled = [claim for claim in still_open() if claim.app not in spent]
            turn *= 2

    def _go_on(self, claim: PaymentState, tree: Tree, node_limit: int) -> None:
        """Continue the tree of one winner."""
        solved, unplaced = tree.solved, tree.unplaced
        tree.node_limit, tree.earlier = node_limit, self._earlier + self.nodes - solved
        interval = run_iteration(tree, self._monitor)
        self.nodes += tree.solved - solved
        self.unplaced += tree.unplaced - unplaced
        claim.improve(interval.reached, lambda: interval.witness)
        claim.lower(interval.bound, interval.proof)

    def _look(self, claim: PaymentState) -> tuple[int, int, float, float]:
        """Return a key that is equal for identical winners: the bundle that it leaves, and the other apps' possible gain."""
        column = self._main.choice[claim.app]
        gains = (round(claim.bound - claim.others, 9), round(claim.reached - claim.others, 9))
        return int(self._tables.level[column]), claim.bundle, *gains

    def _pass_on(self, source: PaymentState, claims: Sequence[PaymentState]) -> None:
        """Use the allocation without one winner for other winners, by exchange of places, if it is better than theirs."""
        if source.witness is None:
            return
        gain = source.reached - source.others
        for claim in claims:
            if claim.app != source.app:
                claim.improve(claim.others + gain, partial(self._exchanged, source, claim))

    def _exchanged(self, source: PaymentState, claim: PaymentState) -> Witness | None:
        """Return the witness of `source` with its app in place of the app of `claim`; None if they can't exchange places."""
        tables, witness = self._tables, source.witness
        ours, theirs = self._main.choice[source.app], self._main.choice[claim.app]
        level, other = tables.level[ours], tables.level[theirs]
        is_alike = level == other and source.bundle == claim.bundle
        fits = is_alike or (other <= level and source.bundle <= claim.bundle)
        if witness is None or Locality.NAMED in (level, other) or not fits:
            return None
        if witness.row[claim.app] != tables.row[theirs] or (witness.placement is None and not is_alike):
            return None
        row = witness.row.copy()
        row[claim.app], row[source.app] = -1, tables.row[ours]
        if witness.placement is None:
            return Witness(row=row)
        is_freed = witness.placement[:, 0] == claim.app
        moved = witness.placement[is_freed]
        before = np.concatenate([[0], np.cumsum(moved[:, 2])[:-1]])
        counts = np.clip(source.bundle - before, 0, moved[:, 2])
        exchanged = np.column_stack([np.full(len(moved), source.app), moved[:, 1], counts])
        return Witness(row=row, placement=sorted_entries(np.concatenate([witness.placement[~is_freed], exchanged])))

    def _tree(self, claim: PaymentState, rule: PaymentRule, payments: Payments) -> Tree:
        def is_enough(reached: float, bound: float) -> bool:
            return claim.is_settled(rule, payments, max(reached, claim.reached), min(bound, claim.bound))

        return Tree(self._lp(), self._packer, claim.reached, absent=claim.app, is_enough=is_enough)
