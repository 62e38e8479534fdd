"""Summaries of solvers: means over the instances that all of them solved, failures, and use of future data.

Means over different sets of instances are not comparable. Therefore each mean is over the *common* cases, on which every
compared solver has the value; a solver that never has it (such as the gap of a solver without bounds) is not compared.
Times count only for solves that the checker accepted and no time limit ended.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optim.benchmarks.best_known import BestKnown, Of, best_known, instance_of
from optim.benchmarks.records import Record
from optim.core.errors import InvalidOptionError
from optim.core.options import build_options
from optim.core.solution import Termination
from optim.models.catalogue import problem_names
from optim.statistics import Interval

WITH_OPTIONS = " ("
"""Separator of a solver's name and its options, in the names that `named_by_options` gives."""


def named_by_options(records: Sequence[Record]) -> list[Record]:
    """Append to each record's solver name the options that have several values on one instance with one seed.

    Merged results can contain such records; by name alone they would count as one solver.
    """
    values: dict[tuple[str, str], dict[tuple[object, ...], set[str]]] = {}
    for record in records:
        labels = sorted((name, str(value)) for name, value in record.labels.items())
        case = (record.suite, record.instance, record.instance_digest, record.seed, *labels)
        for name, value in record.options.items():
            values.setdefault((record.solver, name), {}).setdefault(case, set()).add(str(value))
    several = {key for key, by_case in values.items() if any(len(each) > 1 for each in by_case.values())}
    found = []
    for record in records:
        own = [f"{name}={value}" for name, value in record.options.items() if (record.solver, name) in several]
        name = f"{record.solver}{WITH_OPTIONS}{', '.join(own)})" if own else record.solver
        found.append(replace(record, solver=name))
    return found


def foresight_of(record: Record) -> str:
    """Describe the future information that a record's solver received in advance; "" for none and for unknown solvers."""
    from optim.solvers.solve import solver_named

    if record.problem not in problem_names():
        return ""
    name = record.solver.partition(WITH_OPTIONS)[0] if record.solver.endswith(")") else record.solver
    try:
        solver = solver_named(record.problem, name)
        options = build_options(solver.options_type, dict(record.options))
    except InvalidOptionError:
        return ""
    foresight: str = getattr(solver, "foresight", lambda _: "")(options)
    return foresight


LIMITS = (Termination.TIME_LIMIT, Termination.NODE_LIMIT, Termination.ITERATION_LIMIT)
"""Terminations of solves that their time or work limit ended."""

MAX_NAMED = 4
"""Maximum number of instances that a line of `stopped_at_limits` names."""


def stopped_at_limits(records: Sequence[Record]) -> list[str]:
    """Return one line per solver that a limit stopped, with the instances and the limits.

    Examples
    --------
    >>> stopped_at_limits([])
    []
    """
    lines = []
    for solver in dict.fromkeys(record.solver for record in records):
        mine = [record for record in records if record.solver == solver]
        stopped = [record for record in mine if record.termination in LIMITS]
        if not stopped:
            continue
        names = list(dict.fromkeys(record.instance for record in stopped))
        more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
        times = [record.time_limit_s for record in stopped if record.termination == Termination.TIME_LIMIT]
        by = ["time" if limit_s is None else f"{limit_s:g} s" for limit_s in times]
        by += [
            f"{name}={value}"
            for record in stopped
            if record.termination != Termination.TIME_LIMIT
            for name, value in record.options.items()
            if name.startswith("max_") and value is not None
        ]
        lines.append(
            f"stopped by a limit: {solver} in {len(stopped)} of {len(mine)} runs, on "
            f"{', '.join(names[:MAX_NAMED])}{more} ({', '.join(dict.fromkeys(by)) or 'iterations'})"
        )
    return lines


def shifted_geometric_mean(values: ArrayLike, shift: float) -> float:
    """Return ``exp(mean(log(values + shift))) - shift``.

    The shift prevents values near zero, which are mostly noise, from dominating the mean.

    Parameters
    ----------
    values
        Shape (n,), n >= 1, each above ``-shift``.
    shift
        Positive, in the unit of the values.

    References
    ----------
    T. Achterberg, "Constraint Integer Programming", PhD thesis, TU Berlin, 2007, appendix A.3.

    Examples
    --------
    >>> round(shifted_geometric_mean([0.0, 3.0], shift=1.0), 12)
    1.0
    """
    shifted = np.asarray(values, dtype=np.float64) + shift
    return float(np.exp(np.mean(np.log(shifted))) - shift)


