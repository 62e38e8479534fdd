"""Forecast of start times of pending jobs: simulate from the present state with sampled run times and submissions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import ndtri

from optim.core.arrays import BoolArray, FloatArray, IntArray
from optim.core.errors import InvalidProblemError, check_in
from optim.core.progress import Progress, SilentProgress
from optim.core.stopping import Interruption, StoppingCriterion
from optim.execution import AbstractTask, run_in_order
from optim.execution import Engine as Executor
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.columns import columns_of
from optim.models.cluster.present import Present
from optim.models.cluster.workload import LABELS, LATEST_US, US, Workload
from optim.simulation.cluster.engine import Policy, first_starts
from optim.simulation.cluster.index.policy import IndexPolicy
from optim.simulation.cluster.options import EngineOptions
from optim.simulation.cluster.run_times import ConditionalRunTimes, JobTraits, RunTimes

LEVELS = (0.1, 0.5, 0.9)
"""Levels of the reported quantiles of start times: the outer two quantiles enclose 80 % of the draws."""

ROUNDED_S = 60.0
"""Waits below this number of seconds are treated as equal."""

_MIDDLES = ndtri((np.arange(11) + 0.5) / 11)

FACTOR_SCORES = _MIDDLES / np.sqrt(np.mean(_MIDDLES**2))
"""Equally likely normal scores for the random factor of waits: midpoints of equally likely parts of a normal
distribution, scaled to variance 1."""

MAX_NUMBERS = 4_000_000
"""Maximum number of stretched waits in memory."""

DAY_US = 86_400 * US
WEEK_US = 7 * DAY_US


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastOptions:
    """Options of forecasts.

    Parameters
    ----------
    draws
        Number of simulated futures.
    arrival_days
        Number of days from now with new jobs; 0 for none. Each draw takes its new jobs from a random period of equal
        length in the history. The period begins an integer number of weeks before now if the history is long enough. A
        new job may start before a pending job.
    history_weeks
        Weeks of history from which new jobs and past moments are taken.
    calibration_moments
        Number of past moments whose forecast errors determine how far ranges are stretched; 0 for ranges as drawn.
    calibration_draws
        Number of simulated futures per past moment, at most `draws`.

    Raises
    ------
    InvalidOptionError
        If a value is out of range.
    """

    draws: int = 200
    arrival_days: float = 7.0
    history_weeks: int = 8
    calibration_moments: int = 12
    calibration_draws: int = 25

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_in("[1, 10000]", self, "draws")
        check_in("[0, 60]", self, "arrival_days")
        check_in("[1, 520]", self, "history_weeks")
        check_in("[0, 200]", self, "calibration_moments")
        check_in("[1, 10000]", self, "calibration_draws")


@dataclass(frozen=True, kw_only=True, eq=False)
class History:
    """Past jobs, on a clock that may differ from that of the present state.

    Parameters
    ----------
    jobs
        All submitted jobs; running and waiting jobs may be included or not.
    run_us
        Run time of each job so far or in total, 0 for jobs that never ran; shape (jobs,).
    has_ended
        Whether each job has ended; shape (jobs,).
    now_us
        Present time on the clock of `jobs`.
    """

    jobs: Workload
    run_us: IntArray
    has_ended: BoolArray
    now_us: int

    def run_times(self, jobs: Workload, present: Present) -> RunTimes:
        """Return run times by group, including running jobs of the present state that are not in the history."""
        begun = np.flatnonzero(self.run_us > 0)
        past, known = JobTraits.of(self.jobs).select(begun), set(self.jobs.ids)
        more = np.array([row for row in present.starts.job.tolist() if jobs.ids[row] not in known], np.int64)
        traits = past.joined(self.traits_of(jobs, present).select(np.sort(more)))
        held = present.held_us(len(jobs))[np.sort(more)]
        run_s = np.concatenate([self.run_us[begun], np.maximum(held, 1)]) / US
        has_ended = np.concatenate([self.has_ended[begun], np.zeros(len(more), np.bool_)])
        order = np.argsort(traits.submit_s, kind="stable")
        return RunTimes(traits.select(order), run_s[order], has_ended[order])

    def traits_of(self, jobs: Workload, present: Present) -> JobTraits:
        """Return the traits of a state's jobs on the history's clock."""
        return JobTraits.of(jobs, shift_s=(self.now_us - present.now_us) / US)


@dataclass(frozen=True, kw_only=True, eq=False)
class Forecast:
    """Sampled starts of the pending jobs.

    Parameters
    ----------
    rows
        Rows of the pending jobs; shape (pending,).
    start_us
        Start of each job in each draw, on the jobs' clock; shape (draws, pending).
    now_us
        Present time on that clock.
    spread
        Standard deviation of the logarithm of the factor by which waits are stretched, see `stretched_s`.
    """

    rows: IntArray
    start_us: IntArray
    now_us: int
    spread: float = 0.0

    def quantiles_us(self, levels: tuple[float, ...] = LEVELS) -> FloatArray:
        """Return quantiles of each job's start; shape (levels, pending)."""
        if not self.spread:
            return np.asarray(np.quantile(self.start_us, levels, axis=0), np.float64)
        return self.now_us + US * stretched_s((self.start_us - self.now_us) / US, self.spread, levels)


