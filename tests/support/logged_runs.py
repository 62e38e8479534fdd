"""Logged runs of clusters: of index policies and of random plans, with failures, retries and shares."""

from functools import cache

import numpy as np

from optim.models.cluster.cluster import Cluster
from optim.models.cluster.log import Run
from optim.models.cluster.metrics import measure
from optim.models.cluster.rules import Rules
from optim.models.cluster.run_file import LoggedRun, RunRecord
from optim.models.cluster.workload import PPM, US, Workload
from tests.support.small_clusters import workload

NUM_PLANNED = 8
TROUBLED = ("srtf", "las", "gandiva")


@cache
def logged_records() -> dict[str, RunRecord]:
    """Play and return the records by name."""
    return {**{f"planned-{seed}": _planned(seed) for seed in range(NUM_PLANNED)}, "troubled": _troubled()}


def _record(jobs: Workload, cluster: Cluster, overhead_us: int, runs: list[Run]) -> RunRecord:
    from optim.simulation.cluster.comparison import bound

    logged = [
        LoggedRun(policy=run.policy, log=run.log, metrics=measure(jobs, cluster, run), rules=run.rules, figures=run.figures, worth=run.worth)
        for run in runs
    ]  # fmt: skip
    return RunRecord(jobs=jobs, cluster=cluster, overhead_us=overhead_us, runs=tuple(logged), **bound(jobs, cluster, 5))


def _troubled() -> RunRecord:
    """Play policies while machines fail and tries fail."""
    from optim.simulation.cluster.catalogue import make_policy
    from optim.simulation.cluster.engine import simulate
    from optim.simulation.cluster.options import EngineOptions

    rng, count = np.random.default_rng(1), 14
    gangs = rng.choice([1, 1, 2, 4, 6], count)
    rows = zip(np.sort(rng.integers(0, 12_000, count)), gangs, rng.integers(60, 9000, count), strict=True)
    jobs = workload(
        [*rows], group=np.arange(count) % 3, groups=("a", "b", "c"), app=np.arange(count) // 3,
        loss=np.linspace(2, 1, 6)[None, :].repeat(count, axis=0) ** 2, max_gpus=gangs + (gangs < 4),
        fails_us=np.where(np.arange(count) % 3 == 0, 30 * US, -1), tries=1 + np.arange(count) % 2,
        reason=np.arange(count) // 3 % 3, reasons=("", "GPU ECC error", "syntax error"),
        slowdown_ppm=np.array([[PPM, 1_200_000, 1_500_000]] * count),
    )  # fmt: skip
    cluster = Cluster(gpus=np.array([4, 4, 4]), rack=np.array([0, 0, 1]))
    options = EngineOptions(
        mtbf_hours=2, repair_hours=0.5, checkpoint_min=10, retries="by-class", max_retries=2, retry_wait_min=1
    )
    runs = [simulate(jobs, cluster, make_policy(name, jobs), options, seed=3) for name in TROUBLED]
    return _record(jobs, cluster, options.overhead_us, runs)


def _planned(seed: int) -> RunRecord:
    """Play random plans on machines of two types, by rules that the seed's bits choose."""
    from optim.simulation.cluster.options import EngineOptions
    from optim.simulation.cluster.planning.engine import play_plans
    from tests.support.random_plans import RandomPlans

    rng, count = np.random.default_rng(seed), 5
    rules = Rules(
        restart_us=1500, move_us=2500, is_elastic=bool(seed & 1), is_shared=bool(seed & 2), may_refuse=bool(seed & 4),
        jobs_a_gpu=1 + (seed & 1), neighbour_ppm=PPM + 500_000 * (seed % 3 == 1),
    )  # fmt: skip
    gangs = rng.integers(1, 4, count)
    submit = np.sort(rng.integers(0, 12, count))
    jobs = Workload(
        submit_us=1000 * (submit - submit[0]), gpus=gangs, duration_us=1000 * rng.integers(1, 9, count) + rng.integers(0, 3, count),
        slowdown_ppm=np.array([(PPM, 1_300_000, 2 * PPM) if k % 2 else (PPM,) * 3 for k in range(count)]),
        share_milli=np.where(gangs == 1, rng.choice([300, 500, 1000], count), 1000),
        busy_milli=rng.choice([400, 700, 1000], count), gpu_type_slowdown_ppm=np.array([(1_700_000, PPM) if k % 3 else (PPM, PPM) for k in range(count)]),
        cpu_milli=rng.choice([500, 2000], count), max_gpus=np.minimum(4, gangs + rng.integers(0, 2, count)),
    )  # fmt: skip
    cluster = Cluster(gpus=np.array([2, 1, 2]), rack=np.array([0, 0, 1]), kind=np.array([0, 1, 0]), kinds=("a", "b"))
    run = play_plans(jobs, cluster, RandomPlans(rules, calls=12), EngineOptions(overhead_s=0), seed)
    return _record(jobs, cluster, 0, [run])
