"""The admission problem's border: instances, plans and proofs as JSON, and the way to its checker."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import msgspec
import numpy as np

from optim.core.documents import decode, encode
from optim.core.errors import InvalidProblemError
from optim.core.problem import AbstractProblem
from optim.core.solution import Solution
from optim.core.status import Sense
from optim.core.verification import Verification
from optim.models.admission.document import SCHEMA, AdmissionDocument
from optim.models.admission.instance import AdmissionInstance, FloatArray, IntArray
from optim.models.admission.plan import AdmissionPlan
from optim.models.admission.proof import Branch, BranchKind, PriceProof, ServerCut, Side, TreeNode, TreeProof
from optim.models.admission.reading import document_from_instance, instance_from_document


class ScheduleDocument(msgspec.Struct, forbid_unknown_fields=True):
    """One admitted job; rows are [slot, server, count]."""

    job: str
    completion: int
    workers: list[tuple[int, int, int]]
    ps: list[tuple[int, int, int]]


class CutDocument(msgspec.Struct, forbid_unknown_fields=True):
    """A server cut; coefficients are [job, worker coefficient, PS coefficient]."""

    side: Side
    server_class: int
    slot: int
    coefficients: list[tuple[str, int, int]]
    right_hand_side: int
    multiplier: float


class PriceDocument(msgspec.Struct, tag_field="kind", tag="prices", forbid_unknown_fields=True):
    """A dual point; prices are [class, slot, resource, price], zeros left out; payoffs [job, payoff] likewise."""

    worker_price: list[tuple[int, int, int, float]]
    ps_price: list[tuple[int, int, int, float]]
    payoff: list[tuple[str, float]]
    cuts: list[CutDocument] = []


class BranchDocument(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A split of a node."""

    kind: BranchKind
    job: str
    value: int = 0
    server_class: int = -1
    slot: int = -1


