"""Price functions: what a unit of a resource costs when so much of it is taken.

A function runs from nearly nothing (or nothing) while a row is empty to U, the most that any job pays
for a unit, when it is full: then no job finds a schedule there that is worth its cost.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Protocol

import numpy as np

from optim.core.errors import InvalidOptionError
from optim.models.admission.instance import FloatArray
from optim.solvers.admission.posted_prices.price_ranges import LowerScale


class RatioTheorem(StrEnum):
    """The theorems on competitive ratios, by the form of price that each is about."""

    EXPONENTIAL = "exponential"
    ZERO_START = "zero-start"


class PriceFunction(Protocol):
    """A non-decreasing price of a row's unit as a function of the share of its capacity that is taken.

    A class that states `theorem: ClassVar[RatioTheorem]` claims that the theorem is about its prices; without it no
    competitive ratio is claimed. A subclass inherits no theorem, since it may price otherwise.
    """

    def price(self, share: FloatArray, log_lower: FloatArray, log_upper: FloatArray) -> FloatArray:
        """Return prices in utils a unit.

        Parameters
        ----------
        share
            Used over capacity, any shape; values outside [0, 1] count as the nearer end.
        log_lower, log_upper
            Same shape: logarithms of the scale at which prices begin and of U. Rows with a
            `log_lower` of minus infinity are used by no job; their price is 0.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ExponentialPrice:
    """``L (U / L)^(share / full_at)``: L when empty, U from `full_at` on.

    Parameters
    ----------
    full_at
        Share of the capacity at which the price reaches U, in (0, 1].

    References
    ----------
    Bao, Peng, Wu, Li, "Online Job Scheduling in Distributed Machine Learning Clusters", INFOCOM 2018,
    DOI 10.1109/INFOCOM.2018.8486422: the price functions p and q, which have ``full_at = 1``.
    """

    theorem: ClassVar[RatioTheorem] = RatioTheorem.EXPONENTIAL
    unit_free_scale: ClassVar[LowerScale] = LowerScale.UNIT_FREE_L
    simple_scale: ClassVar[LowerScale] = LowerScale.SIMPLE_L
    paper_scale: ClassVar[LowerScale] = LowerScale.PAPER_L

    full_at: float = 1.0

    def __post_init__(self) -> None:
        _check_full_at(self.full_at)

    def price(self, share: FloatArray, log_lower: FloatArray, log_upper: FloatArray) -> FloatArray:
        """Return the prices, computed in logarithms since U / L may exceed any float."""
        level = np.clip(share / self.full_at, 0.0, 1.0)
        is_used = np.isfinite(log_lower)
        rise = np.where(is_used, log_upper - np.where(is_used, log_lower, 0.0), 0.0)
        # At the full end exactly U, whatever the logarithms' rounding.
        exponent = np.where(level < 1.0, log_lower + level * rise, log_upper)
        return np.where(is_used, np.exp(np.minimum(exponent, log_upper)), 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ZeroStartPrice:
    """``lambda ((1 + U / lambda)^(share / full_at) - 1)``: nothing when empty, U from `full_at` on.

    Parameters
    ----------
    full_at
        Share of the capacity at which the price reaches U, in (0, 1].

    Notes
    -----
    Without a price for the empty cluster the dual starts at 0 and the competitive ratio depends
    neither on the horizon nor on the size of the cluster. The lower scale is lambda, not L.
    """

    theorem: ClassVar[RatioTheorem] = RatioTheorem.ZERO_START
    unit_free_scale: ClassVar[LowerScale] = LowerScale.UNIT_FREE_LAMBDA
    simple_scale: ClassVar[LowerScale] = LowerScale.SUMMED_LAMBDA
    paper_scale: ClassVar[LowerScale] = LowerScale.SUMMED_LAMBDA

    full_at: float = 1.0

    def __post_init__(self) -> None:
        _check_full_at(self.full_at)

    def price(self, share: FloatArray, log_lower: FloatArray, log_upper: FloatArray) -> FloatArray:
        """Return the prices; `expm1` keeps those of nearly empty rows accurate."""
        level = np.clip(share / self.full_at, 0.0, 1.0)
        is_used = np.isfinite(log_lower)
        start = np.where(is_used, log_lower, 0.0)
        end = np.where(is_used, log_upper, 0.0)
        x = level * np.logaddexp(0.0, end - start)
        # exp(x) - 1 = exp(x) (1 - exp(-x)): overflows only if the price itself does.
        with np.errstate(divide="ignore"):
            exponent = start + x + np.log(-np.expm1(-x))
        exponent = np.where(level < 1.0, np.minimum(exponent, end), end)
        return np.where(is_used, np.exp(exponent), 0.0)


def theorem_of(function: PriceFunction) -> RatioTheorem | None:
    """Return the theorem that a price function's own class states, None where it states none."""
    theorem: RatioTheorem | None = vars(type(function)).get("theorem")
    return theorem


def _check_full_at(full_at: float) -> None:
    if not 0.0 < full_at <= 1.0:
        raise InvalidOptionError(f"full_at must be in (0, 1], got {full_at}")
