"""The packing LP's fractional solution and its dual as tables, with jobs, servers and resources by name."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from optim.core.relaxation import Relaxation
from optim.models.admission.instance import AdmissionInstance, FloatArray, IntArray
from optim.solvers.admission.pricing.capacity_rows import CapacityRows
from optim.solvers.admission.pricing.column_pool import Schedule


def named_relaxation(
    instance: AdmissionInstance,
    rows: CapacityRows,
    schedules: Sequence[Schedule],
    *,
    objective: float,
    columns: tuple[FloatArray, FloatArray],
    capacity_rows: tuple[FloatArray, FloatArray],
    payoff: FloatArray,
) -> Relaxation:
    """Return the tables.

    Parameters
    ----------
    instance, rows
        What the programme is of.
    schedules
        The columns of positive weight.
    objective
        What the fractional solution is worth.
    columns
        Value and weight of each of `schedules`.
    capacity_rows
        Use of each capacity row, in whole units, and its price a unit.
    payoff
        Shape (jobs,): the price of each job's row, which takes one schedule at most.

    Returns
    -------
    Relaxation
        Columns: `job`, `completion`, `value`, `weight`, and `workers` and `ps` as (servers, slot, count) entries. Rows: `row`
        ("capacity" or "job"), `side`, `servers`, `slot`, `resource`, `job`, `capacity`, `use`, `price`; None where a field
        does not apply.
    """
    sides = {"worker": instance.worker_servers} | ({} if instance.has_shared_servers else {"ps": instance.ps_servers})
    jobs = [schedule.job for schedule in schedules]
    value, weight = columns
    use, price = capacity_rows
    places = [
        (side, kind, slot, resource)
        for side, servers in sides.items()
        for kind in servers.types
        for slot in range(instance.horizon)
        for resource in instance.resources
    ]
    admitted = np.bincount(np.array(jobs, dtype=np.int64), weight, instance.num_jobs)
    nothing: list[Any] = [None] * instance.num_jobs
    of_places = [list(column) for column in zip(*places, strict=True)] or [[], [], [], []]
    return Relaxation(
        objective=objective,
        columns={
            "job": [instance.jobs.ids[job] for job in jobs],
            "completion": np.array([schedule.completion for schedule in schedules], dtype=np.int64),
            "value": value,
            "weight": weight,
            "workers": [_entries(schedule.workers, instance.worker_servers.types) for schedule in schedules],
            "ps": [_entries(schedule.ps, instance.ps_servers.types) for schedule in schedules],
        },
        rows={
            "row": ["capacity"] * len(places) + ["job"] * instance.num_jobs,
            **{
                name: column + nothing
                for name, column in zip(("side", "servers", "slot", "resource"), of_places, strict=True)
            },
            "job": [None] * len(places) + list(instance.jobs.ids),
            "capacity": np.concatenate([rows.capacity, np.ones(instance.num_jobs)]),
            "use": np.concatenate([use, admitted]),
            "price": np.concatenate([price, payoff]),
        },
    )


def _entries(counts: IntArray, types: Sequence[str]) -> list[tuple[str, int, int]]:
    return [(types[kind], slot, count) for kind, slot, count in counts.tolist()]
