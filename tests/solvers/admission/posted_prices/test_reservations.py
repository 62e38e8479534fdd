"""The remainder of a job: capacity, work and promise, slot by slot."""

import numpy as np

from optim.solvers.admission.posted_prices.learned_run import posted_state
from optim.solvers.admission.posted_prices.reservations import Reservations, left_by_class
from optim.solvers.admission.pricing.classes import JobTables, Prices
from tests.support.admission.tiny import job_document, tiny_instance

FREE = Prices(worker=np.zeros((1, 4, 2)), ps=np.zeros((1, 4, 2)))


def reserved(**fields) -> Reservations:
    today = tiny_instance(job_document("a", **fields))
    reservations = Reservations(today, posted_state(today, FREE), JobTables.build(today))
    found = reservations.find(0)
    reservations.promise(found, 0.5 * found.value)
    return reservations


def test_the_promise_is_the_last_slot_that_earns_the_share() -> None:
    # Values 16, 8, 4, 2; the schedule of two slots earns 8, half of it is earned up to slot 2.
    assert reserved().promised == {0: 2}
    assert reserved(utility={"kind": "constant", "value": 5}).promised == {0: 3}


def test_what_has_run_is_done_and_the_rest_arrives_now() -> None:
    reservations = reserved()
    before = left_by_class(reservations.state)[0]
    assert before[0, :, 0].tolist() == [2.0, 2.0, 4.0, 4.0]
    reservations.run_slot(0)
    assert reservations.plan().workers[:, 1].tolist() == [0] * len(reservations.plan().workers)
    reservations.release(0)
    rest = reservations.find(0, floor=-np.inf)
    assert rest.workers[:, 0].min() == 1
    assert rest.workers[:, 2].sum() == 2
    assert left_by_class(reservations.state)[0][0, :, 0].tolist() == [2.0, 4.0, 4.0, 4.0]
    reservations.hold(rest)
    reservations.run_slot(1)
    assert reservations.by_job == {}
    assert reservations.plan().completion.tolist() == [1]


def test_demands_follow_the_work_done_after_a_slot_has_run() -> None:
    segments = [{"start": 0, "worker": [1, 0], "ps": [0, 1]}, {"start": 2, "worker": [2, 0], "ps": [0, 2]}]
    reservations = reserved(segments=segments)
    reservations.run_slot(0)
    reservations.release(0)
    rest = reservations.find(0, floor=-np.inf)
    assert set(rest.workers[:, 3].tolist()) == {1}


def test_worth_is_value_less_the_room_at_posted_prices() -> None:
    reservations = reserved()
    held = reservations.by_job[0]
    assert reservations.value_at_prices(held) == held.schedule.value == 8.0
    for side in reservations.state.sides:
        side.price[:] = 0.5
    units = held.schedule.workers[:, 2].sum() + held.schedule.ps[:, 2].sum()
    assert reservations.value_at_prices(held) == 8.0 - 0.5 * units
