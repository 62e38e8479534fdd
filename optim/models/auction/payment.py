"""Hidden payments: rounding of shares to GPUs, choice of the GPUs to keep, and distribution of leftover GPUs.

An app that is awarded the bundle G keeps c G. The share c is the product of the other apps' values with the
app, divided by their product without it. A `PaymentRule` rounds c G to whole GPUs.

References
----------
Cole, Gkatzelis, Goel, "Mechanism design for fair division: allocating divisible items without payments", EC 2013,
DOI 10.1145/2492002.2482582 (partial allocation). Mahajan et al., NSDI 2020, algorithm 1 (leftover at random).
"""

import math
from collections.abc import Callable, Collection, Sequence

import numpy as np

from optim.core.arrays import FloatArray, IntArray
from optim.models.auction.data import Cluster
from optim.models.auction.decision import COUNT, PaymentRule, sorted_entries
from optim.models.auction.instance import AuctionInstance

WHOLE_TOL = 1e-9
"""Tolerance for rounding a number of gangs to an integer or a half, relative to max(1, the number)."""


def grant_size(rule: PaymentRule, share: float, bundle: int, gang: int = 1, ticket: float = 1.0) -> int:
    """Return the number of a bundle's GPUs that an app keeps: complete gangs, at most the bundle.

    Parameters
    ----------
    rule
        Rounding rule. `floor` keeps one GPU if an elastic app (gang 1) would keep none although c G is at
        least 1/2.
    share
        c in [0, 1].
    bundle, gang
        Number of awarded GPUs, and the gang size.
    ticket
        A number drawn uniformly from [0, 1): the lottery is won if it is below c.

    Examples
    --------
    >>> [grant_size(rule, 4 / 9, 4) for rule in (PaymentRule.FLOOR, PaymentRule.NEAREST, PaymentRule.CEIL)]
    [1, 2, 2]
    """
    if rule is PaymentRule.NONE:
        return bundle
    if rule is PaymentRule.LOTTERY:
        return bundle if ticket < share or share >= 1.0 else 0
    gangs = share * bundle / gang
    tol = WHOLE_TOL * max(1.0, gangs)
    if rule is PaymentRule.FLOOR:
        number = math.floor(gangs + tol)
        if number == 0 and gang == 1 and share * bundle >= 0.5 - tol:
            number = 1
    elif rule is PaymentRule.NEAREST:
        number = math.floor(gangs + 0.5 + tol)
    else:
        number = math.ceil(gangs - tol)
    return min(bundle, number * gang)


def keep_best(cluster: Cluster, entries: Sequence[tuple[int, int]], number: int) -> list[tuple[int, int]]:
    """Return the part of a bundle with a given size and the best locality, as (slot, count) entries.

    If one slot has enough GPUs, the smallest such slot is chosen; else the smallest machine, else the
    smallest rack. Within it, machines and then slots with the most GPUs come first, so that few machines and
    slots are used.
    """
    pool = list(entries)
    for group_of in (np.arange(len(cluster.slot_machine)), cluster.slot_machine, cluster.slot_rack):
        group_gpus = _totals(entries, group_of)
        enough = [(count, group) for group, count in group_gpus.items() if count >= number]
        if enough:
            chosen = min(enough)[1]
            pool = [(slot, count) for slot, count in entries if group_of[slot] == chosen]
            break
    by_machine = _totals(pool, cluster.slot_machine)
    pool.sort(key=lambda entry: (-by_machine[int(cluster.slot_machine[entry[0]])], -entry[1], entry[0]))
    best, remaining = [], number
    for slot, count in pool:
        if remaining > 0:
            best.append((slot, min(count, remaining)))
            remaining -= count
    return sorted(best)


def _totals(entries: Sequence[tuple[int, int]], group_of: IntArray) -> dict[int, int]:
    """Return the number of GPUs by group of slots."""
    totals: dict[int, int] = {}
    for slot, count in entries:
        totals[int(group_of[slot])] = totals.get(int(group_of[slot]), 0) + count
    return totals


