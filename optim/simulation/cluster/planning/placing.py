"""Shared parts of planning policies: users, placement in a given order, and elastic widths."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush

import numpy as np

from optim.core.arrays import FloatArray, IntArray
from optim.core.registry import SUPPORTED, Support
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.workload import Workload
from optim.simulation.cluster.options import Placement
from optim.simulation.cluster.planning.free_gpus import FreeGpus, Gpus, SimulationContext
from optim.simulation.cluster.planning.policy import View

WITHOUT_HOSTS = (
    "it ignores vCPUs and memory, and these jobs could need more of them than a machine has; reduce the demands, or "
    "enlarge the machines"
)


def on_one_type(jobs: Workload, cluster: Cluster) -> Support:
    """Return whether every gang finds its GPUs, vCPUs and memory on GPUs of one type.

    If not, the reason names the first gang that does not.
    """
    asked = np.column_stack([jobs.gpus, jobs.cpu_milli, jobs.memory_mib, jobs.gpu_type_slowdown_ppm])
    for row in np.sort(np.unique(asked, axis=0, return_index=True)[1]).tolist():
        most = int(np.bincount(cluster.kind, weights=jobs.room_on(cluster, row)).max())
        if jobs.gpus[row] > most:
            who = f"job {jobs.ids[row][:40]} needs {jobs.gpus[row]} GPUs of one type"
            remedy = "enlarge the cluster, remove such jobs, or choose a policy that mixes types"
            return Support(False, f"{who}, but no type has more than {most} for it; {remedy}")
    return SUPPORTED


def users_of(view: View) -> IntArray:
    """Return the user of each job submitted so far.

    A job's user is the user in the table; otherwise its virtual cluster, if there are several; otherwise its app.
    """
    if view.num_users > 1:
        return view.user
    return view.group if view.num_groups > 1 else view.app


class HeldUp:
    """Jobs that did not fit in a pass, and the later jobs that they block.

    Parameters
    ----------
    site
        Constants of the run, with the demands of jobs.
    is_strict
        Whether a waiting job blocks all later jobs that could use the same GPUs. Otherwise it blocks only jobs of equal
        width and types.
    """

    def __init__(self, site: SimulationContext, is_strict: bool) -> None:
        self.site, self.is_strict = site, is_strict
        self.asked: set[tuple[int, tuple[bool, ...]]] = set()
        self.types: set[int] = set()
        self.is_all = False

    def add(self, job: int) -> None:
        """Add a job that does not fit, so that it blocks later jobs."""
        types = self.site.types_of(job)
        self.asked.add((self.site.widths[job], types))
        self.types.update(kind for kind, is_usable in enumerate(types) if is_usable)
        self.is_all = self.is_strict and (not types or len(self.types) == len(types))

    def holds(self, job: int) -> bool:
        """Return whether a job is blocked."""
        if not self.asked:
            return False
        types = self.site.types_of(job)
        if self.is_strict:
            return self.is_all or any(types[kind] for kind in self.types)
        return (self.site.widths[job], types) in self.asked


def fill(view: View, room: FreeGpus, order: Iterable[int], gpus: dict[int, Gpus], is_strict: bool = False) -> None:
    """Place waiting jobs in order, and add them to a plan.

    Parameters
    ----------
    view, room
        View of the policy, and free GPUs.
    order
        Numbers of waiting jobs.
    gpus
        The plan so far.
    is_strict
        Whether a job that does not fit ends the pass (with GPU types: blocks all jobs that could use one of its types).
        Otherwise the job is skipped.
    """
    held_up = HeldUp(room.site, is_strict=True)
    left = room.num_free
    widths, is_whole = room.site.widths, room.site.is_plain
    for job in order:
        if is_strict and held_up.holds(job):
            continue
        cannot_fit = is_whole and (widths[job] > left or room.cannot_fit(widths[job]))
        taken = None if cannot_fit else room.place(job)
        if taken is not None:
            gpus[job] = taken
            left -= len(taken)
        elif is_strict:
            held_up.add(job)
            if held_up.is_all:
                return
        if is_whole and left == 0:
            return


def make_room(room: FreeGpus, job: int, victims: Iterable[int], gpus: dict[int, Gpus]) -> bool:
    """Stop jobs of a plan until another job fits, and place it; return whether it fits.

    Victims are considered in order until the job fits on the GPUs that they release. Only victims on the job's GPUs are
    stopped; if vCPUs or memory are still insufficient, also other victims on the same machines.
    """
    trial, passed = room.copy(), list(victims)
    for victim in passed:
        trial.give(victim, gpus[victim])
    found = trial.find(job) if passed else None
    if found is None:
        return False
    # With more free GPUs the job still fits, so bisection finds the minimum number of victims.
    least, most = 0, len(passed)
    given = most
    while least + 1 < most:
        middle = (least + most) // 2
        for victim in passed[middle:given]:
            trial.take(victim, gpus[victim])
        for victim in passed[given:middle]:
            trial.give(victim, gpus[victim])
        given = middle
        here = trial.find(job)
        least, most, found = (least, middle, here) if here is not None else (middle, most, found)
    passed = passed[:most]
    for other in passed:
        if not set(found).isdisjoint(gpus[other]):
            room.give(other, gpus.pop(other))
    for other in passed:
        if other in gpus and not room.short_hosts(job, found).isdisjoint(map(room.machine_of, gpus[other])):
            room.give(other, gpus.pop(other))
    room.take(job, found)
    gpus[job] = found
    return True


def sparing(room: FreeGpus, job: int, victims: Sequence[int], gpus: Mapping[int, Gpus]) -> list[int]:
    """Return the jobs to stop so that another job fits, empty if that is impossible; the plan is not changed.

    Victims are considered in order, least urgent first, until the job would fit if all of them were stopped: on the first
    suitable machine, or for wider gangs on completely free machines. Of these victims, the most urgent ones continue if the job
    fits while they run.
    """
    trial, passed, found = room.copy(), [], None
    for victim in victims:
        trial.give(victim, gpus[victim])
        passed.append(victim)
        found = trial.find(job, placement=Placement.FIRST_FIT)
        if found is not None:
            break
    if found is None:
        return []
    place = None
    if not trial.spreads(job) and room.site.widths[job] <= room.site.max_of[job]:
        place = np.arange(room.site.cluster.num_machines) == room.machine_of(found[0])
    stopped = []
    for victim in reversed(passed):
        trial.take(victim, gpus[victim])
        if trial.find(job, machines=place) is None:
            trial.give(victim, gpus[victim])
            stopped.append(victim)
    return stopped[::-1]


def capacity(cluster: Cluster) -> FloatArray:
    """Return the total GPUs, vCPUs (thousandths) and memory (MiB) of a cluster; shape (3,)."""
    return np.array([cluster.num_gpus, cluster.cpus.sum() * 1000, cluster.memory_gb.sum() * 1024])


def demands(view: View) -> FloatArray:
    """Return GPUs, vCPUs (thousandths) and memory (MiB) of each job's gang; shape (jobs, 3)."""
    gpus = view.gpus * (view.share_milli / 1000 if view.is_shared else 1.0)
    return np.stack([gpus, view.gpus * view.cpu_milli, view.gpus * view.memory_mib], axis=1).astype(float)


