"""Rows of a back-test: one a policy and start, and a summary a policy with confidence intervals."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np

from optim.simulation.spot.deadline import DeadlineResult
from optim.simulation.spot.engine import RunResult
from optim.simulation.spot.oracle import OracleResult

NORMAL_95 = 1.959963984540054

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
    redrawn
        Starts that were drawn before this one and touched a gap.
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
    redrawn: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """All starts of a policy: mean and 95 % interval of each measure, by name; None without any figure."""

    policy: str
    summary: bool = True
    starts: int
    done: int
    redrawn: int
    mean: dict[str, float | None]
    low: dict[str, float | None]
    high: dict[str, float | None]


def time_text(time_s: int) -> str:
    """Return a time as ISO 8601."""
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def row_of_run(result: RunResult, redrawn: int) -> Row:
    """Return the row of a back-test's run."""
    return Row(
        policy=result.policy,
        start=time_text(result.start_s),
        cost_usd=result.cost_usd,
        hours=result.hours,
        work_done=result.work_done,
        is_done=result.is_done,
        cost_per_work=_over(result.cost_usd, result.work_done),
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


def row_of_deadline(result: DeadlineResult, on_demand_usd: float) -> Row:
    """Return the row of a run under a deadline."""
    return Row(
        policy=result.policy,
        start=time_text(result.start_s),
        cost_usd=result.cost_usd,
        hours=result.hours,
        work_done=result.work_done,
        is_done=result.deadline_met,
        cost_per_work=_over(result.cost_usd, result.work_done),
        on_demand_hours=result.on_demand_hours,
        paid_hours=result.spot_hours,
        free_hours=result.free_hours,
        evictions=result.evictions,
        deadline_met=result.deadline_met,
        ratio_to_on_demand=_over(result.cost_usd, on_demand_usd),
    )


def summarise(policy: str, rows: Sequence[Row]) -> Summary:
    """Return means and intervals of a policy's rows; runs that weren't done count in `done`, not in the means."""
    done = [row for row in rows if row.is_done or row.deadline_met is not None]
    mean: dict[str, float | None] = {}
    low: dict[str, float | None] = {}
    high: dict[str, float | None] = {}
    for name in MEASURES:
        values = np.array([getattr(row, name) for row in done if getattr(row, name) is not None], dtype=np.float64)
        if not len(values):
            mean[name] = low[name] = high[name] = None
            continue
        middle = float(values.mean())
        half = NORMAL_95 * float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else 0.0
        mean[name], low[name], high[name] = middle, middle - half, middle + half
    return Summary(
        policy=policy,
        starts=len(rows),
        done=sum(row.is_done for row in rows),
        redrawn=sum(row.redrawn for row in rows),
        mean=mean,
        low=low,
        high=high,
    )


def as_record(row: Row | Summary) -> Mapping[str, Any]:
    """Return a row as plain values."""
    return asdict(row)


def _over(cost: float, work: float) -> float | None:
    return cost / work if work > 0 else None
