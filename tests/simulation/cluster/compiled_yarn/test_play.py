"""The compiled capacity scheduler against the one that plans again at each instant: equal logs, figures and counts."""

from dataclasses import fields
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.models.cluster.cluster import Cluster
from optim.models.cluster.log import EventLog, Run
from optim.models.cluster.workload import US, Workload
from optim.simulation.cluster import compiled_yarn as capacity
from optim.simulation.cluster.catalogue import make_policy
from optim.simulation.cluster.engine import simulate
from optim.simulation.cluster.options import MAX_IDLE_CALLS, EngineOptions, Placement, RetryRule
from optim.simulation.cluster.planning.engine import play_plans
from optim.simulation.cluster.planning.policy import Plan
from optim.simulation.cluster.policies.yarn_cs import YarnCs, YarnOptions
from tests.support.small_clusters import workload

HOUR = 1 / 3600  # of a second
MINUTE = 1 / 60
REASONS = ("", "syntax error", "GPU ECC error", "job preempted")
ALIKE = (10**6,) * 3


def _same(jobs, cluster, chosen, options, seed=0):
    """Simulate jobs by the compiled loop and by the planning loop, compare the results, and return the run."""
    run = simulate(jobs, cluster, make_policy("yarn-cs", jobs, chosen), options, seed)
    plain = play_plans(jobs, cluster, make_policy("yarn-cs", jobs, chosen), options, seed)
    for part in fields(EventLog):
        mine, other = getattr(run.log, part.name), getattr(plain.log, part.name)
        assert (mine.dtype, mine.tolist()) == (other.dtype, other.tolist()), part.name
    for part in fields(Run):
        mine, other = getattr(run, part.name), getattr(plain, part.name)
        if part.name != "log":
            assert mine.tolist() == other.tolist() if isinstance(mine, np.ndarray) else mine == other, part.name
    return run


