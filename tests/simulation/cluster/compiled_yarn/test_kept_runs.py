"""The compiled capacity scheduler does under its options what it did before."""

from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from optim.models.cluster.cluster import Cluster
from optim.simulation.cluster.catalogue import make_policy
from optim.simulation.cluster.engine import simulate
from optim.simulation.cluster.options import EngineOptions
from tests.support.cluster_worlds import drawn_jobs, failing, told_of
from tests.support.kept import assert_kept

KEPT = Path(__file__).parent / "kept"

CLUSTERS = {
    "two-racks": Cluster(gpus=np.array([4, 8, 4, 2, 8]), rack=np.array([0, 0, 1, 1, 1])),
    "five-racks": Cluster(gpus=np.array([3, 3, 6, 2, 6, 3, 1]), rack=np.array([0, 4, 1, 2, 0, 3, 4])),
}
OPTIONS = (
    {},
    {"preempts_above": 0.0, "quotas": "1:8:3"},
    {"preempts_above": 0.6, "retry_s": 40, "tries": 1},
    {"preempts_above": 1.0, "quotas": "0:2:1", "tries": 5},
)


@pytest.mark.parametrize(("where", "seed"), list(product(CLUSTERS, (11, 12, 13))))
def test_the_capacity_scheduler_does_what_it_did(where, seed):
    """Seventy jobs, some wider than a machine; with failures of machines and tries, and without."""
    jobs = drawn_jobs(seed, 70, widths=(1, 1, 2, 3, 4, 8, 11, 20), within=60)
    jobs = replace(jobs, group=np.repeat(jobs.group[:14], 5), fails_us=np.where(jobs.fails_us < 0, -1, jobs.fails_us))
    found = {}
    for options in OPTIONS:
        for name, engine in {"calm": EngineOptions(overhead_s=seed), "rough": failing()[2]}.items():
            key = " ".join([name, *(f"{each}={value}" for each, value in options.items())])
            run = simulate(jobs, CLUSTERS[where], make_policy("yarn-cs", jobs, options), engine, seed)
            found[key] = told_of(run)
    assert_kept(KEPT / f"{where}-{seed}.json", found)
