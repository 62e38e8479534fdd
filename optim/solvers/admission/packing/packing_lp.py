"""The packing LP over server classes by column generation with central prices, tightened by cuts.

Rows enter Newton's systems only when the primal point violates them. On contended instances half of the rows are never
violated, and Newton's matrix over the rows is dense. Before a violated row enters, the columns that use it are scaled down
to fit. First-order steps see all rows. Their points are scaled in the same way, since they satisfy rows only in the limit.

A round solves the restricted master to a tolerance that follows the gap (`lp.interior_point`), starting from its last
point. The round then searches for the minimal bound between the best known prices and the master's, and takes a few Polyak
steps from there (`subgradient`). The columns of every priced point are added: pricing is far cheaper than the master, so it
is done often. Every priced point gives a Lagrangian bound. The best one is stored, so any stop leaves a proof.

The reported master value is always attained by a feasible point. If rows are many, the master takes first-order steps,
which cost less than pricing: then fewer points are priced, and more masters solved.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array

from optim.core.arrays import FloatArray, IntArray
from optim.core.driver import AbstractIteration, Monitor, Outcome, SolverState, run_iteration
from optim.core.solution import Relaxation, Termination
from optim.models.admission.decision import AdmissionPlan, Cut
from optim.solvers.admission.cuts.cut_table import CutTable
from optim.solvers.admission.cuts.separation import CountSeparator, CutSeparator
from optim.solvers.admission.packing.capacity_rows import CapacityRows
from optim.solvers.admission.packing.column_pool import ColumnPool
from optim.solvers.admission.packing.dual_points import OPTIMALITY_TOL, DualPoint, bounded, named_relaxation
from optim.solvers.admission.packing.subgradient import PriceSearch, SubgradientOptions
from optim.solvers.admission.pricing.classes import JobTables, PricedSchedules
from optim.solvers.lp.interior_point import MAX_DENSE, WarmStart, solve_packing
from optim.solvers.lp.pdhg import solve_pdhg

ROW_TOL = 1e-9
"""Relative violation by the master's primal point at which an omitted row enters."""

LOOSE_TOL = 1e-4
"""Large masters use first-order steps down to this tolerance; Newton's method reaches tighter tolerances sooner."""

