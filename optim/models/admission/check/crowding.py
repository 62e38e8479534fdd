"""Whether single servers hold what a leaf's restrictions put in a class and slot at least.

Branches on counts are about whole classes. Where the fewest units that they leave to several jobs can't be packed on
the class' servers, no plan meets them all.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from optim.models.admission.check.facts import Demand, Facts, JobFacts, smallest_demand
from optim.models.admission.check.restrictions import Place, Restriction
from optim.models.admission.check.room import ps_beside_on_one, units_on_server
from optim.models.admission.check.slots import Pricing, no_prices
from optim.models.admission.proof import Side

STEP_LIMIT = 1_000_000
"""Steps of the search in one place; a leaf that needs more is refused as not shown."""

Pair = tuple[int, int]
"""Workers and PSs of one job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """A job's fewest units in a place, what they take at least, and the most PSs of its own beside 0, 1, ... workers."""

    fewest: Pair
    demand: Demand
    most_ps: tuple[int, ...]

    def fits(self, pair: Pair) -> bool:
        """Tell whether an empty server takes these units."""
        return pair[0] < len(self.most_ps) and pair[1] <= self.most_ps[pair[0]]


def is_crowded(facts: Facts, restrictions: Mapping[int, Restriction]) -> bool:
    """Tell whether the servers of some class certainly don't hold the fewest units that restrictions leave."""
    by_place: dict[tuple[Side, int, int], list[int]] = {}
    for job, restriction in restrictions.items():
        hosts = {(Side.WORKER if facts.is_shared else side, c, t) for side, c, t in restriction.at_least}
        for place in hosts:
            by_place.setdefault(place, []).append(job)
    return any(
        not _fit(facts, place, [_units(facts, facts.jobs[job], place, restrictions[job]) for job in sorted(jobs)])
        for place, jobs in sorted(by_place.items())
    )


def _units(facts: Facts, job: JobFacts, place: Place, restriction: Restriction) -> Units:
    side, c, slot = place
    demand, room = _least_demand(facts, job, slot, restriction), facts.servers(side).room(c, slot)
    sides = (Side.WORKER, Side.PS) if facts.is_shared else (side,)
    fewest = tuple(restriction.at_least.get((own, c, slot), 0) if own in sides else 0 for own in (Side.WORKER, Side.PS))
    most = (job.most_workers, job.ps_needed(job.most_workers))
    if facts.is_shared:
        beside = [ps_beside_on_one(demand, room, facts.share, y, most[1]) for y in range(most[0] + 1)]
        most_ps = tuple(z for z in beside if z >= 0)
    elif side is Side.WORKER:
        most_ps = (0,) * (1 + units_on_server(demand.worker, room, facts.share, most[0]))
    else:
        most_ps = (units_on_server(demand.ps, room, facts.share, most[1]),)
    return Units(fewest=(fewest[0], fewest[1]), demand=demand, most_ps=most_ps)


def _least_demand(facts: Facts, job: JobFacts, slot: int, restriction: Restriction) -> Demand:
    """Return the elementwise smallest demand of the segments in which the job may be at the slot's start."""
    if slot <= job.arrival:
        return job.demands[0]
    pricing = Pricing(
        facts=facts, job=job, slots=range(job.arrival, slot), prices=no_prices(facts), restriction=restriction
    )
    fewest = pricing.limits(job.demands[0], Side.WORKER)[0].sum(axis=0)
    most = np.max([pricing.limits(demand, Side.WORKER)[1] for demand in job.demands], axis=0).sum(axis=0)
    first, last = (
        job.segment_at(sum(job.progress(workers) for workers in counts.tolist())) for counts in (fewest, most)
    )
    return smallest_demand(job.demands[first : last + 1])


def _fit(facts: Facts, place: Place, jobs: Sequence[Units]) -> bool:
    """Tell whether the servers of a place hold all units, or might."""
    side, c, slot = place
    servers = facts.servers(side)
    search = _Packing(jobs, servers.room(c, slot))
    return search.fits(tuple(job.fewest for job in jobs), servers.count[c])


