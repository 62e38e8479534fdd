"""Fixed logical partitions: what is dealt out to machines and never cut anew.

Data is cut once into P partitions, parameters once into shards. Machines come and go; the partitions only change hands.
A clock's gradients are always added in partition order, so a run's bits don't know how many machines computed them.
"""

from collections.abc import Sequence

from optim.core.errors import InvalidOptionError
from optim.training.application import Application, HasRows


def deal(count: int, holders: Sequence[str], previous: Sequence[str] = ()) -> tuple[str, ...]:
    """Return who holds each of `count` things: shares differ by at most one, and few change hands.

    Parameters
    ----------
    count
        Number of things.
    holders
        Candidates, in the order in which larger shares are given.
    previous
        Who held each one before; empty where nobody did. Holders that are gone may be among them.

    Raises
    ------
    InvalidOptionError
        If there is no holder.
    """
    if not holders:
        raise InvalidOptionError(f"nobody can hold the {count} partitions: at least one machine is needed")
    before = list(previous) if previous else [""] * count
    held = {holder: [index for index in range(count) if before[index] == holder] for holder in holders}
    share, extra = divmod(count, len(holders))
    # Whoever holds most already takes one of the larger shares: nothing moves where nothing must.
    ranked = sorted(range(len(holders)), key=lambda rank: (-len(held[holders[rank]]), rank))
    quota = {holders[rank]: share + (place < extra) for place, rank in enumerate(ranked)}
    result = [""] * count
    for holder in holders:
        for index in held[holder][: quota[holder]]:
            result[index] = holder
    free = iter([index for index in range(count) if not result[index]])
    for holder in holders:
        for _ in range(quota[holder] - min(len(held[holder]), quota[holder])):
            result[next(free)] = holder
    return tuple(result)


def bounds(size: int, count: int, index: int) -> tuple[int, int]:
    """Return where the `index`-th of `count` contiguous parts of 0..size starts and stops."""
    return index * size // count, (index + 1) * size // count


def row_width(application: Application, num_shards: int) -> int:
    """Return the width of the rows that an application's gradients may be pushed by; 1 where it has none, or too few."""
    if not isinstance(application, HasRows) or application.num_parameters // application.row_width < num_shards:
        return 1
    return application.row_width


def shard_bounds(application: Application, num_shards: int) -> tuple[tuple[int, int], ...]:
    """Return where each shard of an application's parameters starts and stops: between rows, if it has rows."""
    width = row_width(application, num_shards)
    rows = application.num_parameters // width
    cuts = [bounds(rows, num_shards, shard) for shard in range(num_shards)]
    return tuple((start * width, stop * width) for start, stop in cuts)
