"""Gandiva by hand: turns, affinity, packings that last or are undone, moves, growth."""

import numpy as np
import pytest

from optim.core.errors import UnsupportedProblemError
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.workload import US
from optim.simulation.cluster.catalogue import make_policy
from optim.simulation.cluster.engine import simulate
from optim.simulation.cluster.options import EngineOptions
from tests.support.small_clusters import workload

PLAIN = {"quantum_s": 10, "switch_s": 0, "move_s": 0, "packs": False, "migrates": False, "grows": False}


def _run(rows, gpus, options, **more):
    jobs = workload(rows, **more)
    return simulate(jobs, Cluster.grid(gpus), make_policy("gandiva", jobs, {**PLAIN, **options}), EngineOptions())


def test_jobs_take_turns_on_a_gpu():
    run = _run([(0, 1, 25), (0, 1, 15)], "1x1", {})
    assert (run.end_us / US).tolist() == [40, 35]


def test_a_turn_costs_what_switching_costs():
    run = _run([(0, 1, 25), (0, 1, 15)], "1x1", {"switch_s": 1})
    # 0-10 a; 10-20 b; 20-30 a with 9; 30-36 b with 5 after a second; 36-43 a with 6 after a second
    assert (run.end_us / US).tolist() == [43, 36]
    assert run.overhead_gpu_us == 3 * US


def test_nodes_have_affinity():
    """Pairs go to the node of pairs, single jobs to that of single jobs, while there is capacity."""
    run = _run([(0, 1, 50), (0, 2, 50), (0, 1, 50), (0, 2, 50)], "2x4", {})
    machines = [[places[0][0] for _, kind, j, places in run.log.rows() if j == job and kind == 0] for job in range(4)]
    assert machines == [[0], [1], [0], [1]]


@pytest.mark.parametrize(
    ("busy", "ends", "kept"),
    [(400, [50, 50], 1), (1000, [100, 90], 0)],
    ids=["both compute little", "both compute all the time"],
)
def test_a_packing_is_kept_if_both_get_more_done(busy, ends, kept):
    """Packings are tried at once.

    They last if two jobs fit together, and are undone if they halve each other's speed.
    """
    run = _run([(0, 1, 50), (0, 1, 50)], "1x1", {"packs": True}, busy_milli=np.array([busy, busy]))
    assert run.figures["packings_kept"] == kept
    if kept:
        assert (run.end_us / US).tolist() == ends
    else:
        assert run.figures["packings_undone"] == 1
        assert run.end_us.max() == 100 * US


def test_a_job_that_shares_in_time_moves_to_a_gpu_that_comes_free():
    rows = [(0, 1, 100), (0, 1, 15), (0, 1, 100)]
    stays, moves = (_run(rows, "1x2", {"migrates": migrates}) for migrates in (False, True))
    assert stays.figures["migrations"] == 0
    assert moves.figures["migrations"] == 1
    assert (stays.end_us.max(), moves.end_us.max()) == (200 * US, 110 * US)


def test_small_jobs_make_way_for_a_gang_wider_than_a_machine():
    rows = [(0, 1, 100), (0, 1, 5), (1, 1, 100), (6, 3, 10)]
    stays, moves = (_run(rows, "3x2", {"migrates": migrates}) for migrates in (False, True))
    assert stays.first_start_us[3] >= moves.first_start_us[3]


def test_a_job_that_opted_in_takes_idle_gpus_and_gives_them_back():
    """Two GPUs while there are no other jobs: 20 of 40 s of work in 10 s; then one."""
    run = _run([(0, 1, 40), (10, 1, 100)], "1x2", {"grows": True}, max_gpus=np.array([2, 1]))
    assert (run.end_us / US).tolist() == [30, 110]


def test_a_gang_wider_than_a_machine_waits_for_whole_nodes():
    run = _run([(0, 1, 12), (0, 4, 10)], "2x2", {})
    assert (run.first_start_us / US).tolist() == [0, 12]


def test_refuses_jobs_that_cannot_run_on_a_type_of_gpu_that_is_there():
    kinds = np.array([[10**6, 0]])
    with pytest.raises(UnsupportedProblemError, match="ignores GPU types"):
        _play_on_two_types(kinds)
    assert _play_on_two_types(2 * kinds.max(keepdims=True).repeat(2, axis=1)).is_done.all()


def _play_on_two_types(kinds):
    jobs = workload([(0, 1, 5)], gpu_type_slowdown_ppm=kinds)
    cluster = Cluster(gpus=np.array([1, 1]), kind=np.array([0, 1]), kinds=("a", "b"))
    return simulate(jobs, cluster, make_policy("gandiva", jobs), EngineOptions())
