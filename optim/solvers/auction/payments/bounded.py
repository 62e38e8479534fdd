"""An allocation from a heuristic, bounded by relaxations, with payments in intervals."""

import numpy as np

from optim.models.auction.plan import Witness
from optim.models.auction.proof import BoundProof, CountProof
from optim.solvers.auction.allocation.allocator import Allocation, Allocator
from optim.solvers.auction.counting.relaxation import CountRelaxation
from optim.solvers.auction.kinds.kind_lp import KindLP
from optim.solvers.auction.payments.settlement import Outcome, Without
from optim.solvers.auction.tables import Tables


def bounded_outcome(tables: Tables, allocator: Allocator, allocation: Allocation) -> Outcome:
    """Return an allocation with the better of two bounds, and both ends of what the others can have without a winner.

    The bounds are the count of GPUs and the linear programme over kinds. What an app leaves is filled up
    greedily: that is what the others can have at least.
    """
    relaxed = CountRelaxation(tables)
    bound, proof = relaxed.bound, _COUNT
    point = KindLP(tables).solve({})
    if point.value < bound:
        bound, proof = point.value, point.proof
    row = tables.chosen_rows(allocation.choice)
    return Outcome(
        row=row,
        placement=allocation.placement,
        bound=max(bound, tables.welfare(allocation.choice)),
        proof=proof,
        without={i: _without(tables, allocator, relaxed, allocation, i) for i in np.flatnonzero(row >= 0).tolist()},
        counts_others=True,
    )


def _without(
    tables: Tables, allocator: Allocator, relaxed: CountRelaxation, allocation: Allocation, app: int
) -> Without:
    others = allocator.without(allocation, app)
    bound, _ = relaxed.without(app)
    reached = tables.welfare(others.choice)
    witness = Witness(row=tables.chosen_rows(others.choice), placement=others.placement)
    return Without(reached=reached, bound=max(bound, reached), witness=witness)


_COUNT: BoundProof = CountProof()
