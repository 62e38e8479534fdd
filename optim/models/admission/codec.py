"""Convert admission instances from and to documents of format ``optim/admission/1``, plain Python and frames.

`optim.models.admission.instance` builds an `AdmissionInstance` from a document. Every quantity is a decimal
with at most six digits after the point, so that it is an integer multiple of 1e-6 units.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from decimal import Decimal
from fractions import Fraction
from numbers import Real
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import UNSET, Meta, Struct, UnsetType, field
from msgspec.structs import asdict as fields_of

from optim.core.arrays import IntArray
from optim.core.documents import Count, Name, PositiveInt, convert
from optim.core.errors import InvalidProblemError
from optim.core.frames import Rows, rows_of
from optim.core.limits import check_limit
from optim.models.admission.data import (
    MAX_QUANTITY,
    MICRO,
    TWENTIETHS,
    AdmissionData,
    ConstantUtility,
    Jobs,
    ServerClasses,
    SigmoidUtility,
    StepUtility,
    TableUtility,
    Utility,
    as_int_array,
    curve_of,
)

SCHEMA = "optim/admission/1"

NonNegative = Annotated[Decimal, Meta(description="decimal >= 0 with at most 6 digits after the point")]

Positive = Annotated[Decimal, Meta(description="decimal > 0 with at most 6 digits after the point")]


class SigmoidDocument(Struct, tag_field="kind", tag="sigmoid", forbid_unknown_fields=True):
    """Utility f(d) = theta1 / (1 + exp(theta2 (d - theta3))) of a delay of d slots.

    Parameters
    ----------
    theta1
        Upper limit of the utility.
    theta2
        Steepness per slot.
    theta3
        Delay, in slots, at which the utility is theta1 / 2.
    """

    theta1: float
    theta2: float
    theta3: float


class ConstantDocument(Struct, tag_field="kind", tag="constant", forbid_unknown_fields=True):
    """Utility f(d) = value of a delay of d slots.

    Parameters
    ----------
    value
        Utility of every delay.
    """

    value: float


class StepDocument(Struct, tag_field="kind", tag="step", forbid_unknown_fields=True):
    """Utility of a delay of d slots: f(d) = value for d <= deadline, then late_value.

    Parameters
    ----------
    value
        Utility of a delay up to the deadline.
    deadline
        Longest delay, in slots, with the utility `value` (`StepUtility.max_delay` in Python).
    late_value
        Utility of a longer delay.
    """

    value: float
    max_delay: Count = field(name="deadline")
    late_value: float = 0.0


class TableDocument(Struct, tag_field="kind", tag="table", forbid_unknown_fields=True):
    """Utility f(d) = table[d] of a delay of d slots, 0 beyond the table.

    Parameters
    ----------
    table
        Utility of a delay of 0, 1, ... slots.
    """

    table: list[float]


UtilityDocument = SigmoidDocument | ConstantDocument | StepDocument | TableDocument


class SegmentDocument(Struct, forbid_unknown_fields=True):
    """Demands of a job from `start` units of progress up to the start of the next segment.

    The unit of progress is a chunk if `chunk_integral`, else a twentieth of a worker-slot for a job with a
    `speedup`, else a worker-slot.

    Parameters
    ----------
    start
        Progress from which the demands hold.
    worker, ps
        Demands of one worker and one PS.
    """

    start: Count
    worker: list[NonNegative]
    ps: list[NonNegative]


class JobDocument(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One training job.

    Demands are either `worker` and `ps` or `segments`.

    Parameters
    ----------
    id
        Name.
    arrival
        Slot of arrival, from 0.
    epochs
        Number of epochs (E).
    chunks
        Number of data chunks (N), also the maximum number of concurrent workers.
    minibatches
        Mini-batches per chunk (M).
    minibatch_s
        Seconds per mini-batch (tau).
    gradient_mb
        Megabytes of gradients, one way (e).
    worker_mbps, ps_mbps
        Bandwidth of a worker (b) and of a PS (B), in megabits per second.
    utility
        Utility of completion d slots after arrival.
    worker, ps
        Demands of one worker and one PS, lists over the resources.
    segments
        Demands that change with the job's progress.
    min_utility
        Completions with a smaller utility earn nothing; replaces the instance's share of f(0).
    speedup
        Speed of 1, 2, ... workers relative to one worker, multiples of 0.05; the last entry holds for more workers.
    """

    id: Name
    arrival: Count
    epochs: PositiveInt
    chunks: PositiveInt
    minibatches: PositiveInt
    minibatch_s: NonNegative
    gradient_mb: NonNegative
    worker_mbps: Positive
    ps_mbps: Positive
    utility: UtilityDocument
    worker: list[NonNegative] | UnsetType = UNSET
    ps: list[NonNegative] | UnsetType = UNSET
    segments: list[SegmentDocument] | UnsetType = UNSET
    min_utility: float | UnsetType = UNSET
    speedup: list[Positive] | UnsetType = UNSET


