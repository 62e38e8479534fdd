"""From grants to GPUs: which ones an app gets, and which of its jobs run on them."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from scipy.optimize import linear_sum_assignment

from optim.models.cluster.world import IntArray
from optim.simulation.cluster.planning.policy import Gpus

Entries = tuple[tuple[int, int], ...]
"""(machine, GPUs) of a grant."""


def near_the_old(
    rack_of: IntArray,
    there: IntArray,
    grants: Mapping[int, Entries],
    before: Mapping[int, Sequence[int]],
    machine_of: Sequence[int],
) -> dict[int, Entries]:
    """Exchange equal machines between grants so that apps keep as many of the GPUs they had as possible.

    All GPUs that there are are on offer: machines of one size in one rack, and racks with equal machines, are interchangeable.

    Parameters
    ----------
    rack_of, there
        Rack of each machine, and its GPUs, 0 while it is down.
    grants
        By app.
    before
        By app the GPUs that it had.
    machine_of
        Machine of each GPU.
    """
    apps = sorted(set(grants) & set(before))
    if not apps:
        return dict(grants)
    granted, held = (np.zeros((len(apps), len(there)), np.int64) for _ in range(2))
    for row, app in enumerate(apps):
        for machine, count in grants[app]:
            granted[row, machine] += count
        np.add.at(held[row], [machine_of[gpu] for gpu in before[app]], 1)
    kept = np.minimum(granted[:, :, None], held[:, None, :]).sum(axis=0)  # GPUs kept if machine m becomes machine n
    members = [np.flatnonzero(rack_of == rack) for rack in np.unique(rack_of)]
    makeup = [tuple(np.sort(there[inside]).tolist()) for inside in members]
    worth = np.full((len(members), len(members)), -1.0)
    moves: dict[tuple[int, int], IntArray] = {}
    for a, old in enumerate(members):
        for b, new in enumerate(members):
            if makeup[a] == makeup[b]:
                same = there[old][:, None] == there[new][None, :]
                block = np.where(same, kept[np.ix_(old, new)], -(10**9))
                rows, columns = linear_sum_assignment(-block)
                worth[a, b], moves[a, b] = block[rows, columns].sum(), new[columns]
    target = np.arange(len(there))
    rows, columns = linear_sum_assignment(-np.where(worth < 0, -(10**12), worth))
    for a, b in zip(rows.tolist(), columns.tolist(), strict=True):
        target[members[a]] = moves[a, b]
    return {app: tuple((int(target[machine]), count) for machine, count in entries) for app, entries in grants.items()}


def chosen_gpus(entries: Entries, free: Mapping[int, Sequence[int]], wished: Iterable[int]) -> list[int]:
    """Return GPUs of the machines of a grant, those wished for first.

    Parameters
    ----------
    entries
        The grant.
    free
        GPUs left on each machine, ascending.
    wished
        GPUs that the app would like.
    """
    liked = set(wished)
    found: list[int] = []
    for machine, count in entries:
        found += sorted(free[machine], key=lambda gpu: (gpu not in liked, gpu))[:count]
    return found


def split(
    gpus: Iterable[int],
    running: Mapping[int, Gpus],
    waiting: Sequence[tuple[int, int]],
    machine_of: Sequence[int],
    rack_of: Sequence[int],
) -> dict[int, Gpus]:
    """Return which of an app's jobs run where: those that can stay do, then others in order where they fit.

    A job takes the fullest machine that holds it; failing that GPUs of one rack, then any, most of a machine first.

    Parameters
    ----------
    gpus
        What the app may use.
    running
        Its running jobs and their GPUs.
    waiting
        (job, gang) of the others, the most urgent first.
    machine_of, rack_of
        By GPU, and by machine.
    """
    left = set(gpus)
    found: dict[int, Gpus] = {}
    for job, held in running.items():
        if left.issuperset(held):
            found[job] = held
            left.difference_update(held)
    free: dict[int, list[int]] = {}
    for gpu in sorted(left):
        free.setdefault(machine_of[gpu], []).append(gpu)
    room = len(left)
    for job, gang in waiting:
        if job in found or gang > room:
            continue
        taken = _taken(free, gang, rack_of)
        found[job] = tuple(sorted(gpu for machine, count in taken for gpu in free[machine][:count]))
        for machine, count in taken:
            del free[machine][:count]
        room -= gang
    return found


def _taken(free: Mapping[int, Sequence[int]], gang: int, rack_of: Sequence[int]) -> list[tuple[int, int]]:
    """Return (machine, GPUs) for a gang; there are enough."""
    fitting = [(len(gpus), machine) for machine, gpus in free.items() if len(gpus) >= gang]
    if fitting:
        return [(min(fitting)[1], gang)]
    racks: dict[int, int] = {}
    for machine, gpus in free.items():
        racks[rack_of[machine]] = racks.get(rack_of[machine], 0) + len(gpus)
    inside = [(count, rack) for rack, count in racks.items() if count >= gang]
    rack = min(inside)[1] if inside else None
    taken: list[tuple[int, int]] = []
    for machine in sorted(free, key=lambda m: (-len(free[m]), m)):
        if gang and free[machine] and (rack is None or rack_of[machine] == rack):
            count = min(gang, len(free[machine]))
            taken.append((machine, count))
            gang -= count
    return taken
