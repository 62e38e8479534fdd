"""What the solvers of the fractional market share: rounding to bids, bounds, and what rounding cost."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic

import numpy as np

from optim.core.driver import Monitor
from optim.models.auction.instance import AuctionInstance, FloatArray
from optim.models.auction.market import FractionalMarket, market_of
from optim.solvers.auction.allocation.allocator import Allocator
from optim.solvers.auction.fractional.rounding import envy_ratio, rounded
from optim.solvers.auction.payments.others import bounded_award
from optim.solvers.auction.payments.settlement import AbstractAuctionSolver, Award, PaymentOptionsT
from optim.solvers.auction.tables import Tables


@dataclass(frozen=True, kw_only=True, eq=False)
class Division:
    """Shares of a market, shape (apps, goods), their log welfare, steps, and figures of the method."""

    share: FloatArray
    value: float
    steps: int = 0
    figures: Mapping[str, float]


class AbstractRoundedSolver(AbstractAuctionSolver[PaymentOptionsT], Generic[PaymentOptionsT]):
    """A solver of the fractional market by its `divide`, rounded.

    Among the counts are the market's value (`fractional`, above granting nothing, so that it compares with objective
    and bound) and the envy ratio of its shares.
    """

    @abstractmethod
    def divide(self, market: FractionalMarket, options: PaymentOptionsT) -> Division:
        """Solve the market."""

    def award(self, instance: AuctionInstance, options: PaymentOptionsT, monitor: Monitor, seed: int) -> Award:
        """Divide, round, bound."""
        with monitor.clock.phase("build"):
            tables = Tables.build(instance)
            allocator, market = Allocator(tables), market_of(instance)
        with monitor.clock.phase("solve"):
            if not len(market.cap):
                return bounded_award(tables, allocator, allocator.empty())
            with monitor.clock.phase("divide"):
                found = self.divide(market, options)
            empty = float(-np.log(instance.apps.empty_rho[market.app]).sum())
            figures = {"fractional": found.value - empty, "envy_ratio": envy_ratio(market, found.share)}
            return bounded_award(
                tables,
                allocator,
                rounded(tables, allocator, market, found.share),
                iterations=found.steps,
                figures={**found.figures, **figures},
            )
