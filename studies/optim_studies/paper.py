"""The evaluation of the paper as a suite, with its plots.

F1, F2, F3  total utility against the number of jobs, the horizon, and the share of time-critical jobs: three
            sweeps that share a middle instance;
F4          optimum over online on tiny instances, and bound over online on the larger instances of F1;
F5          total utility if U or the lower scale of the prices is wrong by a factor of 2^-3 to 2^3;
F6          completion minus target delay, by class of utility, on the instances with the most jobs;
F7          admission rate, utilisation and decision time.

The baselines decide slot by slot and may let jobs wait; the online rule decides once, on arrival.
Sizes: ``--size``, or ``--jobs --slots --worker-servers --ps-servers`` for the middle instance.

References
----------
Bao, Peng, Wu, Li, "Online Job Scheduling in Distributed Machine Learning Clusters", INFOCOM 2018,
DOI 10.1109/INFOCOM.2018.8486422, evaluation section.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from optim.benchmarks.cases import options_for, solve_or_skip
from optim.benchmarks.records import Record
from optim.benchmarks.report import colours_of, solvers_in
from optim.benchmarks.suite import (
    FULL,
    SMALL,
    AbstractWork,
    BenchRequest,
    BenchSpec,
    Skipped,
    SolveWork,
    Subject,
    register_suite,
)
from optim.core.errors import InvalidOptionError
from optim.core.progress import Progress
from optim.core.solution import Solution
from optim.core.stopping import StoppingCriterion
from optim.models.admission.data import SigmoidUtility
from optim.models.admission.decision import AdmissionPlan
from optim.models.admission.instance import AdmissionInstance
from optim.report.plots import INK, PALETTE, Figure, FigureList, legend_beside, name_rows
from optim.solvers.solve import solvers_of
from optim.workloads.admission.generator import GeneratorOptions, UtilityMix
from optim.workloads.instances import GeneratedSource

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ONLINE = "online"

CLASSES = ("insensitive", "sensitive", "critical")

SWEEPS = {
    "jobs": "number of jobs",
    "slots": "number of slots",
    "critical": "per cent of the jobs that are time-critical",
}
"""Labels of F1, F2 and F3, each of which varies one of them, with their meanings."""

WIDTH = 11.0
"""Width of the widest figures, in inches."""


def draw(records: Sequence[Record]) -> list[Figure]:
    """Return F1 to F7 from the records of `optim_studies.paper`, leaving out those without data."""
    sound = [record for record in records if record.error is None and record.verified]
    gallery = FigureList()
    for figure in (_plot_sweeps, _ratios, _constants, _lateness, _rates, _decisions):
        figure(gallery, sound)
    return gallery


def _of(records: Iterable[Record], figure: str) -> list[Record]:
    return [record for record in records if record.labels.get("figure") == figure]


def _sweep(records: Iterable[Record], name: str) -> list[Record]:
    """Return the records of the sweep of label `name`: their other labels are those of the middle instance."""
    mine = _of(records, "sweep")
    others = [other for other in SWEEPS if other != name]
    middle = {other: Counter(record.labels[other] for record in mine).most_common(1)[0][0] for other in others if mine}
    return [record for record in mine if all(record.labels[other] == middle[other] for other in others)]


def _means(
    records: Iterable[Record], label: str, of: Callable[[Record], float | None]
) -> tuple[list[float], list[float]]:
    """Return ascending values of a label, and means over the records with each value."""
    values: dict[float, list[float]] = {}
    for record in records:
        y = of(record)
        if y is not None:
            values.setdefault(float(record.labels[label]), []).append(y)
    return sorted(values), [float(np.mean(values[x])) for x in sorted(values)]


def _lines(panel: "Axes", records: Sequence[Record], label: str, colours: dict[str, str]) -> None:
    """Draw the objective of each solver against a label, or its bound if it has no objective."""
    for name in solvers_in(records):
        mine = [record for record in records if record.solver == name]
        xs, ys = _means(mine, label, lambda record: record.objective)
        if xs:
            panel.plot(xs, ys, "o-", color=colours[name], label=name, linewidth=1.6, markersize=4)
        else:
            xs, ys = _means(mine, label, lambda record: record.bound)
            panel.plot(xs, ys, "--", color=INK, label=f"bound ({name})", linewidth=1.2)


def _plot_sweeps(gallery: FigureList, records: Sequence[Record]) -> None:
    """Draw F1, F2 and F3."""
    if not _of(records, "sweep"):
        return
    caption = (
        "Means over seeds. The dashed line is an upper bound on every plan. The baselines may keep jobs waiting and "
        "decide again in every slot; the online rule decides on arrival."
    )
    colours, title = colours_of(records), "F1 to F3: total utility"
    with gallery.picture("paper-sweeps", title, caption, WIDTH, 3.6, 1, len(SWEEPS)) as panels:
        for k, (panel, (label, meaning)) in enumerate(zip(panels, SWEEPS.items(), strict=True), start=1):
            _lines(panel, _sweep(records, label), label, colours)
            panel.set_title(f"F{k}", loc="left", fontsize=9.5)
            panel.set_xlabel(meaning)
            panel.set_ylim(bottom=0)
        panels[0].set_ylabel("total utility")
        legend_beside(panels[-1])


def _ratios(gallery: FigureList, records: Sequence[Record]) -> None:
    """Draw F4: optimum over online on tiny instances, bound over online on the larger ones."""
    pairs = {
        "optimum / online, tiny instances": _pairs(_of(records, "tiny"), lambda record: record.objective),
        "LP bound / online, instances of F1 to F3": _pairs(_of(records, "sweep"), lambda record: record.bound),
    }
    if not any(pairs.values()):
        return
    caption = (
        "The dashed line is the median. The optimum is the best plan found by the exact solver within its time; "
        "the LP bound is at least the optimum, so that ratio overstates the loss."
    )
    with gallery.picture("paper-ratios", "F4: cost of deciding online", caption, WIDTH, 3.0, 1, 2) as panels:
        for panel, (what, ratios) in zip(panels, pairs.items(), strict=True):
            if ratios:
                edges = np.linspace(1.0, max(1.5, *ratios), 13)
                panel.hist(np.clip(ratios, 1.0, None), bins=edges.tolist(), color=PALETTE[0])
                panel.axvline(float(np.median(ratios)), color=INK, linestyle="--", linewidth=1.2)
            panel.set(xlabel=what, ylabel="instances")


def _pairs(records: Sequence[Record], of: Callable[[Record], float | None]) -> list[float]:
    """Return the best value of the other solvers over the online objective, instance by instance."""
    online = {(r.instance_digest, r.seed): r.objective for r in records if r.solver == ONLINE}
    best: dict[tuple[str, int], float] = {}
    is_bound = any(record.objective is None for record in records)
    for record in records:
        value = of(record)
        if record.solver != ONLINE and value is not None and (record.objective is None or not is_bound):
            key = (record.instance_digest, record.seed)
            best[key] = max(best.get(key, 0.0), value)
    return [best[key] / objective for key, objective in online.items() if key in best and objective]


def _constants(gallery: FigureList, records: Sequence[Record]) -> None:
    """Draw F5: utility against the factor by which a constant of the prices is wrong."""
    mine = _of(records, "constants")
    if not mine:
        return
    series: dict[tuple[str, str], list[Record]] = {}
    for record in mine:
        series.setdefault((record.labels["price"], record.labels["constant"]), []).append(record)
    caption = "U, or the scale at which prices begin (L or lambda), is wrong by the factor; at 1 it is known exactly."
    with gallery.picture("paper-constants", "F5: wrong constants", caption, WIDTH, 3.0) as (panel,):
        for which, colour in zip(sorted(series), PALETTE, strict=False):
            xs, ys = _means(series[which], "factor", lambda record: record.objective)
            panel.plot(xs, ys, "o-", color=colour, label=", ".join(which), linewidth=1.6, markersize=4)
        panel.set_xscale("log", base=2)
        panel.set_ylim(bottom=0)
        panel.set(xlabel="factor on the constant", ylabel="total utility")
        legend_beside(panel)


def _largest(records: Sequence[Record]) -> list[Record]:
    """Return the records of plans in the sweeps with the most jobs."""
    mine = [record for record in _of(records, "sweep") if record.load is not None and record.objective is not None]
    most = max((record.labels["jobs"] for record in mine), default=0)
    return [record for record in mine if record.labels["jobs"] == most]


def _lateness(gallery: FigureList, records: Sequence[Record]) -> None:
    """Draw F6: the distribution of completion less target, by class."""
    late: dict[tuple[str, str], list[float]] = {}
    for record in _largest(records):
        for kind, slots in (record.load or {}).get("lateness", {}).items():
            late.setdefault((kind, record.solver), []).extend(slots)
    if not _largest(records):
        return
    caption = (
        "Admitted jobs of F1's largest instances, by class of urgency, with their number in brackets. Left of "
        "the dotted line: earlier than the target."
    )
    colours, title = colours_of(_largest(records)), "F6: completion less target delay"
    with gallery.picture("paper-lateness", title, caption, WIDTH, 3.2, 1, len(CLASSES)) as panels:
        for panel, kind in zip(panels, CLASSES, strict=True):
            for name, colour in colours.items():
                if slots := sorted(late.get((kind, name), ())):
                    share = 100.0 * np.arange(1, len(slots) + 1) / len(slots)
                    panel.step(slots, share, where="post", color=colour, label=f"{name} ({len(slots)})")
            panel.axvline(0.0, color=INK, linestyle=":", linewidth=1.0)
            panel.set_title(kind, loc="left", fontsize=9.5)
            panel.set_xlabel("completion less target, slots")
            if panel.get_lines()[1:]:
                panel.legend(loc="lower right", fontsize=7)
        panels[0].set_ylabel("per cent of the admitted")


def _rates(gallery: FigureList, records: Sequence[Record]) -> None:
    """Draw F7: admission rate and utilisation."""
    mine = _largest(records)
    if not mine:
        return
    names = solvers_in(mine)
    caption = "F1's largest instances. Only jobs with positive utility count, and only their resources."
    height, title = 0.9 + 0.32 * len(names), "F7: admission and utilisation"
    with gallery.picture("paper-rates", title, caption, WIDTH, height, 1, 2) as panels:
        for y, name in enumerate(reversed(names)):
            loads = [record.load or {} for record in mine if record.solver == name]
            admitted = 100.0 * float(np.mean([1.0 - load["rejected_jobs"] for load in loads]))
            panels[0].barh(y, admitted, color=PALETTE[0], height=0.62)
            used = [load["worker_utilisation"] for load in loads]
            for resource, colour in zip(used[0], PALETTE, strict=False):
                mean = 100.0 * float(np.mean([share[resource] for share in used]))
                panels[1].plot(mean, y, "o", color=colour, label=resource if y == 0 else None)
        meanings = ("per cent of the jobs admitted", "per cent of the workers' servers used")
        for panel, meaning in zip(panels, meanings, strict=True):
            name_rows(panel, names)
            panel.set(xlim=(0, 100), xlabel=meaning)
        legend_beside(panels[1])


def _decisions(gallery: FigureList, records: Sequence[Record]) -> None:
    """Draw F7: the time of a decision against the number of jobs."""
    mine = [record for record in _sweep(records, "jobs") if record.decision_ms is not None]
    if not mine:
        return
    caption = "The online rule, prices included."
    with gallery.picture("paper-decisions", "F7: time of a decision", caption, WIDTH, 2.8) as (panel,):
        for name, colour in zip(("median", "p99"), PALETTE, strict=False):
            xs, ys = _means(mine, "jobs", lambda record, name=name: (record.decision_ms or {}).get(name))  # type: ignore[misc]
            panel.plot(xs, ys, "o-", color=colour, label=name, linewidth=1.6, markersize=4)
        panel.set_ylim(bottom=0)
        panel.set(xlabel="number of jobs", ylabel="milliseconds per arrival")
        panel.legend()


PROBLEM = "admission"

BOUND = "column-generation"

RIVALS = ("online", "fifo", "drf", "rrh", "dorm", BOUND)
"""Compared solvers in F1 to F3, and the solver of the upper bound."""

EXACT = ("branch-and-price", "compact-milp")
"""Solvers for the optimum of tiny instances; the first available one is used."""

BOUND_TOL = 1e-2
"""Relative gap at which the LP counts as solved; in the figures it is less than the width of a line."""

TINY = GeneratorOptions(num_jobs=10, num_slots=8, num_worker_servers=2, num_ps_servers=2)
"""Instances of F4: small enough to be solved exactly."""

SCALES = tuple(2.0**power for power in range(-3, 4))
"""Factors on the price constants in F5."""

CRITICAL_FROM = 2.0
"""Minimum theta2 of a time-critical job; the paper's classes have 0, up to 1, and at least 4."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperSize:
    """Size of the evaluation.

    Parameters
    ----------
    middle
        Options of the middle instance, which all sweeps share.
    job_factors, slot_factors
        Steps of F1 and F2, as factors on the middle instance's numbers of jobs and slots.
    critical_shares
        Steps of F3: per cent of the jobs that are time-critical; a tenth is insensitive.
    num_tiny
        Number of tiny instances in F4 per seed.
    time_limit_s
        Limit of one solve in seconds.
    options
        Options by solver that differ from the solver's defaults.
    """

    middle: GeneratorOptions
    job_factors: tuple[float, ...]
    slot_factors: tuple[float, ...]
    critical_shares: tuple[int, ...]
    num_tiny: int
    time_limit_s: float
    options: Mapping[str, Mapping[str, Any]]


