"""The admission problem as registered: serialization of instances, plans and proofs, and access to its checker."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import asdict as fields_of

from optim.core.arrays import FloatArray, IntArray
from optim.core.documents import Count, Numbering, PositiveInt, Whole, convert, distinct
from optim.core.errors import InvalidProblemError
from optim.core.limits import check_limit
from optim.core.registry import AbstractProblem
from optim.core.solution import Sense, Solution, Verification
from optim.models.admission.check import check
from optim.models.admission.codec import SCHEMA, AdmissionDocument, document_from_instance
from optim.models.admission.decision import (
    AdmissionPlan,
    Branch,
    BranchKind,
    CountCut,
    PriceProof,
    ServerCut,
    Side,
    SlotCut,
    TreeNode,
    TreeProof,
)
from optim.models.admission.instance import AdmissionInstance, instance_from_document, remark
from optim.models.admission.summary import describe, plan_load


class ScheduleDocument(msgspec.Struct, forbid_unknown_fields=True):
    """One admitted job; rows are [slot, server, count]."""

    job: str
    completion: Count
    workers: list[tuple[Count, Count, PositiveInt]]
    ps: list[tuple[Count, Count, PositiveInt]]


class CutDocument(msgspec.Struct, forbid_unknown_fields=True):
    """A server cut; coefficients are [job, worker coefficient, PS coefficient]."""

    side: Side
    server_class: Count
    slot: Count
    coefficients: list[tuple[str, Count, Count]]
    right_hand_side: Count
    multiplier: float


class CountCutDocument(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A count cut; gains are [job, gains of 1, 2, ... units]; the last gain holds for more units.

    On shared servers these gains are for workers, and `ps_gains` contains the gains of PSs.
    """

    side: Side
    server_class: Count
    slot: Count
    gains: list[tuple[str, list[Count]]]
    right_hand_side: Count
    multiplier: float
    ps_gains: list[tuple[str, list[Count]]] | None = None


class SlotCutDocument(msgspec.Struct, forbid_unknown_fields=True):
    """A slot cut; gains are [job, gains of 1, 2, ... workers], rows are [resource, divisor in micro-units].

    A job's last gain holds for more workers. Resources are numbered as in prices.
    """

    slot: Count
    gains: list[tuple[str, list[Count]]]
    rows: list[tuple[Count, PositiveInt]]
    right_hand_side: Count
    multiplier: float


class PriceDocument(msgspec.Struct, tag_field="kind", tag="prices", forbid_unknown_fields=True):
    """A dual point: prices as [class, slot, resource, price], payoffs as [job, payoff]; zeros are omitted.

    `slot_cuts` is omitted if there are none.
    """

    worker_price: list[tuple[Count, Count, Count, float]]
    ps_price: list[tuple[Count, Count, Count, float]]
    payoff: list[tuple[str, float]]
    cuts: list[CutDocument] = []
    count_cuts: list[CountCutDocument] = []
    slot_cuts: list[SlotCutDocument] | msgspec.UnsetType = msgspec.UNSET


