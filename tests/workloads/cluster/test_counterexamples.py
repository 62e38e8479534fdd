"""Small clusters in which a scheduler violates a guarantee: the measures, recomputed and by hand."""

import numpy as np
import pytest

from optim.models.auction.codec import (
    AppDocument,
    AuctionDocument,
    MachineDocument,
    ProfileDocument,
    TrialDocument,
)
from optim.models.auction.problem import PROBLEM
from optim.models.auction.summary import rho_paid
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.metrics import app_fairness
from optim.models.cluster.workload import Workload
from optim.simulation.cluster.catalogue import make_policy
from optim.simulation.cluster.engine import simulate
from optim.simulation.cluster.options import EngineOptions
from optim.solvers.solve import solve
from tests.support.counterexamples import COUNTEREXAMPLES, placement_envy
from tests.support.small_clusters import workload

SPREAD = EngineOptions(overhead_s=0, spread=True)


@pytest.mark.parametrize("world", COUNTEREXAMPLES, ids=lambda world: world.policy)
def test_the_scheduler_gives_neither_sharing_incentive_nor_freedom_from_envy(world):
    run = simulate(world.jobs, world.cluster, make_policy(world.policy, world.jobs), SPREAD)
    fair = app_fairness(world.jobs, world.cluster, run)
    assert fair.rho.max() == pytest.approx(world.rho_max, abs=1e-4)
    assert world.rho_max > 1
    assert placement_envy(world.jobs, world.cluster, run) == pytest.approx(world.envy)
    assert world.envy > 1


def test_envy_is_that_of_jobs_that_run_together():
    """Three gangs of two on machines of 2, 1 and 1 GPUs: only the first is on one machine; the second is 1.3 times slower."""
    plain = workload([(0, 2, 4), (0, 2, 2)])
    slow = np.array([[1_000_000, 1_300_000, 1_800_000]] * 2)
    jobs = Workload(submit_us=plain.submit_us, gpus=plain.gpus, duration_us=plain.duration_us, slowdown_ppm=slow)
    cluster = Cluster(gpus=np.array([2, 1, 1]), rack=np.array([0, 0, 0]))
    assert placement_envy(jobs, cluster, simulate(jobs, cluster, make_policy("fifo", jobs), SPREAD)) == pytest.approx(
        1.3
    )
    strict = simulate(jobs, cluster, make_policy("fifo", jobs), EngineOptions(overhead_s=0))
    assert placement_envy(jobs, cluster, strict) == 1.0  # one after the other


def test_one_round_gives_no_sharing_incentive():
    """Two equal new apps on four GPUs are awarded two each, rho 1; payments leave one each, rho 2."""
    trial = TrialDocument(work_min=100.0, total_work_min=100.0, max_gpus=4)
    profile = ProfileDocument(elapsed_min=0.0, active_apps=2.0, trials=[trial], slowdown="compute-bound")
    apps = [AppDocument(id=name, profile=profile) for name in "ab"]
    machines = [MachineDocument(rack=0, slots=[4])]
    instance = PROBLEM.instance_from_document(
        AuctionDocument(schema="optim/auction/1", name="equals", machines=machines, apps=apps)
    )
    plan = solve(instance, "exact").decision
    assert instance.bids.rho[plan.row].tolist() == [1.0, 1.0]
    assert rho_paid(instance, plan).tolist() == [2.0, 2.0]
