"""What a policy sees and answers, the job, and the market it runs in."""

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
    """Seconds and dollars of writing and reading a state.

    Parameters
    ----------
    state_gb
        Its size.
    write_gb_per_s, read_gb_per_s
        Bandwidths of the storage.
    usd_per_gb
        Dollars a GB written: requests and transfer.
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
        """Seconds to write one."""
        return self.state_gb / self.write_gb_per_s

    @property
    def read_s(self) -> float:
        """Seconds to read one, part of every restart."""
        return self.state_gb / self.read_gb_per_s

    @property
    def usd(self) -> float:
        """Dollars to write one."""
        return self.state_gb * self.usd_per_gb


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotOptions:
    """A job, limits, and overheads.

    Parameters
    ----------
    job_hours
        The job is what `baseline` instances of `baseline_type` do on demand in so many hours.
    baseline, baseline_type
        The cluster that the job is measured by; no policy has more instances on demand at work. Without a type it is
        c3.xlarge where there are such prices, else the first of the types.
    max_spot
        Most spot instances, counted by their work in machines of the baseline's type: two of half its size are one.
    reliable, reliable_type
        Instances on demand that hold the state of an elastic trainer, and do no work; of which type, by default the
        baseline's.
    serial
        Serial share of Amdahl's law.
    tick_s
        How often a policy may act.
    startup_min
        Minutes until new instances work.
    scale_min, eviction_min
        Minutes that an elastic trainer loses by a planned change, and by an eviction.
    checkpoint_min, restart_min
        Minutes to write a checkpoint, and to start from one.
    state_gb
        Size of the job's state; where it is above 0, the seconds of a checkpoint follow from it instead of
        `checkpoint_min`, and a restart reads it besides its `restart_min`.
    write_gb_per_s, read_gb_per_s, checkpoint_usd_per_gb
        What `CheckpointCost` says of the storage; each checkpoint that was written is a line of the bill.
    horizon
        A run is given up after so many times `job_hours`.
    linger
        Hold instances to the end of their hour when the job is done, hoping for an eviction that makes it free.
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
            raise InvalidOptionError(f"job_hours must be longer than start-up, got {self.job_hours}")

    @property
    def checkpoint(self) -> CheckpointCost:
        """What the storage says of a checkpoint."""
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
        """Seconds to start from a checkpoint."""
        return minutes(self.restart_min) + math.ceil(self.checkpoint.read_s)

    @property
    def write_micro(self) -> int:
        """Micro-dollars of a checkpoint."""
        return round(self.checkpoint.usd * MICRO)

    @property
    def horizon_s(self) -> int:
        """Seconds after which a run is given up."""
        return round(3600 * self.horizon * self.job_hours)


def minutes(value: float) -> int:
    """Return minutes as whole seconds."""
    return round(60 * value)


DEFAULT_TYPE = "c3.xlarge"
"""The job is measured by machines of this type, where no other is named."""

ROUNDING = 1e-9
"""Share of a machine that rounding may lack."""

Rate = TypeVar("Rate", float, FloatArray)


@dataclass(frozen=True, kw_only=True, eq=False)
class World:
    """Prices to run on, a table estimated on other prices, and the job.

    Parameters
    ----------
    history
        What happens.
    table
        What policies know of evictions; its markets are those of the history.
    options
        The job.
    billing
        The rules of bills and evictions.
    """

    history: PriceHistory
    table: EvictionTable
    options: SpotOptions
    billing: Billing = Billing.AWS_2009

    @cached_property
    def baseline(self) -> Market:
        """A market of the type that the job is measured by: `DEFAULT_TYPE` if no type is named and there are such prices, else the first.

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
        """Return how many machines of the baseline a market's machine is worth by its work: what `max_spot` counts."""
        return self.history.markets[market].rate / self.baseline.rate

    def count_within(self, market: int, capacity: float) -> int:
        """Return how many machines of a market are within a capacity, which counts machines of the baseline's size."""
        return int(capacity / self.size(market) + ROUNDING)

    @cached_property
    def max_of(self) -> IntArray:
        """Most spot machines of each market, shape (markets,)."""
        markets = range(self.history.num_markets)
        return np.array([self.count_within(market, self.options.max_spot) for market in markets], dtype=np.int64)

    @property
    def spot_capacity(self) -> float:
        """Largest rate of spot machines."""
        return self.options.max_spot * self.baseline.rate

    def baseline_price(self, time_s: int) -> int | None:
        """Return the spot price of the baseline's type at a time, None before there is one."""
        return self.history.paths[self.history.index[self.baseline.name]].price_at(time_s)

    @cached_property
    def table_row(self) -> tuple[int, ...]:
        """Position of each market in the table."""
        return tuple(self.table.index[market.name] for market in self.history.markets)

    @cached_property
    def changes(self) -> Changes:
        """All changes of price, for compiled loops."""
        paths = self.history.paths
        begins = np.cumsum([0, *map(len, paths)])
        times = np.concatenate([path.time_s for path in paths])
        prices = np.concatenate([path.price_micro for path in paths]).astype(np.float64)
        return Changes(times, prices, begins)

    def useful_rate(self, rate: Rate) -> Rate:
        """Return the work an hour of machines whose rates add up to `rate`, by Amdahl's law."""
        serial = self.options.serial
        return rate / (1.0 - serial + serial * rate)

    @cached_property
    def job_work(self) -> float:
        """Work of the job: what the baseline does after its start-up."""
        hours = self.options.job_hours - minutes(self.options.startup_min) / 3600
        return self.useful_rate(self.options.baseline * self.baseline.rate) * hours


