"""The bound of one node: column generation and cuts of servers and of counts, with a dual point that proves it."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from optim.models.admission.instance import FloatArray
from optim.models.admission.proof import CountCut, Cut, PriceProof, ServerCut
from optim.solvers.admission.packing.count_cuts import CountSeparator
from optim.solvers.admission.packing.server_cuts import CutSeparator
from optim.solvers.admission.pricing.capacity_rows import CapacityRows
from optim.solvers.admission.pricing.class_pricing import PricedSchedules, Prices
from optim.solvers.admission.pricing.job_tables import JobTables
from optim.solvers.admission.tree.node_master import MasterBasis, MasterPoint, NodeMaster
from optim.solvers.admission.tree.node_pricing import NodeLimits, NodePricer

PAYOFF_TOL = 1e-9
"""Relative payoff beyond a job's price from which a schedule enters the master."""

MISSING_TOL = 1e-7
"""Weight of admitted jobs without room that is a rounding error."""

CONVERGED_TOL = 1e-8
"""Relative gap between bound and master at which column generation ends."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NodePoint:
    """A dual point of a node's programme.

    Parameters
    ----------
    row_prices
        Shape (rows,): utils a whole unit.
    cuts, multiplier
        Cuts with their duals.
    payoff
        Shape (jobs,): the most that a schedule which the node leaves is worth less its cost.
    bound
        What the point proves of the node's plans.
    """

    row_prices: FloatArray
    cuts: tuple[Cut, ...]
    multiplier: FloatArray
    payoff: FloatArray
    bound: float

    def proof(self, rows: CapacityRows) -> PriceProof:
        """Return the point as a checker reads it."""
        prices = rows.prices(self.row_prices)
        priced = [
            replace(cut, multiplier=value)
            for cut, value in zip(self.cuts, self.multiplier.tolist(), strict=True)
            if value > 0
        ]
        return PriceProof(
            worker_price=prices.worker,
            ps_price=prices.ps,
            payoff=self.payoff,
            cuts=tuple(cut for cut in priced if isinstance(cut, ServerCut)),
            count_cuts=tuple(cut for cut in priced if isinstance(cut, CountCut)),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NodeResult:
    """What is known of a node.

    Parameters
    ----------
    point
        The best dual point found.
    master
        The last point of the master; None if the node was closed without one.
    is_converged
        Whether the master's value is the node's bound: only then does it tell how to branch.
    """

    point: NodePoint
    master: MasterPoint | None
    is_converged: bool
    basis: MasterBasis | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much work a node is worth.

    Parameters
    ----------
    most_rounds
        Rounds of pricing after which the node is left as it is.
    most_cut_rounds
        Rounds of separation.
    most_count_rounds
        Of these the first ones, in which cuts of counts are looked for, too.
    least_gain
        Separation ends when a round lowers the bound by less than this share of its distance to the cutoff.
    """

    most_rounds: int
    most_cut_rounds: int
    most_count_rounds: int
    least_gain: float


class NodeBounder:
    """Bounds nodes one after the other; what one node's schedules and cuts teach serves the next.

    Parameters
    ----------
    tables, rows
        The instance.
    """

    def __init__(self, tables: JobTables, rows: CapacityRows) -> None:
        self._tables, self._rows = tables, rows
        self._separator = CutSeparator(tables.instance)
        self._count_separator = CountSeparator(tables.instance)
        self.pricer = NodePricer.of(tables)
        best = self.pricer.price(self._no_prices(), NodeLimits.free(tables))
        self.most_value = float(best.payoff.sum())
        self.master = NodeMaster(tables, rows, penalty=2.0 * self.most_value + 1.0)
        self.master.enter(NodeLimits.free(tables))
        self.master.add_schedules(best)
        self.num_rounds = 0

    def free_point(self) -> NodePoint:
        """Return the point where nothing has a price."""
        prices = self._no_prices()
        priced = self.pricer.price(prices, NodeLimits.free(self._tables))
        return NodePoint(
            row_prices=self._rows.flat(prices),
            cuts=(),
            multiplier=np.zeros(0),
            payoff=priced.payoff,
            bound=float(priced.payoff.sum()),
        )

    def bound(
        self,
        limits: NodeLimits,
        start: NodePoint,
        *,
        cutoff: float,
        effort: Effort,
        should_stop: Callable[[float], bool],
        basis: MasterBasis | None = None,
    ) -> NodeResult:
        """Lower a node's bound until it is the master's value with all violated cuts, or at most `cutoff`.

        Parameters
        ----------
        limits
            The node; every job that it admits has a schedule.
        start
            A point that is valid for the node, such as its parent's.
        cutoff
            Nodes of no higher bound are of no interest.
        effort
            When to leave it at that.
        should_stop
            Asked with the present bound after each round of pricing.
        """
        best, master = start, self.master
        master.enter(limits, basis)
        num_cut_rounds, last_value = 0, math.inf
        for _ in range(effort.most_rounds):
            point = master.solve()
            priced, found = self._price(point, limits)
            self.num_rounds += 1
            if found.bound < best.bound:
                best = found
            if best.bound <= cutoff:
                return NodeResult(point=best, master=None, is_converged=False)
            if should_stop(best.bound):
                return NodeResult(point=best, master=point, is_converged=False)
            if self._improve(point, priced, best.bound):
                continue
            if point.missing > MISSING_TOL and master.raise_penalty():
                continue
            gain = last_value - point.value
            is_worth = gain >= effort.least_gain * max(point.value - cutoff, 0.0)
            last_value = point.value
            if num_cut_rounds == effort.most_cut_rounds or not is_worth:
                return NodeResult(point=best, master=point, is_converged=True, basis=master.basis())
            cuts: list[Cut] = [*self._separator.separate(*master.loads(point.weight))]
            if num_cut_rounds < effort.most_count_rounds:
                cuts += self._count_separator.separate(*master.counts(point.weight))
            if not cuts:
                return NodeResult(point=best, master=point, is_converged=True, basis=master.basis())
            num_cut_rounds += 1
            master.add_cuts(cuts)
        return NodeResult(point=best, master=point, is_converged=False, basis=master.basis())

    def _improve(self, point: MasterPoint, priced: PricedSchedules, bound: float) -> bool:
        """Add the schedules that are worth more than their job's price; return whether that helps."""
        if bound - point.value <= CONVERGED_TOL * max(1.0, abs(point.value)):
            return False
        needed = point.job_price + PAYOFF_TOL * np.maximum(1.0, np.abs(point.job_price))
        priced.completion[priced.payoff <= needed] = -1
        return self.master.add_schedules(priced) > 0

    def _price(self, point: MasterPoint, limits: NodeLimits) -> tuple[PricedSchedules, NodePoint]:
        """Price all jobs at the master's duals, which gives schedules and a bound."""
        cuts = self.master.cuts
        prices = cuts.charged(self._rows.prices(point.row_prices), point.multiplier)
        priced = self.pricer.price(prices, limits)
        rents = float(point.row_prices @ self._rows.capacity + point.multiplier @ cuts.right_hand_side)
        return priced, NodePoint(
            row_prices=point.row_prices,
            cuts=cuts.cuts,
            multiplier=point.multiplier,
            payoff=priced.payoff,
            bound=float(priced.payoff.sum()) + rents,
        )

    def _no_prices(self) -> Prices:
        zero: FloatArray = np.zeros(self._rows.num_rows)
        return self._rows.prices(zero)