class NodeDocument(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A node of a branching tree."""

    branch: BranchDocument | None = None
    low: int = -1
    high: int = -1
    proof: PriceDocument | None = None


class TreeDocument(msgspec.Struct, tag_field="kind", tag="tree", forbid_unknown_fields=True):
    """A branching tree; node 0 is the root."""

    nodes: list[NodeDocument]


class AdmissionProblem(AbstractProblem[AdmissionInstance]):
    """Admission and elastic placement of training jobs."""

    name = "admission"
    schema = SCHEMA
    sense = Sense.MAXIMISE
    instance_type = AdmissionInstance

    def read_instance(self, data: bytes) -> AdmissionInstance:
        """Parse and validate a document of format ``optim/admission/1``."""
        return instance_from_document(decode(data, AdmissionDocument))

    def write_instance(self, instance: AdmissionInstance) -> bytes:
        """Return the document of an instance."""
        return encode(document_from_instance(instance))

    def json_schema(self) -> Mapping[str, Any]:
        """Return the JSON Schema of ``optim/admission/1``."""
        schema: Mapping[str, Any] = _with_numbers(msgspec.json.schema(AdmissionDocument))
        return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": SCHEMA, **schema}

    def decision_to_json(self, instance: AdmissionInstance, decision: AdmissionPlan) -> Any:
        """Return a plan as one object an admitted job."""
        schedules = []
        for job, completion in zip(decision.admitted.tolist(), decision.completion.tolist(), strict=True):
            schedules.append(
                ScheduleDocument(
                    job=instance.jobs.ids[job],
                    completion=completion,
                    workers=_rows_of(decision.workers, job),
                    ps=_rows_of(decision.ps, job),
                )
            )
        return msgspec.to_builtins(schedules)

    def decision_from_json(self, instance: AdmissionInstance, data: Any) -> AdmissionPlan:
        """Build a plan; completion slots are recomputed and must agree with the file's."""
        schedules = _convert(data, list[ScheduleDocument])
        number = _numbers(instance)
        workers, ps = [], []
        for schedule in schedules:
            job = _job(number, schedule.job)
            workers += [(job, *row) for row in schedule.workers]
            ps += [(job, *row) for row in schedule.ps]
        plan = AdmissionPlan.from_rows(workers, ps)
        stated = {_job(number, schedule.job): schedule.completion for schedule in schedules}
        actual = dict(zip(plan.admitted.tolist(), plan.completion.tolist(), strict=True))
        for job, completion in stated.items():
            if actual.get(job) != completion:
                raise InvalidProblemError(
                    f"decision: job {instance.jobs.ids[job]!r} states completion slot {completion}, "
                    f"but its workers end in slot {actual.get(job)}; correct one of them"
                )
        return plan

    def proof_to_json(self, instance: AdmissionInstance, proof: PriceProof | TreeProof) -> Any:
        """Return a proof as plain values."""
        if isinstance(proof, PriceProof):
            return msgspec.to_builtins(_price_document(instance, proof))
        return msgspec.to_builtins(
            TreeDocument(
                nodes=[
                    NodeDocument(
                        branch=None if node.branch is None else _branch_document(instance, node.branch),
                        low=node.low,
                        high=node.high,
                        proof=None if node.proof is None else _price_document(instance, node.proof),
                    )
                    for node in proof.nodes
                ]
            )
        )

    def proof_from_json(self, instance: AdmissionInstance, data: Any) -> PriceProof | TreeProof:
        """Build a proof."""
        document = _convert(data, PriceDocument | TreeDocument)
        if isinstance(document, PriceDocument):
            return _price_proof(instance, document)
        number = _numbers(instance)
        return TreeProof(
            nodes=tuple(
                TreeNode(
                    branch=None
                    if node.branch is None
                    else Branch(
                        kind=node.branch.kind,
                        job=_job(number, node.branch.job),
                        value=node.branch.value,
                        server_class=node.branch.server_class,
                        slot=node.branch.slot,
                    ),
                    low=node.low,
                    high=node.high,
                    proof=None if node.proof is None else _price_proof(instance, node.proof),
                )
                for node in document.nodes
            )
        )

    def verify(self, instance: AdmissionInstance, solution: Solution) -> Verification:
        """Recompute every claim of a solution from the instance alone."""
        from optim.models.admission.check import check

        return check(instance, solution)

    def describe(self, instance: AdmissionInstance) -> Mapping[str, Any]:
        """Return figures of an instance: sizes, demand against capacity, schedulable jobs."""
        from optim.models.admission.instance_figures import describe

        return describe(instance)

    def load(self, instance: AdmissionInstance, decision: AdmissionPlan) -> Mapping[str, Any]:
        """Return how loaded an instance is under a plan: share of rows tight, of jobs refused."""
        from optim.models.admission.plan_figures import plan_load

        return asdict(plan_load(instance, decision))


PROBLEM = AdmissionProblem()


def _with_numbers(schema: Any) -> Any:
    """Return a schema in which decimals are numbers, as they are in the files, not texts."""
    if isinstance(schema, list):
        return [_with_numbers(entry) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("format") == "decimal":
        schema = {name: value for name, value in schema.items() if name != "format"} | {"type": "number"}
    return {name: _with_numbers(value) for name, value in schema.items()}


def _rows_of(rows: IntArray, job: int) -> list[tuple[int, int, int]]:
    first, last = np.searchsorted(rows[:, 0], [job, job + 1])
    return [(slot, server, count) for _, slot, server, count in rows[first:last].tolist()]


def _numbers(instance: AdmissionInstance) -> dict[str, int]:
    return {name: i for i, name in enumerate(instance.jobs.ids)}


def _job(number: Mapping[str, int], name: str) -> int:
    if name not in number:
        raise InvalidProblemError(
            f"solution names job {name!r}, which the instance lacks; check that the two belong together"
        )
    return number[name]


def _convert(data: Any, kind: Any) -> Any:
    try:
        return msgspec.convert(data, kind, strict=True)
    except msgspec.ValidationError as error:
        raise InvalidProblemError(f"solution: {error}") from error


def _sparse(prices: FloatArray) -> list[tuple[int, int, int, float]]:
    return [(int(c), int(t), int(r), float(prices[c, t, r])) for c, t, r in np.argwhere(prices != 0)]


def _price_document(instance: AdmissionInstance, proof: PriceProof) -> PriceDocument:
    ids = instance.jobs.ids
    return PriceDocument(
        worker_price=_sparse(proof.worker_price),
        ps_price=_sparse(proof.ps_price),
        payoff=[(ids[i], float(proof.payoff[i])) for i in np.flatnonzero(proof.payoff)],
        cuts=[
            CutDocument(
                side=cut.side,
                server_class=cut.server_class,
                slot=cut.slot,
                coefficients=[
                    (ids[j], y, z)
                    for j, y, z in zip(
                        cut.jobs.tolist(), cut.worker_coefficient.tolist(), cut.ps_coefficient.tolist(), strict=True
                    )
                ],
                right_hand_side=cut.right_hand_side,
                multiplier=cut.multiplier,
            )
            for cut in proof.cuts
        ],
    )


def _branch_document(instance: AdmissionInstance, branch: Branch) -> BranchDocument:
    return BranchDocument(
        kind=branch.kind,
        job=instance.jobs.ids[branch.job],
        value=branch.value,
        server_class=branch.server_class,
        slot=branch.slot,
    )


def _price_proof(instance: AdmissionInstance, document: PriceDocument) -> PriceProof:
    number = _numbers(instance)
    payoff = np.zeros(instance.num_jobs)
    for name, amount in document.payoff:
        payoff[_job(number, name)] = amount
    ps_classes = 0 if instance.has_shared_servers else instance.ps_servers.num_classes
    return PriceProof(
        worker_price=_dense(document.worker_price, instance.worker_servers.num_classes, instance),
        ps_price=_dense(document.ps_price, ps_classes, instance),
        payoff=payoff,
        cuts=tuple(_server_cut(number, cut) for cut in document.cuts),
    )


def _dense(rows: list[tuple[int, int, int, float]], num_classes: int, instance: AdmissionInstance) -> FloatArray:
    shape = (num_classes, instance.horizon, instance.num_resources)
    prices = np.zeros(shape)
    for c, t, r, price in rows:
        if not (0 <= c < shape[0] and 0 <= t < shape[1] and 0 <= r < shape[2]):
            raise InvalidProblemError(
                f"solution: price of class {c}, slot {t}, resource {r} is outside the instance's {shape}"
            )
        prices[c, t, r] = price
    return prices


def _server_cut(number: Mapping[str, int], document: CutDocument) -> ServerCut:
    rows = sorted((_job(number, name), y, z) for name, y, z in document.coefficients)
    columns = np.array(rows, dtype=np.int64).reshape(-1, 3)
    return ServerCut(
        side=document.side,
        server_class=document.server_class,
        slot=document.slot,
        jobs=columns[:, 0],
        worker_coefficient=columns[:, 1],
        ps_coefficient=columns[:, 2],
        right_hand_side=document.right_hand_side,
        multiplier=document.multiplier,
    )
