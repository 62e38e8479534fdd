"""The auction problem as registered: serialization of instances, plans and proofs, and access to its checker."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import asdict as fields_of

from optim.core.arrays import IntArray
from optim.core.documents import Count, Numbering, PositiveInt, Whole, convert, distinct
from optim.core.registry import AbstractProblem
from optim.core.solution import Sense, Solution, Verification
from optim.models.auction.check import check
from optim.models.auction.codec import SCHEMA, AuctionDocument, document_from_instance, instance_from_document
from optim.models.auction.data import as_floats, as_ints
from optim.models.auction.decision import (
    AuctionPlan,
    AuctionProof,
    BoundProof,
    CountProof,
    PaymentRule,
    PriceProof,
    TreeNode,
    TreeProof,
    Witness,
    sorted_entries,
)
from optim.models.auction.instance import AuctionInstance
from optim.models.auction.summary import describe, plan_load


class WitnessDocument(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """An allocation without one app: [app, row] pairs, and a placement unless best fit finds one."""

    rows: list[tuple[str, Count]]
    placement: list[tuple[str, Count, PositiveInt]] | None = None


class AwardDocument(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """An awarded bid: its row in the instance, the GPUs of its bundle and of its grant as [slot, count], and bounds of its share c."""

    app: str
    row: Count
    placement: list[tuple[Count, PositiveInt]]
    share: tuple[float, float]
    grant: list[tuple[Count, PositiveInt]] = []
    without: WitnessDocument | None = None


class PlanDocument(msgspec.Struct, forbid_unknown_fields=True):
    """A plan; unlisted apps have the empty row."""

    rule: PaymentRule
    awards: list[AwardDocument]


class CountDocument(msgspec.Struct, tag_field="kind", tag="count", forbid_unknown_fields=True):
    """The relaxation to numbers of GPUs."""


class PriceDocument(msgspec.Struct, tag_field="kind", tag="prices", forbid_unknown_fields=True):
    """Prices: [locality, size, machine, row price, supply price] of each bundle type."""

    prices: list[tuple[Whole, Whole, Whole, float, float]]
    is_counted: bool = False


class NodeDocument(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A node of a branching tree."""

    level: Whole = -1
    size: Whole = -1
    value: Whole = 0
    row: Whole = -1
    low: Whole = -1
    high: Whole = -1
    proof: PriceDocument | None = None
    is_full: bool = False


class TreeDocument(msgspec.Struct, tag_field="kind", tag="tree", forbid_unknown_fields=True):
    """A branching tree; node 0 is the root."""

    nodes: list[NodeDocument]


class ProofDocument(msgspec.Struct, forbid_unknown_fields=True):
    """The bound on the welfare, and the bounds on the other apps' welfare without each app."""

    welfare: CountDocument | PriceDocument | TreeDocument
    without: list[tuple[str, CountDocument | PriceDocument | TreeDocument]] = []
    others: PriceDocument | msgspec.UnsetType = msgspec.UNSET
    counts_others: bool = False


