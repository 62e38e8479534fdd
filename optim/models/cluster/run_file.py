"""Runs on disk: jobs, cluster, options, every policy's log, figures and bounds, as one archive that `verify` can replay."""

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import UnsetType

from optim.core.archives import Arrays, read_arrays, write_arrays
from optim.core.errors import InvalidProblemError
from optim.models.cluster.log import EventLog
from optim.models.cluster.metrics import Metrics
from optim.models.cluster.proof import DivisibleSchedule, IntervalProof, LoadProof, PriceProof
from optim.models.cluster.rules import Rules
from optim.models.cluster.run_columns import (
    DIVISIBLE_ARRAYS,
    JOB_COLUMNS,
    LOG_COLUMNS,
    MACHINE_COLUMNS,
    MORE_JOB_COLUMNS,
    MORE_LOG_COLUMNS,
    MORE_MACHINE_COLUMNS,
    WORTH_ARRAYS,
    RunArrays,
)
from optim.models.cluster.run_header import SCHEMA, HeaderDocument, decode_header
from optim.models.cluster.utility import Worth
from optim.models.cluster.workload import LABELS, Workload
from optim.models.cluster.world import Cluster

WHAT, REMEDY = "a run of optim simulate cluster", "write one with --log FILE"
MOST_SAID = 180
"""Characters of a cause that are kept."""

WORTH_NUMBERS = ("slot_us", "utility", "bound")


@dataclass(frozen=True, kw_only=True, eq=False)
class LoggedRun:
    """One policy's run as it is claimed; `figures` are the policy's own words, which nobody checks; `worth` is checked."""

    policy: str
    log: EventLog
    metrics: Metrics
    rules: Rules
    figures: Mapping[str, float] = field(default_factory=dict)
    worth: Worth | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class RunRecord:
    """All that a file holds.

    Parameters
    ----------
    jobs, cluster, overhead_us
        What was played under.
    settings
        Options, seed and versions: how it came about, for people.
    runs
        A run a policy.
    schema
        Of the file that it was read from, or is written to.
    bounds
        Claimed values by name (`jct_mean_h`, `makespan_h`, `slowdown_max`), which `prices`, `load` and `interval` prove.
    most_by_prices_h
        Claimed: the mean completion time that no prices prove more than, which `divisible` proves.
    """

    jobs: Workload
    cluster: Cluster
    overhead_us: int
    settings: dict[str, Any] = field(default_factory=dict)
    runs: tuple[LoggedRun, ...] = ()
    bounds: dict[str, float] = field(default_factory=dict)
    prices: PriceProof | None = None
    load: LoadProof | None = None
    interval: IntervalProof | None = None
    most_by_prices_h: float | None = None
    divisible: DivisibleSchedule | None = None
    schema: str = SCHEMA

    def __post_init__(self) -> None:
        """Check what a table of types and machines must share, of which InvalidProblemError is raised."""
        groups = len(self.jobs.groups)
        for run in self.runs:
            if len(run.rules.quotas) not in (0, groups):
                raise InvalidProblemError(
                    f"rules of {run.policy}: quotas must be one for each of the {groups} virtual clusters, got {len(run.rules.quotas)}"
                )
        types, used = self.jobs.kind_ppm.shape[1], int(self.cluster.kind.max()) + 1
        if 0 < types < used:
            raise InvalidProblemError(
                f"kind_ppm must tell of every type of GPU: it has {types} columns for {used} types"
            )
        rows = np.atleast_2d(self.prices.price).shape[0] if self.prices else 1
        if rows not in (1, max(1, types)):
            raise InvalidProblemError(
                f"price has {rows} rows for {max(1, types)} types of GPU; give one a type, or one for all"
            )

    @property
    def is_of_earlier_schema(self) -> bool:
        """Whether the file that it was read from has an earlier schema: no digest in keys, and not all figures."""
        return self.schema != SCHEMA


def save_run(record: RunRecord, path: str | Path) -> None:
    """Write a record; of a policy's own figures those that aren't finite are left out."""
    settings = dict(record.settings)
    if record.is_of_earlier_schema:
        settings.pop("keys", None)  # which are others now
    header = {
        "schema": SCHEMA,
        "overhead_us": record.overhead_us,
        "settings": settings,
        "names": {names: getattr(record.jobs, names) for names in LABELS.values()},
        "kinds": record.cluster.kinds,
        "policies": [run.policy for run in record.runs],
        "metrics": [asdict(run.metrics) for run in record.runs],
        "rules": [asdict(run.rules) for run in record.runs],
        "figures": [
            {name: float(value) for name, value in run.figures.items() if math.isfinite(value)} for run in record.runs
        ],
        "worth": [
            None if run.worth is None else {name: getattr(run.worth, name) for name in WORTH_NUMBERS}
            for run in record.runs
        ],
        "bounds": record.bounds,
        "load": asdict(record.load) if record.load else None,
        "interval": asdict(record.interval) if record.interval else None,
    }
    if record.most_by_prices_h is not None:
        header["most_by_prices_h"] = record.most_by_prices_h
    if record.jobs.ids != record.jobs.numbered:
        header["ids"] = record.jobs.ids
    arrays: Arrays = {"header": np.frombuffer(json.dumps(header).encode(), np.uint8)}
    arrays |= {f"jobs.{name}": getattr(record.jobs, name) for name in (*JOB_COLUMNS, *MORE_JOB_COLUMNS)}
    arrays |= {f"cluster.{name}": getattr(record.cluster, name) for name in (*MACHINE_COLUMNS, *MORE_MACHINE_COLUMNS)}
    for number, run in enumerate(record.runs):
        arrays |= {f"log{number}.{name}": getattr(run.log, name) for name in (*LOG_COLUMNS, *MORE_LOG_COLUMNS)}
        if run.worth is not None:
            arrays |= {f"worth{number}.{name}": getattr(run.worth, name) for name in WORTH_ARRAYS}
    if record.prices:
        arrays |= {"price": record.prices.price, "price_end_us": record.prices.end_us}
    if record.divisible:
        arrays |= {f"divisible.{name}": getattr(record.divisible, name) for name in DIVISIBLE_ARRAYS}
    write_arrays(path, arrays)


