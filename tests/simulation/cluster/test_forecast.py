"""Run times from history against closed forms, and forecasts against worlds whose answer is known."""

import math
from dataclasses import replace

import numpy as np
import pytest

from optim.core.errors import InvalidProblemError
from optim.core.stopping import Interruption
from optim.execution import local_engine
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.present import Present, starts_of
from optim.models.cluster.workload import Workload
from optim.simulation.cluster.catalogue import make_policy
from optim.simulation.cluster.comparison import PolicyRequest
from optim.simulation.cluster.forecast import ForecastOptions, History, forecast, joined
from optim.simulation.cluster.run_times import JobTraits, RunTimes

S = 1_000_000
HOUR = 3600.0


def traits(count, gpus=1, user="a", apart_s=1e5):
    return JobTraits(
        user=[user] * count, partition=["p"] * count, gpus=np.full(count, gpus), submit_s=apart_s * np.arange(count)
    )


def exponential(count, mean_s=HOUR, seed=0):
    return np.random.default_rng(seed).exponential(mean_s, count)


def test_an_exponential_run_time_forgets_what_it_ran():
    known = RunTimes(traits(4000), exponential(4000), np.ones(4000, bool))
    rng, held = np.random.default_rng(1), np.full(300, 2 * HOUR)
    drawn = np.array([known.given(traits(300), held).draw(rng) for _ in range(60)])
    assert (drawn > held).all()
    assert (drawn - held).mean() == pytest.approx(HOUR, rel=0.12)


def test_quantiles_are_those_of_the_time_left():
    known = RunTimes(traits(4000), exponential(4000), np.ones(4000, bool))
    found = known.quantile_s(traits(2), np.array([0.0, HOUR]), 0.9) / HOUR
    assert found == pytest.approx([2.303, 3.303], rel=0.06)


def test_censored_jobs_count_as_longer_than_they_were_seen():
    true = exponential(4000)
    seen = np.minimum(true, HOUR)
    known = RunTimes(traits(4000), seen, true <= HOUR)
    assert known.pooled.at(np.array([0.5 * HOUR]))[0] == pytest.approx(math.exp(-0.5), abs=0.02)
    assert known.pooled.survival[-1] == pytest.approx(math.exp(-1), abs=0.03)


def test_a_thin_group_is_pooled_and_a_full_one_is_not():
    users = ["many"] * 40 + ["few"] * 5 + ["other"] * 40
    run_s = np.concatenate([np.full(40, 100.0) + np.arange(40), np.full(5, 9e4), np.full(40, 5e3) + np.arange(40)])
    past = JobTraits(user=users, partition=["p"] * 85, gpus=np.ones(85, int), submit_s=1e5 * np.arange(85))
    known = RunTimes(past, run_s, np.ones(85, bool))
    asked = replace(traits(2), user=["many", "few"])
    (many, of_many), (few, of_few) = known.curves(asked, np.zeros(2))
    assert (of_many.tolist(), of_few.tolist()) == ([0], [1])
    assert many.ended_s.max() == 139.0
    assert len(few.ended_s) == 85  # of partition and size, which is all jobs here
    assert known.curves(asked, np.array([130.0, 0.0]))[0][0] is not many  # nine ended later: too few
    assert known.mean_s(asked, np.zeros(2)).tolist() == [pytest.approx(119.5), pytest.approx(run_s.mean())]


def test_jobs_that_are_submitted_together_are_alike():
    rng = np.random.default_rng(2)
    means = np.repeat(np.exp(rng.standard_normal(400)), 5)
    submit = np.repeat(1e6 * np.arange(400), 5) + np.tile(np.arange(5.0), 400)
    past = JobTraits(user=["a"] * 2000, partition=["p"] * 2000, gpus=np.ones(2000, int), submit_s=submit)
    run_s = 1000 * means * np.exp(rng.standard_normal(2000))
    known = RunTimes(past, run_s, np.ones(2000, bool))
    assert known.batch_correlation + known.week_correlation == pytest.approx(0.5, abs=0.06)
    new = replace(traits(2), submit_s=np.array([1e9, 1e9 + 1]))
    drawn = np.array([known.given(new, np.zeros(2)).draw(rng) for _ in range(3000)])
    assert np.corrcoef(np.log(drawn.T))[0, 1] == pytest.approx(0.5, abs=0.08)


def test_who_outlasts_all_has_a_tail_and_nothing_is_known_without_an_end():
    known = RunTimes(traits(100), exponential(100), np.ones(100, bool))
    drawn = known.given(traits(1), np.array([1e7])).draw(np.random.default_rng(0))
    assert 1e7 < drawn[0] < np.inf
    with pytest.raises(InvalidProblemError, match="no past job has ended"):
        RunTimes(traits(3), np.ones(3), np.zeros(3, bool))


