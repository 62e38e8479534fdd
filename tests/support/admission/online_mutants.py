"""Faulty versions of the online algorithm, each with one fault; the properties must detect all of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from optim.core.arrays import FloatArray
from optim.models.admission.data import ServerClasses
from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.posted_prices.price_functions import (
    ExponentialPrice,
    PriceFunction,
    PriceRanges,
    SideRanges,
    ZeroStartPrice,
)
from optim.solvers.admission.pricing.best_schedule import JobArrays
from optim.solvers.admission.pricing.servers import ClusterState, FoundSchedule, ResidualSearch, ServerSide, Use
from tests.support.admission.online_observation import Parts

WRONG_BY = 10.0
"""Factor of the mutant whose U is too small."""


@dataclass(frozen=True)
class AcceptAll:
    """Admit every job that fits, regardless of its payoff."""

    floor: float = -np.inf

    def accepts(self, schedule: FoundSchedule) -> bool:
        """Admit."""
        return True


class SlotlessSide(ServerSide):
    """Prices without the slot index: a server's price follows its mean utilisation over all slots."""

    def take(self, use: Use) -> tuple[FloatArray, FloatArray]:
        """Reserve as usual, then set one price per server and resource for all slots, by mean utilisation."""
        cell = (use.slot, slice(None), use.server)
        before = self.price[cell]
        super().take(use)
        total = np.maximum(self.capacity.sum(axis=0), 1e-300)
        share = (self.capacity - self.residual).sum(axis=0) / total
        of_class = self.servers.class_of_server
        for slot in range(self.price.shape[0]):
            lower, upper = (bound[of_class, slot] for bound in (self._bounds.log_lower, self._bounds.log_upper))
            self.price[slot] = self._function.price(share.T, lower, upper).T
        return before, self.price[cell]


class SlotlessState(ClusterState):
    """A cluster whose servers are `SlotlessSide`."""

    def __init__(self, instance: AdmissionInstance, bounds: PriceRanges, function: PriceFunction) -> None:
        super().__init__(instance, bounds, function)

        def side(servers: ServerClasses, of_side: SideRanges) -> ServerSide:
            return SlotlessSide(servers, of_side, function)

        self.worker = side(instance.worker_servers, bounds.worker)
        self.ps = self.worker if self.is_shared else side(instance.ps_servers, bounds.ps)


def price_up_to_capacity(function: PriceFunction) -> PriceFunction:
    """Let the price reach U at c instead of (1 - eps) c."""
    assert isinstance(function, ExponentialPrice | ZeroStartPrice)
    return replace(function, full_at=1.0)


def shifted_search(change: Callable[[JobArrays], JobArrays]) -> Callable[[AdmissionInstance], ResidualSearch]:
    """Return a search that sees changed jobs."""

    def build(instance: AdmissionInstance) -> ResidualSearch:
        search = ResidualSearch(instance)
        search._jobs = change(search._jobs)
        return search

    return build


def starts_late(jobs: JobArrays) -> JobArrays:
    """Let the recursion begin a slot after the arrival."""
    return jobs._replace(arrival=jobs.arrival + 1)


def ends_early(jobs: JobArrays) -> JobArrays:
    """Let the recursion end a slot before the deadline."""
    return jobs._replace(deadline=jobs.deadline - 1)


def counts_one_slot_too_few(jobs: JobArrays) -> JobArrays:
    """Value a completion as if it were one slot earlier."""
    value = jobs.value.copy()
    value[:, 1:] = np.where(jobs.value[:, :-1] > 0, jobs.value[:, :-1], jobs.value[:, 1:])
    return jobs._replace(value=np.where(jobs.value > 0, value, 0.0))


def ignores_the_cap(instance: AdmissionInstance) -> ResidualSearch:
    """Let a job have as many units on a server as fit, regardless of its allowed share."""
    return ResidualSearch(replace(instance, max_share_per_server=None))


def ignores_what_is_left(instance: AdmissionInstance) -> ResidualSearch:
    """Treat every server as empty."""
    return ResidualSearch(instance, is_residual_checked=False)


def with_small_upper(bounds: PriceRanges) -> PriceRanges:
    """Make U too small."""
    return bounds.scaled(upper=1 / WRONG_BY)


MUTANTS: Mapping[str, Parts] = {
    "accept-all": Parts(acceptance=AcceptAll()),
    "prices without the slot index": Parts(state=SlotlessState),
    "U too small by 10": Parts(bounds=with_small_upper),
    "price reaches U at c": Parts(function=price_up_to_capacity),
    "recursion starts a slot late": Parts(finder=shifted_search(starts_late)),
    "recursion ends a slot early": Parts(finder=shifted_search(ends_early)),
    "delay counted a slot too short": Parts(finder=shifted_search(counts_one_slot_too_few)),
    "start of prices too high by 1000": Parts(bounds=lambda bounds: bounds.scaled(lower=1000.0)),
    "cap on a job's share ignored": Parts(finder=ignores_the_cap),
    "U too small, and residual capacity ignored": Parts(bounds=with_small_upper, finder=ignores_what_is_left),
}
"""The faults, by name."""
