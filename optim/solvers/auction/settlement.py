"""From an allocation to a solution with payments: the base class of every auction solver."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Generic, TypeVar

import numpy as np

from optim.core.arrays import IntArray
from optim.core.driver import AbstractSolver, Monitor, Outcome
from optim.core.errors import check_choices
from optim.core.solution import GAP_FLOOR, Termination
from optim.models.auction.codec import (
    SCHEMA,
    AppDocument,
    AuctionDocument,
    BidsDocument,
    MachineDocument,
    instance_from_document,
)
from optim.models.auction.data import as_floats, as_ints
from optim.models.auction.decision import (
    AuctionPlan,
    AuctionProof,
    BoundProof,
    CountProof,
    PaymentRule,
    PriceProof,
    Witness,
)
from optim.models.auction.instance import AuctionInstance
from optim.models.auction.payment import grant_size, settle
from optim.solvers.auction.allocation import Allocator
from optim.solvers.auction.counting import CountRelaxation
from optim.solvers.auction.packing import Packer
from optim.solvers.auction.tables import Tables


def smallest_instance() -> AuctionInstance:
    """Return an instance with two apps that bid for one GPU each, one of them within a rack."""
    bids = BidsDocument(empty_rho=2.0, rows=[(1, "slot", 1.0)]), BidsDocument(empty_rho=2.0, rows=[(1, "rack", 1.0)])
    apps = [AppDocument(id=name, bids=rows) for name, rows in zip("ab", bids, strict=True)]
    machine = MachineDocument(rack=0, slots=[2])
    return instance_from_document(
        AuctionDocument(schema=SCHEMA, name="smallest", machines=[machine], apps=apps), AuctionInstance
    )


@cache
def compile_loops() -> None:
    """Compile the loops that count, place and exchange bundles, by running them on the smallest instance."""
    tables = Tables.build(smallest_instance())
    relaxed = CountRelaxation.of(tables)
    choice, _ = relaxed.choice(), relaxed.without(0)
    rows = tables.chosen_rows(choice)
    packer, allocator = Packer(tables.instance), Allocator(tables)
    packer.place(rows)
    packer.search(rows)
    allocator.improved(allocator.without(allocator.repaired(choice), 0), seed=0, moves=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class PaymentOptions:
    """Options of the payments.

    Parameters
    ----------
    rule
        Rule that rounds shares to integral GPUs: floor, nearest, ceil, lottery or none.

    Raises
    ------
    InvalidOptionError
        If the rule is unknown.
    """

    rule: str = PaymentRule.FLOOR.value

    def __post_init__(self) -> None:
        check_choices(self, {"rule": [rule.value for rule in PaymentRule]})


PaymentOptionsT = TypeVar("PaymentOptionsT", bound=PaymentOptions)

OPTIMALITY_TOL = 1e-6
"""Largest gap, both in log units and relative to the objective, that counts as optimal."""

CLOSED_TOL = 1e-9
"""A value within this distance of a bound, in log units, counts as optimal."""

TOUCHING_TOL = 1e-12
"""A bound and a value with at most this relative difference are equal up to the order of summation."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Interval:
    """An interval that contains an optimal log welfare.

    Parameters
    ----------
    reached
        Lower end: log welfare of an allocation. `witness` is this allocation, None if it is known already.
    bound
        Upper end, a bound for all allocations. `proof` proves it; None if the count relaxation of all apps proves it.
    """

    reached: float
    bound: float
    witness: Witness | None = None
    proof: BoundProof | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Award:
    """Result of a solver: an allocation, a bound, and for each winner the other apps' optimum without it.

    Parameters
    ----------
    row, placement
        As in an `AuctionPlan`.
    bound, proof
        Upper bound on the log welfare of all apps, and its proof.
    without
        Interval of the other apps' optimum without a winner, by winner.
    shared
        A proof shared by several winners' bounds, which the solution states once.
    iterations, figures, termination
        As in an `Outcome`.
    """

    row: IntArray
    placement: IntArray
    bound: float
    proof: BoundProof
    without: Mapping[int, Interval]
    shared: PriceProof | None = None
    iterations: int = 0
    figures: Mapping[str, float] = field(default_factory=dict)
    termination: Termination | None = None