class AuctionProblem(AbstractProblem[AuctionInstance]):
    """One-shot auctions of GPUs with hidden payments."""

    name = "auction"
    schema = SCHEMA
    sense = Sense.MAXIMISE
    instance_type = AuctionInstance
    document_type = AuctionDocument

    def instance_from_document(self, document: AuctionDocument) -> AuctionInstance:
        """Build a validated instance."""
        return instance_from_document(document, AuctionInstance)

    def document_from_instance(self, instance: AuctionInstance) -> AuctionDocument:
        """Return the document of an instance."""
        return document_from_instance(instance)

    def programme(self, instance: AuctionInstance) -> Any:
        """Return the mixed-integer programme that places every bid GPU by GPU."""
        from optim.models.auction.welfare import explicit_model

        return explicit_model(instance)

    def decision_to_json(self, instance: AuctionInstance, decision: AuctionPlan) -> Any:
        """Return a plan as one object per awarded app."""
        ids = instance.apps.ids
        awards = []
        for i in np.flatnonzero(decision.row >= 0).tolist():
            witness = decision.witnesses.get(i)
            awards.append(
                AwardDocument(
                    app=ids[i],
                    row=int(decision.row[i]),
                    placement=_entries_of(decision.placement, i),
                    share=(float(decision.share_low[i]), float(decision.share_high[i])),
                    grant=_entries_of(decision.grants, i),
                    without=None if witness is None else _witness_document(ids, witness),
                )
            )
        return msgspec.to_builtins(PlanDocument(rule=decision.rule, awards=awards))

    def decision_from_json(self, instance: AuctionInstance, data: Any) -> AuctionPlan:
        """Build a plan."""
        document = convert(data, PlanDocument)
        number = Numbering(instance.apps.ids, "app")
        awards = distinct(((number[award.app], award) for award in document.awards), "app")
        row = np.full(len(number), -1, dtype=np.int64)
        low, high = np.ones(len(number)), np.ones(len(number))
        for i, award in awards.items():
            row[i], (low[i], high[i]) = award.row, award.share
        return AuctionPlan(
            row=as_ints(row),
            placement=sorted_entries([(i, *entry) for i, award in awards.items() for entry in award.placement]),
            share_low=as_floats(low),
            share_high=as_floats(high),
            rule=document.rule,
            grants=sorted_entries([(i, *entry) for i, award in awards.items() for entry in award.grant]),
            witnesses={i: _witness(number, award.without) for i, award in awards.items() if award.without is not None},
        )

    def proof_to_json(self, instance: AuctionInstance, proof: AuctionProof) -> Any:
        """Return a proof as plain values."""
        ids = instance.apps.ids
        return msgspec.to_builtins(
            ProofDocument(
                welfare=_bound_document(proof.welfare),
                without=[(ids[i], _bound_document(bound)) for i, bound in sorted(proof.without.items())],
                others=msgspec.UNSET if proof.others is None else _price_document(proof.others),
                counts_others=proof.counts_others,
            )
        )

    def proof_from_json(self, instance: AuctionInstance, data: Any) -> AuctionProof:
        """Build a proof."""
        document = convert(data, ProofDocument)
        number = Numbering(instance.apps.ids, "app")
        return AuctionProof(
            welfare=_bound(document.welfare),
            without=distinct(((number[name], _bound(bound)) for name, bound in document.without), "bound without app"),
            others=None if isinstance(document.others, msgspec.UnsetType) else _price_proof(document.others),
            counts_others=document.counts_others,
        )

    def verify(self, instance: AuctionInstance, solution: Solution) -> Verification:
        """Recompute every claim of a solution from the instance alone."""
        return check(instance, solution)

    def describe(self, instance: AuctionInstance) -> Mapping[str, Any]:
        """Return statistics of an instance: sizes, contention, shape of the bids."""
        return describe(instance)

    def decision_figures(self, instance: AuctionInstance, decision: AuctionPlan) -> Mapping[str, Any]:
        """Return statistics of a plan: winners, leftover GPUs, payments with their intervals."""
        return plan_load(instance, decision)


PROBLEM = AuctionProblem()


def _entries_of(entries: IntArray, app: int) -> list[tuple[int, int]]:
    first, last = np.searchsorted(entries[:, 0], [app, app + 1])
    return [(slot, count) for _, slot, count in entries[first:last].tolist()]


def _witness_document(ids: Sequence[str], witness: Witness) -> WitnessDocument:
    placement = witness.placement
    return WitnessDocument(
        rows=[(ids[j], int(witness.row[j])) for j in np.flatnonzero(witness.row >= 0).tolist()],
        placement=None if placement is None else [(ids[j], s, count) for j, s, count in placement.tolist()],
    )


def _witness(number: Numbering, document: WitnessDocument) -> Witness:
    row = np.full(len(number), -1, dtype=np.int64)
    for app, b in distinct(((number[name], b) for name, b in document.rows), "row of a witness for app").items():
        row[app] = b
    placement = document.placement
    entries = None if placement is None else sorted_entries([(number[n], s, k) for n, s, k in placement])
    return Witness(row=as_ints(row), placement=entries)


def _price_document(proof: PriceProof) -> PriceDocument:
    columns = (*proof.kinds.T.tolist(), proof.row_price.tolist(), proof.supply_price.tolist())
    return PriceDocument(prices=list(zip(*columns, strict=True)), is_counted=proof.is_counted)


def _price_proof(document: PriceDocument) -> PriceProof:
    return PriceProof(
        kinds=as_ints([row[:3] for row in document.prices]).reshape(-1, 3),
        row_price=as_floats([row[3] for row in document.prices]),
        supply_price=as_floats([row[4] for row in document.prices]),
        is_counted=document.is_counted,
    )


def _bound_document(proof: BoundProof) -> CountDocument | PriceDocument | TreeDocument:
    match proof:
        case CountProof():
            return CountDocument()
        case PriceProof():
            return _price_document(proof)
        case TreeProof():
            return TreeDocument(
                nodes=[
                    NodeDocument(**vars(node) | {"proof": None if node.proof is None else _price_document(node.proof)})
                    for node in proof.nodes
                ]
            )


def _bound(document: CountDocument | PriceDocument | TreeDocument) -> BoundProof:
    match document:
        case CountDocument():
            return CountProof()
        case PriceDocument():
            return _price_proof(document)
        case TreeDocument():
            return TreeProof(
                nodes=tuple(
                    TreeNode(**fields_of(node) | {"proof": None if node.proof is None else _price_proof(node.proof)})
                    for node in document.nodes
                )
            )
