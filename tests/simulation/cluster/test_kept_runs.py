"""Compiled index policies under every placement, and the tables of runs, come out as before."""

from dataclasses import asdict, replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from optim.core.progress import SilentProgress
from optim.core.stopping import Interruption
from optim.execution import SerialExecutor
from optim.models.cluster.cluster import Cluster
from optim.simulation.cluster.catalogue import make_policy
from optim.simulation.cluster.comparison import Comparison, bound, split_settings
from optim.simulation.cluster.conformance import small_workload
from optim.simulation.cluster.engine import simulate
from optim.simulation.cluster.options import EngineOptions, OutageFeed, Placement, RetryRule
from optim.simulation.cluster.philly_study import philly_study
from tests.support.cluster_worlds import drawn_jobs, failing, plain, told_of
from tests.support.kept import assert_kept
from tests.support.policies import CLUSTER_POLICIES, COMPILED_POLICIES

KEPT = Path(__file__).parent / "kept"
CLUSTER = Cluster(gpus=np.array([4, 8, 4, 2, 8]), rack=np.array([0, 0, 1, 1, 1]))
OPTIONS = {
    "las": ({}, {"quantum_s": 60, "by_time": True}),
    "srtf": ({}, {"preempt": False}, {"backfill": False}),
    "srsf": ({}, {"backfill": False}),
    "tiresias": ({}, {"limits_gpu_s": "200:600:4000"}),
    "tiresias-gittins": ({}, {"levels": 5}),
    "fifo": ({}, {"backfill": True}),
    "random": ({},),
}


def _brief(name, options, jobs, engine, seed=3):
    return told_of(simulate(jobs, CLUSTER, make_policy(name, jobs, options), engine, seed))


@pytest.mark.parametrize(("name", "placement"), list(product(sorted(COMPILED_POLICIES), Placement)))
def test_a_key_gives_what_it_gave(name, placement):
    """Sixty jobs, some wider than a machine; with failures of machines and tries, and without."""
    jobs = drawn_jobs(8, 60, widths=(1, 1, 2, 3, 4, 8, 11, 20), within=90)
    calm = EngineOptions(placement=placement)
    rough = replace(failing()[2], placement=placement)
    found = {}
    for options in OPTIONS[name]:
        for spread in (False, True):
            key = " ".join(f"{key}={value}" for key, value in {**options, "spread": spread}.items())
            found[key] = _brief(name, options, jobs, replace(calm, spread=spread))
            found[f"rough {key}"] = _brief(name, options, jobs, replace(rough, spread=spread))
    assert_kept(KEPT / f"{name}-{placement}.json", found)


@pytest.mark.parametrize("rule", RetryRule)
def test_tries_that_fail_give_what_they_gave(rule):
    jobs, cluster, options = failing()
    found = {
        f"{name} wait={wait} retries={most}": told_of(
            simulate(
                jobs,
                cluster,
                make_policy(name, jobs),
                replace(options, retries=rule, retry_wait_min=wait, most_retries=most),
            ),
        )
        for name, wait, most in product(("fifo", "las", "srtf"), (0, 7), (0, 1, 4))
    }
    assert_kept(KEPT / f"tries-{rule}.json", found)


@pytest.mark.parametrize("world", [plain, failing])
def test_rows_bounds_and_tables_of_a_study_come_out_as_before(world):
    jobs, cluster, options = world()
    names = ("fifo", "srtf", "yarn-cs", "borg")
    options, requests = split_settings({"overhead_s": 45, "spread": True, "borg.shares": "1:1:1"}, names)
    lower = bound(jobs, cluster, 5)
    task = Comparison(jobs, cluster, options, 2, lower["bounds"]["jct_mean_h"])
    task.check(requests)
    played = list(task.play(requests, SerialExecutor(), Interruption(), SilentProgress()))
    found = {
        "bounds": lower["bounds"],
        "options": {name: str(value) for name, value in asdict(options).items()},
        "keys": [task.key(request).split(":")[0] for request in requests],
        "rows": [one.row.flat() for one in played],
        "study": [asdict(table) for one in played[2:] for table in philly_study(jobs, cluster, one.logged)],
    }
    assert_kept(KEPT / f"comparison-{world.__name__}.json", found)
    again = Comparison(jobs, cluster, options, 3, lower["bounds"]["jct_mean_h"])
    assert task.key(requests[0]) != again.key(requests[0]) != again.key(requests[1])


def test_jobs_that_policies_are_checked_on_and_outages_are_drawn_as_before():
    jobs = small_workload(4, CLUSTER, 9)
    feed = OutageFeed(CLUSTER, EngineOptions(mtbf_hours=3, repair_hours=0.5), 7)
    columns = ("submit_us", "gpus", "duration_us", "slowdown_ppm", "group", "app", "busy_milli", "fails_us", "loss")
    found = {
        "jobs": {name: getattr(jobs, name) for name in columns},
        "outages": tuple(feed.take_many(12).T),
        "next": feed.next,
        "policies": [
            [type(policy).__name__, policy.name, policy.needs]
            for policy in (make_policy(name, jobs) for name in sorted(CLUSTER_POLICIES))
        ],
    }
    assert_kept(KEPT / "jobs-and-outages.json", found)