MAX_STEPS = 400
"""First-order steps of the first master; doubled after each master that doesn't reach its tolerance."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Master:
    """A solved master: value of a feasible point, prices per unit, numbers of steps, and whether solving again has no effect."""

    value: float
    prices: FloatArray
    newton_steps: int = 0
    saddle_steps: int = 0
    is_settled: bool = False


class RestrictedMaster:
    """The master over the columns of a pool; it starts each solve from the last point.

    Parameters
    ----------
    pool
        The columns; the master sets their weights.
    search
        Right-hand sides, and the best prices so far.
    most_steps
        Maximal number of first-order steps of the first master with a tolerance of at least `LOOSE_TOL`. None: Newton's
        method solves such masters, unless rows are many.
    """

    def __init__(self, pool: ColumnPool, search: PriceSearch, most_steps: int | None = None) -> None:
        self._pool, self._search = pool, search
        self._is_active = np.zeros(len(search.limit), dtype=np.bool_)
        self._row_price = np.zeros(len(search.limit))
        self._job_price: FloatArray | None = None
        self._prefers_first_order = most_steps is not None
        self._max_steps, self._overflows = most_steps or MAX_STEPS, False
        self.loss: FloatArray = np.zeros(0)
        """Dual slack of each column at the last solve's prices, shape (columns,)."""

    @property
    def uses_first_order(self) -> bool:
        """Whether masters with a tolerance of at least `LOOSE_TOL` take first-order steps."""
        return self._prefers_first_order or is_large(self._search.limit)

    def add_rows(self, count: int) -> None:
        """Append rows of cuts as active rows."""
        self._is_active = np.concatenate([self._is_active, np.ones(count, dtype=np.bool_)])
        self._row_price = np.concatenate([self._row_price, np.zeros(count)])

    def keep_rows(self, row_index: IntArray) -> None:
        """Remove all rows except the given ones."""
        self._is_active, self._row_price = self._is_active[row_index], self._row_price[row_index]

    def activate(self, which: NDArray[np.bool_]) -> None:
        """Add the marked rows to Newton's systems, except rows without capacity."""
        self._is_active |= which
        self._is_active &= self._search.limit > 0

    def solve(self, tol: float) -> Master:
        """Solve the master to a relative tolerance."""
        if self.uses_first_order and tol >= LOOSE_TOL:
            return self._step(tol)
        return self._solve_exactly(tol)

    def _step(self, tol: float) -> Master:
        """Take first-order steps over all rows from the last point."""
        pool, search = self._pool, self._search
        price = self._row_price if self._row_price.any() else search.best.prices * search.limit
        solved = solve_pdhg(
            pool.share, pool.job, pool.value, pool.tables.num_jobs, tol=tol, most_steps=self._max_steps,
            x=pool.weight, row_price=price,
        )  # fmt: skip
        if not solved.is_converged:
            self._max_steps *= 2
        self.activate(solved.row_price > 0)
        self._row_price, self._job_price = solved.last_price, solved.job_price
        self.loss = solved.dual_slack
        self._overflows = True
        pool.set_weight(solved.last_x)
        return Master(value=solved.value, prices=solved.row_price * search.scale, saddle_steps=solved.steps)

    def _solve_exactly(self, tol: float) -> Master:
        """Solve the master over the active rows by Newton's method, and activate the rows that its point violates."""
        pool, search = self._pool, self._search
        active = self._active_rows()
        by_row = pool.share.tocsr()
        start = None
        if self._job_price is not None:
            weight = scale_to_feasible(pool.share, pool.weight) if self._overflows else pool.weight
            start = WarmStart(
                x=weight,
                row_price=(search.best.prices * search.limit)[active],
                job_price=search.best.payoff,
                complementarity=tol * float(pool.value @ np.nan_to_num(weight)),
            )
        solved = solve_packing(
            csc_array(by_row[active]), pool.job, pool.value, pool.tables.num_jobs, tol=tol, start=start
        )
        use = by_row @ solved.x
        violated = np.flatnonzero((use > 1.0 + ROW_TOL) & ~self._is_active)
        x = solved.x * shares_that_fit(pool.share, use)
        self._is_active[violated] = True
        self._row_price[:] = 0.0
        self._row_price[active] = solved.row_price
        self._job_price, self.loss = solved.job_price, solved.dual_slack
        self._overflows = False
        pool.set_weight(x)
        return Master(
            value=float(pool.value @ x),
            prices=self._row_price * search.scale,
            newton_steps=solved.iterations,
            is_settled=len(violated) == 0 and (not solved.is_converged or solved.iterations == 0),
        )

    def _active_rows(self) -> IntArray:
        """Return the rows of the master, slot by slot if they are many, so that Newton's matrix has a skyline."""
        active = np.flatnonzero(self._is_active)
        if len(active) <= MAX_DENSE:
            return active
        rows = self._pool.rows
        num_cuts = len(self._search.limit) - rows.num_rows
        slot = np.append(rows.slot_of_row, np.full(num_cuts, self._pool.tables.instance.horizon))
        return active[np.argsort(slot[active], kind="stable")]


def is_large(capacity: FloatArray) -> bool:
    """Return whether too many rows have capacity for a dense factor; masters then take first-order steps."""
    return int(np.count_nonzero(capacity)) > MAX_DENSE


def scale_to_feasible(share: csc_array, x: FloatArray) -> FloatArray:
    """Return a point scaled down to satisfy every row, shape (columns,); NaN entries are unknown and stay NaN."""
    fits: FloatArray = x * shares_that_fit(share, share @ np.nan_to_num(x))
    return fits


