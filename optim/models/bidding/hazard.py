"""How long machines last without bids: hazards by kind, age and hour of the day, from spells that were watched."""

from dataclasses import dataclass

import numpy as np

from optim.core.errors import InvalidProblemError
from optim.models.bidding.instance import BoolArray, FloatArray, IntArray

HOUR_S = 3600
DAY_S = 24 * HOUR_S
AGES_S = (0, 600, 1800, HOUR_S, 3 * HOUR_S, 12 * HOUR_S)
"""Where ages part: machines lost at once differ from those that settle."""

BLOCKS = 4
"""Parts of the day that have a factor each."""

PRIOR_LOSSES = 1.0
"""Every rate counts as much as one loss more at the pooled rate of its age: kinds hardly seen lean on the others."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Spells:
    """Machines that were watched from their launch until they were lost, or the watch ended.

    Parameters
    ----------
    kinds
        Names: a zone and a type each.
    kind
        Shape (spells,): whose.
    start_s, length_s
        Shape (spells,): launch, in seconds of a clock that is 0 at midnight of some day, and time watched, above 0.
    is_lost
        Shape (spells,): whether the machine was lost then.
    """

    kinds: tuple[str, ...]
    kind: IntArray
    start_s: FloatArray
    length_s: FloatArray
    is_lost: BoolArray

    def __post_init__(self) -> None:
        if not len(self.kind) or (self.length_s <= 0).any() or self.kind.max() >= len(self.kinds):
            raise InvalidProblemError("spells must be there, of known kinds, and each longer than nothing")


@dataclass(frozen=True, kw_only=True, eq=False)
class Hazards:
    """Losses an hour by kind and age, times a factor of the hour of the day.

    Parameters
    ----------
    kinds
        Names.
    rate
        Shape (kinds, ages): losses an hour in each range of ages, see `AGES_S`; the last has no end.
    factor
        Shape (blocks,): by part of the day.
    """

    kinds: tuple[str, ...]
    rate: FloatArray
    factor: FloatArray

    def cumulative(self, kind: int, start_s: float, until_s: float, age_s: float = 0.0) -> float:
        """Return the expected losses of a machine of an age, held from a time of day until `until_s` seconds later."""
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
        """Return the probability that a machine of an age lasts `until_s` seconds more."""
        return float(np.exp(-self.cumulative(kind, start_s, until_s, age_s)))


def fit_hazards(spells: Spells) -> Hazards:
    """Estimate hazards: Kaplan and Meier's losses over time at risk by kind and age, and a factor a part of the day.

    The factor of a part is what was lost in it over what the rates by kind and age expect there.

    Parameters
    ----------
    spells
        What was watched; spells whose watch ended count as time at risk.

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


def _factors(spells: Spells, rate: FloatArray) -> FloatArray:
    """Return lost over expected by part of the day, at least a tenth."""
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
