"""First in, first out: fixed workers, order of arrival, head-of-line blocking."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from optim.core.errors import InvalidOptionError
from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.fifo import FifoOptions, FifoPolicy, FixedWorkers
from tests.support.admission.slot_runs import cluster, job, recorded
from tests.support.admission.strategies import ServerSketch


def fixed(number: int) -> FifoPolicy:
    """Return a FIFO policy in which every job requests `number` workers."""
    return FifoPolicy(FixedWorkers(number, number, np.random.default_rng(0)))


def workers(instance: AdmissionInstance, number: int) -> list[dict[int, int]]:
    """Return the workers of each job, slot by slot."""
    return recorded(instance, fixed(number))[0].workers()


def test_nobody_overtakes_a_head_that_does_not_fit() -> None:
    """Job 1 waits for three of four workers; job 2 would fit together with job 0 but waits behind it."""
    instance = cluster([job(3, 2), job(3), job(1)], ServerSketch(capacity=("4",)))
    assert workers(instance, 3) == [{0: 3}, {0: 3}, {1: 3, 2: 1}, {}]


def test_serves_by_arrival_then_by_position() -> None:
    instance = cluster([job(2, arrival=1), job(2), job(2)], ServerSketch(capacity=("2",)))
    assert workers(instance, 2) == [{1: 2}, {2: 2}, {0: 2}, {}]


def test_holds_the_same_servers_to_completion() -> None:
    instance = cluster([job(1), job(2, 3)], ServerSketch(capacity=("2",), count=3))
    recorder, _ = recorded(instance, fixed(2))
    places = [answer[1].workers.tolist() for answer in recorder.answers[:3]]
    assert places == [[0, 1, 1]] * 3


def test_keeps_only_the_workers_that_complete_a_job() -> None:
    """Five worker-slots at two workers: the last slot needs one, and the queue gets the other."""
    instance = cluster([job(5), job(1)], ServerSketch(capacity=("2",)))
    assert workers(instance, 2) == [{0: 2}, {0: 2}, {0: 1, 1: 1}, {}]


def test_starts_a_head_wider_than_the_cluster_with_what_it_holds() -> None:
    instance = cluster([job(5), job(1)], ServerSketch(capacity=("3",)))
    assert workers(instance, 30) == [{0: 3}, {0: 2, 1: 1}, {}, {}]


def test_passes_over_a_job_that_no_server_can_hold() -> None:
    instance = cluster([job(1, worker=("9",)), job(1)], ServerSketch(capacity=("3",)))
    assert workers(instance, 1)[0] == {1: 1}


def test_waits_for_the_night_when_the_day_has_no_room() -> None:
    by_slot = ServerSketch(capacity=(("1",), ("1",), ("3",), ("3",)))
    instance = cluster([job(2, worker=("1.5",)), job(2)], by_slot)
    assert workers(instance, 2) == [{1: 1}, {1: 1}, {0: 2}, {}]


def test_gives_every_job_the_ps_that_its_workers_need() -> None:
    sketch = job(5, ps=("1",), workers_per_ps="2")
    instance = cluster([sketch], ServerSketch(capacity=("9",)), ps_servers=(ServerSketch(capacity=("9",)),))
    recorder, _ = recorded(instance, fixed(5))
    assert recorder.answers[0][0].ps.tolist() == [3]


def test_raises_a_number_too_small_to_finish_a_chunk() -> None:
    """A chunk takes 2.5 worker-slots: two workers would finish none."""
    sketch = job(4, chunk_slots="2.5")
    instance = cluster([sketch], ServerSketch(capacity=("9",)), chunk_integral=True)
    assert workers(instance, 2) == [{0: 3}] * 4


def test_those_that_started_first_keep_their_room() -> None:
    """Job 0 waits for the night; when capacity falls again, job 1, which started before it, keeps its allocation."""
    by_slot = ServerSketch(capacity=(("1",), ("3",), ("1.9",), ("1.9",)))
    instance = cluster([job(1, 9, worker=("1.5",)), job(1, 9)], by_slot)
    assert workers(instance, 1) == [{1: 1}, {0: 1, 1: 1}, {1: 1}, {1: 1}]


def test_pauses_a_job_whose_workers_would_finish_no_chunk() -> None:
    """A chunk takes 2.5 worker-slots: where two workers are left, none runs."""
    falling = ServerSketch(capacity=(("3",), ("2",), ("3",), ("3",)))
    instance = cluster([job(4, chunk_slots="2.5")], falling, chunk_integral=True)
    assert workers(instance, 3) == [{0: 3}, {}, {0: 3}, {0: 3}]


def test_a_paused_job_leaves_its_room_until_it_has_enough_of_it() -> None:
    """Job 0 takes 2.5 worker-slots a chunk, job 1 one: of the night's two workers job 1 has one, and job 0 none."""
    by_slot = ServerSketch(capacity=(("3",), ("2",), ("2",), ("3",)))
    instance = cluster([job(4, chunk_slots="2.5"), job(1, arrival=2)], by_slot, chunk_integral=True)
    assert workers(instance, 3) == [{0: 3}, {}, {1: 1}, {0: 3}]


def test_draws_numbers_in_order_of_arrival() -> None:
    draws = np.random.default_rng(7).integers(1, 31, size=3)
    instance = cluster([job(99), job(99), job(99, arrival=1)], ServerSketch(capacity=("99",)))
    policy = FifoPolicy(FixedWorkers(1, 30, np.random.default_rng(7)))
    rows = recorded(instance, policy)[0].workers()
    assert [rows[0][0], rows[0][1], rows[1][2]] == draws.tolist()


def test_caps_a_number_by_the_chunks_of_the_job() -> None:
    instance = cluster([job(2, 9)], ServerSketch(capacity=("99",)))
    assert workers(instance, 30)[0] == {0: 2}


@pytest.mark.parametrize("given", [{"min_workers": 0}, {"min_workers": 5, "max_workers": 4}])
def test_refuses_an_empty_range(given: Mapping[str, Any]) -> None:
    with pytest.raises(InvalidOptionError, match="min_workers <= max_workers"):
        FifoOptions(**given)
