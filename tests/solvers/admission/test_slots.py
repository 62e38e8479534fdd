"""The engine of the slot-by-slot solvers: the views and actions of policies, and the results."""

from collections.abc import Callable, Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.core.driver import Monitor
from optim.core.errors import NotAllowedError
from optim.core.progress import SilentProgress
from optim.core.solution import Termination
from optim.core.stopping import IterationLimit
from optim.models.admission.codec import StepDocument, document_from_instance
from optim.models.admission.instance import AdmissionInstance, instance_from_document
from optim.solvers.admission.drf import DrfPolicy
from optim.solvers.admission.fifo import FifoPolicy, FixedWorkers
from optim.solvers.admission.rrh import RrhOptions, RrhPolicy
from optim.solvers.admission.slots import Allocation, Board, JobView, SlotPolicy, SlotServers, SlotState, run_slots
from tests.support.admission.slot_runs import cluster, families, job, plan_faults, recorded, run, seeded_instance, seeds
from tests.support.admission.strategies import ServerSketch


def fifo() -> FifoPolicy:
    return FifoPolicy(FixedWorkers(1, 4, np.random.default_rng(0)))


def rrh() -> RrhPolicy:
    return RrhPolicy(RrhOptions(), FixedWorkers(1, 4, np.random.default_rng(0)))


POLICIES: Mapping[str, Callable[[], SlotPolicy]] = {"fifo": fifo, "drf": DrfPolicy, "rrh": rrh}


class Greedy:
    """Give every job as many workers as fit, old servers first."""

    def allocate(self, state: SlotState) -> Mapping[int, Allocation]:
        for view in state.jobs:
            if view.job in state.previous:
                state.board.hold(view, state.previous[view.job], view.useful_workers)
            state.board.add_up_to(view, view.useful_workers)
        return state.board.allocations()


class Fixed:
    """Answer every slot in the same way."""

    def __init__(self, answer: Mapping[int, Allocation]) -> None:
        self._answer = answer

    def allocate(self, state: SlotState) -> Mapping[int, Allocation]:
        return self._answer


def allocation(workers: list[int], ps: list[int]) -> Allocation:
    return Allocation(workers=np.array(workers), ps=np.array(ps))


def first_state(instance: AdmissionInstance) -> tuple[Board, tuple[JobView, ...]]:
    """Return the empty board and the jobs of slot 0."""

    class Idle:
        def allocate(self, state: SlotState) -> Mapping[int, Allocation]:
            return {}

    recorder, _ = recorded(instance, Idle())
    return recorder.states[0].board, recorder.states[0].jobs


def held(board: Board, view: JobView) -> tuple[list[int], list[int]]:
    own = board.allocations()[view.job]
    return own.workers.tolist(), own.ps.tolist()


def test_places_units_on_the_next_server_with_room() -> None:
    instance = cluster([job(9), job(9)], ServerSketch(capacity=("2",), count=3))
    board, (first, second) = first_state(instance)
    assert board.add(first, 2)
    assert board.add(second, 2)
    assert held(board, first)[0] == [1, 1, 0]
    assert held(board, second)[0] == [1, 0, 1]


def test_passes_over_full_servers() -> None:
    instance = cluster([job(9)], ServerSketch(capacity=("1",)), ServerSketch(capacity=("4",)))
    board, (view,) = first_state(instance)
    assert board.add(view, 4)
    assert held(board, view)[0] == [1, 3]


def test_places_all_of_a_request_or_nothing() -> None:
    instance = cluster([job(9), job(9)], ServerSketch(capacity=("2",), count=2))
    board, (view, other) = first_state(instance)
    assert board.add(view, 1)
    assert not board.add(view, 4)
    assert held(board, view)[0] == [1, 0]
    assert board.add(other, 3)


def test_leaves_no_workers_behind_when_their_ps_lacks_room() -> None:
    sketch = job(4, ps=("1",), workers_per_ps="2")
    instance = cluster([sketch], ServerSketch(capacity=("4",)), ps_servers=(ServerSketch(capacity=("1",)),))
    board, (view,) = first_state(instance)
    assert not board.add(view, 3)
    assert board.allocations() == {}
    assert board.add_up_to(view, 4) == 2
    assert held(board, view) == ([2], [1])


def test_holds_units_where_they_were() -> None:
    instance = cluster([job(9)], ServerSketch(capacity=("4",), count=2))
    board, (view,) = first_state(instance)
    assert board.hold(view, allocation([0, 3], [1]), 3) == 3
    assert held(board, view) == ([0, 3], [1])


def test_drops_workers_whose_ps_finds_no_room() -> None:
    sketch = job(6, ps=("1",), workers_per_ps="2")
    instance = cluster(
        [sketch],
        ServerSketch(capacity=("3",), count=2),
        ps_servers=(ServerSketch(capacity=("2",)),),
    )
    board, (view,) = first_state(instance)
    assert board.hold(view, allocation([3, 3], [3]), 6) == 4
    assert held(board, view) == ([3, 1], [2])


