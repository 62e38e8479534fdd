"""Recompute the bound of a dual point: prices, payoffs and cuts against rows (19)-(21), rounded outward."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from optim.core.arrays import FloatArray
from optim.core.solution import Violation, violation
from optim.models.admission.check import placement
from optim.models.admission.check.cuts import CutCheck, sides_of
from optim.models.admission.check.exact_instance import ExactInstance, ExactSum, ServerFacts
from optim.models.admission.check.placement import in_class, in_job
from optim.models.admission.check.schedules import FREE, CutCharge, Prices, Restriction, SlotCharge, min_payoff
from optim.models.admission.data import MICRO
from optim.models.admission.decision import CountCut, Cut, PriceProof, ServerCut, Side, SlotCut

PAYOFF_TOL = 1e-9
"""Tolerated shortfall of a payoff, relative to the largest of 1, |required payoff| and the job's values.

The bound uses the required payoff wherever the stated one is smaller.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundFindings:
    """Result of the check of a proof: violated rows, and the proven bound (None if there is none)."""

    violations: tuple[Violation, ...]
    bound: Fraction | None = None


def check_prices(
    exact: ExactInstance,
    proof: PriceProof,
    cuts: CutCheck,
    restrictions: Mapping[int, Restriction] | None = None,
    leaf: str = "",
) -> BoundFindings:
    """Recompute the bound of a dual point.

    Parameters
    ----------
    exact
        The instance.
    proof
        The dual point.
    cuts
        Checker of the validity of cuts.
    restrictions
        Restrictions on schedules by job, from the branches above a leaf; unlisted jobs are unrestricted.
    leaf
        Text that names the tree's leaf, appended to the location of each violation.

    Returns
    -------
    BoundFindings
        The bound is the proof's sum with every payoff raised to the value that row (21) requires. It is
        therefore valid even if a payoff was rejected.
    """
    violations = _malformed(exact, proof, leaf)
    by_form: tuple[tuple[type[Cut], Sequence[Cut]], ...] = (
        (ServerCut, proof.cuts),
        (CountCut, proof.count_cuts),
        (SlotCut, proof.slot_cuts),
    )
    for form, those in by_form:
        for number, cut in enumerate(() if violations else those):
            violations += cuts.violations(cut, number, leaf, form)
    if violations:
        return BoundFindings(violations=tuple(violations))
    prices = _prices(exact, proof)
    total = ExactSum()
    for job, stated in zip(exact.jobs, proof.payoff.tolist(), strict=True):
        restriction = (restrictions or {}).get(job.index, FREE)
        # An admitted job's row is an equation, so its payoff may have either sign.
        floor = -math.inf if restriction.is_admitted else 0.0
        needed = max(floor, min_payoff(exact, job, prices, restriction, enough=stated))
        if needed - stated > PAYOFF_TOL * max(1.0, abs(needed), *job.value):
            where = in_job(exact, job.index) + leaf
            text = f"the payoff {stated!r} is less than {needed!r}, the job's largest value minus cost"
            violations.append(violation(placement.PAYOFF, text, amount=repr(needed - stated), where=where))
        total.add(max(stated, needed))
    return BoundFindings(violations=tuple(violations), bound=total.total + _rents(exact, proof))


def _malformed(exact: ExactInstance, proof: PriceProof, leaf: str) -> list[Violation]:
    """Return malformed fields of a dual point: wrong shapes, NaN, negative prices."""
    size = (exact.horizon, len(exact.resources))
    num_ps_classes = 0 if exact.is_shared else len(exact.ps_servers.count)
    arrays = (
        ("worker_price", proof.worker_price, (len(exact.worker_servers.count), *size)),
        ("ps_price", proof.ps_price, (num_ps_classes, *size)),
        ("payoff", proof.payoff, (len(exact.jobs),)),
    )
    for name, array, shape in arrays:
        if not isinstance(array, np.ndarray) or array.dtype != np.float64 or array.shape != shape:
            shape_found = getattr(array, "shape", type(array).__name__)
            text = f"{name} must hold doubles in shape {shape}, got {shape_found}"
            return [violation(placement.PRICE, text, where=name + leaf)]
    violations = []
    for side, array in ((Side.WORKER, proof.worker_price), (Side.PS, proof.ps_price)):
        for c, t, r in np.argwhere(~(np.isfinite(array) & (array >= 0))).tolist():
            where = f"{exact.resources[r]}, {in_class(exact, side, c, t)}{leaf}"
            text = f"prices must be finite and at least 0, got {array[c, t, r]}"
            violations.append(violation(placement.PRICE, text, amount=repr(float(array[c, t, r])), where=where))
    for i in np.flatnonzero(~np.isfinite(proof.payoff)).tolist():
        text = f"payoffs must be finite, got {proof.payoff[i]}"
        violations.append(
            violation(placement.PAYOFF, text, amount=repr(float(proof.payoff[i])), where=in_job(exact, i) + leaf)
        )
    return violations


def _prices(exact: ExactInstance, proof: PriceProof) -> Prices:
    charges: dict[int, list[CutCharge]] = {}
    slot_charges: dict[int, list[SlotCharge]] = {}
    all_cuts: tuple[Cut, ...] = (*proof.cuts, *proof.count_cuts, *proof.slot_cuts)
    with np.errstate(over="ignore"):
        for cut in (cut for cut in all_cuts if cut.multiplier > 0):
            for side, gains in sides_of(cut):
                for job, gain in zip(np.asarray(cut.jobs).tolist(), np.asarray(gains), strict=True):
                    if not gain.any():
                        continue
                    charge = float(cut.multiplier) * gain
                    if isinstance(cut, SlotCut):
                        slot_charges.setdefault(job, []).append(SlotCharge(slot=cut.slot, charge=charge))
                    else:
                        place = {"server_class": cut.server_class, "slot": cut.slot}
                        charges.setdefault(job, []).append(CutCharge(side=side, charge=charge, **place))
    return Prices(
        worker=proof.worker_price,
        ps=proof.worker_price if exact.is_shared else proof.ps_price,
        charges=charges,
        slot_charges=slot_charges,
    )


def _rents(exact: ExactInstance, proof: PriceProof) -> Fraction:
    """Return the exact sum of price x capacity plus multiplier x right-hand side over all servers."""
    capacity = ExactSum()
    sides: tuple[tuple[ServerFacts, FloatArray], ...] = (
        (exact.worker_servers, proof.worker_price),
        (exact.ps_servers, proof.ps_price),
    )
    for servers, price in sides:
        for c, t, r in np.argwhere(price > 0).tolist():
            capacity.add(price[c, t, r], servers.count[c] * int(servers.capacity[c, t, r]))
    cuts = ExactSum()
    all_cuts: tuple[Cut, ...] = (*proof.cuts, *proof.count_cuts, *proof.slot_cuts)
    for cut in all_cuts:
        number = exact.servers(cut.side).count[cut.server_class] if isinstance(cut, ServerCut) else 1
        cuts.add(cut.multiplier, number * int(cut.right_hand_side))
    return capacity.total / MICRO + cuts.total