SIZES: Mapping[str, PaperSize] = MappingProxyType(
    {
        SMALL: PaperSize(
            middle=GeneratorOptions(num_jobs=30, num_slots=24, num_worker_servers=20, num_ps_servers=20),
            job_factors=(0.5, 1.0, 2.0),
            slot_factors=(0.5, 1.0, 2.0),
            critical_shares=(0, 35, 70),
            num_tiny=6,
            time_limit_s=5.0,
            options={BOUND: {"tol": BOUND_TOL}, "dorm": {"relative_gap": 0.1, "max_waiting": 5}},
        ),
        FULL: PaperSize(
            middle=GeneratorOptions(num_jobs=200, num_slots=100, num_worker_servers=50, num_ps_servers=50),
            job_factors=(0.25, 0.5, 0.75, 1.0, 1.25, 1.5),
            slot_factors=(1.0, 1.5, 2.0, 2.5, 3.0),
            critical_shares=(0, 15, 35, 55, 75, 90),
            num_tiny=60,
            time_limit_s=60.0,
            options={BOUND: {"tol": BOUND_TOL}},
        ),
    }
)


@dataclass(frozen=True, kw_only=True)
class PaperWork(SolveWork):
    """Solve an instance, and record each job class's lateness relative to its target."""

    def attempt(self, stop: StoppingCriterion, progress: Progress) -> tuple[Solution, Record]:
        """Solve and verify; the record's load includes the lateness."""
        solution, record = super().attempt(stop, progress)
        if record.load is None or solution.decision is None:
            return solution, record
        late = lateness(self.subject.instance, solution.decision)
        return solution, replace(record, load={**record.load, "lateness": late})


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One point of a figure: an instance, its solver and options, and its labels."""

    source: GeneratedSource
    seed: int
    solvers: tuple[str, ...]
    labels: Mapping[str, Any]
    options: Mapping[str, Any] = field(default_factory=dict)


def lateness(instance: AdmissionInstance, plan: AdmissionPlan) -> dict[str, list[float]]:
    """Return completion minus arrival minus target delay of the admitted jobs, in slots, by class of utility."""
    result: dict[str, list[float]] = {"insensitive": [], "sensitive": [], "critical": []}
    for job, completion in zip(plan.admitted.tolist(), plan.completion.tolist(), strict=True):
        utility = instance.jobs.utilities[job]
        if isinstance(utility, SigmoidUtility):
            result[utility_class(utility)].append(completion - int(instance.jobs.arrival[job]) - utility.theta3)
    return result


def utility_class(utility: SigmoidUtility) -> str:
    """Return the paper's class of a utility by its urgency."""
    if utility.theta2 == 0:
        return "insensitive"
    return "critical" if utility.theta2 >= CRITICAL_FROM else "sensitive"


