"""Hazards of spells of availability and absence by age, estimated from traces or taken from a prior.

A spell is a run of ticks with, or without, available machines. Its hazard at age k is the probability that it ends
after k ticks, given that it lasted k ticks: docs/mathematics/bidding.md, (B.22).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from optim.core.arrays import BoolArray, ComparesByValue, FloatArray, IntArray, freeze_arrays
from optim.core.errors import InvalidProblemError
from optim.models.bidding.market.lifetimes import PRIOR_LOSSES, AvailabilityTrace
from optim.models.bidding.market.prices import HOUR_S

AGES_S = (600, 1200, 1800, 3000, 5400, 10_200, 14_400)
"""Ages in seconds at which hazards may change; the ranges widen because hazards vary less at high ages."""

MAX_AGES = 96
"""Largest number of distinct ages; enough for all of `AGES_S` at ticks of 150 s or more."""

PRIOR_HAZARD, PRIOR_EXPONENT, PRIOR_TICK_S = 0.3, 0.75, 600
"""Prior: a spell of k ticks of 600 s ends with probability 0.3 / k^0.75, as under a Weibull distribution."""

ABSENT, PRESENT = 0, 1
"""Types of spells, and rows of hazards."""


def decision_s(tick_s: int) -> int:
    """Return the seconds between decisions for a tick length: as many ticks as fit in ten minutes, at least one."""
    return tick_s * max(1, PRIOR_TICK_S // tick_s)


def num_ages(tick_s: int) -> int:
    """Return the number of distinct ages for a tick length."""
    return int(min(MAX_AGES, max(1, -(-AGES_S[-1] // tick_s))))


@dataclass(frozen=True, kw_only=True, eq=False)
class SpellHazards(ComparesByValue):
    """Hazards of spells by type and age.

    Parameters
    ----------
    tick_s
        Seconds of a tick.
    hazard
        Shape (2, ages): hazards of absence (row 0) and availability (row 1), in 0..1. Column k is for spells of k + 1
        ticks, the last column also for longer spells.
    source
        Description of the data; empty for the prior.

    Raises
    ------
    InvalidProblemError
        If shapes don't fit, or a number isn't a probability.
    """

    tick_s: int
    hazard: FloatArray
    source: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "hazard", np.array(self.hazard, dtype=np.float64))
        if self.hazard.ndim != 2 or self.hazard.shape[0] != 2 or not 1 <= self.hazard.shape[1] <= MAX_AGES:
            raise InvalidProblemError(
                f"hazards must have shape (2, ages) with 1 to {MAX_AGES} ages, got {self.hazard.shape}"
            )
        if not ((self.hazard >= 0.0) & (self.hazard <= 1.0)).all():
            raise InvalidProblemError("hazards must be probabilities in 0..1")
        if self.tick_s < 1:
            raise InvalidProblemError(f"a tick must last at least one second, got {self.tick_s}")
        freeze_arrays(self)

    @property
    def num_ages(self) -> int:
        """Number of distinct ages."""
        return int(self.hazard.shape[1])

    @property
    def survival(self) -> FloatArray:
        """Probability that a spell lasts at least k + 1 ticks, shape (2, ages)."""
        stays = np.cumprod(1.0 - self.hazard[:, :-1], axis=1)
        return np.concatenate([np.ones((2, 1)), stays], axis=1)

    @property
    def mean_ticks(self) -> FloatArray:
        """Mean length of each type of spell in ticks, shape (2,); infinite if a spell may never end."""
        survival = self.survival
        with np.errstate(divide="ignore", invalid="ignore"):
            tail = np.where(survival[:, -1] > 0, survival[:, -1] / self.hazard[:, -1], 0.0)
        return np.asarray(survival[:, :-1].sum(axis=1) + tail)

    @property
    def share(self) -> float:
        """Long-run share of ticks with machines; 0.5 if neither type of spell ever ends."""
        absent, present = (float(mean) for mean in self.mean_ticks)
        if np.isinf(present):
            return 0.5 if np.isinf(absent) else 1.0
        return 0.0 if np.isinf(absent) else present / (absent + present)

    def first_hazard(self, ticks: int) -> FloatArray:
        """Return the hazards of the spell in progress at a job's start, whose age is unknown.

        The age has the long-run distribution. The spell ends after n more ticks with probability S(n) / (S(n) + S(n + 1) + ...),
        S(n) being the probability that a new spell lasts n ticks.

        Parameters
        ----------
        ticks
            Number of ticks.

        Returns
        -------
        FloatArray
            Shape (ticks, 2): row n is for spells observed for n + 1 ticks, column 0 for absence and 1 for availability.
        """
        found = np.empty((ticks, 2))
        survival, mean = self.survival, self.mean_ticks
        for kind in (ABSENT, PRESENT):
            last = float(self.hazard[kind, -1])
            later = float(mean[kind])
            row = np.full(ticks, last)
            for n in range(min(ticks, self.num_ages - 1)):
                row[n] = survival[kind, n] / later if 0 < later < np.inf else 0.0 if later > 0 else 1.0
                later -= float(survival[kind, n])
            found[:, kind] = np.clip(row, 0.0, 1.0)
        return found

    def every(self, tick_s: int) -> "SpellHazards":
        """Return equivalent hazards for another tick length, with the same rates per time."""
        if tick_s == self.tick_s:
            return self
        summed = np.cumsum(-np.log1p(-np.minimum(self.hazard, 1.0 - 1e-12)), axis=1)
        summed = np.concatenate([np.zeros((2, 1)), summed], axis=1)
        edges = np.arange(num_ages(tick_s) + 1) * tick_s / self.tick_s
        beyond = np.maximum(0.0, edges - self.num_ages)
        known = np.stack([np.interp(edges, np.arange(self.num_ages + 1), row) for row in summed])
        known += beyond * (summed[:, -1:] - summed[:, -2:-1])
        return replace(self, tick_s=tick_s, hazard=-np.expm1(-np.diff(known, axis=1)))

    def scaled(self, absent: float, present: float) -> "SpellHazards":
        """Return hazards multiplied by a factor per type of spell, at most 1."""
        factors = np.array([[absent], [present]])
        return replace(self, hazard=np.minimum(1.0, self.hazard * factors))

    @property
    def ages_met(self) -> FloatArray:
        """Long-run distribution of the age of a spell of availability in progress, shape (ages,)."""
        survival, mean = self.survival[PRESENT], float(self.mean_ticks[PRESENT])
        if not 0.0 < mean < np.inf:
            return np.asarray(np.eye(self.num_ages)[-1 if mean > 0.0 else 0])
        weights = survival / mean
        weights[-1] = max(0.0, 1.0 - weights[:-1].sum())
        return np.asarray(weights)

    @property
    def residual_ticks(self) -> FloatArray:
        """Mean remaining ticks of a spell of availability by age, shape (ages,), including the tick that completes the age."""
        found = np.empty(self.num_ages)
        last = float(self.hazard[PRESENT, -1])
        found[-1] = 1.0 / last if last > 0.0 else np.inf
        for k in range(self.num_ages - 2, -1, -1):
            stays = 1.0 - float(self.hazard[PRESENT, k])
            found[k] = 1.0 + (stays * found[k + 1] if stays > 0.0 else 0.0)
        return found

    def draw(self, ticks: int, rng: np.random.Generator) -> BoolArray:
        """Return a random availability by tick, with the long-run distribution at the start; shape (ticks,)."""
        dice, first = rng.random(ticks + 1), self.first_hazard(ticks)
        flags = np.empty(ticks, dtype=bool)
        is_there, age, is_first = bool(dice[ticks] < self.share), 1, True
        for tick in range(ticks):
            flags[tick] = is_there
            kind = PRESENT if is_there else ABSENT
            chance = first[tick, kind] if is_first else self.hazard[kind, min(age, self.num_ages) - 1]
            if dice[tick] < chance:
                is_there, age, is_first = not is_there, 1, False
            else:
                age += 1
        return flags


def prior_hazards(tick_s: int) -> SpellHazards:
    """Return the prior hazards for a tick length."""
    lasted = np.arange(1, num_ages(tick_s) + 1) * tick_s
    return SpellHazards(tick_s=tick_s, hazard=np.tile(_prior(lasted, tick_s), (2, 1)))


def _prior(lasted_s: FloatArray | IntArray, tick_s: int) -> FloatArray:
    """Return the prior probability that a spell of the given length ends within the next tick."""
    ticks = np.maximum(1.0, np.asarray(lasted_s) / PRIOR_TICK_S)
    rate = -np.log1p(-PRIOR_HAZARD / ticks**PRIOR_EXPONENT) / PRIOR_TICK_S
    return np.asarray(-np.expm1(-rate * tick_s))


def resampled(trace: AvailabilityTrace, tick_s: int) -> BoolArray:
    """Return a trace's availability sampled every `tick_s` seconds from its first tick on."""
    times = np.arange(int(trace.time_s[0]), trace.end_s, tick_s)
    return np.asarray(trace.is_available[np.searchsorted(trace.time_s, times, side="right") - 1], dtype=bool)


