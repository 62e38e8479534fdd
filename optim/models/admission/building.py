"""Admission instances from plain Python or frames, and their jobs as a frame."""

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from numbers import Real
from typing import Any

import msgspec

from optim.core.documents import convert
from optim.core.errors import InvalidProblemError
from optim.core.frames import Rows, rows_of
from optim.models.admission.document import SCHEMA, AdmissionDocument
from optim.models.admission.instance import MICRO, AdmissionInstance
from optim.models.admission.reading import document_from_instance

NO_PS: Mapping[str, Any] = {"type": "none", "count": 1}
"""The host of the parameter servers of jobs that need none."""

ONE_PS = {"gradient_mb": 0, "worker_mbps": Decimal("0.000001"), "ps_mbps": 10**6}
"""A job that sends nothing: one parameter server does for any number of workers."""

IN_SHORT = ("work", "max_workers")
"""Fields that stand for epochs, chunks, minibatches and minibatch_s."""


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
    """Return the document that rows stand for; `AdmissionInstance.from_jobs` tells what they are."""
    if not _is_number(slot_s) or not 0 < slot_s < math.inf:
        raise InvalidProblemError(f"slot_s must be a positive number of seconds, got {slot_s!r}")
    classes = {side: rows_of(rows, side) for side, rows in servers.items() if rows is not None}
    if not any(classes.get(side) for side in ("worker_servers", "shared_servers")):
        given = servers.get("worker_servers")
        raise InvalidProblemError(
            f"worker_servers must hold at least one class of servers, got {given!r}; write [{{'capacity': {{'gpu': 8}}}}]"
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
    found: AdmissionDocument = convert(document, AdmissionDocument, "instance")
    return found


def job_columns(instance: AdmissionInstance) -> dict[str, list[Any]]:
    """Return a column a field of the jobs; demands are columns such as ``worker.gpu``, missing fields None."""
    documents = msgspec.to_builtins(document_from_instance(instance).jobs, builtin_types=(Decimal,))
    flat = [_flat(_floats(document), instance.resources) for document in documents]
    names = list(dict.fromkeys(name for row in flat for name in row))
    return {name: [row.get(name) for row in flat] for name in names}


def _resources(classes: Mapping[str, list[dict[str, Any]]], given: Sequence[str] | None) -> tuple[str, ...]:
    """Return the names of the resources: as given, or those that capacities name."""
    if given is not None:
        return tuple(given)
    capacities = [row.get("capacity") for rows in classes.values() for row in rows]
    for side, rows in classes.items():
        for c, row in enumerate(rows):
            if isinstance(row.get("capacity"), list | tuple):
                raise InvalidProblemError(
                    f"resources must be given where no capacity names them, got {side}[{c}].capacity {row['capacity']!r}; "
                    "write resources=['gpu'] or capacity={'gpu': 8}"
                )
    names = dict.fromkeys(name for entry in capacities if isinstance(entry, Mapping) for name in entry)
    if not names:
        raise InvalidProblemError(
            "resources must be given where no capacity names them; write resources=['gpu'] or capacity={'gpu': 8}"
        )
    return tuple(names)


def _amounts(value: Any, kinds: Sequence[str], path: str) -> Any:
    """Return quantities as a list over the resources; a mapping may leave out those that are 0."""
    if not isinstance(value, Mapping):
        return value
    unknown = [name for name in value if name not in kinds]
    if unknown:
        raise InvalidProblemError(f"{path} names {unknown[0]!r}, which is no resource; there are: {', '.join(kinds)}")
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
        raise InvalidProblemError(f"jobs[{i}].id must be a text, got {job['id']!r}; write {str(job['id'])!r}")
    if not _is_whole(job["arrival"]):
        raise InvalidProblemError(f"jobs[{i}].arrival must be a slot, got {job['arrival']!r}; write a whole number")
    if "work" in job:
        job |= _work(job, i, slot_s)
    elif "epochs" not in job:
        raise InvalidProblemError(f"jobs[{i}] lacks work; give it in worker-slots, or give epochs, chunks, minibatches")
    if "value" in job:
        job["utility"] = _utility(job, i)
    elif "deadline" in job:
        raise InvalidProblemError(f"jobs[{i}].deadline belongs to a value; add value, or give a utility")
    return {name: value for name, value in job.items() if name not in (*IN_SHORT, "value", "deadline")}


def _work(job: Mapping[str, Any], i: int, slot_s: float) -> dict[str, Any]:
    """Return epochs, chunks and mini-batches of a job that takes so many worker-slots."""
    work, most = job["work"], job.get("max_workers", 1)
    for name, value in (("work", work), ("max_workers", most)):
        if not _is_whole(value) or value < 1:
            raise InvalidProblemError(f"jobs[{i}].{name} must be a whole number of at least 1, got {value!r}")
    both = [name for name in ("epochs", "chunks", "minibatches", "minibatch_s") if name in job]
    if both or job["gradient_mb"]:
        raise InvalidProblemError(f"jobs[{i}].work excludes {', '.join(both) or 'gradient_mb'}; give one or the other")
    # Slots are cut into `most` parts of whole micro-seconds, rounded down; ceil() restores less than a worker-slot.
    slot = int(Decimal(str(slot_s)) * MICRO)
    micro = slot // int(most)
    if not micro or int(work) * (slot % int(most)) >= slot:
        raise InvalidProblemError(
            f"jobs[{i}].work times max_workers is too large for slots of {slot_s} s; use longer ones"
        )
    return {"epochs": int(work), "chunks": int(most), "minibatches": 1, "minibatch_s": Decimal(micro) / MICRO}


def _utility(job: Mapping[str, Any], i: int) -> dict[str, Any]:
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
