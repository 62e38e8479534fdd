"""Headlines: one measure per problem, with our solver, a baseline and the proven limit."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from optim.benchmarks.best_known import best_known, instance_of
from optim.benchmarks.records import Record
from optim.benchmarks.summary import Case, case_of


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadlineRule:
    """The representative comparison of a suite.

    Parameters
    ----------
    suite
        Name of the suite.
    measure
        Name of the measure, with its unit, and whether it is maximised or minimised.
    ours
        Solver or policy of this package, by name.
    baselines
        Solvers or policies to compare with; the first one that has records is used.
    figure
        Name of the record's column with the measure; None for the objective.
    limit
        Name of the record's column with the measure's proven limit; None for the instance's tightest verified bound.
    """

    suite: str
    measure: str
    ours: str
    baselines: tuple[str, ...]
    figure: str | None = None
    limit: str | None = None


RULES = (
    HeadlineRule(
        suite="admission",
        measure="value of accepted jobs, offline (max)",
        ours="exact",
        baselines=("compact-milp",),
    ),
    HeadlineRule(
        suite="admission",
        measure="value of accepted jobs, online (max)",
        ours="online",
        baselines=("drf", "fifo"),
    ),
    HeadlineRule(suite="auction", measure="welfare (max)", ours="exact", baselines=("greedy",)),
    HeadlineRule(suite="bidding", measure="USD per unit of work (min)", ours="dinkelbach", baselines=("greedy",)),
    HeadlineRule(
        suite="cluster",
        measure="mean completion time, hours (min)",
        ours="tiresias-gittins",
        baselines=("fifo",),
        figure="jct_mean_h",
        limit="bound_jct_mean_h",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """A problem's result: means over the cases common to both solvers, and the limit over the same cases.

    Parameters
    ----------
    suite, measure, ours_by, baseline_by
        Names.
    cases
        Number of cases.
    ours, baseline, limit
        Means in the unit of the measure; the limit is None unless every case has one.
    """

    suite: str
    measure: str
    cases: int
    ours_by: str
    ours: float
    baseline_by: str
    baseline: float
    limit: float | None


def headlines(records: Sequence[Record]) -> list[Headline]:
    """Return the headlines that verified records support.

    Examples
    --------
    >>> headlines([])
    []
    """
    known = best_known(records)
    found = []
    for rule in RULES:
        mine = [record for record in records if record.suite == rule.suite and record.verified]
        values: dict[str, dict[Case, float]] = {}
        limits: dict[Case, float] = {}
        for record in mine:
            value = record.objective if rule.figure is None else record.figure(rule.figure)
            if value is not None:
                values.setdefault(record.solver, {})[case_of(record)] = float(value)
            best = known.get(instance_of(record))
            bound = None if best is None else best.bound
            limit = bound if rule.limit is None else record.figure(rule.limit)
            if limit is not None:
                limits[case_of(record)] = float(limit)
        ours = values.get(rule.ours, {})
        baseline = next((name for name in rule.baselines if ours.keys() & values.get(name, {}).keys()), None)
        if baseline is None:
            continue
        cases = sorted(ours.keys() & values[baseline].keys())
        found.append(
            Headline(
                suite=rule.suite,
                measure=rule.measure,
                cases=len(cases),
                ours_by=rule.ours,
                ours=_mean([ours[case] for case in cases]),
                baseline_by=baseline,
                baseline=_mean([values[baseline][case] for case in cases]),
                limit=_mean([limits[case] for case in cases]) if limits.keys() >= set(cases) else None,
            )
        )
    return found


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))
