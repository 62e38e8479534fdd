"""`optim.testing`: the instances of its strategies can be solved and verified, and have the requested sizes."""

import pytest
from hypothesis import find, given
from hypothesis import strategies as st

import optim
from optim import testing
from optim.models.cluster.check.replay import replay
from optim.models.cluster.rules import Rules
from optim.simulation.cluster.catalogue import make_policy
from optim.simulation.cluster.engine import simulate

DRAWN = {
    "admission": (testing.admission_instances(), ("online", "fifo")),
    "bidding": (testing.bidding_instances(), ("dinkelbach", "greedy")),
    "auction": (testing.auction_instances(), ("exact", "greedy")),
}


@pytest.mark.parametrize("problem", DRAWN)
@given(data=st.data())
def test_drawn_instances_are_solved_and_verified(problem, data):
    instances, solvers = DRAWN[problem]
    instance = data.draw(instances)
    for solver in solvers:
        solution = optim.solve(instance, solver)
        assert optim.verify(instance, solution).is_ok


@given(data=st.data())
def test_drawn_jobs_run_on_drawn_clusters(data):
    cluster = data.draw(testing.clusters())
    jobs = data.draw(testing.workloads(max_gpus=int(cluster.gpus.sum())))
    run = simulate(jobs, cluster, make_policy("fifo", jobs))
    replayed, violations = replay(jobs, cluster, run.log, Rules())
    assert replayed is not None
    assert violations == []


@given(testing.admission_instances(max_jobs=2, max_slots=3, max_servers=1, max_gpus=2, is_shared=True))
def test_sizes_of_admission_instances_are_kept(instance):
    assert len(instance.jobs) <= 2
    assert instance.horizon <= 3
    assert instance.has_shared_servers
    assert instance.work.max() <= 4


@given(testing.auction_instances(max_apps=2, max_machines=1, max_gpus=2), testing.bidding_instances(max_markets=1))
def test_sizes_of_auctions_and_bids_are_kept(auction, bids):
    assert auction.num_apps <= 2
    assert bids.num_bids <= 3


def test_instances_of_every_kind_are_drawn():
    def admits_none(instance):
        return optim.solve(instance, "branch-and-price").objective == 0

    def refuses_some(instance):
        return 0 < len(optim.solve(instance, "branch-and-price").decision.admitted) < len(instance.jobs)

    instances = testing.admission_instances()
    assert find(instances, lambda instance: instance.has_shared_servers)
    assert find(instances, lambda instance: not instance.has_shared_servers)
    assert find(instances, admits_none)
    assert find(testing.clusters(), lambda cluster: len(set(cluster.rack.tolist())) == 2)
