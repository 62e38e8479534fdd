"""The best schedule of one job within the residual capacity of single servers, against the list of all schedules."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from optim_studies.packing_programme import Level, Row, Schedule, enumerate_schedules
from scipy.optimize import LinearConstraint, milp
from scipy.sparse import lil_array

from optim.core.errors import UnsupportedProblemError
from optim.models.admission.data import MICRO
from optim.models.admission.decision import Side
from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.posted_prices.price_functions import PriceFloorRule, ZeroStartPrice, price_ranges
from optim.solvers.admission.pricing.servers import ClusterState, FoundSchedule, ResidualSearch, ServerSide
from tests.support.admission.tiny import BY_HAND, job_document, tiny_instance, tiny_instances

MAX_SCHEDULES = 2_000
COST_TOL = 1e-9
"""Costs are sums of fewer than a hundred products, in different orders."""


def fresh_state(instance: AdmissionInstance) -> ClusterState:
    """Return the empty cluster at prices of zero."""
    return ClusterState(instance, price_ranges(instance, PriceFloorRule.UNIT_FREE_LAMBDA), ZeroStartPrice())


def used_state(instance: AdmissionInstance, rng: np.random.Generator) -> ClusterState:
    """Return a cluster with random residuals, many of them integral, and random prices, many of them equal."""
    state = fresh_state(instance)
    for side in state.sides:
        used = np.floor(rng.random(side.capacity.shape) * side.capacity)
        used[rng.random(used.shape) < 0.3] = 0.0
        tenths = rng.random(used.shape) < 0.5
        used[tenths] = np.floor(used[tenths] / (MICRO // 10)) * (MICRO // 10)
        side.residual[:] = side.capacity - used
        side.price[:] = np.where(rng.random(used.shape) < 0.4, 0.0, np.round(rng.random(used.shape) * 4, 1))
    return state


def equal_state(instance: AdmissionInstance, rng: np.random.Generator) -> ClusterState:
    """Return the empty cluster at random prices that are the same on all servers of a class."""
    state = fresh_state(instance)
    for side in state.sides:
        of_class = np.round(rng.random((*side.price.shape[:2], side.servers.num_classes)) * 4, 1)
        side.price[:] = of_class[:, :, side.servers.class_of_server]
    return state


def side_of(state: ClusterState, row: Row) -> ServerSide:
    return state.worker if row.side is Side.WORKER else state.ps


def fits(state: ClusterState, schedule: Schedule) -> bool:
    """Return whether a listed schedule fits into the residual capacity, in integers."""
    return all(
        amount <= int(side_of(state, row).residual[row.slot, row.resource, row.place])
        for row, amount in schedule.use.items()
    )


def cost(state: ClusterState, schedule: Schedule) -> float:
    return sum(
        amount / MICRO * float(side_of(state, row).price[row.slot, row.resource, row.place])
        for row, amount in schedule.use.items()
    )


def is_same(found: FoundSchedule, schedule: Schedule) -> bool:
    return (
        tuple(sorted(map(tuple, found.workers[:, :3].tolist()))) == schedule.workers
        and tuple(sorted(map(tuple, found.ps[:, :3].tolist()))) == schedule.ps
    )


def check_search(instance: AdmissionInstance, listed: Sequence[Schedule], state: ClusterState) -> None:
    """Compare every job's best payoff with the best listed one, and look up the schedule in the list."""
    search = ResidualSearch(instance)
    for i in range(instance.num_jobs):
        fitting = [schedule for schedule in listed if schedule.job == i and fits(state, schedule)]
        best = max((schedule.value - cost(state, schedule) for schedule in fitting), default=-np.inf)
        found = search.find(i, state, -np.inf)
        if found is None:
            assert not fitting, "a job that fits was called infeasible"
            continue
        assert found.payoff == pytest.approx(best, abs=COST_TOL)
        same = [schedule for schedule in fitting if is_same(found, schedule)]
        assert len(same) == 1, "the schedule found is none, or does not fit"
        assert found.completion == same[0].completion
        assert found.payoff == pytest.approx(same[0].value - cost(state, same[0]), abs=COST_TOL)
        positive = search.find(i, state, 0.0)
        assert (positive is None) == (found.payoff <= 0)
        if positive is not None:
            assert positive.payoff == pytest.approx(found.payoff, abs=COST_TOL)


@given(tiny_instances(max_count=2), st.integers(0, 2**32 - 1))
def test_finds_the_best_of_all_schedules_that_fit(instance: AdmissionInstance, seed: int) -> None:
    try:
        listed = enumerate_schedules(instance, limit=MAX_SCHEDULES, level=Level.SERVERS).schedules
    except UnsupportedProblemError:
        assume(False)
    check_search(instance, listed, used_state(instance, np.random.default_rng(seed)))


@pytest.mark.parametrize("name", BY_HAND)
def test_finds_the_best_schedule_whatever_the_instances_traits(name: str) -> None:
    instance, rng = BY_HAND[name], np.random.default_rng(11)
    listed = enumerate_schedules(instance, limit=20 * MAX_SCHEDULES, level=Level.SERVERS).schedules
    for _ in range(4):
        check_search(instance, listed, used_state(instance, rng))


