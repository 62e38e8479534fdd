"""Random orders of the online rule's ties, compared with all possible orders."""

import numpy as np
import pytest
from hypothesis import given

from optim.models.admission.instance import AdmissionInstance
from optim.models.reference import reference_instance
from optim.solvers.admission.online import OnlineOptions, make_bounds, tied_runs
from optim.solvers.admission.posted_prices.online_run import TIE_SHARE, TiedSearch, draw_tie_order, run_online
from optim.solvers.admission.posted_prices.price_functions import ZeroStartPrice, job_value_stats
from optim.solvers.admission.pricing.servers import ResidualSearch
from tests.support.admission.tie_enumeration import all_totals
from tests.support.admission.tiny import BY_HAND, job_document, tiny_instance, tiny_instances


def late(value: float, deadline: int) -> dict[str, object]:
    return {"utility": {"kind": "step", "value": value, "deadline": deadline}}


SPREAD = {
    "equal arrivals": tiny_instance(
        job_document("small", epochs=1, chunks=2, **late(3, 0)), job_document("large", chunks=4, epochs=1, **late(7, 0))
    ),
    "equal schedules": tiny_instance(
        job_document("patient", epochs=1, chunks=2, **late(5, 1)),
        job_document("urgent", epochs=1, chunks=4, arrival=1, **late(9, 0)),
        horizon=2,
    ),
    "both": tiny_instance(
        job_document("a", epochs=1, chunks=2, **late(5, 1)),
        job_document("b", epochs=1, chunks=2, **late(4, 1)),
        job_document("c", epochs=1, chunks=4, arrival=1, **late(9, 0)),
        horizon=2,
        ps_servers=[{"type": "cpus", "capacity": [0, 2], "count": 3}],
    ),
    "equal hosts": tiny_instance(
        job_document("a", epochs=1, chunks=2, **late(5, 0)),
        job_document("b", epochs=1, chunks=2, ps=[0, 2], **late(9, 0)),
        ps_servers=[{"type": "one", "capacity": [0, 1], "count": 1}, {"type": "two", "capacity": [0, 2], "count": 1}],
    ),
    "shared": tiny_instance(
        job_document("a", epochs=1, worker=[1, 0], ps=[0, 1], **late(5, 1)),
        job_document("b", epochs=1, chunks=4, arrival=1, **late(9, 0)),
        horizon=2,
        shared_servers=[{"type": "box", "capacity": [2, 3], "count": 2}],
    ),
}
"""Instances on which ties determine the value."""


def drawn_totals(instance: AdmissionInstance, num_orders: int) -> list[float]:
    return [run.objective for run in tied_runs(instance, num_orders=num_orders)]


def every_total(instance: AdmissionInstance) -> np.ndarray:
    bounds = make_bounds(instance, OnlineOptions(), np.random.default_rng(0))
    return np.array(sorted(all_totals(instance, bounds)))


@pytest.mark.parametrize("name", SPREAD)
def test_drawn_orders_reach_the_least_and_the_most_that_any_order_earns(name):
    possible = every_total(SPREAD[name])
    drawn = drawn_totals(SPREAD[name], 60)
    assert possible[0] < possible[-1]
    assert (min(drawn), max(drawn)) == (pytest.approx(possible[0]), pytest.approx(possible[-1]))


def assert_possible(instance: AdmissionInstance) -> None:
    possible = every_total(instance)
    bounds = make_bounds(instance, OnlineOptions(), np.random.default_rng(0))
    listed = run_online(instance, bounds=bounds, function=ZeroStartPrice()).objective
    for total in [listed, *drawn_totals(instance, 4)]:
        assert np.abs(possible - total).min() <= 1e-6, f"{total} is none of {possible}"


@pytest.mark.parametrize("name", sorted(set(BY_HAND) - {"shared-capped"}))  # which takes seconds to list
def test_no_drawn_order_earns_what_none_can_whatever_the_traits(name):
    assert_possible(BY_HAND[name])


@given(tiny_instances(max_jobs=2, horizon=2))
def test_no_drawn_order_earns_what_none_can(instance):
    assert_possible(instance)


def test_what_is_worth_a_millionth_more_is_no_tie():
    table = {"kind": "table", "table": [5.000005, 5, 5, 5]}
    instance = tiny_instance(job_document(epochs=1, chunks=2, utility=table))
    assert drawn_totals(instance, 20) == [5.000005] * 20
    equal = tiny_instance(job_document(epochs=1, chunks=2, **late(5, 3)))
    completed = {run.decisions[0].schedule.completion for run in tied_runs(equal, num_orders=40)}
    assert completed == {0, 1, 2, 3}


def test_orders_are_those_of_arrival_and_every_order_of_a_slot_is_drawn():
    instance = tiny_instance(*(job_document(f"j{k}", arrival=int(k == 0)) for k in range(4)))
    seen = {draw_tie_order(instance, np.random.default_rng(seed)).jobs for seed in range(100)}
    assert len(seen) == 6
    assert all(order[-1] == 0 for order in seen)


def test_same_seed_same_totals_and_each_plan_is_verified():
    instance = reference_instance("tiny-1")
    assert drawn_totals(instance, 5) == drawn_totals(instance, 6)[:5]
    assert len(set(drawn_totals(instance, 5))) > 1
    other = [run.objective for run in tied_runs(instance, num_orders=5, seed=1)]
    assert other != drawn_totals(instance, 5)
    for run in tied_runs(instance, num_orders=3):
        assert run.plan.objective(instance) == pytest.approx(run.objective)


def test_payoffs_are_at_true_prices():
    instance = reference_instance("tiny-2")
    worth, order = job_value_stats(instance), draw_tie_order(instance, np.random.default_rng(0))
    bounds = make_bounds(instance, OnlineOptions(), np.random.default_rng(0))
    finder = TiedSearch(instance, ResidualSearch(instance), order, worth)
    run = run_online(
        instance, bounds=bounds, function=ZeroStartPrice(), finder=finder, order=order.jobs, keeps_prices=True
    )
    for decision in run.decisions:
        if decision.schedule is None or decision.worker_price is None or decision.ps_price is None:
            continue
        cost = 0.0
        for rows, price, demand in (
            (decision.schedule.workers, decision.worker_price, instance.jobs.worker_demand),
            (decision.schedule.ps, decision.ps_price, instance.jobs.ps_demand),
        ):
            for slot, server, count, segment in rows.tolist():
                cost += count * float(price[server, slot] @ demand[segment]) / 1e6
        assert decision.schedule.payoff == pytest.approx(decision.schedule.value - cost, rel=TIE_SHARE / 10, abs=1e-12)