class AbstractAuctionSolver(AbstractSolver[AuctionInstance, PaymentOptionsT], Generic[PaymentOptionsT]):
    """A solver defined by its `award`; a winner's payment follows from the interval of the other apps' optimum without it."""

    @abstractmethod
    def award(self, instance: AuctionInstance, options: PaymentOptionsT, monitor: Monitor, seed: int) -> Award:
        """Find an allocation, and the other apps' optimum without each winner."""

    def warm_up(self, instance: AuctionInstance, options: PaymentOptionsT) -> None:
        """Compile the loops that place, count and exchange."""
        compile_loops()

    def run(self, instance: AuctionInstance, options: PaymentOptionsT, monitor: Monitor, seed: int) -> Outcome:
        """Award bundles, then settle payments; the outcome is optimal if bound and objective agree."""
        award = self.award(instance, options, monitor, seed)
        with monitor.clock.phase("solve"):
            plan = make_plan(instance, award, PaymentRule(options.rule), seed)
        objective, bound = plan.welfare(instance), award.bound
        if abs(bound - objective) <= TOUCHING_TOL * max(1.0, abs(objective)):
            bound = objective
        width = (plan.share_high - plan.share_low)[plan.row >= 0]
        num_certain = sum(is_decided(instance, plan, i) for i in np.flatnonzero(plan.row >= 0).tolist())
        grants = f"; {num_certain} of {plan.num_winners} grants are certain"
        return Outcome(
            decision=plan,
            objective=objective,
            bound=bound,
            proof=_proof(award),
            statement=f"no allocation has a log welfare above {bound}{grants}",
            optimal_statement=f"no allocation has a larger product of values{grants}",
            is_optimal=bound - objective <= OPTIMALITY_TOL * min(1.0, max(abs(objective), GAP_FLOOR)) / 2,
            termination=award.termination if monitor.reason is None else None,
            iterations=award.iterations,
            counts={
                "winners": float(plan.num_winners),
                "exact_payments": float((width <= 1e-9).sum()),
                "decided_grants": float(num_certain),
                "widest_interval": float(width.max(initial=0.0)),
                "gap_log": bound - objective,
                **award.figures,
            },
        )


def is_decided(instance: AuctionInstance, plan: AuctionPlan, app: int) -> bool:
    """Return whether both ends of a winner's payment give the same GPUs; for a lottery, whether the ends meet."""
    low, high = float(plan.share_low[app]), float(plan.share_high[app])
    if plan.rule is PaymentRule.LOTTERY:
        return high - low <= CLOSED_TOL * high
    bundle, gang = int(instance.bids.gpus[plan.row[app]]), int(instance.apps.gang[app])
    return grant_size(plan.rule, low, bundle, gang) == grant_size(plan.rule, high, bundle, gang)


def _proof(award: Award) -> AuctionProof:
    """Return the proof of an award; the shared payment proof covers all winners that aren't listed."""
    if award.shared is None:
        proofs = {i: part.proof for i, part in award.without.items() if part.proof is not None}
        return AuctionProof(welfare=award.proof, without=proofs, counts_others=True)
    listed = {i: part.proof or CountProof() for i, part in award.without.items() if part.proof is not award.shared}
    return AuctionProof(welfare=award.proof, without=listed, others=award.shared)


def make_plan(instance: AuctionInstance, award: Award, rule: PaymentRule, seed: int) -> AuctionPlan:
    """Return the plan: an interval for the share of each winner, and grants by the rule.

    With w the log welfare of the apps other than i in the allocation, and OPT their optimum without app i,
    the share is ``c = exp(w - OPT)``; OPT lies between `reached` and `bound`. The rule rounds the upper end of the
    share, so that no app pays more than a known allocation justifies.
    """
    row = award.row
    low, high = np.ones(instance.num_apps), np.ones(instance.num_apps)
    welfare = float(instance.weight[row[row >= 0]].sum())
    for i, part in award.without.items():
        others = welfare - float(instance.weight[row[i]])
        high[i] = np.exp(min(0.0, others - part.reached))
        low[i] = min(high[i], np.exp(min(0.0, others - part.bound)))
    return AuctionPlan(
        row=as_ints(row),
        placement=award.placement,
        share_low=as_floats(low),
        share_high=as_floats(high),
        rule=rule,
        grants=settle(instance, award.placement, high, rule, np.random.default_rng(seed)),
        witnesses={i: part.witness for i, part in award.without.items() if part.witness is not None},
    )
