"""Plots of instances and solutions with matplotlib, for notebooks and papers.

Each function draws on `axes`, or on a new figure, and returns the figure. The extra ``plot`` installs matplotlib:
``pip install 'mlcluster-optim[plot]'``.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from optim.core.errors import NotAllowedError
from optim.core.optional import import_extra
from optim.core.solution import Solution
from optim.core.text import keep_texts_plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from optim.models.admission.instance import AdmissionInstance
    from optim.models.auction.instance import AuctionInstance
    from optim.models.bidding.instance import BiddingInstance
    from optim.simulation.spot.deadline_policy import DeadlinePolicy

__all__ = ["allocation", "bids", "footprint", "gantt", "payments", "prices", "switching"]


def __dir__() -> list[str]:
    return __all__


MAX_ROWS = 40
"""Largest number of jobs or bids in a plot."""


def gantt(instance: "AdmissionInstance", solution: Solution, *, axes: "Axes | None" = None) -> "Figure":
    """Draw the schedule: one row per admitted job, labelled with its number of workers wherever it changes.

    Parameters
    ----------
    instance, solution
        An admission instance, and a solution of it that has a plan.
    axes
        Axes for the plot; default: a new figure.

    Raises
    ------
    NotAllowedError
        If the solution has no plan.
    MissingDependencyError
        If matplotlib isn't installed.

    Examples
    --------
    >>> import optim
    >>> instance = optim.reference_instance("tiny-0")
    >>> figure = optim.plot.gantt(instance, optim.solve(instance, "online"))
    >>> figure.axes[0].get_xlabel()
    'slot'
    """
    plan = _decision(solution)
    panel = _panel(axes, 0.3 * min(len(plan.admitted), MAX_ROWS) + 1.2)
    shown = plan.admitted[:MAX_ROWS].tolist()
    workers = np.zeros((instance.num_jobs, instance.horizon), dtype=np.int64)
    np.add.at(workers, (plan.workers[:, 0], plan.workers[:, 1]), plan.workers[:, 3])
    most = max(int(workers.max(initial=1)), 1)
    for row, job in enumerate(shown):
        changes = np.flatnonzero(np.diff(workers[job], prepend=0, append=0))
        for begin, end in zip(changes[:-1].tolist(), changes[1:].tolist(), strict=True):
            count = int(workers[job, begin])
            if count:
                panel.barh(row, end - begin, 0.8, left=begin, color="#2f74b5", alpha=0.3 + 0.7 * count / most)
                panel.text((begin + end) / 2, row, str(count), ha="center", va="center", fontsize="x-small")
        panel.plot(int(instance.jobs.arrival[job]), row, "|", color="black")
    panel.set_yticks(range(len(shown)), [instance.jobs.ids[job] for job in shown])
    panel.set(xlabel="slot", xlim=(0, instance.horizon), title=f"{instance.name}: workers by job (ticks: arrivals)")
    panel.invert_yaxis()
    return _figure_of(panel)


def prices(instance: "AdmissionInstance") -> "Figure":
    """Run the online algorithm, and draw the jobs' values and costs above the prices of all servers over time.

    Raises
    ------
    MissingDependencyError
        If matplotlib isn't installed.

    Examples
    --------
    >>> import optim
    >>> len(optim.plot.prices(optim.reference_instance("tiny-0")).axes)
    4
    """
    import_extra("matplotlib", "a picture")
    from optim.report.admission import draw_run, watch

    return draw_run(instance, watch(instance))


def bids(instance: "AuctionInstance", *, axes: "Axes | None" = None) -> "Figure":
    """Draw each app's bids by number of GPUs, one line per locality, relative to an empty allocation.

    Raises
    ------
    MissingDependencyError
        If matplotlib isn't installed.

    Examples
    --------
    >>> import optim
    >>> figure = optim.plot.bids(optim.reference_instance("auction-tiny-0"))
    >>> figure.axes[0].get_xlabel()
    'GPUs'
    """
    panel = _panel(axes, 3.6)
    from optim.report.auction import draw_bids

    draw_bids(panel, instance)
    return _figure_of(panel)


def allocation(instance: "AuctionInstance", solution: Solution, *, axes: "Axes | None" = None) -> "Figure":
    """Draw each offered GPU by machine: filled if an app keeps it, hatched if forfeited as payment, grey if idle.

    Raises
    ------
    NotAllowedError
        If the solution has no plan.
    MissingDependencyError
        If matplotlib isn't installed.

    Examples
    --------
    >>> import optim
    >>> instance = optim.reference_instance("auction-tiny-0")
    >>> figure = optim.plot.allocation(instance, optim.solve(instance, "exact"))
    >>> figure.axes[0].get_ylabel()
    'machine'
    """
    plan = _decision(solution)
    panel = _panel(axes, 0.35 * instance.cluster.num_machines + 1.2)
    from optim.report.auction import draw_cluster

    draw_cluster(panel, instance, plan)
    return _figure_of(panel)


def payments(instance: "AuctionInstance", solution: Solution, *, axes: "Axes | None" = None) -> "Figure":
    """Draw the numbers of GPUs that each app is awarded and keeps.

    Raises
    ------
    NotAllowedError
        If the solution has no plan.
    MissingDependencyError
        If matplotlib isn't installed.

    Examples
    --------
    >>> import optim
    >>> instance = optim.reference_instance("auction-tiny-0")
    >>> figure = optim.plot.payments(instance, optim.solve(instance, "exact"))
    >>> figure.axes[0].get_ylabel()
    'GPUs'
    """
    plan = _decision(solution)
    panel = _panel(axes, 3.6)
    from optim.report.auction import draw_payments

    draw_payments(panel, instance, plan)
    return _figure_of(panel)


def footprint(instance: "BiddingInstance", solution: Solution, *, axes: "Axes | None" = None) -> "Figure":
    """Draw the number of instances per bid, labelled with market and dollars above the present price.

    Raises
    ------
    NotAllowedError
        If the solution has no footprint.
    MissingDependencyError
        If matplotlib isn't installed.

    Examples
    --------
    >>> import optim
    >>> instance = optim.reference_instance("spot-hour-0")
    >>> figure = optim.plot.footprint(instance, optim.solve(instance, "greedy"))
    >>> figure.axes[0].get_xlabel()
    'instances'
    """
    table = _decision(solution).columns(instance)
    names = [
        f"{market} +{delta:g} $" for market, delta in zip(table["market"], table["delta_usd"].tolist(), strict=True)
    ][:MAX_ROWS]
    panel = _panel(axes, 0.3 * len(names) + 1.2)
    panel.barh(range(len(names)), table["count"][:MAX_ROWS], color="#2f74b5")
    panel.set_yticks(range(len(names)), names)
    panel.set(xlabel="instances", title=f"{instance.name}: footprint")
    panel.invert_yaxis()
    return _figure_of(panel)


def _decision(solution: Solution) -> Any:
    if solution.decision is None:
        raise NotAllowedError(f"solver {solution.solver!r} found no decision to draw; see the solution's termination")
    return solution.decision


def switching(policy: "DeadlinePolicy") -> "Figure":
    """Draw a deadline policy's decisions without machines, by time and remaining work, for new, hours-old and absent spot machines.

    Raises
    ------
    MissingDependencyError
        If matplotlib isn't installed.

    Examples
    --------
    >>> from optim.deadlines import DeadlinePolicy
    >>> rule = DeadlinePolicy.fit(
    ...     [], work_s=36_000, deadline_s=43_200, setup_s=600, spot_usd=0.9, on_demand_usd=3.0
    ... )
    >>> [axes.get_title() for axes in switching(rule).axes]
    ['machines for 0 h', 'machines for 4 h', 'none for 0 h']
    """
    figure = import_extra("matplotlib.figure", "a picture").Figure
    from optim.report.deadlines import draw_switching

    drawn: Figure = figure(figsize=(11.0, 3.8), layout="constrained")
    panels = drawn.subplots(1, 3, sharey=True)
    for panel, is_available, spell_s in zip(panels, (True, True, False), (0.0, 14_400.0, 0.0), strict=True):
        draw_switching(panel, policy, is_available=is_available, spell_s=spell_s)
    panels[0].legend(frameon=False, fontsize="small", loc="lower left")
    return drawn


def _panel(axes: "Axes | None", height: float) -> "Axes":
    """Return the axes given, or those of a new figure; it belongs to no window."""
    if axes is not None:
        return axes
    figure = import_extra("matplotlib.figure", "a picture").Figure
    panel: Axes = figure(figsize=(8.0, height), layout="constrained").subplots()
    return panel


def _figure_of(panel: "Axes") -> "Figure":
    figure = panel.get_figure(root=True)
    if figure is None:
        raise NotAllowedError("these axes no longer belong to a figure; give other axes")
    keep_texts_plain(panel)
    return figure
