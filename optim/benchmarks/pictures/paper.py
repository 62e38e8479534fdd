"""The pictures of the paper's evaluation, drawn from its records."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from optim.benchmarks.pictures.plots import INK, PALETTE, as_svg, canvas
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
    drawn = (_sweeps(sound), _ratios(sound), _constants(sound), _lateness(sound), _rates(sound), _decisions(sound))
    return [figure for figure in drawn if figure is not None]


def _of(records: Iterable[Record], figure: str) -> list[Record]:
    return [record for record in records if record.labels.get("figure") == figure]


def _sweep(records: Iterable[Record], name: str) -> list[Record]:
    """Return the records in which only one label differs from the sweeps' common middle."""
    mine = _of(records, "sweep")
    others = [other for other in SWEEPS if other != name]
    middle = {other: Counter(record.labels[other] for record in mine).most_common(1)[0][0] for other in others if mine}
    return [record for record in mine if all(record.labels[other] == middle[other] for other in others)]


def _colours(records: Iterable[Record]) -> dict[str, str]:
    names = sorted({record.solver for record in records})
    return {name: PALETTE[i % len(PALETTE)] for i, name in enumerate(names)}


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
    for name in sorted({record.solver for record in records}):
        mine = [record for record in records if record.solver == name]
        xs, ys = _means(mine, label, lambda record: record.objective)
        if xs:
            panel.plot(xs, ys, "o-", color=colours[name], label=name, linewidth=1.6, markersize=4)
        else:
            xs, ys = _means(mine, label, lambda record: record.bound)
            panel.plot(xs, ys, "--", color=INK, label=f"bound ({name})", linewidth=1.2)


def _sweeps(records: Sequence[Record]) -> Figure | None:
    """Draw F1, F2 and F3."""
    if not _of(records, "sweep"):
        return None
    colours = _colours(records)
    with canvas(WIDTH, 3.6, 1, len(SWEEPS)) as (drawing, panels):
        for k, (panel, (label, meaning)) in enumerate(zip(panels, SWEEPS.items(), strict=True), start=1):
            _lines(panel, _sweep(records, label), label, colours)
            panel.set_title(f"F{k}", loc="left", fontsize=9.5)
            panel.set_xlabel(meaning)
            panel.set_ylim(bottom=0)
        panels[0].set_ylabel("total utility")
        panels[-1].legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
        svg = as_svg(drawing, "paper-sweeps")
    return Figure(
        title="F1 to F3: total utility",
        caption="Means over seeds. The dashed line bounds every plan from above. The rivals may keep jobs waiting and "
        "decide anew in every slot; the online rule promises or refuses on arrival.",
        svg=svg,
    )


def _ratios(records: Sequence[Record]) -> Figure | None:
    """Draw F4: optimum over online on tiny instances, bound over online on the larger ones."""
    tiny = _pairs(_of(records, "tiny"), lambda record: record.objective)
    large = _pairs(_of(records, "sweep"), lambda record: record.bound)
    if not tiny and not large:
        return None
    with canvas(WIDTH, 3.0, 1, 2) as (drawing, panels):
        for panel, ratios, what in (
            (panels[0], tiny, "optimum / online, tiny instances"),
            (panels[1], large, "LP bound / online, instances of F1 to F3"),
        ):
            if ratios:
                edges = np.linspace(1.0, max(1.5, *ratios), 13)
                panel.hist(np.clip(ratios, 1.0, None), bins=edges.tolist(), color=PALETTE[0])
                panel.axvline(float(np.median(ratios)), color=INK, linestyle="--", linewidth=1.2)
            panel.set_xlabel(what)
            panel.set_ylabel("instances")
        svg = as_svg(drawing, "paper-ratios")
    return Figure(
        title="F4: what deciding online costs",
        caption="The dashed line is the median. The optimum is the best plan found by the exact solver within its time; "
        "the LP bound is at least the optimum, so that ratio overstates the loss.",
        svg=svg,
    )


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


def _constants(records: Sequence[Record]) -> Figure | None:
    """Draw F5: utility against the factor by which a constant of the prices is wrong."""
    mine = _of(records, "constants")
    if not mine:
        return None
    with canvas(WIDTH, 3.0) as (drawing, (panel,)):
        series = sorted({(record.labels["price"], record.labels["constant"]) for record in mine})
        for k, which in enumerate(series):
            part = [record for record in mine if (record.labels["price"], record.labels["constant"]) == which]
            xs, ys = _means(part, "factor", lambda record: record.objective)
            panel.plot(xs, ys, "o-", color=PALETTE[k], label=", ".join(which), linewidth=1.6, markersize=4)
        panel.set_xscale("log", base=2)
        panel.set_ylim(bottom=0)
        panel.set_xlabel("factor on the constant")
        panel.set_ylabel("total utility")
        panel.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
        svg = as_svg(drawing, "paper-constants")
    caption = "U, or the scale at which prices begin (L or lambda), is wrong by the factor; 1 is known exactly."
    return Figure(title="F5: wrong constants", caption=caption, svg=svg)