def test_places_by_class_and_puts_the_rest_anywhere() -> None:
    instance = cluster([job(9), job(9)], ServerSketch(capacity=("2",), count=2), ServerSketch(capacity=("3",)))
    board, (view, other) = first_state(instance)
    assert board.add(other, 2)  # one worker on each server of the first class
    assert board.place_by_class(view, None, np.array([4, 0]), np.array([1])) == 4
    assert held(board, view)[0] == [1, 1, 2]


def test_does_not_share_a_server_beyond_a_jobs_share() -> None:
    sketch = job(4, ps=("1",), workers_per_ps="1")
    servers = ServerSketch(capacity=("4",), count=2)
    instance = cluster([sketch], servers, ps_servers=None, share="0.5")
    board, (view,) = first_state(instance)
    assert board.add_up_to(view, 4) == 2
    workers, ps = held(board, view)
    assert [y + z for y, z in zip(workers, ps, strict=True)] == [2, 2]


def test_a_single_unit_may_exceed_a_jobs_share_of_a_server() -> None:
    """Three tenths of a server are less than a unit: the worker and its PS each have a server to themselves."""
    sketch = job(2, ps=("1",), workers_per_ps="1")
    instance = cluster([sketch], ServerSketch(capacity=("3",), count=2), ps_servers=None, share="0.3")
    board, (view,) = first_state(instance)
    assert board.add_up_to(view, 2) == 1
    assert held(board, view) == ([1, 0], [0, 1])


def test_drops_ps_that_no_worker_needs() -> None:
    sketch = job(4, ps=("1",), workers_per_ps="2")
    instance = cluster([sketch], ServerSketch(capacity=("4",)), ps_servers=(ServerSketch(capacity=("9",)),))
    board, (view,) = first_state(instance)
    board.place_by_class(view, None, np.array([2]), np.array([2]))
    assert held(board, view) == ([2], [1])


def test_shows_a_policy_only_jobs_that_have_arrived() -> None:
    instance = cluster([job(1), job(1, arrival=2), job(1, arrival=2)], ServerSketch(capacity=("9",)))
    recorder, _ = recorded(instance, Greedy())
    assert [[view.job for view in state.jobs] for state in recorder.states] == [[0], [], [1, 2], []]


@given(seed=seeds, slot=st.integers(0, 5))
def test_decides_without_knowledge_of_later_jobs(seed: int, slot: int) -> None:
    """Jobs that arrive in a slot or later change no earlier decision."""
    instance = seeded_instance(seed)
    for make_policy in POLICIES.values():
        seen = []
        for known in (instance, without_jobs_from(instance, slot)):
            recorder, _ = recorded(known, make_policy())
            names = known.jobs.ids
            seen.append(
                [
                    {names[i]: (own.workers.tolist(), own.ps.tolist()) for i, own in answer.items()}
                    for answer in recorder.answers[:slot]
                ]
            )
        assert seen[0] == seen[1]


@given(instance=families())
def test_plans_are_feasible(instance: AdmissionInstance) -> None:
    for name, make_policy in POLICIES.items():
        assert (name, plan_faults(instance, run(instance, make_policy()).plan)) == (name, [])


@given(seed=seeds)
def test_plans_of_larger_clusters_are_feasible(seed: int) -> None:
    instance = seeded_instance(seed, max_jobs=12)
    for name, make_policy in POLICIES.items():
        assert (name, plan_faults(instance, run(instance, make_policy()).plan)) == (name, [])


@given(seed=seeds)
def test_accounts_for_every_job_and_slot(seed: int) -> None:
    """Jobs end as admitted, unfinished or never started; progress and demand segments follow the counts."""
    instance = seeded_instance(seed)
    recorder, outcome = recorded(instance, Greedy())
    counts = outcome.counts(instance.num_jobs)
    assert counts["admitted"] + counts["unfinished"] + counts["never_started"] == instance.num_jobs
    for before, answer, after in zip(recorder.states, recorder.answers, recorder.states[1:], strict=False):
        later = {view.job: view for view in after.jobs}
        for view in before.jobs:
            workers = int(answer[view.job].workers.sum()) if view.job in answer else 0
            done = view.done + int(instance.progress[view.job][workers])
            if done >= instance.target[view.job]:
                assert outcome.completion[view.job] == before.slot
                assert view.job not in later
            else:
                first, end = instance.jobs.segment_offset[view.job : view.job + 2].tolist()
                passed = sum(instance.jobs.segment_start[first:end] <= done)
                assert (later[view.job].done, later[view.job].segment) == (done, first + passed - 1)


def without_jobs_from(instance: AdmissionInstance, slot: int) -> AdmissionInstance:
    """Return the instance without the jobs that arrive in a slot or later."""
    document = document_from_instance(instance)
    document.jobs = [sketch for sketch in document.jobs if sketch.arrival < slot]
    return instance_from_document(document)


def test_turns_go_on_where_they_ended_the_slot_before() -> None:
    instance = cluster([job(1), job(1, arrival=1)], ServerSketch(capacity=("1",), count=3))
    recorder, _ = recorded(instance, Greedy())
    assert recorder.answers[1][1].workers.tolist() == [0, 1, 0]


