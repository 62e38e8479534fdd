"""Joint limits below 1 are solved in units of their own, as tolerances of programmes and boxes are absolute there.

Units are powers of two, so that a price of a cap comes back exactly as it was found.
"""

from dataclasses import replace

import numpy as np

from optim.core.driver import Outcome
from optim.core.units import unit_of
from optim.models.bidding.instance import BiddingInstance, FloatArray
from optim.models.bidding.proof import RatioProof
from optim.models.bidding.validation import LARGEST


def cap_units(instance: BiddingInstance) -> FloatArray:
    """Return by cap the power of two in which its limit lies between 1 and 2; 1 where it is larger, or 0. Shape (caps,)."""
    return np.array([unit_of(limit) for limit in instance.caps.limit.tolist()], dtype=np.float64)


def in_units(instance: BiddingInstance, units: FloatArray) -> BiddingInstance:
    """Return the same instance with each cap in a unit of its own; what no cap can hold stays so at the largest weight."""
    caps = instance.caps
    weight = np.minimum(caps.weight / units[:, None], LARGEST)
    return replace(instance, caps=replace(caps, weight=weight, limit=caps.limit / units))


def taken_back(outcome: Outcome, units: FloatArray) -> Outcome:
    """Return an outcome with the caps' prices in their units of 1."""
    proof = outcome.proof
    if not isinstance(proof, RatioProof):
        return outcome
    multipliers = tuple(replace(x, cap=x.cap / units) for x in proof.multipliers)
    return replace(outcome, proof=replace(proof, multipliers=multipliers))
