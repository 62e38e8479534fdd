"""Play a workload under an index policy, and put what happened into a log."""

from collections.abc import Callable

import numpy as np

from optim.models.cluster.log import Event, EventLog, Run
from optim.models.cluster.workload import Workload
from optim.models.cluster.world import Cluster, IntArray
from optim.simulation.cluster.index_policy import IndexPolicy
from optim.simulation.cluster.options import EngineOptions

STEPS = 20_000
"""Instants played between two looks at progress and interruption: some milliseconds."""

EVENTS = 65_536
"""Events that a buffer holds besides one instant's."""


def play(
    jobs: Workload,
    cluster: Cluster,
    policy: IndexPolicy,
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
        If a gang is larger than the cluster.
    """
    from optim.simulation.cluster.loop import advance
    from optim.simulation.cluster.state import ARRIVED, IS_OVER, PLACES, make_buffer, make_setup, make_state
    from optim.simulation.cluster.state import EVENTS as WRITTEN

    jobs.check_fits(cluster)
    options = options or EngineOptions()
    setup = make_setup(jobs, cluster, policy, options, seed)
    state = make_state(setup, cluster)
    margin = 4 * cluster.num_gpus + 16
    buffer = make_buffer(EVENTS + margin, EVENTS + margin)
    is_held = np.zeros(len(state.heap_size), np.bool_)
    parts: list[tuple[IntArray, ...]] = []
    while not state.scalar[IS_OVER]:
        advance(setup, state, buffer, is_held, STEPS, margin)
        events, places = int(state.scalar[WRITTEN]), int(state.scalar[PLACES])
        taken = (*(part[:events].copy() for part in buffer[:3]), np.diff(buffer.first[: events + 1]))
        parts.append((*taken, *(part[:places].copy() for part in buffer[4:])))
        if watch is not None and watch(int(state.scalar[ARRIVED])) and not state.scalar[IS_OVER]:
            return None
    time, kind, job, counts, machine, gpus = (np.concatenate(column) for column in zip(*parts, strict=True))
    log = EventLog(
        time_us=time,
        kind=kind.astype(np.int8),
        job=job,
        first=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        machine=machine,
        gpus=gpus,
    )
    end = np.zeros(len(jobs), np.int64)
    is_end = kind == Event.END
    end[job[is_end]] = time[is_end]
    return Run(
        policy=policy.name,
        log=log,
        first_start_us=state.first_start,
        end_us=end,
        executed_us=state.executed,
        overhead_us=state.overhead,
    )