class Recovery(StrEnum):
    """What an eviction costs: a pause of an elastic trainer, a return to the last checkpoint, or all work."""

    ELASTIC = "elastic"
    CHECKPOINT = "checkpoint"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Ask for instances: granted if the price is at most the bid; a bid of None is a request on demand."""

    market: int
    count: int
    bid_micro: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveLease:
    """Instances that are held, as they are at a moment; the engine keeps its own account.

    Parameters
    ----------
    number
        Leases are numbered as they are granted.
    market, count, bid_micro
        What was asked for.
    granted_s, ready_s
        When they were granted, and from when they work.
    price_micro
        Price that its hours were last told at: the market's at the grant, and again whenever it was kept, at minute 58, for
        the hour to come. That hour is charged at the price with which it begins, which may be another.
    """

    number: int
    market: int
    count: int
    bid_micro: int | None
    granted_s: int
    ready_s: int
    price_micro: int

    def hour_end_s(self, now_s: int) -> int:
        """Return when the billing hour that holds `now_s` ends."""
        return self.granted_s + HOUR_S * ((now_s - self.granted_s) // HOUR_S + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What a policy may look at.

    Parameters
    ----------
    now_s
        The time.
    price_micro
        Present price of each market, None where there is none yet.
    leases
        Instances at work or about to be: on demand, and spot instances that aren't being evicted.
    room, on_demand_room
        Spot capacity that may still be taken, in machines of the baseline's size (`World.count_within` says how many of a
        market they are), and instances on demand.
    work_left
        Of the job.
    """

    now_s: int
    price_micro: Sequence[int | None]
    leases: Sequence[LiveLease]
    room: float
    on_demand_room: int
    work_left: float


RENAMED_METHODS = {"first_asking": "next_decision_tick", "is_interested": "wants_more", "keeps": "should_renew"}
"""Former names of a policy's methods, with those that the engine calls; the table goes with the release after 0.2."""


class Policy(ABC):
    """Decide what to ask for, and what to keep; whoever derives from it inherits the answers of a policy that holds on.

    Parameters
    ----------
    world
        The markets, what was known of their prices before the run, and the job.

    Attributes
    ----------
    name
        Its name; the class' unless given.
    recovery
        What an eviction costs it: a pause of an elastic trainer unless given.
    has_reliable
        Whether it holds reliable machines throughout, from `world.reliable`; not unless given.
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
        """Tell whether it could ask for anything now; without interest the engine skips the clock's ticks."""
        del leases
        return room > 0

    @abstractmethod
    def decide(self, view: View) -> Request | None:
        """Return what to ask for, None for nothing; asked on every tick and after evictions."""

    def next_decision_tick(self, leases: Sequence[LiveLease], rooms: tuple[float, int], ticks: range) -> int:
        """Return the position of the first of some ticks that it wants to be asked at, their number for none.

        Until then nothing changes but prices; whoever can tell at once which ticks change nothing spares the engine a
        view of each. The answer may depend on no later price than that of the tick it names. By default all are wanted.

        Parameters
        ----------
        leases
            What is held, as in a view.
        rooms
            What may still be taken, as in a view: spot capacity, and instances on demand.
        ticks
            Seconds, at least one.
        """
        del leases, rooms, ticks
        return 0

    def should_renew(self, view: View, lease: LiveLease) -> bool:
        """Tell at minute 58 of a lease's hour whether to keep it for another hour: until evicted, unless it knows better."""
        del view, lease
        return True

    def checkpoint_every_s(self, leases: Sequence[LiveLease]) -> float:
        """Return the seconds of work between two checkpoints, infinity for none; asked when work begins or begins again."""
        del leases
        return math.inf
