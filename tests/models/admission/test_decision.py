"""Counts without superfluous units, checked row by row in integers."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from optim.models.admission.decision import AdmissionPlan, trimmed_plan
from optim.models.admission.instance import AdmissionInstance
from tests.support.admission.small_clusters import clusters, instance, job, servers, violations


def rows_of(plan: AdmissionPlan) -> tuple[list, list]:
    return plan.workers.tolist(), plan.ps.tolist()


def test_keeps_a_plan_that_has_nothing_superfluous():
    plan = trimmed_plan(instance(job()), workers={(0, 0, 0): 1, (0, 1, 0): 1}, ps={(0, 0, 0): 1, (0, 1, 0): 1})
    assert rows_of(plan) == ([[0, 0, 0, 1], [0, 1, 0, 1]], [[0, 0, 0, 1], [0, 1, 0, 1]])


def test_drops_slots_after_the_work_is_done():
    plan = trimmed_plan(instance(job()), workers={(0, 0, 0): 2, (0, 1, 0): 1}, ps={(0, 0, 0): 1, (0, 1, 0): 1})
    assert rows_of(plan) == ([[0, 0, 0, 2]], [[0, 0, 0, 1]])
    assert plan.objective(instance(job())) == 8


def test_drops_workers_that_the_last_slot_does_not_need_and_their_ps():
    plan = trimmed_plan(
        instance(job(chunks=3, ps_mbps=1), worker_servers=servers([2]), ps_servers=servers([2])),
        workers={(0, 0, 0): 2, (0, 1, 0): 2},
        ps={(0, 0, 0): 2, (0, 1, 0): 2},
    )
    assert rows_of(plan) == ([[0, 0, 0, 2], [0, 1, 0, 1]], [[0, 0, 0, 2], [0, 1, 0, 1]])


def test_drops_workers_that_finish_no_further_chunk():
    chunky = instance(job(epochs=1, minibatch_s=20), chunk_integral=True, worker_servers=servers([4]))
    assert trimmed_plan(chunky, workers={(0, 0, 0): 1}, ps={(0, 0, 0): 1}).admitted.tolist() == []


def test_drops_a_job_whose_work_is_not_done_in_time():
    assert not len(trimmed_plan(instance(job()), workers={(0, 0, 0): 1}, ps={(0, 0, 0): 1}).workers)


def test_drops_a_job_without_the_ps_that_its_workers_need():
    assert not len(trimmed_plan(instance(job()), workers={(0, 0, 0): 2}, ps={}).workers)


def test_drops_a_job_placed_before_its_arrival():
    late = instance(job(arrival=1))
    assert not len(trimmed_plan(late, workers={(0, 0, 0): 2}, ps={(0, 0, 0): 1}).workers)


def test_keeps_the_more_valuable_of_two_jobs_that_do_not_fit_together():
    rich = job("rich", utility={"kind": "constant", "value": 20})
    crowded = instance(job("poor", ps=[0]), rich | {"ps": [0]})
    counts = {(i, 0, 0): 2 for i in range(2)}
    plan = trimmed_plan(crowded, workers=counts, ps={(i, 0, 0): 1 for i in range(2)})
    assert plan.admitted.tolist() == [1]


def test_drops_a_job_that_exceeds_its_share_of_a_shared_server():
    shared = instance(job(ps_mbps=1), shared_servers=servers([4]), max_share_per_server=0.5)
    counts = {(0, 0, 0): 2}
    assert not len(trimmed_plan(shared, workers=counts, ps=counts).workers)


@given(clusters(max_horizon=2), st.integers(0, 2**32 - 1))
def test_any_counts_become_a_valid_plan(given_instance: AdmissionInstance, seed: int):
    rng = np.random.default_rng(seed)

    def counts(num_servers: int) -> dict[tuple[int, int, int], int]:
        shape = (given_instance.num_jobs, given_instance.horizon, num_servers)
        return {tuple(map(int, place)): int(rng.integers(0, 4)) for place in np.ndindex(shape)}

    plan = trimmed_plan(
        given_instance,
        workers=counts(given_instance.worker_servers.num_servers),
        ps=counts(given_instance.ps_servers.num_servers),
    )
    assert violations(given_instance, plan) == []
