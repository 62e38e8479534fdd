"""Enumerate every schedule of a tiny job over single servers or classes, without dynamic programming or sorting."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import product

import numpy as np

from optim.core.arrays import FloatArray
from optim.models.admission.data import MICRO
from optim.models.admission.decision import Branch, BranchKind, CountCut, PriceProof, ServerCut, Side, SlotCut
from optim.models.admission.instance import AdmissionInstance
from tests.support.admission.plans import exceeds_share, progress_of, segment_of

Counts = tuple[tuple[int, ...], tuple[int, ...]]
"""Workers by place and PSs by place in one slot; a place is a class of servers, or a single one."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Schedule:
    """Counts by slot, the demand segment of each slot in use, and how many places there are on each side."""

    instance: AdmissionInstance
    job: int
    counts: dict[int, Counts]
    segment: dict[int, int]
    num_places: tuple[int, int]

    @property
    def completion(self) -> int:
        """Last slot with workers."""
        return max(self.counts)

    @cached_property
    def load(self) -> FloatArray:
        """Use of every place, slot and resource, in 1e-6 units; workers' servers first."""
        jobs, is_shared = self.instance.jobs, self.instance.has_shared_servers
        size = (self.instance.horizon, self.instance.num_resources)
        sides = [np.zeros((number, *size)) for number in self.num_places]
        for slot, (ys, zs) in self.counts.items():
            segment = self.segment[slot]
            for c, y in enumerate(ys):
                sides[0][c, slot] += y * jobs.worker_demand[segment]
            for c, z in enumerate(zs):
                sides[0 if is_shared else 1][c, slot] += z * jobs.ps_demand[segment]
        return sides[0].ravel() if is_shared else np.concatenate([side.ravel() for side in sides])

    def count(self, side: Side, server_class: int, slot: int) -> int:
        """Return how many workers or PSs there are in a class and slot."""
        return self.counts[slot][0 if side is Side.WORKER else 1][server_class] if slot in self.counts else 0


class Enumerator:
    """Lists the schedules of an instance's jobs.

    A *stripped* schedule has no superfluous worker or PS: the minimum of PSs by row (6), unfinished work before the
    last slot, and no worker beyond those needed for its progress. Otherwise all schedules that meet rows (2), (3), (6),
    (7) and the capacity of the servers are listed.
    """

    def __init__(self, instance: AdmissionInstance, *, is_stripped: bool = True, is_by_class: bool = True) -> None:
        self.instance = instance
        self.is_stripped = is_stripped
        sides = (instance.worker_servers, instance.ps_servers)
        self.places = tuple(
            list(enumerate(side.count.tolist())) if is_by_class else [(c, 1) for c in side.class_of_server.tolist()]
            for side in sides
        )
        """Class and number of servers of each place, of both sides."""
        self.pairs = cache(self._list_pairs)
        self._options = cache(self._list_options)

    def schedules(self, job: int) -> Iterator[Schedule]:
        """Yield every schedule that earns something."""
        instance = self.instance
        for counts, segment in self._extend(job, int(instance.jobs.arrival[job]), 0):
            number = (len(self.places[0]), len(self.places[1]))
            schedule = Schedule(instance=instance, job=job, counts=counts, segment=segment, num_places=number)
            if instance.value[job, schedule.completion] > 0:
                yield schedule

    def placements(self, job: int, slot: int) -> Iterator[tuple[int, FloatArray]]:
        """Yield the number of workers and the load of every way to place the job in a slot, for each of its demands."""
        number = (len(self.places[0]), len(self.places[1]))
        offset = self.instance.jobs.segment_offset
        for segment in range(int(offset[job]), int(offset[job + 1])):
            for counts in self._options(job, segment, slot):
                placed = {"counts": {slot: counts}, "segment": {slot: segment}, "num_places": number}
                yield sum(counts[0]), Schedule(instance=self.instance, job=job, **placed).load

    def _extend(self, job: int, slot: int, done: int) -> Iterator[tuple[dict[int, Counts], dict[int, int]]]:
        instance = self.instance
        target = int(instance.target[job])
        if slot == instance.horizon:
            if done >= target and not self.is_stripped:
                yield {}, {}
            return
        most = progress_of(instance, job, int(instance.jobs.chunks[job]))
        if self.is_stripped and done + most * (instance.horizon - slot) < target:
            return
        yield from self._extend(job, slot + 1, done)
        segment = segment_of(instance, job, done)
        for ys, zs in self._options(job, segment, slot):
            y = sum(ys)
            after = done + progress_of(instance, job, y)
            if self.is_stripped:
                fewer = progress_of(instance, job, y - 1)
                if progress_of(instance, job, y) == fewer or done + fewer >= target:
                    continue
                if after >= target:
                    yield {slot: (ys, zs)}, {slot: segment}
                    continue
            for counts, segments in self._extend(job, slot + 1, after):
                yield {slot: (ys, zs), **counts}, {slot: segment, **segments}

    def _list_options(self, job: int, segment: int, slot: int) -> list[Counts]:
        """List the allocations of the job in a slot: at least one worker, all places together."""
        instance = self.instance
        most = int(instance.jobs.chunks[job])
        workers = range(len(self.places[0]))
        if instance.has_shared_servers:
            choices = [self.pairs(segment, place, slot, most, "both") for place in self.places[0]]
        else:
            choices = [self.pairs(segment, place, slot, most, "worker") for place in self.places[0]]
            choices += [self.pairs(segment, place, slot, most, "ps") for place in self.places[1]]
        options = []
        for pairs in product(*choices):
            y, z = sum(p[0] for p in pairs), sum(p[1] for p in pairs)
            b, ps_rate = int(instance.jobs.worker_micro_mbps[job]), int(instance.jobs.ps_micro_mbps[job])
            least = next(n for n in range(y + 1) if n * ps_rate >= y * b)
            if not 1 <= y <= most or not least <= z <= (least if self.is_stripped else y):
                continue
            if instance.has_shared_servers:
                options.append((tuple(p[0] for p in pairs), tuple(p[1] for p in pairs)))
            else:
                options.append((tuple(pairs[c][0] for c in workers), tuple(p[1] for p in pairs[len(workers) :])))
        return options

    def _list_pairs(
        self, segment: int, place: tuple[int, int], slot: int, most: int, kind: str
    ) -> list[tuple[int, int]]:
        """List the (workers, PSs) that a place holds."""
        instance, (c, number) = self.instance, place
        servers = instance.ps_servers if kind == "ps" else instance.worker_servers
        one = [
            (y, z)
            for y in range(most + 1 if kind != "ps" else 1)
            for z in range(most + 1 if kind != "worker" else 1)
            if self._fits(segment, servers.capacity[c, slot].tolist(), y, z)
        ]
        total = {(0, 0)}
        for _ in range(number):
            total = {(a + y, b + z) for a, b in total for y, z in one if a + y <= most and b + z <= most}
        return sorted(total)

    def _fits(self, segment: int, capacity: Sequence[int], y: int, z: int) -> bool:
        instance = self.instance
        use = y * instance.jobs.worker_demand[segment] + z * instance.jobs.ps_demand[segment]
        return bool((use <= capacity).all()) and not exceeds_share(instance, segment, [y, z], capacity)