def quotas_by_gpu_time(jobs: Workload, cluster: Cluster) -> FloatArray:
    """Return each virtual cluster's GPUs in proportion to the GPU-time of its jobs; shape (groups,)."""
    hours = np.bincount(jobs.group, weights=jobs.gpus.astype(float) * jobs.duration_us, minlength=len(jobs.groups))
    return np.asarray(hours / hours.sum() * cluster.num_gpus)


def marginal_widths(most: Mapping[int, int], num_gpus: int, gain: Callable[[int, int], float]) -> dict[int, int]:
    """Assign GPUs one at a time to the job with the largest marginal gain; ties go to the lower job number.

    Parameters
    ----------
    most
        Maximum width of each job.
    num_gpus
        Number of GPUs.
    gain
        Function of a job and its number of GPUs that returns the gain of one more GPU; 0 or less if there is no gain.

    Returns
    -------
    dict
        Width of each job that gets GPUs.
    """
    heap = [(-gain(job, 0), job) for job in most]
    heapify(heap)
    widths: dict[int, int] = {}
    while heap and num_gpus:
        worth, job = heappop(heap)
        if worth >= 0:
            break
        widths[job] = widths.get(job, 0) + 1
        num_gpus -= 1
        if widths[job] < most[job]:
            heappush(heap, (-gain(job, widths[job]), job))
    return widths


def assign_gpus(view: View, widths: Mapping[int, int]) -> dict[int, Gpus]:
    """Return GPUs for jobs of given widths; a job of unchanged width keeps its GPUs.

    Wider jobs are placed first. A job that does not fit at its width takes the largest number of free GPUs of one machine, if
    that is at least the job's minimum.
    """
    gpus = {job: held for job, held in view.running.items() if widths.get(job) == len(held)}
    room = view.room([job for job in view.running if job not in gpus])
    for job in sorted((job for job in widths if job not in gpus), key=lambda job: (-widths[job], job)):
        least = 1 if view.min_gpus[job] < 1 else int(view.min_gpus[job])
        limit = room.limit(job)
        largest = int(room.free.max() if limit is None else room.free.max(where=limit, initial=0))
        for width in (widths[job], min(widths[job], largest)):
            taken = room.place(job, width) if width >= least else None
            if taken is not None:
                gpus[job] = taken
                break
    return gpus
