"""What planning policies share: users, placing jobs in an order, elastic widths."""

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
    "it gives GPUs without regard to vCPU and memory, of which these jobs could ask for more than a machine has; "
    "let jobs ask for less, or enlarge the machines"
)


def on_one_type(jobs: Workload, cluster: Cluster) -> Support:
    """Tell whether every gang finds its GPUs, with vCPU and memory, among those of one type; if not, which doesn't."""
    asked = np.column_stack([jobs.gpus, jobs.cpu_milli, jobs.memory_mib, jobs.gpu_type_slowdown_ppm])
    for row in np.sort(np.unique(asked, axis=0, return_index=True)[1]).tolist():
        most = int(np.bincount(cluster.kind, weights=jobs.room_on(cluster, row)).max())
        if jobs.gpus[row] > most:
            who = f"job {jobs.ids[row][:40]} asks for {jobs.gpus[row]} GPUs of one type"
            remedy = "enlarge the cluster, leave such jobs out, or take a policy that mixes types"
            return Support(False, f"{who}, and no type has more than {most} for it; {remedy}")
    return SUPPORTED


def users_of(view: View) -> IntArray:
    """Return the user of each job submitted so far: as the table names them, else its virtual cluster where there are several, else its app."""
    if view.num_users > 1:
        return view.user
    return view.group if view.num_groups > 1 else view.app


class HeldUp:
    """Who waits behind jobs that found no room in a pass.

    Parameters
    ----------
    site
        What jobs ask for.
    is_strict
        Whether nobody may pass a job that waits for GPUs that both could use; otherwise it holds up only jobs that are as wide
        and on the same types.
    """

    def __init__(self, site: SimulationContext, is_strict: bool) -> None:
        self.site, self.is_strict = site, is_strict
        self.asked: set[tuple[int, tuple[bool, ...]]] = set()
        self.types: set[int] = set()
        self.is_all = False

    def add(self, job: int) -> None:
        """Let a job that found no room hold up others."""
        types = self.site.types_of(job)
        self.asked.add((self.site.widths[job], types))
        self.types.update(kind for kind, is_usable in enumerate(types) if is_usable)
        self.is_all = self.is_strict and (not types or len(self.types) == len(types))

    def holds(self, job: int) -> bool:
        """Tell whether a job is held up."""
        if not self.asked:
            return False
        types = self.site.types_of(job)
        if self.is_strict:
            return self.is_all or any(types[kind] for kind in self.types)
        return (self.site.widths[job], types) in self.asked


def fill(view: View, room: FreeGpus, order: Iterable[int], gpus: dict[int, Gpus], is_strict: bool = False) -> None:
    """Place waiting jobs in an order and add them to a plan.

    Parameters
    ----------
    view, room
        What is seen, and what is free.
    order
        Numbers of waiting jobs.
    gpus
        The plan so far.
    is_strict
        Whether a job that finds no place ends it, or with types of GPU holds up all that could use one of its types; otherwise
        it is passed over.
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
    """Stop jobs of a plan until another one finds a place, and place it; tell whether it did.

    Victims go in their order, until the job finds a place in what they leave. Only those on that place are stopped, and where
    its hosts have too little vCPU or memory left without them, others on these hosts.
    """
    trial, passed = room.copy(), list(victims)
    for victim in passed:
        trial.give(victim, gpus[victim])
    found = trial.find(job) if passed else None
    if found is None:
        return False
    least, most = 0, len(passed)  # more free GPUs never take a place away: a bisection finds the fewest victims
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
    """Return which jobs are stopped so that another one finds a place, none if that isn't enough; nothing is stopped here.

    Victims yield in their order, the least urgent first, until the placement rule could place the job: on one machine, the
    first of those that could hold it, or for wider gangs on enough wholly free machines. Of those passed, the most urgent are
    spared first where the job finds its place, on that machine, without them.
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
    """Return all GPUs, vCPUs and memory (MiB) of a cluster; shape (3,)."""
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
    """Give GPUs one at a time to the job to which one more is worth most; ties to the lower number.

    Parameters
    ----------
    most
        Largest width of each job.
    num_gpus
        GPUs that there are.
    gain
        What one more GPU is worth to a job that has so many; 0 or less for nothing.

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
    """Return GPUs for jobs of given widths: those of an unchanged width keep theirs, the others take what one place has at most.

    Wider jobs are placed first; a job that no place can hold at its width takes the largest that one machine has, if any.
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
