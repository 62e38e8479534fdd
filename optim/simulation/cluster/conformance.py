"""Requirements on every policy: `check_policy` simulates small workloads and reports violations."""

from collections.abc import Callable

import numpy as np

from optim.core.errors import OptimError
from optim.models.cluster.check import replay
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.log import Run
from optim.models.cluster.workload import PPM, US, Workload
from optim.simulation.cluster.engine import Policy, simulate
from optim.simulation.cluster.index.policy import IndexPolicy
from optim.simulation.cluster.options import EngineOptions, Placement
from optim.simulation.cluster.planning.policy import Oracle

HOUR_US = 3600 * US
POINTS = 17


def small_workload(seed: int, cluster: Cluster, count: int = 20) -> Workload:
    """Return jobs that cover all features of a workload.

    The jobs include ties, gangs wider than a machine, two virtual clusters, failures, estimates and losses.
    """
    rng = np.random.default_rng(seed)
    gpus = np.minimum(rng.choice([1, 1, 1, 2, 4, 8, 12], count), cluster.num_gpus)
    submit = np.sort(rng.integers(0, 2 * HOUR_US, count) // US * US)
    submit[1::5] = submit[:-1:5]
    duration = np.rint(np.exp(rng.normal(7.0, 1.5, count))).astype(np.int64) * US + 1
    points = np.linspace(0, 1, POINTS)
    speed = rng.uniform(2, 30, (count, 1))
    return Workload(
        submit_us=np.sort(submit) - submit.min(),
        gpus=gpus,
        duration_us=duration,
        slowdown_ppm=np.sort(np.where([True, False, False], PPM, rng.integers(PPM, 2 * PPM, (count, 3))), axis=1),
        group=rng.integers(0, 2, count),
        groups=("a", "b"),
        app=np.arange(count) // 2,
        busy_milli=rng.integers(300, 1000, count),
        fails_us=np.where(rng.random(count) < 0.2, duration // 2, -1),
        estimate_us=np.where(rng.random(count) < 0.7, np.maximum(1, duration * rng.uniform(0.5, 3, count)), 0).astype(
            np.int64
        ),
        loss=1 / (speed * points + 1) + 0.05,
    )


def check_policy(make: Callable[[Workload], Policy], seed: int = 0) -> tuple[str, ...]:
    """Simulate a policy on small workloads; return its violations, one sentence each.

    The policy must complete every job that it does not reject, and obey all rules. It must repeat its decisions in a
    second run with the same object, and in a run with a new object. It must not use information that it does not
    declare: its decisions up to an instant must not change with the remaining run times of unfinished jobs, or with
    later submissions.

    Parameters
    ----------
    make
        Function that creates the policy for a workload: ``lambda jobs: MyPolicy()``.
    seed
        Random seed of the workloads and of the policy.

    Examples
    --------
    >>> from optim.simulation.cluster.catalogue import make_policy
    >>> check_policy(lambda jobs: make_policy("fifo", jobs))
    ()
    """
    problems: list[str] = []
    cluster = Cluster(gpus=np.array([8, 8, 4, 4]), rack=np.array([0, 0, 1, 1]))
    for world in range(2):
        jobs = small_workload(seed + world, cluster)
        options = EngineOptions(placement=list(Placement)[world])
        try:
            problems.extend(f"workload {world}: {said}" for said in _check(make, jobs, cluster, options, seed))
        except OptimError as error:
            problems.append(f"workload {world}: {error}")
    return tuple(problems)


def _check(
    make: Callable[[Workload], Policy], jobs: Workload, cluster: Cluster, options: EngineOptions, seed: int
) -> list[str]:
    policy = make(jobs)
    run = _play(policy, jobs, cluster, options, seed)
    problems = [str(found) for found in replay(jobs, cluster, run.log, run.rules)[1]]
    left = len(jobs) - int(run.log.is_over.sum())
    if left:
        problems.append(f"{left} jobs never complete")
    if _play(policy, jobs, cluster, options, seed).log.rows() != run.log.rows():
        problems.append("a second run of the same object differs: begin() must reset all state")
    if _play(make(jobs), jobs, cluster, options, seed).log.rows() != run.log.rows():
        problems.append("a second object's run differs: draw random numbers only from the seed of begin()")
    problems.extend(_check_sight(policy, jobs, cluster, options, seed, run))
    return problems


def _check_sight(
    policy: Policy, jobs: Workload, cluster: Cluster, options: EngineOptions, seed: int, run: Run
) -> list[str]:
    """Return a violation if decisions in the run's first half change with later submissions or with remaining run times."""
    half = int(np.median(run.end_us))
    known = int((jobs.submit_us <= half).sum())
    columns = {
        name: getattr(jobs, name)
        for name in jobs.__dataclass_fields__
        if name not in ("groups", "ids", "dropped", "dropped_gpu_h", "recorded_wait", "begin")
    }
    told = {name: values[:known] for name, values in columns.items()}
    if not _sees_run_times(policy):
        # Reverse the order of run times without shortening any.
        later = 2 * int(jobs.duration_us.max()) - jobs.duration_us
        told["duration_us"] = np.where(run.end_us > half, later, jobs.duration_us)[:known]
    other = _play(policy, Workload(**told, groups=jobs.groups), cluster, options, seed)
    before = [[row for row in each.log.rows() if row[0] < half] for each in (run, other)]
    return (
        []
        if before[0] == before[1]
        else ["it uses unavailable information: later jobs, or run times that it does not declare"]
    )


def _sees_run_times(policy: Policy) -> bool:
    """Return whether a policy declares that it uses the remaining work of jobs."""
    if isinstance(policy, IndexPolicy):
        return policy.sees_run_times
    return Oracle.RUN_TIMES in policy.oracle_inputs or policy.reads_losses


def _play(policy: Policy, jobs: Workload, cluster: Cluster, options: EngineOptions, seed: int) -> Run:
    run = simulate(jobs, cluster, policy, options, seed)
    assert run is not None  # without `watch` the run is never stopped
    return run
