"""Conversion of running and pending jobs to a workload and an initial state of the simulation."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np

from optim.core.arrays import FloatArray, IntArray
from optim.core.documents import first_sign
from optim.core.errors import InvalidProblemError
from optim.core.files import read_bytes
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.present import Present, starts_of
from optim.models.cluster.workload import US, Workload
from optim.workloads.cluster.jobs import Selection, cluster_jobs
from optim.workloads.csv_columns import header_of
from optim.workloads.traces.kubernetes import read_kubernetes
from optim.workloads.traces.queue_state import QueueState
from optim.workloads.traces.slurm import SEPARATOR, read_sacct_state
from optim.workloads.traces.squeue import read_squeue

Placed = list[tuple[int, int]]
"""Machines, with the number of allocated GPUs on each."""


def read_queue_state(path: Path, now: str | None = None) -> QueueState:
    """Read running and pending jobs from a file: the output of squeue, sacct or kubectl.

    Raises
    ------
    InvalidProblemError
        If the file is the output of no such command, or is invalid.
    InvalidOptionError
        If `now` isn't a date.
    """
    data = read_bytes(path)
    begin = first_sign(data)
    if begin == b"{":
        is_queue = re.search(rb'"kind"\s*:\s*"(?:Pod|Workload|List|PodList|WorkloadList)"', data) is None
        return read_squeue(path, now) if is_queue else read_kubernetes(path, now)
    if begin != b"[" and {"JobID", "JobIDRaw"} & set(header_of(path, SEPARATOR)):
        return read_sacct_state(path, now)
    raise InvalidProblemError(
        f"{path}: not a state; give the output of squeue --json, sacct -P (with running and pending jobs) or kubectl get pods -o json"
    )


def begin_from(state: QueueState, cluster: Cluster) -> tuple[Workload, Present, FloatArray]:
    """Return a state's jobs, their allocations and starts, and limits of run times (NaN for none; shape (jobs,)).

    An unknown run time is the job's limit, or else an hour more than the elapsed time. In the order of their names, the
    jobs' machines are matched with machines of the cluster: each with the first unmatched one that has enough GPUs, of
    a type that its jobs may use. Jobs without named machines are placed largest first, on one machine if it has enough
    free GPUs, else on idle machines, else anywhere.

    Raises
    ------
    InvalidProblemError
        If jobs ask for types or partitions that the cluster lacks, or more GPUs are allocated than exist.
    """
    _check_held(state, cluster)
    jobs = cluster_jobs(state.table(), Selection(), cluster)
    known = {job.name: job for job in state.jobs}
    origin = min(job.submit_s for job in state.jobs)
    ordered = [known[name] for name in jobs.ids]
    free, usable = cluster.gpus.copy(), [jobs.room_on(cluster, row) > 0 for row in range(len(jobs))]
    running = [row for row, job in enumerate(ordered) if job.start_s is not None]
    machine_of = _named_machines({row: ordered[row].nodes for row in running}, usable, cluster)
    places: dict[int, Placed] = {}
    for row in running:
        named = {machine_of[name]: gpus for name, gpus in ordered[row].nodes}
        if named:
            places[row] = _on_named(ordered[row].name, int(jobs.gpus[row]), named, free)
    for row in sorted((row for row in running if row not in places), key=lambda row: -int(jobs.gpus[row])):
        places[row] = _anywhere(ordered[row].name, int(jobs.gpus[row]), usable[row], free, cluster)

    def to_us(second: float | None) -> int:
        assert second is not None
        return round((second - origin) * US)

    starts = [
        (min(max(to_us(ordered[row].start_s), int(jobs.submit_us[row])), to_us(state.now_s)), row, sorted(places[row]))
        for row in running
    ]
    present = Present(now_us=to_us(state.now_s), starts=starts_of(starts))
    held = present.held_us(len(jobs))
    jobs = replace(jobs, duration_us=np.maximum(jobs.duration_us, held + 1))
    present.check(jobs, cluster)
    limit = np.array([np.nan if job.limit_s is None else job.limit_s for job in ordered])
    return jobs, present, limit


def _check_held(state: QueueState, cluster: Cluster) -> None:
    """Raise InvalidProblemError if more GPUs are allocated than exist, in total or of a type."""
    running = [job for job in state.jobs if job.start_s is not None]
    held = sum(job.gpus for job in running)
    if held > cluster.num_gpus:
        raise InvalidProblemError(
            f"running jobs have {held} GPUs, but the cluster has {cluster.num_gpus}; give the cluster they run on (--gpus)"
        )
    names = [name.casefold() for name in cluster.names_of_gpus]
    there = np.bincount(cluster.kind, cluster.gpus, len(names))
    for kind in sorted({job.gpu_type for job in running} - {""}) if cluster.kinds != ("gpu",) else ():
        total = int(there[[name == kind.casefold() for name in names]].sum())
        of_kind = sum(job.gpus for job in running if job.gpu_type == kind)
        if total and of_kind > total:
            raise InvalidProblemError(
                f"running jobs have {of_kind} GPUs of type {kind[:40]!r}, but the cluster has {total}; correct the topology"
            )


def _named_machines(
    nodes: dict[int, tuple[tuple[str, int], ...]], usable: "list[np.typing.NDArray[np.bool_]]", cluster: Cluster
) -> dict[str, int]:
    """Return the index of the cluster's machine for each machine name that running jobs state."""
    users: dict[str, list[int]] = {}
    held: dict[str, int] = {}
    for row, named in nodes.items():
        for name, gpus in named:
            users.setdefault(name, []).append(row)
            held[name] = held.get(name, 0) + gpus
    machine_of: dict[str, int] = {}
    is_open = np.ones(cluster.num_machines, np.bool_)
    for name in sorted(users, key=_natural):
        fits = is_open & (cluster.gpus >= held[name]) & np.logical_and.reduce([usable[row] for row in users[name]])
        if not fits.any():
            raise InvalidProblemError(
                f"the jobs' machine {name[:40]!r}, with {held[name] or 'some'} allocated GPUs, matches no unassigned machine "
                f"among the cluster's {cluster.num_machines}; give the cluster the jobs run on (--gpus)"
            )
        machine_of[name] = int(np.flatnonzero(fits)[0])
        is_open[machine_of[name]] = False
    return machine_of


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts n2 before n10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def _on_named(name: str, gang: int, named: dict[int, int], free: IntArray) -> Placed:
    """Return a job's GPUs on each machine: as recorded, else equal numbers, else all free ones machine by machine."""
    told = sum(named.values())
    if told != gang and gang % len(named) == 0 and all(free[machine] >= gang // len(named) for machine in named):
        named = dict.fromkeys(named, gang // len(named))
    elif told != gang:
        left, taken = gang, {}
        for machine in named:
            taken[machine] = min(left, int(free[machine]))
            left -= taken[machine]
        named = taken
    places = [(machine, gpus) for machine, gpus in named.items() if gpus]
    if sum(gpus for _, gpus in places) < gang or any(free[machine] < gpus for machine, gpus in places):
        raise InvalidProblemError(
            f"job {name[:40]!r} runs on {gang} GPUs, but its machines have fewer free GPUs; give the cluster it runs on (--gpus)"
        )
    for machine, gpus in places:
        free[machine] -= gpus
    return places


def _anywhere(name: str, gang: int, usable: "np.typing.NDArray[np.bool_]", free: IntArray, cluster: Cluster) -> Placed:
    """Return the GPUs on each machine for a job without named machines, and remove them from `free`."""
    room = np.where(usable, free, 0)
    fitting = np.flatnonzero(room >= gang)
    if len(fitting):
        order = fitting[np.argsort(room[fitting], kind="stable")][:1]
    else:
        is_whole = room == cluster.gpus
        order = np.lexsort((-room, ~is_whole))
    places: Placed = []
    for machine in order.tolist():
        gpus = min(gang, int(room[machine]))
        if gpus:
            places.append((machine, gpus))
            free[machine] -= gpus
            gang -= gpus
    if gang:
        raise InvalidProblemError(
            f"job {name[:40]!r} can't be placed: the machines on which it may run have {gang} free GPUs too few; "
            "give the cluster it runs on (--gpus)"
        )
    return places


def is_table_of_jobs(path: Path) -> bool:
    """Return whether a file of running and pending jobs is output of `sacct`, whose finished jobs can serve as the history."""
    return first_sign(read_bytes(path)) not in (b"{", b"[")
