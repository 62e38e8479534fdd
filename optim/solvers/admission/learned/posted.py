"""Prices that are posted and stay as they are until others are posted, whatever is taken."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from optim.models.admission.instance import AdmissionInstance, FloatArray
from optim.solvers.admission.posted_prices.price_ranges import PriceRanges, SideRanges
from optim.solvers.admission.posted_prices.server_state import ClusterState
from optim.solvers.admission.pricing.class_pricing import Prices

FREE = 1e-12
"""Price of a unit of room that nobody else can want, in utils: little beside anything, and of two ways the smaller one."""


@dataclass(frozen=True, slots=True)
class PostedPrice:
    """A price function without a slope: both ends of each range are the posted price."""

    def price(self, share: FloatArray, log_lower: FloatArray, log_upper: FloatArray) -> FloatArray:
        """Return the posted prices."""
        del share, log_lower
        return np.asarray(np.exp(log_upper))


def posted_state(instance: AdmissionInstance, prices: Prices) -> ClusterState:
    """Return the empty cluster at posted prices, shape (classes, slots, resources) a side."""
    worker = _constant(prices.worker)
    ps = worker if instance.has_shared_servers else _constant(prices.ps)
    return ClusterState(instance, PriceRanges(worker=worker, ps=ps), PostedPrice())


def post(state: ClusterState, prices: Prices) -> None:
    """Post other prices; what is taken stays taken."""
    for side, array in zip(state.sides, (prices.worker, prices.ps), strict=False):
        side.price[:] = array.transpose(1, 2, 0)[:, :, side.servers.class_of_server]


@contextmanager
def discounted(state: ClusterState, slot: int, *, ahead: float) -> Iterator[list[FloatArray]]:
    """Count prices only for the part of the room that jobs arriving after `slot` will take.

    What is left of the slot itself is lost unless those who have arrived use it. Of the slot k later a part
    1 - exp(-k / ahead) is still wanted: all of it for `ahead` 0. Gives the posted prices, shape (slots, resources, servers)
    a side, which are back in force afterwards.
    """
    posted = [side.price for side in state.sides]
    for side, price in zip(state.sides, posted, strict=True):
        later = np.maximum(np.arange(len(price)) - slot, 0)
        wanted = 1 - np.exp(-later / ahead) if ahead > 0 else np.minimum(later, 1)
        side.price = np.asarray(price * wanted[:, None, None] + FREE)
    try:
        yield posted
    finally:
        for side, price in zip(state.sides, posted, strict=True):
            side.price = price


def _constant(prices: FloatArray) -> SideRanges:
    with np.errstate(divide="ignore"):
        logarithm = np.log(prices)
    return SideRanges(log_lower=logarithm, log_upper=logarithm)
