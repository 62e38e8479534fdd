"""Apps' agents as arrays against agents one by one: the same reports, bids and schedules."""

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.models.cluster.cluster import Cluster
from optim.models.cluster.workload import US, Workload
from optim.simulation.cluster.catalogue import make_policy
from optim.simulation.cluster.options import EngineOptions
from optim.simulation.cluster.planning.engine import play_plans
from optim.simulation.cluster.policies.themis import leases
from optim.simulation.cluster.policies.themis.apps import AgentBatch
from optim.solvers.auction.mechanism import AgentGroup, Offer

CLUSTER = Cluster(gpus=np.array([4, 4, 2, 3]), rack=np.array([0, 0, 1, 1]))


SPREAD = ((10**6,) * 3, (1_050_000, 1_300_000, 1_800_000), (10**6, 2_830_000, 1_770_000))


def _jobs(rng, apps=4):
    """Apps that arrive within 25 minutes, of one gang each, with jobs of up to 40 minutes."""
    rows = []
    for app in range(apps):
        submit, gang, slow = int(rng.integers(0, 25)), int(rng.choice([1, 2, 3])), SPREAD[rng.integers(3)]
        rows += [(submit, gang, int(rng.integers(1, 40 * 60 * US)), slow, app) for _ in range(rng.integers(1, 5))]
    rows.sort(key=lambda row: row[0])
    submit, gpus, duration, slowdown, app = (np.array(column) for column in zip(*rows, strict=True))
    return Workload(
        submit_us=(submit - submit[0]) * 60 * US, gpus=gpus, duration_us=duration, slowdown_ppm=slowdown, app=app
    )


class _Compared(AgentBatch):
    """Compares every result of the batch with those of its agents, one by one."""

    rows = 0

    def rho(self, cluster):
        found = super().rho(cluster)
        assert found.tolist() == [agent.rho(cluster) for agent in self]
        assert self.wanted().tolist() == [agent.wanted() for agent in self]
        assert list(self.names) == [agent.name for agent in self]
        assert self.gangs.tolist() == [agent.gang for agent in self]
        return found

    def bids(self, who, offer):
        found = super().bids(who, offer)
        for i, bid in zip(who, found, strict=True):
            single = self[i].bid(Offer(cluster=offer.cluster, lease_min=offer.lease_min, horizon=offer.horizon))
            assert bid.table.rows == single.table.rows
            assert bid.table.named == single.table.named
            assert (bid.table.empty_rho, bid.table.ideal_min) == (single.table.empty_rho, single.table.ideal_min)
            assert (bid.gang, bid.elapsed_min, bid.work_min) == (single.gang, single.elapsed_min, single.work_min)
            assert bid.sizes == single.sizes
            _Compared.rows += len(bid.table)
        return found


def _played(jobs, options, crowd):
    with patch.object(leases, "AgentBatch", crowd):
        return play_plans(jobs, CLUSTER, make_policy("themis", jobs, options), EngineOptions(overhead_s=30), 0)


class _OneByOne:
    """Makes a group of single agents where the policy makes arrays."""

    def __new__(cls, live, census, now_us, ideal, slowness, held, expiring, agent_of):
        return AgentGroup([agent_of(row) for row in range(len(live.apps))])


@pytest.mark.prove
@given(st.integers(0, 10**9), st.booleans(), st.sampled_from(["hold", "lease"]), st.sampled_from([0.0, 0.5, 0.8]))
def test_arrays_answer_as_agents_do_and_the_schedule_is_the_same(seed, aligned, horizon, fairness):
    jobs = _jobs(np.random.default_rng(seed))
    options = {"lease_min": 12.5, "aligned": aligned, "horizon": horizon, "fairness": fairness}
    _Compared.rows = 0
    mine, other = _played(jobs, options, _Compared), _played(jobs, options, _OneByOne)
    assert mine.is_done.all()
    assert mine.log.rows() == other.log.rows()
    assert _Compared.rows > 0


def test_agents_are_made_when_they_are_asked_for():
    seen = []
    jobs = _jobs(np.random.default_rng(1))
    policy = make_policy("themis", jobs, {"lease_min": 7.5, "fairness": 0.8})
    divide = policy.divide
    policy.divide = lambda offer, agents: (divide(offer, agents), seen.append((len(agents.made), len(agents))))[0]
    play_plans(jobs, CLUSTER, policy, EngineOptions(), 0)
    assert any(made < count for made, count in seen)
    assert all(made <= count for made, count in seen)