class _Packing:
    """Fill equal servers one after the other, each as far as it goes; rests that were tried are remembered."""

    def __init__(self, jobs: Sequence[Units], room: tuple[int, ...]) -> None:
        self._jobs, self._room = jobs, room
        self._hopeless: set[tuple[tuple[Pair, ...], int]] = set()
        self._steps = 0

    def fits(self, rest: tuple[Pair, ...], number: int) -> bool:
        """Tell whether so many empty servers hold the rest; True, too, where the search is given up.

        Depth first, with the open servers on a list of its own: there may be more of them than calls may be nested.
        """
        verdict = self._verdict(rest, number)
        if verdict is not None:
            return verdict
        opened = [(rest, number, self._after_one(rest))]
        while opened:
            rest, number, ways = opened[-1]
            left = next(ways, None)
            if self._steps > STEP_LIMIT:
                return True
            if left is None:
                self._hopeless.add((rest, number))
                opened.pop()
                continue
            verdict = self._verdict(left, number - 1)
            if verdict:
                return True
            if verdict is None:
                opened.append((left, number - 1, self._after_one(left)))
        return False

    def _verdict(self, rest: tuple[Pair, ...], number: int) -> bool | None:
        """Tell whether servers hold the rest where that is plain, None where it has to be tried."""
        if not any(map(any, rest)):
            return True
        is_hopeless = number == 0 or (rest, number) in self._hopeless or not self._has_room(rest, number)
        return False if is_hopeless else None

    def _has_room(self, rest: tuple[Pair, ...], number: int) -> bool:
        return all(
            sum(y * job.demand.worker[r] + z * job.demand.ps[r] for (y, z), job in zip(rest, self._jobs, strict=True))
            <= number * limit
            for r, limit in enumerate(self._room)
        )

    def _after_one(self, rest: tuple[Pair, ...]) -> Iterator[tuple[Pair, ...]]:
        """Yield what is left after one server, for every way to fill it to which no unit can be added.

        Some server holds a unit of the first job that is left: this one, as they are equal.
        """
        first = next(k for k, pair in enumerate(rest) if any(pair))
        for taken, room in self._ways(rest, 0, self._room):
            if any(taken[first]) and not any(
                self._takes_more(k, taken[k], rest[k], room) for k in range(len(self._jobs))
            ):
                yield tuple((y - a, z - b) for (y, z), (a, b) in zip(rest, taken, strict=True))

    def _takes_more(self, k: int, taken: Pair, rest: Pair, room: tuple[int, ...]) -> bool:
        more = (((taken[0] + 1, taken[1]), (1, 0)), ((taken[0], taken[1] + 1), (0, 1)))
        return any(
            pair[0] <= rest[0]
            and pair[1] <= rest[1]
            and self._jobs[k].fits(pair)
            and min(_left(self._jobs[k].demand, one, room), default=0) >= 0
            for pair, one in more
        )

    def _ways(
        self, rest: tuple[Pair, ...], k: int, room: tuple[int, ...]
    ) -> Iterator[tuple[tuple[Pair, ...], tuple[int, ...]]]:
        self._steps += 1
        if self._steps > STEP_LIMIT:
            return
        if k == len(rest):
            yield (), room
            return
        job = self._jobs[k]
        for y in range(min(rest[k][0], len(job.most_ps) - 1), -1, -1):
            for z in range(min(rest[k][1], job.most_ps[y]), -1, -1):
                left = _left(job.demand, (y, z), room)
                if min(left, default=0) >= 0:
                    for others, final in self._ways(rest, k + 1, left):
                        yield ((y, z), *others), final


def _left(demand: Demand, pair: Pair, room: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(
        limit - pair[0] * worker - pair[1] * ps
        for limit, worker, ps in zip(room, demand.worker, demand.ps, strict=True)
    )