def build(request: BenchRequest) -> Iterator[AbstractWork | Skipped]:
    """Yield the work of all figures.

    Raises
    ------
    InvalidOptionError
        If a solver or an option is unknown, or an instance is given that isn't generated.
    """
    size = _size(request)
    subjects: dict[tuple[GeneratorOptions, int], Subject] = {}
    limit = size.time_limit_s if request.time_limit_s is None else request.time_limit_s
    for point in _points(size, request.seeds):
        names = [name for name in point.solvers if request.solvers is None or name in request.solvers]
        options = options_for(PROBLEM, request.solvers or RIVALS, request.options)
        key = (point.source.options, point.seed)
        if names and key not in subjects:
            subjects[key] = Subject(point.source.load(point.seed))
        for name in names:
            yield solve_or_skip(
                PaperWork,
                suite=SPEC.name,
                subject=subjects[key],
                solver=name,
                seed=point.seed,
                time_limit_s=limit,
                options={**size.options.get(name, {}), **options.get(name, {}), **point.options},
                labels=point.labels,
            )


def _size(request: BenchRequest) -> PaperSize:
    """Return the requested size, around the user's generated instance if there is one."""
    size = SIZES[request.size]
    if request.sources is None:
        return size
    if len(request.sources) != 1 or not isinstance(request.sources[0], GeneratedSource):
        raise InvalidOptionError(
            "suite 'paper' varies a generated instance; give its sizes (such as --jobs) instead of files or traces"
        )
    return replace(size, middle=request.sources[0].options)


