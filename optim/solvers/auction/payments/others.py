"""What the others can have without each winner, and the better of two bounds for an allocation of a heuristic."""

from collections.abc import Callable, Mapping

import numpy as np

from optim.models.auction.instance import IntArray
from optim.models.auction.plan import Witness
from optim.models.auction.proof import BoundProof, CountProof
from optim.solvers.auction.allocation.allocator import Allocation, Allocator
from optim.solvers.auction.counting.relaxation import CountRelaxation
from optim.solvers.auction.kinds.kind_lp import KindLP
from optim.solvers.auction.packing.packer import Packer
from optim.solvers.auction.payments.settlement import Award, Bracket
from optim.solvers.auction.tables import Tables


class Others:
    """What the others can have without each winner, by counting; exact where what is counted can be placed.

    Parameters
    ----------
    tables, packer, allocator, relaxed
        Of the auction.
    main
        Returns the allocation of all apps, from which others may start as well; None where it was counted.
    """

    def __init__(
        self,
        tables: Tables,
        packer: Packer,
        allocator: Allocator,
        relaxed: CountRelaxation,
        main: Callable[[], Allocation | None],
    ) -> None:
        self._tables, self._packer, self._allocator, self._relaxed, self._main = (
            tables,
            packer,
            allocator,
            relaxed,
            main,
        )

    def without(self, app: int) -> Bracket:
        """Return both ends for one app: what is counted if there is room for it, otherwise the best repair."""
        tables = self._tables
        bound, choice = self._relaxed.without(app)
        witness = self._packer.witness(tables, choice)
        if witness is not None:
            return Bracket(reached=tables.welfare(choice), bound=bound, witness=witness)
        main = self._main()
        candidates = [] if main is None else [self._allocator.without(main, app)]
        candidates.append(self._allocator.repaired(choice, app))
        best = max(candidates, key=lambda found: tables.welfare(found.choice))
        return _bracket(tables, best, bound)


def bounded_award(
    tables: Tables,
    allocator: Allocator,
    allocation: Allocation,
    *,
    iterations: int = 0,
    figures: Mapping[str, float] | None = None,
) -> Award:
    """Return an allocation with the better of two bounds, and both ends of what the others can have without a winner.

    The bounds are the count of GPUs and the linear programme over kinds. What an app leaves is filled up
    greedily: that is what the others can have at least.
    """
    relaxed = CountRelaxation.of(tables)
    proof: BoundProof = CountProof()
    bound, point = relaxed.bound, KindLP(tables).solve({})
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


def _bracket(tables: Tables, reached: Allocation, bound: float) -> Bracket:
    value = tables.welfare(reached.choice)
    witness = Witness(row=tables.chosen_rows(reached.choice), placement=reached.placement)
    return Bracket(reached=value, bound=max(bound, value), witness=witness)
