"""Zones on a common grid of ticks, jobs with deadlines, and optimal plans.

Policies act at ticks. Work, launches and deadlines are integer seconds, so that a launch or the job may end within a
tick. All amounts are integers in units of 1 / `UNITS_USD` dollars, so that costs of plans and lower bounds are exact.
"""

from dataclasses import dataclass
from math import gcd

import numpy as np

from optim.core.arrays import BoolArray, IntArray, whole_numbers
from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.models.bidding.market.prices import HOUR_S

UNITS_USD = HOUR_S * 1_000_000
"""Units per dollar; a unit is one micro-dollar per hour times one second, 1 / 3600 micro-dollar."""

KINDS = 2
"""Kinds of machines in a zone, spot (0) and on demand (1); zone `z` and kind `k` form place `2 z + k`."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ZoneMarket:
    """Availability and prices of zones over time.

    Parameters
    ----------
    zones
        Name of each zone.
    regions
        Name of each zone's region.
    time_s
        Shape (ticks,): seconds since 1970, ascending.
    tick_s
        Common length of all ticks in seconds.
    is_available
        Shape (ticks, zones): whether spot machines are available for launch and use.
    spot_micro
        Shape (ticks, zones): spot price in micro-dollars per hour.
    on_demand_micro
        Shape (zones,): on-demand price in micro-dollars per hour.

    Raises
    ------
    InvalidProblemError
        If shapes don't match, ticks are out of order, or a price isn't a positive integer.
    """

    zones: tuple[str, ...]
    regions: tuple[str, ...]
    time_s: IntArray
    tick_s: int
    is_available: BoolArray
    spot_micro: IntArray
    on_demand_micro: IntArray

    def __post_init__(self) -> None:
        for name in ("time_s", "spot_micro", "on_demand_micro"):
            object.__setattr__(self, name, whole_numbers(getattr(self, name), f"a market's {name}"))
        object.__setattr__(self, "is_available", np.asarray(self.is_available, dtype=bool))
        shape = (len(self.time_s), len(self.zones))
        if min(shape) == 0 or len(self.regions) != shape[1] or self.on_demand_micro.shape != shape[1:]:
            raise InvalidProblemError(
                "a market needs at least one zone and one tick, and a region and on-demand price per zone"
            )
        if self.is_available.shape != shape or self.spot_micro.shape != shape:
            raise InvalidProblemError(f"availability and prices must have one value per tick and zone, shape {shape}")
        if (np.diff(self.time_s) <= 0).any() or self.tick_s < 1:
            raise InvalidProblemError("ticks must be strictly ascending in time, and last at least one second")
        if (self.spot_micro <= 0).any() or (self.on_demand_micro <= 0).any():
            raise InvalidProblemError("prices must be positive; correct the file")

    def __len__(self) -> int:
        return len(self.time_s)

    @property
    def num_zones(self) -> int:
        """Number of zones."""
        return len(self.zones)


@dataclass(frozen=True, kw_only=True, eq=False)
class ZoneJob:
    """A job with a deadline.

    Parameters
    ----------
    work_s
        Seconds of work on all machines together.
    deadline_s
        Seconds from the job's start to its deadline.
    setup_s
        Shape (zones + 1, zones): seconds between a launch in a zone and the first work, for start-up and transfer of the
        saved state. Row 0 is for a job without saved state, row 1 + z for a state saved in zone z.
    move_micro
        Shape (zones + 1, zones): cost of the transfer in micro-dollars, due at the launch.
    machines
        Number of machines, launched and lost together.

    Raises
    ------
    InvalidOptionError
        If a number isn't an integer, or the deadline can't be met on demand; the message gives the earliest deadline.
    """

    work_s: int
    deadline_s: int
    setup_s: IntArray
    move_micro: IntArray
    machines: int = 1

    def __post_init__(self) -> None:
        for name in ("work_s", "deadline_s", "machines"):
            if not isinstance(value := getattr(self, name), int | np.integer):
                raise InvalidOptionError(f"{name} must be an integer, got {value!r}")
        for name in ("setup_s", "move_micro"):
            object.__setattr__(self, name, whole_numbers(getattr(self, name), f"a job's {name}"))
        zones = self.setup_s.shape[-1] if self.setup_s.ndim else 0
        if not zones or self.setup_s.shape != (zones + 1, zones) or self.move_micro.shape != (zones + 1, zones):
            raise InvalidProblemError(
                "setup_s and move_micro must have shape (zones + 1, zones) with zones >= 1, "
                f"got {self.setup_s.shape} and {self.move_micro.shape}; row 0 is for a job without saved state, "
                "row 1 + z for a state in zone z"
            )
        if (self.setup_s < 0).any() or (self.move_micro < 0).any() or self.machines < 1 or self.work_s < 1:
            raise InvalidOptionError("work_s and machines must be at least 1, setup_s and move_micro at least 0")
        if self.deadline_s < self.min_deadline_s:
            raise InvalidOptionError(
                f"the deadline of {self.deadline_s} s can't be met even on demand: launch and work take "
                f"{self.min_deadline_s} s"
            )

    @property
    def min_deadline_s(self) -> int:
        """Seconds that the job takes on demand without a saved state."""
        return self.work_s + int(self.setup_s[0].min())

    @property
    def slack_s(self) -> int:
        """Seconds without work that the deadline leaves."""
        return self.deadline_s - self.work_s

    @property
    def state_class(self) -> IntArray:
        """Class of each row of `setup_s`, shape (zones + 1,): rows equal in `setup_s` and `move_micro` share a class.

        Row 0 has class 0.
        """
        rows = np.concatenate([self.setup_s, self.move_micro], axis=1)
        _, first, inverse = np.unique(rows, axis=0, return_index=True, return_inverse=True)
        rank: IntArray = np.argsort(np.argsort(first))
        return rank[inverse.ravel()]

    def num_ticks(self, tick_s: int) -> int:
        """Return the ticks that begin before the deadline."""
        return -(-self.deadline_s // tick_s)

    def unit_s(self, tick_s: int) -> int:
        """Return the greatest common divisor of tick and set-up lengths, which divides all time without work."""
        return gcd(tick_s, *self.setup_s.ravel().tolist())


@dataclass(frozen=True, slots=True)
class Allocation:
    """Machines of one kind in one zone from a launch to an end, in seconds since the job's start.

    `is_lost` means that the machines were evicted; otherwise they were returned, or the job was done.
    """

    zone: int
    is_spot: bool
    begin_s: int
    end_s: int
    is_lost: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class Optimum:
    """A lower bound of a job's cost from a tick, the potential that proves it, and a plan.

    Parameters
    ----------
    first
        Tick of the market at which the job starts.
    units
        Lower bound in units (`UNITS_USD` per dollar) of the cost of every plan that acts at ticks.
    plan_units
        Cost of the plan; equal to `units` if the billing rule has an exact bound (see `place_costs`).
    plan
        Allocations in order of time.
    idle
        Shape (ticks + 1, steps + 1, classes): lower bound of the remaining cost without machines, by tick, time without
        work so far (in units of `ZoneJob.unit_s`) and class of the saved state (`ZoneJob.state_class`).
    working
        Shape (ticks + 1, steps + 1, 2 zones): lower bound of the remaining cost with machines that are set up, by tick, time
        without work so far, and place of the machines (see `KINDS`).
    """

    first: int
    units: int
    plan_units: int
    plan: tuple[Allocation, ...]
    idle: IntArray
    working: IntArray

    @property
    def usd(self) -> float:
        """Cost of the plan in dollars."""
        return self.plan_units / UNITS_USD

    @property
    def bound_usd(self) -> float:
        """The bound in dollars."""
        return self.units / UNITS_USD
