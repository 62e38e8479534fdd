"""What an instance says, in exact Python integers and derived here once more from its raw fields.

The instance has tables of its own (work, deadlines, servers' room). The checker never reads them: two
derivations that agree are worth more than one that is used twice.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate

from optim.models.admission.check.worth import worth_by_delay
from optim.models.admission.instance import (
    MEGABITS_THERE_AND_BACK,
    MICRO,
    AdmissionInstance,
    IntArray,
    ServerClasses,
)
from optim.models.admission.proof import Side

UNITS_OF_SPEED = 20
"""Speed-ups are in twentieths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What one worker and one PS use from `start` units of progress on, in 1e-6 units of each resource."""

    start: int
    worker: tuple[int, ...]
    ps: tuple[int, ...]

    def of(self, side: Side) -> tuple[int, ...]:
        """Return the demand of one worker or of one PS."""
        return self.worker if side is Side.WORKER else self.ps


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """One job.

    Parameters
    ----------
    index, name, arrival
        As in the instance.
    chunks
        N, the most workers at once (row (3)).
    chunk_slots
        Worker-slots that one chunk takes, M (tau + 2 e / b) / slot, exactly.
    is_chunk_integral
        Whether progress counts chunks finished within a slot instead of worker-slots.
    speedup
        Twentieths of one worker's speed that 1, 2, ... workers have; empty where speed is linear.
    target
        Units of progress that complete the job (row (2)).
    most_workers
        Most workers that a plan without superfluous workers ever runs: min(N, W), or N where chunks
        are integral or the job has a speed-up.
    worker_rate, ps_rate
        b and B in 1e-6 megabits a second (row (6)).
    demands
        Demand segments, by start.
    worth
        What completing in slot t earns, one number a slot; 0 where it earns nothing.
    worth_error
        Relative error of `worth` against the exact utility.
    deadline
        Last slot whose completion earns anything, -1 if there is none.
    """

    index: int
    name: str
    arrival: int
    chunks: int
    chunk_slots: Fraction
    is_chunk_integral: bool
    speedup: tuple[int, ...]
    target: int
    most_workers: int
    worker_rate: int
    ps_rate: int
    demands: tuple[Demand, ...]
    worth: tuple[float, ...]
    worth_error: float
    deadline: int

    def progress(self, workers: int) -> int:
        """Return the progress that `workers` workers make in one slot."""
        speed, unit = workers, 1
        if self.speedup:
            speed, unit = self.speedup[min(workers, len(self.speedup)) - 1] if workers else 0, UNITS_OF_SPEED
        if not self.is_chunk_integral:
            return speed
        if self.chunk_slots == 0:
            return self.target if workers else 0
        return speed * self.chunk_slots.denominator // (unit * self.chunk_slots.numerator)

    def ps_needed(self, workers: int) -> int:
        """Return Z(Y) = ceil(Y b / B), the fewest PSs that row (6) allows beside `workers` workers."""
        return -(-workers * self.worker_rate // self.ps_rate)

    def segment_at(self, progress: int) -> int:
        """Return the demand segment of a slot that starts when `progress` units are done."""
        return bisect_right([demand.start for demand in self.demands], progress) - 1


def smallest_demand(demands: Sequence[Demand]) -> Demand:
    """Return the elementwise smallest demand over some segments."""
    return Demand(
        start=0,
        worker=tuple(min(column) for column in zip(*(demand.worker for demand in demands), strict=True)),
        ps=tuple(min(column) for column in zip(*(demand.ps for demand in demands), strict=True)),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ServerFacts:
    """The servers of one side: `capacity` has shape (classes, slots, resources), in 1e-6 units."""

    types: tuple[str, ...]
    capacity: IntArray
    count: tuple[int, ...]
    first_after: tuple[int, ...]

    @property
    def num_servers(self) -> int:
        """Number of single servers."""
        return self.first_after[-1] if self.first_after else 0

    def class_of(self, server: int) -> int:
        """Return the class of a single server."""
        return bisect_right(self.first_after, server)

    def room(self, server_class: int, slot: int) -> tuple[int, ...]:
        """Return the capacity of one server of a class in a slot."""
        return tuple(self.capacity[server_class, slot].tolist())


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All that the checker knows of an instance. On shared servers `ps_servers` is `worker_servers`."""

    name: str
    horizon: int
    resources: tuple[str, ...]
    is_shared: bool
    share: Fraction | None
    jobs: tuple[JobFacts, ...]
    worker_servers: ServerFacts
    ps_servers: ServerFacts

    def servers(self, side: Side) -> ServerFacts:
        """Return the hosts of workers or of PSs."""
        return self.worker_servers if side is Side.WORKER else self.ps_servers


