"""The count relaxation alone: dynamic programming over the number of GPUs, and whether they can be placed."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from optim.core.driver import Monitor
from optim.core.errors import check_in
from optim.core.registry import register
from optim.models.auction.decision import CountProof
from optim.models.auction.instance import AuctionInstance
from optim.solvers.auction.allocation import Allocator
from optim.solvers.auction.counting import CountRelaxation
from optim.solvers.auction.packing import Packer
from optim.solvers.auction.payments import LeaveOneOut
from optim.solvers.auction.settlement import AbstractAuctionSolver, Award, PaymentOptions
from optim.solvers.auction.tables import Tables


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
        check_in("[0, inf)", self, "exchange_moves")


@register("count-dp", problem="auction")
class CountDp(AbstractAuctionSolver[CountDpOptions]):
    """The relaxation to numbers of GPUs, solved exactly, then placed.

    Notes
    -----
    Dropping everything but ``sum of GPUs <= GPUs on offer`` leaves a multiple-choice knapsack. Tables over the
    first i and over the last n - i apps give the optimum of all and of all but one app in O(N R D) together.
    It is an upper bound always, and exact whenever its own solution can be placed; on free machines that is
    always so if the sizes divide one another and the machine and the rack. `exact_main` and `exact_payments`
    among the counts say where it is exact; elsewhere the allocation is repaired and payments are intervals.
    """

    summary: ClassVar[str] = (
        "knapsacks over the number of GPUs for all payments at once; exact where they can be placed"
    )
    options_type: ClassVar[type[CountDpOptions]] = CountDpOptions

    def award(self, instance: AuctionInstance, options: CountDpOptions, monitor: Monitor, seed: int) -> Award:
        """Count, place or repair."""
        with monitor.clock.phase("build"):
            tables = Tables.build(instance)
            packer, allocator = Packer(instance, seed), Allocator(tables)
        with monitor.clock.phase("solve"):
            relaxed = CountRelaxation.of(tables)
            choice, repaired = relaxed.choice(), None
            placement = packer.place(tables.chosen_rows(choice))
            if placement is None:
                repaired = allocator.improved(allocator.repaired(choice), seed=seed, moves=options.exchange_moves)
                choice, placement = repaired.choice, repaired.placement
            others = LeaveOneOut(tables, packer, allocator, relaxed, lambda: repaired)
            return Award(
                row=tables.chosen_rows(choice),
                placement=placement,
                bound=relaxed.bound,
                proof=CountProof(),
                without={i: others.without(i) for i in np.flatnonzero(choice >= 0).tolist()},
                figures={"exact_main": float(repaired is None)},
            )