def count_spells(flags: BoolArray, ages: int) -> tuple[IntArray, IntArray]:
    """Return by age how many spells of a trace reached that age, and how many ended there.

    The first spell isn't counted, because it began before the trace and its age is unknown. The last spell counts with
    its observed length.

    Returns
    -------
    tuple of IntArray
        Numbers of spells at risk and of ended spells, by type and age, shape (2, ages) each; the last age includes all
        higher ages.
    """
    at_risk, ended = np.zeros((2, ages), np.int64), np.zeros((2, ages), np.int64)
    changes = np.flatnonzero(np.diff(flags)) + 1
    for begin, end in zip(changes, np.append(changes[1:], -1)[: len(changes)], strict=True):
        kind, length = int(flags[begin]), int((end if end > 0 else len(flags)) - begin)
        # A spell that the end of the trace cuts off is not at risk at its last observed age.
        lasted = np.minimum(np.arange(1, length + (end > 0)), ages) - 1
        np.add.at(at_risk[kind], lasted, 1)
        if end > 0:
            ended[kind, min(length, ages) - 1] += 1
    return at_risk, ended


def fit_spells(traces: Iterable[BoolArray], tick_s: int, *, source: str = "") -> SpellHazards:
    """Estimate hazards by age from traces: spells ended per spell at risk (Kaplan and Meier).

    Both numbers are summed over the traces and within ranges of ages. In each range, `PRIOR_LOSSES` ended spells at the
    prior's hazard are added; the prior dominates at rarely observed ages.

    Parameters
    ----------
    traces
        Availability by tick, one array per zone and campaign.
    tick_s
        Common tick length in seconds.
    source
        Description of the traces.

    References
    ----------
    Kaplan, Meier, "Nonparametric Estimation from Incomplete Observations", JASA 53 (1958), DOI
    10.1080/01621459.1958.10501452.
    """
    ages = num_ages(tick_s)
    at_risk, ended = np.zeros((2, ages), np.int64), np.zeros((2, ages), np.int64)
    for flags in traces:
        risk, ends = count_spells(np.asarray(flags, dtype=bool), ages)
        at_risk += risk
        ended += ends
    return SpellHazards(tick_s=tick_s, hazard=_pooled(at_risk, ended, tick_s), source=source if ended.any() else "")


