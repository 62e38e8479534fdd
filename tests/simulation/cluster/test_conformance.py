"""Every policy satisfies the contract; violations are detected."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from optim.simulation.cluster import conformance
from optim.simulation.cluster.catalogue import make_policy
from optim.simulation.cluster.conformance import check_policy
from optim.simulation.cluster.planning.placing import fill
from optim.simulation.cluster.planning.policy import Plan, PlanningPolicy
from tests.support.policies import CLUSTER_POLICIES


@pytest.mark.parametrize("count", [13, pytest.param(20, marks=pytest.mark.prove)])
@pytest.mark.parametrize("name", sorted(CLUSTER_POLICIES))
def test_a_policy_of_the_catalogue_conforms(name, count, monkeypatch):
    """Up to 13 jobs, mostly gangs, two in a group and two in an app; user policies run with 20."""
    monkeypatch.setattr(conformance, "small_workload", partial(conformance.small_workload, count=count))
    assert check_policy(lambda jobs: make_policy(name, jobs)) == ()


class Good(PlanningPolicy):
    name = "good"

    def plan(self, view):
        gpus = dict(view.running)
        fill(view, view.room(), view.waiting.tolist(), gpus)
        return Plan(gpus=gpus)


class Remembers(Good):
    calls = 0

    def plan(self, view):
        self.calls += 1
        return Plan(gpus=dict(view.running), again_us=view.now_us + 1) if self.calls == 1 else super().plan(view)


class Global(Good):
    made = 0

    def __init__(self):
        type(self).made += 1
        self.number = self.made

    def plan(self, view):
        gpus = dict(view.running)
        fill(view, view.room(), np.roll(view.waiting, self.number).tolist(), gpus)
        return Plan(gpus=gpus)


class Foresees(Good):
    def __init__(self, jobs):
        self.jobs = jobs

    def plan(self, view):
        gpus, left = dict(view.running), view._books.jobs.duration_us
        fill(view, view.room(), sorted(view.waiting.tolist(), key=lambda job: left[job]), gpus)
        return Plan(gpus=gpus)


class Lazy(Good):
    def plan(self, view):
        return Plan(gpus={job: gpus for job, gpus in super().plan(view).gpus.items() if job != 3})


class Greedy(Good):
    def plan(self, view):
        return Plan(gpus={job: tuple(range(int(view.gpus[job]))) for job in view.jobs.tolist()})


@pytest.mark.parametrize(
    ("make", "fault"),
    [
        (lambda jobs: Remembers(), "begin() must reset"),
        (lambda jobs: Global(), "a second object's run differs"),
        (Foresees, "uses unavailable information"),
        (lambda jobs: Lazy(), "1 jobs never complete"),
        (lambda jobs: Greedy(), "which job"),
    ],
)
def test_a_policy_that_does_not_conform_is_found_out(make, fault):
    assert any(fault in said for said in check_policy(make))


def test_run_times_are_hidden_in_another_order_even_where_the_shortest_jobs_wait_first(monkeypatch):
    def in_order(seed, cluster):
        jobs = conformance_workload(seed, cluster, 40)
        none, one = np.zeros_like(jobs.submit_us), np.ones_like(jobs.gpus)
        return replace(jobs, submit_us=none, gpus=one, duration_us=np.sort(jobs.duration_us), fails_us=none - 1)

    conformance_workload = conformance.small_workload
    monkeypatch.setattr(conformance, "small_workload", in_order)
    assert any("uses unavailable information" in said for said in check_policy(Foresees))


def test_a_plain_policy_conforms():
    assert check_policy(lambda jobs: Good()) == ()
