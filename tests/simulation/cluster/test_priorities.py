"""Priorities in the compiled loop: the decisions of the planning engine, event by event, and the factors of the association tree."""

from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest

from optim.models.cluster.check.replay import replay
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.fair_share import AssociationTree
from optim.models.cluster.present import present_at
from optim.models.cluster.workload import PPM, US, Workload
from optim.simulation.cluster import engine
from optim.simulation.cluster.engine import first_starts, is_compiled, simulate
from optim.simulation.cluster.index import loop
from optim.simulation.cluster.index.priorities import make_priorities, share_out
from optim.simulation.cluster.options import EngineOptions, Placement, RetryRule
from optim.simulation.cluster.planning.engine import planned_first_starts, play_plans
from optim.simulation.cluster.policies.multifactor import Multifactor, MultifactorOptions
from tests.simulation.cluster.test_one_rule import _events, _planned, _reserving

QOS = "Name|Priority|UsageFactor\nnormal|10|1\nhigh|100|2.5\nlow|0|0.1\n"
CONF = "PartitionName=a PriorityJobFactor=3 PriorityTier=2\nPartitionName=b PriorityTier=1\nPartitionName=c PriorityTier=2\n"


def _tree_text(rng, users):
    """Return associations of three nested accounts, each user in one of them, with shares that now and then tie or are none."""
    rows = ["Account|ParentName|User|Share", "root|||1", "x|root||2", "y|root||1", "z|x||3"]
    rows += [f"{'xyz'[rng.integers(3)]}||{name}|{rng.integers(0, 4)}" for name in users]
    return "\n".join(rows) + "\n"


