"""The pictures of the paper's evaluation, drawn from its records."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from optim.benchmarks.pictures.plots import INK, PALETTE, Gallery, colours_of, legend_beside, name_rows, solvers_in
from optim.benchmarks.record import Record
from optim.benchmarks.spec import Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ONLINE = "online"
CLASSES = ("insensitive", "sensitive", "critical")
SWEEPS = {
    "jobs": "number of jobs",
    "slots": "number of slots",
    "critical": "per cent of the jobs that are time-critical",
}
"""Labels that are swept, one at a time, with what they mean: F1, F2, F3."""

WIDTH = 11.0
"""Width of the widest pictures, in inches."""


def draw(records: Sequence[Record]) -> list[Figure]:
    """Return F1 to F7 from the records of `optim.benchmarks.suites.paper`, leaving out those without data."""
    sound = [record for record in records if record.error is None and record.verified]
    gallery = Gallery()
    for figure in (_sweeps, _ratios, _constants, _lateness, _rates, _decisions):
        figure(gallery, sound)
    return gallery


def _of(records: Iterable[Record], figure: str) -> list[Record]:
    return [record for record in records if record.labels.get("figure") == figure]


def _sweep(records: Iterable[Record], name: str) -> list[Record]:
    """Return the records in which only one label differs from the sweeps' common middle."""
    mine = _of(records, "sweep")
    others = [other for other in SWEEPS if other != name]
    middle = {other: Counter(record.labels[other] for record in mine).most_common(1)[0][0] for other in others if mine}
    return [record for record in mine if all(record.labels[other] == middle[other] for other in others)]


def _means(
    records: Iterable[Record], label: str, of: Callable[[Record], float | None]
) -> tuple[list[float], list[float]]:
    """Return abscissas, ascending, and means over the records there."""
    found: dict[float, list[float]] = {}
    for record in records:
        y = of(record)
        if y is not None:
            found.setdefault(float(record.labels[label]), []).append(y)
    return sorted(found), [float(np.mean(found[x])) for x in sorted(found)]


def _lines(panel: "Axes", records: Sequence[Record], label: str, colours: dict[str, str]) -> None:
    """Draw the objective of each solver against a label, and the bound of those that have no objective."""
    for name in solvers_in(records):
        mine = [record for record in records if record.solver == name]
        xs, ys = _means(mine, label, lambda record: record.objective)
        if xs:
            panel.plot(xs, ys, "o-", color=colours[name], label=name, linewidth=1.6, markersize=4)
        else:
            xs, ys = _means(mine, label, lambda record: record.bound)
            panel.plot(xs, ys, "--", color=INK, label=f"bound ({name})", linewidth=1.2)


def _sweeps(gallery: Gallery, records: Sequence[Record]) -> None:
    """Draw F1, F2 and F3."""
    if not _of(records, "sweep"):
        return
    caption = (
        "Means over seeds. The dashed line bounds every plan from above. The rivals may keep jobs waiting and "
        "decide anew in every slot; the online rule promises or refuses on arrival."
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


def _ratios(gallery: Gallery, records: Sequence[Record]) -> None:
    """Draw F4: optimum over online on tiny instances, bound over online on the larger ones."""
    drawn = {
        "optimum / online, tiny instances": _pairs(_of(records, "tiny"), lambda record: record.objective),
        "LP bound / online, instances of F1 to F3": _pairs(_of(records, "sweep"), lambda record: record.bound),
    }
    if not any(drawn.values()):
        return
    caption = (
        "The dashed line is the median. The optimum is the best plan found by the exact solver within its time; "
        "the LP bound is at least the optimum, so that ratio overstates the loss."
    )
    with gallery.picture("paper-ratios", "F4: what deciding online costs", caption, WIDTH, 3.0, 1, 2) as panels:
        for panel, (what, ratios) in zip(panels, drawn.items(), strict=True):
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


def _constants(gallery: Gallery, records: Sequence[Record]) -> None:
    """Draw F5: utility against the factor by which a constant of the prices is wrong."""
    mine = _of(records, "constants")
    if not mine:
        return
    series: dict[tuple[str, str], list[Record]] = {}
    for record in mine:
        series.setdefault((record.labels["price"], record.labels["constant"]), []).append(record)
    caption = "U, or the scale at which prices begin (L or lambda), is wrong by the factor; 1 is known exactly."
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


def _lateness(gallery: Gallery, records: Sequence[Record]) -> None:
    """Draw F6: the distribution of completion less target, by class."""
    late: dict[tuple[str, str], list[float]] = {}
    for record in _largest(records):
        for kind, slots in (record.load or {}).get("lateness", {}).items():
            late.setdefault((kind, record.solver), []).extend(slots)
    if not _largest(records):
        return
    caption = (
        "Admitted jobs of F1's largest instances, by class of urgency; in brackets how many they are. Left of "
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


def _rates(gallery: Gallery, records: Sequence[Record]) -> None:
    """Draw F7: admission rate and utilisation."""
    mine = _largest(records)
    if not mine:
        return
    names = solvers_in(mine)
    caption = "F1's largest instances. A plan counts the jobs that earn something; what others held is left out."
    height, title = 0.9 + 0.32 * len(names), "F7: admission and utilisation"
    with gallery.picture("paper-rates", title, caption, WIDTH, height, 1, 2) as panels:
        for y, name in enumerate(reversed(names)):
            loads = [record.load or {} for record in mine if record.solver == name]
            admitted = 100.0 * float(np.mean([1.0 - load["refused_jobs"] for load in loads]))
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


def _decisions(gallery: Gallery, records: Sequence[Record]) -> None:
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
        panel.set(xlabel="number of jobs", ylabel="milliseconds an arrival")
        panel.legend()
