"""Free GPUs during planning: placement of gangs, and fragmentation.

Consider a mix of demands, weighted by their share of submissions. The fragmentation of a machine is the expected free GPU
capacity that a job drawn from the mix cannot use. If the job does not fit on the machine, this is all free capacity. Otherwise
it is the free capacity of those GPUs that are too full for the job's share of a GPU (docs/mathematics/cluster.md, (D.5)). The
rule `fgd` places each job where fragmentation grows least. Demands for vCPUs and memory decide whether a job fits, but don't
enter fragmentation.

References
----------
Weng, Yang, Yu, Wang, Tang, Yang, Zhang, "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation
Gradient Descent", USENIX ATC 2023, section 4.
"""

from bisect import insort
from collections.abc import Callable

import numpy as np

from optim.core.arrays import BoolArray, IntArray
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.workload import WHOLE_MILLI, Workload, hosts
from optim.simulation.cluster.options import Placement


def gang_growth(widths: IntArray, largest: int) -> IntArray:
    """Return the growth of fragmentation when a gang takes GPUs of a machine, in GPUs times jobs of the mix.

    Parameters
    ----------
    widths
        Gang of each job of the mix; shape (jobs,).
    largest
        Number of GPUs of the largest machine. A gang of more GPUs counts as one of this size, since it fills entire machines.

    Returns
    -------
    IntArray
        Shape (largest + 1, largest + 1), indexed by the machine's free GPUs and the gang.
    """
    free = np.arange(largest + 1)
    lost = free * (len(widths) - np.cumsum(np.bincount(np.minimum(widths, largest), minlength=largest + 1)))
    left = np.maximum(free[:, None] - free[None, :], 0)
    return np.asarray(lost[left] - lost[:, None])


class Fragmentation:
    """Growth of fragmentation that a placement causes, for the mix of demands of a workload."""

    def __init__(self, jobs: Workload, largest: int, is_shared: bool) -> None:
        demand = np.where(jobs.gpus == 1, jobs.share_milli if is_shared else WHOLE_MILLI, 0)
        demand += np.where(jobs.gpus > 1, WHOLE_MILLI * np.minimum(jobs.gpus, largest), 0)
        # The weights are integers, so that rounding decides no tie.
        self.demand, self.weight = np.unique(demand, return_counts=True)
        self.growth = gang_growth(jobs.gpus, largest)
        self.is_shared = is_shared
        self._known: dict[tuple[int, ...], int] = {}

    def growth_of_gang(self, room: "FreeGpus", machines: IntArray, width: int) -> IntArray:
        """Return, for each machine, the growth of its fragmentation if a gang takes completely free GPUs of it."""
        if not self.is_shared:
            return np.asarray(self.growth[room.free[machines], width])
        growth = np.empty(len(machines), np.int64)
        for at, machine in enumerate(machines.tolist()):
            before = self._left(room, machine)
            growth[at] = self._lost(before[:-width]) - self._lost(before)  # completely free GPUs are last in `before`
        return growth

    def growth_of_share(self, room: "FreeGpus", gpus: IntArray, share: int) -> IntArray:
        """Return, for each of some GPUs, the growth of fragmentation if a job takes a share of it."""
        growth = np.empty(len(gpus), np.int64)
        seen: dict[tuple[int, int], int] = {}
        for at, gpu in enumerate(gpus.tolist()):
            machine, left = room.site.machine_of[gpu], int(room.left_milli[gpu])
            if (machine, left) not in seen:
                before = self._left(room, machine)
                after = list(before)
                after.remove(left)
                seen[machine, left] = self._lost(tuple(sorted([*after, left - share]))) - self._lost(before)
            growth[at] = seen[machine, left]
        return growth

    def _left(self, room: "FreeGpus", machine: int) -> tuple[int, ...]:
        first = room.site.first
        return tuple(np.sort(room.left_milli[first[machine] : first[machine + 1]]).tolist())

    def _lost(self, left: tuple[int, ...]) -> int:
        """Return a machine's fragmentation, given its GPUs' free thousandths; thousandths of a GPU times jobs of the mix."""
        if left not in self._known:
            each = np.array(left, np.int64)
            total, whole = each.sum(), (each == WHOLE_MILLI).sum()
            is_gang = self.demand > WHOLE_MILLI
            fits = np.where(is_gang, whole * WHOLE_MILLI >= self.demand, each.max(initial=0) >= self.demand)
            too_full = each[None, :] < np.minimum(self.demand, WHOLE_MILLI)[:, None]
            lost = np.where(fits, (too_full * each).sum(axis=1), total)
            self._known[left] = int(self.weight @ lost)
        return self._known[left]


