"""Rows of a back-test: one a policy and start, and a summary a policy with confidence intervals."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from optim.core.intervals import Interval, wilson
from optim.simulation.spot.oracle import OracleResult
from optim.simulation.spot.result import RunResult

MEASURES = (
    "cost_usd",
    "bound_usd",
    "hours",
    "work_done",
    "cost_per_work",
    "free_hours",
    "paid_hours",
    "on_demand_hours",
    "evictions",
    "ratio_to_on_demand",
    "ratio_to_oracle",
    "ratio_to_oracle_paid",
    "ratio_to_optimum",
    "probes",
    "deadline_met",
)
"""What the summary averages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One policy from one start; None where a figure doesn't apply.

    Parameters
    ----------
    policy, start
        Who, and when (UTC).
    cost_usd, bound_usd
        The bill; of a reference its plan's cost and the proven bound.
    hours, work_done, is_done
        Time, work, and whether the job was done within the horizon.
    cost_per_work
        Dollars a unit of work.
    on_demand_hours, paid_hours, free_hours
        Machine-hours by kind.
    evictions
        Leases taken away.
    deadline_met
        Whether the job was done in time, where there is a deadline.
    ratio_to_on_demand, ratio_to_oracle, ratio_to_oracle_paid
        Cost over that of the baseline, over the proven bound, and over the plan of paid hours.
    ratio_to_optimum, probes
        Over zones: cost over the proven least, and how often zones were asked only to know.
    redrawn
        Starts that were drawn before this one and touched a gap.
    billing
        The rule of the bill, by name.
    """

    policy: str
    start: str
    cost_usd: float | None
    bound_usd: float | None = None
    hours: float | None
    work_done: float
    is_done: bool
    cost_per_work: float | None
    on_demand_hours: float = 0.0
    paid_hours: float = 0.0
    free_hours: float = 0.0
    evictions: int = 0
    deadline_met: bool | None = None
    ratio_to_on_demand: float | None = None
    ratio_to_oracle: float | None = None
    ratio_to_oracle_paid: float | None = None
    ratio_to_optimum: float | None = None
    probes: int = 0
    redrawn: int = 0
    billing: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """A policy against another over the starts from which both have done the job.

    Parameters
    ----------
    starts
        How many these are.
    mean, low, high
        Dollars that the policy costs more than the other, start by start: mean and 95 % interval (Student's t); None without any, and
        the interval without two.
    won
        Share of these starts in which it is strictly cheaper.
    """

    starts: int
    mean: float | None
    low: float | None
    high: float | None
    won: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """All starts of a policy: mean and 95 % interval of each measure, by name; None without any figure, the interval without two.

    Intervals are Student's t, that of `deadline_met` is Wilson's.
    Means are over the `common` starts: those from which every policy has done the job (in time where there is a deadline),
    but for policies that have never done it. `done` counts the policy's own, `deadline_met` is over all. `paired` compares it
    with every other policy, start by start.
    """

    policy: str
    summary: bool = True
    starts: int
    done: int
    common: int
    redrawn: int
    mean: dict[str, float | None]
    low: dict[str, float | None]
    high: dict[str, float | None]
    paired: dict[str, Paired]


def time_text(time_s: int) -> str:
    """Return a time as ISO 8601."""
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def row_of_run(result: RunResult, redrawn: int = 0) -> Row:
    """Return the row of a policy's run."""
    return Row(
        policy=result.policy,
        start=time_text(result.start_s),
        cost_usd=result.cost_usd,
        hours=result.hours,
        work_done=result.work_done,
        is_done=result.is_done,
        cost_per_work=over(result.cost_usd, result.work_done),
        on_demand_hours=result.on_demand_hours,
        paid_hours=result.paid_hours,
        free_hours=result.free_hours,
        evictions=result.evictions,
        redrawn=redrawn,
    )


def row_of_oracle(result: OracleResult, job_work: float, redrawn: int) -> Row:
    """Return the row of a reference: its work is the job's."""
    cost = result.cost_usd if math.isfinite(result.cost_usd) else None
    return Row(
        policy=result.name,
        start=time_text(result.start_s),
        cost_usd=cost,
        bound_usd=result.bound_usd,
        hours=None if cost is None else result.hours,
        work_done=job_work if cost is not None else 0.0,
        is_done=cost is not None,
        cost_per_work=None if cost is None else cost / job_work,
        paid_hours=sum(piece.machine_hours for piece in result.plan if not piece.is_free),
        free_hours=sum(piece.machine_hours for piece in result.plan if piece.is_free),
        redrawn=redrawn,
    )


def summarise(policy: str, rows: Sequence[Row], others: Mapping[str, Sequence[Row]] | None = None) -> Summary:
    """Return means and intervals of a policy's rows over the starts that count for all (see `Summary`).

    Parameters
    ----------
    policy, rows
        Who, and its rows.
    others
        Rows of other policies from the same starts in the same order, to be compared with.
    """
    compared = [each for each in ({policy: rows} | dict(others or {})).values() if any(row.is_done for row in each)]
    is_common = [all(row.is_done for row in start) for start in zip(rows, *compared, strict=True)]
    done = [row for row, counts in zip(rows, is_common, strict=True) if counts]
    spans = {name: _interval([getattr(row, name) for row in done]) for name in MEASURES}
    spans["deadline_met"] = _share([row.deadline_met for row in rows])
    return Summary(
        policy=policy,
        starts=len(rows),
        done=sum(row.is_done for row in rows),
        common=len(done),
        redrawn=sum(row.redrawn for row in rows),
        mean={name: mean for name, (mean, _, _) in spans.items()},
        low={name: low for name, (_, low, _) in spans.items()},
        high={name: high for name, (_, _, high) in spans.items()},
        paired={name: compare(rows, other) for name, other in (others or {}).items() if name != policy},
    )


def summarise_all(rows: Sequence[Row]) -> dict[str, Summary]:
    """Return each policy's summary, compared with all others; the rows of all have the same starts in the same order."""
    of: dict[str, list[Row]] = {}
    for row in rows:
        of.setdefault(row.policy, []).append(row)
    return {name: summarise(name, own, of) for name, own in of.items()}


def compare(rows: Sequence[Row], others: Sequence[Row]) -> Paired:
    """Compare two policies' costs from the same starts, given in the same order."""
    pairs = [
        (own.cost_usd, other.cost_usd) for own, other in zip(rows, others, strict=True) if own.is_done and other.is_done
    ]
    more = [own - other for own, other in pairs if own is not None and other is not None]
    mean, low, high = _interval(more)
    won = sum(one < 0 for one in more) / len(more) if more else None
    return Paired(starts=len(more), mean=mean, low=low, high=high, won=won)


def _interval(figures: Sequence[float | None]) -> tuple[float | None, float | None, float | None]:
    """Return mean and 95 % interval of the figures that there are: nothing of none, and of one no interval."""
    values = np.array([figure for figure in figures if figure is not None], dtype=np.float64)
    if not len(values):
        return None, None, None
    mean = float(values.mean())
    if len(values) == 1:
        return mean, None, None
    found = Interval.of(values)
    return mean, found.low, found.high


def _share(met: Sequence[bool | None]) -> tuple[float | None, float | None, float | None]:
    """Return a share and Wilson's interval: where all starts agree their spread is 0, which says nothing."""
    values = [value for value in met if value is not None]
    mean, low, high = _interval(values)
    if mean is None or low is None:
        return mean, low, high
    ends = wilson(mean, len(values))
    return mean, float(ends[0]), float(ends[1])


def over(cost: float | None, reference: float | None) -> float | None:
    """Return a ratio; None where either is unknown, or the reference nothing or infinite."""
    if cost is None or reference is None or not 0 < reference < math.inf:
        return None
    return cost / reference
