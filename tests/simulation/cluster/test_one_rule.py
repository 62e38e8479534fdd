"""An index policy decides the same in the compiled loop and by planning with wrappers that have no effect."""

from collections import Counter
from dataclasses import replace
from enum import IntEnum

import numpy as np
import pytest

from optim.core.errors import NotAllowedError
from optim.models.cluster.check.replay import replay
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.workload import PPM, US, Workload
from optim.simulation.cluster.catalogue import make_policy
from optim.simulation.cluster.engine import is_compiled, simulate
from optim.simulation.cluster.index.policy import IndexPolicy
from optim.simulation.cluster.options import EngineOptions, Placement, Preempted, RetryRule
from optim.simulation.cluster.planning.index_adapter import IndexPolicyAdapter
from optim.simulation.cluster.wrappers import Wrapper
from tests.support.policies import COMPILED_POLICIES
from tests.support.small_clusters import workload

OPTIONS = {
    "conservative": {},
    "easy": {},
    "fifo": {},
    "las": {"quantum_s": 3},
    "random": {},
    "srsf": {},
    "srtf": {},
    "tiresias": {"limits_gpu_s": "3:9"},
    "tiresias-gittins": {},
}


class Nothing(Wrapper):
    """A wrapper without effect."""

    wrap = "nothing"
    steers_placement = False


def _events(run):
    """Return the events in their order, with how many GPUs of which machines each start takes."""
    events = []
    for time, kind, job, places in run.log.rows():
        taken = Counter()
        for machine, gpus in places:
            taken[machine] += gpus
        events.append((time, kind, job, sorted(taken.items())))
    if run.halted:  # all that run are stopped: in which order is of no account
        last = next((at for at, event in enumerate(events) if event[0] == events[-1][0]), 0)
        events[last:] = sorted(events[last:])
    return events


def _world(seed):
    """Draw machines of up to four GPUs, up to a dozen jobs, a policy and the settings of the run."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 5, rng.integers(1, 5))
    count = int(rng.integers(3, 13))
    widest = int(sizes.max()) if rng.random() < 0.5 else int(sizes.sum())
    spread = bool(rng.random() < 0.3)
    slow = PPM + rng.integers(0, 3, (count, 2)).cumsum(axis=1) * 200_000
    fails = np.where(rng.random(count) < 0.3, rng.integers(1, 9, count) * US, -1)
    jobs = Workload(
        submit_us=np.sort(rng.integers(0, 20, count) * (rng.random(count) < 0.8)) * US,
        gpus=rng.integers(1, widest + 1, count),
        duration_us=rng.integers(9, 60, count) * US,
        slowdown_ppm=np.column_stack([np.full(count, PPM), slow]),
        fails_us=fails,
        tries=rng.integers(1, 3, count),
        good_us=np.where(fails >= 0, 5 * US, -1),
    )
    options = {
        "placement": list(Placement)[rng.integers(4)],
        "spread": spread,
        "overhead_s": float(rng.choice([0, 2, 30])),
        "startup_s": float(np.random.default_rng([9, seed]).choice([0, 0, 3])),
        "mtbf_hours": float(rng.choice([0, 0, 0.05])),
        "repair_hours": 0.005,
        "checkpoint_min": 0.1,
        "preempted": list(Preempted)[rng.integers(2)],
        "retries": list(RetryRule)[rng.integers(3)],
        "retry_wait_min": 0.05,
    }
    options["planned"] = _planned(len(sizes), np.random.default_rng([8, seed]))
    submit = jobs.submit_us - jobs.submit_us[0]
    object.__setattr__(jobs, "submit_us", submit)
    name = sorted(OPTIONS)[seed % len(OPTIONS)]
    if name in ("conservative", "easy"):
        jobs, own = _reserving(jobs, np.random.default_rng([7, seed]))
        return jobs, Cluster(gpus=sizes, rack=rng.integers(0, 2, len(sizes))), make_policy(name, jobs, own), options
    own = OPTIONS[name] | ({"backfill": bool(rng.random() < 0.5)} if name in ("fifo", "random") else {})
    racks = rng.integers(0, 2, len(sizes))
    return jobs, Cluster(gpus=sizes, rack=racks), make_policy(name, jobs, own), options


def _planned(machines, rng):
    """Return when machines leave and return by plan, at most once each; some don't return, and often none leaves."""
    if rng.random() < 0.6:
        return ()
    windows = []
    for machine in range(machines):
        begin, length = (int(each) for each in rng.integers(0, 60, 2))
        end = 2**62 if rng.random() < 0.1 else (begin + 1 + length) * US
        windows += [(machine, begin * US, end)] * (rng.random() < 0.5)
    return tuple(windows)