def shares_that_fit(share: csc_array, use: FloatArray) -> FloatArray:
    """Return the factor of each column that makes every row's use at most its capacity, shape (columns,).

    A column is divided by the largest ratio of use to capacity among its rows, if this is above 1.
    """
    excess = np.maximum(use, 1.0)[share.indices]
    most = np.ones(share.shape[1])
    filled = np.flatnonzero(np.diff(share.indptr))
    most[filled] = np.maximum.reduceat(excess, share.indptr[filled])
    return 1.0 / most


LOOSEST_TOL = 1e-2

TOL_SHARE, LARGE_TOL_SHARE = 0.3, 0.15
"""Master tolerance as a share of the present gap, at most `LOOSEST_TOL`; the second value is for first-order steps."""

CONGESTED = 0.97
"""The first master has the rows whose average use in the first subgradient steps exceeds this share of their capacity."""

LINE_POINTS, FEW_LINE_POINTS = 6, 2
"""Points that a round prices between the best prices and the master's; the second value is for first-order steps."""

IDLE_FACTOR, MAX_IDLE = 10.0, 8
"""A column is dropped after its dual slack exceeds IDLE_FACTOR times the absolute gap in MAX_IDLE consecutive rounds. If
columns are dropped sooner, prices oscillate between the same columns."""

TIGHT = 0.999
"""A row whose use is at least this share of its capacity counts as tight in the solve's statistics."""

MIN_WEIGHT = 1e-9
"""Columns of less weight are omitted from the returned fractional solution."""

BATCH = 500
"""Number of columns with dense counts in memory at once."""

IDLE_CUT_TOL = 1e-7
"""Cuts whose price times right-hand side is below this share of the bound are idle."""


@dataclass(kw_only=True, eq=False)
class PackingResult:
    """The state of column generation when it stops.

    Parameters
    ----------
    point
        The best dual point: row prices, payoffs, and their bound.
    master
        Value of the restricted master's best primal point, which is feasible but fractional.
    x
        The master's last primal point, one entry per column of the pool; it satisfies all rows.
    pool
        The columns.
    termination
        Why column generation stopped; `completed` at the gap tolerance, `numerical_error` if that can't be reached.
    rounds, newton_steps, saddle_steps
        Total numbers of solved masters, factorised Newton systems and first-order steps.
    history
        (seconds, master value, bound) after each round.
    """

    point: DualPoint
    master: float
    x: FloatArray
    pool: ColumnPool
    termination: Termination
    rounds: int
    newton_steps: int
    saddle_steps: int = 0
    history: list[tuple[float, float, float]] = field(default_factory=list)

    @property
    def gap(self) -> float:
        """(bound - master) / master."""
        return _gap(self.point.bound, self.master)

    def outcome(self, plan: AdmissionPlan | None = None) -> Outcome:
        """Return the bound, with a plan if given; the plan is optimal if it attains the bound."""
        counts = {"master": self.master, "columns": float(len(self.pool))}
        if self.master > 0:  # without a fractional solution there is no gap yet
            counts["lp_gap"] = self.gap
        outcome = replace(bounded(self.pool.rows, self.point), iterations=self.rounds, counts=counts)
        if plan is None:
            return outcome
        return replace(
            outcome,
            decision=plan,
            objective=plan.objective(self.pool.tables.instance),
            tol=OPTIMALITY_TOL,
            counts={**counts, "admitted": float(len(plan.admitted))},
        )

    def relaxation(self) -> Relaxation:
        """Return the fractional solution and the prices, with names of jobs, servers and resources."""
        used = np.flatnonzero(self.x > MIN_WEIGHT)
        use = (self.pool.share @ self.x)[: self.pool.rows.num_rows] * self.pool.rows.capacity
        return named_relaxation(
            self.pool.tables.instance,
            self.pool.rows,
            [self.pool.schedule(column) for column in used.tolist()],
            objective=float(self.pool.value @ self.x),
            columns=(self.pool.value[used], self.x[used]),
            capacity_rows=(use, self.point.row_prices),
            payoff=self.point.payoff,
        )

    def weight(self) -> FloatArray:
        """Return each job's weight in the fractional point, shape (jobs,)."""
        weight: FloatArray = np.bincount(self.pool.job, self.x, self.pool.tables.num_jobs).astype(
            np.float64, copy=False
        )
        return weight

    def steps(self) -> dict[str, float]:
        """Return the masters' numbers of Newton and first-order steps."""
        return {"newton_steps": self.newton_steps, "saddle_steps": self.saddle_steps}

    def load(self) -> dict[str, float]:
        """Return load statistics of the fractional point.

        `tight_rows` is the share of tight rows (see `TIGHT`) among the rows with capacity, `rejected_jobs` the share of the
        jobs' weight that is not admitted.
        """
        tables, rows = self.pool.tables, self.pool.rows
        live = rows.capacity > 0
        use = (self.pool.share @ self.x)[: rows.num_rows]
        return {
            "tight_rows": float(np.mean(use[live] >= TIGHT)) if live.any() else 0.0,
            "rejected_jobs": 1.0 - float(self.x.sum()) / tables.num_jobs if tables.num_jobs else 0.0,
        }


