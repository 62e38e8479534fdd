"""The packing LP tightened by cuts of single servers and of counts, round by round."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from optim.core.driver import Monitor, Standing
from optim.models.admission.instance import FloatArray
from optim.models.admission.proof import Cut
from optim.solvers.admission.packing.count_cuts import CountSeparator
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

BETWEEN = Walk(num_steps=10)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tightened:
    """The packing LP with cuts, and what it said without.

    Parameters
    ----------
    plain, plain_weight
        Best point of the LP without cuts, and how much of each job it then admitted, shape (jobs,).
    guide, guide_weight
        The same of the LP with server cuts alone: count cuts' charges are no unit costs, by which insertions are guided.
    result
        The last result; its point is the best that was proven, whatever the cuts then were.
    """

    plain: PricePoint
    plain_weight: FloatArray
    guide: PricePoint
    guide_weight: FloatArray
    result: PackingResult


def solve_with_cuts(
    tables: JobTables, rows: CapacityRows, monitor: Monitor, *, tol: float, cut_rounds: int, count_rounds: int = 0
) -> Tightened:
    """Solve the packing LP, then add violated cuts and solve again, a few times.

    Parameters
    ----------
    tol
        Relative gap of the LP without cuts.
    cut_rounds, count_rounds
        Most rounds of server cuts, and after them of count cuts.
    """
    programme = PackingLP(tables, rows)
    result = programme.run(monitor.part(), tol=tol, first=Walk(num_steps=150, add_every=4), between=BETWEEN)
    # A result's pool changes with the next round: what it says is asked now.
    plain, plain_weight = result.point, result.weight()
    rounds = _Rounds(programme, monitor, max(tol, CUT_TOL))
    if cut_rounds:
        separator = CutSeparator(tables.instance)
        result = rounds.run(result, cut_rounds, lambda known: separator.separate(*known.pool.loads(known.x)))
    guide, guide_weight = result.point, result.weight()
    if count_rounds:
        by_count = CountSeparator(tables.instance)
        result = rounds.run(result, count_rounds, lambda known: by_count.separate(*known.pool.counts(known.x)))
    return Tightened(plain=plain, plain_weight=plain_weight, guide=guide, guide_weight=guide_weight, result=result)


@dataclass(frozen=True, slots=True, eq=False)
class _Rounds:
    """Rounds of cuts on one programme."""

    programme: PackingLP
    monitor: Monitor
    tol: float

    def run(
        self, result: PackingResult, most_rounds: int, separate: Callable[[PackingResult], Sequence[Cut]]
    ) -> PackingResult:
        """Add what cuts a point off and solve again until there is nothing, or it gains little; return the last result."""
        monitor = self.monitor
        for _ in range(most_rounds):
            if result.rounds == 0 or monitor.is_over(Standing(bound=result.point.bound)):
                break
            before = result.point.bound
            with monitor.clock.phase("cuts"):
                cuts = separate(result)
                self.programme.drop_idle_cuts()
                self.programme.add_cuts(cuts)
            if not cuts:
                break
            result = self.programme.run(monitor.part(), tol=self.tol, first=BETWEEN, between=BETWEEN)
            if before - result.point.bound < LEAST_GAIN * before:
                break
        return result
