"""Server cuts: valid for every packing of one server, violated by the load they were made for."""

from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from optim.core.arrays import FloatArray, IntArray
from optim.models.admission.check.cuts import CutCheck
from optim.models.admission.check.exact_instance import read_exact_instance
from optim.models.admission.decision import ServerCut, Side
from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.cuts.separation import CutSeparator, SeparationOptions
from tests.support.admission.oracle import fits_on_one_server
from tests.support.admission.strategies import JobSketch, ServerSketch, make_instance, tiny_instances

SEEDS = st.integers(0, 2**32 - 1)
INSTANCES = st.one_of(
    tiny_instances(), tiny_instances(), tiny_instances(is_shared=True), tiny_instances(has_segments=True)
)


def random_loads(instance: AdmissionInstance, seed: int) -> tuple[FloatArray, FloatArray]:
    """Draw the numbers of workers and PSs of each job in a class, at most those that the class holds of the job alone."""
    rng = np.random.default_rng(seed)
    offset = instance.jobs.segment_offset[:-1]
    loads = []
    for limit, servers in (
        (instance.workers_per_server, instance.worker_servers),
        (instance.ps_per_server, instance.ps_servers),
    ):
        most = np.maximum.reduceat(limit, offset, axis=0) * servers.count[:, None]
        loads.append(most * rng.random(most.shape) * rng.choice([0, 1, 1], most.shape))
    return loads[0], loads[1]


def units_of_job(instance: AdmissionInstance, cut: ServerCut, job: int) -> list[tuple[int, int]]:
    """List the (workers, PSs) that one empty server of the cut's class holds of a job, in any of its segments."""
    if not instance.jobs.arrival[job] <= cut.slot <= instance.deadline[job]:
        return [(0, 0)]
    segments = range(int(instance.jobs.segment_offset[job]), int(instance.jobs.segment_offset[job + 1]))
    most, max_ps = int(instance.max_workers[job]), int(instance.ps_needed[job][-1])
    if not instance.has_shared_servers:
        limit = instance.workers_per_server if cut.side is Side.WORKER else instance.ps_per_server
        units = int(limit[list(segments), cut.server_class, cut.slot].max())
        return [(n, 0) if cut.side is Side.WORKER else (0, n) for n in range(units + 1)]
    return [
        (y, z)
        for y, z in product(range(most + 1), range(max_ps + 1))
        if any(fits_on_one_server(instance, s, cut.server_class, cut.slot, y, z) for s in segments)
    ]


def most_left_hand_side(instance: AdmissionInstance, cut: ServerCut) -> int:
    """Return the largest left-hand side by trying every packing of one server."""
    servers = instance.worker_servers if cut.side is Side.WORKER else instance.ps_servers
    room = servers.capacity[cut.server_class, cut.slot]
    best = 0
    for units in product(*(units_of_job(instance, cut, int(job)) for job in cut.jobs)):
        use, gain = np.zeros_like(room), 0
        for k, (job, (y, z)) in enumerate(zip(cut.jobs.tolist(), units, strict=True)):
            own = slice(int(instance.jobs.segment_offset[job]), int(instance.jobs.segment_offset[job + 1]))
            use = use + y * instance.jobs.worker_demand[own].min(axis=0)
            use = use + z * instance.jobs.ps_demand[own].min(axis=0)
            gain += y * int(cut.worker_coefficient[k]) + z * int(cut.ps_coefficient[k])
        if (use <= room).all():
            best = max(best, gain)
    return best


def left_hand_side(instance: AdmissionInstance, cut: ServerCut, loads: tuple[FloatArray, FloatArray]) -> float:
    """Return the left-hand side at the average load of a class' servers."""
    servers = instance.worker_servers if cut.side is Side.WORKER else instance.ps_servers
    total = 0.0
    for load, coefficient in zip(loads, (cut.worker_coefficient, cut.ps_coefficient), strict=True):
        if coefficient.any():
            total += float(coefficient @ load[cut.jobs, cut.server_class, cut.slot])
    return total / int(servers.count[cut.server_class])


@given(INSTANCES, SEEDS)
def test_holds_for_every_packing_of_one_server_and_not_for_the_load(instance: AdmissionInstance, seed: int) -> None:
    loads = random_loads(instance, seed)
    check = CutCheck(read_exact_instance(instance))
    for number, cut in enumerate(CutSeparator(instance).separate(*loads)):
        assert most_left_hand_side(instance, cut) <= cut.right_hand_side
        assert left_hand_side(instance, cut, loads) > cut.right_hand_side
        assert check.violations(cut, number, "") == []


@given(tiny_instances(), SEEDS)
def test_finds_no_cut_where_the_load_is_a_mixture_of_packings(instance: AdmissionInstance, seed: int) -> None:
    rng = np.random.default_rng(seed)
    loads = []
    for demand, limit, servers in (
        (instance.jobs.worker_demand, instance.workers_per_server, instance.worker_servers),
        (instance.jobs.ps_demand, instance.ps_per_server, instance.ps_servers),
    ):
        load = np.zeros(limit.shape)
        for c, t in np.ndindex(limit.shape[1:]):
            weights = rng.dirichlet(np.ones(3)) * int(servers.count[c])
            for weight in weights:
                load[:, c, t] += weight * random_packing(demand, servers.capacity[c, t], limit[:, c, t], rng)
        loads.append(load)
    assert CutSeparator(instance).separate(loads[0], loads[1]) == []


def random_packing(demand: IntArray, room: IntArray, most: IntArray, rng: np.random.Generator) -> IntArray:
    """Fill a server with random units until the next doesn't fit."""
    packing = np.zeros(len(demand), dtype=np.int64)
    for k in rng.permutation(np.repeat(np.arange(len(demand)), most)).tolist():
        if ((packing @ demand) + demand[k] > room).any():
            break
        packing[k] += 1
    return packing


def two_large_jobs_and_a_small_one() -> AdmissionInstance:
    """Return two jobs of which one worker fills two thirds of a server, and one whose worker fills a third."""
    return make_instance(
        jobs=[JobSketch(worker=("2",)), JobSketch(worker=("2",)), JobSketch(worker=("1",), chunks=3)],
        worker_servers=[ServerSketch(capacity=("3",), count=2)],
        ps_servers=[ServerSketch(capacity=("100",))],
        horizon=1,
    )


def test_lifts_a_job_that_the_load_lacks() -> None:
    instance = two_large_jobs_and_a_small_one()
    worker, ps = np.array([1.5, 1.5, 0.0]).reshape(3, 1, 1), np.zeros((3, 1, 1))
    (cut,) = CutSeparator(instance).separate(worker, ps)
    # A server holds one large worker, and one small worker in addition, which is free.
    assert cut.jobs.tolist() == [0, 1]
    assert (cut.worker_coefficient.tolist(), cut.right_hand_side) == ([1, 1], 1)
    (cut,) = CutSeparator(instance).separate(np.array([1.8, 0.0, 3.6]).reshape(3, 1, 1), ps)
    # One large and one small worker, or three small ones: 2 y0 + y2 <= 3, and the other large job like the first.
    assert cut.jobs.tolist() == [0, 1, 2]
    assert (cut.worker_coefficient.tolist(), cut.right_hand_side) == ([2, 2, 1], 3)


def test_gives_a_cut_up_when_its_search_takes_too_long() -> None:
    instance = two_large_jobs_and_a_small_one()
    options = SeparationOptions(node_limit=0)
    assert CutSeparator(instance, options).separate(np.full((3, 1, 1), 1.5), np.zeros((3, 1, 1))) == []