class PackingLP:
    """Column generation over one instance's packing LP; the pool persists between calls of `run`.

    Parameters
    ----------
    tables, rows
        The instance's pricing tables and capacity rows.
    pool
        Initial columns, of the same tables and rows; `run` adds new columns.
    most_steps
        Maximal number of first-order steps of the first master. None: Newton's method solves it, unless rows are many.
    """

    def __init__(
        self, tables: JobTables, rows: CapacityRows, pool: ColumnPool | None = None, most_steps: int | None = None
    ) -> None:
        self.tables, self.rows = tables, rows
        self.pool = ColumnPool(tables, rows) if pool is None else pool
        self.cuts = CutTable(tables.instance)
        self.search = PriceSearch(tables, rows, self.pool, self.cuts)
        self.master = RestrictedMaster(self.pool, self.search, most_steps)

    def add_schedules(self, schedules: PricedSchedules) -> None:
        """Add known columns, such as an online run's."""
        self.pool.add(schedules)

    def add_cuts(self, cuts: Sequence[Cut]) -> None:
        """Append cuts to the LP; the best point stays valid with multipliers 0."""
        first = len(self.cuts)
        self.cuts.add(cuts)
        right_hand_side = self.cuts.right_hand_side[first:]
        use = np.zeros((len(cuts), len(self.pool)))
        for begin in range(0, len(self.pool), BATCH):
            columns = np.arange(begin, min(begin + BATCH, len(self.pool)))
            use[:, columns] = self.cuts.use(self.pool.as_priced(columns), first)
        self.pool.add_rows(use, right_hand_side)
        self.search.add_rows(right_hand_side)
        self.master.add_rows(len(cuts))

    def drop_idle_cuts(self) -> None:
        """Remove cuts with a price of 0 at the best point."""
        if not self.search.is_started or len(self.cuts) == 0:
            return
        num_rows, best = self.rows.num_rows, self.search.best
        cut_value = best.prices[num_rows:] * self.cuts.right_hand_side
        priced = np.flatnonzero(cut_value > IDLE_CUT_TOL * max(best.bound, 1e-9))
        row_index = np.concatenate([np.arange(num_rows), num_rows + priced])
        self.cuts.keep(priced)
        self.pool.keep_rows(row_index)
        self.master.keep_rows(row_index)
        self.search.keep_rows(row_index)

    def run(
        self,
        monitor: Monitor,
        *,
        tol: float,
        first: SubgradientOptions,
        between: SubgradientOptions,
        start: FloatArray | None = None,
        line_points: int | None = None,
    ) -> PackingResult:
        """Generate columns until (bound - master) / master is at most `tol`, or until the monitor ends the run.

        Parameters
        ----------
        monitor
            Receives the state after each round; polled before each round and between price updates.
        tol
            Relative gap between the Lagrangian bound and the restricted master.
        first, between
            Options of the subgradient steps before the first master, and of those after each master.
        start
            Row prices to start from, zero by default.
        line_points
            Maximum number of points per round that are priced between the best prices and the master's; the default suits a
            tight tolerance.
        """
        # On shared cores, threads for dense factorisations of this size cost more than they gain. One thread also gives
        # the same sums on every machine.
        from threadpoolctl import threadpool_limits  # importing it sets an environment variable

        with threadpool_limits(limits=1):
            rounds = _Rounds(self, monitor, tol, first, between, start, line_points)
            return run_iteration(rounds, monitor, task="column generation")

    def start(self, prices: FloatArray | None, subgradient: SubgradientOptions) -> None:
        """Take subgradient steps from the given or the best prices; choose the rows of the first master."""
        search = self.search
        if prices is not None or not search.is_started:
            search.subgradient_steps(np.zeros(len(search.limit)) if prices is None else prices, subgradient, None)
        self.master.activate((search.best.prices > 0) | (search.average_use > CONGESTED * search.limit))

    def drop_idle(self, gap: float, least: float) -> None:
        """Drop the columns that were idle in `MAX_IDLE` consecutive rounds; `least` is a lower limit for `gap`."""
        pool = self.pool
        pool.count_idle(self.master.loss > IDLE_FACTOR * max(gap, least))
        pool.keep(np.flatnonzero(pool.idle < MAX_IDLE))