def read_facts(instance: AdmissionInstance) -> Facts:
    """Read the raw fields of an instance and derive everything else from them, exactly."""
    is_shared = instance.worker_servers is instance.ps_servers
    worker_servers = _servers(instance.worker_servers)
    return Facts(
        name=instance.name,
        horizon=instance.horizon,
        resources=instance.resources,
        is_shared=is_shared,
        share=instance.max_share_per_server,
        jobs=tuple(_job(instance, i) for i in range(len(instance.jobs.ids))),
        worker_servers=worker_servers,
        ps_servers=worker_servers if is_shared else _servers(instance.ps_servers),
    )


def _servers(servers: ServerClasses) -> ServerFacts:
    count = tuple(int(number) for number in servers.count)
    return ServerFacts(
        types=servers.types, capacity=servers.capacity, count=count, first_after=tuple(accumulate(count))
    )


def _job(instance: AdmissionInstance, i: int) -> JobFacts:
    jobs = instance.jobs
    epochs, chunks = int(jobs.epochs[i]), int(jobs.chunks[i])
    rate = int(jobs.worker_micro_mbps[i])
    minibatch_s = Fraction(int(jobs.minibatch_micro_s[i]), MICRO) + Fraction(
        MEGABITS_THERE_AND_BACK * int(jobs.gradient_micro_mb[i]), rate
    )
    chunk_slots = int(jobs.minibatches[i]) * minibatch_s * MICRO / instance.slot_micro_s
    total = epochs * chunks * chunk_slots
    speedup = tuple(int(units) for units in jobs.speedup[i]) if jobs.speedup else ()
    work = max(1, math.ceil(total * (UNITS_OF_SPEED if speedup else 1)))
    arrival = int(jobs.arrival[i])
    worth, error = worth_by_delay(
        jobs.utilities[i],
        instance.horizon - arrival,
        minimum=float(jobs.min_utility[i]),
        share=float(instance.min_utility_share),
    )
    return JobFacts(
        index=i,
        name=jobs.ids[i],
        arrival=arrival,
        chunks=chunks,
        chunk_slots=chunk_slots,
        is_chunk_integral=instance.chunk_integral,
        speedup=speedup,
        target=epochs * chunks if instance.chunk_integral else work,
        most_workers=chunks if instance.chunk_integral or speedup else min(chunks, work),
        worker_rate=rate,
        ps_rate=int(jobs.ps_micro_mbps[i]),
        demands=_demands(instance, i),
        worth=(0.0,) * arrival + worth,
        worth_error=error,
        deadline=max((arrival + delay for delay, value in enumerate(worth) if value > 0), default=-1),
    )


def _demands(instance: AdmissionInstance, i: int) -> tuple[Demand, ...]:
    jobs = instance.jobs
    segments: Sequence[int] = range(int(jobs.segment_offset[i]), int(jobs.segment_offset[i + 1]))
    return tuple(
        Demand(
            start=int(jobs.segment_start[s]),
            worker=tuple(jobs.worker_demand[s].tolist()),
            ps=tuple(jobs.ps_demand[s].tolist()),
        )
        for s in segments
    )