def test_a_limit_ends_a_run_that_has_not_reached_it():
    known = RunTimes(traits(200), exponential(200, 1e6), np.ones(200, bool))
    ready = known.given(traits(2), np.array([0.0, 500.0]), np.array([60.0, 400.0]))
    drawn = np.array([ready.draw(np.random.default_rng(seed)) for seed in range(50)])
    assert drawn[:, 0].max() == 60.0
    assert drawn[:, 1].min() > 500.0  # its limit is past: it is overrun already


JOBS = Workload(submit_us=np.array([0, S, 2 * S]), gpus=np.array([8, 8, 8]), duration_us=np.full(3, S))
HELD = Present(now_us=int(HOUR) * S, starts=starts_of([(0, 0, [(0, 8)])]))


def history(run_s, gpus=8):
    count = len(run_s)
    jobs = Workload(
        submit_us=np.arange(count) * 10**10,
        gpus=np.full(count, gpus),
        duration_us=(run_s * S).astype(int),
        ids=tuple(f"old-{n}" for n in range(count)),
    )
    return History(jobs=jobs, run_us=jobs.duration_us, has_ended=np.ones(count, bool), now_us=count * 10**10)


def test_starts_of_a_queue_on_one_machine_are_sums_of_exponential_times():
    made = forecast(
        JOBS, HELD, Cluster.grid("1x8"), lambda jobs: make_policy("fifo", jobs), history(exponential(3000)),
        options=ForecastOptions(draws=1500, arrival_days=0), seed=3,
    )  # fmt: skip
    waits = (made.start_us - HELD.now_us) / S / HOUR
    assert made.rows.tolist() == [1, 2]
    # The first waits for the rest of an exponential time, the second for one more: quantiles of Gamma(1) and Gamma(2).
    found = (made.quantiles_us() - HELD.now_us) / S / HOUR
    assert found[:, 0] == pytest.approx([0.105, 0.693, 2.303], rel=0.2)
    assert found[:, 1] == pytest.approx([0.532, 1.678, 3.890], rel=0.2)
    assert (waits[:, 1] > waits[:, 0]).all()


def test_later_jobs_hold_up_a_pending_gang_that_they_may_pass():
    jobs = Workload(submit_us=np.array([0, 0, S]), gpus=np.array([4, 4, 8]), duration_us=np.full(3, S))
    present = Present(now_us=int(HOUR) * S, starts=starts_of([(0, 0, [(0, 4)]), (0, 1, [(0, 4)])]))
    past = history(exponential(3000), gpus=4)
    past = replace(past, jobs=replace(past.jobs, submit_us=past.jobs.submit_us // 10), now_us=3000 * 10**9)
    starts = []
    for days in (0, 7):
        made = forecast(
            jobs, present, Cluster.grid("1x8"), lambda jobs: make_policy("fifo", jobs, {"backfill": True}), past,
            options=ForecastOptions(draws=40, arrival_days=days),
        )  # fmt: skip
        starts.append(float(made.quantiles_us()[1, 0]))
    assert starts[1] > starts[0] + HOUR * S


def test_the_same_seed_gives_the_same_and_nothing_pending_is_said():
    words = (HELD, Cluster.grid("1x8"), lambda jobs: make_policy("fifo", jobs), history(exponential(100)))
    few = ForecastOptions(draws=5)
    one, two = (forecast(JOBS, *words, options=few, seed=1).start_us for _ in range(2))
    assert (one == two).all()
    alone = JOBS.select(np.array([0]))
    with pytest.raises(InvalidProblemError, match="no pending job"):
        forecast(alone, *words, options=few)
    halted = Interruption()
    halted.request()
    assert forecast(JOBS, *words, options=few, stop=halted).start_us.shape == (1, 2)


def test_processes_draw_what_one_draws():
    words = (JOBS, HELD, Cluster.grid("1x8"), PolicyRequest(name="fifo").build, history(exponential(100)))
    few = ForecastOptions(draws=3)
    here, there = (forecast(*words, options=few, executor=local_engine(count)).start_us for count in (1, 2))
    assert here.tolist() == there.tolist()
    assert len({tuple(row) for row in here.tolist()}) == 3


def test_joined_jobs_keep_names_and_labels():
    first = replace(JOBS, user=np.array([1, 0, 1]), users=("a", "b"), ids=("x", "y", "z"))
    later = replace(JOBS, user=np.zeros(3, int), users=("b",), ids=("x", "u", "v"))
    both = joined(first, later, 5 * S)
    assert [both.users[number] for number in both.user.tolist()] == ["b", "a", "b", "b", "b", "b"]
    assert both.submit_us.tolist() == [0, S, 2 * S, 5 * S, 6 * S, 7 * S]
    assert both.ids[2:4] == ("z", "later-x")
