"""Check shares and grants: the interval of each share is proven, and the payment rule determines the grants."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from optim.core.arrays import FloatArray
from optim.core.solution import Violation, violation
from optim.models.auction.check.allocation import check_bundles, check_entries, check_rows, fits
from optim.models.auction.check.exact_instance import ExactInstance
from optim.models.auction.decision import AuctionPlan, PaymentRule, Witness

SHARE = "share"
WITNESS = "witness"
GRANT = "grant"

SHARE_TOL = 1e-9
"""Relative tolerance of shares, since their sums may be added in another order."""

WHOLE_TOL = 1e-9
"""Tolerance for rounding c |G| gangs to an integer or a half, relative to max(1, the number)."""


class Shares(NamedTuple):
    """The recomputed interval of each app's share, shape (apps,); grants are checked against it."""

    low: FloatArray
    high: FloatArray


def check_shares(
    facts: ExactInstance, plan: AuctionPlan, bound_without: Callable[[int], float | None]
) -> tuple[list[Violation], Shares]:
    """Check that each share's interval is proven: from below by a bound, from above by a witness.

    A plan may claim a lower end below the proven one; the claimed end is then used.
    """
    violations = []
    won = plan.row >= 0
    shares = Shares(low=np.ones(facts.num_apps), high=np.ones(facts.num_apps))
    for name, share in (("low", plan.share_low), ("high", plan.share_high)):
        if share.shape != plan.row.shape or not ((share >= 0) & (share <= 1)).all() or (share[~won] != 1).any():
            text = f"shares ({name}) must be one number per app, in [0, 1], and 1 for apps without a bid"
            return [violation(SHARE, text)], shares
    weights = np.where(won, facts.weight[np.where(won, plan.row, 0)] if len(facts.weight) else 0.0, 0.0)
    total = math.fsum(weights.tolist())
    most = 1.0 + SHARE_TOL + facts.rounding(total)
    for i in np.flatnonzero(won).tolist():
        where = f"app {facts.app_name(i)}"
        low, high = float(plan.share_low[i]), float(plan.share_high[i])
        others = total - float(weights[i])
        bound = bound_without(i)
        proven_low = 0.0 if bound is None else math.exp(min(0.0, others - bound))
        shares.low[i] = min(low, proven_low)
        if low > proven_low * most:
            text = f"the share c is claimed to be at least {low!r}, but only {proven_low!r} is proven"
            violations.append(violation(SHARE, text, amount=repr(low - proven_low), where=where))
        witness, reached = plan.witnesses.get(i), others
        if witness is not None:
            wrong = _check_witness(facts, i, witness)
            violations += wrong
            if wrong:
                continue
            reached = max(others, math.fsum(facts.weight[witness.row[witness.row >= 0]].tolist()))
        proven_high = shares.high[i] = math.exp(others - reached)
        if not proven_high <= high * most <= proven_high * most**2 or low > high * most:
            text = f"the share c is claimed to be at most {high!r}, but {proven_high!r} is proven"
            violations.append(violation(SHARE, text, amount=repr(proven_high - high), where=where))
    outside = sorted(plan.witnesses.keys() - set(np.flatnonzero(won).tolist()))
    violations += [violation(WITNESS, f"app {i} has no awarded bid, so it needs no witness") for i in outside]
    return violations, shares


def _check_witness(facts: ExactInstance, app: int, witness: Witness) -> list[Violation]:
    """Check that a witness is an allocation to the apps other than `app`."""
    where = f"without app {facts.app_name(app)}"
    violations = check_rows(facts, witness.row)
    if violations:
        return violations
    if witness.row[app] >= 0:
        violations.append(violation(WITNESS, "the witness awards a bid to the app that it must omit", where=where))
    if witness.placement is not None:
        violations += check_entries(facts, witness.placement, "witness")
        violations += [] if violations else check_bundles(facts, witness.row, witness.placement)
    elif not fits(facts, witness.row):
        violations.append(
            violation(WITNESS, "best fit cannot place the bundles, and no placement is given", where=where)
        )
    return violations


def check_grants(facts: ExactInstance, plan: AuctionPlan, shares: Shares) -> list[Violation]:
    """Check that grants lie within the bundles and have the sizes that the rule gives for the proven upper ends."""
    violations = check_entries(facts, plan.grants, "grants")
    if violations:
        return violations
    placed = {(i, s): count for i, s, count in plan.placement.tolist()}
    for i, s, count in plan.grants.tolist():
        if count > placed.get((i, s), 0):
            text = f"{count} GPUs are granted on slot {s}, where the awarded bundle has {placed.get((i, s), 0)}"
            violations.append(violation(GRANT, text, where=f"app {facts.app_name(i)}"))
    awarded = np.bincount(plan.placement[:, 0], plan.placement[:, 2], facts.num_apps).astype(np.int64)
    granted = np.bincount(plan.grants[:, 0], plan.grants[:, 2], facts.num_apps).astype(np.int64)
    for i in np.flatnonzero(awarded).tolist():
        gang = int(facts.instance.apps.gang[i])
        allowed = _sizes(plan.rule, float(shares.high[i]), int(awarded[i]), gang)
        if int(granted[i]) not in allowed:
            text = f"{granted[i]} of {awarded[i]} GPUs are granted, but the rule {plan.rule} allows {sorted(allowed)}"
            violations.append(violation(GRANT, text, where=f"app {facts.app_name(i)}"))
    return violations


def decided_grants(facts: ExactInstance, plan: AuctionPlan, shares: Shares) -> tuple[int, int, float]:
    """Return the number of grants of equal size at both ends of the share's interval, of all grants, and the widest interval.

    In a lottery the share is the probability of the grant, so a grant is certain only if both ends are equal.
    """
    won = np.flatnonzero(plan.row >= 0).tolist()
    awarded = np.bincount(plan.placement[:, 0], plan.placement[:, 2], facts.num_apps).astype(np.int64)
    ends = [
        [_sizes(plan.rule, float(share[i]), int(awarded[i]), int(facts.instance.apps.gang[i])) for i in won]
        for share in shares
    ]
    width = (plan.share_high - plan.share_low)[won]
    is_same = [low == high for low, high in zip(*ends, strict=True)]
    if plan.rule is PaymentRule.LOTTERY:
        is_same = (width <= SHARE_TOL * shares.high[won]).tolist()
    return sum(is_same), len(won), float(width.max(initial=0.0))


def _sizes(rule: PaymentRule, share: float, bundle: int, gang: int) -> set[int]:
    """Return the numbers of GPUs that a rule may grant: one number, or all and none for a lottery."""
    if rule is PaymentRule.NONE:
        return {bundle}
    if rule is PaymentRule.LOTTERY:
        return {bundle} if share >= 1 else {0, bundle} if share > 0 else {0}
    gangs = share * bundle / gang
    tol = WHOLE_TOL * max(1.0, gangs)
    if rule is PaymentRule.FLOOR:
        number = math.floor(gangs + tol)
        number = 1 if number == 0 and gang == 1 and share * bundle >= 0.5 - tol else number
    elif rule is PaymentRule.NEAREST:
        number = math.floor(gangs + 0.5 + tol)
    else:
        number = math.ceil(gangs - tol)
    return {min(bundle, number * gang)}
