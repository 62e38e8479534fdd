"""Calibration of start forecasts: errors of past forecasts determine how far ranges are stretched."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from optim.core.arrays import BoolArray, FloatArray, IntArray
from optim.core.errors import InvalidProblemError
from optim.core.progress import Progress
from optim.core.stopping import Interruption, StoppingCriterion
from optim.execution import AbstractTask, run_in_order
from optim.execution import Engine as Executor
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.log import Run
from optim.models.cluster.present import Present, present_at
from optim.models.cluster.workload import US, Workload
from optim.simulation.cluster.engine import Policy, simulate
from optim.simulation.cluster.forecast import (
    LEVELS,
    WEEK_US,
    Forecast,
    ForecastOptions,
    History,
    estimated,
    forecast,
    kills_at_limits,
    stretched_s,
    with_run_times,
)
from optim.simulation.cluster.options import EngineOptions
from optim.simulation.cluster.run_times import JobTraits

COVERED = LEVELS[-1] - LEVELS[0]
"""Target share of starts inside the interval between the outer quantiles."""

MIN_MOMENTS = 4
"""Minimum number of past moments: with fewer, intervals would have to contain more than all starts."""

ENOUGH_PENDING = 20
"""Number of pending jobs that suffices at a past moment, even if more wait now."""

MAX_JOBS = 100
"""Maximum number of pending jobs used per past moment, evenly spaced in their order; more jobs add little, because the
errors of one moment are highly correlated."""

LOOKED_AT_US = 1800 * US
"""Interval between the candidate times for past moments, in microseconds."""

LEARNT_FROM = 0.25
"""Share of the history that lies before the first past moment, so that the forecast at that moment has run times to
learn from."""

SPREADS = np.linspace(0.0, 2.0, 41)
"""Candidates for the spread (see `Calibration`)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PastMoment:
    """Information available at a past moment, and the actual starts of the jobs that waited or ran then.

    Parameters
    ----------
    jobs, present, history
        Inputs of a forecast.
    start_us
        Start of each job; shape (jobs,).
    rows
        Row of each of `jobs` in the simulated workload; shape (jobs,).
    """

    jobs: Workload
    present: Present
    history: History
    start_us: IntArray
    rows: IntArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Played:
    """Past jobs, simulated under a policy that stops none of them."""

    jobs: Workload
    run: Run

    def busy_times_us(self, begin_us: int, end_us: int, least_pending: int) -> IntArray:
        """Return times, `LOOKED_AT_US` apart, with at least `least_pending` waiting jobs; shape (times,)."""
        times = np.arange(begin_us, end_us, LOOKED_AT_US)
        begun = np.searchsorted(np.sort(self.run.first_start_us), times, side="right")
        return times[np.searchsorted(self.jobs.submit_us, times, side="right") - begun >= least_pending]

    def moment(self, now_us: int) -> PastMoment:
        """Return the information available at a time.

        Raises
        ------
        InvalidProblemError
            If a job was stopped before, so that the state is unknown.
        """
        rest, present = present_at(self.jobs, self.run.log, now_us)
        here = np.flatnonzero(rest.submit_us <= now_us)
        rows = np.flatnonzero(self.run.end_us > now_us)[here]
        past = np.flatnonzero(self.jobs.submit_us <= now_us)
        has_ended = self.run.end_us[past] <= now_us
        so_far = np.maximum(0, now_us - self.run.first_start_us[past])
        ran = np.where(has_ended, self.jobs.duration_us[past], so_far)
        return PastMoment(
            jobs=rest.select(here),
            present=present,
            history=History(jobs=self.jobs.select(past), run_us=ran, has_ended=has_ended, now_us=now_us),
            start_us=self.run.first_start_us[rows],
            rows=rows,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outcome:
    """A past forecast and the actual starts.

    Parameters
    ----------
    now_us
        Time of the forecast.
    num_known
        Number of jobs that had ended by then.
    start_us, drawn_us
        Actual start of each pending job, shape (jobs,), and its start in each draw, shape (draws, jobs).
    """

    now_us: int
    num_known: int
    start_us: IntArray
    drawn_us: IntArray

    @classmethod
    def of(cls, moment: PastMoment, made: Forecast) -> "Outcome":
        """Return the outcome of at most `MAX_JOBS` jobs."""
        count = len(made.rows)
        kept = np.arange(count) if count <= MAX_JOBS else np.linspace(0, count - 1, MAX_JOBS).astype(np.int64)
        return cls(
            now_us=moment.present.now_us,
            num_known=int(moment.history.has_ended.sum()),
            start_us=moment.start_us[made.rows[kept]],
            drawn_us=made.start_us[:, kept],
        )

    def share_held(self, spread: float, known_us: int) -> float:
        """Return the share of starts inside the stretched intervals, given the starts up to `known_us`.

        A job that still waits at `known_us` counts as if it started at that time.
        """
        low, high = stretched_s((self.drawn_us - self.now_us) / US, spread, (LEVELS[0], LEVELS[-1]))
        wait = (np.minimum(self.start_us, known_us) - self.now_us) / US
        return float(((wait >= low - 1e-6) & (wait <= high + 1e-6)).mean())


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Result of calibration on past moments.

    Parameters
    ----------
    spread
        Standard deviation of the logarithm of the factor by which waits are stretched; see
        `optim.simulation.cluster.forecast.stretched_s`.
    moments
        Number of past moments used; 0 if ranges are as drawn.
    held
        Share of the starts at past moments that lie inside the intervals as drawn; NaN without moments.
    reason
        Reason why there are no moments.
    """

    spread: float = 0.0
    moments: int = 0
    held: float = float("nan")
    reason: str = ""


def learn_spread(outcomes: Sequence[Outcome], now_us: int, num_known: int) -> Calibration:
    """Return the smallest spread with which intervals have the target coverage on past moments.

    The target is `COVERED` times (n + 1) / n, on average over n past moments.

    Parameters
    ----------
    outcomes
        Outcomes at moments before now.
    num_known
        Number of jobs that have ended by now. Estimates from n jobs have errors proportional to 1 / sqrt(n), so a
        spread now corresponds to a larger spread at a moment when fewer jobs had ended.

    Notes
    -----
    As in split conformal prediction, intervals are widened until they have the target coverage on a calibration set;
    the factor (n + 1) / n comes from that method. The units are moments, because jobs that wait at the same time share
    their error. The calibration set is from the past, so coverage holds as far as the future resembles the past.

    References
    ----------
    Romano, Patterson, Candes, "Conformalized Quantile Regression", NeurIPS 2019, arXiv:1905.03222, eq. (8).
    Kuleshov, Fenner, Ermon, "Accurate Uncertainties for Deep Learning Using Calibrated Regression", ICML 2018,
    arXiv:1807.00263.
    """
    if len(outcomes) < MIN_MOMENTS:
        reason = f"the history has {len(outcomes)} moments comparable to now, but {MIN_MOMENTS} are needed"
        return Calibration(reason=reason)

    def held(spread: float) -> float:
        shares = [
            each.share_held(spread * float(np.sqrt(num_known / max(each.num_known, 1))), now_us) for each in outcomes
        ]
        return float(np.mean(shares))

    wanted = COVERED * (1 + 1 / len(outcomes)) - 1e-9
    low, high = 0, len(SPREADS) - 1
    while low < high:
        middle = (low + high) // 2
        if held(float(SPREADS[middle])) >= wanted:
            high = middle
        else:
            low = middle + 1
    return Calibration(spread=float(SPREADS[low]), moments=len(outcomes), held=held(0.0))


def calibrate(
    jobs: Workload,
    present: Present,
    cluster: Cluster,
    make: Callable[[Workload], Policy],
    history: History,
    *,
    options: ForecastOptions,
    engine: EngineOptions | None = None,
    limit_s: FloatArray | None = None,
    seed: int = 0,
    executor: Executor | None = None,
    stop: Interruption | None = None,
    progress: Progress | None = None,
) -> Calibration:
    """Simulate the history under the policy, forecast at some past moments, and learn the stretch of ranges.

    Parameters
    ----------
    jobs, present, cluster, make, history, options, engine, limit_s, seed, executor
        As in `optim.simulation.cluster.forecast.forecast`. If jobs have limits now, estimates of past jobs count as
        limits.
    stop
        Once a stop is requested, there is no calibration.

    Returns
    -------
    Calibration
        The learned spread. If calibration is not possible, the result has no moments, and states the reason.
    """
    stop = stop or Interruption()
    if not options.calibration_moments:
        return Calibration(reason="forecast.calibration_moments=0")
    over = np.flatnonzero(history.has_ended)
    past = replace(history.jobs, duration_us=np.maximum(1, history.run_us)).select(over)
    stated_s = past.estimate_us / US
    is_spared = (past.estimate_us == 0) & kills_at_limits(make(past))
    past = estimated(past, history.run_times(jobs, present), JobTraits.of(past), np.zeros(len(past), np.int64))
    past = with_run_times(past, past.duration_us, is_spared)
    has_limits = limit_s is not None and bool(np.isfinite(limit_s).any())
    run = simulate(past, cluster, make(past), engine, seed)
    assert run is not None
    played = Played(jobs=past, run=run)
    first, now = int(past.submit_us[0]), history.now_us
    begin = max(now - options.history_weeks * WEEK_US, round(first + LEARNT_FROM * (now - first)))
    times = played.busy_times_us(begin, now, min(ENOUGH_PENDING, int(present.is_pending(jobs).sum())))
    if not len(times):
        return learn_spread([], now, len(past))
    chosen = np.unique(times[np.linspace(0, len(times) - 1, options.calibration_moments).astype(np.int64)])
    try:
        played.moment(int(chosen[0]))
    except InvalidProblemError:
        return Calibration(reason="the policy stops jobs, so past states are unknown")
    task = _PastForecasts(
        played=played,
        cluster=cluster,
        make=make,
        options=replace(options, draws=min(options.draws, options.calibration_draws)),
        engine=engine,
        limit_s=np.where(stated_s > 0, stated_s, np.nan) if has_limits else None,
        is_spared=is_spared,
        seed=seed,
    )
    outcomes = list(run_in_order(task, chosen.tolist(), executor, stop, progress))
    if len(outcomes) < len(chosen):
        return Calibration(reason="it was interrupted")
    return learn_spread(outcomes, now, len(past))


@dataclass(frozen=True, kw_only=True, eq=False)
class _PastForecasts(AbstractTask[int, Outcome]):
    """Task that returns the outcome of a forecast at a past moment, given the moment's time."""

    played: Played
    cluster: Cluster
    make: Callable[[Workload], Policy]
    options: ForecastOptions
    engine: EngineOptions | None
    limit_s: FloatArray | None
    is_spared: BoolArray
    seed: int

    @property
    def title(self) -> str:
        """Label for progress display."""
        return "past moments"

    def do(self, piece: int, stop: StoppingCriterion, progress: Progress) -> Outcome:
        """Forecast from the jobs that had ended before the moment."""
        del stop
        moment = self.played.moment(piece)
        limit_s = None if self.limit_s is None else self.limit_s[moment.rows]
        jobs = replace(moment.jobs, estimate_us=np.where(self.is_spared[moment.rows], 0, moment.jobs.estimate_us))
        made = forecast(
            jobs, moment.present, self.cluster, self.make, moment.history, options=self.options,
            engine=self.engine, limit_s=limit_s, seed=self.seed, progress=progress,
        )  # fmt: skip
        return Outcome.of(moment, made)