class _Rounds(AbstractIteration[PackingResult]):
    """One run of column generation: a master, then prices and columns, until bound and master agree."""

    def __init__(
        self,
        programme: PackingLP,
        monitor: Monitor,
        tol: float,
        first: SubgradientOptions,
        between: SubgradientOptions,
        start: FloatArray | None,
        line_points: int | None,
    ) -> None:
        self._programme, self._search, self._clock = programme, programme.search, monitor.clock
        self._search.monitor = monitor.part()
        self._tol, self._first, self._between, self._start = tol, first, between, start
        self._value, self._rounds, self._newton_steps, self._saddle_steps = 0.0, 0, 0, 0
        usual = FEW_LINE_POINTS if programme.master.uses_first_order else LINE_POINTS
        self._line_points = usual if line_points is None else line_points
        self._history: list[tuple[float, float, float]] = []
        self._end: Termination | None = None

    @property
    def _gap(self) -> float:
        return _gap(self._search.best.bound, self._value)

    @property
    def _is_open(self) -> bool:
        return self._search.best.bound - self._value > self._tol * abs(self._value)

    def init(self) -> None:
        """Find prices and columns for the first master."""
        with self._clock.phase("pricing"):
            self._programme.start(self._start, self._first)

    def is_done(self) -> bool:
        """Return whether the gap is within the tolerance or can't decrease, or there are no columns."""
        return self._end is not None or len(self._programme.pool) == 0

    def step(self) -> None:
        """Solve the master, and price points between its prices and the best ones."""
        programme, search, tol = self._programme, self._search, self._tol
        with self._clock.phase("master"):
            share = LARGE_TOL_SHARE if programme.master.uses_first_order else TOL_SHARE
            master = programme.master.solve(max(share * tol, min(LOOSEST_TOL, share * self._gap)))
        self._value = max(self._value, master.value)
        self._newton_steps, self._saddle_steps = (
            self._newton_steps + master.newton_steps,
            self._saddle_steps + master.saddle_steps,
        )
        with self._clock.phase("pricing"):
            programme.drop_idle(search.best.bound - self._value, tol * abs(self._value))
            num_new = search.in_out_line_search(master.prices, self._line_points)
            if self._is_open:
                num_new += search.subgradient_steps(
                    search.best.prices, self._between, 0.5 * (self._value + search.best.bound)
                )
        self._rounds += 1
        self._history.append((self._clock.elapsed_s, self._value, search.best.bound))
        if self._gap <= tol:
            self._end = Termination.COMPLETED
        elif num_new == 0 and master.is_settled:
            self._end = Termination.NUMERICAL_ERROR

    def standing(self) -> SolverState:
        """Return the master's value as the objective (it is not a plan's value)."""
        return SolverState(
            iterations=self._rounds,
            objective=self._value,
            bound=self._search.best.bound,
            figures={"columns": float(len(self._programme.pool))},
        )

    def finish(self, reason: Termination | None) -> PackingResult:
        """Return the result at this point."""
        pool = self._programme.pool
        return PackingResult(
            point=self._search.proven,
            master=self._value,
            x=scale_to_feasible(pool.share, np.nan_to_num(pool.weight)),
            pool=pool,
            termination=self._end or reason or Termination.COMPLETED,
            rounds=self._rounds,
            newton_steps=self._newton_steps,
            saddle_steps=self._saddle_steps,
            history=self._history,
        )


