"""Every policy in five tiny clusters, and under its options, does what it did when its runs were kept."""

from pathlib import Path

import pytest

from tests.support.cluster_worlds import WORLDS, told
from tests.support.kept import assert_kept
from tests.support.policies import CLUSTER_POLICIES

KEPT = Path(__file__).parent / "kept"

VARIANTS = {
    "allox": ({"most_jobs": 3},),
    "borg": ({"shares": "0:1:3"},),
    "fifo": ({"backfill": True},),
    "gandiva": ({"packs": False}, {"migrates": False, "quantum_s": 20}, {"grows": False, "switch_s": 9, "move_s": 30}),
    "las": ({"by_time": True, "quantum_s": 120},),
    "mesos": ({"decide_s": 40, "filter_s": 300, "delay_s": 0}, {"decide_s": 200, "delay_s": 900}),
    "oasis": ({"slot_s": 120, "patience": 0.5, "delay": 0.5},),
    "omega": ({"schedulers": 3, "job_s": 90, "task_s": 20}, {"schedulers": 1, "job_s": 30}),
    "optimus": ({"epoch_s": 120},),
    "random": ({"backfill": False},),
    "slaq": ({"epoch_s": 900},),
    "srsf": ({"preempt": False}, {"backfill": False}),
    "static": ({"backfill": True},),
    "tetris": ({"fairness": 0.8, "remaining": 0}, {"fairness": 0, "remaining": 4}),
    "themis": (
        {"lease_min": 7, "fairness": 0.4, "rule": "ceil"},
        {"aligned": False, "rule": "none", "ideal": "space-share"},
        {"horizon": "lease", "rule": "lottery", "fairness": 0},
    ),
    "themis-greedy": (
        {"aligned": False, "lease_min": 6},
        {"tuner": "halving", "eta": 2, "lease_min": 9},
        {"tuner": "hyperband", "eta": 2, "aligned": False},
        {"tuner": "curves", "lease_min": 5, "ideal": "space-share"},
    ),
    "tiresias": ({"limits_gpu_s": "300:900"},),
    "tiresias-gittins": ({"levels": 3},),
    "yarn-cs": ({"quotas": "2:7:3", "retry_s": 45, "tries": 2, "preempts_above": 0.5}, {"preempts_above": 0}),
}
"""Options besides the usual ones."""

SLOW = ("max-min", "oasis", "optimus", "slaq", "themis")


@pytest.mark.prove
@pytest.mark.parametrize("name", sorted(CLUSTER_POLICIES))
def test_a_policy_does_what_it_did(name):
    found = {world: told(name, world) for world in WORLDS if name not in SLOW or world in ("plain", "failing", "kinds")}
    for number, options in enumerate(VARIANTS.get(name, ())):
        world = "kinds" if name == "static" else ("plain", "failing")[number % 2]
        found[f"{world} {' '.join(f'{key}={value}' for key, value in options.items())}"] = told(name, world, options)
    assert_kept(KEPT / f"{name}.json", found)
