"""Standby by hand: the jobs that run on unallocated resources, their order, and the cost of interruptions."""

import numpy as np
import pytest

from optim.solvers.admission.posted_prices.learned_run import FREE, discounted, posted_state
from optim.solvers.admission.posted_prices.reservations import BestEffortQueue, Reservations
from optim.solvers.admission.pricing.classes import JobTables, Prices
from tests.support.admission.days import days
from tests.support.admission.tiny import job_document, tiny_instance


def constant(value: float) -> dict:
    return {"kind": "constant", "value": value}


def cluster(*jobs: dict, price: float = 100.0, horizon: int = 4) -> Reservations:
    """Return one GPU, expensive at the posted price, and PS hosts that are free."""
    today = tiny_instance(*jobs, horizon=horizon, worker_servers=[{"type": "gpu", "capacity": [1, 0], "count": 1}])
    worker = np.zeros((1, horizon, 2))
    worker[:, :, 0] = price
    prices = Prices(worker=worker, ps=np.zeros((today.ps_servers.num_classes, horizon, 2)))
    return Reservations(today, posted_state(today, prices), JobTables.build(today))


def lived(reservations: Reservations, standby: BestEffortQueue, slots: range) -> list[float]:
    """Run slots at prices that ignore later slots; return the earnings of each."""
    earned = []
    for slot in slots:
        with discounted(reservations.state, slot, ahead=1e9) as posted:
            earned.append(standby.run_slot(slot, posted))
        reservations.run_slot(slot)
    return earned


def one(name: str, slots: int, value: float, arrival: int = 0) -> dict:
    """Return a job of a number of slots of one worker."""
    return job_document(name, chunks=1, epochs=slots, utility=constant(value), arrival=arrival)


def test_a_refused_job_runs_on_what_nobody_holds() -> None:
    reservations = cluster(one("a", 2, 5.0))
    assert reservations.find(0) is None
    standby = BestEffortQueue(reservations, 10)
    standby.add(0)
    assert lived(reservations, standby, range(4)) == [0.0, 5.0, 0.0, 0.0]
    assert (standby.completed, standby.waiting) == ({0: 1}, ())
    assert reservations.plan().workers[:, :3].tolist() == [[0, 0, 0], [0, 1, 0]]
    assert len(standby.unfinished().workers) == 0
    assert all((side.residual == side.capacity).all() for side in reservations.state.sides)


def test_the_dense_job_goes_first_and_work_that_is_done_makes_a_job_dense() -> None:
    # 3 slots for 9, 1 slot for 4: 4 per slot precedes 3; with two slots done the first job earns 9 with one more slot.
    reservations = cluster(one("long", 3, 9.0), one("short", 1, 4.0), one("late", 1, 8.0, arrival=3), horizon=5)
    standby = BestEffortQueue(reservations, 10)
    standby.add(0)
    standby.add(1)
    assert lived(reservations, standby, range(3)) == [4.0, 0.0, 0.0]
    standby.add(2)
    assert lived(reservations, standby, range(3, 5)) == [9.0, 8.0]
    assert standby.completed == {1: 0, 0: 3, 2: 4}


def test_what_is_promised_goes_before_and_the_interrupted_job_goes_on_where_it_was() -> None:
    reservations = cluster(one("waits", 2, 5.0), one("promised", 1, 500.0, arrival=1))
    standby = BestEffortQueue(reservations, 10)
    standby.add(0)
    assert lived(reservations, standby, range(1)) == [0.0]
    found = reservations.find(1)
    reservations.promise(found, found.value)
    at = int(found.workers[0, 0])
    assert sum(lived(reservations, standby, range(1, 4))) == 5.0
    ran = {tuple(row[:2]) for row in reservations.plan().workers.tolist()}
    assert (1, at) in ran
    assert (0, at) not in ran
    assert sum(job == 0 for job, _ in ran) == 2


def test_a_job_that_does_not_get_to_its_end_has_run_for_nothing() -> None:
    reservations = cluster(one("a", 4, 5.0), one("b", 1, 500.0, arrival=2))
    standby = BestEffortQueue(reservations, 10)
    standby.add(0)
    lived(reservations, standby, range(2))
    found = reservations.find(1)
    reservations.promise(found, found.value)
    assert lived(reservations, standby, range(2, 4)) == [0.0, 0.0]
    assert standby.completed == {}
    assert set(standby.unfinished().workers[:, 0].tolist()) == {0}
    assert [row[:2] for row in standby.unfinished().workers.tolist()] == [[0, 0], [0, 1]]
    assert reservations.plan().admitted.tolist() == [1]


def test_a_job_that_can_earn_nothing_any_more_waits_no_longer() -> None:
    due = job_document("a", chunks=1, epochs=2, utility={"kind": "step", "value": 5.0, "deadline": 2})
    reservations = cluster(due, one("b", 4, 500.0))
    found = reservations.find(1)
    reservations.promise(found, found.value)
    standby = BestEffortQueue(reservations, 10)
    standby.add(0)
    lived(reservations, standby, range(2))
    assert standby.waiting == (0,)
    lived(reservations, standby, range(2, 4))
    assert standby.waiting == ()


@pytest.mark.parametrize(("most", "kept"), [(1, {1}), (2, {1, 2}), (3, {0, 1, 2})])
def test_the_least_dense_give_up_where_too_many_wait(most, kept) -> None:
    jobs = [one(name, 2, value) for name, value in (("a", 1.0), ("b", 3.0), ("c", 2.0))]
    reservations = cluster(*jobs)
    standby = BestEffortQueue(reservations, most)
    for job in range(3):
        standby.add(job)
    lived(reservations, standby, range(1))
    assert set(standby.waiting) == kept
    assert set(standby.unfinished().workers[:, 0].tolist()) == {1}


def test_prices_count_for_the_part_that_is_still_wanted_and_come_back() -> None:
    today, rng = days(0)[-1], np.random.default_rng(1)
    shapes = today.worker_servers.capacity.shape, today.ps_servers.capacity.shape
    state = posted_state(today, Prices(worker=rng.random(shapes[0]), ps=rng.random(shapes[1])))
    before = [side.price for side in state.sides]
    with discounted(state, 3, ahead=2.0) as posted:
        for side, price, given in zip(state.sides, before, posted, strict=True):
            assert given is price
            assert (side.price[:4] == FREE).all()
            for k in (1, 2, 5):
                np.testing.assert_allclose(side.price[3 + k], price[3 + k] * (1 - np.exp(-k / 2)), atol=2 * FREE)
    with discounted(state, 3, ahead=0.0):
        for side, price in zip(state.sides, before, strict=True):
            assert (side.price[:4] == FREE).all()
            np.testing.assert_allclose(side.price[4:], price[4:], atol=2 * FREE)
    assert all(side.price is price for side, price in zip(state.sides, before, strict=True))


def test_a_search_that_fails_leaves_the_posted_prices_in_force() -> None:
    state = cluster(one("a", 1, 1.0)).state
    before = [side.price for side in state.sides]

    def fail() -> None:
        with discounted(state, 0, ahead=0.0):
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert all(side.price is price for side, price in zip(state.sides, before, strict=True))