class BranchDocument(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A split of a node."""

    kind: BranchKind
    job: str
    value: Whole = 0
    server_class: Whole = -1
    slot: Whole = -1


class NodeDocument(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A node of a branching tree."""

    branch: BranchDocument | None = None
    low: Whole = -1
    high: Whole = -1
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
    document_type = AdmissionDocument

    def instance_from_document(self, document: AdmissionDocument) -> AdmissionInstance:
        """Build a validated instance."""
        return instance_from_document(document)

    def document_from_instance(self, instance: AdmissionInstance) -> AdmissionDocument:
        """Return the document of an instance."""
        return document_from_instance(instance)

    def programme(self, instance: AdmissionInstance) -> Any:
        """Return the compact mixed-integer programme."""
        from optim.models.admission.compact_programme import compact_model

        return compact_model(instance)

    def decision_to_json(self, instance: AdmissionInstance, decision: AdmissionPlan) -> Any:
        """Return a plan as one object per admitted job."""
        admitted = zip(decision.admitted.tolist(), decision.completion.tolist(), strict=True)
        schedules = [
            ScheduleDocument(
                job=instance.jobs.ids[job],
                completion=completion,
                workers=_rows_of(decision.workers, job),
                ps=_rows_of(decision.ps, job),
            )
            for job, completion in admitted
        ]
        return msgspec.to_builtins(schedules)

    def decision_from_json(self, instance: AdmissionInstance, data: Any) -> AdmissionPlan:
        """Build a plan; completion slots are recomputed and must agree with the file's."""
        number = Numbering(instance.jobs.ids, "job")
        schedules = distinct(((number[each.job], each) for each in convert(data, list[ScheduleDocument])), "job")
        plan = AdmissionPlan.from_rows(
            workers=[(job, *row) for job, schedule in schedules.items() for row in schedule.workers],
            ps=[(job, *row) for job, schedule in schedules.items() for row in schedule.ps],
        )
        actual = dict(zip(plan.admitted.tolist(), plan.completion.tolist(), strict=True))
        for job, schedule in schedules.items():
            if actual.get(job) != schedule.completion:
                raise InvalidProblemError(
                    f"decision: job {schedule.job!r} states completion slot {schedule.completion}, "
                    f"but its workers end in slot {actual.get(job)}; correct one of them"
                )
        return plan

    def proof_to_json(self, instance: AdmissionInstance, proof: PriceProof | TreeProof) -> Any:
        """Return a proof as plain values."""
        if isinstance(proof, PriceProof):
            return msgspec.to_builtins(_price_document(instance, proof))
        ids = instance.jobs.ids
        nodes = [
            NodeDocument(
                branch=None
                if node.branch is None
                else BranchDocument(**asdict(node.branch) | {"job": ids[node.branch.job]}),
                low=node.low,
                high=node.high,
                proof=None if node.proof is None else _price_document(instance, node.proof),
            )
            for node in proof.nodes
        ]
        return msgspec.to_builtins(TreeDocument(nodes=nodes))

    def proof_from_json(self, instance: AdmissionInstance, data: Any) -> PriceProof | TreeProof:
        """Build a proof."""
        document = convert(data, PriceDocument | TreeDocument)
        number = Numbering(instance.jobs.ids, "job")
        if isinstance(document, PriceDocument):
            return _price_proof(instance, number, document)
        nodes = (
            TreeNode(
                branch=None
                if node.branch is None
                else Branch(**fields_of(node.branch) | {"job": number[node.branch.job]}),
                low=node.low,
                high=node.high,
                proof=None if node.proof is None else _price_proof(instance, number, node.proof),
            )
            for node in document.nodes
        )
        return TreeProof(nodes=tuple(nodes))

    def verify(self, instance: AdmissionInstance, solution: Solution) -> Verification:
        """Recompute every claim of a solution from the instance alone."""
        return check(instance, solution)

    def describe(self, instance: AdmissionInstance) -> Mapping[str, Any]:
        """Return statistics of an instance: sizes, demand relative to capacity, schedulable jobs."""
        return describe(instance)

    def remarks(self, instance: AdmissionInstance) -> tuple[str, Mapping[str, float]]:
        """Return a sentence on the jobs that can never run, and their number as a counter."""
        return remark(instance), {"never_run": float(len(instance.never_run))}

    def decision_figures(self, instance: AdmissionInstance, decision: AdmissionPlan) -> Mapping[str, Any]:
        """Return the load of an instance under a plan: shares of tight rows and of rejected jobs."""
        return asdict(plan_load(instance, decision))


PROBLEM = AdmissionProblem()


def _rows_of(rows: IntArray, job: int) -> list[tuple[int, int, int]]:
    first, last = np.searchsorted(rows[:, 0], [job, job + 1])
    return [(slot, server, count) for _, slot, server, count in rows[first:last].tolist()]


def _sparse(prices: FloatArray) -> list[tuple[int, int, int, float]]:
    return [(int(c), int(t), int(r), float(prices[c, t, r])) for c, t, r in np.argwhere(prices != 0)]


def _price_document(instance: AdmissionInstance, proof: PriceProof) -> PriceDocument:
    ids = instance.jobs.ids
    cuts = []
    for cut in proof.cuts:
        columns = (cut.jobs.tolist(), cut.worker_coefficient.tolist(), cut.ps_coefficient.tolist())
        rows = [(ids[j], y, z) for j, y, z in zip(*columns, strict=True)]
        place = (cut.side, cut.server_class, cut.slot)
        cuts.append(CutDocument(*place, rows, cut.right_hand_side, cut.multiplier))
    return PriceDocument(
        worker_price=_sparse(proof.worker_price),
        ps_price=_sparse(proof.ps_price),
        payoff=[(ids[i], float(proof.payoff[i])) for i in np.flatnonzero(proof.payoff)],
        cuts=cuts,
        count_cuts=[_count_cut_document(ids, cut) for cut in proof.count_cuts],
        slot_cuts=[_slot_cut_document(ids, cut) for cut in proof.slot_cuts] or msgspec.UNSET,
    )


def _count_cut_document(ids: Sequence[str], cut: CountCut) -> CountCutDocument:
    gains, ps_gains = (None if gain is None else _by_name(ids, cut.jobs, gain) for gain in (cut.gain, cut.ps_gain))
    place = (cut.side, cut.server_class, cut.slot)
    return CountCutDocument(*place, gains or [], cut.right_hand_side, cut.multiplier, ps_gains)


def _slot_cut_document(ids: Sequence[str], cut: SlotCut) -> SlotCutDocument:
    rows = list(zip(cut.resource.tolist(), cut.divisor.tolist(), strict=True))
    gains = _by_name(ids, cut.jobs, cut.gain)
    return SlotCutDocument(cut.slot, gains, rows, cut.right_hand_side, cut.multiplier)


def _by_name(ids: Sequence[str], jobs: IntArray, gain: IntArray) -> list[tuple[str, list[int]]]:
    """Return the gains of each job, with the job's name."""
    return [(ids[job], row) for job, row in zip(jobs.tolist(), gain.tolist(), strict=True)]


def _price_proof(instance: AdmissionInstance, number: Numbering, document: PriceDocument) -> PriceProof:
    payoff = np.zeros(instance.num_jobs)
    for job, amount in distinct(((number[name], amount) for name, amount in document.payoff), "payoff of job").items():
        payoff[job] = amount
    ps_classes = 0 if instance.has_shared_servers else instance.ps_servers.num_classes
    return PriceProof(
        worker_price=_dense(document.worker_price, instance.worker_servers.num_classes, instance),
        ps_price=_dense(document.ps_price, ps_classes, instance),
        payoff=payoff,
        cuts=tuple(_server_cut(number, cut) for cut in document.cuts),
        count_cuts=tuple(_count_cut(number, cut) for cut in document.count_cuts),
        slot_cuts=tuple(_slot_cut(number, cut) for cut in document.slot_cuts or ()),
    )


def _dense(rows: list[tuple[int, int, int, float]], num_classes: int, instance: AdmissionInstance) -> FloatArray:
    prices = np.zeros((num_classes, instance.horizon, instance.num_resources))
    for place, price in distinct(((tuple(row[:3]), row[3]) for row in rows), "price of class, slot, resource").items():
        if any(index >= size for index, size in zip(place, prices.shape, strict=True)):
            raise InvalidProblemError(
                f"solution: the price of class, slot, resource {place} is outside the instance's (classes, slots, resources) = {prices.shape}"
            )
        prices[place] = price
    return prices


def _server_cut(number: Numbering, document: CutDocument) -> ServerCut:
    rows = sorted((number[name], y, z) for name, y, z in document.coefficients)
    columns = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    return ServerCut(
        side=document.side,
        server_class=document.server_class,
        slot=document.slot,
        jobs=columns[0],
        worker_coefficient=columns[1],
        ps_coefficient=columns[2],
        right_hand_side=document.right_hand_side,
        multiplier=document.multiplier,
    )


def _count_cut(number: Numbering, document: CountCutDocument) -> CountCut:
    listed = [
        distinct(((number[name], gains) for name, gains in rows), "gains of a count cut of job")
        for rows in (document.gains, document.ps_gains or [])
    ]
    jobs = sorted({*listed[0], *listed[1]})
    gain, ps_gain = (_gains(jobs, by_job, "a count cut") for by_job in listed)
    return CountCut(
        side=document.side,
        server_class=document.server_class,
        slot=document.slot,
        jobs=np.array(jobs, dtype=np.int64),
        gain=gain,
        right_hand_side=document.right_hand_side,
        multiplier=document.multiplier,
        ps_gain=None if document.ps_gains is None else ps_gain,
    )


def _slot_cut(number: Numbering, document: SlotCutDocument) -> SlotCut:
    by_job = distinct(((number[name], gains) for name, gains in document.gains), "gains of a slot cut of job")
    jobs = sorted(by_job)
    rows = np.array(document.rows, dtype=np.int64).reshape(-1, 2)
    return SlotCut(
        slot=document.slot,
        jobs=np.array(jobs, dtype=np.int64),
        gain=_gains(jobs, by_job, "a slot cut"),
        resource=rows[:, 0],
        divisor=rows[:, 1],
        right_hand_side=document.right_hand_side,
        multiplier=document.multiplier,
    )


def _gains(jobs: Sequence[int], by_job: Mapping[int, list[int]], what: str) -> IntArray:
    """Return gains by job and count: the last listed gain holds for more units; a job without gains has 0."""
    widest = max(map(len, by_job.values()), default=0)
    check_limit("cells", len(jobs) * widest, f"jobs times gains of {what}")
    rows = [by_job.get(job, []) for job in jobs]
    padded = [gains + [gains[-1] if gains else 0] * (widest - len(gains)) for gains in rows]
    return np.array(padded, dtype=np.int64).reshape(len(jobs), widest)