def stretched_s(wait_s: FloatArray, spread: float, levels: Sequence[float]) -> FloatArray:
    """Return quantiles of sampled waits after multiplication by a common random factor.

    The factor multiplies `ROUNDED_S` plus the wait. The factor is log-normal with median 1, and `spread` is the standard
    deviation of its logarithm.

    Parameters
    ----------
    wait_s
        Sampled waits in seconds, at least 0; shape (draws, jobs).
    levels
        Levels of the quantiles, in (0, 1).

    Returns
    -------
    FloatArray
        Shape (levels, jobs), at least 0.
    """
    draws, count = wait_s.shape
    shift = spread * FACTOR_SCORES if spread else np.zeros(1)
    found = np.empty((len(levels), count))
    at_once = max(1, MAX_NUMBERS // (draws * len(shift)))
    for first in range(0, count, at_once):
        log_wait = np.log(wait_s[:, first : first + at_once] + ROUNDED_S)
        drawn = (log_wait[:, None] + shift[:, None]).reshape(draws * len(shift), -1)
        found[:, first : first + at_once] = np.quantile(drawn, levels, axis=0)
    return np.asarray(np.maximum(np.exp(found) - ROUNDED_S, 0.0))


def forecast(
    jobs: Workload,
    present: Present,
    cluster: Cluster,
    make: Callable[[Workload], Policy],
    history: History,
    *,
    options: ForecastOptions | None = None,
    engine: EngineOptions | None = None,
    limit_s: FloatArray | None = None,
    seed: int = 0,
    executor: Executor | None = None,
    stop: Interruption | None = None,
    progress: Progress | None = None,
) -> Forecast:
    """Simulate from the present state under a policy, once per draw; the start of a job is its first start.

    Parameters
    ----------
    jobs, present
        Running and waiting jobs, all submitted by now, and the GPUs of the running jobs. The run times in `jobs` are
        not used.
    make
        Function that creates the policy for a workload.
    history
        Source of run times and new jobs.
    limit_s
        Limits of run times in seconds, NaN for none; shape (jobs,).
    executor
        Executor of the draws; this process by default.
    stop
        Once a stop is requested, the draws so far are returned, at least one.

    Returns
    -------
    Forecast
        The forecast depends on the seed, but not on the executor. It has fewer draws than `options.draws` only after a
        stop.

    Raises
    ------
    InvalidProblemError
        If no job is pending, or the state is invalid.
    """
    options, stop = options or ForecastOptions(), stop or Interruption()
    pending = np.flatnonzero(present.is_pending(jobs))
    if not len(pending):
        raise InvalidProblemError("no pending job with a known number of GPUs, so there is no start to forecast")
    held_us = present.held_us(len(jobs))
    known = history.run_times(jobs, present)
    kills, traits = kills_at_limits(make(jobs)), history.traits_of(jobs, present)
    is_spared = (jobs.estimate_us == 0) & kills
    of_jobs = known.given(traits, held_us / US, limit_s)
    jobs = estimated(jobs, known, traits, held_us)
    jobs = replace(jobs, duration_us=np.maximum(jobs.duration_us, held_us + 1))
    present.check(jobs, cluster)
    task = _Draws(
        jobs=jobs,
        present=present,
        cluster=cluster,
        make=make,
        engine=engine,
        run_times=of_jobs,
        held_us=held_us,
        is_spared=is_spared,
        arrivals=_Arrivals(history, known, options, kills=kills) if options.arrival_days else None,
        pending=pending,
        seed=seed,
    )
    starts = list(run_in_order(task, range(options.draws), executor, stop, progress))
    if not starts:
        starts = [task.do(0, stop, SilentProgress())]
    return Forecast(rows=pending, start_us=np.array(starts), now_us=present.now_us)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Draws(AbstractTask[int, IntArray]):
    """Task that returns the starts of the pending jobs in a future, given the future's number."""

    jobs: Workload
    present: Present
    cluster: Cluster
    make: Callable[[Workload], Policy]
    engine: EngineOptions | None
    run_times: ConditionalRunTimes
    held_us: IntArray
    is_spared: BoolArray
    arrivals: "_Arrivals | None"
    pending: IntArray
    seed: int

    @property
    def title(self) -> str:
        """Label for progress display."""
        return "draws"

    def do(self, piece: int, stop: StoppingCriterion, progress: Progress) -> IntArray:
        """Simulate one future, determined by the seed and its number."""
        del stop, progress
        rng = np.random.default_rng([self.seed, piece])
        drawn = with_run_times(self.jobs, _whole_us(self.run_times.draw(rng), self.held_us), self.is_spared)
        if self.arrivals is not None:
            drawn = joined(drawn, self.arrivals.draw(rng), self.present.now_us)
        return first_starts(drawn, self.cluster, self.make(drawn), self.present, self.pending, self.engine, self.seed)


def estimated(jobs: Workload, known: RunTimes, traits: JobTraits, held_us: IntArray) -> Workload:
    """Return jobs with missing estimates filled in.

    The estimate of a job is the 90 % quantile of the run times of its group, given the time that the job has run so
    far.
    """
    guess = _whole_us(known.quantile_s(traits, held_us / US, LEVELS[-1]), held_us)
    return replace(jobs, estimate_us=np.where(jobs.estimate_us > 0, jobs.estimate_us, guess))


def kills_at_limits(policy: Policy) -> bool:
    """Return whether a policy stops jobs at their estimates."""
    if isinstance(policy, IndexPolicy):
        return policy.reservations is not None and policy.reservations.kills
    return policy.rules(EngineOptions()).kills_at_limit


def with_run_times(jobs: Workload, duration_us: IntArray, is_spared: BoolArray) -> Workload:
    """Return jobs with other run times; jobs without a stated estimate (`is_spared`) are never stopped at their estimate."""
    stated = np.where(is_spared, np.maximum(jobs.estimate_us, duration_us), jobs.estimate_us)
    return replace(jobs, duration_us=duration_us, estimate_us=stated)


def _whole_us(run_s: FloatArray, held_us: IntArray) -> IntArray:
    """Return run times in integer microseconds, longer than the time run so far."""
    return np.maximum(np.rint(np.minimum(run_s * US, LATEST_US / 4)).astype(np.int64), held_us + 1)


class _Arrivals:
    """New jobs for some days, taken from a period of equal length in the history."""

    def __init__(self, history: History, known: RunTimes, options: ForecastOptions, *, kills: bool) -> None:
        submit, now = history.jobs.submit_us, history.now_us
        self.span = round(options.arrival_days * DAY_US)
        past = min(now - int(submit[0]), options.history_weeks * WEEK_US)
        self.span = min(self.span, max(past, 1))
        weeks = np.arange(-(-self.span // WEEK_US), past // WEEK_US + 1)
        self.begins = now - weeks * WEEK_US if len(weeks) > 1 else None
        self.latest, self.earliest = now - self.span, now - past
        nothing, traits = np.zeros(len(submit), np.int64), JobTraits.of(history.jobs)
        self.is_spared = (history.jobs.estimate_us == 0) & kills
        self.jobs = estimated(history.jobs, known, traits, nothing)
        self.lasting = np.maximum(1, history.run_us)
        self.going_on = np.flatnonzero(~history.has_ended & (submit > self.earliest))
        going_on = traits.select(self.going_on)
        self.times: ConditionalRunTimes = known.given(going_on, np.zeros(len(self.going_on)))

    def draw(self, rng: np.random.Generator) -> Workload | None:
        """Return new jobs, with submissions relative to now; None if there are none."""
        if self.begins is None:
            begin = int(rng.integers(self.earliest, self.latest + 1))
        else:
            begin = int(rng.choice(self.begins))
        jobs = self.jobs
        rows = np.arange(*np.searchsorted(jobs.submit_us, (begin, begin + self.span), side="right"))
        if not len(rows):
            return None
        lasting = self.lasting.copy()
        lasting[self.going_on] = _whole_us(self.times.draw(rng), np.zeros(len(self.going_on), np.int64))
        chosen = jobs.select(rows)
        chosen = replace(chosen, submit_us=chosen.submit_us - begin)
        return with_run_times(chosen, lasting[rows], self.is_spared[rows])


def joined(jobs: Workload, later: Workload | None, now_us: int) -> Workload:
    """Return jobs followed by later jobs, whose submissions count from `now_us`; names and labels stay distinct."""
    if later is None:
        return jobs
    columns: dict[str, Any] = {}
    for name, declared in columns_of(jobs).items():
        first, second = getattr(jobs, name), getattr(later, name)
        if declared.dims == 2 and first.shape[1] != second.shape[1]:
            continue  # known for one part only: filled with defaults
        columns[name] = np.concatenate([first, second])
    columns["submit_us"] = np.concatenate([jobs.submit_us, later.submit_us + now_us])
    columns["app"] = np.concatenate([jobs.app, later.app + int(jobs.app.max()) + 1])
    labels: dict[str, Any] = {}
    for name, names in LABELS.items():
        both = tuple(dict.fromkeys((*getattr(jobs, names), *getattr(later, names))))
        place = {each: number for number, each in enumerate(both)}
        moved = [
            np.array([place[text] for text in getattr(each, names)], np.int64)[getattr(each, name)]
            for each in (jobs, later)
        ]
        columns[name], labels[names] = np.concatenate(moved), both
    return Workload(**columns, **labels, ids=(*jobs.ids, *(f"later-{name}" for name in later.ids)))
