"""File format of runs: an archive of jobs, cluster, options, and each policy's log, metrics and bounds."""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import UNSET, Meta, Struct, UnsetType, structs
from numpy.typing import NDArray

from optim.core.archives import Arrays, read_arrays, write_arrays
from optim.core.arrays import FloatArray, IntArray
from optim.core.documents import Name, convert, decode
from optim.core.errors import InvalidProblemError
from optim.core.limits import check_limit
from optim.core.optional import import_extra
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.columns import ALWAYS, LATER, Column, check_ranges, columns_of
from optim.models.cluster.log import PROMISES, Event, EventLog
from optim.models.cluster.metrics import NOT_TOLD, Metrics
from optim.models.cluster.policy_names import name_error
from optim.models.cluster.proof import DivisibleSchedule, IntervalProof, LoadProof, PriceProof, Worth
from optim.models.cluster.rules import Rules
from optim.models.cluster.workload import LABELS, LATEST_US, Workload

SCHEMA, FIRST_SCHEMA = "optim/cluster-run/2", "optim/cluster-run/1"
"""Present and first schema; only the present one has slots of any length, and keys with a digest of jobs and cluster."""

Time = Annotated[int, Meta(ge=0, le=LATEST_US)]

Bound = Annotated[float, Meta(ge=0)]

Key = Annotated[str, Meta(pattern=r"^.+:[0-9a-f]{32}\Z")]

OLD_NAME, FIGURES_SINCE = "queue_mean_h", {"first_start_mean_h", "wait_mean_h"}
"""Former name of the mean wait before the first start, and the metrics that replaced it."""

LATER_FIELDS = {
    "metrics": {each.name for each in fields(Metrics) if each.default == NOT_TOLD} - FIGURES_SINCE,
    "rules": {
        "preempt_checkpoint_us",
        "may_spread",
        "knows_quotas",
        "quotas",
        "kills_at_limit",
        "reservation_depth",
        "startup_us",
    },
}
"""Metrics and rules added after the first files of the second schema.

A missing rule has its default, a missing metric is `NOT_TOLD`. A new metric only needs the default `NOT_TOLD`."""

RECORDS: Mapping[str, type[Any]] = {"metrics": Metrics, "rules": Rules, "load": LoadProof, "interval": IntervalProof}
"""Class of the records in some header fields; a record may have only the fields of its class."""


class NamesDocument(Struct, forbid_unknown_fields=True):
    """Names that columns of jobs refer to by index; files of earlier versions lack the fields with a default."""

    groups: list[str]
    users: list[str]
    models: list[str]
    statuses: list[str]
    reasons: list[str]
    accounts: list[str] = msgspec.field(default_factory=lambda: [""])
    qos_names: list[str] = msgspec.field(default_factory=lambda: [""])


UNNAMED = ("",)
"""Names of a column if no names are given: a single unknown name."""

LATER_NAMES = tuple(each.name for each in structs.fields(NamesDocument) if not each.required)


class WorthDocument(Struct, forbid_unknown_fields=True):
    """Claimed utility of a run, and claimed upper bound for all schedules."""

    slot_us: Time
    utility: float
    bound: float