def slot_milp(instance: AdmissionInstance, state: ClusterState, workers: int, num_ps: int, slot: int) -> float | None:
    """Return the least cost of given numbers of workers and PSs in one slot by HiGHS, None if they don't fit."""
    jobs, sides = instance.jobs, (state.worker, state.ps)
    sizes = [side.residual.shape[2] for side in sides]
    demands = (jobs.worker_demand[0] / MICRO, jobs.ps_demand[0] / MICRO)
    num = sum(sizes)
    costs = np.concatenate([side.price[slot].T @ demand for side, demand in zip(sides, demands, strict=True)])
    rows, right = lil_array((2 + instance.num_resources * (sizes[0] if state.is_shared else num), num)), []
    rows[0, : sizes[0]], rows[1, sizes[0] :] = 1, 1
    for k in range(num):
        kind = int(k >= sizes[0])
        server = k - kind * sizes[0]
        for r in range(instance.num_resources):
            row = 2 + (server if state.is_shared else k) * instance.num_resources + r
            rows[row, k] = demands[kind][r]
            if k < sizes[0] or not state.is_shared:
                right.append(sides[kind].residual[slot, r, server] / MICRO)
    lower = np.concatenate([[workers, num_ps], np.full(len(right), -np.inf)])
    upper = np.concatenate([[workers, num_ps], right])
    result = milp(
        costs,
        constraints=LinearConstraint(rows.tocsr(), lower, upper),
        integrality=np.ones(num),
        bounds=(0, max(workers, num_ps)),
        options={"mip_rel_gap": 0.0, "presolve": False},  # SciPy's HiGHS (1.12) loses optima in it
    )
    return float(result.fun) if result.status == 0 else None


@pytest.mark.parametrize("is_shared", [False, True], ids=["own-servers", "shared-servers"])
def test_one_slot_of_many_servers_costs_what_a_mixed_integer_programme_says(is_shared: bool) -> None:
    rng = np.random.default_rng(2018)
    outcomes = []
    for trial in range(30):
        workers, rate = int(rng.integers(1, 9)), int(rng.integers(1, 5))
        worker, ps = rng.integers(0, 4, 2).tolist(), rng.integers(0, 4, 2).tolist()
        job = job_document(
            "one", epochs=1, chunks=workers, worker_mbps=1, ps_mbps=rate, worker=worker, ps=ps,
            utility={"kind": "constant", "value": 1000},
        )  # fmt: skip
        servers = [
            {"type": f"t{c}", "capacity": rng.integers(0, 8, 2).tolist(), "count": int(rng.integers(1, 8))}
            for c in range(3)
        ]
        fields = {"shared_servers": servers} if is_shared else {"worker_servers": servers, "ps_servers": servers}
        instance = tiny_instance(job, horizon=1, **fields)
        state = used_state(instance, rng) if trial % 2 else equal_state(instance, rng)
        found = ResidualSearch(instance).find(0, state, -np.inf)
        best = slot_milp(instance, state, workers, int(instance.ps_needed[0][workers]), 0)
        outcomes.append(best is None)
        assert (found is None) == (best is None)
        if found is not None and best is not None:
            assert found.cost == pytest.approx(best, abs=1e-6)
    assert 5 < sum(outcomes) < 25, "both outcomes must occur"


def test_room_is_exact_for_decimals_that_floats_miss() -> None:
    job = job_document("thirds", epochs=1, chunks=3, worker=[0.1, 0], ps=[0, 0.1], ps_mbps=1)
    servers = {"worker_servers": [{"type": "a", "capacity": [0.3, 0], "count": 1}],
               "ps_servers": [{"type": "b", "capacity": [0, 0.3], "count": 1}]}  # fmt: skip
    instance = tiny_instance(job, **servers)
    found = ResidualSearch(instance).find(0, fresh_state(instance), 0.0)
    assert found is not None
    assert found.completion == 0


def test_room_is_exact_at_the_largest_quantities() -> None:
    largest = 10**9
    almost = largest - 1e-6
    job = job_document("huge", epochs=1, chunks=1, worker=[largest, 0], ps=[0, 1])
    for capacity, completes in ((largest, True), (almost, False)):
        instance = tiny_instance(job, worker_servers=[{"type": "a", "capacity": [capacity, 0], "count": 1}])
        found = ResidualSearch(instance).find(0, fresh_state(instance), 0.0)
        assert (found is not None) == completes


def test_equal_prices_go_to_the_smaller_server_and_then_to_the_fuller_one() -> None:
    job = job_document("small", epochs=1, chunks=1)
    servers = [
        {"type": "large", "capacity": [8, 0], "count": 1},
        {"type": "small", "capacity": [4, 0], "count": 3},
    ]
    instance = tiny_instance(job, worker_servers=servers)
    state = fresh_state(instance)
    state.worker.residual[:, 0, 2] -= MICRO
    state.worker.price[:] = 1.0
    found = ResidualSearch(instance).find(0, state, 0.0)
    assert found is not None
    assert found.workers[0, 1] == 2


def test_the_earliest_of_equal_completions_wins() -> None:
    job = job_document("patient", epochs=1, chunks=1, utility={"kind": "constant", "value": 3})
    instance = tiny_instance(job)
    found = ResidualSearch(instance).find(0, fresh_state(instance), 0.0)
    assert found is not None
    assert found.completion == 0
    assert found.payoff == 3.0
    assert found.cost == 0.0


def test_without_the_residual_check_servers_count_as_empty() -> None:
    instance = BY_HAND["plain"]
    state = fresh_state(instance)
    for side in state.sides:
        side.residual[:] = 0.0
    assert ResidualSearch(instance).find(0, state, 0.0) is None
    assert ResidualSearch(instance, is_residual_checked=False).find(0, state, 0.0) is not None
