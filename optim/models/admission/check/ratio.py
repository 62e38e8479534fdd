"""The competitive ratios of (A.28) and (A.29), recomputed from eps, the full share and the spread of the prices.

The spread is the largest ln(U / lower scale) of a row. The certificate states it, since U and the lower scale may come
from other days. A plan of the rule limits it from below: by C2, U_j is at least d_j, the largest value over use of row j
in the plan. If no U_j exceeds s times the lower scale of its row, then

- zero start: C5, ``sum_j lambda_j a_j <= v`` for each schedule, gives ``s >= sum_j d_j a_j / v``;
- exponential: C5, ``sum_j L_j c_j <= OPT / 2``, gives ``s >= 2 sum_j d_j c_j / bound``.

Equal servers have equal rows, because a schedule on one of them may use any other.
"""

import math
from fractions import Fraction

from optim.models.admission.check.exact_instance import ExactInstance
from optim.models.admission.check.placement import Use, uses_of
from optim.models.admission.decision import AdmissionPlan, Side

ZERO_START, EXPONENTIAL = "zero-start", "exponential"

Row = tuple[Side, int, int, int]
"""Side of the servers, class, slot, resource."""


def ratio_of(theorem: str, eps: Fraction, full: float, spread: float) -> float:
    """Return the ratio of a theorem for prices that reach U at the share `full` of a capacity; infinite if too large."""
    if spread == -math.inf:
        growth = 0.0
    else:
        rise = spread if theorem == EXPONENTIAL else max(spread, 0.0) + math.log1p(math.exp(-abs(spread)))
        try:
            growth = math.expm1(float(eps) * rise / full) / float(eps) if eps else rise / full
        except OverflowError:
            growth = math.inf
    return 2 * max(1.0, growth) if theorem == EXPONENTIAL else growth + max(1.0, growth)


def least_spread(exact: ExactInstance, plan: AdmissionPlan, theorem: str, bound: float) -> float:
    """Return the smallest spread that C2 and C5 leave, given a feasible plan of the rule and a bound on all plans."""
    uses = uses_of(exact, plan)
    value = {job: exact.jobs[job].value[max(slot for _, _, slot in use)] for job, use in uses.items()}
    density: dict[Row, float] = {}
    for job, use in uses.items():
        for row, amount in _rows(exact, use):
            density[row] = max(density.get(row, 0.0), value[job] / amount)
    if theorem == EXPONENTIAL:
        total = math.fsum(d * _capacity(exact, row) for row, d in density.items())
        return _log(2 * total / bound) if bound > 0 else -math.inf
    most = (
        math.fsum(density[row] * amount for row, amount in _rows(exact, use)) / value[job] for job, use in uses.items()
    )
    return _log(max(most, default=0.0))


def _rows(exact: ExactInstance, use: Use) -> list[tuple[Row, int]]:
    return [
        ((side, exact.servers(side).class_of(server), slot, r), amount)
        for (side, server, slot), amounts in use.items()
        for r, amount in enumerate(amounts)
        if amount > 0
    ]


def _capacity(exact: ExactInstance, row: Row) -> float:
    """Return the capacity of all servers of a row's class."""
    side, server_class, slot, r = row
    servers = exact.servers(side)
    return float(servers.capacity_at(server_class, slot)[r]) * servers.count[server_class]


def _log(number: float) -> float:
    return math.log(number) if number > 0 else -math.inf
