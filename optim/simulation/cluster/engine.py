"""Play a workload under a policy, and put what happened into a log: compiled for a key, in Python for one that plans."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from optim.core.arrays import IntArray
from optim.core.errors import UnsupportedProblemError
from optim.core.registry import SUPPORTED
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.log import Event, EventLog, Run
from optim.models.cluster.rules import Rules
from optim.models.cluster.waiting import last_times
from optim.models.cluster.workload import PPM, Workload
from optim.simulation.cluster.index.policy import IndexPolicy
from optim.simulation.cluster.options import EngineOptions, OutageFeed
from optim.simulation.cluster.planning.engine import play_plans
from optim.simulation.cluster.planning.index_adapter import IndexPolicyAdapter
from optim.simulation.cluster.planning.policy import PlanningPolicy
from optim.simulation.cluster.policies.yarn_cs import YarnCs

if TYPE_CHECKING:
    from optim.simulation.cluster.index.state import State

Policy = IndexPolicy | PlanningPolicy

STEPS = 20_000
"""Instants played between two looks at progress and interruption: some milliseconds."""

KNOWN_OUTAGES = 1_024
"""Failures and repairs that the loop is told of ahead."""

EVENTS = 65_536
"""Events that a buffer holds besides one instant's."""


def simulate(
    jobs: Workload,
    cluster: Cluster,
    policy: Policy,
    options: EngineOptions | None = None,
    seed: int = 0,
    watch: Callable[[int], bool] | None = None,
) -> Run | None:
    """Play all jobs to their end; None if `watch` wanted to stop before.

    Parameters
    ----------
    watch
        Called now and then with the number of jobs submitted so far; tells whether to stop.

    Raises
    ------
    InvalidProblemError
        If a gang never finds its GPUs, vCPU and memory on this cluster, or a plan breaks a rule.
    UnsupportedProblemError
        If the policy can't serve these jobs on this cluster.
    """
    jobs.check_fits(cluster)
    options = options or EngineOptions()
    if isinstance(policy, IndexPolicy) and not is_compiled(jobs, cluster, options):
        policy = IndexPolicyAdapter(policy, jobs)
    check_support(policy, jobs, cluster, options)
    is_plain = is_compiled(jobs, cluster, options) and not options.preempt_checkpoint_us
    if type(policy) is YarnCs and is_plain:  # what derives from it may plan otherwise
        from optim.simulation.cluster.compiled_yarn.loop import play_capacity

        return play_capacity(jobs, cluster, policy, options, seed, watch)
    if isinstance(policy, PlanningPolicy):
        return play_plans(jobs, cluster, policy, options, seed, watch)
    return _play_index(jobs, cluster, policy, options, seed, watch)


def check_support(policy: Policy, jobs: Workload, cluster: Cluster, options: EngineOptions) -> None:
    """Check that a policy can serve such jobs on such a cluster; index policies serve all that find vCPU and memory.

    Raises
    ------
    UnsupportedProblemError
        If it can't; the text says why.
    InvalidProblemError
        If a gang never finds its vCPU and memory where the engine's rule places it.
    """
    found = policy.supports(jobs, cluster) if isinstance(policy, PlanningPolicy) else SUPPORTED
    if not found:
        raise UnsupportedProblemError(f"policy {policy.name} can't be played: {found.reason}")
    if isinstance(policy, PlanningPolicy):
        spreads = options.spread or policy.places_itself or policy.may_spread or policy.rules(options).is_elastic
    else:
        spreads = options.spread
    jobs.check_fits(cluster, on_one_machine=not spreads)


def is_compiled(jobs: Workload, cluster: Cluster, options: EngineOptions) -> bool:
    """Tell whether the compiled loop knows all that matters: whole GPUs of one type, room on hosts, no slowdown by neighbours."""
    has_kinds = jobs.kind_ppm.shape[1] > 0 and not (jobs.kind_ppm[:, np.unique(cluster.kind)] == PPM).all()
    return not has_kinds and not options.needs_planning and not jobs.strains_hosts(cluster)


def _play_index(
    jobs: Workload,
    cluster: Cluster,
    policy: IndexPolicy,
    options: EngineOptions,
    seed: int,
    watch: Callable[[int], bool] | None,
) -> Run | None:
    """Play all jobs by the compiled loop."""
    from optim.simulation.cluster.index.loop import advance
    from optim.simulation.cluster.index.state import (
        ARRIVED,
        IS_OVER,
        OUTAGES,
        PLACES,
        make_buffer,
        make_setup,
        make_state,
    )
    from optim.simulation.cluster.index.state import EVENTS as WRITTEN

    setup = make_setup(jobs, cluster, policy, options, seed)
    state = make_state(setup, cluster)
    margin = 6 * cluster.num_gpus + 16
    feed = OutageFeed(cluster, options, seed)
    buffer = make_buffer(EVENTS + margin, EVENTS + margin)
    is_held = np.zeros(len(state.heap_size), np.bool_)
    parts: list[tuple[IntArray, ...]] = []
    while not state.scalar[IS_OVER]:
        if state.scalar[OUTAGES] == len(setup.outage_time):
            when, machine, fails = feed.take_many(KNOWN_OUTAGES)
            setup = setup._replace(outage_time=when, outage_machine=machine, outage_fails=fails)
            state.scalar[OUTAGES] = 0
        advance(setup, state, buffer, is_held, STEPS, margin)
        events, places = int(state.scalar[WRITTEN]), int(state.scalar[PLACES])
        taken = (*(part[:events].copy() for part in buffer[:3]), np.diff(buffer.first[: events + 1]))
        parts.append((*taken, *(part[:places].copy() for part in buffer[4:])))
        if watch is not None and watch(int(state.scalar[ARRIVED])) and not state.scalar[IS_OVER]:
            return None
    return _as_run(jobs, policy, options, state, parts)


def _as_run(
    jobs: Workload,
    policy: IndexPolicy,
    options: EngineOptions,
    state: "State",
    parts: list[tuple[IntArray, ...]],
) -> Run:
    """Return what the loop wrote and counted."""
    time, kind, job, counts, machine, gpus = (np.concatenate(column) for column in zip(*parts, strict=True))
    log = EventLog(
        time_us=time,
        kind=kind.astype(np.int8),
        job=job,
        first=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        machine=machine,
        gpus=gpus,
    )
    is_done = np.zeros(len(jobs), np.bool_)
    is_done[job[kind == Event.END]] = True
    end = np.maximum(last_times(log, len(jobs)), jobs.submit_us)
    return Run(
        policy=policy.name,
        log=log,
        first_start_us=np.minimum(state.first_start, end),
        end_us=end,
        executed_us=state.executed,
        overhead_us=state.overhead,
        lost_us=state.lost,
        is_done=is_done,
        rules=options.on_failures(Rules(restart_us=options.overhead_us, move_us=options.overhead_us)),
        held_gpu_us=float(jobs.gpus @ (state.executed + state.overhead).astype(float)),
        overhead_gpu_us=float(jobs.gpus @ state.overhead.astype(float)),
    )
