"""What a search at one ratio found and proved."""

from dataclasses import dataclass

from optim.models.bidding.instance import IntArray
from optim.models.bidding.proof import Cover, Multipliers, RatioProof, TreeNode


@dataclass(frozen=True, kw_only=True, eq=False)
class TreeResult:
    """What the search found.

    Parameters
    ----------
    counts, value
        The best footprint with its ``cost - q work``; None and the cutoff where none is better than the cutoff.
    bound
        Lower bound of ``cost - q work`` over all footprints of interest.
    nodes, multipliers, covers
        The tree that proves it.
    """

    counts: IntArray | None
    value: float
    bound: float
    nodes: tuple[TreeNode, ...]
    multipliers: tuple[Multipliers, ...]
    covers: tuple[Cover, ...] = ()

    def proof(self, ratio: float) -> RatioProof:
        """Return the tree as the proof of a ratio."""
        return RatioProof(ratio=ratio, nodes=self.nodes, multipliers=self.multipliers, covers=self.covers)
