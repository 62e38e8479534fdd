"""The numbers of an instance, derived from its raw fields for the checker."""

import math
from dataclasses import dataclass

import numpy as np

from optim.core.arrays import BoolArray, FloatArray, IntArray
from optim.models.auction.data import SERVED_STEP, EmptyValue, Locality
from optim.models.auction.instance import AuctionInstance

UNIT_ROUNDOFF = 2.0**-53
"""Largest relative error of one rounded operation on doubles."""

WEIGHT_ROUNDINGS = 8
"""Rounded operations in one weight: quotients, a logarithm with an error of one unit, sums."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ExactInstance:
    """The instance's numbers as the checker uses them.

    Parameters
    ----------
    weight
        Shape (rows,): log welfare relative to the app's empty row.
    useful
        Shape (rows,): whether the row fits the free GPUs alone and is undominated. A row is dominated by a row of
        the same app with at most as many GPUs, a locality at least as wide and no larger rho.
    first
        Shape (apps + 1,): the rows of app i are ``first[i]:first[i + 1]``.
    slot_machine, slot_rack, slot_free
        Shape (slots,): machine, rack and number of free GPUs of each slot.
    """

    instance: AuctionInstance
    num_apps: int
    weight: FloatArray
    useful: BoolArray
    first: IntArray
    slot_machine: IntArray
    slot_rack: IntArray
    slot_free: IntArray
    num_free: int

    def named(self, row: int) -> dict[int, int]:
        """Return the GPUs by machine of a row that names machines."""
        bids = self.instance.bids
        entries = np.flatnonzero(bids.named_row == row)
        return {int(bids.named_machine[e]): int(bids.named_gpus[e]) for e in entries}

    def app_name(self, app: int) -> str:
        """Return an app's name."""
        return self.instance.apps.ids[app]

    def rounding(self, total: float) -> float:
        """Return a bound on the rounding error of a sum of weights, added exactly or one app after the other."""
        return (WEIGHT_ROUNDINGS + self.num_apps) * UNIT_ROUNDOFF * abs(total)


def read_facts(instance: AuctionInstance) -> ExactInstance:
    """Derive the checker's numbers from an instance."""
    cluster, n = instance.cluster, len(instance.apps.ids)
    first = np.zeros(n + 1, dtype=np.int64)
    np.add.at(first, instance.bids.app + 1, 1)
    slot_machine = cluster.slot_machine
    return ExactInstance(
        instance=instance,
        num_apps=n,
        weight=np.array(_weights(instance), dtype=np.float64),
        useful=_useful(instance),
        first=np.cumsum(first),
        slot_machine=slot_machine,
        slot_rack=cluster.machine_rack[slot_machine],
        slot_free=cluster.slot_free,
        num_free=int(cluster.slot_free.sum()),
    )


def _useful(instance: AuctionInstance) -> BoolArray:
    """Return which rows fit alone and are undominated; these rows suffice for bounds."""
    bids = instance.bids
    useful = _possible(instance)
    best: dict[int, dict[int, float]] = {}
    rows = zip(bids.app.tolist(), bids.gpus.tolist(), bids.locality.tolist(), bids.rho.tolist(), strict=True)
    ordered = sorted((app, gpus, -level, rho, b) for b, (app, gpus, level, rho) in enumerate(rows) if useful[b])
    for app, _, narrowness, rho, b in ordered:
        if -narrowness == Locality.NAMED:
            continue
        mine = best.setdefault(app, {})
        if any(other <= rho for level, other in mine.items() if level >= -narrowness):
            useful[b] = False
        else:
            mine[-narrowness] = rho
    return useful


def _possible(instance: AuctionInstance) -> BoolArray:
    """Return which rows fit alone in a slot, machine, rack or the cluster, by their locality, or on their named machines."""
    cluster, bids = instance.cluster, instance.bids
    machine = np.zeros(len(cluster.machine_rack), dtype=np.int64)
    np.add.at(machine, cluster.slot_machine, cluster.slot_free)
    rack = np.zeros(len(machine), dtype=np.int64)
    np.add.at(rack, cluster.machine_rack, machine)
    free = int(cluster.slot_free.sum())
    max_free = np.array([cluster.slot_free.max(initial=0), machine.max(initial=0), rack.max(initial=0), free, free])
    fits: BoolArray = bids.gpus <= max_free[bids.locality]
    fits[bids.named_row[bids.named_gpus > machine[bids.named_machine]]] = False
    return fits


def _weights(instance: AuctionInstance) -> list[float]:
    rows = list(zip(instance.bids.app.tolist(), instance.bids.rho.tolist(), strict=True))
    empty = instance.apps.empty_rho.tolist()
    if instance.empty_value is EmptyValue.POSITIVE:
        quotients = [(empty[app] / rho, empty[app], rho) for app, rho in rows]
        return [math.log(q) if q < math.inf else math.log(worst) - math.log(rho) for q, worst, rho in quotients]
    # V = 1 / rho - 1 / rho_empty, as one quotient: the reciprocals might overflow.
    values = [math.log(empty[app] - rho) - math.log(empty[app]) - math.log(rho) for app, rho in rows]
    least: dict[int, float] = {}
    most: dict[int, float] = {}
    for (app, _), value in zip(rows, values, strict=True):
        least[app], most[app] = min(value, least.get(app, 0.0)), max(value, most.get(app, 0.0))
    step = math.fsum(most[app] - least[app] for app in least) + SERVED_STEP
    return [step + value for value in values]
