"""Play the capacity scheduler by its compiled loop: the same schedules, to the event, as by planning anew at each instant."""

from collections.abc import Callable

import numpy as np

from optim.models.cluster.log import Event, Run
from optim.models.cluster.workload import US, Workload
from optim.models.cluster.world import Cluster, IntArray
from optim.simulation.cluster.capacity.loop import advance
from optim.simulation.cluster.capacity.state import (
    ARRIVED,
    END,
    EVENTS,
    EXECUTED,
    FIRST_START,
    FRAGMENT_S,
    IS_OVER,
    LOST,
    NOBODY,
    NOW,
    OUTAGES,
    PAUSED,
    PLACES,
    SHARE_S,
    World,
    make_world,
)
from optim.simulation.cluster.options import EngineOptions
from optim.simulation.cluster.outages import OutageFeed
from optim.simulation.cluster.planning.engine import as_log
from optim.simulation.cluster.policies.yarn_cs import YarnCs

STEPS = 20_000
"""Instants played between two looks at progress and interruption: some milliseconds."""

KNOWN_OUTAGES = 1_024
"""Failures and repairs that the loop is told of ahead."""

LOGGED = 65_536
"""Events that the log holds at a time besides one instant's."""


def play_capacity(
    jobs: Workload,
    cluster: Cluster,
    policy: YarnCs,
    options: EngineOptions,
    seed: int,
    watch: Callable[[int], bool] | None = None,
) -> Run | None:
    """Play jobs until all are over, or none gets on any more; None if `watch` wanted to stop before.

    Jobs must take whole GPUs of one type and have room on hosts, and nothing be wrapped around the policy.
    """
    policy.begin(cluster, seed)
    margin = 6 * cluster.num_gpus + 2 * cluster.num_machines + 16
    share = policy.options.preempts_above
    world = make_world(jobs, cluster, policy.limit, policy.step_us, share, options, LOGGED + margin)
    feed = OutageFeed(cluster, options, seed)
    events: list[IntArray] = []
    places: list[IntArray] = []
    while not world.scalar[IS_OVER]:
        if world.scalar[OUTAGES] == len(world.outage):
            world = world._replace(outage=np.column_stack(feed.take_many(KNOWN_OUTAGES)))
            world.scalar[OUTAGES] = 0
        advance(world, STEPS, margin)
        events.append(world.event[: world.scalar[EVENTS]].copy())
        places.append(world.place[: world.scalar[PLACES]].copy())
        if watch is not None and watch(int(world.scalar[ARRIVED])) and not world.scalar[IS_OVER]:
            return None
    return _as_run(jobs, cluster, policy, options, world, np.concatenate(events), np.concatenate(places))


def _as_run(
    jobs: Workload,
    cluster: Cluster,
    policy: YarnCs,
    options: EngineOptions,
    world: World,
    events: IntArray,
    places: IntArray,
) -> Run:
    """Return what the loop wrote and counted."""
    log = as_log(cluster, events, places)
    table = {name: world.job[:, name].copy() for name in (FIRST_START, END, EXECUTED, PAUSED, LOST)}
    end = np.where(table[END] != NOBODY, table[END], np.maximum(world.scalar[NOW], jobs.submit_us))
    is_done = np.zeros(len(jobs), np.bool_)
    is_done[log.job[log.kind == Event.END]] = True
    for cause, column in (("fair_share", SHARE_S), ("fragmentation", FRAGMENT_S)):
        policy.delays[cause] = int(world.delay[column]) * US + int(world.delay[column + 1])
    return Run(
        policy=policy.name,
        log=log,
        first_start_us=np.where(table[FIRST_START] != NOBODY, table[FIRST_START], end),
        end_us=end,
        executed_us=table[EXECUTED],
        overhead_us=table[PAUSED],
        lost_us=table[LOST],
        is_done=is_done,
        rules=options.on_failures(policy.rules(options)),
        held_gpu_us=float(jobs.gpus @ (table[EXECUTED] + table[PAUSED])),
        overhead_gpu_us=float(jobs.gpus @ table[PAUSED]),
        figures=dict(policy.figures()),
        worth=policy.worth(),
    )
