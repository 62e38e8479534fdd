"""What a policy sees and answers: prices up to now, its own leases, its progress."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from optim.models.bidding.price_history import HOUR_S

if TYPE_CHECKING:
    from optim.simulation.spot.world import World


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

    def __init__(self, world: "World") -> None:
        self.world = world
        self.name = self.name or type(self).__name__

    def is_interested(self, leases: Sequence[LiveLease], room: float) -> bool:
        """Tell whether it could ask for anything now; without interest the engine skips the clock's ticks."""
        del leases
        return room > 0

    @abstractmethod
    def decide(self, view: View) -> Request | None:
        """Return what to ask for, None for nothing; asked on every tick and after evictions."""

    def first_asking(self, leases: Sequence[LiveLease], rooms: tuple[float, int], ticks: range) -> int:
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

    def keeps(self, view: View, lease: LiveLease) -> bool:
        """Tell at minute 58 of a lease's hour whether to keep it for another hour: until evicted, unless it knows better."""
        del view, lease
        return True

    def checkpoint_every_s(self, leases: Sequence[LiveLease]) -> float:
        """Return the seconds of work between two checkpoints, infinity for none; asked when work begins or begins again."""
        del leases
        return math.inf
