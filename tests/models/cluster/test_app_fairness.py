"""Fairness of apps by hand, and of apps of one job compared with that of jobs."""

import numpy as np
import pytest

from optim.models.cluster.cluster import Cluster
from optim.models.cluster.metrics import app_fairness
from optim.models.cluster.workload import Workload
from optim.simulation.cluster.catalogue import make_policy
from optim.simulation.cluster.engine import simulate
from optim.simulation.cluster.options import EngineOptions
from tests.support.small_clusters import workload

FREE = EngineOptions(overhead_s=0)


def test_an_app_is_over_with_its_last_job():
    """App 0 has jobs of 4 and 6 s on one of two GPUs each, app 1 one job of 10 s on both; first come, first served."""
    plain = workload([(0, 1, 4), (0, 1, 6), (0, 2, 10)])
    jobs = Workload(submit_us=plain.submit_us, gpus=plain.gpus, duration_us=plain.duration_us, app=np.array([0, 0, 1]))
    cluster = Cluster.grid("1x2")
    found = app_fairness(jobs, cluster, simulate(jobs, cluster, make_policy("fifo", jobs), FREE))
    assert found.seconds.tolist() == [6.0, 16.0]
    # App 0: two apps all its life, 10 GPU-seconds on two GPUs, no less than 6 s. App 1: (6 x 2 + 10) / 16 apps.
    assert found.rho.tolist() == pytest.approx([6 / (2 * 6), 16 / (22 / 16 * 10)])
    # A half of the GPUs is one: 10 s; of 2 / (22 / 16) GPUs: 20 / 1.4545 s.
    assert found.rho_space.tolist() == pytest.approx([6 / 10, 16 / (20 / (2 * 16 / 22))])


def test_an_app_alone_is_as_fast_as_its_longest_job_lets_it_be():
    """Jobs of 100 and 10 s on four GPUs: 100 s are ideal, not 110 GPU-seconds on the two that it can use."""
    jobs = workload([(0, 1, 100), (0, 1, 10)], app=np.array([0, 0]))
    cluster = Cluster.grid("1x4")
    found = app_fairness(jobs, cluster, simulate(jobs, cluster, make_policy("fifo", jobs), FREE))
    assert (found.rho.tolist(), found.rho_space.tolist()) == ([1.0], [1.0])
