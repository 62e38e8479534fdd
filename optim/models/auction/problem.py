"""The auction's border: instances, plans and proofs as JSON, and the way to its checker."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from optim.core.documents import decode, encode
from optim.core.errors import InvalidProblemError
from optim.core.problem import AbstractProblem
from optim.core.solution import Solution
from optim.core.status import Sense
from optim.core.verification import Verification
from optim.models.auction.document import SCHEMA, AuctionDocument
from optim.models.auction.instance import AuctionInstance, IntArray, as_floats, as_ints
from optim.models.auction.plan import AuctionPlan, PaymentRule, Witness, sorted_entries
from optim.models.auction.proof import AuctionProof, BoundProof, CountProof, PriceProof, TreeNode, TreeProof
from optim.models.auction.reading import document_from_instance, instance_from_document


class WitnessDocument(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """An allocation without one app: [app, row] pairs, and where it fits unless best fit finds it."""

    rows: list[tuple[str, int]]
    placement: list[tuple[str, int, int]] | None = None


class AwardDocument(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """An awarded bid: its number in the instance, [slot, count] of the bundle and of the grant, and c in [low, high]."""

    app: str
    row: int
    placement: list[tuple[int, int]]
    share: tuple[float, float]
    grant: list[tuple[int, int]] = []
    without: WitnessDocument | None = None


class PlanDocument(msgspec.Struct, forbid_unknown_fields=True):
    """A plan; apps that aren't listed hold the empty row."""

    rule: PaymentRule
    awards: list[AwardDocument]


class CountDocument(msgspec.Struct, tag_field="kind", tag="count", forbid_unknown_fields=True):
    """The relaxation to numbers of GPUs."""


class PriceDocument(msgspec.Struct, tag_field="kind", tag="prices", forbid_unknown_fields=True):
    """Prices: [locality, size, machine, price to rows, price to the supply] of each kind."""

    prices: list[tuple[int, int, int, float, float]]
    is_counted: bool = False


