"""One zone or several on one grid of ticks, and availability as a two-state chain.

Policies act at ticks. Work, launches and deadlines are whole seconds of any number, so that a launch or the job may end
within a tick. All amounts are whole numbers of `UNITS_USD`, so that a plan's cost, and the least of all, are exact.
"""

from dataclasses import dataclass
from math import gcd

import numpy as np

from optim.core.arrays import BoolArray, IntArray, whole_numbers
from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.models.bidding.market.prices import HOUR_S

UNITS_USD = HOUR_S * 1_000_000
"""Units in a dollar: micro-dollars an hour times seconds, 3600 to the micro-dollar."""

KINDS = 2
"""Kinds of machines in a zone: spot (0) and on demand (1); zone `z` and kind `k` are place `2 z + k`."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ZoneMarket:
    """Zones over time.

    Parameters
    ----------
    zones, regions
        Name of each zone, and of the region it is in.
    time_s
        Shape (ticks,): seconds since 1970, for rows; ascending.
    tick_s
        Length of a tick, of every tick the same.
    is_available
        Shape (ticks, zones): True where spot machines can be launched, or kept.
    spot_micro
        Shape (ticks, zones): spot price in micro-dollars an hour.
    on_demand_micro
        Shape (zones,): price on demand.

    Raises
    ------
    InvalidProblemError
        If shapes don't fit, ticks are out of order, or a price isn't positive, or no whole number.
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
            raise InvalidProblemError("zones need a region and a price on demand each, and a tick at least")
        if self.is_available.shape != shape or self.spot_micro.shape != shape:
            raise InvalidProblemError(f"availability and prices must be given for every tick and zone, {shape}")
        if (np.diff(self.time_s) <= 0).any() or self.tick_s < 1:
            raise InvalidProblemError("ticks must be strictly ascending in time, and last a second at least")
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
    work_s, deadline_s
        Seconds of work of all machines together, and of time from its start on.
    setup_s
        Shape (zones + 1, zones): seconds between a launch in a zone and the first work, start-up and transfer of the
        state together. Row 0 is for a job that has no state yet, row 1 + z for one whose state lies in zone z.
    move_micro
        Shape (zones + 1, zones): micro-dollars that the transfer costs, due at the launch.
    machines
        Machines, launched and lost together.

    Raises
    ------
    InvalidOptionError
        If a number isn't whole, or the deadline can't be met on demand; the text says what is the least.
    """

    work_s: int
    deadline_s: int
    setup_s: IntArray
    move_micro: IntArray
    machines: int = 1

    def __post_init__(self) -> None:
        for name in ("work_s", "deadline_s", "machines"):
            if not isinstance(value := getattr(self, name), int | np.integer):
                raise InvalidOptionError(f"{name} must be a whole number, got {value!r}")
        for name in ("setup_s", "move_micro"):
            object.__setattr__(self, name, whole_numbers(getattr(self, name), f"a job's {name}"))
        zones = self.setup_s.shape[-1] if self.setup_s.ndim else 0
        if not zones or self.setup_s.shape != (zones + 1, zones) or self.move_micro.shape != (zones + 1, zones):
            raise InvalidProblemError("set-ups and moves need a row without state, and one a zone")
        if (self.setup_s < 0).any() or (self.move_micro < 0).any() or self.machines < 1 or self.work_s < 1:
            raise InvalidOptionError("work and machines must be at least 1, set-ups and moves at least 0")
        if self.deadline_s < self.min_deadline_s:
            raise InvalidOptionError(
                f"the deadline of {self.deadline_s} s can't be met even on demand: launch and work take "
                f"{self.min_deadline_s} s"
            )

    @property
    def min_deadline_s(self) -> int:
        """Seconds that the job takes on demand from a standing start."""
        return self.work_s + int(self.setup_s[0].min())

    @property
    def slack_s(self) -> int:
        """Seconds without work that the deadline leaves."""
        return self.deadline_s - self.work_s

    @property
    def state_class(self) -> IntArray:
        """Class of each row of `setup_s`, shape (zones + 1,): rows with equal set-ups and moves are one, row 0 is of class 0."""
        rows = np.concatenate([self.setup_s, self.move_micro], axis=1)
        _, first, inverse = np.unique(rows, axis=0, return_index=True, return_inverse=True)
        rank: IntArray = np.argsort(np.argsort(first))
        return rank[inverse.ravel()]

    def num_ticks(self, tick_s: int) -> int:
        """Return the ticks that begin before the deadline."""
        return -(-self.deadline_s // tick_s)

    def unit_s(self, tick_s: int) -> int:
        """Return the longest time of which ticks and set-ups are multiples: what is lost so far always is, too."""
        return gcd(tick_s, *self.setup_s.ravel().tolist())


@dataclass(frozen=True, slots=True)
class Allocation:
    """Machines of one kind in one zone from a launch, at a tick, until they are gone: seconds since the job's start.

    `is_lost` says that they were taken away; otherwise they were returned, or the job was done.
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
        The bound, in `UNITS_USD` to the dollar: nobody who acts at ticks pays less.
    plan_units
        What the plan is billed; where the rule of billing has an exact bound (see `place_costs`), as much as `units`.
    plan
        What is held when.
    idle
        Shape (ticks + 1, steps + 1, classes): at least so much is still to be paid at a tick after so many units of time
        (`ZoneJob.unit_s`) without work, nothing held, the state in a zone of a class (`ZoneJob.state_class`).
    working
        Shape (ticks + 1, steps + 1, 2 zones): the same for machines that are set up, by place.
    """

    first: int
    units: int
    plan_units: int
    plan: tuple[Allocation, ...]
    idle: IntArray
    working: IntArray

    @property
    def usd(self) -> float:
        """What the plan is billed, in dollars."""
        return self.plan_units / UNITS_USD

    @property
    def bound_usd(self) -> float:
        """The bound in dollars."""
        return self.units / UNITS_USD
