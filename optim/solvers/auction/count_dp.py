"""All N + 1 optima at once by dynamic programming over the number of GPUs, and whether they can be placed."""

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
from optim.models.auction.proof import CountProof
from optim.solvers.auction.allocation.allocator import Allocation, Allocator
from optim.solvers.auction.counting.relaxation import CountRelaxation
from optim.solvers.auction.packing.packer import Packer
from optim.solvers.auction.payments.options import PaymentOptions
from optim.solvers.auction.payments.settlement import Outcome, Without, make_solution
from optim.solvers.auction.tables import Tables
from optim.solvers.auction.warm_up import compile_loops


@dataclass(frozen=True, slots=True, kw_only=True)
class CountDpOptions(PaymentOptions):
    """Options of `count-dp`.

    Parameters
    ----------
    exchange_moves
        Moves of exchange on an allocation that had to be repaired.
    """

    exchange_moves: int = 200

    def __post_init__(self) -> None:
        PaymentOptions.__post_init__(self)
        if self.exchange_moves < 0:
            raise InvalidOptionError(f"exchange_moves must be at least 0, got {self.exchange_moves}")


@register("count-dp", problem="auction")
class CountDp:
    """The relaxation to numbers of GPUs, solved exactly, then placed.

    Notes
    -----
    Dropping everything but ``sum of GPUs <= GPUs on offer`` leaves a multiple-choice knapsack. Tables over the
    first i and over the last n - i apps give the optimum of all and of all but one app in O(N R D) together.
    It is an upper bound always, and exact whenever its own solution can be placed; on free machines that is
    always so if the sizes divide one another and the machine and the rack. `exact_main` and `exact_payments`
    among the counts say where it is exact; elsewhere the allocation is repaired and payments are intervals.
    """

    name: str
    problem: str
    summary = "knapsacks over the number of GPUs for all payments at once; exact where they can be placed"
    options_type = CountDpOptions

    def supports(self, instance: AuctionInstance) -> Support:
        """Every auction is supported."""
        del instance
        return SUPPORTED

    def solve(
        self,
        instance: AuctionInstance,
        *,
        options: CountDpOptions,
        stop: StoppingCriterion,
        seed: int,
        progress: Progress,
    ) -> Solution:
        """Return the allocation with all payments."""
        del progress
        clock = PhaseClock()
        with clock.phase("compile"):
            compile_loops()
        with clock.phase("build"):
            tables = Tables.build(instance)
            packer, allocator = Packer(instance, seed), Allocator(tables)
        with clock.phase("solve"):
            relaxed = CountRelaxation(tables)
            row, placement, repaired = _main(relaxed, tables, packer, allocator, options.exchange_moves, seed)
            others = Others(relaxed, tables, packer, allocator, row, repaired)
            without = {i: others.without(i) for i in np.flatnonzero(row >= 0).tolist()}
        reason = stop(SolveState(elapsed_s=clock.elapsed_s))
        return make_solution(
            self,
            instance,
            Outcome(
                row=row,
                placement=placement,
                bound=relaxed.bound,
                proof=CountProof(),
                without=without,
                counts_others=True,
            ),
            rule=options.payment_rule,
            options=options,
            seed=seed,
            clock=clock,
            termination=Termination.COMPLETED if reason is None else reason,
            counts={"exact_main": float(repaired is None)},
        )


def _main(
    relaxed: CountRelaxation, tables: Tables, packer: Packer, allocator: Allocator, moves: int, seed: int
) -> tuple[IntArray, IntArray, Allocation | None]:
    """Return instance rows and their placement; the allocation where it had to be repaired."""
    choice = relaxed.choice()
    row = tables.chosen_rows(choice)
    placement = packer.place(row)
    if placement is not None:
        return row, placement, None
    allocation = allocator.improved(allocator.repaired(choice), seed=seed, moves=moves)
    return tables.chosen_rows(allocation.choice), allocation.placement, allocation


class Others:
    """What the others can have without each winner, by counting; exact where it can be placed."""

    def __init__(
        self,
        relaxed: CountRelaxation,
        tables: Tables,
        packer: Packer,
        allocator: Allocator,
        row: IntArray,
        allocation: Allocation | None,
    ) -> None:
        self._relaxed, self._tables, self._packer, self._allocator = relaxed, tables, packer, allocator
        self._row = row
        self._allocation = allocation

    def without(self, app: int) -> Without:
        """Return both ends for one app."""
        tables = self._tables
        bound, choice = self._relaxed.without(app)
        row = tables.chosen_rows(choice)
        if not tables.has_named and self._packer.fits_first(row[row >= 0]):
            return Without(reached=tables.welfare(choice), bound=bound, witness=Witness(row=row))
        placement = self._packer.place(row)
        if placement is not None:
            return Without(reached=tables.welfare(choice), bound=bound, witness=Witness(row=row, placement=placement))
        candidates = [self._allocator.repaired(choice, app)]
        if self._allocation is not None:
            candidates.append(self._allocator.without(self._allocation, app))
        best = max(candidates, key=lambda found: tables.welfare(found.choice))
        witness = Witness(row=tables.chosen_rows(best.choice), placement=best.placement)
        return Without(reached=tables.welfare(best.choice), bound=bound, witness=witness)
