"""The bidding problem as registered: serialization of instances, footprints and proofs, and access to its checker."""

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType

from optim.core.documents import Count, PositiveInt, Whole, convert, distinct
from optim.core.errors import InvalidProblemError
from optim.core.registry import AbstractProblem
from optim.core.solution import Sense, Solution, Verification
from optim.models.bidding.check import check
from optim.models.bidding.codec import SCHEMA, BiddingDocument, document_from_instance, instance_from_document
from optim.models.bidding.cost_per_work import describe, footprint_load
from optim.models.bidding.decision import Cover, FootprintPlan, Multipliers, RatioProof, TreeNode
from optim.models.bidding.instance import BiddingInstance
from optim.models.bidding.market.prices import MICRO


class TakenDocument(msgspec.Struct, forbid_unknown_fields=True):
    """Instances taken at a bid, given by its number; `market` and `delta_usd` repeat the bid's data for human readers."""

    bid: Count
    count: PositiveInt
    market: str | UnsetType = UNSET
    delta_usd: float | UnsetType = UNSET


class PlanDocument(msgspec.Struct, forbid_unknown_fields=True):
    """A footprint; bids that aren't listed have no instances."""

    taken: list[TakenDocument]


SCALARS = ("work", "lost_by_rate", "lost_by_theta", "theta", "rate")
"""Multipliers that are one number each."""