def test_leaves_out_what_earns_nothing_and_counts_it() -> None:
    instance = cluster(
        [
            job(1, 2),  # earns
            job(1, 3, utility=StepDocument(value=5.0, max_delay=1)),  # completes too late
            job(1, 9),  # never completes
            job(1, worker=("99",)),  # never starts
        ],
        ServerSketch(capacity=("3",)),
    )
    outcome = run(instance, Greedy())
    assert outcome.plan.admitted.tolist() == [0]
    assert outcome.completion == {0: 1, 1: 2}
    assert outcome.counts(4) == {"admitted": 1, "unfinished": 2, "late": 1, "never_started": 1}


def test_shrinks_and_pauses_a_job_that_loses_its_room_and_resumes_it() -> None:
    """Capacities 3, 1, 0, 3: two of three workers leave, then the last; a later job gets none of their capacity."""
    falling = ServerSketch(capacity=(("3",), ("1",), ("0",), ("3",)))
    instance = cluster([job(3, 2), job(1)], falling)
    recorder, outcome = recorded(instance, FifoPolicy(FixedWorkers(3, 3, np.random.default_rng(0))))
    assert recorder.workers() == [{0: 3}, {0: 1}, {}, {0: 2, 1: 1}]
    assert outcome.completion == {0: 3, 1: 3}


def test_asks_for_the_demand_of_the_segment_in_which_the_slot_starts() -> None:
    """Two units an early worker, three a late one: of seven units, three workers fit, then two."""
    sketch = job(3, 2, worker=("2",), segments=((3, ("3",), ("0",)),))
    recorder, _ = recorded(cluster([sketch], ServerSketch(capacity=("7",))), Greedy())
    assert recorder.workers() == [{0: 3}, {0: 2}, {0: 1}, {}]


def test_stops_when_told_and_keeps_what_is_complete() -> None:
    instance = cluster([job(1), job(1, 3)], ServerSketch(capacity=("2",)))
    outcome = run(instance, Greedy(), IterationLimit(2))
    assert (outcome.reason, outcome.slots_run) == (Termination.ITERATION_LIMIT, 2)
    assert outcome.plan.admitted.tolist() == [0]
    assert outcome.counts(2)["unfinished"] == 1


def test_tells_the_value_earned_slot_by_slot() -> None:
    told: list[tuple[float, float | None]] = []

    class Listener(SilentProgress):
        def update(self, completed: float, values: Mapping[str, float | None] | None = None) -> None:
            told.append((completed, (values or {})["objective"]))

    instance = cluster([job(1), job(1, 2)], ServerSketch(capacity=("2",)), horizon=3)
    run_slots(instance, Greedy(), Monitor(progress=Listener()), task="slots")
    assert told == [(1, 1.0), (2, 2.0), (3, 2.0)]


CHEATS = {
    "hasn't arrived": ({1: allocation([1, 0], [1])}, {}),
    r"row \(3\)": ({0: allocation([3, 1], [2])}, {}),
    "need 2": ({0: allocation([3, 0], [1])}, {}),
    "3 PSs for 2 workers": ({0: allocation([2, 0], [3])}, {}),
    "more units than one job": ({0: allocation([0, 3], [2])}, {}),
    "negative": ({0: allocation([3, -1], [1])}, {}),
    "more of a server than its free capacity": ({0: allocation([3, 0], [2]), 2: allocation([1, 0], [1])}, {}),
    "more of a server than one job may use": (
        {0: allocation([1, 1], [1, 0])},
        {"ps_servers": None, "share": "0.5"},
    ),
}


@pytest.mark.parametrize("text", CHEATS)
def test_refuses_an_allocation_that_is_not_allowed(text: str) -> None:
    answer, form = CHEATS[text]
    sketch = job(3, 9, ps=("1",), workers_per_ps="2")
    servers = ServerSketch(capacity=("3",)), ServerSketch(capacity=("2",))
    fields = {"ps_servers": (ServerSketch(capacity=("9",)),), **form}
    instance = cluster([sketch, job(1, arrival=3), job(1)], *servers, **fields)
    with pytest.raises(NotAllowedError, match=text):
        run(instance, Fixed(answer))


def test_refuses_a_complete_job() -> None:
    instance = cluster([job(1)], ServerSketch(capacity=("3",)))
    with pytest.raises(NotAllowedError, match="complete"):
        run(instance, Fixed({0: allocation([1], [1])}))


def test_counts_whole_classes_exactly() -> None:
    instance = cluster([job(3)], ServerSketch(capacity=("2.5",), count=2), ServerSketch(capacity=("1",)))
    servers = SlotServers(instance, 0)
    view = first_state(instance)[1][0]
    assert servers.worker_total == (6_000_000,)
    assert [limit.tolist() for limit in servers.class_limits(view)] == [[4, 1], [1]]
    assert [count.tolist() for count in servers.class_counts(allocation([1, 2, 1], [1]))] == [[3, 1], [1]]