def _largest(records: Sequence[Record]) -> list[Record]:
    """Return the records of plans in the sweeps with the most jobs."""
    mine = [record for record in _of(records, "sweep") if record.load is not None and record.objective is not None]
    most = max((record.labels["jobs"] for record in mine), default=0)
    return [record for record in mine if record.labels["jobs"] == most]


def _lateness(records: Sequence[Record]) -> Figure | None:
    """Draw F6: the distribution of completion less target, by class."""
    mine = _largest(records)
    if not mine:
        return None
    colours = _colours(records)
    with canvas(WIDTH, 3.2, 1, len(CLASSES)) as (drawing, panels):
        for panel, kind in zip(panels, CLASSES, strict=True):
            for name in sorted({record.solver for record in mine}):
                late = sorted(
                    slots
                    for r in mine
                    if r.solver == name
                    for slots in (r.load or {}).get("lateness", {}).get(kind, ())
                )
                if late:
                    share = 100.0 * np.arange(1, len(late) + 1) / len(late)
                    panel.step(late, share, where="post", color=colours[name], label=f"{name} ({len(late)})")
            panel.axvline(0.0, color=INK, linestyle=":", linewidth=1.0)
            panel.set_title(kind, loc="left", fontsize=9.5)
            panel.set_xlabel("completion less target, slots")
            if panel.get_lines()[1:]:
                panel.legend(loc="lower right", fontsize=7)
        panels[0].set_ylabel("per cent of the admitted")
        svg = as_svg(drawing, "paper-lateness")
    return Figure(
        title="F6: completion less target delay",
        caption="Admitted jobs of F1's largest instances, by class of urgency; in brackets how many they are. Left of "
        "the dotted line: earlier than the target.",
        svg=svg,
    )


def _rates(records: Sequence[Record]) -> Figure | None:
    """Draw F7: admission rate and utilisation."""
    mine = _largest(records)
    if not mine:
        return None
    names = sorted({record.solver for record in mine})
    with canvas(WIDTH, 0.9 + 0.32 * len(names), 1, 2) as (drawing, panels):
        for y, name in enumerate(reversed(names)):
            loads = [record.load or {} for record in mine if record.solver == name]
            admitted = 100.0 * float(np.mean([1.0 - load["refused_jobs"] for load in loads]))
            panels[0].barh(y, admitted, color=PALETTE[0], height=0.62)
            used = [load["worker_utilisation"] for load in loads]
            for k, resource in enumerate(used[0]):
                mean = 100.0 * float(np.mean([share[resource] for share in used]))
                panels[1].plot(mean, y, "o", color=PALETTE[k], label=resource if y == 0 else None)
        for panel, what in zip(
            panels, ("per cent of the jobs admitted", "per cent of the workers' servers used"), strict=True
        ):
            panel.set_yticks(range(len(names)), list(reversed(names)))
            panel.set_xlim(0, 100)
            panel.set_xlabel(what)
        panels[1].legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
        svg = as_svg(drawing, "paper-rates")
    caption = "F1's largest instances. A plan counts the jobs that earn something; what others held is left out."
    return Figure(title="F7: admission and utilisation", caption=caption, svg=svg)


def _decisions(records: Sequence[Record]) -> Figure | None:
    """Draw F7: the time of a decision against the number of jobs."""
    mine = [record for record in _sweep(records, "jobs") if record.decision_ms is not None]
    if not mine:
        return None
    with canvas(WIDTH, 2.8) as (drawing, (panel,)):
        for k, name in enumerate(("median", "p99")):
            xs, ys = _means(mine, "jobs", lambda record, name=name: (record.decision_ms or {}).get(name))  # type: ignore[misc]
            panel.plot(xs, ys, "o-", color=PALETTE[k], label=name, linewidth=1.6, markersize=4)
        panel.set_ylim(bottom=0)
        panel.set_xlabel("number of jobs")
        panel.set_ylabel("milliseconds an arrival")
        panel.legend()
        svg = as_svg(drawing, "paper-decisions")
    return Figure(title="F7: time of a decision", caption="The online rule, prices included.", svg=svg)
