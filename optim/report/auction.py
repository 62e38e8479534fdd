"""Pictures of an auction: bids, allocation of GPUs, and payments."""

from typing import Any

import numpy as np

from optim.models.auction.data import Locality
from optim.models.auction.decision import AuctionPlan
from optim.models.auction.instance import AuctionInstance

NOBODY = "#f0f0f0"


def colours(number: int) -> list[Any]:
    """Return one colour per app."""
    from matplotlib import colormaps

    table = colormaps["tab10" if number <= 10 else "tab20"]
    return [table(k % table.N) for k in range(number)]


def draw_bids(axes: Any, instance: AuctionInstance) -> None:
    """Draw each app's value against its number of GPUs, relative to the value of no GPUs, with one line per locality."""
    styles = {
        Locality.SLOT: "-",
        Locality.MACHINE: "-",
        Locality.RACK: "--",
        Locality.CLUSTER: ":",
        Locality.NAMED: "-.",
    }
    bids = instance.bids
    for i, colour in enumerate(colours(instance.num_apps)):
        for level, style in styles.items():
            mine = np.flatnonzero((bids.app == i) & (bids.locality == level))
            if len(mine):
                order = mine[np.argsort(bids.gpus[mine])]
                value = instance.apps.empty_rho[i] / bids.rho[order]
                label = instance.apps.ids[i] if level == bids.locality[bids.app == i].min() else None
                axes.plot(bids.gpus[order], value, style, color=colour, marker=".", label=label)
    axes.set(xlabel="GPUs", ylabel="value / value of no GPUs", yscale="log")
    axes.legend(fontsize="small")


def draw_cluster(axes: Any, instance: AuctionInstance, plan: AuctionPlan) -> None:
    """Draw every offered GPU: filled if granted to its app, hatched if forfeited as payment, grey if idle."""
    cluster, shades = instance.cluster, colours(instance.num_apps)
    kept = {(i, s): count for i, s, count in plan.grants.tolist()}
    left = cluster.slot_free.copy()
    column = np.zeros(cluster.num_machines, dtype=int)

    def gpu(machine: int, colour: Any, hatch: str | None) -> None:
        axes.bar(column[machine], 0.85, 0.9, machine - 0.42, color=colour, hatch=hatch, edgecolor="white", align="edge")
        column[machine] += 1

    for i, s, count in plan.placement.tolist():
        machine = int(cluster.slot_machine[s])
        left[s] -= count
        for k in range(count):
            gpu(machine, shades[i], None if k < kept.get((i, s), 0) else "////")
    for s, count in enumerate(left.tolist()):
        for _ in range(count):
            gpu(int(cluster.slot_machine[s]), NOBODY, None)
    axes.set(xlabel="GPU", ylabel="machine", yticks=range(cluster.num_machines))
    axes.invert_yaxis()


def draw_payments(axes: Any, instance: AuctionInstance, plan: AuctionPlan) -> None:
    """Draw the number of awarded GPUs and the number of granted GPUs of each app."""
    n, place = instance.num_apps, np.arange(instance.num_apps)
    awarded, granted, shades = plan.awarded_gpus(n), plan.granted_gpus(n), colours(n)
    axes.bar(place, awarded, color="white", edgecolor=shades, hatch="////")
    axes.bar(place, granted, color=shades)
    for i in np.flatnonzero(plan.row >= 0).tolist():
        axes.text(i, awarded[i] + 0.1, f"c = {plan.share_high[i]:.2f}", ha="center", fontsize="small")
    axes.set(xticks=place, xticklabels=instance.apps.ids, ylabel="GPUs")
