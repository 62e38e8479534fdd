"""Tiny clusters, with jobs that use every field of a workload."""

from dataclasses import replace
from functools import cache, partial

import numpy as np

from optim.models.cluster.cluster import Cluster
from optim.models.cluster.workload import PPM, US, Workload
from optim.simulation.cluster.options import EngineOptions, Placement, RetryRule

MINUTE_US = 60 * US


@cache
def plain():
    """Gangs of 1 to 7 on 12 GPUs in four machines and two racks: teams, apps, priorities, losses, slowdowns."""
    jobs = drawn_jobs(1, 20, widths=(1, 1, 2, 3, 4, 7))
    return jobs, Cluster(gpus=np.array([4, 4, 2, 2]), rack=np.array([0, 0, 1, 1])), EngineOptions()


@cache
def narrow():
    """Many short gangs of 1 and 2 on two machines of four, so that GPUs are shared in time; the emptiest machine takes them."""
    options = EngineOptions(placement=Placement.WORST_FIT, overhead_s=10, neighbour=1.0)
    jobs = drawn_jobs(4, 24, widths=(1, 1, 2), minutes=12, within=20)
    return jobs, Cluster(gpus=np.array([4, 4, 1])), options


@cache
def failing():
    """Machines fail every two hours, and attempts of jobs for four reasons; gangs may spread over machines."""
    options = EngineOptions(
        placement=Placement.FIRST_FIT,
        spread=True,
        overhead_s=20,
        mtbf_hours=2.0,
        repair_hours=0.3,
        checkpoint_min=4.0,
        retries=RetryRule.BY_CLASS,
        max_retries=2,
        retry_wait_min=3.0,
    )
    rng, count = np.random.default_rng(6), 16
    fails = {
        "fails_us": rng.choice([-1, 4 * MINUTE_US, 9 * MINUTE_US + 1], count),
        "tries": rng.integers(1, 5, count),
        "good_us": np.where(rng.random(count) < 0.5, 2 * MINUTE_US, -1),
        "reason": rng.integers(0, 4, count),
        "reasons": ("", "syntax error", "GPU ECC error", "job preempted"),
    }
    jobs = drawn_jobs(2, count, widths=(1, 2, 3, 4, 7), within=60, **fails)
    return jobs, Cluster(gpus=np.array([3, 5, 4]), rack=np.array([0, 1, 1])), options


@cache
def kinds():
    """GPUs of two types, of which some jobs can use only one; hosts' CPUs and memory are unlimited."""
    rng, count = np.random.default_rng(7), 16
    slow = rng.choice([PPM, 3 * PPM // 2, 3 * PPM, 0], count, p=[0.2, 0.4, 0.2, 0.2])
    fast = np.where((slow > 0) & (rng.random(count) < 0.1), 0, PPM)
    jobs = drawn_jobs(5, count, widths=(1, 1, 2, 3), within=30, gpu_type_slowdown_ppm=np.stack([fast, slow], axis=1))
    cluster = Cluster(
        gpus=np.array([2, 4, 3]), rack=np.array([0, 0, 1]), kind=np.array([0, 1, 0]), kinds=("fast", "slow")
    )
    return jobs, cluster, EngineOptions(overhead_s=15)


@cache
def shared():
    """Jobs use fractions of GPUs of two types, and scarce CPUs and memory of hosts; jobs on one GPU slow each other down."""
    rng, count = np.random.default_rng(3), 18
    jobs = drawn_jobs(
        3,
        count,
        widths=(1, 1, 1, 2, 3),
        within=30,
        share_milli=rng.choice([250, 400, 1000], count),
        cpu_milli=rng.choice([2_000, 6_000, 11_000], count),
        memory_mib=rng.choice([8, 40, 80], count) * 1024,
        gpu_type_slowdown_ppm=np.stack(
            [np.full(count, PPM), rng.choice([PPM, 3 * PPM // 2, 0], count, p=[0.3, 0.5, 0.2])], axis=1
        ),
    )
    cluster = Cluster(
        gpus=np.array([4, 4, 3]), rack=np.array([0, 0, 1]), kind=np.array([0, 0, 1]), kinds=("fast", "slow")
    )
    options = EngineOptions(placement=Placement.FGD, sharing=True, neighbour=1.3, overhead_s=10, spread=True)
    return jobs, cluster, options


@cache
def _world(draw):
    """Return a world whose hosts have 8 vCPUs and 64 GB per GPU; a job without stated demands requests 4 and 16."""
    jobs, cluster, options = draw()
    return jobs, replace(cluster, cpus=8.0 * cluster.gpus, memory_gb=64.0 * cluster.gpus), options


WORLDS = {each.__name__: partial(_world, each) for each in (plain, narrow, failing, kinds, shared)}


def drawn_jobs(seed, count, *, widths, minutes=50, within=45, **more):
    """Draw jobs of 2 minutes or longer, some submitted at the same instant, in integral minutes or not."""
    rng = np.random.default_rng(seed)
    submit = np.sort(rng.integers(0, within, count) * MINUTE_US + rng.choice([0, 7 * US], count))
    submit[1::4] = submit[:-1:4]
    submit -= submit.min()
    gpus = rng.choice(widths, count)
    duration = rng.integers(2, minutes, count) * MINUTE_US + rng.integers(0, 3, count)
    points = np.linspace(0, 1, 13)
    return Workload(
        submit_us=np.sort(submit),
        gpus=gpus,
        duration_us=duration,
        slowdown_ppm=np.sort(np.where([True, False, False], PPM, rng.integers(PPM, 2 * PPM, (count, 3))), axis=1),
        group=np.sort(rng.integers(0, 3, count))[rng.permutation(count)],
        groups=("a", "b", "c"),
        user=rng.integers(0, 4, count),
        users=("", "u", "v", "w"),
        app=np.sort(rng.integers(0, max(2, count // 3), count)),
        priority=rng.integers(0, 3, count) * 100,
        busy_milli=rng.integers(300, 1000, count),
        max_gpus=gpus + rng.integers(0, 3, count),
        loss=1 / (rng.uniform(2, 30, (count, 1)) * points + 1) + 0.05,
        **(
            {"fails_us": np.where(rng.random(count) < 0.25, duration // 2, -1)}
            | {"cpu_milli": np.full(count, 4000), "memory_mib": np.full(count, 16384)}
            | more
        ),
    )
