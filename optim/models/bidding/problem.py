"""The bidding problem's border: instances, footprints and proofs as JSON, and the way to its checker."""

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from optim.core.documents import decode, encode
from optim.core.errors import InvalidProblemError
from optim.core.problem import AbstractProblem
from optim.core.solution import Solution
from optim.core.status import Sense
from optim.core.verification import Verification
from optim.models.bidding.document import SCHEMA, BiddingDocument
from optim.models.bidding.instance import MICRO, BiddingInstance
from optim.models.bidding.plan import FootprintPlan
from optim.models.bidding.proof import Multipliers, RatioProof, TreeNode
from optim.models.bidding.reading import document_from_instance, instance_from_document


class TakenDocument(msgspec.Struct, forbid_unknown_fields=True):
    """Instances of one bid: its number in the instance; market and delta are there for people."""

    bid: int
    count: int
    market: str = ""
    delta_usd: float = 0.0


class PlanDocument(msgspec.Struct, forbid_unknown_fields=True):
    """A footprint; bids that aren't listed have no instances."""

    taken: list[TakenDocument]


class MultipliersDocument(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Multipliers; `blame` has rows [cell, bid, share], eviction rows [cell, share]."""

    point: list[float]
    cap: list[float]
    eviction: list[tuple[int, float]] = []
    blame: list[tuple[int, int, float]] = []


class ProofDocument(msgspec.Struct, forbid_unknown_fields=True):
    """A ratio proof; nodes are [bid, value, low, high] or [multipliers]."""

    ratio: float
    nodes: list[list[int]]
    multipliers: list[MultipliersDocument]


class BiddingProblem(AbstractProblem[BiddingInstance]):
    """Footprints of spot instances with the lowest cost per work."""

    name = "bidding"
    schema = SCHEMA
    sense = Sense.MINIMISE
    instance_type = BiddingInstance

    def read_instance(self, data: bytes) -> BiddingInstance:
        """Parse and validate a document of format ``optim/bidding/1``."""
        return instance_from_document(decode(data, BiddingDocument))

    def write_instance(self, instance: BiddingInstance) -> bytes:
        """Return the document of an instance."""
        return encode(document_from_instance(instance))

    def json_schema(self) -> Mapping[str, Any]:
        """Return the JSON Schema of ``optim/bidding/1``."""
        schema: Mapping[str, Any] = msgspec.json.schema(BiddingDocument)
        return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": SCHEMA, **schema}

    def decision_to_json(self, instance: BiddingInstance, decision: FootprintPlan) -> Any:
        """Return a footprint as one object a bid taken."""
        bids = instance.bids
        taken = [
            TakenDocument(
                bid=j,
                count=int(decision.counts[j]),
                market=instance.markets[int(bids.market[j])],
                delta_usd=int(bids.delta_micro[j]) / MICRO,
            )
            for j in np.flatnonzero(decision.counts).tolist()
        ]
        return msgspec.to_builtins(PlanDocument(taken=taken))

    def decision_from_json(self, instance: BiddingInstance, data: Any) -> FootprintPlan:
        """Build a footprint."""
        counts = np.zeros(instance.num_bids, dtype=np.int64)
        for entry in _convert(data, PlanDocument).taken:
            if not 0 <= entry.bid < instance.num_bids:
                raise InvalidProblemError(
                    f"solution names bid {entry.bid}, but the instance has {instance.num_bids}; "
                    "check that the two belong together"
                )
            counts[entry.bid] = entry.count
        return FootprintPlan.of(counts)

    def proof_to_json(self, instance: BiddingInstance, proof: RatioProof) -> Any:
        """Return a proof as plain values."""
        nodes = [
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
                    blame=list(zip(x.blame_cell.tolist(), x.blame_bid.tolist(), x.blame.tolist(), strict=True)),
                )
            )
        return msgspec.to_builtins(ProofDocument(ratio=proof.ratio, nodes=nodes, multipliers=documents))

    def proof_from_json(self, instance: BiddingInstance, data: Any) -> RatioProof:
        """Build a proof."""
        document = _convert(data, ProofDocument)
        nodes = []
        for row in document.nodes:
            if len(row) == 1:
                nodes.append(TreeNode(multipliers=row[0]))
            elif len(row) == 4:
                nodes.append(TreeNode(bid=row[0], value=row[1], low=row[2], high=row[3]))
            else:
                raise InvalidProblemError(f"solution: a node of the proof must have 1 or 4 numbers, got {row}")
        return RatioProof(
            ratio=document.ratio,
            nodes=tuple(nodes),
            multipliers=tuple(_multipliers(entry) for entry in document.multipliers),
        )

    def verify(self, instance: BiddingInstance, solution: Solution) -> Verification:
        """Recompute every claim of a solution from the instance alone."""
        from optim.models.bidding.check import check

        return check(instance, solution)

    def describe(self, instance: BiddingInstance) -> Mapping[str, Any]:
        """Return figures of an instance: sizes, form, evictions."""
        from optim.models.bidding.figures import describe

        return describe(instance)

    def load(self, instance: BiddingInstance, decision: FootprintPlan) -> Mapping[str, Any]:
        """Return what a footprint holds, costs and does."""
        from optim.models.bidding.figures import footprint_load

        return footprint_load(instance, decision)


PROBLEM = BiddingProblem()


def _multipliers(document: MultipliersDocument) -> Multipliers:
    eviction = np.zeros(len(document.point))
    for cell, share in document.eviction:
        if not 0 <= cell < len(eviction):
            raise InvalidProblemError(f"solution: the proof names cell {cell}, but has {len(eviction)} points")
        eviction[cell] = share
    return Multipliers(
        point=np.array(document.point, dtype=np.float64),
        eviction=eviction,
        blame_cell=np.array([row[0] for row in document.blame], dtype=np.int64),
        blame_bid=np.array([row[1] for row in document.blame], dtype=np.int64),
        blame=np.array([row[2] for row in document.blame], dtype=np.float64),
        cap=np.array(document.cap, dtype=np.float64),
    )


def _convert(data: Any, kind: Any) -> Any:
    try:
        return msgspec.convert(data, kind, strict=True)
    except msgspec.ValidationError as error:
        raise InvalidProblemError(f"solution: {error}") from error
