"""Simulate a workload under a policy and log the events.

The engine of index policies is compiled; that of planning policies is written in Python.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from optim.core.arrays import IntArray
from optim.core.errors import UnsupportedProblemError
from optim.core.registry import SUPPORTED
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.log import Run
from optim.models.cluster.present import Present
from optim.models.cluster.workload import PPM, Workload
from optim.simulation.cluster.index.policy import IndexPolicy
from optim.simulation.cluster.options import EngineOptions
from optim.simulation.cluster.planning.engine import planned_first_starts, play_plans
from optim.simulation.cluster.planning.index_adapter import IndexPolicyAdapter
from optim.simulation.cluster.planning.policy import PlanningPolicy
from optim.simulation.cluster.policies.multifactor import Multifactor
from optim.simulation.cluster.policies.yarn_cs import YarnCs

if TYPE_CHECKING:
    from optim.simulation.cluster.index.priorities import Priorities

Policy = IndexPolicy | PlanningPolicy


def simulate(
    jobs: Workload,
    cluster: Cluster,
    policy: Policy,
    options: EngineOptions | None = None,
    seed: int = 0,
    watch: Callable[[int], bool] | None = None,
    present: Present | None = None,
) -> Run | None:
    """Simulate all jobs to their end; return None if `watch` requests a stop.

    Parameters
    ----------
    present
        Initial state; the log begins with the starts of jobs already running. None for an empty cluster before the
        first submission.
    watch
        Function called repeatedly with the number of jobs submitted so far; it returns whether to stop.

    Raises
    ------
    InvalidProblemError
        If a gang can never get its GPUs, vCPUs and memory on this cluster, or a plan breaks a rule.
    UnsupportedProblemError
        If the policy does not support these jobs on this cluster.
    """
    options = options or EngineOptions()
    player, priorities = _player(jobs, cluster, policy, options)
    if present is not None:
        present.check(jobs, cluster)
    is_plain = (
        is_compiled(jobs, cluster, options)
        and not (options.preempt_checkpoint_us or options.startup_us)
        and present is None
    )
    if type(player) is YarnCs and is_plain:  # subclasses may plan differently
        from optim.simulation.cluster.compiled_yarn import play_capacity

        return play_capacity(jobs, cluster, player, options, seed, watch)
    if isinstance(player, PlanningPolicy):
        return play_plans(jobs, cluster, player, options, seed, watch, present)
    from optim.simulation.cluster.index.loop import play_index

    run = play_index(jobs, cluster, player, options, seed, watch, present, priorities)
    if run is None or isinstance(policy, IndexPolicy):
        return run
    return replace(run, figures={**policy.figures(), **run.figures})


def first_starts(
    jobs: Workload,
    cluster: Cluster,
    policy: Policy,
    present: Present,
    awaited: IntArray,
    options: EngineOptions | None = None,
    seed: int = 0,
) -> IntArray:
    """Simulate as `simulate` until the given jobs have started; return their first starts in microseconds.

    A job that never starts gets the end of the run.

    Parameters
    ----------
    present
        Initial state, already validated by the caller.
    awaited
        Rows of the jobs, none of which has started yet; shape (awaited,).

    Raises
    ------
    InvalidProblemError
        If a gang can never get its GPUs, vCPUs and memory on this cluster, or a plan breaks a rule.
    UnsupportedProblemError
        If the policy does not support these jobs on this cluster.
    """
    options = options or EngineOptions()
    player, priorities = _player(jobs, cluster, policy, options)
    if isinstance(player, PlanningPolicy):
        return planned_first_starts(jobs, cluster, player, options, seed, present, awaited)
    from optim.simulation.cluster.index.loop import index_first_starts

    return index_first_starts(jobs, cluster, player, options, seed, present, awaited, priorities)


def _player(
    jobs: Workload, cluster: Cluster, policy: Policy, options: EngineOptions
) -> "tuple[Policy, Priorities | None]":
    """Return the policy in the form for the fastest engine that supports these jobs, and its priorities, if any."""
    jobs.check_fits(cluster)
    has_compiled_loop = is_compiled(jobs, cluster, options)
    if isinstance(policy, IndexPolicy) and not has_compiled_loop:
        policy = IndexPolicyAdapter(policy, jobs)
    check_support(policy, jobs, cluster, options)
    if isinstance(policy, Multifactor) and policy.is_compiled and has_compiled_loop:
        return policy.index_policy(), policy.compiled_priorities(cluster)
    return policy, None


def check_support(policy: Policy, jobs: Workload, cluster: Cluster, options: EngineOptions) -> None:
    """Check that a policy supports these jobs on this cluster.

    Index policies support all jobs with enough vCPUs and memory.

    Raises
    ------
    UnsupportedProblemError
        If the policy does not support them; the message gives the reason.
    InvalidProblemError
        If a gang can never get its vCPUs and memory under the engine's placement rule.
    """
    found = policy.supports(jobs, cluster) if isinstance(policy, PlanningPolicy) else SUPPORTED
    if not found:
        raise UnsupportedProblemError(f"policy {policy.name} cannot be simulated: {found.reason}")
    if isinstance(policy, PlanningPolicy):
        spreads = options.spread or policy.places_itself or policy.may_spread or policy.rules(options).is_elastic
    else:
        spreads = options.spread
    jobs.check_fits(cluster, on_one_machine=not spreads)


def is_compiled(jobs: Workload, cluster: Cluster, options: EngineOptions) -> bool:
    """Return whether the compiled loop supports the run.

    The loop requires complete GPUs of one type, machines that cannot run out of vCPUs or memory, no slowdown by
    neighbours, one checkpoint interval, and constant times per step.
    """
    has_kinds = (
        jobs.gpu_type_slowdown_ppm.shape[1] > 0
        and not (jobs.gpu_type_slowdown_ppm[:, np.unique(cluster.kind)] == PPM).all()
    )
    has_own_steps = bool((jobs.checkpoint_us >= 0).any()) and (options.checkpoint_us or options.preempt_checkpoint_us)
    return (
        not has_kinds
        and not options.needs_planning
        and not jobs.strains_hosts(cluster)
        and not has_own_steps
        and not jobs.step_time_milli.shape[1]
    )
