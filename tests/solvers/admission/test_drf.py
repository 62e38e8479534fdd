"""Dominant resource fairness: progressive filling by dominant share."""

import pytest
from hypothesis import example, given

from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.drf import DrfPolicy, dominant_share
from tests.support.admission.slot_runs import cluster, job, recorded, seeded_instance, seeds
from tests.support.admission.strategies import ServerSketch


def workers(instance: AdmissionInstance) -> list[dict[int, int]]:
    """Return the workers of each job, slot by slot."""
    return recorded(instance, DrfPolicy())[0].workers()


def test_shares_nine_cpus_and_eighteen_gigabytes_as_its_inventors_do() -> None:
    """Users that need <1 CPU, 4 GB> and <3 CPU, 1 GB> get three and two tasks (Ghodsi et al., section 4.1)."""
    users = [job(9, worker=("1", "4")), job(9, worker=("3", "1"))]
    instance = cluster(users, ServerSketch(capacity=("9", "18")), horizon=1)
    recorder, _ = recorded(instance, DrfPolicy())
    assert recorder.workers() == [{0: 3, 1: 2}]
    state = recorder.states[0]
    shares = [dominant_share(view, state.board.servers, n) for view, n in zip(state.jobs, (3, 2), strict=True)]
    assert shares == [pytest.approx(2 / 3), pytest.approx(2 / 3)]


def test_equal_jobs_share_equally_and_the_first_gets_the_rest() -> None:
    instance = cluster([job(9), job(9), job(9)], ServerSketch(capacity=("7",)), horizon=1)
    assert workers(instance) == [{0: 3, 1: 2, 2: 2}]


def test_a_narrow_job_leaves_its_share_to_the_others() -> None:
    instance = cluster([job(1, 9), job(9, 9)], ServerSketch(capacity=("6",)), horizon=1)
    assert workers(instance) == [{0: 1, 1: 5}]


def test_divides_anew_when_a_job_arrives_or_completes() -> None:
    instance = cluster([job(8), job(2, arrival=1)], ServerSketch(capacity=("4",)))
    assert workers(instance) == [{0: 4}, {0: 2, 1: 2}, {0: 2}, {}]


def test_a_ps_counts_towards_the_share_of_its_own_servers() -> None:
    """One PS per worker takes a quarter of its hosts, a worker an eighth of its hosts."""
    heavy, light = job(9, ps=("1",), workers_per_ps="1"), job(9)
    instance = cluster(
        [heavy, light],
        ServerSketch(capacity=("8",)),
        ps_servers=(ServerSketch(capacity=("4",)),),
        horizon=1,
    )
    assert workers(instance) == [{0: 3, 1: 5}]


def test_a_shared_server_counts_workers_and_ps_together() -> None:
    """A worker with its PS takes two units of nine: both reach 4/9, and the last unit holds a worker alone."""
    heavy, light = job(9, ps=("1",), workers_per_ps="1"), job(9)
    instance = cluster([heavy, light], ServerSketch(capacity=("9",)), ps_servers=None, horizon=1)
    assert workers(instance) == [{0: 2, 1: 5}]


def test_a_ps_is_added_when_the_need_steps_up() -> None:
    sketch = job(5, ps=("1",), workers_per_ps="2")
    instance = cluster([sketch], ServerSketch(capacity=("9",)), ps_servers=(ServerSketch(capacity=("2",)),), horizon=1)
    recorder, _ = recorded(instance, DrfPolicy())
    own = recorder.answers[0][0]
    assert (own.workers.tolist(), own.ps.tolist()) == ([4], [2])


def test_grows_by_whole_chunks_where_these_count() -> None:
    """A chunk takes two worker-slots: three workers fit, but the third would complete no chunk."""
    sketch = job(4, 9, chunk_slots="2")
    instance = cluster([sketch], ServerSketch(capacity=("3",)), horizon=1, chunk_integral=True)
    assert workers(instance) == [{0: 2}]


@given(seed=seeds)
@example(
    seed=250794044
)  # on shared servers: a worker and its PS that don't fit at one round-robin position may fit at a later one
def test_no_job_could_grow_after_the_filling_nor_has_a_useless_worker(seed: int) -> None:
    recorder, _ = recorded(seeded_instance(seed), DrfPolicy())
    for state in recorder.states:
        for view in state.jobs:
            count = state.board.count(view)
            assert count <= view.useful_workers
            goal = view.next_count(count)
            assert goal == count or count >= view.useful_workers or not state.board.add(view, goal - count)
