"""Learned prices: the sample-average LP, the effect of a further day, and clusters that change."""

from dataclasses import replace

import numpy as np
import pytest

from optim.core.errors import InvalidProblemError
from optim.models.admission.data import as_int_array
from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.packing.capacity_rows import CapacityRows
from optim.solvers.admission.posted_prices.forecast import PriceForecast, sample_average, smoothed
from optim.solvers.admission.pricing.classes import JobTables, Prices, price
from optim.solvers.solve import solve
from tests.support.admission.days import days, forecast
from tests.support.admission.tiny import job_document, tiny_instance


def mean_bound(known: PriceForecast) -> float:
    """Return the mean over the days of the Lagrangian bound that the prices prove, at the forecast's fill."""
    total = 0.0
    for day in known.days:
        tables = JobTables.build(
            replace(day, worker_servers=known.cluster.worker_servers, ps_servers=known.cluster.ps_servers)
        )
        rows = CapacityRows.of(tables)
        payoff = price(tables, known.prices, with_schedules=False).payoff
        total += float(payoff.sum() + known.fill * rows.flat(known.prices) @ rows.capacity)
    return total / known.num_days


def test_one_day_at_full_capacity_is_that_days_packing_lp() -> None:
    today = days(0)[0]
    known = PriceForecast.fit([today], fill=1.0)
    bound = solve(today, "column-generation", options={"tol": 1e-3}).bound
    assert mean_bound(known) == pytest.approx(bound, rel=2e-3)


def test_prices_are_the_best_on_average_over_the_days() -> None:
    past = days(0)[:3]
    prices, result = sample_average(past, forecast(0).cluster, fill=0.6, tol=1e-3)
    known = replace(forecast(0), worker_price=prices.worker, ps_price=prices.ps)
    assert mean_bound(known) == pytest.approx(result.point.bound / 3, rel=1e-9)
    for factor in (0.5, 0.9, 1.1, 2.0):
        other = replace(known, worker_price=factor * known.worker_price, ps_price=factor * known.ps_price)
        assert mean_bound(other) >= mean_bound(known) * (1 - 1e-3)


@pytest.mark.prove
def test_a_further_day_costs_less_than_learning_anew_and_teaches_as_much() -> None:
    *past, today = days(1)
    updated = PriceForecast.fit(past[:2], today, tol=1e-2).updated(past[2], tol=1e-2)
    assert updated.num_days == 3
    assert mean_bound(updated) == pytest.approx(mean_bound(forecast(1)), rel=2e-2)
    _, warm = sample_average(past, today, fill=0.6, start=forecast(1).prices, tol=1e-2)
    _, cold = sample_average(past, today, fill=0.6, tol=1e-2)
    assert len(warm.pool) < len(cold.pool)


def test_a_cluster_that_has_grown_gets_prices_of_its_own() -> None:
    known, today = forecast(0), days(0)[3]
    assert known.on(today) is known
    more = replace(today.worker_servers, count=as_int_array((3 * today.worker_servers.count).tolist()))
    grown = known.on(replace(today, worker_servers=more))
    assert grown.worker_price.shape == known.worker_price.shape
    assert grown.worker_price.sum() < known.worker_price.sum()


def test_the_two_halves_of_equal_days_agree_and_a_single_day_has_none() -> None:
    day = days(0)[0]
    twice = replace(forecast(0), days=(day, day))
    assert replace(twice, days=(day,)).half_difference() is None
    assert twice.half_difference() == 0
    assert forecast(0).half_difference() > 0


def test_halves_whose_jobs_want_different_slots_differ_by_twice_their_mean_worth() -> None:
    def day(slot: int) -> AdmissionInstance:
        jobs = (
            job_document(name, arrival=slot, chunks=1, epochs=1, utility={"kind": "step", "value": 8, "deadline": 0})
            for name in "ab"
        )
        return tiny_instance(*jobs, horizon=2, worker_servers=[{"type": "gpus", "capacity": [1, 0], "count": 1}])

    known = PriceForecast.fit([day(0), day(1)])
    assert known.half_difference() == pytest.approx(2.0, rel=1e-2)  # as near as the LP's tolerance takes the prices


def test_no_day_is_refused() -> None:
    with pytest.raises(InvalidProblemError, match="at least one day"):
        PriceForecast.fit([])


def test_days_that_are_too_short_or_of_other_slots_are_refused_by_name() -> None:
    today = days(0)[0]
    with pytest.raises(InvalidProblemError, match="has 9 slots, instance 'day0' has 10"):
        PriceForecast.fit([today], _longer(today))
    with pytest.raises(InvalidProblemError, match="slots of"):
        PriceForecast.fit([today], replace(today, slot_micro_s=2 * today.slot_micro_s))
    with pytest.raises(InvalidProblemError, match="has 9 slots, instance 'day0' has 10"):
        forecast(0).on(_longer(today))


def _longer(instance):
    def side(servers):
        return replace(servers, capacity=np.concatenate([servers.capacity, servers.capacity[:, :1]], axis=1))

    return replace(
        instance, horizon=10, worker_servers=side(instance.worker_servers), ps_servers=side(instance.ps_servers)
    )


def test_smoothing_averages_over_the_slots_that_there_are() -> None:
    array = np.arange(6.0).reshape(1, 6, 1)
    even = smoothed(Prices(worker=array, ps=array[:0]), 3)
    np.testing.assert_allclose(even.worker[0, :, 0], [0.5, 1, 2, 3, 4, 4.5])
    assert even.ps.shape == (0, 6, 1)
