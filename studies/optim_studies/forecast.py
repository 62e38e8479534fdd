"""The study `forecast`: utility with learned prices, by days of history, price error and load."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from optim.benchmarks.records import Record
from optim.benchmarks.study import AbstractStudy, Finding, StudySubject, register_study
from optim.benchmarks.suite import FULL, SMALL
from optim.core.driver import Monitor, PhaseClock
from optim.core.errors import InvalidOptionError, check_in
from optim.core.options import options_as_dict
from optim.core.progress import Progress
from optim.core.stopping import StoppingCriterion
from optim.models.admission.instance import AdmissionInstance
from optim.report.plots import INK, PALETTE, Figure, FigureList, legend_beside
from optim.solvers.admission.online_learned import OnlineLearnedOptions, run_day
from optim.solvers.admission.posted_prices.forecast import PriceForecast
from optim.solvers.solve import solve
from optim.workloads.admission.generator import GeneratorOptions, generate

AXES = ("days", "error", "load")
"""Varied quantities: days of history, the error factor of prices, and jobs per server."""

USUAL_DAYS = 4
"""Days of history in the rows that vary errors and loads."""

TOL = 1e-2
"""Relative gap of the forecasts' LPs and of the bounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastStudyOptions:
    """Options of the study `forecast`.

    Parameters
    ----------
    jobs, slots, servers
        Size of a day's instance; it has as many PS hosts as worker servers.
    days
        Maximum number of days of history; the study uses 0, 1, 2, 4, ... up to it.
    decades
        Maximum error of prices, in powers of ten in either direction.
    moves
        Moves per slot: the option `replan` of `online-learned`.
    guard
        The guard's share of the servers, in runs with a guard.
    """

    jobs: int = 40
    slots: int = 24
    servers: int = 5
    days: int = 4
    decades: int = 1
    moves: int = 10
    guard: float = 0.5

    def __post_init__(self) -> None:
        check_in("[1, inf)", self, "jobs", "slots", "servers", "days", "decades")
        check_in("[0, inf)", self, "moves")
        check_in("(0, 1]", self, "guard")
        if self.days & (self.days - 1):
            raise InvalidOptionError(f"days must be a power of two, got {self.days}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One point of a curve: x, and utility as a share of the day's bound without guard, with guard, and by the paper's rule."""

    x: float
    unguarded: float
    guarded: float | None
    paper: float


def curve(options: ForecastStudyOptions, axis: str, seed: int) -> Iterator[Point]:
    """Yield the points along an axis."""
    if axis == "load":
        for servers in (2 * options.servers, options.servers, max(1, options.servers // 2)):
            today, past = draw(replace(options, servers=servers), USUAL_DAYS, seed)
            yield measured(options, options.jobs / servers, today, PriceForecast.fit(past, today, tol=TOL))
        return
    if axis == "error":
        today, past = draw(options, USUAL_DAYS, seed)
        known = PriceForecast.fit(past, today, tol=TOL)
        for factor in np.logspace(-options.decades, options.decades, 2 * options.decades + 1).tolist():
            yield measured(options, factor, today, scaled(known, factor))
        return
    today, past = draw(options, options.days, seed)
    yield measured(options, 0, today, None)
    count = 1
    while count <= options.days:
        yield measured(options, count, today, PriceForecast.fit(past[:count], today, tol=TOL))
        count *= 2


def draw(options: ForecastStudyOptions, num_days: int, seed: int) -> tuple[AdmissionInstance, list[AdmissionInstance]]:
    """Draw today's instance, and instances of earlier days with jobs from the same distribution and the same servers."""
    size = GeneratorOptions(
        num_jobs=options.jobs,
        num_slots=options.slots,
        num_worker_servers=options.servers,
        num_ps_servers=options.servers,
    )
    today, *past = (generate(size, 1000 * seed + k) for k in range(num_days + 1))
    return today, [replace(day, worker_servers=today.worker_servers, ps_servers=today.ps_servers) for day in past]


def scaled(known: PriceForecast, factor: float) -> PriceForecast:
    """Return a forecast with prices multiplied by a factor."""
    return replace(known, worker_price=factor * known.worker_price, ps_price=factor * known.ps_price)


def measured(options: ForecastStudyOptions, x: float, today: AdmissionInstance, known: PriceForecast | None) -> Point:
    """Run the day and return the utilities relative to the day's upper bound."""
    bound = solve(today, "column-generation", options={"tol": TOL}).bound or 0.0
    history = "" if known is None else "given"

    def earned(**further: float) -> float:
        chosen = OnlineLearnedOptions(history=history, replan=options.moves, **further)  # type: ignore[arg-type]
        return float(run_day(today, known, chosen, Monitor()).objective or 0.0) / bound

    return Point(
        x=x,
        unguarded=earned(),
        guarded=None if known is None else earned(guard=options.guard),
        paper=float(solve(today, "online").objective or 0.0) / bound,
    )


def as_findings(points: list[Point]) -> Mapping[str, list[float | None]]:
    """Return points as lists by name."""
    names = ("x", "unguarded", "guarded", "paper")
    return {name: [getattr(point, name) for point in points] for name in names}


PLOT_AXES = {"days": "days of history", "error": "error factor of prices", "load": "jobs per server"}
"""Axis labels, in the order of the panels."""

LINES = {
    "unguarded": ("no guard", PALETTE[0], "o-"),
    "guarded": ("guard", PALETTE[1], "s-"),
    "paper": ("paper's rule", INK, "--"),
}
"""Findings that are drawn: name in the legend, colour, style."""

WIDTH = 11.0
"""Inches."""


def plot_forecast(records: Sequence[Record]) -> list[Figure]:
    """Draw utility as a share of the bound along each axis, as means over seeds."""
    sound = [record for record in records if record.error is None and record.verified]
    gallery = FigureList()
    if not sound:
        return gallery
    caption = (
        "Means over seeds. A share of 1 is the upper bound of the day's packing LP. Without a history "
        "there is no guard, since its constants come from the history."
    )
    title = "Utility with learned prices, as a share of the bound"
    with gallery.picture("forecast", title, caption, WIDTH, 3.4, 1, len(PLOT_AXES)) as panels:
        for panel, (axis, meaning) in zip(panels, PLOT_AXES.items(), strict=True):
            mine = [record.findings for record in sound if record.labels.get("axis") == axis]
            for name, (label, colour, style) in LINES.items():
                xs, ys = _mean_curve([(findings["x"], findings[name]) for findings in mine])
                panel.plot(xs, ys, style, color=colour, label=label, linewidth=1.6, markersize=4)
            panel.set_xlabel(meaning)
            panel.set_ylim(0, 1)
            if axis == "error":
                panel.set_xscale("log")
        panels[0].set_ylabel("share of the bound")
        legend_beside(panels[-1])
    return gallery


def _mean_curve(curves: Sequence[tuple[list[float], list[float | None]]]) -> tuple[list[float], list[float]]:
    """Return sorted abscissas and the mean of the known ordinates at each."""
    values: dict[float, list[float]] = {}
    for xs, ys in curves:
        for x, y in zip(xs, ys, strict=True):
            if y is not None:
                values.setdefault(x, []).append(y)
    return sorted(values), [float(np.mean(values[x])) for x in sorted(values)]


SIZES: Mapping[str, ForecastStudyOptions] = MappingProxyType(
    {
        SMALL: ForecastStudyOptions(),
        FULL: ForecastStudyOptions(jobs=100, slots=48, servers=12, days=16, decades=2, moves=40),
    }
)


@dataclass(frozen=True, kw_only=True)
class ForecastWork(AbstractStudy):
    """Measure one curve; the label names its axis."""

    options_type = ForecastStudyOptions
    is_stoppable = False

    def measure(self, stop: StoppingCriterion, progress: Progress) -> Finding:
        """Measure the points of the curve."""
        del stop
        axis, clock = str(self.labels["axis"]), PhaseClock()
        progress.start(f"learned prices against {axis}", None)
        with clock.phase("solve"):
            points = list(curve(self.chosen, axis, self.seed))
        progress.finish()
        wrong = [
            f"{axis} = {point.x:g}: the utility exceeds the bound"
            for point in points
            for share in (point.unguarded, point.guarded, point.paper)
            if share is not None and share > 1 + 1e-9
        ]
        return Finding(findings=as_findings(points), seconds=clock.seconds, problems=wrong, iterations=len(points))


def _subjects(options: ForecastStudyOptions, seed: int) -> Iterator[tuple[StudySubject, Mapping[str, Any]]]:
    sizes = {"jobs": options.jobs, "slots": options.slots, "servers": options.servers}
    for axis in AXES:
        name = f"days-{options.jobs}-{options.slots}-{options.servers}-{seed}"
        drawn_from = options_as_dict(options)
        yield StudySubject(name=name, topic="admission", drawn_from=drawn_from, parameters=sizes), {"axis": axis}


SPEC = register_study(
    "forecast",
    "admission",
    "share of the bound that learned prices earn, by days of history, forecast errors and load, with and without guard",
    kind=ForecastWork,
    sizes=SIZES,
    subjects=_subjects,
    ways=("online-learned",),
    others="the study runs online-learned and the paper's rule itself",
    columns=("axis", "x", "unguarded", "guarded", "paper"),
    figures=plot_forecast,
)