def _gap(bound: float, master: float) -> float:
    return (bound - master) / max(abs(master), 1e-9)


CUT_TOL = 1e-3
"""Relative gap to which the LP with new cuts is solved; a smaller gap isn't worth the time before the next round of cuts."""

MIN_GAIN = 2e-4
"""Relative decrease of the bound below which a round of cuts is the last."""

BETWEEN = SubgradientOptions(num_steps=10)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CutLoopResult:
    """Solutions of the packing LP without cuts and with cuts.

    Parameters
    ----------
    plain, plain_weight
        Best point of the LP without cuts, and each job's weight in it, shape (jobs,).
    guide, guide_weight
        Best point of the LP with server cuts only, and each job's weight in it, shape (jobs,). They guide insertions,
        which need a cost per unit; the charges of count cuts are not per unit.
    result
        The last result; its point has the best proven bound, whichever cuts were active then.
    """

    plain: DualPoint
    plain_weight: FloatArray
    guide: DualPoint
    guide_weight: FloatArray
    result: PackingResult


def solve_with_cuts(
    tables: JobTables, rows: CapacityRows, monitor: Monitor, *, tol: float, cut_rounds: int, count_rounds: int = 0
) -> CutLoopResult:
    """Solve the packing LP, then add violated cuts and solve again, a few times.

    Parameters
    ----------
    tol
        Relative gap of the LP without cuts.
    cut_rounds, count_rounds
        Maximum numbers of rounds of server cuts, and of count cuts after them.
    """
    programme = PackingLP(tables, rows)
    result = programme.run(
        monitor.part(), tol=tol, first=SubgradientOptions(num_steps=150, add_every=4), between=BETWEEN
    )
    # A result's pool changes with the next round, so read its weights now.
    plain, plain_weight = result.point, result.weight()
    rounds = _CutRounds(programme, monitor, max(tol, CUT_TOL))
    if cut_rounds:
        separator = CutSeparator(tables.instance)
        result = rounds.run(result, cut_rounds, lambda known: separator.separate(*known.pool.loads(known.x)))
    guide, guide_weight = result.point, result.weight()
    if count_rounds:
        by_count = CountSeparator(tables.instance)
        result = rounds.run(result, count_rounds, lambda known: by_count.separate(*known.pool.counts(known.x)))
    return CutLoopResult(plain=plain, plain_weight=plain_weight, guide=guide, guide_weight=guide_weight, result=result)


@dataclass(frozen=True, slots=True, eq=False)
class _CutRounds:
    """Rounds of cuts on one LP."""

    programme: PackingLP
    monitor: Monitor
    tol: float

    def run(
        self, result: PackingResult, max_rounds: int, separate: Callable[[PackingResult], Sequence[Cut]]
    ) -> PackingResult:
        """Add violated cuts and solve again until none is found or the gain is small; return the last result."""
        monitor = self.monitor
        for _ in range(max_rounds):
            if result.rounds == 0 or monitor.is_over(SolverState(bound=result.point.bound)):
                break
            before = result.point.bound
            with monitor.clock.phase("cuts"):
                cuts = separate(result)
                self.programme.drop_idle_cuts()
                self.programme.add_cuts(cuts)
            if not cuts:
                break
            result = self.programme.run(monitor.part(), tol=self.tol, first=BETWEEN, between=BETWEEN)
            if before - result.point.bound < MIN_GAIN * before:
                break
        return result