class ServerClassDocument(Struct, forbid_unknown_fields=True):
    """Identical servers.

    Parameters
    ----------
    type
        Name of the class.
    capacity
        Capacity of one server: a list over the resources, or one such list per slot.
    count
        Number of servers.
    """

    type: Name
    capacity: list[NonNegative | list[NonNegative]]
    count: PositiveInt


class AdmissionDocument(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """An admission instance. Servers are `worker_servers` and `ps_servers`, or `shared_servers`.

    Parameters
    ----------
    schema
        `optim/admission/1`.
    name
        Name of the instance.
    horizon
        Number of slots.
    slot_s
        Seconds per slot.
    resources
        Resource names.
    jobs
        The jobs.
    worker_servers, ps_servers
        Classes of servers for workers and for PSs.
    shared_servers
        Classes of servers for both.
    min_utility
        Completions with a utility below this share of f(0) earn nothing.
    max_share_per_server
        Maximum share of each resource of one server that a job's workers, or its PSs, may use in a slot (on shared
        servers both together); a single worker or PS is always allowed.
    chunk_integral
        Whether workers process only complete chunks within a slot.
    """

    schema: str
    name: Name
    horizon: PositiveInt
    slot_s: Positive
    resources: list[Name]
    jobs: list[JobDocument]
    worker_servers: list[ServerClassDocument] | UnsetType = UNSET
    ps_servers: list[ServerClassDocument] | UnsetType = UNSET
    shared_servers: list[ServerClassDocument] | UnsetType = UNSET
    min_utility: Decimal = Decimal("0.01")
    max_share_per_server: Decimal | None = None
    chunk_integral: bool = False


MIN_QUANTITY = Decimal("0.000001")

WHOLE_FIELDS = ("arrival", "epochs", "chunks", "minibatches")
"""Integer fields of a job, with the same names and units in documents and in `Jobs`."""

MICRO_FIELDS = {
    "minibatch_s": "minibatch_micro_s",
    "gradient_mb": "gradient_micro_mb",
    "worker_mbps": "worker_micro_mbps",
    "ps_mbps": "ps_micro_mbps",
}
"""Decimal fields of a job's document, each with the field of `Jobs` that holds it in 1e-6 units."""

UTILITIES: dict[type[Any], type[Any]] = {
    SigmoidDocument: SigmoidUtility,
    ConstantDocument: ConstantUtility,
    StepDocument: StepUtility,
    TableDocument: TableUtility,
}


def fields_from_document(document: AdmissionDocument) -> dict[str, Any]:
    """Return the fields of the instance that a document describes; the constructor of the instance validates them.

    Raises
    ------
    InvalidProblemError
        If a field contradicts the format; the message names its path, value and remedy.
    """
    horizon, num_resources = document.horizon, len(document.resources)
    check_limit("count", horizon, "horizon")
    check_limit("cells", horizon * len(document.jobs), "horizon times jobs")
    disjoint = (document.worker_servers, document.ps_servers)
    if isinstance(document.shared_servers, UnsetType):
        if isinstance(disjoint[0], UnsetType) or isinstance(disjoint[1], UnsetType):
            raise InvalidProblemError("worker_servers and ps_servers are both required unless shared_servers is given")
        worker_servers = _servers("worker_servers", disjoint[0], horizon, num_resources)
        ps_servers = _servers("ps_servers", disjoint[1], horizon, num_resources)
    else:
        if disjoint != (UNSET, UNSET):
            raise InvalidProblemError(
                "shared_servers excludes worker_servers and ps_servers; give shared_servers, or the other two"
            )
        worker_servers = ps_servers = _servers("shared_servers", document.shared_servers, horizon, num_resources)
    share = document.max_share_per_server
    return {
        "name": document.name,
        "horizon": horizon,
        "slot_micro_s": _micro(document.slot_s, "slot_s"),
        "resources": tuple(document.resources),
        "jobs": _jobs(document.jobs, num_resources),
        "worker_servers": worker_servers,
        "ps_servers": ps_servers,
        "min_utility_share": _fraction(document.min_utility, "min_utility"),
        "max_share_per_server": None if share is None else _fraction(share, "max_share_per_server"),
        "chunk_integral": document.chunk_integral,
    }


def document_from_instance(instance: AdmissionData) -> AdmissionDocument:
    """Return the document of an instance; reading it back gives equal data."""
    share = instance.max_share_per_server
    is_shared = instance.has_shared_servers
    return AdmissionDocument(
        schema=SCHEMA,
        name=instance.name,
        horizon=instance.horizon,
        slot_s=_decimal(instance.slot_micro_s),
        resources=list(instance.resources),
        jobs=[_job_document(instance.jobs, i) for i in range(instance.num_jobs)],
        worker_servers=UNSET if is_shared else _server_documents(instance.worker_servers),
        ps_servers=UNSET if is_shared else _server_documents(instance.ps_servers),
        shared_servers=_server_documents(instance.worker_servers) if is_shared else UNSET,
        min_utility=_decimal_of(instance.min_utility_share),
        max_share_per_server=None if share is None else _decimal_of(share),
        chunk_integral=instance.chunk_integral,
    )


def _job_document(jobs: Jobs, i: int) -> JobDocument:
    segments = [
        SegmentDocument(
            start=int(jobs.segment_start[s]), worker=_decimals(jobs.worker_demand[s]), ps=_decimals(jobs.ps_demand[s])
        )
        for s in range(int(jobs.segment_offset[i]), int(jobs.segment_offset[i + 1]))
    ]
    is_plain = len(segments) == 1
    numbers: dict[str, Any] = {name: int(getattr(jobs, name)[i]) for name in WHOLE_FIELDS}
    numbers |= {name: _decimal(int(getattr(jobs, field)[i])) for name, field in MICRO_FIELDS.items()}
    return JobDocument(
        id=jobs.ids[i],
        **numbers,
        utility=_utility_document(jobs.utilities[i]),
        worker=segments[0].worker if is_plain else UNSET,
        ps=segments[0].ps if is_plain else UNSET,
        segments=UNSET if is_plain else segments,
        min_utility=UNSET if np.isnan(jobs.min_utility[i]) else float(jobs.min_utility[i]),
        speedup=[_decimal(units * (MICRO // TWENTIETHS)) for units in curve_of(jobs, i)] or UNSET,
    )


def _micro(value: Decimal, path: str) -> int:
    """Return a decimal as an exact integer of 1e-6 units."""
    if not value.is_finite():
        raise InvalidProblemError(f"{path} must be a finite number, got {value}")
    if value.copy_abs() > MAX_QUANTITY:  # `copy_abs`, since `abs` rounds and overflows for huge exponents
        raise InvalidProblemError(f"{path} must be at most {MAX_QUANTITY}, got {value}; choose a larger unit")
    rounded = value.quantize(MIN_QUANTITY)
    if rounded != value:
        raise InvalidProblemError(
            f"{path} must have at most 6 digits after the point, got {value}; round it or choose a smaller unit"
        )
    return int(rounded.scaleb(6))


def _fraction(value: Decimal, path: str) -> Fraction:
    return Fraction(_micro(value, path), MICRO)


def _decimal(micro: int) -> Decimal:
    """Return 1e-6 units as a decimal without trailing zeros or exponent."""
    value = Decimal(micro) / MICRO
    return value.quantize(Decimal(1)) if value == value.to_integral_value() else value.normalize()


def _decimal_of(fraction: Fraction) -> Decimal:
    return _decimal(int(fraction * MICRO))


def _decimals(micro: IntArray) -> list[Decimal]:
    return [_decimal(quantity) for quantity in micro.tolist()]


def _demand(values: list[Decimal], num_resources: int, path: str) -> list[int]:
    if len(values) != num_resources:
        raise InvalidProblemError(f"{path} must list {num_resources} resources, got {len(values)} numbers")
    quantities = [_micro(value, f"{path}[{r}]") for r, value in enumerate(values)]
    for r, quantity in enumerate(quantities):
        if quantity < 0:
            raise InvalidProblemError(
                f"{path}[{r}] must not be negative, got {values[r]}; use 0 for an unused resource"
            )
    return quantities


def _servers(side: str, documents: Sequence[ServerClassDocument], horizon: int, num_resources: int) -> ServerClasses:
    check_limit("count", sum(document.count for document in documents), f"{side}: servers")
    check_limit("cells", len(documents) * horizon * num_resources, f"{side}: classes times slots times resources")
    capacity = np.zeros((len(documents), horizon, num_resources), dtype=np.int64)
    for c, document in enumerate(documents):
        path = f"{side}[{c}].capacity"
        by_slot = [row for row in document.capacity if isinstance(row, list)]
        if by_slot and len(by_slot) < len(document.capacity):
            raise InvalidProblemError(
                f"{path} mixes numbers and lists; give one list over the resources, or one such list per slot"
            )
        if not by_slot:
            flat = [value for value in document.capacity if isinstance(value, Decimal)]
            capacity[c] = _demand(flat, num_resources, path)
        elif len(by_slot) != horizon:
            raise InvalidProblemError(
                f"{path} must list the resources once, or once for each of the {horizon} slots; got {len(by_slot)} lists"
            )
        else:
            for t, row in enumerate(by_slot):
                capacity[c, t] = _demand(row, num_resources, f"{path}[{t}]")
    capacity.setflags(write=False)
    return ServerClasses(
        types=tuple(document.type for document in documents),
        capacity=capacity,
        count=as_int_array([document.count for document in documents]),
    )


def _server_documents(servers: ServerClasses) -> list[ServerClassDocument]:
    documents = []
    for c, kind in enumerate(servers.types):
        by_slot = servers.capacity[c]
        is_constant = bool((by_slot == by_slot[0]).all())
        capacity: list[Decimal | list[Decimal]] = (
            [*_decimals(by_slot[0])] if is_constant else [_decimals(row) for row in by_slot]
        )
        documents.append(ServerClassDocument(type=kind, capacity=capacity, count=int(servers.count[c])))
    return documents


def _jobs(documents: Sequence[JobDocument], num_resources: int) -> Jobs:
    offset, start, worker, ps = [0], [], [], []
    for i, job in enumerate(documents):
        check_limit("count", min(job.chunks, job.epochs * job.chunks * job.minibatches), f"jobs[{i}].chunks")
        for s, segment in enumerate(_segments(job, i)):
            path = f"jobs[{i}]" if isinstance(job.segments, UnsetType) else f"jobs[{i}].segments[{s}]"
            start.append(segment.start)
            worker.append(_demand(segment.worker, num_resources, f"{path}.worker"))
            ps.append(_demand(segment.ps, num_resources, f"{path}.ps"))
        offset.append(len(start))

    minima = [np.nan if isinstance(job.min_utility, UnsetType) else job.min_utility for job in documents]
    return Jobs(
        ids=tuple(job.id for job in documents),
        **{name: as_int_array([getattr(job, name) for job in documents]) for name in WHOLE_FIELDS},
        **{
            field: as_int_array([_micro(getattr(job, name), f"jobs[{i}].{name}") for i, job in enumerate(documents)])
            for name, field in MICRO_FIELDS.items()
        },
        segment_offset=as_int_array(offset),
        segment_start=as_int_array(start),
        worker_demand=as_int_array(worker).reshape(len(start), num_resources),
        ps_demand=as_int_array(ps).reshape(len(start), num_resources),
        utilities=tuple(_utility(job.utility) for job in documents),
        min_utility=np.array(minima, dtype=np.float64),
        speedup=tuple(map(_speedup, documents, range(len(documents))))
        if any(not isinstance(job.speedup, UnsetType) for job in documents)
        else (),
    )


def _speedup(job: JobDocument, i: int) -> tuple[int, ...]:
    """Return a job's speed-up table in twentieths, empty if it has none."""
    if isinstance(job.speedup, UnsetType):
        return ()
    check_limit("count", len(job.speedup), f"jobs[{i}].speedup: entries")
    units = []
    for k, value in enumerate(job.speedup):
        unit, rest = divmod(_micro(value, f"jobs[{i}].speedup[{k}]"), MICRO // TWENTIETHS)
        if rest:
            raise InvalidProblemError(f"jobs[{i}].speedup[{k}] must be a multiple of 0.05, got {value}; round it down")
        units.append(unit)
    if not units:
        raise InvalidProblemError(
            f"jobs[{i}].speedup must have an entry, got none; leave the field out for linear speed"
        )
    return tuple(units)


def _segments(job: JobDocument, i: int) -> list[SegmentDocument]:
    if isinstance(job.segments, UnsetType):
        if isinstance(job.worker, UnsetType) or isinstance(job.ps, UnsetType):
            raise InvalidProblemError(f"jobs[{i}] needs worker and ps demands, or segments")
        return [SegmentDocument(start=0, worker=job.worker, ps=job.ps)]
    if not isinstance(job.worker, UnsetType) or not isinstance(job.ps, UnsetType):
        raise InvalidProblemError(f"jobs[{i}].segments excludes worker and ps; give segments, or worker and ps")
    return job.segments


def _utility(document: UtilityDocument) -> Utility:
    fields = {name: tuple(value) if isinstance(value, list) else value for name, value in fields_of(document).items()}
    utility: Utility = UTILITIES[type(document)](**fields)
    return utility


def _utility_document(utility: Utility) -> UtilityDocument:
    for kind, utility_type in UTILITIES.items():
        if isinstance(utility, utility_type):
            document: UtilityDocument = kind(**asdict(utility))
            return document
    raise InvalidProblemError(f"utility {utility!r} cannot be written to a file; use sigmoid, constant, step or table")


NO_PS: Mapping[str, Any] = {"type": "none", "count": 1}
"""Placeholder server of jobs whose parameter servers need no resources."""

ONE_PS = {"gradient_mb": 0, "worker_mbps": Decimal("0.000001"), "ps_mbps": 10**6}
"""Fields of a job without communication: one parameter server suffices for any number of workers."""

IN_SHORT = ("work", "max_workers")
"""Short fields that replace epochs, chunks, minibatches and minibatch_s."""


def admission_document(
    jobs: Rows,
    *,
    horizon: int,
    slot_s: float,
    servers: Mapping[str, Rows | None],
    resources: Sequence[str] | None,
    name: str,
    **fields: Any,
) -> AdmissionDocument:
    """Return the document of an instance given as rows; `AdmissionInstance.from_jobs` describes the arguments."""
    if not _is_number(slot_s) or not 0 < slot_s < math.inf:
        raise InvalidProblemError(f"slot_s must be a positive number of seconds, got {slot_s!r}")
    classes = {side: rows_of(rows, side) for side, rows in servers.items() if rows is not None}
    if not any(classes.get(side) for side in ("worker_servers", "shared_servers")):
        worker_servers = servers.get("worker_servers")
        raise InvalidProblemError(
            f"worker_servers must hold at least one class of servers, got {worker_servers!r}; write [{{'capacity': {{'gpu': 8}}}}]"
        )
    job_rows = rows_of(jobs, "jobs")
    kinds = _resources(classes, resources)
    if "shared_servers" not in classes and "ps_servers" not in classes:
        classes["ps_servers"] = [{**NO_PS, "capacity": dict.fromkeys(kinds, 0)}]
    document = {
        "schema": SCHEMA,
        "name": name,
        "horizon": horizon,
        "slot_s": slot_s,
        "resources": list(kinds),
        "jobs": [_job(row, i, kinds, slot_s) for i, row in enumerate(job_rows)],
        **{side: [_server(row, side, c, kinds) for c, row in enumerate(rows)] for side, rows in classes.items()},
        **{field: value for field, value in fields.items() if value is not None},
    }
    converted: AdmissionDocument = convert(document, AdmissionDocument, "instance")
    return converted


def job_columns(instance: AdmissionData) -> dict[str, list[Any]]:
    """Return one column per field of the jobs; demands are columns such as ``worker.gpu``, missing fields None."""
    documents = msgspec.to_builtins(document_from_instance(instance).jobs, builtin_types=(Decimal,))
    flat = [_flat(_floats(document), instance.resources) for document in documents]
    names = list(dict.fromkeys(name for row in flat for name in row))
    return {name: [row.get(name) for row in flat] for name in names}


def _resources(classes: Mapping[str, list[dict[str, Any]]], stated: Sequence[str] | None) -> tuple[str, ...]:
    """Return the names of the resources: the stated names, else the names in the capacities."""
    if stated is not None:
        if isinstance(stated, str) or not isinstance(stated, Iterable):
            wanted = f"; write [{stated!r}]" if isinstance(stated, str) else ""
            raise InvalidProblemError(f"resources must be a list of names, got {stated!r}{wanted}")
        return tuple(stated)
    capacities = [row.get("capacity") for rows in classes.values() for row in rows]
    for side, rows in classes.items():
        for c, row in enumerate(rows):
            if isinstance(row.get("capacity"), list | tuple):
                raise InvalidProblemError(
                    f"resources must be given if a capacity is a list, got {side}[{c}].capacity {row['capacity']!r}; "
                    "write resources=['gpu'] or capacity={'gpu': 8}"
                )
    names = dict.fromkeys(name for entry in capacities if isinstance(entry, Mapping) for name in entry)
    if not names:
        raise InvalidProblemError(
            "resources must be given if no capacity names them; write resources=['gpu'] or capacity={'gpu': 8}"
        )
    return tuple(names)


def _amounts(value: Any, kinds: Sequence[str], path: str) -> Any:
    """Return quantities as a list over the resources; resources missing from a mapping have quantity 0."""
    if not isinstance(value, Mapping):
        return value
    unknown = [name for name in value if name not in kinds]
    if unknown:
        raise InvalidProblemError(
            f"{path} names {unknown[0]!r}, an unknown resource; known resources: {', '.join(kinds)}"
        )
    return [value.get(name, 0) for name in kinds]


def _server(row: Mapping[str, Any], side: str, c: int, kinds: Sequence[str]) -> dict[str, Any]:
    capacity = _amounts(row.get("capacity"), kinds, f"{side}[{c}].capacity")
    return {"type": f"{side.partition('_')[0]}-{c}", "count": 1, **row, "capacity": capacity}


def _job(row: Mapping[str, Any], i: int, kinds: Sequence[str], slot_s: float) -> dict[str, Any]:
    job = {"id": f"job-{i}", "arrival": 0, **ONE_PS, **row}
    if "segments" not in job:
        job = {"worker": {}, "ps": {}, **job}
        job |= {side: _amounts(job[side], kinds, f"jobs[{i}].{side}") for side in ("worker", "ps")}
    if not isinstance(job["id"], str):
        raise InvalidProblemError(f"jobs[{i}].id must be a string, got {job['id']!r}; write {str(job['id'])!r}")
    if not _is_whole(job["arrival"]):
        raise InvalidProblemError(f"jobs[{i}].arrival must be a slot, got {job['arrival']!r}; write a whole number")
    if "work" in job:
        job |= _work(job, i, slot_s)
    elif "epochs" not in job:
        raise InvalidProblemError(f"jobs[{i}] lacks work; give it in worker-slots, or give epochs, chunks, minibatches")
    if "value" in job:
        if not _is_number(job["value"]) or not 0 <= job["value"] < math.inf:
            raise InvalidProblemError(f"jobs[{i}].value must be a finite number of at least 0, got {job['value']!r}")
        job["utility"] = _utility_of_job(job, i)
    elif "deadline" in job:
        raise InvalidProblemError(f"jobs[{i}].deadline requires value; add value, or give a utility")
    elif "utility" not in job:
        raise InvalidProblemError(
            f"jobs[{i}] lacks value; give the value of its completion in utility units, or give a utility"
        )
    return {name: value for name, value in job.items() if name not in (*IN_SHORT, "value", "deadline")}


def _work(job: Mapping[str, Any], i: int, slot_s: float) -> dict[str, Any]:
    """Return epochs, chunks and mini-batches of a job with the given work in worker-slots."""
    work, most = job["work"], job.get("max_workers", 1)
    for name, value in (("work", work), ("max_workers", most)):
        if not _is_whole(value) or value < 1:
            raise InvalidProblemError(f"jobs[{i}].{name} must be a whole number of at least 1, got {value!r}")
    both = [name for name in ("epochs", "chunks", "minibatches", "minibatch_s") if name in job]
    if both or job["gradient_mb"]:
        raise InvalidProblemError(f"jobs[{i}].work excludes {', '.join(both) or 'gradient_mb'}; give one or the other")
    # A mini-batch takes 1 / `most` of a slot, rounded down to microseconds; the ceil() in W_i recovers the lost fraction.
    slot = int(Decimal(str(slot_s)) * MICRO)
    micro = slot // int(most)
    if not micro or int(work) * (slot % int(most)) >= slot:
        raise InvalidProblemError(
            f"jobs[{i}].work times max_workers is too large for slots of {slot_s} s; use longer slots"
        )
    return {"epochs": int(work), "chunks": int(most), "minibatches": 1, "minibatch_s": Decimal(micro) / MICRO}


def _utility_of_job(job: Mapping[str, Any], i: int) -> dict[str, Any]:
    if "utility" in job:
        raise InvalidProblemError(f"jobs[{i}].value excludes utility; give one or the other")
    if "deadline" not in job:
        return {"kind": "constant", "value": job["value"]}
    deadline = job["deadline"]
    if not _is_whole(deadline) or deadline < job["arrival"]:
        raise InvalidProblemError(
            f"jobs[{i}].deadline must be a slot from the arrival {job['arrival']} on, got {deadline!r}"
        )
    return {"kind": "step", "value": job["value"], "deadline": int(deadline - job["arrival"])}


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _is_whole(value: Any) -> bool:
    return _is_number(value) and math.isfinite(value) and value == int(value)


def _floats(value: Any) -> Any:
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, dict):
        return {name: _floats(entry) for name, entry in value.items()}
    return [_floats(entry) for entry in value] if isinstance(value, list) else value


def _flat(document: Mapping[str, Any], resources: Sequence[str]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for name, value in document.items():
        if name in ("worker", "ps"):
            row |= {f"{name}.{kind}": amount for kind, amount in zip(resources, value, strict=True)}
        else:
            row[name] = value
    return row