@st.composite
def worlds(draw):
    """A small cluster of unequal machines, jobs of virtual clusters with ties and wide gangs, and quotas."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=6))
    racks = [draw(st.integers(0, 2)) for _ in sizes]
    groups = draw(st.integers(1, 4))
    submit = sorted(draw(st.lists(st.integers(0, 25), min_size=1, max_size=25)))
    rows = [
        (
            when - submit[0],
            draw(st.integers(1, min(sum(sizes), 8))),
            draw(st.integers(1, 12)) * US + draw(st.integers(0, 2)),
            draw(st.sampled_from([ALIKE, (10**6, 1_300_000, 2 * 10**6)])),
            draw(st.integers(0, groups - 1)),
        )
        for when in submit
    ]
    when, gpus, duration, slowdown, group = (np.array(column) for column in zip(*rows, strict=True))
    columns = {
        "submit_us": when * US,
        "gpus": gpus,
        "duration_us": duration,
        "slowdown_ppm": slowdown,
        "group": group,
        "groups": tuple("abcd"[:groups]),
    }
    quotas = [draw(st.sampled_from([0, 0.5, 1, 2, 3.5])) for _ in range(groups)]
    chosen = {
        "quotas": ":".join(map(str, quotas)) if any(quotas) and draw(st.booleans()) else "",
        "preempts_above": draw(st.sampled_from([0, 0.3, 0.5, 0.9, 1])),
        "retry_s": draw(st.sampled_from([1, 2, 180])),
        "attempts": draw(st.integers(1, 3)),
    }
    engine = {
        "placement": draw(st.sampled_from(list(Placement))),
        "spread": draw(st.booleans()),
        "overhead_s": draw(st.sampled_from([0, 1, 3])),
    }
    return columns, Cluster(gpus=np.array(sizes), rack=np.array(racks)), chosen, engine


@given(worlds())
def test_plays_what_planning_plays(world):
    columns, cluster, chosen, engine = world
    assert _same(Workload(**columns), cluster, chosen, EngineOptions(**engine)).is_done.all()


@given(
    worlds(),
    st.lists(st.tuples(st.sampled_from([-1, 0, 1, 3, 6]), st.integers(1, 3), st.sampled_from([-1, 0, 1]), st.integers(0, 3)), min_size=25, max_size=25),
    st.sampled_from(list(RetryRule)),
    st.sampled_from([0, 2]),
    st.sampled_from([0, 80, 200]),
    st.integers(0, 10**6),
)  # fmt: skip
def test_plays_what_planning_plays_where_tries_and_machines_fail(world, drawn, rule, wait, up, seed):
    """For a job: run time of a failing attempt (negative: none), number of failures, work left for a success, and the reason."""
    columns, cluster, chosen, engine = world
    count = len(columns["gpus"])
    fails, tries, good, reason = (np.array(column) for column in zip(*drawn[:count], strict=True))
    columns |= {
        "fails_us": np.where(fails < 0, -1, fails * US),
        "tries": tries,
        "good_us": np.minimum(np.where(good < 0, -1, good * US), columns["duration_us"]),
        "reason": reason,
        "reasons": REASONS,
    }
    failing = {
        "retries": rule,
        "max_retries": 1,
        "retry_wait_min": wait * MINUTE,
        "mtbf_hours": up * HOUR,
        "repair_hours": 4 * HOUR,
        "checkpoint_min": 2 * MINUTE,
    }
    _same(Workload(**columns), cluster, chosen, EngineOptions(**engine, **failing), seed)


def _crowd(seed, count=220):
    """Jobs of six virtual clusters, which submit most of them in turn, on 6 machines of 4 GPUs in two racks."""
    rng = np.random.default_rng(seed)
    gpus = rng.choice([1, 2, 3, 4, 8, 12], count, p=[0.4, 0.2, 0.1, 0.15, 0.1, 0.05])
    submit = np.sort(rng.integers(0, count // 4, count)) * 70
    duration = 1 + rng.exponential(150, count).astype(np.int64)
    jobs = workload(
        list(zip((submit - submit[0]).tolist(), gpus.tolist(), duration.tolist(), strict=True)),
        group=np.where(rng.random(count) < 0.3, rng.integers(0, 6, count), submit // 350 % 6),
        groups=tuple("abcdef"),
    )
    return jobs, Cluster(gpus=np.full(6, 4), rack=np.repeat([0, 1], 3))


@pytest.mark.parametrize("placement", list(Placement))
def test_a_long_queue_is_played_alike_with_all_that_happens_in_it(placement):
    """Preemptions and gangs over two racks do happen here."""
    nth = list(Placement).index(placement)
    jobs, cluster = _crowd(nth)
    chosen = {"retry_s": 10, "preempts_above": 0.5, "quotas": "2:2:2:6:6:6" if nth % 2 else ""}
    run = _same(jobs, cluster, chosen, EngineOptions(overhead_s=7, placement=placement, spread=nth == 2))
    assert np.count_nonzero(run.log.is_lost) >= 10
    rack = np.where(run.log.machine < 3, 0, 1)
    assert any(len(set(rack[a:b])) == 2 for a, b in zip(run.log.first[:-1], run.log.first[1:], strict=True))


def _siege(seed):
    """One virtual cluster uses all 24 GPUs when the others arrive; some of these have jobs of several widths, and some end."""
    rng = np.random.default_rng(seed)
    held = [(0, 1, int(rng.choice([20, 40, 500 + nth]))) for nth in range(24)]
    come = [(20 * int(rng.integers(1, 3)), int(rng.choice([1, 2, 3, 4, 8])), 30) for _ in range(24)]
    rows = held + sorted(come)
    group = np.concatenate([np.zeros(24, np.int64), rng.integers(0, 6, 24)])
    return workload(rows, group=group, groups=tuple("abcdef"))


@pytest.mark.parametrize("seed", range(12))
def test_those_under_quota_take_back_in_the_order_of_the_pass(seed):
    jobs = _siege(seed)
    run = _same(jobs, Cluster.grid("6x4"), {"quotas": "1:4:5:4:5:5", "preempts_above": 0.7}, EngineOptions())
    assert run.log.is_lost.any()


@pytest.mark.prove
def test_a_run_in_which_nobody_starts_any_more_ends_alike():
    """No rack holds a gang, and gangs may spread only after many tries: too many passes without a running job."""
    count = MAX_IDLE_CALLS + 100
    jobs = workload([(second, 4, 5) for second in range(count)])
    cluster = Cluster(gpus=np.array([2, 2]), rack=np.array([0, 1]))
    run = _same(jobs, cluster, {"retry_s": count, "attempts": 1}, EngineOptions())
    assert not run.is_done.any()


@pytest.mark.parametrize(("count", "is_done"), [(MAX_IDLE_CALLS - 100, True), (MAX_IDLE_CALLS + 100, False)])
def test_a_run_ends_after_so_many_passes_without_a_running_job(count, is_done):
    """No rack holds a gang; the first one may spread over racks at its `count`-th pass after the last submission."""
    jobs, cluster = (
        workload([(second, 4, 1) for second in range(count)]),
        Cluster(gpus=np.full(2, 2), rack=np.arange(2)),
    )
    run = simulate(jobs, cluster, make_policy("yarn-cs", jobs, {"retry_s": count, "attempts": 1}))
    assert run.is_done.all() == run.is_done.any() == is_done


class Lazy(YarnCs):
    """A policy without plans."""

    def plan(self, view):
        del view
        return Plan(gpus={})


def test_what_derives_from_it_plans_itself():
    jobs = workload([(0, 1, 5)])
    assert not simulate(jobs, Cluster.grid("1x1"), Lazy(YarnOptions(), jobs)).is_done.any()


@pytest.mark.parametrize("looks", [1, 4])
def test_a_run_can_be_stopped(looks):
    jobs, seen = workload([(0, 1, 5)] * 3), []

    def watch(submitted):
        seen.append(submitted)
        return len(seen) == looks

    with patch.object(capacity, "STEPS", 1):
        assert simulate(jobs, Cluster.grid("1x1"), make_policy("yarn-cs", jobs), watch=watch) is None
    assert seen == [3] * looks
