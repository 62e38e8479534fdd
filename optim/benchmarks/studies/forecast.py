"""What learned prices earn of what was possible: against days of history, wrong forecasts and load, with and without the guard."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from optim.core.driver import Monitor
from optim.core.errors import InvalidOptionError
from optim.core.ranges import check_in
from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.learned.forecast import PriceForecast
from optim.solvers.admission.online_learned import OnlineLearnedOptions, run_day
from optim.solvers.solve import solve
from optim.workloads.admission.generator import GeneratorOptions, generate

AXES = ("days", "error", "load")
"""What is varied: days of history, the factor by which prices are wrong, and jobs a server."""

USUAL_DAYS = 4
"""Days of history where errors and loads are studied."""

TOL = 1e-2
"""Relative gap of the forecasts' LPs and of the bounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastStudyOptions:
    """Options of the study `forecast`.

    Parameters
    ----------
    jobs, slots, servers
        Size of a day; as many PS hosts as worker servers.
    days
        Most days of history: 0, 1, 2, 4, ... up to it.
    decades
        Prices are wrong by up to so many powers of ten in either direction.
    moves
        Moves in each slot, `replan` of `online-learned`.
    guard
        The guard's share of the servers where it is on.
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
    """One point of a curve: where it lies, the shares of the day's bound earned without and with the guard, and the paper's."""

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
    """Draw a day, and earlier days of jobs of the same kind on its servers."""
    size = GeneratorOptions(
        num_jobs=options.jobs,
        num_slots=options.slots,
        num_worker_servers=options.servers,
        num_ps_servers=options.servers,
    )
    today, *past = (generate(size, 1000 * seed + k) for k in range(num_days + 1))
    return today, [replace(day, worker_servers=today.worker_servers, ps_servers=today.ps_servers) for day in past]


def scaled(known: PriceForecast, factor: float) -> PriceForecast:
    """Return a forecast whose prices are wrong by a factor."""
    return replace(known, worker_price=factor * known.worker_price, ps_price=factor * known.ps_price)


def measured(options: ForecastStudyOptions, x: float, today: AdmissionInstance, known: PriceForecast | None) -> Point:
    """Live through the day and set what was earned against the day's bound."""
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