def _world(seed, folder):
    """Draw small machines, up to thirty jobs of users, partitions and qualities of service, and the settings of the run."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 5, rng.integers(1, 5))
    count, users = int(rng.integers(3, 31)), tuple(f"u{i}" for i in range(int(rng.integers(1, 6))))
    fails = np.where(rng.random(count) < 0.2, rng.integers(1, 9, count) * US, -1)
    submit = np.sort(rng.integers(0, 60, count) * (rng.random(count) < 0.9)) * US
    jobs = Workload(
        submit_us=submit - submit[0],
        gpus=rng.integers(1, (int(sizes.max()) if rng.random() < 0.5 else int(sizes.sum())) + 1, count),
        duration_us=rng.integers(9, 90, count) * US,
        slowdown_ppm=PPM
        + np.column_stack([np.zeros(count, int), *rng.integers(0, 3, (2, count)).cumsum(axis=0) * 10**5]),
        fails_us=fails,
        tries=rng.integers(1, 3, count),
        good_us=np.where(fails >= 0, 5 * US, -1),
        user=rng.integers(0, len(users), count),
        users=users,
        group=rng.integers(0, 3, count),
        groups=("a", "b", "c"),
        qos=rng.integers(0, 3, count),
        qos_names=("", "high", "low"),
    )
    own = {
        "backfill": bool(rng.random() < 0.5),
        "qos": folder / "qos.txt",
        "weight_qos": int(rng.choice([0, 500])),
        "weight_age": int(rng.choice([0, 10, 5000])),
        "weight_job_size": int(rng.choice([0, 900])),
        "weight_fair_share": int(rng.choice([0, 100, 3000])),
        "max_age_h": float(rng.choice([0.005, 0.05])),
        "half_life_h": float(rng.choice([0, 0.003, 0.1])),
        "calc_period_min": float(rng.choice([0.02, 0.2, 1])),
        "favor_small": bool(rng.random() < 0.5),
        "fair_tree": bool(rng.random() < 0.6),
        "damping": int(rng.integers(1, 4)),
    }
    if seed % 2:
        jobs, estimates = _reserving(jobs, np.random.default_rng([7, seed]), count // 3)
        own |= estimates | {"reservations": ("easy", "conservative")[rng.integers(2)]}
    if rng.random() < 0.5:
        own["associations"] = folder / f"shares-{seed}.txt"
        own["associations"].write_text(_tree_text(rng, jobs.users))
    options = EngineOptions(
        placement=list(Placement)[rng.integers(4)],
        spread=bool(rng.random() < 0.3),
        overhead_s=float(rng.choice([0, 2])),
        mtbf_hours=float(rng.choice([0, 0, 0.05])),
        repair_hours=0.005,
        checkpoint_min=0.1,
        retries=list(RetryRule)[rng.integers(3)],
        retry_wait_min=0.05,
        planned=_planned(len(sizes), np.random.default_rng([8, seed])),
    )
    policy = Multifactor(MultifactorOptions(**own), jobs)
    if rng.random() < 0.5:  # tiers and factors of partitions, which only slurm.conf contains
        (folder / "slurm.conf").write_text(CONF)
        told = Multifactor(MultifactorOptions(conf=folder / "slurm.conf"), jobs)
        policy.partition_factor, policy.tier = told.partition_factor, told.tier
    return jobs, Cluster(gpus=sizes, rack=rng.integers(0, 2, len(sizes))), policy, options


def _same_log(seed, folder):
    (folder / "qos.txt").write_text(QOS)
    jobs, cluster, policy, options = _world(seed, folder)
    assert policy.is_compiled
    assert is_compiled(jobs, cluster, options)
    compiled = simulate(jobs, cluster, policy, options, seed)
    planned = play_plans(jobs, cluster, policy, options, seed)
    assert _events(planned) == _events(compiled), f"seed {seed}"
    for name in ("allocated_gpu_us", "overhead_gpu_us", "figures", "halted", "rules"):
        assert getattr(planned, name) == getattr(compiled, name), name
    assert planned.executed_us.tolist() == compiled.executed_us.tolist()
    assert not replay(jobs, cluster, compiled.log, compiled.rules)[1]


@pytest.mark.parametrize("seed", range(60))
def test_the_compiled_loop_decides_as_planning_does(seed, tmp_path):
    _same_log(seed, tmp_path)


@pytest.mark.prove
@pytest.mark.parametrize("first", range(100, 2100, 100))
def test_the_compiled_loop_decides_as_planning_does_in_many_worlds(first, tmp_path):
    for seed in range(first, first + 100):
        _same_log(seed, tmp_path)


@pytest.mark.parametrize("seed", range(12))
def test_first_starts_are_played_in_the_compiled_loop_as_planning_does(seed, tmp_path):
    (tmp_path / "qos.txt").write_text(QOS)
    jobs, cluster, policy, options = _world(seed, tmp_path)
    options = replace(options, mtbf_hours=0.0, planned=())
    jobs = replace(jobs, fails_us=np.full(len(jobs), -1), tries=np.ones(len(jobs), int), good_us=np.full(len(jobs), -1))
    whole = simulate(jobs, cluster, policy, options, seed)
    now = int(np.median(whole.end_us))
    rest, present = present_at(jobs, whole.log, now)
    policy = Multifactor(policy.options, rest)
    pending = np.flatnonzero(present.is_pending(rest))
    planned = planned_first_starts(rest, cluster, policy, options, seed, present, pending)
    with (
        patch.object(engine, "planned_first_starts", side_effect=AssertionError),
        patch.object(loop, "STEPS_BETWEEN_LOOKS", 1),
    ):
        compiled = first_starts(rest, cluster, policy, present, pending, options, seed)
    assert compiled.tolist() == planned.tolist()


@pytest.mark.parametrize("is_tree", [True, False])
def test_the_compiled_factors_are_those_of_the_tree(is_tree):
    """Random trees of accounts and users, with shares of 0, of the parent (classic only), and usage that ties."""
    rng = np.random.default_rng(3)
    for _ in range(200):
        accounts, users = int(rng.integers(0, 6)), int(rng.integers(1, 8))
        count = 1 + accounts + users
        parent = [-1, *(int(rng.integers(0, row)) for row in range(1, accounts + 1))]
        parent += rng.integers(0, accounts + 1, users).tolist()
        tree = AssociationTree(
            names=tuple(map(str, range(count))),
            parent=np.array(parent),
            shares=rng.integers(0, 4, count),
            is_user=np.arange(count) > accounts,
            takes_parent=(rng.random(count) < 0.2) & (np.arange(count) > 0) & (not is_tree),
        )
        nothing = np.zeros(0)
        q = make_priorities(
            tree,
            period_us=1,
            is_tree=is_tree,
            is_strict=False,
            factors=(0.0, 1.0, 1.0, 1.0, 2.0),
            base=nothing,
            level=nothing,
            association=nothing,
            charge=nothing,
            gpus=nothing,
        )
        q.used[:] = np.where(tree.is_user, rng.integers(0, 4, count), 0)
        share_out(q, 0)
        expected = tree.fair_tree_factors(q.used) if is_tree else tree.classic_factors(q.used, 2.0)
        rows = tree.is_user if is_tree else np.ones(count, bool)
        assert q.fair_share[rows].tolist() == expected[rows].tolist()