def _points(size: PaperSize, seeds: tuple[int, ...]) -> Iterator[Point]:
    for seed in seeds:
        yield from _sweeps(size, seed)
        yield from _tiny(size, seed)
        yield from _wrong_constants(size, seed)


def _sweeps(size: PaperSize, seed: int) -> Iterator[Point]:
    """Yield the points of F1, F2 and F3; the middle instance belongs to all three and is yielded once."""
    middle = size.middle
    steps = [replace(middle, num_jobs=max(1, round(factor * middle.num_jobs))) for factor in size.job_factors]
    steps += [replace(middle, num_slots=max(1, round(factor * middle.num_slots))) for factor in size.slot_factors]
    steps += [replace(middle, utilities=_mix(share)) for share in size.critical_shares]
    for options in dict.fromkeys(steps):
        labels = {
            "figure": "sweep",
            "jobs": options.num_jobs,
            "slots": options.num_slots,
            "critical": round(100 * options.utilities.critical / _weight(options.utilities), 3),
        }
        yield Point(source=GeneratedSource(options=options), seed=seed, solvers=RIVALS, labels=labels)


def _mix(critical: int) -> UtilityMix:
    """Return a mix with a given percentage of time-critical jobs and, as in the paper, 10 % insensitive jobs."""
    return UtilityMix(insensitive=10.0, sensitive=90.0 - critical, critical=float(critical))