def _pooled(at_risk: IntArray, ended: IntArray, tick_s: int) -> FloatArray:
    """Return hazards by type and age, from counts added up within the ranges of ages."""
    lasted = np.arange(1, at_risk.shape[1] + 1) * tick_s
    group = np.maximum(0, np.searchsorted(AGES_S, lasted, side="right") - 1)
    prior = _prior(lasted, tick_s)
    hazard = np.empty(at_risk.shape)
    for number in np.unique(group):
        inside = group == number
        expected = prior[inside].mean()
        risk, ends = at_risk[:, inside].sum(axis=1), ended[:, inside].sum(axis=1)
        hazard[:, inside] = ((ends + PRIOR_LOSSES) / (risk + PRIOR_LOSSES / expected))[:, None]
    return hazard


def fit_traces(traces: Sequence[AvailabilityTrace], tick_s: int) -> SpellHazards:
    """Estimate hazards by age from traces of any tick lengths, each sampled every `tick_s` seconds."""
    zones = sorted({trace.zone for trace in traces})
    hours = sum((trace.end_s - int(trace.time_s[0])) / HOUR_S for trace in traces)
    text = f"{len(zones)} {'zone' if len(zones) == 1 else 'zones'}, {hours:.0f} h"
    return fit_spells((resampled(trace, tick_s) for trace in traces), tick_s, source=text)
