"""Several zones on one grid of ticks: what can be had when, what it costs, and what a job loses by launches and moves.

A tick is paid for as a whole, launches and transfers take whole ticks, and all amounts are whole numbers of `UNITS_USD`,
so that a plan's cost, and the least of all, are exact.
"""

from dataclasses import dataclass

import numpy as np

from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.models.bidding.instance import BoolArray, IntArray

HOUR_S = 3600
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
        Shape (ticks,): when each tick begins, ascending.
    tick_s
        Seconds that are paid for by tick.
    is_available
        Shape (ticks, zones): whether a spot machine can be had, or kept, throughout the tick.
    spot_micro
        Shape (ticks, zones): its price, micro-dollars an hour.
    on_demand_micro
        Shape (zones,): the price on demand.

    Raises
    ------
    InvalidProblemError
        If shapes or values contradict one another.
    """

    zones: tuple[str, ...]
    regions: tuple[str, ...]
    time_s: IntArray
    tick_s: int
    is_available: BoolArray
    spot_micro: IntArray
    on_demand_micro: IntArray

    def __post_init__(self) -> None:
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
    """A job on a market's grid.

    Parameters
    ----------
    work, deadline
        Ticks of work of all machines together, and of time from its start on.
    setup
        Shape (zones + 1, zones): ticks between a launch in a zone and the first work, start-up and transfer of the state
        together. Row 0 is for a job that has no state yet, row 1 + z for one whose state lies in zone z.
    move_micro
        Shape (zones + 1, zones): micro-dollars that the transfer costs, due at the launch.
    machines
        Machines, launched and lost together.

    Raises
    ------
    InvalidOptionError
        If the deadline can't be met on demand; the text says what is the least.
    """

    work: int
    deadline: int
    setup: IntArray
    move_micro: IntArray
    machines: int = 1

    def __post_init__(self) -> None:
        zones = self.setup.shape[-1]
        if self.setup.shape != (zones + 1, zones) or self.move_micro.shape != (zones + 1, zones):
            raise InvalidProblemError("set-ups and moves need a row without state, and one a zone")
        if (self.setup < 0).any() or (self.move_micro < 0).any() or self.machines < 1 or self.work < 1:
            raise InvalidOptionError("work and machines must be at least 1, set-ups and moves at least 0")
        if self.deadline < self.least_deadline:
            raise InvalidOptionError(
                f"the deadline of {self.deadline} ticks can't be met even on demand: launch and work take "
                f"{self.least_deadline} ticks"
            )

    @property
    def least_deadline(self) -> int:
        """Ticks that the job takes on demand from a standing start."""
        return self.work + int(self.setup[0].min())


@dataclass(frozen=True, slots=True)
class Stay:
    """Machines of one kind in one zone from a launch to their return: ticks since the job's start, the end not held any more."""

    zone: int
    is_spot: bool
    begin: int
    end: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Optimum:
    """The least cost of a job from a tick, the plan that has it, and a potential that proves it.

    Parameters
    ----------
    first
        Tick of the market at which the job starts.
    units
        The least cost, in `UNITS_USD` to the dollar.
    plan
        What costs so much.
    idle
        Shape (deadline + 1, slack + 1, zones + 1): at least so much is still to be paid at a tick after so many ticks
        without work, nothing held, the state at a place (see `ZoneJob.setup`).
    working
        Shape (deadline + 1, slack + 1, 2 zones): the same for machines that are set up, by place.
    """

    first: int
    units: int
    plan: tuple[Stay, ...]
    idle: IntArray
    working: IntArray

    @property
    def usd(self) -> float:
        """The least cost in dollars."""
        return self.units / UNITS_USD


def place_costs(market: ZoneMarket, job: ZoneJob, first: int) -> tuple[IntArray, BoolArray]:
    """Return units by tick and place over a job's time, and where machines can be had, both (deadline, 2 zones)."""
    window = slice(first, first + job.deadline)
    spot = market.spot_micro[window]
    if len(spot) < job.deadline:
        raise InvalidProblemError(f"the traces end before the deadline of a job that starts at tick {first}")
    both = np.stack([spot, np.broadcast_to(market.on_demand_micro, spot.shape)], axis=2)
    has = np.stack([market.is_available[window], np.ones(spot.shape, dtype=bool)], axis=2)
    shape = (job.deadline, KINDS * market.num_zones)
    return both.reshape(shape) * (job.machines * market.tick_s), has.reshape(shape)
