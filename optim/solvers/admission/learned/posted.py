"""Prices that are posted and stay as they are until others are posted, whatever is taken."""

from dataclasses import dataclass

import numpy as np

from optim.models.admission.instance import AdmissionInstance, FloatArray
from optim.solvers.admission.posted_prices.price_ranges import PriceRanges, SideRanges
from optim.solvers.admission.posted_prices.server_state import ClusterState
from optim.solvers.admission.pricing.class_pricing import Prices


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


def _constant(prices: FloatArray) -> SideRanges:
    with np.errstate(divide="ignore"):
        logarithm = np.log(prices)
    return SideRanges(log_lower=logarithm, log_upper=logarithm)