Gpus = tuple[int, ...]
"""GPU numbers, machine 0 first; their order has no meaning."""

NO_WIDTH = 2**62

NOTHING_KNOWN = (NO_WIDTH, NO_WIDTH)


class SimulationContext:
    """Constants of a run: location of GPUs, demands of jobs, and placement rule.

    Parameters
    ----------
    jobs, cluster
        Workload and cluster.
    placement, spread
        See `EngineOptions`.
    is_shared
        Whether jobs take only their share of a GPU.
    jobs_a_gpu
        Maximum number of jobs per GPU; it determines whether a machine can run out of vCPUs or memory.
    """

    def __init__(
        self,
        jobs: Workload,
        cluster: Cluster,
        placement: Placement,
        spread: bool,
        is_shared: bool = False,
        jobs_a_gpu: int = 1,
    ) -> None:
        self.jobs, self.cluster = jobs, cluster
        self.placement, self.spread, self.is_shared = placement, spread, is_shared
        self.machine = np.repeat(np.arange(cluster.num_machines), cluster.gpus)
        self.machine_of: list[int] = self.machine.tolist()
        self.first = np.concatenate([[0], np.cumsum(cluster.gpus)]).astype(np.int64)
        self.by_size = np.lexsort((np.arange(cluster.num_machines), -cluster.gpus))
        self.largest = int(cluster.gpus.max())
        self.max_of = max_machines(jobs, cluster)
        self.widths: list[int] = jobs.gpus.tolist()
        self.shares: list[int] = jobs.share_milli.tolist() if is_shared else [WHOLE_MILLI] * len(jobs)
        self.host = hosts(cluster)
        self.asks = np.stack([jobs.cpu_milli, jobs.memory_mib])
        self.has_host = is_shared or jobs.strains_hosts(cluster, jobs_a_gpu)
        self.is_plain = not self.has_host and not is_shared and not jobs.gpu_type_slowdown_ppm.shape[1]
        self.fragmentation = Fragmentation(jobs, self.largest, is_shared) if placement is Placement.FGD else None
        self.alike: list[int] = alike(jobs).tolist()
        self._could_hold: dict[tuple[int, int, bytes], bool] = {}

    def could_hold(self, job: int, machines: BoolArray, width: int | None = None) -> bool:
        """Return whether the placement rule places a job, or `width` GPUs of it, on the given machines if all are free."""
        width = width or self.widths[job]
        key = (self.alike[job], width, machines.tobytes())
        if key not in self._could_hold:
            self._could_hold[key] = FreeGpus(self).find(job, width, machines) is not None
        return self._could_hold[key]

    def types_of(self, job: int) -> tuple[bool, ...]:
        """Return, for each GPU type, whether it can run a job; empty if types make no difference."""
        return tuple((self.jobs.gpu_type_slowdown_ppm[job] > 0).tolist())

    def usable(self, job: int) -> BoolArray | None:
        """Return the machines whose GPU type can run a job; None if all types can run it."""
        if not self.jobs.gpu_type_slowdown_ppm.shape[1]:
            return None
        return np.asarray(self.jobs.gpu_type_slowdown_ppm[job, self.cluster.kind] > 0)


def alike(jobs: Workload, *more: IntArray) -> IntArray:
    """Return a class number for each job, equal for jobs with equal demands and equal values in `more`.

    Shape (jobs,).
    """
    asked = [jobs.gpus, jobs.share_milli, jobs.cpu_milli, jobs.memory_mib, jobs.gpu_type_slowdown_ppm > 0, *more]
    return np.asarray(np.unique(np.column_stack(asked), axis=0, return_inverse=True)[1].ravel(), np.int64)


def max_machines(jobs: Workload, cluster: Cluster) -> list[int]:
    """Return, for each job, the number of GPUs of the largest machine of a usable type; wider gangs take complete machines."""
    if not jobs.gpu_type_slowdown_ppm.shape[1]:
        return [int(cluster.gpus.max())] * len(jobs)
    kinds, which = np.unique(jobs.gpu_type_slowdown_ppm > 0, axis=0, return_inverse=True)
    sizes = np.array([cluster.gpus.max(where=usable[cluster.kind], initial=0) for usable in kinds])
    return [int(size) for size in sizes[which.ravel()]]


