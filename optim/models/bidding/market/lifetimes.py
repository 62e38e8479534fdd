"""Lifetimes of machines without bids: availability, hazards, and shocks shared by zones.

Each cause of loss occurs at an independent time and takes all machines that it concerns (Marshall and Olkin's shocks):
docs/mathematics/bidding.md, (B.14).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from optim.core.arrays import BoolArray, ComparesByValue, FloatArray, IntArray, freeze_arrays
from optim.core.errors import InvalidProblemError
from optim.models.bidding.market.prices import HOUR_S


@dataclass(frozen=True, kw_only=True, eq=False)
class AvailabilityTrace(ComparesByValue):
    """Availability of an instance in one zone by tick; each tick lasts until the next.

    Parameters
    ----------
    zone, resource
        Names of the zone and of the requested instance type.
    time_s
        Shape (ticks,): strictly ascending.
    is_available
        Shape (ticks,): whether the instance was available for launch and use.
    price_micro
        Shape (ticks,): spot price in micro-dollars per hour.
    on_demand_micro
        On-demand price in micro-dollars per hour.
    end_s
        End of the last tick.
    """

    zone: str
    resource: str
    time_s: IntArray
    is_available: NDArray[np.bool_]
    price_micro: IntArray
    on_demand_micro: int
    end_s: int

    def __post_init__(self) -> None:
        if len(self.time_s) == 0 or (np.diff(self.time_s) <= 0).any() or self.end_s <= self.time_s[-1]:
            raise InvalidProblemError(
                f"{self.zone}: at least one tick is required, and ticks must be strictly ascending in time"
            )
        if len(self.is_available) != len(self.time_s) or len(self.price_micro) != len(self.time_s):
            raise InvalidProblemError(f"{self.zone}: availability and price must be given for every tick")

    def __len__(self) -> int:
        return len(self.time_s)

    def price_at(self, time_s: int) -> int | None:
        """Return the price at a time, None before the first tick."""
        tick = int(np.searchsorted(self.time_s, time_s, side="right")) - 1
        return int(self.price_micro[tick]) if tick >= 0 else None


DAY_S = 24 * HOUR_S

AGES_S = (0, 600, 1800, HOUR_S, 3 * HOUR_S, 12 * HOUR_S)
"""Boundaries between ranges of ages; the loss rate of new machines differs from that of older ones."""

BLOCKS = 4
"""Number of parts of the day with separate factors."""

PRIOR_LOSSES = 1.0
"""Number of losses added for each kind and age, with the time at risk that the pooled rate implies, to regularise rates."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Lifetimes:
    """Machines observed from their launch until they were lost or the observation ended.

    Parameters
    ----------
    kinds
        Names of kinds of machines, each a zone and a type.
    kind
        Shape (spells,): index of the machine's kind.
    start_s
        Shape (spells,): time of the launch, in seconds after midnight of some day.
    length_s
        Shape (spells,): seconds from the launch to the loss or the end of the observation, above 0.
    is_lost
        Shape (spells,): whether the observation ended with the loss of the machine.
    """

    kinds: tuple[str, ...]
    kind: IntArray
    start_s: FloatArray
    length_s: FloatArray
    is_lost: BoolArray

    def __post_init__(self) -> None:
        if not len(self.kind) or (self.length_s <= 0).any() or self.kind.max() >= len(self.kinds):
            raise InvalidProblemError(
                "there must be at least one spell, each of a known kind and with a positive length"
            )


