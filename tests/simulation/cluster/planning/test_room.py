"""GPUs that the placement rules choose, exclusive and shared, compared with a search through all machines."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.models.cluster.cluster import Cluster
from optim.simulation.cluster.engine import simulate
from optim.simulation.cluster.index.policy import IndexPolicy, Key
from optim.simulation.cluster.options import EngineOptions, Placement
from optim.simulation.cluster.planning.free_gpus import FreeGpus, SimulationContext
from optim.simulation.cluster.planning.policy import Plan, PlanningPolicy
from tests.support.small_clusters import workload

SIZES = np.array([4, 2, 4])


def _room(rows, sizes=SIZES, spread=False, placement=Placement.BEST_FIT, is_shared=False, **more):
    return FreeGpus(
        SimulationContext(
            workload(rows, **more), Cluster(gpus=sizes, cpus=8.0 * np.array(sizes)), placement, spread, is_shared
        )
    )


class InOrder(PlanningPolicy):
    """First come, first served as a planning policy, which places gangs as the compiled loop does."""

    name = "in-order"

    def plan(self, view):
        gpus, room = dict(view.running), view.room()
        for job in view.waiting.tolist():
            taken = room.place(job)
            if taken:
                gpus[job] = taken
        return Plan(gpus=gpus)


@given(st.data())
def test_gangs_are_placed_where_the_compiled_loop_places_them(data):
    """The planning policy and the compiled loop have the same starts and ends on the same machines."""
    sizes = np.array(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    rows = sorted(
        (
            data.draw(st.integers(0, 6)),
            data.draw(st.integers(1, min(6, int(sizes.sum())))),
            data.draw(st.integers(1, 5)),
        )
        for _ in range(8)
    )
    jobs = workload([(when - rows[0][0], *rest) for when, *rest in rows])
    options = EngineOptions(placement=data.draw(st.sampled_from(list(Placement))), spread=data.draw(st.booleans()))
    cluster = Cluster(gpus=sizes)
    key = simulate(jobs, cluster, IndexPolicy(name="fifo", key=Key.SUBMISSION), options)
    plan = simulate(jobs, cluster, InOrder(), options)
    by_machine = [
        (time, kind, job, tuple(sorted(counts.items())))
        for time, kind, job, places in plan.log.rows()
        for counts in [{machine: sum(g for m, g in places if m == machine) for machine, _ in places}]
    ]
    assert by_machine == [(time, kind, job, tuple(sorted(places))) for time, kind, job, places in key.log.rows()]
    assert (plan.allocated_gpu_us, plan.overhead_gpu_us) == (key.allocated_gpu_us, key.overhead_gpu_us)


def test_a_gang_of_free_machines_is_placed_where_a_narrower_one_has_no_machine():
    room = _room([(0, 1, 1), (0, 3, 1), (0, 4, 1)], np.array([1, 1, 2, 3]))
    room.take(0, (6,))
    assert [room.place(1), room.place(2)] == [None, (2, 3, 0, 1)]


def test_a_job_that_may_spread_is_placed_where_another_as_wide_may_not():
    room = _room([(0, 1, 1), (0, 2, 1), (0, 2, 1)], np.array([2, 2]))
    room.allow_spread(lambda job: job == 2)
    room.take(0, (0,))
    room.take(0, (2,))
    assert [room.place(1), room.place(2)] == [None, (1, 3)]


def _fragmentation(left, asks):
    """Return the free thousandths of GPUs that a job can't use, summed over jobs and machines."""
    lost = 0
    for machine in left:
        for ask in asks:
            fits = machine.count(1000) * 1000 >= ask if ask > 1000 else max(machine, default=0) >= ask
            lost += sum(free for free in machine if not fits or free < min(ask, 1000))
    return lost


@given(st.data())
def test_fragmentation_grows_least_where_fgd_places_a_job(data):
    sizes = [2, 3]
    shares = data.draw(st.lists(st.sampled_from([200, 300, 500, 1000]), min_size=1, max_size=6))
    gangs = [data.draw(st.sampled_from([1, 2, 3])) if share == 1000 else 1 for share in shares]
    room = _room(
        [(0, gang, 1) for gang in gangs],
        np.array(sizes),
        placement=Placement.FGD,
        is_shared=True,
        share_milli=np.array(shares),
        cpu_milli=np.full(len(shares), 100),
    )
    asks = [share if gang == 1 else 1000 * gang for gang, share in zip(gangs, shares, strict=True)]
    lost = lambda: _fragmentation([room.left_milli[:2].tolist(), room.left_milli[2:].tolist()], asks)  # noqa: E731
    for job in range(len(gangs)):
        chosen = room.find(job)
        if chosen is None:
            continue
        others = [(gpu,) for gpu in range(5) if room.left_milli[gpu] >= shares[job]]
        if gangs[job] > 1:
            others = [
                gpus[: gangs[job]] for gpus in (room.whole_gpus(0), room.whole_gpus(1)) if len(gpus) >= gangs[job]
            ]
        after = {}
        for gpus in others:
            room.take(job, gpus)
            after[gpus] = lost()
            room.give(job, gpus)
        assert after[chosen] == min(after.values())
        room.take(job, chosen)


@pytest.mark.parametrize(("placement", "gpu"), [("best-fit", 1), ("first-fit", 0), ("worst-fit", 2)])
def test_a_share_is_taken_of_the_gpu_that_the_rule_says(placement, gpu):
    room = _room(
        [(0, 1, 1)] * 3,
        np.array([3]),
        placement=Placement(placement),
        is_shared=True,
        share_milli=np.array([300, 500, 300]),
    )
    room.take(0, (0,))
    room.take(1, (1,))
    assert room.find(2) == (gpu,)


def test_host_demands_keep_jobs_out():
    room = _room([(0, 1, 1)] * 3, np.array([2, 2]), cpu_milli=np.array([12_000, 9_000, 4_000]))
    assert room.place(0) == (0,)
    assert room.place(1) == (2,)  # machine 0 has 4 of its 16 vCPU left
    assert room.find(2) == (1,)
    assert room.find(2, machines=np.array([False, True])) == (3,)
    room.give(0, (0,))
    assert room.num_free == 3


def test_a_copy_is_room_of_its_own():
    room = _room([(0, 2, 1)])
    other = room.copy()
    assert other.place(0) == (4, 5)
    assert (room.num_free, other.num_free) == (10, 8)


def test_a_host_is_short_where_it_lacks_what_all_of_a_jobs_gpus_on_it_ask_for():
    jobs = workload([(0, 3, 5)], cpu_milli=np.array([2_000]))
    cluster = Cluster(gpus=np.array([4, 4]), cpus=np.array([3.0, 8.0]))
    room = FreeGpus(SimulationContext(jobs, cluster, Placement.BEST_FIT, True, False))
    assert room.short_hosts(0, (0, 4, 5)) == set()
    assert room.short_hosts(0, (0, 1, 4)) == {0}
    assert room.short_hosts(0, (4, 5, 6)) == set()
