"""Runs on disk: jobs, cluster, options, every policy's log, figures and bounds, as one archive that `verify` can replay."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from optim.core.archives import Arrays, read_arrays, write_arrays
from optim.core.errors import InvalidProblemError
from optim.models.cluster.log import EventLog
from optim.models.cluster.metrics import Metrics
from optim.models.cluster.proof import IntervalProof, LoadProof, PriceProof
from optim.models.cluster.rules import Rules
from optim.models.cluster.utility import Worth
from optim.models.cluster.workload import LABELS, Workload
from optim.models.cluster.world import Cluster

SCHEMA = "optim/cluster-run/1"
WHAT, REMEDY = "a run of optim simulate cluster", "write one with --log FILE"
JOB_COLUMNS = ("submit_us", "gpus", "duration_us", "slowdown_ppm", "app", "group")
MORE_JOB_COLUMNS = (
    *("least_gpus", "most_gpus", "share_milli", "busy_milli", "kind_ppm", "cpu_milli", "memory_mib", "priority"),
    *("fails_us", "tries", "good_us", "user", "model", "status", "reason", "loss"),
)
MACHINE_COLUMNS = ("gpus", "rack", "kind")
MORE_MACHINE_COLUMNS = ("cpus", "memory_gb")
LOG_COLUMNS = ("time_us", "kind", "job", "first", "machine", "gpus")
MORE_LOG_COLUMNS = ("slot",)
"""Columns that files of earlier versions lack are called MORE here; what they stand for where they are missing is in the types."""
WORTH_ARRAYS, WORTH_NUMBERS = ("theta", "price"), ("slot_us", "utility", "bound")
NOT_WHOLE = ("loss", "cpus", "memory_gb")
TABLES = ("slowdown_ppm", "kind_ppm", "loss")


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
    bounds
        Claimed values by name (`jct_mean_h`, `makespan_h`, `slowdown_max`), and what proves them.
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


def save_run(record: RunRecord, path: str | Path) -> None:
    """Write a record."""
    header = {
        "schema": SCHEMA,
        "overhead_us": record.overhead_us,
        "settings": record.settings,
        "names": {names: getattr(record.jobs, names) for names in LABELS.values()},
        "kinds": record.cluster.kinds,
        "policies": [run.policy for run in record.runs],
        "metrics": [asdict(run.metrics) for run in record.runs],
        "rules": [asdict(run.rules) for run in record.runs],
        "figures": [dict(run.figures) for run in record.runs],
        "worth": [
            None if run.worth is None else {name: getattr(run.worth, name) for name in WORTH_NUMBERS}
            for run in record.runs
        ],
        "bounds": record.bounds,
        "slot_us": record.prices.slot_us if record.prices else None,
        "load": asdict(record.load) if record.load else None,
        "interval": asdict(record.interval) if record.interval else None,
    }
    arrays: Arrays = {"header": np.frombuffer(json.dumps(header).encode(), np.uint8)}
    arrays |= {f"jobs.{name}": getattr(record.jobs, name) for name in (*JOB_COLUMNS, *MORE_JOB_COLUMNS)}
    arrays |= {f"cluster.{name}": getattr(record.cluster, name) for name in (*MACHINE_COLUMNS, *MORE_MACHINE_COLUMNS)}
    for number, run in enumerate(record.runs):
        arrays |= {f"log{number}.{name}": getattr(run.log, name) for name in (*LOG_COLUMNS, *MORE_LOG_COLUMNS)}
        if run.worth is not None:
            arrays |= {f"worth{number}.{name}": getattr(run.worth, name) for name in WORTH_ARRAYS}
    if record.prices:
        arrays["price"] = record.prices.price
    write_arrays(path, arrays)


def load_run(path: str | Path) -> RunRecord:
    """Read a record.

    Raises
    ------
    InvalidProblemError
        If the file isn't one.
    """
    arrays = read_arrays(path, WHAT, REMEDY)
    try:
        header = json.loads(bytes(arrays["header"]))
        _require_schema(header["schema"])
        return RunRecord(
            jobs=_jobs(arrays, header.get("names", {})),
            cluster=Cluster(
                **_columns(arrays, "cluster", MACHINE_COLUMNS, MORE_MACHINE_COLUMNS),
                kinds=tuple(map(str, header.get("kinds", ("gpu",)))),
            ),
            overhead_us=int(header["overhead_us"]),
            settings=header["settings"],
            runs=tuple(
                LoggedRun(
                    policy=str(policy),
                    log=EventLog(**_columns(arrays, f"log{number}", LOG_COLUMNS, MORE_LOG_COLUMNS)),
                    metrics=Metrics(**metrics),
                    rules=Rules(**rules),
                    figures={str(name): float(value) for name, value in figures.items()},
                    worth=_worth(arrays, number, worth),
                )
                for number, (policy, metrics, rules, figures, worth) in enumerate(_headings(header))
            ),
            bounds={str(name): float(value) for name, value in header["bounds"].items()},
            prices=PriceProof(slot_us=int(header["slot_us"]), price=arrays["price"].astype(float))
            if header["slot_us"]
            else None,
            load=LoadProof(**header["load"]) if header["load"] else None,
            interval=IntervalProof(**header["interval"]) if header["interval"] else None,
        )
    except InvalidProblemError:
        raise
    except (KeyError, ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        said = " ".join(str(error).split())[:150]
        cause = f"no {said} in it" if isinstance(error, KeyError) else said
        raise InvalidProblemError(f"{path}: not {WHAT} ({cause}); {REMEDY}") from error


def _require_schema(schema: object) -> None:
    if schema != SCHEMA:
        raise ValueError(f"schema {schema!r} instead of {SCHEMA!r}")


def _jobs(arrays: Arrays, names: dict[str, Any]) -> Workload:
    """Return the jobs; names that a file of an earlier version lacks are numbers."""
    columns = _columns(arrays, "jobs", JOB_COLUMNS, MORE_JOB_COLUMNS)
    told: dict[str, Any] = {
        plural: tuple(map(str, names.get(plural, range(int(columns[column].max(initial=0)) + 1))))
        for column, plural in LABELS.items()
        if column in columns
    }
    return Workload(**columns, **told)


def _headings(header: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
    """Return name, figures, rules and own words of each run; files of earlier versions hold index policies only."""
    count, overhead = len(header["policies"]), int(header["overhead_us"])
    rules = header.get("rules", [{"restart_us": overhead, "move_us": overhead}] * count)
    more = [header.get(name, [nothing] * count) for name, nothing in (("figures", {}), ("worth", None))]
    return zip(header["policies"], header["metrics"], rules, *more, strict=True)


def _worth(arrays: Arrays, number: int, said: dict[str, Any] | None) -> Worth | None:
    """Return what a run's jobs are worth."""
    if said is None:
        return None
    theta, price = (arrays[f"worth{number}.{name}"].astype(float) for name in WORTH_ARRAYS)
    utility, bound = (float(said[name]) for name in WORTH_NUMBERS[1:])
    return Worth(theta=theta, price=price, slot_us=int(said["slot_us"]), utility=utility, bound=bound)


def _columns(arrays: Arrays, prefix: str, names: Sequence[str], more: Sequence[str]) -> dict[str, Any]:
    columns = {name: arrays[f"{prefix}.{name}"] for name in names}
    columns |= {name: arrays[f"{prefix}.{name}"] for name in more if f"{prefix}.{name}" in arrays}
    for name, values in columns.items():
        if values.dtype.kind not in ("iuf" if name in NOT_WHOLE else "iu") or values.ndim != (
            2 if name in TABLES else 1
        ):
            raise ValueError(f"{prefix}.{name} must hold whole numbers")
    if prefix.startswith("log"):
        first, events, places = columns["first"], len(columns["time_us"]), len(columns["machine"])
        sizes = {len(columns[name]) for name in ("time_us", "kind", "job")}
        is_whole = len(first) == events + 1 and first[0] == 0 and first[-1] == places and (np.diff(first) >= 0).all()
        per_place = {len(columns["gpus"]), len(columns.get("slot", columns["gpus"]))}
        if len(sizes) > 1 or per_place != {places} or not is_whole:
            raise ValueError(f"{prefix} has columns of different lengths")
    return {name: values.astype(np.float64 if name in NOT_WHOLE else np.int64) for name, values in columns.items()}