def performance_profile(
    costs: Mapping[str, Sequence[float | None]],
) -> dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Return for each solver the share of instances on which it is within a factor of the best.

    Parameters
    ----------
    costs
        For each solver one positive cost per instance (lower is better), None if it failed. All
        solvers have the same instances in the same order.

    Returns
    -------
    dict
        For each solver factors (ascending, starting at 1) and shares: a right-continuous step function.

    References
    ----------
    E. Dolan, J. Moré, "Benchmarking optimization software with performance profiles",
    Mathematical Programming 91 (2002), DOI 10.1007/s101070100263.

    Examples
    --------
    >>> factors, shares = performance_profile({"a": [1.0, 4.0], "b": [2.0, 2.0]})["a"]
    >>> factors.tolist(), shares.tolist()
    ([1.0, 2.0], [0.5, 1.0])
    """
    table = np.array([[np.inf if cost is None else cost for cost in row] for row in costs.values()], dtype=np.float64)
    best = table.min(axis=0)
    is_solved = np.isfinite(best)
    factors = table[:, is_solved] / best[is_solved]
    profile = {}
    for name, row in zip(costs, factors, strict=True):
        reached = np.unique(np.concatenate([[1.0], row[np.isfinite(row)]]))
        shares = np.array([(row <= factor).mean() for factor in reached]) if row.size else np.zeros(len(reached))
        profile[name] = (reached, shares)
    return profile


GAP_SHIFT = 0.01
"""Shift of the geometric mean of gaps; gaps far below one per cent count as equal."""

SECONDS_SHIFT = 1.0
"""Shift of the geometric mean of seconds; times far below a second count as equal."""

SHARE_TOL = 1e-9
"""Tolerance within which ratios to the bound count as equal."""

Case = tuple[str, int, str]
"""A case: instance, seed and labels of the suite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverSummary:
    """Summary of one solver of a suite.

    Parameters
    ----------
    solver
        Name of the solver.
    records, verified, optimal, refused, failed, timed_out
        Numbers of records: all, accepted by the checker, proven optimal, refused by the checker, ended by an error, and
        ended by the time limit.
    gap, worst_gap
        Shifted geometric mean of certified gaps over the common cases, and the maximum over all cases of the solver.
    seconds, processor_s
        Shifted geometric means over the common solved cases (`is_solved`): wall-clock seconds without compilation, and
        processor seconds with compilation.
    memory_mb, max_memory_mb
        Median and maximum MiB per solve.
    """

    solver: str
    records: int
    verified: int
    optimal: int
    refused: int
    failed: int
    timed_out: int
    gap: float | None
    worst_gap: float | None
    seconds: float | None
    processor_s: float | None
    memory_mb: float | None
    max_memory_mb: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Summaries of all solvers of a suite.

    Parameters
    ----------
    solvers
        One summary per solver, sorted by name.
    cases
        Number of cases of the suite.
    gap_cases, seconds_cases, processor_cases
        Number of common cases in the means.
    """

    solvers: tuple[SolverSummary, ...]
    cases: int
    gap_cases: int
    seconds_cases: int
    processor_cases: int


def compare_solvers(records: Sequence[Record]) -> Comparison:
    """Summarise the solvers of a suite's records.

    Examples
    --------
    >>> compare_solvers([]).cases
    0
    """
    names = sorted({record.solver for record in records})
    gaps, gap_cases = common_figures(records, certified_gap)
    solved = [record for record in records if is_solved(record)]
    seconds, seconds_cases = common_figures(solved, lambda record: record.run_s)
    spent, processor_cases = common_figures(solved, lambda record: record.processor_s)
    return Comparison(
        solvers=tuple(
            _summary(
                name,
                [record for record in records if record.solver == name],
                gap=_mean(gaps.get(name), GAP_SHIFT),
                seconds=_mean(seconds.get(name), SECONDS_SHIFT),
                processor_s=_mean(spent.get(name), SECONDS_SHIFT),
            )
            for name in names
        ),
        cases=len({case_of(record) for record in records}),
        gap_cases=gap_cases,
        seconds_cases=seconds_cases,
        processor_cases=processor_cases,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedComparison:
    """Comparison of a solver with a baseline, over the cases on which both have a verified objective.

    Parameters
    ----------
    solver
        Name of the solver.
    cases
        Number of common cases.
    better, worse
        Number of common cases on which the solver's objective is better or worse, respectively, than the baseline's.
    of_bound
        Mean over these cases of the objective relative to the tightest verified bound of the instance (or to the best
        objective without a bound); 1 is optimal, also for minimisation.
    difference
        Mean of the paired differences in this ratio, positive if the solver is better, with Student's t interval; None
        for fewer than two cases.
    """

    solver: str
    cases: int
    better: int
    worse: int
    of_bound: float
    difference: Interval | None


def compare_with(
    records: Sequence[Record], baseline: str, known: Mapping[Of, BestKnown] | None = None
) -> tuple[PairedComparison, ...]:
    """Compare every other solver of a suite's records with `baseline`, paired by case.

    `known` gives the best known values of the instances; default: from these records.
    """
    known = best_known(records) if known is None else known
    shares: dict[str, dict[Case, float]] = {}
    for record in records:
        best = known.get(instance_of(record))
        if best is None or not record.verified:
            continue
        share = (best.to_best if best.bound is None else best.to_bound)(record.objective)
        if share is not None:
            shares.setdefault(record.solver, {})[case_of(record)] = share
    return tuple(
        _paired(solver, shares[solver], shares.get(baseline, {})) for solver in sorted(shares) if solver != baseline
    )


def _paired(solver: str, mine: Mapping[Case, float], base: Mapping[Case, float]) -> PairedComparison:
    common = sorted(mine.keys() & base.keys())
    differences = np.array([mine[case] - base[case] for case in common])
    return PairedComparison(
        solver=solver,
        cases=len(common),
        better=int((differences > SHARE_TOL).sum()),
        worse=int((differences < -SHARE_TOL).sum()),
        of_bound=float(np.mean([mine[case] for case in common])) if common else float("nan"),
        difference=Interval.of(differences) if len(common) > 1 else None,
    )


def case_of(record: Record) -> Case:
    """Return the case of a record."""
    marks = ", ".join(f"{name} {value}" for name, value in sorted(record.labels.items()))
    return record.instance, record.seed, marks


def is_solved(record: Record) -> bool:
    """Return whether a solver finished within the time limit with a solution or bound that the checker accepted."""
    return record.error is None and record.verified and record.termination != Termination.TIME_LIMIT


def certified_gap(record: Record) -> float | None:
    """Return the verified gap, or None."""
    return max(record.gap, 0.0) if record.gap is not None and record.verified else None


def common_figures(
    records: Iterable[Record], figure: Callable[[Record], float | None]
) -> tuple[Mapping[str, list[float]], int]:
    """Return the values of `figure` on the common cases of all solvers for which it has a value on at least one case.

    Returns
    -------
    figures, num_cases
        Values of each such solver in the order of the sorted common cases, and the number of these cases.
    """
    by_solver: dict[str, dict[Case, float]] = {}
    for record in records:
        value = figure(record)
        if value is not None:
            by_solver.setdefault(record.solver, {})[case_of(record)] = value
    if not by_solver:
        return {}, 0
    common = set.intersection(*(set(values) for values in by_solver.values()))
    return {name: [values[case] for case in sorted(common)] for name, values in by_solver.items()}, len(common)


def _mean(values: Sequence[float] | None, shift: float) -> float | None:
    return shifted_geometric_mean(values, shift) if values else None


def _summary(
    name: str, mine: Sequence[Record], *, gap: float | None, seconds: float | None, processor_s: float | None
) -> SolverSummary:
    gaps = [value for record in mine if (value := certified_gap(record)) is not None]
    memory = [record.memory_mb for record in mine if record.memory_mb is not None]
    return SolverSummary(
        solver=name,
        records=len(mine),
        verified=sum(record.verified for record in mine),
        optimal=sum(record.termination == Termination.OPTIMAL and record.verified for record in mine),
        refused=sum(record.is_refused for record in mine),
        failed=sum(record.error is not None for record in mine),
        timed_out=sum(record.error is None and record.termination == Termination.TIME_LIMIT for record in mine),
        gap=gap,
        worst_gap=max(gaps, default=None),
        seconds=seconds,
        processor_s=processor_s,
        memory_mb=float(np.median(memory)) if memory else None,
        max_memory_mb=max(memory, default=None),
    )