@dataclass(frozen=True, kw_only=True, eq=False)
class Market:
    """Prices and cuts, and the cost of a schedule under them."""

    instance: AdmissionInstance
    worker_price: FloatArray
    ps_price: FloatArray
    cuts: tuple[ServerCut, ...] = ()
    count_cuts: tuple[CountCut, ...] = ()
    slot_cuts: tuple[SlotCut, ...] = ()

    @classmethod
    def of(cls, instance: AdmissionInstance, proof: PriceProof) -> "Market":
        """Return the prices and cuts of a proof."""
        names = ("worker_price", "ps_price", "cuts", "count_cuts", "slot_cuts")
        return cls(instance=instance, **{name: getattr(proof, name) for name in names})

    @cached_property
    def price(self) -> FloatArray:
        """Every price, in the order of `Schedule.load`."""
        return np.concatenate([self.worker_price.ravel(), self.ps_price.ravel()])

    def cost(self, schedule: Schedule) -> float:
        """Return price x demand over all resources, and multiplier x coefficient over all cuts."""
        total = float(self.price @ schedule.load) / MICRO
        for cut in self.cuts:
            for job, y, z in zip(cut.jobs.tolist(), cut.worker_coefficient, cut.ps_coefficient, strict=True):
                if job == schedule.job:
                    for side, coefficient in ((Side.WORKER, y), (Side.PS, z)):
                        if coefficient:
                            total += cut.multiplier * coefficient * schedule.count(side, cut.server_class, cut.slot)
        return total

    def count_cost(self, schedule: Schedule) -> float:
        """Return multiplier x gain of the schedule's counts over all count cuts."""
        total = 0.0
        for cut in self.count_cuts:
            for side, gain in ((cut.side, cut.gain), (Side.PS, cut.ps_gain)):
                if gain is None or schedule.job not in cut.jobs:
                    continue
                count = schedule.count(side, cut.server_class, cut.slot)
                if count and gain.shape[1]:
                    gains = gain[cut.jobs.tolist().index(schedule.job)]
                    total += cut.multiplier * int(gains[min(count, len(gains)) - 1])
        return total

    def slot_cost(self, schedule: Schedule) -> float:
        """Return multiplier x gain of the schedule's numbers of workers over all slot cuts."""
        total = 0.0
        for cut in self.slot_cuts:
            number = sum(schedule.counts[cut.slot][0]) if cut.slot in schedule.counts else 0
            if number and cut.gain.shape[1] and schedule.job in cut.jobs:
                gains = cut.gain[cut.jobs.tolist().index(schedule.job)]
                total += cut.multiplier * int(gains[min(number, len(gains)) - 1])
        return total

    def gain(self, schedule: Schedule) -> float:
        """Return value less cost."""
        return (
            float(self.instance.value[schedule.job, schedule.completion])
            - self.cost(schedule)
            - self.count_cost(schedule)
            - self.slot_cost(schedule)
        )

    def rents(self) -> float:
        """Return price x capacity and multiplier x right-hand side over all servers."""
        total = 0.0
        for servers, price in (
            (self.instance.worker_servers, self.worker_price),
            (self.instance.ps_servers, self.ps_price),
        ):
            if price.shape[0]:
                total += float((price * servers.capacity * servers.count[:, None, None]).sum()) / MICRO
        for cut in self.cuts:
            servers = self.instance.worker_servers if cut.side is Side.WORKER else self.instance.ps_servers
            total += cut.multiplier * int(servers.count[cut.server_class]) * cut.right_hand_side
        return total + sum(cut.multiplier * cut.right_hand_side for cut in (*self.count_cuts, *self.slot_cuts))

    def proof(self, payoff: Sequence[float]) -> PriceProof:
        """Return the dual point with these payoffs."""
        return PriceProof(
            worker_price=self.worker_price,
            ps_price=self.ps_price,
            payoff=np.array(payoff, dtype=np.float64),
            cuts=self.cuts,
            count_cuts=self.count_cuts,
            slot_cuts=self.slot_cuts,
        )


