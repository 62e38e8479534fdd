"""From a document of format ``optim/admission/1`` to an instance and back, losing no digit."""

from collections.abc import Sequence
from dataclasses import asdict
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
from msgspec import UNSET, UnsetType
from msgspec.structs import asdict as fields_of

from optim.core.errors import InvalidProblemError
from optim.core.limits import check_limit
from optim.models.admission.document import (
    SCHEMA,
    AdmissionDocument,
    ConstantDocument,
    JobDocument,
    SegmentDocument,
    ServerClassDocument,
    SigmoidDocument,
    StepDocument,
    TableDocument,
    UtilityDocument,
)
from optim.models.admission.instance import (
    MAX_QUANTITY,
    MICRO,
    AdmissionInstance,
    IntArray,
    Jobs,
    ServerClasses,
    as_int_array,
)
from optim.models.admission.speedup import TWENTIETHS, curve_of
from optim.models.admission.utility import ConstantUtility, SigmoidUtility, StepUtility, TableUtility, Utility

LEAST_QUANTITY = Decimal("0.000001")

WHOLE_FIELDS = ("arrival", "epochs", "chunks", "minibatches")
"""Fields of a job that are the same in a file and in arrays."""

MICRO_FIELDS = {
    "minibatch_s": "minibatch_micro_s",
    "gradient_mb": "gradient_micro_mb",
    "worker_mbps": "worker_micro_mbps",
    "ps_mbps": "ps_micro_mbps",
}
"""Decimals of a job, and the arrays that hold them in 1e-6 units."""

UTILITIES: dict[type[Any], type[Any]] = {
    SigmoidDocument: SigmoidUtility,
    ConstantDocument: ConstantUtility,
    StepDocument: StepUtility,
    TableDocument: TableUtility,
}


def instance_from_document(document: AdmissionDocument) -> AdmissionInstance:
    """Build a validated instance.

    Raises
    ------
    InvalidProblemError
        If a field contradicts the format; the text names its path, value and remedy.
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
            raise InvalidProblemError("shared_servers excludes worker_servers and ps_servers; give one or the other")
        worker_servers = ps_servers = _servers("shared_servers", document.shared_servers, horizon, num_resources)
    share = document.max_share_per_server
    return AdmissionInstance(
        name=document.name,
        horizon=horizon,
        slot_micro_s=_micro(document.slot_s, "slot_s"),
        resources=tuple(document.resources),
        jobs=_jobs(document.jobs, num_resources),
        worker_servers=worker_servers,
        ps_servers=ps_servers,
        min_utility_share=_fraction(document.min_utility, "min_utility"),
        max_share_per_server=None if share is None else _fraction(share, "max_share_per_server"),
        chunk_integral=document.chunk_integral,
    )


def document_from_instance(instance: AdmissionInstance) -> AdmissionDocument:
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
    if value.copy_abs() > MAX_QUANTITY:  # `abs` rounds, and overflows where exponents have ten digits
        raise InvalidProblemError(f"{path} must be at most {MAX_QUANTITY}, got {value}; choose a larger unit")
    rounded = value.quantize(LEAST_QUANTITY)
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
                f"{path}[{r}] must not be negative, got {values[r]}; use 0 for a resource that isn't used"
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
                f"{path} mixes numbers and lists; give one list over the resources, or one such list a slot"
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
    """Return a job's table in twentieths, empty where it has none."""
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
        raise InvalidProblemError(f"jobs[{i}].segments excludes worker and ps; give one or the other")
    return job.segments


def _utility(document: UtilityDocument) -> Utility:
    fields = {name: tuple(value) if isinstance(value, list) else value for name, value in fields_of(document).items()}
    utility: Utility = UTILITIES[type(document)](**fields)
    return utility


def _utility_document(utility: Utility) -> UtilityDocument:
    for kind, own in UTILITIES.items():
        if isinstance(utility, own):
            document: UtilityDocument = kind(**asdict(utility))
            return document
    raise InvalidProblemError(f"utility {utility!r} has no form in the file format; use one of the four kinds")
