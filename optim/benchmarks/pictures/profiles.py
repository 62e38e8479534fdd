"""Performance profiles of a suite: by objective, by time, and by certified gap."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from optim.benchmarks.record import Record
from optim.benchmarks.statistics import performance_profile
from optim.benchmarks.summary import case_of, certified_gap, common_figures
from optim.core.status import Sense
from optim.models.catalogue import problem_named, problem_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from optim.benchmarks.pictures.plots import Gallery

Profile = Mapping[str, tuple[NDArray[np.float64], NDArray[np.float64]]]
Draw = Callable[["Axes", Profile, Mapping[str, str]], None]

LEAST_SECONDS = 1e-3
"""Times below count as this: ratios of less are the clock's noise."""

_CAPTION = (
    "Objective: height at 1 is how often a solver found the best one, further right how often it came so near; an instance that a "
    "solver was not run on counts as not solved by it."
)
_TIME = " Time: the whole solve less compiling, on the {count} that all {solvers} solvers here answered, whatever they prove."
_GAP = " Gap: proven, on the {count} on which all {solvers} solvers here have one."


def draw_profiles(gallery: "Gallery", records: Sequence[Record], colours: Mapping[str, str]) -> None:
    """Draw for each solver the share of instances within a factor of the best objective and time, and within a gap."""
    verified = [record for record in records if record.verified]
    if len({record.solver for record in verified if _has_value(record)}) < 2:
        return
    by_objective = objective_profile(verified)
    caption = _CAPTION
    panels: list[tuple[Draw, Profile, str]] = [
        (_draw_factors, by_objective, "times as bad as the best objective, at most")
    ]
    seconds, num_timed = common_figures(verified, _time_of)
    if num_timed:
        caption += _TIME.format(count=_instances(num_timed), solvers=len(seconds))
        panels.append((_draw_factors, performance_profile(seconds), "seconds / least seconds, at most"))
    gaps, num_bounded = common_figures(verified, certified_gap)
    if num_bounded:
        caption += _GAP.format(count=_instances(num_bounded), solvers=len(gaps))
        panels.append((_draw_gaps, gap_profile(gaps), "certified gap in per cent, at most"))
    with gallery.picture("profile", "Performance profiles", caption, 11, 3.6, 1, len(panels)) as drawn:
        for panel, (draw, profile, label) in zip(drawn, panels, strict=True):
            draw(panel, profile, colours)
            panel.set(ylim=(0, 104))
            panel.set_xlabel(label, fontsize=9)
        drawn[0].set_ylabel("per cent of instances")
        handles = {str(line.get_label()): line for panel in drawn for line in panel.get_lines()}
        drawn[0].figure.legend([*handles.values()], [*handles], loc="outside right upper")


def objective_profile(records: Sequence[Record]) -> Profile:
    """Return the profile of objectives over all cases of the records, of which at least one has one.

    What is maximised costs its reciprocal. A case without a positive objective is left out.
    """
    costs: dict[str, dict[tuple[str, int, str], float]] = {}
    for record in records:
        if record.objective is not None and _has_value(record):
            is_cost = sense_of(record.problem) is Sense.MINIMISE
            cost = record.objective if is_cost else 1.0 / record.objective
            costs.setdefault(record.solver, {})[case_of(record)] = cost
    cases = sorted({case for mine in costs.values() for case in mine})
    return performance_profile({name: [costs[name].get(case) for case in cases] for name in sorted(costs)})


def gap_profile(gaps: Mapping[str, Sequence[float]]) -> Profile:
    """Return for each solver its gaps in per cent, ascending, and the shares of cases within them."""
    profile = {}
    for name, mine in gaps.items():
        reached, counts = np.unique(100.0 * np.asarray(mine, dtype=np.float64), return_counts=True)
        profile[name] = (reached, np.cumsum(counts) / len(mine))
    return profile


def _has_value(record: Record) -> bool:
    """Return whether a record's objective can be told as a ratio."""
    return record.objective is not None and record.objective > 0


def _time_of(record: Record) -> float | None:
    return None if record.error is not None or record.objective is None else max(record.run_s, LEAST_SECONDS)


def sense_of(problem: str) -> Sense:
    """Return whether a problem's objective is a cost; a study's topic has none."""
    return problem_named(problem).sense if problem in problem_names() else Sense.MAXIMISE


def _instances(count: int) -> str:
    return "one instance" if count == 1 else f"{count} instances"


def _draw_factors(panel: "Axes", profile: Profile, colours: Mapping[str, str]) -> None:
    right = 1.05 * max(float(factors[-1]) for factors, _ in profile.values())
    for name, (factors, shares) in profile.items():
        _step(panel, np.append(factors, right), np.append(shares, shares[-1]), name, colours)
    panel.set(xscale="log", xlim=(1.0, right))
    if right < 10:  # beyond, decades are told by their powers
        panel.xaxis.set_major_formatter("{x:g}")
        panel.xaxis.set_minor_formatter("{x:g}")


def _draw_gaps(panel: "Axes", profile: Profile, colours: Mapping[str, str]) -> None:
    right = max(1.0, *(1.05 * float(gaps[-1]) for gaps, _ in profile.values()))
    for name, (gaps, shares) in profile.items():
        _step(panel, np.concatenate([[0.0], gaps, [right]]), np.concatenate([[0.0], shares, [1.0]]), name, colours)
    panel.set_xscale("symlog", linthresh=1.0)
    panel.set_xlim(0.0, right)


def _step(
    panel: "Axes", x: NDArray[np.float64], shares: NDArray[np.float64], name: str, colours: Mapping[str, str]
) -> None:
    panel.step(x, 100.0 * shares, where="post", color=colours[name], label=name, linewidth=1.8)
