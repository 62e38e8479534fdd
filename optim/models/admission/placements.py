"""What servers hold of one job in one slot: pairs (workers, PSs), and the ways to spread them."""

from collections.abc import Iterator, Sequence

from optim.models.admission.instance import AdmissionInstance

Pair = tuple[int, int]
"""Numbers of workers and of PSs."""

Placement = tuple[Pair, ...]
"""What each place holds of a job in one slot."""


class SlotOptions:
    """The ways to place Y workers and Z PSs of one job in one slot.

    Parameters
    ----------
    options
        For each place the pairs that it holds.
    most
        Most workers and most PSs that matter.
    """

    def __init__(self, options: Sequence[Sequence[Pair]], most: Pair) -> None:
        self._options = options
        self._sums: list[set[Pair]] = [{(0, 0)}]
        for pairs in reversed(options):
            self._sums.append(_added(self._sums[-1], pairs, most))
        self._sums.reverse()

    def can_hold(self, pair: Pair) -> bool:
        """Whether the places hold a pair together."""
        return pair in self._sums[0]

    def placements(self, pair: Pair, place: int = 0) -> Iterator[Placement]:
        """Yield all ways to place a pair on the places from `place` on."""
        if pair not in self._sums[place]:
            return
        if place == len(self._options):
            yield ()
            return
        for held in self._options[place]:
            rest = (pair[0] - held[0], pair[1] - held[1])
            for placement in self.placements(rest, place + 1):
                yield held, *placement


def server_pairs(instance: AdmissionInstance, segment: int, server_class: int, slot: int) -> list[Pair]:
    """Return the pairs (workers, PSs) of one job that ONE empty shared server holds.

    Either within the cap on a job's share of each resource, or a single worker, or a single PS.
    """
    jobs = instance.jobs
    capacity = instance.worker_servers.capacity[server_class, slot].tolist()
    share = instance.max_share_per_server
    demands = list(zip(jobs.worker_demand[segment].tolist(), jobs.ps_demand[segment].tolist(), capacity, strict=True))

    def fits(y: int, z: int) -> bool:
        if any(w * y + s * z > c for w, s, c in demands):
            return False
        return (
            share is None
            or y + z <= 1
            or all((w * y + s * z) * share.denominator <= share.numerator * c for w, s, c in demands)
        )

    most_workers = int(instance.workers_per_server[segment, server_class, slot])
    most_ps = int(instance.ps_per_server[segment, server_class, slot])
    return [(y, z) for y in range(most_workers + 1) for z in range(most_ps + 1) if fits(y, z)]


def sum_of_pairs(pairs: Sequence[Pair], number: int, most: Pair) -> tuple[Pair, ...]:
    """Return what `number` equal shared servers hold together: the sums of as many pairs, up to `most`."""
    sums = {(0, 0)}
    for _ in range(number):
        sums = _added(sums, pairs, most)
    return tuple(sorted(sums))


def _added(sums: set[Pair], pairs: Sequence[Pair], most: Pair) -> set[Pair]:
    return {(y + a, z + b) for y, z in sums for a, b in pairs if y + a <= most[0] and z + b <= most[1]}