def _reserving(jobs, rng, most=3):
    """Return jobs with estimates, wrong in both directions, and options of policies that reserve."""
    stated = np.rint(jobs.duration_us * rng.uniform(0.3, 3, len(jobs))).astype(np.int64)
    estimates = np.where(rng.random(len(jobs)) < 0.4, jobs.duration_us, np.maximum(1, stated))
    is_told = rng.random(len(jobs)) < 0.7
    jobs = replace(jobs, estimate_us=np.where(is_told, estimates, 0))
    if len(jobs.users) == 1:
        jobs = replace(jobs, user=rng.integers(0, 2, len(jobs)), users=("a", "b"))
    own = {
        "depth": int(rng.integers(0, most + 1)),
        "kills": bool(rng.random() < 0.4),
        "guess": ("past", "factor")[rng.integers(2)],
        "quantile": float(rng.choice([0, 0.5, 1])),
        "past": int(rng.integers(1, 4)),
        "default_h": 0.01,
        "factor": float(rng.choice([0.5, 1, 2])),
    }
    return jobs, own


def _same_log(seed):
    jobs, cluster, policy, chosen = _world(seed)
    options = EngineOptions(**chosen)
    assert is_compiled(jobs, cluster, options)
    compiled = simulate(jobs, cluster, policy, options, seed)
    others = {
        "wrapped": (Nothing(IndexPolicyAdapter(policy, jobs)), options),
        "nobody shares": (policy, EngineOptions(**chosen, sharing=True)),
        "undisturbed": (policy, EngineOptions(**chosen, neighbour=1 + 1e-9)),
    }
    for what, (other, under) in others.items():
        planned = simulate(jobs, cluster, other, under, seed)
        assert planned.log.names_gpus or not len(planned.log.machine)
        assert _events(planned) == _events(compiled), f"seed {seed}, {what}"
        assert (planned.allocated_gpu_us, planned.overhead_gpu_us) == (
            compiled.allocated_gpu_us,
            compiled.overhead_gpu_us,
        )
        assert planned.executed_us.tolist() == compiled.executed_us.tolist()
        assert planned.lost_us.tolist() == compiled.lost_us.tolist()
        assert planned.figures == compiled.figures
        assert planned.halted == compiled.halted
    for run in (compiled, planned):
        found, problems = replay(jobs, cluster, run.log, run.rules)
        assert not problems
        assert list(found.lost_us) == run.lost_us.tolist()


@pytest.mark.parametrize("seed", range(25))
def test_the_same_log_however_it_is_played(seed):
    assert set(OPTIONS) >= set(COMPILED_POLICIES)
    _same_log(seed)


@pytest.mark.prove
@pytest.mark.parametrize("first", range(100, 2100, 100))
def test_the_same_log_however_it_is_played_in_many_worlds(first):
    for seed in range(first, first + 100):
        _same_log(seed)


WAYS = {
    "compiled": lambda jobs, policy: (policy, {}),
    "patience": lambda jobs, policy: (make_policy("patience+srtf", jobs), {}),
    "sharing": lambda jobs, policy: (policy, {"sharing": True}),
    "neighbour": lambda jobs, policy: (policy, {"neighbour": 1.000001}),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("rows", "gpus", "mean_s", "preemptions"),
    [
        ([(0, 2, 20), (1, 1, 100), (2, 3, 10)], "1x4", 170 / 3, 1),
        ([(0, 2, 20), (1, 3, 10), (2, 4, 5), (3, 2, 20)], "3x2", 26.75, 1),
        ([(0, 1, 100), (3, 3, 2), (5, 3, 20)], "2x2", 154 / 3, 2),
    ],
    ids=["one machine", "whole machines", "stopped and started at one instant"],
)
def test_the_most_urgent_are_spared_by_every_engine(way, rows, gpus, mean_s, preemptions):
    jobs = workload(rows)
    policy, more = WAYS[way](jobs, make_policy("srtf", jobs))
    run = simulate(jobs, Cluster.grid(gpus), policy, EngineOptions(**more))
    assert (run.end_us - jobs.submit_us).mean() / US == pytest.approx(mean_s, rel=1e-5)
    assert (run.log.kind == 1).sum() == preemptions


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("preempted", "ends", "lost"), [("keeps-all", 110, 0), ("checkpoint", 120, 10)])
def test_what_a_stop_undoes(way, preempted, ends, lost):
    """A job of 100 s is stopped after 70 s, its last checkpoint being 10 s ago, for another of 10 s."""
    jobs = workload([(0, 1, 100), (70, 1, 10)])
    policy, more = WAYS[way](jobs, make_policy("srtf", jobs))
    options = EngineOptions(overhead_s=0, checkpoint_min=1, preempted=preempted, **more)
    run = simulate(jobs, Cluster.grid("1x1"), policy, options)
    assert (run.end_us // US).tolist() == [ends, 80]
    assert (run.lost_us // US).tolist() == [lost, 0]


def test_planning_refuses_a_key_that_only_the_loop_knows():
    class Other(IntEnum):
        WIDEST = 99

    jobs = workload([(0, 1, 1)])
    adapter = IndexPolicyAdapter(IndexPolicy(name="other", key=Other.WIDEST), jobs)
    with pytest.raises(NotAllowedError, match="does not implement the key WIDEST"):
        simulate(jobs, Cluster.grid("1x1"), adapter, EngineOptions())