def random_market(
    instance: AdmissionInstance, rng: np.random.Generator, *, share_free: float = 0.3, scale: float = 2.0
) -> Market:
    """Draw prices, a share of them 0."""
    shape = (instance.horizon, instance.num_resources)
    num_ps = 0 if instance.has_shared_servers else instance.ps_servers.num_classes

    def prices(num_classes: int) -> FloatArray:
        drawn = rng.exponential(scale, (num_classes, *shape))
        return np.where(rng.random(drawn.shape) < share_free, 0.0, drawn)

    return Market(instance=instance, worker_price=prices(instance.worker_servers.num_classes), ps_price=prices(num_ps))


def best_gain(market: Market, schedules: Sequence[Schedule | None]) -> float:
    """Return the largest value less cost; refusing (None) gains 0."""
    return max((0.0 if schedule is None else market.gain(schedule) for schedule in schedules), default=-np.inf)


def meets(schedule: Schedule | None, branch: Branch, *, is_high: bool) -> bool:
    """Return whether a job's schedule (None: rejected) belongs to a child of a branch, by its definition."""
    if branch.kind is BranchKind.ADMITTED:
        return (schedule is not None) == is_high
    if branch.kind is BranchKind.COMPLETION:
        return schedule is None or (schedule.completion > branch.value) == is_high
    side = Side.WORKER if branch.kind is BranchKind.WORKERS else Side.PS
    count = 0 if schedule is None else schedule.count(side, branch.server_class, branch.slot)
    return (count > branch.value) == is_high


def random_branch(instance: AdmissionInstance, job: int, rng: np.random.Generator) -> Branch:
    """Draw a branch on a job."""
    kind = list(BranchKind)[int(rng.integers(4))]
    if kind is BranchKind.ADMITTED:
        return Branch(kind=kind, job=job)
    if kind is BranchKind.COMPLETION:
        return Branch(kind=kind, job=job, value=int(rng.integers(-1, instance.horizon)))
    servers = instance.worker_servers if kind is BranchKind.WORKERS else instance.ps_servers
    return Branch(
        kind=kind,
        job=job,
        value=int(rng.integers(-1, 3)),
        server_class=int(rng.integers(servers.num_classes)),
        slot=int(rng.integers(instance.horizon)),
    )


def best_total(instance: AdmissionInstance, schedules: Callable[[int], Sequence[Schedule]]) -> float:
    """Return the optimum of an instance whose classes are single servers, by trying all combinations."""
    shared = instance.has_shared_servers
    sides = [instance.worker_servers] if shared else [instance.worker_servers, instance.ps_servers]
    room = np.concatenate([side.capacity.ravel() for side in sides]).astype(np.float64)
    totals, worth = np.zeros((1, len(room))), np.zeros(1)
    for job in range(instance.num_jobs):
        own = list(schedules(job))
        loads = np.array([np.zeros(len(room)), *(schedule.load for schedule in own)])
        values = np.array([0.0, *(instance.value[job, schedule.completion] for schedule in own)])
        joint = (totals[:, None, :] + loads[None, :, :]).reshape(-1, len(room))
        worth = (worth[:, None] + values[None, :]).reshape(-1)
        keeps = (joint <= room).all(axis=1)
        totals, worth = joint[keeps], worth[keeps]
    return float(worth.max())
