"""What every policy must hold to: `check_policy` plays small worlds and says what doesn't."""

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
    """Return jobs of all that a workload may say: ties, gangs wider than a machine, two virtual clusters, failures, estimates, losses."""
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
    """Play a policy on small worlds; return what it doesn't hold to, one sentence each.

    It must finish every job that it doesn't send away, keep all rules, do the same again when asked again, in the same
    object and in a new one, and decide nothing by what it doesn't declare to see: with other run times of jobs that aren't
    over yet, and without the jobs that are still to come, it decides the same until then.

    Parameters
    ----------
    make
        Makes the policy for a workload: ``lambda jobs: MyPolicy()``.
    seed
        Of the worlds and of the policy.

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
            problems.extend(f"world {world}: {said}" for said in _check(make, jobs, cluster, options, seed))
        except OptimError as error:
            problems.append(f"world {world}: {error}")
    return tuple(problems)


def _check(
    make: Callable[[Workload], Policy], jobs: Workload, cluster: Cluster, options: EngineOptions, seed: int
) -> list[str]:
    policy = make(jobs)
    run = _play(policy, jobs, cluster, options, seed)
    problems = [str(found) for found in replay(jobs, cluster, run.log, run.rules)[1]]
    left = len(jobs) - int(run.log.is_over.sum())
    if left:
        problems.append(f"{left} jobs are never done")
    if _play(policy, jobs, cluster, options, seed).log.rows() != run.log.rows():
        problems.append("a second run of the same object differs: begin() must forget the first")
    if _play(make(jobs), jobs, cluster, options, seed).log.rows() != run.log.rows():
        problems.append("a second object's run differs: take random numbers from begin()'s seed alone")
    problems.extend(_check_sight(policy, jobs, cluster, options, seed, run))
    return problems


def _check_sight(
    policy: Policy, jobs: Workload, cluster: Cluster, options: EngineOptions, seed: int, run: Run
) -> list[str]:
    """Hide the second half of the run: jobs still to come, and how long those take that aren't over yet."""
    half = int(np.median(run.end_us))
    known = int((jobs.submit_us <= half).sum())
    columns = {
        name: getattr(jobs, name)
        for name in jobs.__dataclass_fields__
        if name not in ("groups", "ids", "dropped", "dropped_gpu_h", "recorded_wait", "begin")
    }
    told = {name: values[:known] for name, values in columns.items()}
    if not _sees_run_times(policy):
        later = (
            2 * int(jobs.duration_us.max()) - jobs.duration_us
        )  # in the opposite order, and none shorter than it was
        told["duration_us"] = np.where(run.end_us > half, later, jobs.duration_us)[:known]
    other = _play(policy, Workload(**told, groups=jobs.groups), cluster, options, seed)
    before = [[row for row in each.log.rows() if row[0] < half] for each in (run, other)]
    return (
        []
        if before[0] == before[1]
        else ["it decides by what it can't know: jobs to come, or run times that it doesn't declare"]
    )


def _sees_run_times(policy: Policy) -> bool:
    """Tell whether a policy declares that what is still to come of a job's work tells it something."""
    if isinstance(policy, IndexPolicy):
        return policy.sees_run_times
    return Oracle.RUN_TIMES in policy.oracle_inputs or policy.reads_losses


def _play(policy: Policy, jobs: Workload, cluster: Cluster, options: EngineOptions, seed: int) -> Run:
    run = simulate(jobs, cluster, policy, options, seed)
    assert run is not None  # nobody watches
    return run