def _weight(mix: UtilityMix) -> float:
    return mix.insensitive + mix.sensitive + mix.critical


def _tiny(size: PaperSize, seed: int) -> Iterator[Point]:
    """Yield the points of F4."""
    known = {solver.name for solver in solvers_of(PROBLEM)}
    exact = next(name for name in EXACT if name in known)
    source = GeneratedSource(options=TINY)
    for k in range(size.num_tiny):
        yield Point(source=source, seed=seed * size.num_tiny + k, solvers=("online", exact), labels={"figure": "tiny"})


def _wrong_constants(size: PaperSize, seed: int) -> Iterator[Point]:
    """Yield the points of F5."""
    source = GeneratedSource(options=size.middle)
    for price in ("zero-start", "exponential"):
        for name, constant in (("upper_scale", "U"), ("lower_scale", "lower scale")):
            for scale in SCALES:
                yield Point(
                    source=source,
                    seed=seed,
                    solvers=("online",),
                    labels={"figure": "constants", "price": price, "constant": constant, "factor": scale},
                    options={"price": price, name: scale},
                )


SPEC = register_suite(
    BenchSpec(
        name="paper",
        problem=PROBLEM,
        summary="the paper's evaluation: utility against jobs, slots and urgency, optimum over online, wrong constants",
        build=build,
        sizes=(SMALL, FULL),
        takes_instances=True,
        columns=("figure", "jobs", "slots", "critical", "constant", "factor"),
        figures=draw,
    )
)
