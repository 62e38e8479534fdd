"""The packing LP tightened by cuts of single servers, round by round."""

from dataclasses import dataclass

from optim.core.driver import Monitor, Standing
from optim.models.admission.instance import FloatArray
from optim.solvers.admission.packing.packing_lp import PackingLP, PackingResult
from optim.solvers.admission.packing.price_search import Walk
from optim.solvers.admission.packing.server_cuts import CutSeparator
from optim.solvers.admission.pricing.capacity_rows import CapacityRows
from optim.solvers.admission.pricing.dual_points import PricePoint
from optim.solvers.admission.pricing.job_tables import JobTables

CUT_TOL = 1e-3
"""Relative gap to which the programme is solved again after cuts: more isn't worth it before the next round."""

LEAST_GAIN = 2e-4
"""Relative fall of the bound in a round below which further rounds are left."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tightened:
    """The packing LP with cuts, and what it said without.

    Parameters
    ----------
    plain, plain_weight
        Best point of the LP without cuts, and how much of each job it then admitted, shape (jobs,).
    result
        The last result; its point is the best that was proven, whatever the cuts then were.
    """

    plain: PricePoint
    plain_weight: FloatArray
    result: PackingResult


def solve_with_cuts(
    tables: JobTables, rows: CapacityRows, monitor: Monitor, *, tol: float, cut_rounds: int
) -> Tightened:
    """Solve the packing LP, then add violated server cuts and solve again, a few times.

    Parameters
    ----------
    tol
        Relative gap of the LP without cuts.
    cut_rounds
        Most rounds of cuts.
    """
    programme = PackingLP(tables, rows)
    walk = Walk(num_steps=10)
    result = programme.run(monitor.part(), tol=tol, first=Walk(num_steps=150, add_every=4), between=walk)
    plain, weight = result.point, result.weight()
    separator = CutSeparator(tables.instance) if cut_rounds else None
    for _ in range(cut_rounds):
        if separator is None or result.rounds == 0 or monitor.is_over(Standing(bound=result.point.bound)):
            break
        before = result.point.bound
        with monitor.clock.phase("cuts"):
            cuts = separator.separate(*result.pool.loads(result.x))
            programme.drop_idle_cuts()
            programme.add_cuts(cuts)
        if not cuts:
            break
        result = programme.run(monitor.part(), tol=max(tol, CUT_TOL), first=walk, between=walk)
        if before - result.point.bound < LEAST_GAIN * before:
            break
    return Tightened(plain=plain, plain_weight=weight, result=result)