class FreeGpus:
    """Free GPUs during planning. `place` takes GPUs for a job; the cluster changes only when the plan is applied.

    Parameters
    ----------
    free
        Completely free GPUs of each machine.
    left_milli
        Free thousandths of each GPU.
    too_wide
        Smallest width known not to fit now, among widths of at most one machine, and among larger widths. Larger widths
        of the same group don't fit either. Unused if GPUs or permitted machines differ between jobs.
    allowed
        Function that returns the machines to which wrappers confine a job, or None for all machines. The attribute is None
        without wrappers.
    """

    def __init__(self, site: SimulationContext) -> None:
        cluster = site.cluster
        self.site = site
        self.free: IntArray = cluster.gpus.copy()
        self.left_milli: IntArray = np.full(cluster.num_gpus, WHOLE_MILLI)
        self.host: IntArray = site.host.copy()
        self.allowed: Callable[[int], BoolArray | None] | None = None
        self.may_spread: Callable[[int], bool] | None = None
        self.too_wide = NOTHING_KNOWN
        self._whole = [list(range(site.first[m], site.first[m + 1])) for m in range(cluster.num_machines)]

    def copy(self) -> "FreeGpus":
        """Return an independent copy."""
        other = FreeGpus.__new__(FreeGpus)
        other.site, other.allowed, other.may_spread, other.too_wide = (
            self.site,
            self.allowed,
            self.may_spread,
            self.too_wide,
        )
        other.free, other.left_milli, other.host = self.free.copy(), self.left_milli.copy(), self.host.copy()
        other._whole = [each.copy() for each in self._whole]
        return other

    @property
    def num_free(self) -> int:
        """Number of completely free GPUs."""
        return int(self.free.sum())

    def whole_gpus(self, machine: int) -> Gpus:
        """Return the completely free GPUs of a machine."""
        return tuple(self._whole[machine])

    def take(self, job: int, gpus: Gpus) -> None:
        """Take GPUs for a job."""
        share, machine_of = self.site.shares[job], self.site.machine_of
        for gpu in gpus:
            machine = machine_of[gpu]
            if self.left_milli[gpu] == WHOLE_MILLI:
                self._whole[machine].remove(gpu)
                self.free[machine] -= 1
            self.left_milli[gpu] -= share
            if self.site.has_host:
                self.host[:, machine] -= self.site.asks[:, job]

    def give(self, job: int, gpus: Gpus) -> None:
        """Release GPUs of a job."""
        self.too_wide = NOTHING_KNOWN
        share, machine_of = self.site.shares[job], self.site.machine_of
        for gpu in gpus:
            machine = machine_of[gpu]
            self.left_milli[gpu] += share
            if self.left_milli[gpu] == WHOLE_MILLI:
                insort(self._whole[machine], gpu)
                self.free[machine] += 1
            if self.site.has_host:
                self.host[:, machine] += self.site.asks[:, job]

    def machine_of(self, gpu: int) -> int:
        """Return the machine of a GPU."""
        return self.site.machine_of[gpu]

    def short_hosts(self, job: int, gpus: Gpus) -> set[int]:
        """Return the machines with too few vCPUs or too little memory for a job on the given GPUs."""
        if not self.site.has_host:
            return set()
        machines = [self.site.machine_of[gpu] for gpu in gpus]
        asks = self.site.asks[:, job]
        return {each for each in machines if (self.host[:, each] < asks * machines.count(each)).any()}

    def set_up(self, machine: int, is_up: bool) -> None:
        """Add or remove the GPUs of a machine, all of which are free."""
        gpus = range(self.site.first[machine], self.site.first[machine + 1])
        self.too_wide = NOTHING_KNOWN
        self._whole[machine] = list(gpus) if is_up else []
        self.free[machine] = len(gpus) if is_up else 0
        self.left_milli[gpus.start : gpus.stop] = WHOLE_MILLI if is_up else 0

    def restrict_machines(self, part: Callable[[int], BoolArray | None]) -> None:
        """Confine each job to the machines that `part` returns for it (None for all), in addition to other limits."""
        before = self.allowed

        def both(job: int) -> BoolArray | None:
            mine, others = part(job), before(job) if before is not None else None
            return mine if others is None else others if mine is None else mine & others

        self.allowed, self.too_wide = both, NOTHING_KNOWN

    def limit(self, job: int) -> BoolArray | None:
        """Return the machines to which a job is confined; None for all."""
        usable, allowed = self.site.usable(job), self.allowed(job) if self.allowed else None
        return allowed if usable is None else usable if allowed is None else usable & allowed

    def place(self, job: int, width: int | None = None, machines: BoolArray | None = None) -> Gpus | None:
        """Find GPUs for a job and take them; return None if the job does not fit."""
        gpus = self.find(job, width, machines)
        if gpus is not None:
            self.take(job, gpus)
        return gpus

    def find(
        self,
        job: int,
        width: int | None = None,
        machines: BoolArray | None = None,
        most: IntArray | None = None,
        placement: Placement | None = None,
    ) -> Gpus | None:
        """Return GPUs for a job by the placement rule without taking them; None if the job does not fit.

        Parameters
        ----------
        job
            Number of the job.
        width
            Number of GPUs; the job's gang by default.
        machines
            Permitted machines, shape (machines,); all by default.
        most
            Maximum number of completely free GPUs to take from each machine, shape (machines,); all by default.
        placement
            Rule that chooses among machines that can hold the gang; the rule of the run by default.
        """
        placement = placement or self.site.placement
        width = width or self.site.widths[job]
        if self.cannot_fit(width):
            return None
        is_plain = self.site.is_plain and machines is None and most is None and self.allowed is None
        limit = self.limit(job)
        if limit is not None:
            machines = limit if machines is None else machines & limit
        free = self.free if machines is None else np.where(machines, self.free, 0)
        if most is not None:
            free = np.minimum(free, most)
        if self.site.has_host:
            free = np.minimum(free, (self.host // np.maximum(1, self.site.asks[:, job])[:, None]).min(axis=0))
        if width == 1 and self.site.shares[job] < WHOLE_MILLI:
            return self._find_share(job, machines, placement)
        if width <= self.site.max_of[job]:
            fitting = np.flatnonzero(free >= width)
            if len(fitting):
                return tuple(self._whole[self._choose(fitting, width, placement)][:width])
        else:
            gpus = self._wholly_free(free, width)
            if gpus is not None:
                return gpus
        if self.spreads(job) and free.sum() >= width:
            return self._spread(free, width)
        if is_plain and self.may_spread is None:
            narrow, wide = self.too_wide
            is_narrow = width <= self.site.largest
            self.too_wide = (min(narrow, width), wide) if is_narrow else (narrow, min(wide, width))
        return None

    def cannot_fit(self, width: int) -> bool:
        """Return whether a gang of a given width is known not to fit now."""
        return width >= self.too_wide[width > self.site.largest]

    def allow_spread(self, may_spread: Callable[[int], bool]) -> None:
        """Let the jobs for which `may_spread` returns True spread over machines, as well as those that already may."""
        before = self.may_spread
        self.may_spread = lambda job: may_spread(job) or (self.site.spread if before is None else before(job))
        self.too_wide = NOTHING_KNOWN

    def spreads(self, job: int) -> bool:
        """Return whether a job may take GPUs anywhere if the placement rule finds none."""
        return self.site.spread if self.may_spread is None else self.may_spread(job)

    def _choose(self, fitting: IntArray, width: int, placement: Placement) -> int:
        """Return the machine that the placement rule chooses among those that can hold a gang."""
        free = self.free[fitting]
        if placement == Placement.FIRST_FIT:
            return int(fitting[0])
        if placement == Placement.WORST_FIT:
            return int(fitting[free.argmax()])
        if self.site.fragmentation is not None:
            growth = self.site.fragmentation.growth_of_gang(self, fitting, width)
            return int(fitting[np.lexsort((free, growth))[0]])  # ties: the fullest machine
        return int(fitting[free.argmin()])

    def _find_share(self, job: int, machines: BoolArray | None, placement: Placement) -> Gpus | None:
        share, site = self.site.shares[job], self.site
        fits = self.left_milli >= share
        if machines is not None:
            fits &= machines[site.machine]
        has_host: BoolArray = np.all(self.host >= site.asks[:, job][:, None], axis=0)
        fits &= has_host[site.machine]
        fitting = np.flatnonzero(fits)
        if not len(fitting):
            return None
        left = self.left_milli[fitting]
        if placement == Placement.FIRST_FIT:
            return (int(fitting[0]),)
        if placement == Placement.WORST_FIT:
            return (int(fitting[left.argmax()]),)
        if site.fragmentation is not None:
            return (int(fitting[site.fragmentation.growth_of_share(self, fitting, share).argmin()]),)
        return (int(fitting[left.argmin()]),)

    def _wholly_free(self, free: IntArray, width: int) -> Gpus | None:
        """Return GPUs of completely free machines, largest first."""
        whole = free == self.site.cluster.gpus
        if free[whole].sum() < width:
            return None
        chosen: list[int] = []
        for machine in self.site.by_size:
            if whole[machine] and len(chosen) < width:
                chosen.extend(self._whole[machine][: width - len(chosen)])
        return tuple(chosen)

    def _spread(self, free: IntArray, width: int) -> Gpus:
        """Return GPUs machine by machine, most free GPUs first."""
        chosen: list[int] = []
        for machine in np.lexsort((np.arange(len(free)), -free)):
            if len(chosen) < width:
                chosen.extend(self._whole[machine][: min(int(free[machine]), width - len(chosen))])
        return tuple(chosen)
