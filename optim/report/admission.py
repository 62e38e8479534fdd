"""One picture of an online run: arrivals, decisions and prices."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from optim.core.arrays import FloatArray
from optim.models.admission.data import MICRO
from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.online import OnlineOptions, make_bounds, make_function
from optim.solvers.admission.posted_prices.online_run import OnlineAlgorithm, OnlineRun
from optim.solvers.admission.pricing.servers import FoundSchedule, ResidualSearch, ServerSide

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure

ADMITTED, REFUSED, LATE = "#2166ac", "#c4404f", "#777777"
"""Colours of jobs by outcome; markers distinguish the outcomes in greyscale."""

PRICE_RANGE = 1e3
"""Ratio of the highest to the lowest price on the colour scale; lower prices get the lowest colour."""

CHEAPEST = 1e-2
"""Lowest cost on the logarithmic axis, in utility units; the first jobs cost almost nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """The price of a job's schedule on arrival.

    Parameters
    ----------
    job, arrival
        Index of the job, and slot of its arrival.
    is_admitted
        Whether the job was admitted.
    value, cost
        Value and cost of the admitted schedule. For a rejected job, value and cost of the schedule that maximises value minus
        cost on empty servers at the current prices. NaN if no schedule ends in time.
    """

    job: int
    arrival: int
    is_admitted: bool
    value: float
    cost: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WatchedRun:
    """An online run, with one offer per decision, in the order of the decisions."""

    run: OnlineRun
    offers: tuple[Offer, ...]


def watch(instance: AdmissionInstance, options: OnlineOptions | None = None, seed: int = 0) -> WatchedRun:
    """Run the online algorithm, and record the price of every job's best schedule, also for rejected jobs.

    Parameters
    ----------
    instance
        The cluster and the jobs.
    options
        Options of `online`; None for the defaults.
    seed
        Seed for options that sample jobs.

    Examples
    --------
    >>> import optim
    >>> instance = optim.reference_instance("tiny-0")
    >>> watched = watch(instance)
    >>> watched.run.plan.objective(instance) == optim.solve(instance, "online").objective
    True
    """
    chosen = OnlineOptions() if options is None else options
    bounds = make_bounds(instance, chosen, np.random.default_rng(seed))
    algorithm = OnlineAlgorithm(instance, bounds=bounds, function=make_function(instance, chosen))
    empty_servers = ResidualSearch(instance, is_residual_checked=False)
    offers = []
    for job in algorithm.order:
        asked: FoundSchedule | None = empty_servers.find(job, algorithm.state, -np.inf)
        algorithm.step()
        made = algorithm.decisions[-1]
        shown = made.schedule if made.is_accepted else asked
        offers.append(
            Offer(
                job=job,
                arrival=int(instance.jobs.arrival[job]),
                is_admitted=made.is_accepted,
                value=np.nan if shown is None else shown.value,
                cost=np.nan if shown is None else shown.cost,
            )
        )
    return WatchedRun(run=algorithm.finish(None), offers=tuple(offers))


def server_prices(side: ServerSide) -> FloatArray:
    """Return the price of each complete server per slot in utility units, shape (servers, slots)."""
    return np.asarray(np.einsum("trs,trs->st", side.price, side.capacity)) / MICRO


def draw_run(instance: AdmissionInstance, watched: WatchedRun) -> "Figure":
    """Draw the value and cost of each arriving job, and below them the final prices of all servers over time.

    Jobs that arrive after a slot don't change the slot's price, so its final price was in force during the slot.
    """
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure as NewFigure

    sides = watched.run.state.sides
    prices = [server_prices(side) for side in sides]
    highest = max((float(price.max(initial=0.0)) for price in prices), default=0.0) or 1.0
    norm = LogNorm(vmin=highest / PRICE_RANGE, vmax=highest, clip=True)
    figure = NewFigure(figsize=(9.0, 3.4 + 1.7 * len(sides)), dpi=110, layout="constrained")
    rows = figure.subplots(
        1 + len(sides), 1, sharex=True, squeeze=False, gridspec_kw={"height_ratios": [1.7] + [1.0] * len(sides)}
    )[:, 0]
    _draw_offers(rows[0], instance, watched)
    names = ["server"] if len(sides) == 1 else ["worker server", "PS server"]
    for axes, price, name in zip(rows[1:], prices, names, strict=True):
        mesh = _draw_prices(axes, price, name, norm)
    bar = figure.colorbar(mesh, ax=list(rows[1:]), extend="min", pad=0.01)
    bar.set_label("price of a complete server\nper slot (utility units)")
    rows[-1].set_xlabel(f"time (slots of {instance.slot_micro_s / MICRO / 60:g} minutes)")
    return figure


def _draw_prices(axes: "Axes", price: FloatArray, name: str, norm: "LogNorm") -> "QuadMesh":
    """Draw a heat map of the prices of worker or PS servers; the server with the highest prices is at the bottom."""
    from matplotlib.ticker import MaxNLocator

    order = np.argsort(-price.sum(axis=1), kind="stable")
    floor = np.maximum(price[order], float(norm.vmin or 0.0))
    mesh = axes.pcolormesh(np.arange(price.shape[1] + 1), np.arange(len(price) + 1), floor, norm=norm, cmap="YlOrBr")
    axes.set_ylabel(f"{name}\n(highest price first)")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    return mesh


def _draw_offers(axes: "Axes", instance: AdmissionInstance, watched: WatchedRun) -> None:
    """Draw each job as a line from the cost to the value of its best schedule."""
    place = _places(watched.offers)
    value = np.array([offer.value for offer in watched.offers])
    cost = np.maximum(CHEAPEST, np.array([offer.cost for offer in watched.offers]))
    admitted = np.array([offer.is_admitted for offer in watched.offers], dtype=bool)
    known = np.isfinite(value)
    for chosen, colour, marker, label in (
        (admitted, ADMITTED, "o", "admitted: value above cost"),
        (~admitted & known & (cost >= value), REFUSED, "X", "rejected: cost above value"),
        (~admitted & known & (cost < value), LATE, "s", "rejected: no capacity left"),
    ):
        if chosen.any():
            axes.vlines(place[chosen], cost[chosen], value[chosen], color=colour, linewidth=1.1, alpha=0.6)
            axes.plot(place[chosen], value[chosen], marker, color=colour, ms=5, label=f"{label} ({chosen.sum()})")
            axes.plot(place[chosen], cost[chosen], "_", color=colour, ms=7)
    if not known.all():
        least = np.full(int((~known).sum()), CHEAPEST)
        label = f"rejected: cannot end in time ({(~known).sum()})"
        axes.plot(place[~known], least, "v", color=LATE, ms=5, label=label)
    axes.set(
        yscale="log", xlim=(0, instance.horizon), ylabel="value (marker) and\ncost (dash) of a job (utility units)"
    )
    axes.grid(axis="y", alpha=0.25)
    if watched.offers:
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False, fontsize="small")


def _places(offers: tuple[Offer, ...]) -> FloatArray:
    """Return horizontal positions that spread the jobs of each slot over the slot's width, in the order of decisions."""
    arrival = np.array([offer.arrival for offer in offers], dtype=np.int64)
    first = np.searchsorted(arrival, arrival, side="left")
    number = np.searchsorted(arrival, arrival, side="right") - first
    return np.asarray(arrival + (np.arange(len(arrival)) - first + 0.5) / np.maximum(number, 1))
