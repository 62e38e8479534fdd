"""Repacking: the value at posted prices only increases, promises hold, and a planted better packing is found."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from optim.solvers.admission.posted_prices.learned_run import post, posted_state
from optim.solvers.admission.posted_prices.reservations import Reservations, improve
from optim.solvers.admission.pricing.classes import JobTables, Prices
from tests.support.admission.days import CLUSTERS, days, forecast, wrong
from tests.support.admission.tiny import job_document, tiny_instance


def filled(today, prices, share=0.5) -> Reservations:
    """Reserve as many jobs as have a positive payoff."""
    reservations = Reservations(today, posted_state(today, prices), JobTables.build(today))
    for job in range(today.num_jobs):
        found = reservations.find(job)
        if found is not None:
            reservations.promise(found, share * found.value)
    return reservations


def total(reservations: Reservations) -> float:
    return sum(map(reservations.value_at_prices, reservations.by_job.values()))


@given(cluster=st.integers(0, CLUSTERS - 1), seed=st.integers(0, 10**6))
def test_worth_grows_and_promises_stay(cluster, seed) -> None:
    today, known = days(cluster)[-1], wrong(cluster, "random", seed)
    reservations = filled(today, known.prices)
    post(reservations.state, forecast(cluster).prices)
    before, promised = total(reservations), dict(reservations.promised)
    gained = improve(reservations, 10, np.random.default_rng(seed))
    assert gained >= -1e-9 * abs(before)
    np.testing.assert_allclose(total(reservations), before + gained, rtol=1e-9, atol=1e-9)
    assert reservations.promised == promised
    for job, reservation in reservations.by_job.items():
        assert reservation.schedule.completion <= promised[job]
    for side in reservations.state.sides:
        taken = np.zeros_like(side.capacity)
        kind = reservations.state.sides.index(side)
        for reservation in reservations.by_job.values():
            use = reservation.uses[kind]
            taken[use.slot, :, use.server] += use.amount
        np.testing.assert_array_equal(side.capacity - side.residual, taken)


def test_a_reservation_leaves_slots_that_have_become_dear() -> None:
    flat = {"kind": "constant", "value": 9}
    today = tiny_instance(job_document("a", utility=flat))
    free = Prices(worker=np.zeros((1, 4, 2)), ps=np.zeros((1, 4, 2)))
    reservations = filled(today, free)
    assert reservations.promised[0] == 3
    assert reservations.by_job[0].schedule.completion == 1
    dear = Prices(worker=np.zeros((1, 4, 2)), ps=np.zeros((1, 4, 2)))
    dear.worker[0, :2, 0] = 1.0
    post(reservations.state, dear)
    assert improve(reservations, 20, np.random.default_rng(0)) == 4.0
    assert set(reservations.by_job[0].schedule.workers[:, 0].tolist()) == {2, 3}


def test_half_of_the_moves_see_prices_that_are_off_by_at_most_half_in_a_slot_and_in_a_class(monkeypatch) -> None:
    servers = {"worker_servers": [{"type": f"gpus{c}", "capacity": [2, 0], "count": 1} for c in range(2)]}
    today = tiny_instance(**servers)
    reservations = filled(today, Prices(worker=np.zeros((2, 4, 2)), ps=np.zeros((1, 4, 2))))
    post(reservations.state, Prices(worker=np.ones((2, 4, 2)), ps=np.ones((1, 4, 2))))
    workers, seen, search = reservations.state.sides[0], [], reservations.find

    def watched(job, floor=0.0):
        seen.append(workers.price)
        return search(job, floor)

    monkeypatch.setattr(reservations, "find", watched)
    improve(reservations, 200, np.random.default_rng(0))
    noisy = [price for price in seen if (price != 1).any()]
    assert 80 < len(noisy) < 120
    assert min(price.min() for price in noisy) >= 0.5 * 0.5
    assert max(price.max() for price in noisy) <= 1.5 * 1.5
    assert (workers.price == 1).all()


def test_nothing_held_is_nothing_to_do() -> None:
    today = tiny_instance()
    free = Prices(worker=np.zeros((1, 4, 2)), ps=np.zeros((1, 4, 2)))
    empty = Reservations(today, posted_state(today, free), JobTables.build(today))
    assert improve(empty, 5, np.random.default_rng(0)) == 0.0
