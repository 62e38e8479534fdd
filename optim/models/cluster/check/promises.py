"""Check the reserved starts of a log: that they exist when required, are correct, and are met.

A job may start after its promised time only if, between the reservation and that time, a running job exceeds its estimate, or a
machine fails or doesn't return. The estimate of a job that exceeds it is doubled, repeatedly if necessary.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from optim.core.arrays import IntArray
from optim.core.solution import Violation, violation
from optim.models.cluster.check.replay import (
    ATTEMPT_FAILED,
    KILLED_BY_OUTAGE,
    MACHINE_DOWN,
    NO_JOB,
    PREEMPT,
    REPAIR,
    START,
    BrokenEventError,
)
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.log import EventLog
from optim.models.cluster.rules import Rules
from optim.models.cluster.workload import Workload

ENDLESS = 2**62


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Runs:
    """Runs of jobs in the order of their starts: job, start, start of progress, end, estimated length, and event number."""

    job: IntArray
    begin: IntArray
    progress: IntArray
    end: IntArray
    estimate: IntArray
    event: IntArray
    is_first: IntArray


def check_promises(
    jobs: Workload, cluster: Cluster, log: EventLog, rules: Rules, begins_us: int | None, where: str
) -> list[Violation]:
    """Return the first promise that is missing, impossible or broken in a log without other violations.

    Parameters
    ----------
    begins_us
        Time from which the policy decides. If it is None (unknown, in a log with an initial state), the time of the first
        promise is used.
    where
        Name of the run for messages.
    """
    if not rules.reservation_depth:
        is_silent = all((getattr(log, name) == -1).all() for name in ("estimate_us", "reserved_us", "promised_us"))
        return (
            []
            if is_silent
            else [
                violation(
                    "promises",
                    "the log has estimates or reserved starts, but the policy makes no reservations",
                    where=where,
                )
            ]
        )
    try:
        runs = _runs(jobs, log, rules)
        promised = np.flatnonzero(log.promised_us[runs.event] >= 0)
        _check_form(jobs, log, runs, promised)
        if begins_us is None:
            begins_us = int(log.reserved_us[runs.event[promised]].min(initial=ENDLESS))
        _check_owed(jobs, cluster, log, runs, begins_us, rules)
        for at in promised.tolist():
            _check_kept(jobs, log, runs, at)
        if _is_exact(jobs, cluster, rules):
            _check_earliest(jobs, cluster, log, runs, promised)
    except BrokenEventError as broken:
        return [violation("promises", str(broken), where=where)]
    return []


def _runs(jobs: Workload, log: EventLog, rules: Rules) -> _Runs:
    starts = np.flatnonzero(log.kind == START)
    is_first = np.zeros(len(starts), np.int64)
    is_first[np.unique(log.job[starts], return_index=True)[1]] = 1
    end = np.full(len(starts), ENDLESS)
    latest: dict[int, int] = {}
    run = 0
    for kind, job, time in zip(log.kind.tolist(), log.job.tolist(), log.time_us.tolist(), strict=True):
        if kind == START:
            latest[job] = run
            run += 1
        elif job != NO_JOB and job in latest:
            end[latest.pop(job)] = time
    begin = log.time_us[starts]
    return _Runs(
        job=log.job[starts],
        begin=begin,
        progress=begin + np.where(is_first > 0, rules.startup_us, rules.restart_us),
        end=end,
        estimate=log.estimate_us[starts],
        event=starts,
        is_first=is_first,
    )


def _check_form(jobs: Workload, log: EventLog, runs: _Runs, promised: IntArray) -> None:
    """Check that estimates are those stated by jobs, and that promises are made once per job, between submission and start."""
    others = np.ones(len(log), np.bool_)
    others[runs.event] = False
    if any((getattr(log, name)[others] != -1).any() for name in ("estimate_us", "reserved_us", "promised_us")):
        raise BrokenEventError("an event other than a start has an estimate or a reserved start")
    stated = jobs.estimate_us[runs.job]
    own = np.full(len(jobs), -1)
    own[runs.job] = runs.estimate
    wrong = (runs.estimate < 1) | (runs.estimate != own[runs.job]) | ((stated > 0) & (runs.estimate != stated))
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        said = f"has an estimate of {runs.estimate[at]} us"
        raise BrokenEventError(
            f"{_name(jobs, runs.job[at])} {said}, but the job states {int(stated[at])} us, or has another estimate at another start"
        )
    reserved, start = log.reserved_us[runs.event], log.promised_us[runs.event]
    wrong = ((reserved >= 0) != (start >= 0)) | ((start >= 0) & (runs.is_first == 0))
    wrong[promised] |= (reserved[promised] < jobs.submit_us[runs.job[promised]]) | (
        reserved[promised] > np.minimum(start, runs.begin)[promised]
    )
    if wrong.any():
        job = runs.job[np.flatnonzero(wrong)[0]]
        raise BrokenEventError(
            f"{_name(jobs, job)} has a start reserved outside the time from its submission to its first start"
        )


def _check_owed(jobs: Workload, cluster: Cluster, log: EventLog, runs: _Runs, begins_us: int, rules: Rules) -> None:
    """Check that the first waiting jobs, up to the reservation depth, have promises, and that promises follow their order.

    While a machine is down, or before one leaves for good, a job may fit nowhere, and so have no promise. A job that waits for
    a later start than its first may have a reservation that the log doesn't contain.
    """
    changes: list[
        tuple[int, int, int]
    ] = []  # time; index of the changed count (with promise, without, machines down); change
    first = np.flatnonzero(runs.is_first)
    began = np.full(len(jobs), ENDLESS)
    began[runs.job[first]] = runs.begin[first]
    reserved = np.full(len(jobs), ENDLESS)
    of_first = runs.event[first]
    reserved[runs.job[first]] = np.where(log.promised_us[of_first] >= 0, log.reserved_us[of_first], ENDLESS)
    for submit, made, begin in zip(jobs.submit_us.tolist(), reserved.tolist(), began.tolist(), strict=True):
        if begin == ENDLESS:
            changes.append((submit, 0, 1))  # the log has no promises of jobs that never start: assume one
            continue
        changes += [(submit, 1, 1), (min(made, begin), 1, -1)]
        if made < begin:
            changes += [(made, 0, 1), (begin, 0, -1)]
    changes += [(begin, 0, -1) for begin in runs.begin[runs.is_first == 0].tolist()]
    for time, kind in zip(log.time_us.tolist(), log.kind.tolist(), strict=True):
        changes += [(time, 0, 1)] if kind in (PREEMPT, KILLED_BY_OUTAGE, ATTEMPT_FAILED) else []
        changes += [(time, 2, 1 if kind == MACHINE_DOWN else -1)] if kind in (MACHINE_DOWN, REPAIR) else []
    if sum(more for _, what, more in changes if what == 2):
        return
    changes.sort()
    counts = [0, 0, 0]
    for at, (time, what, more) in enumerate(changes):
        counts[what] += more
        is_last = at + 1 == len(changes) or changes[at + 1][0] > time
        if is_last and time >= begins_us and counts[1] and counts[0] < rules.reservation_depth and not counts[2]:
            raise BrokenEventError(
                f"a job waits at {time} us without a reserved start, but fewer than {rules.reservation_depth} jobs have one"
            )
    if not (log.kind == MACHINE_DOWN).any():
        _check_order(jobs, reserved, began)


def _check_order(jobs: Workload, reserved: IntArray, began: IntArray) -> None:
    """Check that no job has a promise while an earlier job waits without one."""
    open_jobs: list[int] = []
    came = 0
    for made, job in sorted((int(made), job) for job, made in enumerate(reserved.tolist()) if made < ENDLESS):
        while came < len(jobs) and jobs.submit_us[came] <= made:
            heappush(open_jobs, came)
            came += 1
        while open_jobs and min(reserved[open_jobs[0]], began[open_jobs[0]]) <= made:
            heappop(open_jobs)
        if open_jobs and open_jobs[0] < job and began[open_jobs[0]] < ENDLESS:
            said = f"gets a reserved start at {made} us, before {_name(jobs, open_jobs[0])}, which waits longer"
            raise BrokenEventError(f"{_name(jobs, job)} {said}")


def _check_kept(jobs: Workload, log: EventLog, runs: _Runs, at: int) -> None:
    """Check that a job started by its promised time, or that the delay has an allowed reason."""
    made, promised = int(log.reserved_us[runs.event[at]]), int(log.promised_us[runs.event[at]])
    if runs.begin[at] <= promised:
        return
    until = int(np.searchsorted(log.time_us, promised, side="right"))
    since = int(np.searchsorted(log.time_us, made))
    down, repaired = ((log.kind[:until] == kind) for kind in (MACHINE_DOWN, REPAIR))
    # A machine in planned maintenance may fail, and so return later than planned.
    if down[since:].any() or down.sum() > repaired.sum():
        return
    latest = np.minimum(runs.end - 1, promised) - runs.progress  # run time at the promised time, or just before the end
    times = latest // np.maximum(1, runs.estimate)
    doublings = np.frexp(np.maximum(1, times).astype(float))[1] - 1
    outlasted = runs.progress + (runs.estimate << np.minimum(doublings, 62))
    if not ((times >= 1) & (outlasted > made)).any():
        raise BrokenEventError(
            f"{_name(jobs, runs.job[at])} starts at {int(runs.begin[at])} us, later than the reserved {promised} us, although no estimate was exceeded"
        )


def _is_exact(jobs: Workload, cluster: Cluster, rules: Rules) -> bool:
    """Return whether running jobs alone determine the first waiting job's start.

    There must be no other reservations, no outages, and enough vCPU and memory.
    """
    rooms = ((jobs.cpu_milli, cluster.cpus, 1000), (jobs.memory_mib, cluster.memory_gb, 1024))
    is_ample = all(
        not most.max() or (np.round(room * unit) >= cluster.gpus * most.max()).all() for most, room, unit in rooms
    )
    return rules.reservation_depth == 1 and not rules.checkpoint_us and not rules.may_spread and is_ample


def _check_earliest(jobs: Workload, cluster: Cluster, log: EventLog, runs: _Runs, promised: IntArray) -> None:
    """Check that a promised start is the earliest time at which the job fits if running jobs end by their estimates."""
    places: Sequence[tuple[tuple[int, int], ...]] = [each[3] for each in log.rows()]
    for at in promised.tolist():
        job, made = int(runs.job[at]), int(log.reserved_us[runs.event[at]])
        held: dict[int, list[tuple[int, int]]] = {}
        for run in np.flatnonzero((runs.begin <= made) & (runs.end > made)).tolist():
            ends = int(runs.progress[run] + runs.estimate[run])
            while ends <= made:
                ends += ends - int(runs.progress[run])
            for machine, gpus in places[runs.event[run]]:
                held.setdefault(machine, []).append((ends, gpus))
        earliest = _earliest(jobs, cluster, job, made, held)
        if earliest != log.promised_us[runs.event[at]]:
            said = f"has a start reserved for {int(log.promised_us[runs.event[at]])} us, but by the estimates at {made} us it can start at {earliest} us"
            raise BrokenEventError(f"{_name(jobs, job)} {said}")


def _earliest(jobs: Workload, cluster: Cluster, job: int, now: int, held: dict[int, list[tuple[int, int]]]) -> int:
    """Return when a machine has enough free GPUs for a gang or, if none is large enough, when enough machines are empty."""
    width = int(jobs.gpus[job])
    slowdown = jobs.gpu_type_slowdown_ppm[job]
    usable = [machine for machine, kind in enumerate(cluster.kind.tolist()) if not len(slowdown) or slowdown[kind] > 0]
    is_wide = width > max(int(cluster.gpus[machine]) for machine in usable)
    sizes = {machine: int(cluster.gpus[machine]) for machine in usable}
    times = sorted(
        (_free_from(held.get(machine, ()), now, size, size if is_wide else width), size)
        for machine, size in sizes.items()
        if is_wide or size >= width
    )
    if not is_wide:
        return times[0][0]
    for time, gpus in times:
        width -= gpus
        if width <= 0:
            return time
    return ENDLESS


def _free_from(held: Sequence[tuple[int, int]], now: int, size: int, width: int) -> int:
    """Return when a machine of `size` GPUs has `width` free GPUs."""
    free = size - sum(gpus for _, gpus in held)
    if free >= width:
        return now
    for ends, gpus in sorted(held):
        free += gpus
        if free >= width:
            return ends
    return ENDLESS


def _name(jobs: Workload, job: int) -> str:
    return f"job {jobs.ids[int(job)][:40]}"
