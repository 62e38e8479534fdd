"""The packing LP over server classes, solved by column generation with central prices.

A round solves the restricted master to a tolerance that follows the gap (`interior_point`), prices all
jobs at its central dual point, then walks a few Polyak steps from the best point known, adding the
columns of every point on the way: pricing is a hundred times cheaper than the master, so it is done
often. Every priced point gives a Lagrangian bound; the best one is kept, so any stop leaves a proof.

Rows enter the master only when its primal point violates them: on contended instances half of the
rows never do, and Newton's systems are dense in the rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.sparse import csc_array, vstack
from threadpoolctl import threadpool_limits

from optim.core.clock import PhaseClock
from optim.core.progress import Progress, SilentProgress
from optim.core.status import Termination
from optim.core.stopping import Never, SolveState, StoppingCriterion
from optim.models.admission.instance import FloatArray
from optim.models.admission.proof import ServerCut
from optim.solvers.admission.columns import ColumnPool
from optim.solvers.admission.job_tables import JobTables
from optim.solvers.admission.price_bound import PricePoint
from optim.solvers.admission.pricing import price
from optim.solvers.admission.rows import CapacityRows, usage_matrix
from optim.solvers.admission.server_cuts import CutTable

FIRST_TARGET = 0.96
"""Polyak target of the first walk, as a share of the best bound, before any primal value is known."""

STALL_LIMIT = 4
"""Steps without progress after which the step length is halved."""

TOL_SHARE = 0.1
"""The master is solved to this share of the present gap."""

ROW_TOL = 1e-7
"""Relative violation by the master's primal point at which a left-out row enters."""

DROP_FACTOR = 10.0
"""Columns whose reduced loss exceeds this many times the absolute gap are dropped; fewer make prices jump."""


BATCH = 500
"""Columns whose dense counts are held at once."""

