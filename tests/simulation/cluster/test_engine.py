"""The compiled engine against a second one in plain Python, and against worked examples."""

from dataclasses import replace
from itertools import takewhile
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.core.errors import InvalidProblemError
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.workload import PPM, Workload
from optim.simulation.cluster.engine import is_compiled, simulate
from optim.simulation.cluster.index import loop
from optim.simulation.cluster.index.policy import IndexPolicy, Key, Preempts, Tie
from optim.simulation.cluster.options import EngineOptions, Placement, RetryRule, outages
from tests.support.failing_cluster import FailingCluster

S, MS = 1_000_000, 1_000
MS_H = 1 / 3.6e6
ORDERS = dict(
    zip(
        Key,
        ("submission", "drawn", "remaining-time", "remaining-service", "attained-time", "attained-service", "table"),
        strict=True,
    )
)


@st.composite
def worlds(draw):
    """A small cluster, jobs with ties, wide gangs and slowdowns, a policy and engine options."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    racks = [draw(st.integers(0, 1)) for _ in sizes]
    count = draw(st.integers(1, 9))
    submit = sorted(draw(st.lists(st.integers(0, 12), min_size=count, max_size=count)))
    jobs = [
        (
            MS * when,
            draw(st.integers(1, min(sum(sizes), 6))),
            MS * draw(st.integers(1, 9)) + draw(st.integers(0, 2)),
            draw(st.sampled_from([(10**6,) * 3, (10**6, 1_300_000, 2 * 10**6)])),
        )
        for when in submit
    ]
    key = draw(st.sampled_from(list(Key)))
    thresholds = (
        tuple(sorted(draw(st.sets(st.integers(1, 20).map(lambda x: MS * x), max_size=3)))) if key is Key.TABLE else ()
    )
    ranks = tuple(draw(st.permutations(range(len(thresholds) + 1)))) if key is Key.TABLE else ()
    policy = IndexPolicy(
        name="drawn",
        key=key,
        tie=draw(st.sampled_from(list(Tie))),
        preempts=draw(st.sampled_from(list(Preempts))),
        backfill=draw(st.booleans()),
        quantum_us=MS * draw(st.integers(1, 4)),
        thresholds=thresholds,
        ranks=ranks,
        demotion_thresholds=tuple(sorted(draw(st.sets(st.integers(1, 20).map(lambda x: MS * x), max_size=3)))),
    )
    options = EngineOptions(
        placement=draw(st.sampled_from(list(Placement))),
        spread=draw(st.booleans()),
        overhead_s=draw(st.sampled_from([0, 0.001, 0.003])),
    )
    return sizes, racks, jobs, policy, options


def _both_logs(world, seed=0, failing=(), tries=None):
    """Return a run, and the plain engine with its log; `failing` are further columns of the jobs, `tries` their outcomes."""
    sizes, racks, jobs, policy, options = world
    submit, gpus, duration, slowdown = zip(*jobs, strict=True)
    first = submit[0]
    jobs = [(when - first, *rest) for when, *rest in jobs]
    workload = Workload(
        submit_us=np.array(submit) - first,
        gpus=np.array(gpus),
        duration_us=np.array(duration),
        slowdown_ppm=np.array(slowdown),
        **dict(failing),
    )
    cluster = Cluster(gpus=np.array(sizes), rack=np.array(racks))
    run = simulate(workload, cluster, policy, options, seed)
    until = int(run.log.time_us[-1])
    plain = FailingCluster(
        jobs,
        sizes,
        racks,
        order=ORDERS[policy.key],
        preempts=("never", "events", "ticks")[policy.preempts],
        backfill=policy.backfill,
        first_start_tie=policy.tie is Tie.FIRST_START,
        quantum=policy.quantum_us,
        table=(policy.thresholds, policy.ranks or (0,)),
        crossings=policy.demotion_thresholds,
        placement=options.placement,
        spread=options.spread,
        overhead=options.overhead_us,
        drawn=np.random.default_rng(seed).integers(0, 2**62, len(jobs)).tolist(),
        outages=[*takewhile(lambda outage: outage[0] <= until + 1, outages(cluster, options, seed))],
        checkpoint=options.checkpoint_us,
        tries=tries,
        wait=round(options.retry_wait_min * 60 * S),
    )
    plain.play()
    return run, plain


@given(worlds())
def test_logs_what_a_second_engine_logs(world):
    run, plain = _both_logs(world)
    assert run.log.rows() == plain.log


@given(worlds(), st.sampled_from([10, 40]), st.sampled_from([1, 5]), st.sampled_from([1, 4]), st.integers(0, 10**6))
def test_logs_what_a_second_engine_logs_where_machines_fail(world, up, down, step, seed):
    """Times of all draws are milliseconds, as those of the jobs are."""
    *rest, options = world
    options = replace(options, mtbf_hours=up * MS_H, repair_hours=down * MS_H, checkpoint_min=step * MS_H * 60)
    with patch.object(loop, "KNOWN_OUTAGES", 3):  # so that the loop asks for more
        run, plain = _both_logs((*rest, options), seed)
    assert run.log.rows() == plain.log
    assert run.lost_us.tolist() == plain.undone
    assert run.is_done.all()


@given(
    worlds(),
    st.lists(st.tuples(st.integers(-2, 6), st.integers(1, 4), st.sampled_from([-1, 0, 1, 3]), st.integers(0, 3)), min_size=9, max_size=9),
    st.sampled_from([RetryRule.BLIND, RetryRule.BY_CLASS]),
    st.sampled_from([0, 2]),
    st.booleans(),
)  # fmt: skip
def test_logs_what_a_second_engine_logs_where_tries_fail(world, drawn, rule, wait, are_machines_failing):
    """For a job: run time of a failing attempt (negative: none), number of failures, work left for a success, and the reason."""
    *rest, jobs, policy, options = world
    wait *= MS_H * 60
    options = replace(options, retries=rule, max_retries=1, retry_wait_min=wait)
    if are_machines_failing:
        options = replace(options, mtbf_hours=10 * MS_H, repair_hours=5 * MS_H, checkpoint_min=MS_H * 60)
    names = ("", "syntax error", "GPU ECC error", "job preempted")
    columns, tries = {name: [] for name in ("fails_us", "tries", "good_us", "reason")}, []
    for (_, _, duration, _), (fails, count, good, reason) in zip(jobs, drawn, strict=False):
        left = min(good * MS, duration) if good >= 0 else max(0, duration - count * max(1, fails * MS))
        allowed = 10**9 if rule is RetryRule.BLIND else 1 if names[reason] == "syntax error" else 2
        tries.append((max(1, fails * MS), count if fails >= 0 else 0, left, allowed))
        given = (max(-1, fails * MS), count, min(good * MS, duration) if good >= 0 else -1, reason)
        for name, value in zip(columns, given, strict=True):
            columns[name].append(value)
    failing = {name: np.array(values) for name, values in columns.items()} | {"reasons": names}
    run, plain = _both_logs((*rest, jobs, policy, options), failing=failing.items(), tries=tries)
    assert run.log.rows() == plain.log
    assert run.lost_us.tolist() == plain.undone
    assert run.is_done.tolist() == [(left > 0 and count < allowed) or not count for _, count, left, allowed in tries]


def _workload(rows):
    submit, gpus, duration = (np.array(column) for column in zip(*rows, strict=True))
    return Workload(submit_us=submit * S, gpus=gpus, duration_us=duration * S)


THREE = [(0, 2, 2), (0, 1, 8), (0, 2, 6)]
NO_OVERHEAD = EngineOptions(overhead_s=0)


@pytest.mark.parametrize(
    ("policy", "ends"),
    [
        (IndexPolicy(name="srsf", key=Key.REMAINING_SERVICE, preempts=Preempts.AT_EVENTS), [2, 10, 16]),
        (
            IndexPolicy(name="las", key=Key.ATTAINED_SERVICE, preempts=Preempts.AT_TICKS, quantum_us=S),
            [5, 14, 16],
        ),
    ],
    ids=["srsf", "las"],
)
def test_ends_as_in_the_worked_example_of_tiresias(policy, ends):
    run = simulate(_workload(THREE), Cluster.grid("1x2"), policy, NO_OVERHEAD)
    assert (run.end_us / S).tolist() == ends


def test_ends_are_those_of_lindleys_recursion_on_one_gpu():
    rows = [(0, 1, 4), (1, 1, 3), (1, 1, 2), (12, 1, 5)]
    fifo = IndexPolicy(name="fifo", key=Key.SUBMISSION, backfill=False)
    run = simulate(_workload(rows), Cluster.grid("1x1"), fifo)
    free = 0
    for (submit, _, duration), end in zip(rows, (run.end_us / S).tolist(), strict=True):
        free = max(free, submit) + duration
        assert end == free


def test_a_gang_larger_than_the_cluster_is_named():
    with pytest.raises(InvalidProblemError, match="j1 needs 3 GPUs, but the cluster has 2"):
        simulate(_workload([(0, 1, 1), (0, 3, 1)]), Cluster.grid("1x2"), IndexPolicy(name="f", key=Key.SUBMISSION))


@pytest.mark.parametrize("seed", range(12))
def test_logs_what_a_second_engine_logs_where_gangs_are_wider_than_machines(seed):
    """Preemption allocates, reclaims and shares entire machines, which is rare in the random runs above."""
    rng = np.random.default_rng(seed)
    for _ in range(5):
        sizes = rng.integers(1, 4, 4).tolist()
        submit = np.sort(rng.integers(0, 8, 9)) * MS
        jobs = [
            (int(when), int(rng.integers(1, sum(sizes) + 1)), MS * int(rng.integers(1, 9)), (10**6,) * 3)
            for when in submit
        ]
        policy = IndexPolicy(name="srtf", key=Key.REMAINING_SERVICE, preempts=Preempts.AT_EVENTS)
        run, plain = _both_logs((sizes, [0, 0, 1, 1], jobs, policy, EngineOptions(overhead_s=0.001)))
        assert run.log.rows() == plain.log


def test_of_two_machines_that_one_victim_leaves_the_first_counts():
    """The gang of three leaves both machines to the short job.

    The first machine belongs to it entirely, so no other job is stopped.
    """
    jobs = [(0, 3, 10 * MS, (10**6,) * 3), (0, 1, 20 * MS, (10**6,) * 3), (MS, 2, MS, (10**6,) * 3)]
    policy = IndexPolicy(name="srtf", key=Key.REMAINING_TIME, preempts=Preempts.AT_EVENTS)
    run, plain = _both_logs(([2, 2], [0, 0], jobs, policy, EngineOptions(overhead_s=0)))
    assert run.log.rows() == plain.log
    assert [(kind, job) for time, kind, job, _ in plain.log if time == MS] == [(1, 0), (0, 2)]


def test_a_key_is_played_by_planning_where_gpus_are_shared_or_differ():
    """Two halves of a GPU run together; a job is twice as slow on the second type."""
    shares = Workload(
        submit_us=np.zeros(2), gpus=np.ones(2), duration_us=np.full(2, S), share_milli=np.array([500, 500])
    )
    fifo = IndexPolicy(name="fifo", key=Key.SUBMISSION)
    assert simulate(shares, Cluster.grid("1x1"), fifo).end_us.tolist() == [S, 2 * S]
    assert simulate(shares, Cluster.grid("1x1"), fifo, EngineOptions(sharing=True)).end_us.tolist() == [S, S]
    slow = Workload(
        submit_us=np.zeros(1),
        gpus=np.ones(1),
        duration_us=np.full(1, S),
        gpu_type_slowdown_ppm=np.array([[10**6, 2 * 10**6]]),
    )
    other = Cluster(gpus=np.array([1]), kind=np.array([1]), kinds=("a", "b"))
    assert simulate(slow, other, fifo).end_us.tolist() == [2 * S]


@pytest.mark.parametrize(
    ("speeds", "machines", "expected"),
    [
        ((PPM, PPM), [0, 1], True),
        ((PPM, 2 * PPM), [0, 1], False),
        ((PPM, 2 * PPM), [0, 0], True),
        ((2 * PPM,) * 2, [0, 1], False),
    ],
)
def test_the_compiled_loop_plays_types_that_are_all_as_fast(speeds, machines, expected):
    jobs = replace(_workload([(0, 1, 5)]), gpu_type_slowdown_ppm=np.array([speeds]))
    cluster = Cluster(gpus=np.array([1, 1]), kind=np.array(machines), kinds=("a", "b"))
    assert is_compiled(jobs, cluster, EngineOptions()) is expected