class NodeDocument(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A node of a branching tree."""

    level: int = -1
    size: int = -1
    value: int = 0
    row: int = -1
    low: int = -1
    high: int = -1
    proof: PriceDocument | None = None
    is_full: bool = False


class TreeDocument(msgspec.Struct, tag_field="kind", tag="tree", forbid_unknown_fields=True):
    """A branching tree; node 0 is the root."""

    nodes: list[NodeDocument]


class ProofDocument(msgspec.Struct, forbid_unknown_fields=True):
    """The bound of the welfare, and the bounds of the others' welfare without an app."""

    welfare: CountDocument | PriceDocument | TreeDocument
    without: list[tuple[str, CountDocument | PriceDocument | TreeDocument]] = []
    counts_others: bool = False


class AuctionProblem(AbstractProblem[AuctionInstance]):
    """One-shot auctions of GPUs with hidden payments."""

    name = "auction"
    schema = SCHEMA
    sense = Sense.MAXIMISE
    instance_type = AuctionInstance

    def read_instance(self, data: bytes) -> AuctionInstance:
        """Parse and validate a document of format ``optim/auction/1``."""
        return instance_from_document(decode(data, AuctionDocument))

    def write_instance(self, instance: AuctionInstance) -> bytes:
        """Return the document of an instance."""
        return encode(document_from_instance(instance))

    def json_schema(self) -> Mapping[str, Any]:
        """Return the JSON Schema of ``optim/auction/1``."""
        schema: Mapping[str, Any] = msgspec.json.schema(AuctionDocument)
        return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": SCHEMA, **schema}

    def decision_to_json(self, instance: AuctionInstance, decision: AuctionPlan) -> Any:
        """Return a plan as one object an awarded app."""
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
        document = _convert(data, PlanDocument)
        number = _numbers(instance)
        row = np.full(instance.num_apps, -1, dtype=np.int64)
        low, high = np.ones(instance.num_apps), np.ones(instance.num_apps)
        placement, grants, witnesses = [], [], {}
        for award in document.awards:
            i = _app(number, award.app)
            row[i], (low[i], high[i]) = award.row, award.share
            placement += [(i, slot, count) for slot, count in award.placement]
            grants += [(i, slot, count) for slot, count in award.grant]
            if award.without is not None:
                witnesses[i] = _witness(number, award.without)
        return AuctionPlan(
            row=as_ints(row),
            placement=sorted_entries(placement),
            share_low=as_floats(low),
            share_high=as_floats(high),
            rule=document.rule,
            grants=sorted_entries(grants),
            witnesses=witnesses,
        )

    def proof_to_json(self, instance: AuctionInstance, proof: AuctionProof) -> Any:
        """Return a proof as plain values."""
        ids = instance.apps.ids
        return msgspec.to_builtins(
            ProofDocument(
                welfare=_bound_document(proof.welfare),
                without=[(ids[i], _bound_document(bound)) for i, bound in sorted(proof.without.items())],
                counts_others=proof.counts_others,
            )
        )

    def proof_from_json(self, instance: AuctionInstance, data: Any) -> AuctionProof:
        """Build a proof."""
        document = _convert(data, ProofDocument)
        number = _numbers(instance)
        return AuctionProof(
            welfare=_bound(document.welfare),
            without={_app(number, name): _bound(bound) for name, bound in document.without},
            counts_others=document.counts_others,
        )

    def verify(self, instance: AuctionInstance, solution: Solution) -> Verification:
        """Recompute every claim of a solution from the instance alone."""
        from optim.models.auction.check import check

        return check(instance, solution)

    def describe(self, instance: AuctionInstance) -> Mapping[str, Any]:
        """Return figures of an instance: sizes, contention, shape of the bids."""
        from optim.models.auction.figures import describe

        return describe(instance)

    def load(self, instance: AuctionInstance, decision: AuctionPlan) -> Mapping[str, Any]:
        """Return what a plan does: winners, leftover, payments with their intervals."""
        from optim.models.auction.figures import plan_load

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


def _witness(number: Mapping[str, int], document: WitnessDocument) -> Witness:
    row = np.full(len(number), -1, dtype=np.int64)
    for name, b in document.rows:
        row[_app(number, name)] = b
    placement = document.placement
    entries = None if placement is None else sorted_entries([(_app(number, n), s, k) for n, s, k in placement])
    return Witness(row=as_ints(row), placement=entries)


def _numbers(instance: AuctionInstance) -> dict[str, int]:
    return {name: i for i, name in enumerate(instance.apps.ids)}


def _app(number: Mapping[str, int], name: str) -> int:
    if name not in number:
        raise InvalidProblemError(
            f"solution names app {name!r}, which the instance lacks; check that the two belong together"
        )
    return number[name]


def _convert(data: Any, kind: Any) -> Any:
    try:
        return msgspec.convert(data, kind, strict=True)
    except msgspec.ValidationError as error:
        raise InvalidProblemError(f"solution: {error}") from error


def _price_document(proof: PriceProof) -> PriceDocument:
    columns = (*proof.kinds.T.tolist(), proof.row_price.tolist(), proof.supply_price.tolist())
    return PriceDocument(prices=list(zip(*columns, strict=True)), is_counted=proof.is_counted)


def _bound_document(proof: BoundProof) -> CountDocument | PriceDocument | TreeDocument:
    if isinstance(proof, CountProof):
        return CountDocument()
    if isinstance(proof, PriceProof):
        return _price_document(proof)
    return TreeDocument(
        nodes=[
            NodeDocument(
                level=node.level,
                size=node.size,
                value=node.value,
                row=node.row,
                low=node.low,
                high=node.high,
                proof=None if node.proof is None else _price_document(node.proof),
                is_full=node.is_full,
            )
            for node in proof.nodes
        ]
    )


def _price_proof(document: PriceDocument) -> PriceProof:
    return PriceProof(
        kinds=as_ints([row[:3] for row in document.prices]).reshape(-1, 3),
        row_price=as_floats([row[3] for row in document.prices]),
        supply_price=as_floats([row[4] for row in document.prices]),
        is_counted=document.is_counted,
    )


def _bound(document: CountDocument | PriceDocument | TreeDocument) -> BoundProof:
    if isinstance(document, CountDocument):
        return CountProof()
    if isinstance(document, PriceDocument):
        return _price_proof(document)
    return TreeProof(
        nodes=tuple(
            TreeNode(
                level=node.level,
                size=node.size,
                value=node.value,
                row=node.row,
                low=node.low,
                high=node.high,
                proof=None if node.proof is None else _price_proof(node.proof),
                is_full=node.is_full,
            )
            for node in document.nodes
        )
    )