IDLE_CUT_TOL = 1e-7
"""Cuts whose price times right-hand side is below this share of the bound are idle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """How many Polyak steps are taken, and how often their columns are kept."""

    num_steps: int
    add_every: int = 1


@dataclass(kw_only=True)
class PackingResult:
    """What column generation knows when it stops.

    Parameters
    ----------
    point
        The best dual point: row prices, payoffs, and the bound they prove.
    master
        Value of the restricted master's primal point (rows satisfied to 1e-7): a fractional value.
    x
        The master's primal point, one entry a column of the pool.
    pool
        The columns.
    termination
        Why it stopped; `completed` if the gap tolerance was reached.
    rounds, newton_steps
        Masters solved, and Newton systems factorised in all.
    history
        (seconds, master value, bound) after each round.
    """

    point: PricePoint
    master: float
    x: FloatArray
    pool: ColumnPool
    termination: Termination
    rounds: int
    newton_steps: int
    history: list[tuple[float, float, float]] = field(default_factory=list)

    @property
    def gap(self) -> float:
        """(bound - master) / master."""
        return (self.point.bound - self.master) / max(abs(self.master), 1e-9)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Point:
    """The best point of the present programme, and the best that was ever proven (with other cuts, maybe)."""

    prices: FloatArray
    bound: float
    proven: PricePoint


class PackingLP:
    """Column generation over one instance's packing LP; keeps its pool between calls of `run`."""

    def __init__(self, tables: JobTables, rows: CapacityRows, clock: PhaseClock) -> None:
        self.tables, self.rows, self.clock = tables, rows, clock
        self.pool = ColumnPool(tables, rows)
        self.cuts = CutTable(tables.instance)
        self._best: _Point | None = None
        self._limit = rows.capacity
        self._average_use = np.zeros(rows.num_rows)
        self._scale = np.divide(1.0, rows.capacity, out=np.zeros_like(rows.capacity), where=rows.capacity > 0)
        self._is_active = np.zeros(rows.num_rows, dtype=bool)
        self._stop: StoppingCriterion = Never()

    def add_cuts(self, cuts: Sequence[ServerCut]) -> None:
        """Append cuts of single servers to the programme; the best point stays valid, its multipliers 0."""
        first = len(self.cuts)
        self.cuts.add(cuts)
        right_hand_side = self.cuts.right_hand_side[first:]
        use = np.zeros((len(cuts), len(self.pool)))
        for begin in range(0, len(self.pool), BATCH):
            columns = np.arange(begin, min(begin + BATCH, len(self.pool)))
            use[:, columns] = self.cuts.use(self.pool.as_priced(columns), first)
        self.pool.add_rows(use, right_hand_side)
        self._limit = np.concatenate([self._limit, right_hand_side])
        self._scale = np.concatenate([self._scale, 1.0 / right_hand_side])
        self._average_use = np.concatenate([self._average_use, right_hand_side])
        self._is_active = np.concatenate([self._is_active, np.ones(len(cuts), dtype=bool)])
        if self._best is not None:
            prices = np.concatenate([self._best.prices, np.zeros(len(cuts))])
            self._best = replace(self._best, prices=prices)

    def drop_idle_cuts(self) -> None:
        """Forget cuts that the best point doesn't price."""
        if self._best is None or len(self.cuts) == 0:
            return
        num_rows = self.rows.num_rows
        worth = self._best.prices[num_rows:] * self.cuts.right_hand_side
        priced = np.flatnonzero(worth > IDLE_CUT_TOL * max(self._best.bound, 1e-9))
        kept = np.concatenate([np.arange(num_rows), num_rows + priced])
        # Prices of dropped cuts are set to zero, so the kept point is a new one and is priced again.
        self.cuts.keep(priced)
        self.pool.keep_rows(kept)
        self._limit, self._scale = self._limit[kept], self._scale[kept]
        self._average_use, self._is_active = self._average_use[kept], self._is_active[kept]
        prices, proven = self._best.prices[kept], self._best.proven
        self._best = None
        self._walk(prices, Walk(num_steps=1), None)
        self._best = replace(self._known(), proven=min((self._known().proven, proven), key=lambda point: point.bound))

    def run(
        self,
        *,
        tol: float,
        first: Walk,
        between: Walk,
        stop: StoppingCriterion,
        progress: Progress | None = None,
        start: FloatArray | None = None,
    ) -> PackingResult:
        """Generate columns until (bound - master) / master is at most `tol`, or until told to stop.

        Parameters
        ----------
        tol
            Relative gap between the Lagrangian bound and the restricted master.
        first, between
            The walk before the first master and the one after each.
        start
            Row prices to start from, zero by default.
        """
        self._stop = stop
        news = progress or SilentProgress()
        news.start("column generation", None)
        # Threads that spin for dense factorisations of this size cost more than they bring where cores are shared,
        # and one thread gives the same sums on every machine.
        with threadpool_limits(limits=1):
            return self._run(tol, first, between, stop, news, start)

    def _run(
        self,
        tol: float,
        first: Walk,
        between: Walk,
        stop: StoppingCriterion,
        news: Progress,
        start: FloatArray | None,
    ) -> PackingResult:
        history: list[tuple[float, float, float]] = []
        with self.clock.phase("pricing"):
            if start is not None or self._best is None:
                self._walk(np.zeros(len(self._limit)) if start is None else start, first, None)
        best = self._known()
        self._is_active |= (best.prices > 0) | (self._average_use > 0.97 * self._limit)
        self._is_active &= self._limit > 0
        gap, rounds, newton_steps = 1.0, 0, 0
        master = 0.0
        weight: dict[bytes, float] = {}
        while True:
            reason = stop(
                SolveState(elapsed_s=self.clock.elapsed_s, iterations=rounds, objective=master, bound=best.bound)
            )
            if reason is not None or len(self.pool) == 0:
                break
            with self.clock.phase("master"):
                solved, row_prices, steps = self._solve_master(max(0.1 * tol, min(1e-2, TOL_SHARE * gap)))
            newton_steps += steps
            # Columns move when others arrive: the primal point is kept by column key.
            master, weight = solved.value, dict(zip(self.pool.keys(), solved.x.tolist(), strict=True))
            with self.clock.phase("pricing"):
                before = len(self.pool)
                limit = DROP_FACTOR * max(best.bound - master, tol * abs(master))
                kept = np.flatnonzero(solved.reduced_loss <= limit)
                self.pool.keep(kept)
                added = self._walk(row_prices, Walk(num_steps=1), None)
                best = self._known()
                if (best.bound - master) > tol * abs(master):
                    added += self._walk(best.prices, between, 0.5 * (master + best.bound))
                    added += self._walk(0.3 * best.prices + 0.7 * row_prices, Walk(num_steps=1), None)
                    best = self._known()
            rounds += 1
            gap = (best.bound - master) / max(abs(master), 1e-9)
            history.append((self.clock.elapsed_s, master, best.bound))
            news.update(rounds, {"master": master, "bound": best.bound, "gap": gap, "columns": float(before)})
            if gap <= tol or (added == 0 and not solved.is_converged):
                break
        news.finish()
        known = self.pool.keys()
        return PackingResult(
            point=best.proven,
            master=master,
            x=np.array([weight.get(key, 0.0) for key in known]),
            pool=self.pool,
            termination=Termination.COMPLETED if reason is None else reason,
            rounds=rounds,
            newton_steps=newton_steps,
            history=history,
        )

    def _known(self) -> "_Point":
        assert self._best is not None, "a walk prices at least its start"
        return self._best

    def _solve_master(self, tol: float):  # type: ignore[no-untyped-def]
        """Solve the restricted master, activating rows that its point violates; return it with flat prices."""
        from optim.solvers.admission.interior_point import solve_packing

        pool = self.pool
        by_row = pool.share.tocsr()
        steps = 0
        while True:
            active = np.flatnonzero(self._is_active)
            solved = solve_packing(csc_array(by_row[active]), pool.job, pool.value, self.tables.num_jobs, tol=tol)
            steps += solved.iterations
            violated = np.flatnonzero((by_row @ solved.x > 1.0 + max(ROW_TOL, tol)) & ~self._is_active)
            if len(violated) == 0:
                break
            self._is_active[violated] = True
        prices = np.zeros(len(self._limit))
        prices[active] = solved.row_price * self._scale[active]
        return solved, prices, steps

    def _walk(self, start: FloatArray, walk: Walk, target: float | None) -> int:
        """Take Polyak steps, keep the best point and the columns; return how many columns were new.

        Steps are measured in prices of whole rows (p times capacity), so that units don't matter.
        """
        point, damping, stalled, added = start, 1.0, 0, 0
        num_rows = self.rows.num_rows
        for step in range(walk.num_steps):
            prices = self.rows.prices(point[:num_rows])
            if len(self.cuts):
                worker_extra, ps_extra = self.cuts.extra(point[num_rows:])
                prices = replace(prices, worker_extra=worker_extra, ps_extra=ps_extra)
            priced = price(self.tables, prices)
            usage = usage_matrix(self.tables, self.rows, priced)
            if len(self.cuts):
                usage = csc_array(vstack([usage, csc_array(self.cuts.use(priced))], format="csc"))
            bound = float(priced.payoff.sum() + point @ self._limit)
            use = np.asarray(usage.sum(axis=1)).ravel()
            self._average_use = 0.9 * self._average_use + 0.1 * use
            previous = np.inf if self._best is None else self._best.bound
            stalled = 0 if bound < previous * (1 - 1e-6) else stalled + 1
            if bound < previous:
                self._best = self._point(point, priced.payoff, bound)
            if stalled >= STALL_LIMIT:
                damping, stalled = damping / 2, 0
            if step % walk.add_every == 0:
                added += self.pool.add(priced, usage)
            if step == walk.num_steps - 1 or self._stop(SolveState(elapsed_s=self.clock.elapsed_s)) is not None:
                break
            goal = FIRST_TARGET * self._known().bound if target is None else target
            gradient = (self._limit - use) * self._scale
            free = (point > 0) | (gradient < 0)
            norm = float(np.sum(gradient[free] ** 2))
            if norm == 0 or bound <= goal:
                break
            point = np.maximum(0.0, point - damping * (bound - goal) / norm * gradient * self._scale)
        return added

    def _point(self, prices: FloatArray, payoff: FloatArray, bound: float) -> "_Point":
        multipliers = prices[self.rows.num_rows :].tolist()
        cuts = tuple(replace(cut, multiplier=m) for cut, m in zip(self.cuts.cuts, multipliers, strict=True) if m > 0)
        proven = PricePoint(row_prices=prices[: self.rows.num_rows], payoff=payoff, bound=bound, cuts=cuts)
        if self._best is not None and self._best.proven.bound < bound:
            proven = self._best.proven
        return _Point(prices=prices, bound=bound, proven=proven)