@dataclass(frozen=True, kw_only=True, eq=False)
class Hazards:
    """Losses per hour by kind and age, times a factor for the hour of the day.

    Parameters
    ----------
    kinds
        Names of kinds of machines.
    rate
        Shape (kinds, ages): losses per hour in each range of ages, see `AGES_S`; the last range is unbounded.
    factor
        Shape (blocks,): factor by part of the day.
    """

    kinds: tuple[str, ...]
    rate: FloatArray
    factor: FloatArray

    def cumulative(self, kind: int, start_s: float, until_s: float, age_s: float = 0.0) -> float:
        """Return the expected losses of a machine of age `age_s` in the `until_s` seconds from the time of day `start_s` on."""
        total, now = 0.0, 0.0
        edges = np.array(AGES_S, dtype=np.float64)
        while now < until_s:
            age, clock = age_s + now, (start_s + now) % DAY_S
            row = int(np.searchsorted(edges, age, side="right")) - 1
            block = int(clock // (DAY_S / BLOCKS)) % BLOCKS
            older = edges[row + 1] - age if row + 1 < len(edges) else np.inf
            step = min(until_s - now, older, (block + 1) * DAY_S / BLOCKS - clock)
            total += float(self.rate[kind, row] * self.factor[block]) * step / HOUR_S
            now += step
        return total

    def survival(self, kind: int, start_s: float, until_s: float, age_s: float = 0.0) -> float:
        """Return the probability that a machine of an age survives `until_s` more seconds."""
        return float(np.exp(-self.cumulative(kind, start_s, until_s, age_s)))


def fit_hazards(spells: Lifetimes) -> Hazards:
    """Estimate hazards: losses per time at risk (Kaplan and Meier) by kind and age, and a factor per part of the day.

    The factor of a part is the number of losses in it over the number expected from the rates by kind and age.

    Parameters
    ----------
    spells
        Observed spells; those that ended without a loss count as time at risk.

    References
    ----------
    Kaplan, Meier, "Nonparametric Estimation from Incomplete Observations", JASA 53 (1958), DOI
    10.1080/01621459.1958.10501452.
    """
    edges = np.array([*AGES_S, np.inf])
    size, ages = len(spells.kinds), len(AGES_S)
    inside = np.clip(spells.length_s[:, None] - edges[:-1], 0.0, np.diff(edges)) / HOUR_S
    last = np.searchsorted(edges, spells.length_s, side="left") - 1
    risk, lost = np.zeros((size, ages)), np.zeros((size, ages))
    np.add.at(risk, spells.kind, inside)
    np.add.at(lost, (spells.kind, last), spells.is_lost.astype(np.float64))
    pooled = lost.sum(axis=0) / np.maximum(risk.sum(axis=0), 1e-9)
    prior_h = PRIOR_LOSSES / np.maximum(pooled, 1e-9)
    rate = np.where(pooled > 0, (lost + PRIOR_LOSSES) / (risk + prior_h), 0.0)
    return Hazards(kinds=spells.kinds, rate=rate, factor=_factors(spells, rate))


def _factors(spells: Lifetimes, rate: FloatArray) -> FloatArray:
    """Return the ratio of losses to expected losses (each plus 1) by part of the day, at least 0.1."""
    flat = Hazards(kinds=spells.kinds, rate=rate, factor=np.ones(BLOCKS))
    end = (spells.start_s + spells.length_s) % DAY_S
    lost = np.bincount((end // (DAY_S / BLOCKS)).astype(np.int64) % BLOCKS, spells.is_lost, BLOCKS)
    expected = np.zeros(BLOCKS)
    for kind, start, length in zip(
        spells.kind.tolist(), spells.start_s.tolist(), spells.length_s.tolist(), strict=True
    ):
        now = 0.0
        while now < length:
            clock = (start + now) % DAY_S
            block = int(clock // (DAY_S / BLOCKS)) % BLOCKS
            step = min(length - now, (block + 1) * DAY_S / BLOCKS - clock)
            expected[block] += flat.cumulative(kind, 0.0, step, now)
            now += step
    return np.asarray(np.maximum((lost + 1.0) / (expected + 1.0), 0.1))


RESOLUTION = 1e-6
"""Capacities are rounded to multiples of this number."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CommonShocks(ComparesByValue):
    """Expected shocks within a period; a shock takes all machines of its kind, zone or region.

    Parameters
    ----------
    zone
        Zone of each kind of machines; shape (kinds,).
    region
        Region of each zone; shape (zones,).
    own
        Expected shocks to each kind, at least 0; no shock happens with probability exp(-own). Shape (kinds,).
    by_zone
        Expected shocks to each zone; shape (zones,).
    by_region
        Expected shocks to each region; shape (regions,).

    References
    ----------
    Marshall, Olkin, "A Multivariate Exponential Distribution", JASA 62 (1967), DOI 10.1080/01621459.1967.10482885.
    """

    zone: IntArray
    region: IntArray
    own: FloatArray
    by_zone: FloatArray
    by_region: FloatArray

    def __post_init__(self) -> None:
        freeze_arrays(self)
        shocks = np.concatenate([self.own, self.by_zone, self.by_region])
        if not ((shocks >= 0) & np.isfinite(shocks)).all():
            raise InvalidProblemError("expected shocks must be finite and at least 0")
        if len(self.own) != len(self.zone) or len(self.by_zone) != len(self.region):
            raise InvalidProblemError(
                "own and zone need one entry per kind of machine, by_zone and region one entry per zone"
            )
        for places, shocks_there, word in ((self.zone, self.by_zone, "zone"), (self.region, self.by_region, "region")):
            if len(places) and not 0 <= places.min() <= places.max() < len(shocks_there):
                raise InvalidProblemError(
                    f"every {word} must be a number from 0 to {len(shocks_there) - 1}, got {places.tolist()}"
                )

    def survival(self) -> FloatArray:
        """Return each kind's survival probability, shape (kinds,)."""
        return np.asarray(np.exp(-(self.own + self.by_zone[self.zone] + self.by_region[self.region[self.zone]])))

    def probability(self, capacity: Sequence[float] | FloatArray, least: float) -> float:
        """Return the exact probability that the surviving machines have a capacity of at least `least`.

        The distribution of the capacity is computed for each zone from its kinds, for each region from its zones,
        and for all regions. A shock to a zone or region sets its capacity to 0.

        Parameters
        ----------
        capacity
            Shape (kinds,): total work rate of all machines of a kind, 0 for unused kinds.
        least
            Required total work rate.
        """
        most = round(least / RESOLUTION)
        total = {0: 1.0}
        for region, shock in enumerate(self.by_region.tolist()):
            inside = {0: 1.0}
            for zone in np.flatnonzero(self.region == region).tolist():
                kinds = {0: 1.0}
                for kind in np.flatnonzero(self.zone == zone).tolist():
                    size = round(capacity[kind] / RESOLUTION)
                    if size:
                        kinds = _add(kinds, _either({size: 1.0}, float(self.own[kind])), most)
                inside = _add(inside, _either(kinds, float(self.by_zone[zone])), most)
            total = _add(total, _either(inside, shock), most)
        return sum(chance for size, chance in total.items() if size >= most)


def _either(chances: dict[int, float], shocks: float) -> dict[int, float]:
    """Return the distribution of an amount that any shock sets to 0, given the expected number of shocks."""
    stays = float(np.exp(-shocks))
    mixture = {size: chance * stays for size, chance in chances.items()}
    mixture[0] = mixture.get(0, 0.0) + 1.0 - stays
    return mixture


def _add(one: dict[int, float], other: dict[int, float], most: int) -> dict[int, float]:
    """Return the distribution of the sum of two independent variables, capped at `most`."""
    total: dict[int, float] = {}
    for size, chance in one.items():
        for more, share in other.items():
            both = min(size + more, most)
            total[both] = total.get(both, 0.0) + chance * share
    return total