def settle(
    instance: AuctionInstance,
    placement: IntArray,
    share: FloatArray,
    rule: PaymentRule,
    rng: np.random.Generator | None = None,
) -> IntArray:
    """Return the granted part of each app's bundle, as (app, slot, count) entries.

    Parameters
    ----------
    instance, placement
        The auction and the complete bundles.
    share
        Share c of each app, shape (apps,).
    rule
        Rule that rounds shares to whole GPUs.
    rng
        Generator of the lottery's tickets, one per app in order.

    Notes
    -----
    An app receives only GPUs of its bundle, so grants cannot overlap.
    """
    if rule is PaymentRule.NONE or not len(placement):
        return placement
    n = instance.num_apps
    tickets = rng.random(n) if rng is not None else np.zeros(n)
    bundle = np.bincount(placement[:, 0], placement[:, COUNT], n).astype(np.int64)
    first = np.searchsorted(placement[:, 0], np.arange(n + 1))
    granted: list[tuple[int, int, int]] = []
    rows = placement.tolist()
    for i in np.flatnonzero(bundle).tolist():
        size = grant_size(rule, float(share[i]), int(bundle[i]), int(instance.apps.gang[i]), float(tickets[i]))
        mine = [(slot, count) for _, slot, count in rows[first[i] : first[i + 1]]]
        if size == bundle[i]:
            granted += [(i, slot, count) for slot, count in mine]
        elif size:
            granted += [(i, slot, count) for slot, count in keep_best(instance.cluster, mine, size)]
    return sorted_entries(granted)


def leftover(cluster: Cluster, grants: IntArray) -> IntArray:
    """Return the free GPUs that were granted to no app, shape (slots,)."""
    return cluster.slot_free - np.bincount(grants[:, 1], grants[:, COUNT], len(cluster.slot_free)).astype(np.int64)


def share_leftover(
    cluster: Cluster,
    free: IntArray,
    wanted: Sequence[int] | IntArray,
    gang: Sequence[int] | IntArray,
    machines_of: Callable[[int], Collection[int]],
    rng: np.random.Generator,
) -> IntArray:
    """Give leftover GPUs to apps at random, one gang at a time, near the GPUs that an app holds if possible.

    Parameters
    ----------
    cluster, free
        The cluster, and the leftover GPUs by slot.
    wanted
        Number of further GPUs that each app can use.
    gang
        Gang size of each app.
    machines_of
        Returns the machines on which an app holds GPUs; called only for apps that receive GPUs.
    rng
        Generator that draws the next app, uniformly over those that can use another gang.

    Returns
    -------
    IntArray
        (app, slot, count) entries.
    """
    free_gpus = np.array(free, dtype=np.int64)
    need = np.array(wanted, dtype=np.int64)
    size = np.array(gang, dtype=np.int64)
    home: dict[int, set[int]] = {}
    shares: dict[tuple[int, int], int] = {}
    while True:
        open_apps = np.flatnonzero((need >= size) & (size <= free_gpus.sum()))
        if not len(open_apps):
            break
        i = int(rng.choice(open_apps))
        if i not in home:
            home[i] = set(machines_of(i))
        is_away = np.ones(cluster.num_machines, np.bool_)
        is_away[list(home[i])] = False
        missing_gpus = int(size[i])
        for s in np.lexsort((-free_gpus, is_away[cluster.slot_machine])).tolist():
            count = min(missing_gpus, int(free_gpus[s]))
            if not missing_gpus:
                break
            if count:
                shares[i, s] = shares.get((i, s), 0) + count
                free_gpus[s] -= count
                missing_gpus -= count
                home[i].add(int(cluster.slot_machine[s]))
        need[i] -= size[i]
    return sorted_entries([(i, s, count) for (i, s), count in shares.items()])
