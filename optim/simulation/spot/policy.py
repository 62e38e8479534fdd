"""Interface of policies on spot prices: views, requests, the job, and the market."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TypeVar

import numpy as np

from optim.core.arrays import FloatArray, IntArray
from optim.core.errors import InvalidOptionError, check_in
from optim.models.bidding.market.billing import Billing
from optim.models.bidding.market.evictions import EvictionTable
from optim.models.bidding.market.prices import HOUR_S, MICRO, Market, PriceHistory
from optim.simulation.spot.footprint_value import Changes


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointCost:
    """Seconds and dollars of writing and reading a checkpoint.

    Parameters
    ----------
    state_gb
        Size of the state in GB.
    write_gb_per_s, read_gb_per_s
        Bandwidths of the storage in GB/s.
    usd_per_gb
        Dollars per GB written: requests and transfer.
    """

    state_gb: float
    write_gb_per_s: float = 0.5
    read_gb_per_s: float = 1.0
    usd_per_gb: float = 0.0

    def __post_init__(self) -> None:
        check_in("[0, 1e9]", self, "state_gb", "usd_per_gb")
        check_in("(0, 1e9]", self, "write_gb_per_s", "read_gb_per_s")

    @property
    def write_s(self) -> float:
        """Seconds to write a checkpoint."""
        return self.state_gb / self.write_gb_per_s

    @property
    def read_s(self) -> float:
        """Seconds to read a checkpoint, part of every restart."""
        return self.state_gb / self.read_gb_per_s

    @property
    def usd(self) -> float:
        """Dollars to write a checkpoint."""
        return self.state_gb * self.usd_per_gb


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotOptions:
    """Job, limits and overheads.

    Parameters
    ----------
    job_hours
        Length of the job: the work that `baseline` on-demand instances of `baseline_type` do in this number of hours.
    baseline, baseline_type
        Cluster that defines the job, and limit on working on-demand instances. The default type is c3.xlarge if it has
        prices, otherwise the first type.
    max_spot
        Maximum spot capacity, in machines of the baseline's type by work: two machines of half its size count as one.
    reliable, reliable_type
        On-demand instances that store the state of an elastic trainer and do no work, and their type (default: the
        baseline's).
    serial
        Serial share of Amdahl's law.
    tick_s
        Seconds between decisions of a policy.
    startup_min
        Minutes until new instances work.
    scale_min, eviction_min
        Minutes that an elastic trainer loses by a planned change, and by an eviction.
    checkpoint_min, restart_min
        Minutes to write a checkpoint, and to restart from one.
    state_gb
        Size of the job's state in GB. If above 0, it determines the seconds of a checkpoint instead of
        `checkpoint_min`, and a restart reads it in addition to `restart_min`.
    write_gb_per_s, read_gb_per_s, checkpoint_usd_per_gb
        Bandwidths and price of the storage, see `CheckpointCost`; each checkpoint written is a line of the bill.
    horizon
        A run is given up after `horizon` times `job_hours`.
    linger
        Whether, after the end of the job, instances are kept to the end of their billing hour, since an eviction would
        make that hour free.
    """

    job_hours: float = 20.0
    baseline: int = 64
    baseline_type: str = ""
    max_spot: int = 192
    reliable: int = 3
    reliable_type: str = ""
    serial: float = 0.002
    tick_s: int = 120
    startup_min: float = 3.0
    scale_min: float = 1.0
    eviction_min: float = 1.0
    checkpoint_min: float = 5.0
    restart_min: float = 5.0
    state_gb: float = 0.0
    write_gb_per_s: float = 0.5
    read_gb_per_s: float = 1.0
    checkpoint_usd_per_gb: float = 0.0
    horizon: float = 5.0
    linger: bool = False

    def __post_init__(self) -> None:
        check_in("(0, inf)", self, "job_hours", "baseline", "tick_s", "checkpoint_min")
        check_in("[0, inf)", self, "max_spot", "reliable", "startup_min", "scale_min", "eviction_min", "restart_min")
        check_in("[0, 1)", self, "serial")
        check_in("[1, inf)", self, "horizon")
        _ = self.checkpoint
        if self.job_hours * 60 <= self.startup_min:
            raise InvalidOptionError(f"job_hours must exceed the start-up time, got {self.job_hours}")

    @property
    def checkpoint(self) -> CheckpointCost:
        """Cost of a checkpoint in the given storage."""
        return CheckpointCost(
            state_gb=self.state_gb,
            write_gb_per_s=self.write_gb_per_s,
            read_gb_per_s=self.read_gb_per_s,
            usd_per_gb=self.checkpoint_usd_per_gb,
        )

    @property
    def write_s(self) -> int:
        """Seconds to write a checkpoint."""
        return math.ceil(self.checkpoint.write_s) if self.state_gb else minutes(self.checkpoint_min)

    @property
    def restart_s(self) -> int:
        """Seconds to restart from a checkpoint."""
        return minutes(self.restart_min) + math.ceil(self.checkpoint.read_s)

    @property
    def write_micro(self) -> int:
        """Price of writing a checkpoint in micro-dollars."""
        return round(self.checkpoint.usd * MICRO)

    @property
    def horizon_s(self) -> int:
        """Seconds after which a run is given up."""
        return round(3600 * self.horizon * self.job_hours)


def minutes(value: float) -> int:
    """Return minutes as an integer number of seconds."""
    return round(60 * value)


DEFAULT_TYPE = "c3.xlarge"
"""Default type of the baseline's machines."""

ROUNDING = 1e-9
"""Tolerance, as a share of a machine, when capacity is rounded down to machines."""

Rate = TypeVar("Rate", float, FloatArray)


@dataclass(frozen=True, kw_only=True, eq=False)
class World:
    """Prices to run on, an eviction table estimated on earlier prices, and the job.

    Parameters
    ----------
    history
        Prices during the run.
    table
        Estimates of evictions available to policies; its markets include those of the history.
    options
        The job.
    billing
        Rules of bills and evictions.
    """

    history: PriceHistory
    table: EvictionTable
    options: SpotOptions
    billing: Billing = Billing.AWS_2009

    @cached_property
    def baseline(self) -> Market:
        """A market of the baseline's type: the named type, else `DEFAULT_TYPE` if it has prices, else the first type.

        Raises
        ------
        InvalidOptionError
            If no market has that type.
        """
        types = {market.instance_type for market in self.history.markets}
        default = DEFAULT_TYPE if DEFAULT_TYPE in types else min(types)
        return self._market_of("baseline_type", self.options.baseline_type or default)

    @cached_property
    def reliable(self) -> Market:
        """A market of the type of the reliable machines.

        Raises
        ------
        InvalidOptionError
            If no market has that type.
        """
        return self._market_of("reliable_type", self.options.reliable_type or self.baseline.instance_type)

    def _market_of(self, option: str, instance_type: str) -> Market:
        for market in self.history.markets:
            if market.instance_type == instance_type:
                return market
        types = sorted({market.instance_type for market in self.history.markets})
        raise InvalidOptionError(f"{option} {instance_type!r} has no market; the prices have: {', '.join(types)}")

    def size(self, market: int) -> float:
        """Return the work of one machine of a market in machines of the baseline, the unit of `max_spot`."""
        return self.history.markets[market].rate / self.baseline.rate

    def count_within(self, market: int, capacity: float) -> int:
        """Return how many machines of a market fit into a capacity, which is counted in machines of the baseline."""
        return int(capacity / self.size(market) + ROUNDING)

    @cached_property
    def max_of(self) -> IntArray:
        """Maximum number of spot machines of each market, shape (markets,)."""
        markets = range(self.history.num_markets)
        return np.array([self.count_within(market, self.options.max_spot) for market in markets], dtype=np.int64)

    @property
    def spot_capacity(self) -> float:
        """Maximum total rate of spot machines, in units of work per hour."""
        return self.options.max_spot * self.baseline.rate

    def baseline_price(self, time_s: int) -> int | None:
        """Return the spot price of the baseline's type at a time, None before the first price."""
        return self.history.paths[self.history.index[self.baseline.name]].price_at(time_s)

    @cached_property
    def table_row(self) -> tuple[int, ...]:
        """Row of each market in `table`."""
        return tuple(self.table.index[market.name] for market in self.history.markets)

    @cached_property
    def changes(self) -> Changes:
        """All price changes, for compiled loops."""
        paths = self.history.paths
        begins = np.cumsum([0, *map(len, paths)])
        times = np.concatenate([path.time_s for path in paths])
        prices = np.concatenate([path.price_micro for path in paths]).astype(np.float64)
        return Changes(times, prices, begins)

    def useful_rate(self, rate: Rate) -> Rate:
        """Return the work per hour of machines with total rate `rate`, by Amdahl's law."""
        serial = self.options.serial
        return rate / (1.0 - serial + serial * rate)

    @cached_property
    def job_work(self) -> float:
        """Work of the job: the work that the baseline does after its start-up."""
        hours = self.options.job_hours - minutes(self.options.startup_min) / 3600
        return self.useful_rate(self.options.baseline * self.baseline.rate) * hours


class Recovery(StrEnum):
    """Cost of an eviction: a pause of an elastic trainer, a return to the last checkpoint, or the loss of all work."""

    ELASTIC = "elastic"
    CHECKPOINT = "checkpoint"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Request for instances: granted if the price is at most the bid; a bid of None requests on-demand instances."""

    market: int
    count: int
    bid_micro: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveLease:
    """Leased instances at one point in time.

    Parameters
    ----------
    number
        Number of the lease, in order of grants.
    market, count, bid_micro
        Market, number of instances and bid of the request.
    granted_s, ready_s
        Time of the grant, and time from which the instances work.
    price_micro
        Last price announced for an hour of the lease, in micro-dollars. It is the market's price at the grant, or at
        minute 58 when the lease was renewed for the next hour. The hour is charged at the price at its begin, which may
        differ.
    """

    number: int
    market: int
    count: int
    bid_micro: int | None
    granted_s: int
    ready_s: int
    price_micro: int

    def hour_end_s(self, now_s: int) -> int:
        """Return the end of the billing hour that contains `now_s`."""
        return self.granted_s + HOUR_S * ((now_s - self.granted_s) // HOUR_S + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Information available to a policy.

    Parameters
    ----------
    now_s
        The time in seconds since 1970.
    price_micro
        Present price of each market in micro-dollars, None before the first price.
    leases
        Instances that work or are starting: on-demand instances, and spot instances not under eviction.
    room, on_demand_room
        Spot capacity still available in machines of the baseline (`World.count_within` converts it to machines of a
        market), and number of on-demand instances still available.
    work_left
        Remaining work of the job.
    """

    now_s: int
    price_micro: Sequence[int | None]
    leases: Sequence[LiveLease]
    room: float
    on_demand_room: int
    work_left: float


RENAMED_METHODS = {"first_asking": "next_decision_tick", "is_interested": "wants_more", "keeps": "should_renew"}
"""Former names of a policy's methods with their present names; the table will be removed in the release after 0.2."""


class Policy(ABC):
    """Base class of policies, which decide on requests and renewals.

    By default a policy renews every lease until evicted.

    Parameters
    ----------
    world
        The markets, knowledge of their prices before the run, and the job.

    Attributes
    ----------
    name
        Name of the policy; the class name by default.
    recovery
        Cost of an eviction; by default a pause of an elastic trainer.
    has_reliable
        Whether the policy uses reliable machines (`world.reliable`) throughout; False by default.
    """

    name: str = ""
    recovery: Recovery = Recovery.ELASTIC
    has_reliable: bool = False

    def __init_subclass__(cls) -> None:
        """Reject a policy that still defines a method by its former name: the engine would never call it."""
        super().__init_subclass__()
        for old, new in RENAMED_METHODS.items():
            if old in vars(cls):
                raise InvalidOptionError(
                    f"policy {cls.__name__} defines {old}(), which is now called {new}(); rename it"
                )

    def __init__(self, world: "World") -> None:
        self.world = world
        self.name = self.name or type(self).__name__

    def wants_more(self, leases: Sequence[LiveLease], room: float) -> bool:
        """Return whether the policy could request anything now; if not, the engine skips the clock's ticks."""
        del leases
        return room > 0

    @abstractmethod
    def decide(self, view: View) -> Request | None:
        """Return a request or None; called at every tick and after evictions."""

    def next_decision_tick(self, leases: Sequence[LiveLease], rooms: tuple[float, int], ticks: range) -> int:
        """Return the index of the first tick at which the policy wants to decide; the number of ticks if none.

        Until then only prices change. A policy that can skip ticks in advance saves the engine a view per tick. The
        answer must not depend on prices after the returned tick. By default the policy decides at every tick.

        Parameters
        ----------
        leases
            Present leases, as in a view.
        rooms
            Spot capacity and number of on-demand instances still available, as in a view.
        ticks
            Times of the ticks in seconds, at least one.
        """
        del leases, rooms, ticks
        return 0

    def should_renew(self, view: View, lease: LiveLease) -> bool:
        """Return, at minute 58 of a lease's hour, whether to renew it for another hour; True by default."""
        del view, lease
        return True

    def checkpoint_every_s(self, leases: Sequence[LiveLease]) -> float:
        """Return the seconds of work between two checkpoints, infinity for none; called when work begins or resumes."""
        del leases
        return math.inf