def load_run(path: str | Path) -> RunRecord:
    """Read a record: all of it, and nothing else that the file may hold.

    Raises
    ------
    InvalidProblemError
        If the file isn't one; it names the field or array.
    """
    arrays = read_arrays(path, WHAT, REMEDY)
    try:
        return _record(RunArrays(arrays))
    except InvalidProblemError as error:
        said = " ".join(str(error).split())[:MOST_SAID]
        raise InvalidProblemError(f"{path}: not {WHAT} ({said}); {REMEDY}") from error


def _record(arrays: RunArrays) -> RunRecord:
    header = decode_header(arrays.header(), is_whole=arrays.is_whole)
    arrays.check_parts(header)
    record = RunRecord(
        jobs=_jobs(arrays, header),
        cluster=_cluster(arrays, header),
        overhead_us=header.overhead_us,
        settings=header.settings,
        runs=tuple(_run(arrays, header, number) for number in range(len(header.policies))),
        bounds=header.bounds_by_name(),
        prices=_prices(arrays, header),
        load=header.load,
        interval=header.interval,
        most_by_prices_h=None if isinstance(header.most_by_prices_h, UnsetType) else header.most_by_prices_h,
        divisible=_divisible(arrays),
        schema=header.schema,
    )
    arrays.check_all_read()
    return record


def _run(arrays: RunArrays, header: HeaderDocument, number: int) -> LoggedRun:
    return LoggedRun(
        policy=header.policies[number],
        log=arrays.log(number),
        metrics=header.metrics[number],
        rules=header.rules_of(number),
        figures=header.figures_of(number),
        worth=_worth(arrays, header, number),
    )


def _cluster(arrays: RunArrays, header: HeaderDocument) -> Cluster:
    columns = arrays.table("cluster", MACHINE_COLUMNS, MORE_MACHINE_COLUMNS)
    if not isinstance(header.kinds, UnsetType):
        columns["kinds"] = tuple(header.kinds)
    with _naming("cluster"):
        return Cluster(**columns)


def _jobs(arrays: RunArrays, header: HeaderDocument) -> Workload:
    """Return the jobs; names that a file of an earlier version lacks are numbers."""
    columns = arrays.table("jobs", JOB_COLUMNS, MORE_JOB_COLUMNS)
    columns |= {
        plural: header.names_of(column, int(columns[column].max(initial=0)))
        for column, plural in LABELS.items()
        if column in columns
    }
    if not isinstance(header.ids, UnsetType):
        columns["ids"] = tuple(header.ids)
    with _naming("jobs"):
        return Workload(**columns)


def _prices(arrays: RunArrays, header: HeaderDocument) -> PriceProof | None:
    """Return the prices; those of files of the first schema are over slots of one length."""
    slot = header.slot_us
    if slot is None or (isinstance(slot, UnsetType) and not arrays.has_prices):
        return None
    price = arrays.floats("price", arrays.dimensions("price") if isinstance(slot, UnsetType) else 1)
    if isinstance(slot, UnsetType):
        return PriceProof(end_us=arrays.whole("price_end_us", 1), price=price)
    return PriceProof.of_equal_slots(slot, price)


def _divisible(arrays: RunArrays) -> DivisibleSchedule | None:
    """Return the schedule that limits what prices prove, if the file holds one."""
    if not arrays.has_any("divisible."):
        return None
    job, gpu_type, start_us = (arrays.whole(f"divisible.{name}", 1) for name in ("job", "gpu_type", "start_us"))
    weight = arrays.floats("divisible.weight", 1)
    with _naming("divisible"):
        return DivisibleSchedule(job=job, weight=weight, gpu_type=gpu_type, start_us=start_us)


def _worth(arrays: RunArrays, header: HeaderDocument, number: int) -> Worth | None:
    """Return what a run's jobs are worth."""
    said = header.worth_of(number)
    if said is None:
        return None
    theta, price = (
        arrays.floats(f"worth{number}.{name}", dims) for name, dims in zip(WORTH_ARRAYS, (2, 1), strict=True)
    )
    with _naming(f"worth[{number}]"):
        return Worth(theta=theta, price=price, slot_us=said.slot_us, utility=said.utility, bound=said.bound)


@contextmanager
def _naming(part: str) -> Iterator[None]:
    """Say of which part of a file an error tells."""
    try:
        yield
    except InvalidProblemError as error:
        raise InvalidProblemError(f"{part}: {error}") from error