class BoundsDocument(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Claimed lower bounds for all schedules; metrics without a proof have none."""

    jct_mean_h: Bound | UnsetType = UNSET
    makespan_h: Bound | UnsetType = UNSET
    slowdown_max: Bound | UnsetType = UNSET


class HeaderDocument(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """All fields of a file other than arrays; unset fields are missing in files of earlier versions."""

    schema: Literal["optim/cluster-run/1", "optim/cluster-run/2"]
    overhead_us: Time
    settings: dict[str, Any]
    policies: list[Name]
    metrics: list[Metrics]
    bounds: BoundsDocument
    load: LoadProof | None
    interval: IntervalProof | None
    slot_us: Time | UnsetType | None = UNSET
    names: NamesDocument | UnsetType = UNSET
    kinds: list[Name] | UnsetType = UNSET
    rules: list[Rules] | UnsetType = UNSET
    figures: list[dict[Name, float]] | UnsetType = UNSET
    worth: list[WorthDocument | None] | UnsetType = UNSET
    ids: list[str] | UnsetType = UNSET
    price_bound_limit_h: Bound | UnsetType = UNSET

    def __post_init__(self) -> None:
        """Check that each list has one entry per run; the decoder adds the field's path to errors."""
        if (self.slot_us is UNSET) != (self.schema == SCHEMA):
            raise ValueError(f"slot_us must be present in files of schema {FIRST_SCHEMA!r}, and in no others")
        for name in ("metrics", "rules", "figures", "worth"):
            said = getattr(self, name)
            if said is not UNSET and len(said) != len(self.policies):
                raise ValueError(
                    f"{name} has {len(said)} entries for {len(self.policies)} policies; give one per policy"
                )

    def names_of(self, column: str, most: int) -> tuple[str, ...]:
        """Return the names that a column of jobs refers to; for files of earlier versions, the numbers 0 to `most` as texts.

        Raises
        ------
        InvalidProblemError
            If `most` exceeds the limit on counts.
        """
        if isinstance(self.names, NamesDocument):
            return tuple(getattr(self.names, LABELS[column]))
        check_limit("count", most, f"numbers in jobs.{column}")
        return tuple(map(str, range(most + 1)))

    def rules_of(self, run: int) -> Rules:
        """Return the rules of a run; files of earlier versions only have the restart time."""
        if isinstance(self.rules, UnsetType):
            return Rules(restart_us=self.overhead_us, move_us=self.overhead_us)
        return self.rules[run]

    def figures_of(self, run: int) -> dict[str, float]:
        """Return the statistics that the policy of a run reports."""
        return {} if isinstance(self.figures, UnsetType) else self.figures[run]

    def worth_of(self, run: int) -> WorthDocument | None:
        """Return the claimed utility of a run, or None."""
        return None if isinstance(self.worth, UnsetType) else self.worth[run]

    def bounds_by_name(self) -> dict[str, float]:
        """Return the claimed bounds."""
        return {name: value for name, value in msgspec.structs.asdict(self.bounds).items() if value is not UNSET}


def decode_header(data: bytes, *, is_whole: bool) -> HeaderDocument:
    """Return the header of a file.

    Parameters
    ----------
    data
        The header as JSON.
    is_whole
        Whether the file has the last parts that releases added to the first schema; a file of the first schema without
        them may have incomplete metrics and rules.

    Raises
    ------
    InvalidProblemError
        If a field is invalid; the message names its path.
    """
    data = _of_this_version(data)
    header = decode(data, HeaderDocument)
    plain = json.loads(data, parse_int=float)
    for name, record in RECORDS.items():
        entries = plain.get(name) or []
        for number, entry in enumerate(entries if isinstance(entries, list) else [entries]):
            where = f"{name}[{number}]" if isinstance(entries, list) else name
            known = [field.name for field in fields(record)]
            later = LATER_FIELDS.get(name, set())
            if header.schema == FIRST_SCHEMA:
                later = later | FIGURES_SINCE if is_whole else set(known)
            _check_fields(where, entry, known, [each for each in known if each not in later])
    if "keys" in header.settings:
        keys = convert(header.settings["keys"], list[Key], "settings.keys")
        _check_keys(keys, header.policies)
    if why := name_error(header.policies):
        raise InvalidProblemError(f"policies: {why}")
    return header


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object, or raise ValueError if a name occurs twice."""
    if len(found := dict(pairs)) < len(pairs):
        raise ValueError("given twice")
    return found


def _of_this_version(data: bytes) -> bytes:
    """Return a header with the fields and metrics of earlier versions under their present names."""
    try:
        plain = json.loads(data, object_pairs_hook=_once)
        is_former = _rename_fields(plain)
        entries = plain["metrics"] if plain["schema"] == FIRST_SCHEMA else []
        old = [entry for entry in entries if OLD_NAME in entry and not FIGURES_SINCE & entry.keys()]
    except (ValueError, TypeError, KeyError, RecursionError):
        return data  # the decoder reports the error
    for entry in old:
        entry["first_start_mean_h"] = entry.pop(OLD_NAME)
        entry["wait_mean_h"] = NOT_TOLD
    return json.dumps(plain).encode() if old or is_former else data


def _rename_fields(plain: Any) -> bool:
    """Rename fields with former names in place; return whether there were any."""
    is_former = False
    for entry in plain.values() if isinstance(plain, dict) else plain if isinstance(plain, list) else ():
        is_former |= _rename_fields(entry)
    if isinstance(plain, dict):
        for former, present in FORMER_FIELDS.items():
            if former in plain and present not in plain:
                plain[present] = plain.pop(former)
                is_former = True
    return is_former


def _check_fields(where: str, entry: Mapping[str, Any], known: Sequence[str], due: Sequence[str]) -> None:
    for unknown in entry.keys() - set(known):
        raise InvalidProblemError(f"{where}: unknown field {unknown[:40]!r}; remove it or correct its spelling")
    missing = [name for name in due if name not in entry]
    if missing:
        raise InvalidProblemError(f"{where}: missing field {missing[0]!r}; add it")


def _check_keys(keys: Sequence[str], policies: Sequence[str]) -> None:
    if len(keys) != len(policies) or len(set(keys)) < len(keys):
        raise InvalidProblemError(f"settings.keys: must be {len(policies)} distinct keys, one per policy")


TABLE_TYPES: Mapping[str, type[Any]] = {"jobs": Workload, "cluster": Cluster, "log": EventLog}
"""Dataclass whose columns are stored under each prefix of array names."""

FORMER_COLUMNS = {
    column.former: name for owner in TABLE_TYPES.values() for name, column in columns_of(owner).items() if column.former
}
"""Present name of each column that has another name in files of earlier releases."""

FORMER_FIELDS = {
    "failed_tries": "failed_attempts",
    "most_by_prices_h": "price_bound_limit_h",
    "most_retries": "max_retries",
}
"""Present name of each header field that has another name in files of earlier releases."""

WORTH_ARRAYS = ("theta", "price")

DIVISIBLE_ARRAYS = ("job", "weight", "gpu_type", "start_us")

MOST, LARGEST = np.iinfo(np.int64).max, 8
"""Largest integer, and largest size of a number in bytes."""

HEADER_STAGES = {
    1: ("header.rules", "header.figures"),
    2: ("header.names", "header.kinds"),
    3: ("header.worth",),
    4: (),
}

STAGES: Sequence[Sequence[str]] = [
    [
        *parts,
        *(
            f"{table}.{name}"
            for table, owner in TABLE_TYPES.items()
            for name, column in columns_of(owner).items()
            if column.since == stage
        ),
    ]
    for stage, parts in HEADER_STAGES.items()
]
"""Parts of a file by stage: the parts that one release added. A file with a part of a stage must have all parts of this and
earlier stages."""


class RunArrays:
    """The arrays of a file, each of which must be known and be read.

    Parameters
    ----------
    arrays
        Arrays by name, including the header's bytes.
    """

    def __init__(self, arrays: Arrays) -> None:
        self._arrays = {self._present(name, arrays): array for name, array in arrays.items()}
        self._unread = set(self._arrays)

    @staticmethod
    def _present(name: str, arrays: Arrays) -> str:
        """Return the present name of an array."""
        table, _, column = name.rpartition(".")
        present = f"{table}.{FORMER_COLUMNS[column]}" if column in FORMER_COLUMNS else name
        return name if present in arrays else present

    @property
    def is_whole(self) -> bool:
        """Whether the file has the parts added last to the first schema."""
        return any(name in self._arrays for name in STAGES[-1])

    @property
    def has_prices(self) -> bool:
        """Whether the file has prices, or a part of them."""
        return "price" in self._arrays or "price_end_us" in self._arrays

    def has_any(self, prefix: str) -> bool:
        """Return whether the name of an array starts with a prefix."""
        return any(name.startswith(prefix) for name in self._arrays)

    def dimensions(self, name: str) -> int:
        """Return 2 if an array has two dimensions, else 1."""
        return 2 if name in self._arrays and self._arrays[name].ndim == 2 else 1

    def header(self) -> bytes:
        """Return the bytes of the header."""
        values = self._take("header")
        if values.dtype != np.uint8 or values.ndim != 1:
            raise InvalidProblemError("header must be an array of bytes")
        return values.tobytes()

    def check_parts(self, header: HeaderDocument) -> None:
        """Check that the parts of each stage are complete."""
        there = {
            *self._arrays,
            *(f"header.{name}" for name, value in structs.asdict(header).items() if value is not UNSET),
        }
        is_due = header.schema == SCHEMA
        for stage in reversed(STAGES):
            names = [each for name in stage for each in _of_runs(name, len(header.policies))]
            missing = [name for name in names if name not in there]
            is_due |= len(missing) < len(names)
            if is_due and missing:
                raise InvalidProblemError(f"{missing[0]} is missing, but other parts of the file require it")

    def check_all_read(self) -> None:
        """Check that all arrays have been read."""
        if self._unread:
            raise InvalidProblemError(f"unknown array {min(self._unread)[:40]!r}")

    def whole(self, name: str, dims: int) -> IntArray:
        """Return an array of integers."""
        values = self._take(name)
        is_whole = values.dtype.kind in "iu" and values.ndim == dims
        if not is_whole or (values.dtype.kind == "u" and values.max(initial=0) > MOST):
            raise InvalidProblemError(f"{name} must hold 64-bit integers in {dims} dimensions")
        return values.astype(np.int64)

    def floats(self, name: str, dims: int) -> FloatArray:
        """Return an array of finite numbers."""
        values = self._take(name)
        is_real = values.dtype.kind in "iuf" and values.dtype.itemsize <= LARGEST and values.ndim == dims
        if not is_real or not np.isfinite(values).all():
            raise InvalidProblemError(f"{name} must hold finite 64-bit numbers in {dims} dimensions")
        return values.astype(np.float64)

    def columns(self, table: str, prefix: str) -> dict[str, Any]:
        """Return the columns of a table by name; columns that earlier versions lack are optional."""
        return {
            name: (self.whole if column.dtype is np.int64 else self.floats)(f"{prefix}.{name}", column.dims)
            for name, column in columns_of(TABLE_TYPES[table]).items()
            if column.since == ALWAYS or f"{prefix}.{name}" in self._arrays
        }

    def table(self, name: str) -> dict[str, Any]:
        """Return the columns of a table, which must have equal lengths: an empty column is an error, not a default."""
        columns = self.columns(name, name)
        first = next(iter(columns))
        for each, values in columns.items():
            if len(values) != len(columns[first]):
                raise InvalidProblemError(
                    f"{name}.{each} has {len(values)} rows, but {name}.{first} has {len(columns[first])}"
                )
        return columns

    def log(self, number: int) -> EventLog:
        """Return a run's events."""
        prefix = f"log{number}"
        columns = self.columns("log", prefix)
        first, events, places = columns["first"], len(columns["time_us"]), len(columns["machine"])
        sizes = {len(columns[name]) for name in ("time_us", "kind", "job", *PROMISES) if name in columns}
        is_whole = len(first) == events + 1 and first[0] == 0 and first[-1] == places and (np.diff(first) >= 0).all()
        slot = columns.get("slot", np.full(len(columns["gpus"]), -1))
        if len(sizes) > 1 or {len(columns["gpus"]), len(slot)} != {places} or not is_whole:
            raise InvalidProblemError(f"{prefix} has columns of different lengths")
        if not ((slot == -1).all() or (slot >= 0).all()):
            raise InvalidProblemError(
                f"{prefix}.slot must name a GPU for every entry of {prefix}.gpus, or be -1 everywhere"
            )
        log = EventLog(**columns)
        check_ranges(log)
        return log

    def _take(self, name: str) -> NDArray[Any]:
        if name not in self._arrays:
            raise InvalidProblemError(f"{name} is missing")
        self._unread.discard(name)
        return self._arrays[name]


def _of_runs(name: str, runs: int) -> Iterator[str]:
    """Yield the array names of a part: one name per run if the part belongs to logs, otherwise only its name."""
    prefix, _, column = name.partition(".")
    yield from (f"log{number}.{column}" for number in range(runs)) if prefix == "log" else (name,)


LENGTH = 16
"""Number of hexadecimal digits of a digest."""


def _is_given(table: Any, name: str, column: Column) -> bool:
    """Return whether a column belongs in files and digests; a column with `LATER` only if it differs from its default."""
    return column.since != LATER or bool((getattr(table, name) != column.fill).any())


def digest_of(jobs: Workload, cluster: Cluster) -> str:
    """Return a digest of the columns of jobs and cluster that a file contains."""
    digest = hashlib.sha256()
    for owner in (jobs, cluster):
        for name, column in columns_of(owner).items():
            if _is_given(owner, name, column):
                digest.update((column.former or name).encode() + getattr(owner, name).tobytes())
    return digest.hexdigest()[:LENGTH]


WHAT, REMEDY = "a run of optim simulate cluster", "write one with --log FILE"

MAX_SAID = 180
"""Largest number of characters of a cause in an error message."""

WORTH_NUMBERS = ("slot_us", "utility", "bound")


@dataclass(frozen=True, kw_only=True, eq=False)
class LoggedRun:
    """One policy's run as claimed; `figures` are reported by the policy and not verified, `worth` is verified."""

    policy: str
    log: EventLog
    metrics: Metrics
    rules: Rules
    figures: Mapping[str, float] = field(default_factory=dict)
    worth: Worth | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class RunRecord:
    """Contents of a file of runs.

    Parameters
    ----------
    jobs, cluster, overhead_us
        Jobs, cluster and restart time of the runs.
    settings
        Options, seed and versions, for information.
    runs
        One run per policy.
    schema
        Schema of the file from which the record was read, or to which it is written.
    bounds
        Claimed lower bounds by name (`jct_mean_h`, `makespan_h`, `slowdown_max`), proven by `prices`, `load` and `interval`.
    price_bound_limit_h
        Claimed upper bound, in hours, of all bounds that prices can prove for the mean completion time; proven by `divisible`.
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
    price_bound_limit_h: float | None = None
    divisible: DivisibleSchedule | None = None
    schema: str = SCHEMA

    def __post_init__(self) -> None:
        """Raise InvalidProblemError if the numbers of types, machines or virtual clusters don't match."""
        groups = len(self.jobs.groups)
        for run in self.runs:
            if len(run.rules.quotas) not in (0, groups):
                raise InvalidProblemError(
                    f"rules of {run.policy}: expected {groups} quotas, one per virtual cluster, got {len(run.rules.quotas)}"
                )
        types, used = self.jobs.gpu_type_slowdown_ppm.shape[1], int(self.cluster.kind.max()) + 1
        if 0 < types < used:
            raise InvalidProblemError(
                f"gpu_type_slowdown_ppm has {types} columns for {used} types of GPU; give one per type"
            )
        rows = np.atleast_2d(self.prices.price).shape[0] if self.prices else 1
        if rows not in (1, max(1, types)):
            raise InvalidProblemError(
                f"price has {rows} rows for {max(1, types)} types of GPU; give one per type, or one for all"
            )

    @property
    def is_of_earlier_schema(self) -> bool:
        """Whether the record was read from an earlier schema, which has no digests in keys and fewer metrics."""
        return self.schema != SCHEMA

    def to_frame(self) -> Any:
        """Return all events as a pandas DataFrame, one row per event and machine: policy, time, kind, job, machine and GPUs.

        `time_h` is hours after the first submission, `date` the UTC date if the trace has dates, else None. `machine` is -1
        for events that name no machine, `job` is None for events of machines.

        Raises
        ------
        MissingDependencyError
            If pandas isn't installed.
        """
        pd = import_extra("pandas", "a frame of events")

        begin = self.settings.get("begin")
        frames = []
        for run in self.runs:
            log = run.log
            places = np.diff(log.first)
            event = np.repeat(np.arange(len(log)), np.maximum(places, 1))
            has_place = places[event] > 0
            machine, gpus = np.full(len(event), -1), np.zeros(len(event), np.int64)
            machine[has_place], gpus[has_place] = log.machine, log.gpus
            names = np.array([*self.jobs.ids, None], dtype=object)
            frame = {
                "policy": run.policy,
                "time_h": log.time_us[event] / 3.6e9,
                "date": None if begin is None else pd.Timestamp(begin) + pd.to_timedelta(log.time_us[event], unit="us"),
                "kind": [Event(kind).name for kind in log.kind[event].tolist()],
                "job": names[log.job[event]],
                "machine": machine,
                "gpus": gpus,
            }
            frames.append(pd.DataFrame(frame))
        return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def save_run(record: RunRecord, path: str | Path) -> None:
    """Write a record; non-finite values of `LoggedRun.figures` are left out."""
    settings = dict(record.settings)
    if record.is_of_earlier_schema:
        settings.pop("keys", None)  # keys of earlier schemas are invalid in the present one
    header = {
        "schema": SCHEMA,
        "overhead_us": record.overhead_us,
        "settings": settings,
        "names": {
            names: getattr(record.jobs, names)
            for names in LABELS.values()
            if names not in LATER_NAMES or getattr(record.jobs, names) != UNNAMED
        },
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
    if record.price_bound_limit_h is not None:
        header["price_bound_limit_h"] = record.price_bound_limit_h
    if record.jobs.ids != record.jobs.numbered:
        header["ids"] = record.jobs.ids
    arrays: Arrays = {"header": np.frombuffer(json.dumps(header).encode(), np.uint8)}
    tables = {"jobs": record.jobs, "cluster": record.cluster}
    tables |= {f"log{number}": run.log for number, run in enumerate(record.runs)}
    arrays |= {
        f"{prefix}.{name}": getattr(table, name)
        for prefix, table in tables.items()
        for name, column in columns_of(table).items()
        if _is_given(table, name, column)
    }
    for number, run in enumerate(record.runs):
        if run.worth is not None:
            arrays |= {f"worth{number}.{name}": getattr(run.worth, name) for name in WORTH_ARRAYS}
    if record.prices:
        arrays |= {"price": record.prices.price, "price_end_us": record.prices.end_us}
    if record.divisible:
        arrays |= {f"divisible.{name}": getattr(record.divisible, name) for name in DIVISIBLE_ARRAYS}
    write_arrays(path, arrays)


def load_run(path: str | Path) -> RunRecord:
    """Read a record.

    Raises
    ------
    InvalidProblemError
        If the file isn't a valid record, or has unknown fields or arrays; the message names them.

    Examples
    --------
    >>> import optim
    >>> optim.load_run("missing.npz")
    Traceback (most recent call last):
    ...
    optim.core.errors.InvalidProblemError: missing.npz: can't be read: No such file or directory; check the path
    """
    arrays = read_arrays(path, WHAT, REMEDY)
    try:
        return _record(RunArrays(arrays))
    except InvalidProblemError as error:
        said = " ".join(str(error).split())[:MAX_SAID]
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
        price_bound_limit_h=None if isinstance(header.price_bound_limit_h, UnsetType) else header.price_bound_limit_h,
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
    columns = arrays.table("cluster")
    if not isinstance(header.kinds, UnsetType):
        columns["kinds"] = tuple(header.kinds)
    with _naming("cluster"):
        return Cluster(**columns)


def _jobs(arrays: RunArrays, header: HeaderDocument) -> Workload:
    """Return the jobs; in files of earlier versions, numbers replace missing names."""
    columns = arrays.table("jobs")
    columns |= {
        plural: header.names_of(column, int(columns[column].max(initial=0)))
        for column, plural in LABELS.items()
        if column in columns
    }
    if isinstance(header.names, NamesDocument):
        columns |= {plural: tuple(getattr(header.names, plural)) for plural in LATER_NAMES}
    if not isinstance(header.ids, UnsetType):
        columns["ids"] = tuple(header.ids)
    with _naming("jobs"):
        return Workload(**columns)


def _prices(arrays: RunArrays, header: HeaderDocument) -> PriceProof | None:
    """Return the prices; in the first schema all slots have the same length."""
    slot = header.slot_us
    if slot is None or (isinstance(slot, UnsetType) and not arrays.has_prices):
        return None
    price = arrays.floats("price", arrays.dimensions("price") if isinstance(slot, UnsetType) else 1)
    if isinstance(slot, UnsetType):
        return PriceProof(end_us=arrays.whole("price_end_us", 1), price=price)
    return PriceProof.of_equal_slots(slot, price)


def _divisible(arrays: RunArrays) -> DivisibleSchedule | None:
    """Return the divisible schedule, or None if the file has none."""
    if not arrays.has_any("divisible."):
        return None
    job, gpu_type, start_us = (arrays.whole(f"divisible.{name}", 1) for name in ("job", "gpu_type", "start_us"))
    weight = arrays.floats("divisible.weight", 1)
    with _naming("divisible"):
        return DivisibleSchedule(job=job, weight=weight, gpu_type=gpu_type, start_us=start_us)


def _worth(arrays: RunArrays, header: HeaderDocument, number: int) -> Worth | None:
    """Return the utilities of a run's jobs, or None."""
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
    """Prefix errors with the part of the file that they concern."""
    try:
        yield
    except InvalidProblemError as error:
        raise InvalidProblemError(f"{part}: {error}") from error
