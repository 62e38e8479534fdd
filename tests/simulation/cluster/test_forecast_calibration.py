"""Stretched ranges against closed forms, and calibration from the past against worlds with known error."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from optim.core.stopping import Interruption
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.present import Present, starts_of
from optim.models.cluster.workload import Workload
from optim.simulation.cluster.catalogue import make_policy
from optim.simulation.cluster.engine import simulate
from optim.simulation.cluster.forecast import Forecast, ForecastOptions, History, forecast, stretched_s
from optim.simulation.cluster.forecast_calibration import Outcome, Played, calibrate, learn_spread

S = 1_000_000
HOUR = 3600.0
ONE = Cluster.grid("1x8")


def fifo(jobs):
    return make_policy("fifo", jobs)


def test_a_stretched_log_normal_wait_is_log_normal_with_both_variances():
    levels = (np.arange(2000) + 0.5) / 2000
    wait = np.exp(9 + 0.6 * norm.ppf(levels))[:, None] - 60
    found = np.log(stretched_s(wait, 0.8, (0.1, 0.5, 0.9))[:, 0] + 60)
    assert found == pytest.approx(9 + norm.ppf([0.1, 0.5, 0.9]), abs=0.03)
    assert stretched_s(np.zeros((5, 2)), 1.0, (0.1,)).tolist() == [[0.0, 0.0]]  # not before now


def test_quantiles_count_from_now_and_without_spread_are_those_of_the_draws():
    start = 7 * S + S * np.array([[20], [100], [260]])  # and a minute: 80, 160, 320, as far apart by their logarithms
    plain = Forecast(rows=np.array([0]), start_us=start, now_us=7 * S)
    assert plain.quantiles_us((0.0, 0.5, 1.0))[:, 0].tolist() == [27 * S, 107 * S, 267 * S]
    wide = replace(plain, spread=0.5).quantiles_us((0.1, 0.5, 0.9))[:, 0]
    assert wide[1] == pytest.approx(107 * S, rel=0.02)
    assert wide[0] < 27 * S < 267 * S < wide[2]


def outcomes(count, spread, num_known=100, seed=0):
    """Return outcomes whose true waits are a draw times a random factor, which all jobs of a time share."""
    rng = np.random.default_rng(seed)
    made = []
    for now in range(count):
        waits = 4 * HOUR * np.exp(0.2 * rng.standard_normal((41, 8)))
        factor = np.exp(spread * rng.standard_normal())
        true = waits[-1] * factor
        made.append(
            Outcome(
                now_us=now * S, num_known=num_known, start_us=np.rint(now * S + true * S).astype(int),
                drawn_us=np.rint(now * S + waits[:-1] * S).astype(int),
            )
        )  # fmt: skip
    return made


LATE = 10**15


def test_the_factor_of_a_world_is_found():
    for spread in (0.3, 0.8):
        assert learn_spread(outcomes(250, spread), LATE, 100).spread == pytest.approx(spread, abs=0.1)
    exact = learn_spread(outcomes(250, 0.0), LATE, 100)
    assert exact.held == pytest.approx(0.8 * 39 / 41, abs=0.03)  # between quantiles of 40 draws
    assert exact.spread <= 0.15


def test_a_spread_of_a_time_that_knew_a_quarter_is_halved():
    then = learn_spread(outcomes(250, 0.8), LATE, 100).spread
    assert learn_spread(outcomes(250, 0.8), LATE, 400).spread == pytest.approx(then / 2, abs=0.051)


def test_jobs_that_wait_still_are_taken_to_start_now():
    made = outcomes(5, 0.0)
    late = [replace(each, start_us=each.start_us + 10**14) for each in made]
    assert learn_spread(late, LATE, 100).held == 0.0
    # After four hours, it is not known yet that they will wait much longer: their intervals may still be valid.
    assert learn_spread(late, int(4 * HOUR) * S, 100).held > 0.5


def test_too_few_moments_teach_nothing():
    found = learn_spread(outcomes(3, 1.0), LATE, 100)
    assert (found.spread, found.moments) == (0.0, 0)
    assert "3 moments" in found.reason


def test_few_moments_must_hold_more_than_the_share():
    """With four moments of one job each, a share of 0.8 x 5 / 4 = 1 must be held, so the worst one counts."""
    drawn = np.rint(3600 * S * np.linspace(1, 3, 81))[:, None].astype(int)
    made = [
        Outcome(now_us=0, num_known=100, start_us=np.array([int(3600 * S * wait)]), drawn_us=drawn)
        for wait in (2.0, 2.0, 2.0, 4.0)
    ]
    found = learn_spread(made, LATE, 100)
    assert found.held == 0.75
    assert stretched_s(drawn / S, found.spread, (0.9,))[0, 0] >= 4 * HOUR
    assert stretched_s(drawn / S, found.spread - 0.05, (0.9,))[0, 0] < 4 * HOUR


def busy_world(count=400, seed=0):
    """A machine for which jobs queue: each 8 GPUs, exponential run times, a load of 0.95."""
    rng = np.random.default_rng(seed)
    submit = np.cumsum(rng.exponential(HOUR / 0.95, count))
    return Workload(
        submit_us=np.rint((submit - submit[0]) * S).astype(int),
        gpus=np.full(count, 8),
        duration_us=np.maximum(1, np.rint(rng.exponential(HOUR, count) * S).astype(int)),
    )


def test_a_past_moment_knows_nothing_of_what_came_later():
    jobs = busy_world()
    now = int(jobs.submit_us[250])
    run = simulate(jobs, ONE, fifo(jobs))
    then = Played(jobs=jobs, run=run).moment(now)
    later = run.end_us > now
    other = replace(jobs, duration_us=np.where(later, 3 * jobs.duration_us + 1, jobs.duration_us))
    again = Played(jobs=other, run=simulate(other, ONE, fifo(other))).moment(now)
    assert (then.history.has_ended == again.history.has_ended).all()
    assert (then.history.run_us == again.history.run_us).all()
    assert then.history.jobs.ids == again.history.jobs.ids
    assert then.present.starts == again.present.starts
    assert then.jobs.ids == again.jobs.ids
    # By hand: of one machine the jobs up to the running one are over, have run, or wait.
    assert (then.history.run_us[~then.history.has_ended] > 0).sum() == 1
    assert then.start_us.tolist() == run.first_start_us[later & (jobs.submit_us <= now)].tolist()


def state_of(jobs, now):
    run = simulate(jobs, ONE, fifo(jobs))
    then = Played(jobs=jobs, run=run).moment(now)
    return then.jobs, then.present, ONE, fifo, then.history


def test_a_queue_that_is_as_the_history_says_needs_little_and_the_same_seed_gives_the_same():
    jobs = busy_world()
    about = state_of(jobs, int(jobs.submit_us[-1]))
    options = ForecastOptions(draws=30, arrival_days=0, calibration_moments=15, history_weeks=100)
    found = calibrate(*about, options=options)
    assert found.moments == 15
    assert found.held == pytest.approx(0.8, abs=0.2)
    assert found.spread <= 0.4
    assert calibrate(*about, options=options) == found


def test_run_times_that_drift_ask_for_more():
    jobs = busy_world()
    drift = np.exp(1.5 * np.sin(np.arange(len(jobs)) / 25))
    jobs = replace(jobs, duration_us=np.maximum(1, (jobs.duration_us * drift / drift.mean()).astype(int)))
    options = ForecastOptions(draws=30, arrival_days=0, calibration_moments=15, history_weeks=100)
    found = calibrate(*state_of(jobs, int(jobs.submit_us[-1])), options=options)
    assert found.held < 0.7
    assert found.spread >= 0.5


def test_what_cannot_be_calibrated_says_why():
    jobs = busy_world()
    pending, present, cluster, _, history = state_of(jobs, int(jobs.submit_us[-1]))
    options = ForecastOptions(draws=3, arrival_days=0, history_weeks=100)

    def las(jobs):
        return make_policy("las", jobs)

    assert "stops jobs" in calibrate(pending, present, cluster, las, history, options=options).reason
    none = replace(options, calibration_moments=0)
    assert calibrate(pending, present, cluster, fifo, history, options=none).reason == "forecast.calibration_moments=0"
    halted = Interruption()
    halted.request()
    cut = calibrate(pending, present, cluster, fifo, history, options=options, stop=halted)
    assert cut.reason == "it was interrupted"


KILLING = (("easy", {"kills": True}), ("multifactor", {"reservations": "easy", "kills": True}))


@pytest.mark.parametrize(("name", "options"), KILLING)
def test_a_policy_that_kills_spares_jobs_without_a_limit(name, options):
    """A job of a group of which 95 % run for ten minutes and the others for nine hours: never killed at ten minutes, it may hold the machine for nine hours."""
    old = np.concatenate([np.full(95, 600.0), np.full(5, 9 * HOUR)])
    past = Workload(submit_us=10**11 * np.arange(100), gpus=np.full(100, 8), duration_us=np.rint(old * S).astype(int))
    history = History(jobs=past, run_us=past.duration_us, has_ended=np.ones(100, bool), now_us=10**13)
    jobs = Workload(submit_us=np.array([0, S]), gpus=np.array([8, 8]), duration_us=np.full(2, S), ids=("x", "y"))
    present = Present(now_us=60 * S, starts=starts_of([(0, 0, [(0, 8)])]))

    def killing(jobs):
        return make_policy(name, jobs, options)

    few = ForecastOptions(draws=100, arrival_days=0)
    made = forecast(jobs, present, ONE, killing, history, options=few)
    assert made.start_us.max() >= 8.9 * HOUR * S
    limited = forecast(jobs, present, ONE, killing, history, options=few, limit_s=np.array([2 * HOUR, np.nan]))
    assert limited.start_us.max() == 2 * HOUR * S


@pytest.mark.parametrize(("name", "options"), KILLING)
def test_where_no_job_has_a_limit_one_that_kills_is_calibrated_as_one_that_does_not(name, options):
    """On one machine with capacity for one gang, estimates determine only which job is stopped."""
    jobs = busy_world()
    pending, present, cluster, _, history = state_of(jobs, int(jobs.submit_us[-1]))
    few = ForecastOptions(draws=10, arrival_days=0, calibration_moments=8, history_weeks=100)
    found, plain = (
        calibrate(pending, present, cluster, lambda jobs, own=own: make_policy(name, jobs, own), history, options=few)
        for own in (options, options | {"kills": False})
    )
    assert found == plain