class MultipliersDocument(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Multipliers. Rows are [cell, share] in `eviction`, [cell, bid, share] in `blame`, [cover, price] in `cover`.

    `blame` is the attribution of evictions to bids.
    """

    point: list[float]
    cap: list[float]
    eviction: list[tuple[Count, float]] = []
    blame: list[tuple[Count, Count, float]] = []
    work: float = 0.0
    cover: list[tuple[Count, float]] = []
    lost_by_rate: float = 0.0
    lost_by_theta: float = 0.0
    theta: float = 0.0
    rate: float = 0.0


class CoverDocument(msgspec.Struct, forbid_unknown_fields=True):
    """A cover; in its hard hours less than `short_of` of the capacities `weight` (one per market) survives."""

    weight: list[Count]
    short_of: PositiveInt


class ProofDocument(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A ratio proof; nodes are [bid, value, low, high] or, at leaves, [index into `multipliers`]."""

    ratio: float
    nodes: list[list[Whole | float]]
    multipliers: list[MultipliersDocument]
    covers: list[CoverDocument] = []


FORMER_NAMES = {
    "lasting": "survival",
    "least": "min_capacity",
    "own": "by_market",
    "one_bid_a_market": "one_bid_per_market",
}
"""Present name of each field that has another name in ``optim/bidding/1``."""

FORMER_TERMS = {"own": "per-bid", "any": "any-bid", "market": "per-market"}
"""Present values of `eviction_term` by their names in ``optim/bidding/1``."""


class BiddingProblem(AbstractProblem[BiddingInstance]):
    """Footprints of spot instances with the lowest cost per work."""

    name = "bidding"
    schema = SCHEMA
    sense = Sense.MINIMISE
    instance_type = BiddingInstance
    document_type = BiddingDocument
    earlier_schemas = ("optim/bidding/1",)

    def upgraded(self, document: dict[str, Any]) -> dict[str, Any]:
        """Return a document of ``optim/bidding/1`` with the present names of fields and of eviction terms."""
        changed = {FORMER_NAMES.get(name, name): value for name, value in document.items()} | {"schema": self.schema}
        if isinstance(term := changed.get("eviction_term"), str):
            changed["eviction_term"] = FORMER_TERMS.get(term, term)
        if isinstance(survival := changed.get("survival"), dict):
            changed["survival"] = {FORMER_NAMES.get(name, name): value for name, value in survival.items()}
        return changed

    def instance_from_document(self, document: BiddingDocument) -> BiddingInstance:
        """Build a validated instance."""
        return instance_from_document(document, BiddingInstance)

    def document_from_instance(self, instance: BiddingInstance) -> BiddingDocument:
        """Return the document of an instance."""
        return document_from_instance(instance)

    def programme(self, instance: BiddingInstance) -> Any:
        """Return the linear relaxation of cost per work (Charnes, Cooper)."""
        from optim.models.bidding.programme import charnes_cooper_model

        return charnes_cooper_model(instance)

    def parametric_programme(self, instance: BiddingInstance, ratio: float) -> Any:
        """Return the mixed-integer programme ``min cost - ratio work``."""
        from optim.models.bidding.programme import parametric_model

        return parametric_model(instance, ratio)

    def decision_to_json(self, instance: BiddingInstance, decision: FootprintPlan) -> Any:
        """Return a footprint as one object per chosen bid."""
        documents = [
            TakenDocument(j, int(decision.counts[j]), *_labels(instance, j))
            for j in np.flatnonzero(decision.counts).tolist()
        ]
        return msgspec.to_builtins(PlanDocument(taken=documents))

    def decision_from_json(self, instance: BiddingInstance, data: Any) -> FootprintPlan:
        """Build a footprint; the market and the delta of a bid in the file must match the instance."""
        counts = np.zeros(instance.num_bids, dtype=np.int64)
        for j, entry in distinct(((each.bid, each) for each in convert(data, PlanDocument).taken), "bid").items():
            if j >= instance.num_bids:
                raise InvalidProblemError(
                    f"solution: bid {j} is taken, but the instance has only {instance.num_bids} bids; "
                    "check that the solution belongs to this instance"
                )
            for name, actual in zip(("market", "delta_usd"), _labels(instance, j), strict=True):
                stated = getattr(entry, name)
                if stated is not UNSET and stated != actual:
                    raise InvalidProblemError(
                        f"solution: {name} of bid {j} is stated as {stated!r}, but is {actual!r} in the instance; "
                        "check that the solution belongs to this instance"
                    )
            counts[j] = entry.count
        return FootprintPlan.of(counts)

    def proof_to_json(self, instance: BiddingInstance, proof: RatioProof) -> Any:
        """Return a proof as plain values."""
        nodes: list[list[int | float]] = [
            [node.multipliers] if node.bid is None else [node.bid, node.value, node.low, node.high]
            for node in proof.nodes
        ]
        documents = []
        for x in proof.multipliers:
            open_cells = np.flatnonzero(x.eviction)
            documents.append(
                MultipliersDocument(
                    point=x.point.tolist(),
                    cap=x.cap.tolist(),
                    eviction=list(zip(open_cells.tolist(), x.eviction[open_cells].tolist(), strict=True)),
                    cover=[(int(i), float(x.cover[i])) for i in np.flatnonzero(x.cover)],
                    blame=list(
                        zip(
                            x.attribution_cell.tolist(), x.attribution_bid.tolist(), x.attribution.tolist(), strict=True
                        )
                    ),
                    **{name: getattr(x, name) for name in SCALARS},
                )
            )
        covers = [CoverDocument(cover.weight.tolist(), cover.short_of) for cover in proof.covers]
        return msgspec.to_builtins(ProofDocument(ratio=proof.ratio, nodes=nodes, multipliers=documents, covers=covers))

    def proof_from_json(self, instance: BiddingInstance, data: Any) -> RatioProof:
        """Build a proof."""
        document = convert(data, ProofDocument)
        nodes = []
        for row in document.nodes:
            match row:
                case [int(number)]:
                    nodes.append(TreeNode(multipliers=number))
                case [int(bid), value, int(low), int(high)]:
                    nodes.append(TreeNode(bid=bid, value=value, low=low, high=high))
                case _:
                    raise InvalidProblemError(
                        f"solution: a node of the proof must have 1 or 4 numbers, all of them integers except the second, got {row}"
                    )
        covers = tuple(
            Cover(weight=np.array(cover.weight, dtype=np.int64), short_of=cover.short_of) for cover in document.covers
        )
        multipliers = tuple(_multipliers(entry, len(covers)) for entry in document.multipliers)
        return RatioProof(ratio=document.ratio, nodes=tuple(nodes), multipliers=multipliers, covers=covers)

    def verify(self, instance: BiddingInstance, solution: Solution) -> Verification:
        """Recompute every claim of a solution from the instance alone."""
        return check(instance, solution)

    def describe(self, instance: BiddingInstance) -> Mapping[str, Any]:
        """Return statistics of an instance: sizes, form, evictions."""
        return describe(instance)

    def decision_figures(self, instance: BiddingInstance, decision: FootprintPlan) -> Mapping[str, Any]:
        """Return the instances, the cost and the work of a footprint."""
        return footprint_load(instance, decision)


PROBLEM = BiddingProblem()


def _labels(instance: BiddingInstance, j: int) -> tuple[str, float]:
    """Return the market and the delta of a bid, as solution files state them."""
    return instance.markets[int(instance.bids.market[j])], int(instance.bids.delta_micro[j]) / MICRO


def _multipliers(document: MultipliersDocument, num_covers: int) -> Multipliers:
    cover = np.zeros(num_covers)
    for number, price in distinct(document.cover, "the price of cover").items():
        if number >= num_covers:
            raise InvalidProblemError(f"solution: the proof names cover {number}, but has only {num_covers} covers")
        cover[number] = price
    eviction = np.zeros(len(document.point))
    for cell, share in distinct(document.eviction, "the eviction share of cell").items():
        if cell >= len(eviction):
            raise InvalidProblemError(f"solution: the proof names cell {cell}, but has only {len(eviction)} cells")
        eviction[cell] = share
    return Multipliers(
        point=np.array(document.point, dtype=np.float64),
        eviction=eviction,
        attribution_cell=np.array([row[0] for row in document.blame], dtype=np.int64),
        attribution_bid=np.array([row[1] for row in document.blame], dtype=np.int64),
        attribution=np.array([row[2] for row in document.blame], dtype=np.float64),
        cap=np.array(document.cap, dtype=np.float64),
        cover=cover,
        **{name: getattr(document, name) for name in SCALARS},
    )
