"""Draw bidding instances from generated price history."""

from dataclasses import dataclass

from optim.core.errors import InvalidOptionError
from optim.models.bidding.eviction import fit_evictions
from optim.models.bidding.instance import BiddingInstance
from optim.workloads.bidding.instances import BiddingOptions, draw_instance
from optim.workloads.bidding.price_generator import PriceOptions, generate_prices

__all__ = ["GeneratorOptions", "generate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorOptions(BiddingOptions):
    """Sizes of the history behind an instance, and what is decided (`BiddingOptions`).

    Parameters
    ----------
    num_types, num_zones
        Every type in every zone is a market; at most 5 types and 3 zones.
    days
        Length of the history.
    """

    num_types: int = 5
    num_zones: int = 3
    days: float = 60.0

    def __post_init__(self) -> None:
        BiddingOptions.__post_init__(self)
        if self.days < 1:
            raise InvalidOptionError(f"days must be at least 1, got {self.days}")
        PriceOptions(num_types=self.num_types, num_zones=self.num_zones, days=self.days)


def generate(options: GeneratorOptions, seed: int) -> BiddingInstance:
    """Draw a history, and from it a decision.

    Parameters
    ----------
    options
        Sizes and distributions.
    seed
        Same options and seed, same instance.

    Examples
    --------
    >>> generate(GeneratorOptions(num_types=1, num_zones=2, days=2, term="own"), seed=1).name
    'spot-2x12-own-1'
    """
    prices = PriceOptions(num_types=options.num_types, num_zones=options.num_zones, days=options.days)
    history = generate_prices(prices, seed)
    return draw_instance(history, fit_evictions(history), options, seed)
