"""YARN's capacity scheduler as in Philly: quotas, gangs, and locality that is relaxed after failed attempts."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from optim.core.arrays import BoolArray, FloatArray, IntArray
from optim.core.errors import InvalidOptionError, check_in
from optim.core.policies import policy
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.workload import US, Workload
from optim.simulation.cluster.planning.free_gpus import FreeGpus, Gpus, max_machines
from optim.simulation.cluster.planning.placing import make_room, quotas_by_gpu_time
from optim.simulation.cluster.planning.policy import Plan, PlanningPolicy, View

NEVER = np.int64(-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class YarnOptions:
    """Options.

    Parameters
    ----------
    quotas
        GPUs of each virtual cluster in the order of their names, separated by colons; empty for shares in proportion to
        GPU-hours in the trace.
    quota_file
        File with the machines of each virtual cluster (`vc, node num`), in place of `quotas`. Virtual clusters that the file
        doesn't name share the remaining machines by GPU-hours; quotas that exceed the cluster are scaled down.
    retry_s
        Seconds between two attempts of a waiting job: the time for which a partial gang is reserved plus the pause after it.
    attempts
        Number of attempts on the fewest machines of one rack. The same number of attempts follows on any machines of a
        rack, and then attempts on any racks.
    preempts_above
        GPU utilisation in [0, 1] above which virtual clusters under quota preempt jobs of virtual clusters over quota;
        1 for never.

    Raises
    ------
    InvalidOptionError
        If a value is outside its range.
    """

    quotas: str = ""
    quota_file: Path | None = None
    retry_s: float = 180.0
    attempts: int = 3
    preempts_above: float = 0.9

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_in("[1, 86400]", self, "retry_s")
        check_in("[1, 10000]", self, "attempts")
        check_in("[0, 1]", self, "preempts_above")
        self.given()
        if self.quota_file is not None and (self.quotas or not self.quota_file.is_file()):
            raise InvalidOptionError(f"quota_file must be a file, and quotas must be empty, got {self.quota_file}")

    def given(self) -> FloatArray:
        """Return the quotas of the option.

        Raises
        ------
        InvalidOptionError
            If the quotas aren't numbers of at least 0, or all of them are 0.
        """
        try:
            values = np.array([float(part) for part in self.quotas.split(":") if part])
        except ValueError:
            values = np.array([np.nan])
        if not np.isfinite(values).all() or (values < 0).any() or (len(values) > 0 and values.sum() == 0):
            raise InvalidOptionError(
                f"quotas must be numbers separated by colons, such as "
                f"--option yarn-cs.quotas=4.2:1.8, one for each virtual cluster by name (or give yarn-cs.quota_file=FILE), got {self.quotas[:40]!r}"
            )
        return values


def machine_quotas(path: Path, jobs: Workload, cluster: Cluster) -> FloatArray:
    """Return the GPUs of each virtual cluster from a file of machines; see `YarnOptions.quota_file`.

    Raises
    ------
    InvalidOptionError
        If the file assigns machines to none of the virtual clusters.
    """
    from optim.workloads.traces.summaries import read_quotas

    machines, by_time = read_quotas(path), quotas_by_gpu_time(jobs, cluster)
    is_named = np.array([name in machines for name in jobs.groups])
    gpus = cluster.num_gpus / cluster.num_machines
    given = np.array([machines.get(name, 0) * gpus for name in jobs.groups])
    if not given.sum():
        raise InvalidOptionError(
            f"{path}: the file assigns machines to none of the virtual clusters: {', '.join(jobs.groups)[:60]}"
        )
    left = cluster.num_gpus - float(given.sum())
    others = float(by_time[~is_named].sum())
    if left > 0 and others > 0:
        given[~is_named] = left * by_time[~is_named] / others
    return np.asarray(given * min(1.0, cluster.num_gpus / given.sum()))


@policy(
    "yarn-cs",
    world="cluster",
    options=YarnOptions,
    summary="Serve virtual clusters by share of quota in use; reclaim quotas above 90 % utilisation; relax locality after failed attempts.",
    source="Jeon et al., Analysis of Large-Scale Multi-Tenant GPU Clusters, ATC 2019, section 2.3; Hadoop's capacity scheduler",
)
class YarnCs(PlanningPolicy):
    """Serve the virtual cluster with the lowest share of its quota in use, first come, first served; idle quota is lent.

    The compiled loop of `optim.simulation.cluster.compiled_yarn` simulates jobs that use integral GPUs of one type; its
    decisions are the same.
    """

    may_spread = True
    knows_quotas = True
    assumptions = (
        "quotas are in proportion to the trace's GPU-hours unless given; a gang starts complete, and waits for the next attempt instead "
        "of reserving a part; 3 attempts per level of locality; preemption takes a virtual cluster's newest jobs while it keeps its quota"
    )

    def __init__(self, options: YarnOptions, jobs: Workload) -> None:
        self.options, self.jobs = options, jobs
        given = options.given()
        if len(given) not in (0, len(jobs.groups)):
            raise InvalidOptionError(
                f"yarn-cs.quotas has {len(given)} numbers, expected one for each of the {len(jobs.groups)} virtual clusters"
            )

    def begin(self, cluster: Cluster, seed: int) -> None:
        """Set the quotas."""
        del seed
        given = self.options.given()
        if self.options.quota_file is not None:
            given = machine_quotas(self.options.quota_file, self.jobs, cluster)
        self.quota = given if len(given) else quotas_by_gpu_time(self.jobs, cluster)
        self.limit = np.maximum(self.quota, 1e-9)  # divisor of the usage
        self.fewest = -(-self.jobs.gpus // np.maximum(1, max_machines(self.jobs, cluster)))
        self.since = np.full(len(self.jobs), NEVER)

    def plan(self, view: View) -> Plan:
        """Place jobs by virtual cluster, then preempt jobs of virtual clusters over quota for jobs of those under quota."""
        gpus, room, waiting = dict(view.running), view.room(), view.waiting
        self.since[waiting] = np.where(self.since[waiting] == NEVER, view.now_us, self.since[waiting])
        running = np.fromiter(gpus, np.int64, len(gpus))
        used = np.bincount(view.group[running], weights=view.gpus[running], minlength=len(self.limit)).astype(
            np.float64
        )
        stuck = self._fill(view, room, waiting, used, gpus)
        self._preempt(view, room, stuck, used, gpus)
        self.since[np.fromiter(gpus, np.int64, len(gpus))] = NEVER
        left = stuck[self.since[stuck] != NEVER]
        return Plan(gpus=gpus, again_us=self._next_try(left, view, room))

    def _fill(self, view: View, room: FreeGpus, waiting: IntArray, used: FloatArray, gpus: dict[int, Gpus]) -> IntArray:
        """Place waiting jobs, always of the virtual cluster with the least-used quota; return the unplaced jobs.

        Notes
        -----
        The number of free GPUs only shrinks here. So if a width can't be placed at a level of locality, no other job of this
        width and level can be placed, unless GPU types, hosts or wrappers distinguish the jobs.
        """
        jobs = waiting[np.argsort(view.group[waiting], kind="stable")]
        ends = np.cumsum(np.bincount(view.group[jobs], minlength=len(used)))
        at = ends - np.diff(ends, prepend=0)
        level, width = self._levels(jobs, view.now_us), view.gpus[jobs]
        is_plain = room.site.is_plain and room.allowed is None
        may_fit = width <= room.num_free
        stuck: list[IntArray] = []
        while may_fit.any():
            share = np.where(at < ends, used / self.limit, np.inf)
            each = int(share.argmin())
            first = int(at[each])
            taken = None
            while taken is None and may_fit[first : ends[each]].any():
                nth = first + int(may_fit[first : ends[each]].argmax())
                taken = self._find(room, int(jobs[nth]), int(level[nth]))
                if taken is None:
                    may_fit &= (
                        (level != level[nth]) | (width != width[nth]) if is_plain else np.arange(len(jobs)) != nth
                    )
            if taken is None:
                nth = int(ends[each])
            else:
                job = int(jobs[nth])
                room.take(job, taken)
                gpus[job] = taken
                used[each] += len(taken)
                may_fit[nth] = False
                may_fit &= width <= room.num_free
            stuck.append(jobs[first:nth])
            at[each] = nth + (taken is not None)
        order = np.argsort(used / self.limit, kind="stable")
        return np.concatenate([*stuck, *(jobs[at[each] : ends[each]] for each in order)])

    def _preempt(self, view: View, room: FreeGpus, stuck: IntArray, used: FloatArray, gpus: dict[int, Gpus]) -> None:
        """Preempt jobs of virtual clusters over quota for jobs of those under it, if utilisation exceeds `preempts_above`."""
        group, width = view.group[stuck], view.gpus[stuck]
        is_plain = room.site.is_plain and room.allowed is None
        enough = self.options.preempts_above * view.cluster.num_gpus
        # Until a job is preempted, the victims stay the same, so equal jobs that couldn't be placed still can't.
        victims: dict[int, Gpus] = {}
        may_fit = width <= (self.limit - used)[group]
        while may_fit.any() and sum(map(len, gpus.values())) > enough:
            victims = victims or {victim: gpus[victim] for victim in self._victims(view, gpus, used.copy())}
            if not victims:
                return
            nth = int(may_fit.argmax())
            if make_room(room, int(stuck[nth]), victims, gpus):
                used[group[nth]] += width[nth]
                for victim, had in victims.items():
                    used[view.group[victim]] -= len(had) if victim not in gpus else 0
                victims = {}
                may_fit = width <= (self.limit - used)[group]
                may_fit[: nth + 1] = False
            else:
                may_fit &= width != width[nth] if is_plain else np.arange(len(stuck)) != nth

    @property
    def step_us(self) -> int:
        """Microseconds after which a waiting job's locality is relaxed by a level."""
        return round(self.options.retry_s * US) * self.options.attempts

    def _levels(self, jobs: IntArray, now: int) -> IntArray:
        """Return the jobs' locality level: 0 fewest machines of a rack, 1 any machines of a rack, 2 any machines."""
        return np.asarray(np.minimum(2, (now - self.since[jobs]) // self.step_us))

    def _next_try(self, stuck: IntArray, view: View, room: FreeGpus) -> int | None:
        """Return the next time at which the locality of a waiting job with enough free GPUs is relaxed."""
        step = self.step_us
        fits = stuck[(view.gpus[stuck] <= room.num_free) & (self._levels(stuck, view.now_us) < 2)]
        times = self.since[fits] + ((view.now_us - self.since[fits]) // step + 1) * step
        return int(times.min()) if len(times) else None

    def _find(self, room: FreeGpus, job: int, level: int) -> Gpus | None:
        """Return GPUs for a job: racks with the most free GPUs first, in a rack such machines first; None if it doesn't fit."""
        width = room.site.widths[job]
        if room.num_free < width or (room.site.max_of[job] >= width > room.free.max() and level == 0):
            return None
        free = self._usable(room, job)
        rack = room.site.cluster.rack
        by_rack = np.bincount(rack, weights=free).astype(np.int64)
        racks = np.lexsort((np.arange(len(by_rack)), -by_rack))
        parts = [racks] if level == 2 else [racks[at : at + 1] for at in range(len(racks))]
        for part in parts:
            if by_rack[part].sum() < width:
                return None
            machines = [m for each in part for m in self._by_free(free, rack == each)]
            chosen = list(self._take(room, machines, free, width))
            num_machines = len({room.site.machine_of[gpu] for gpu in chosen})
            if len(chosen) == width and (level > 0 or num_machines <= self.fewest[job]):
                return tuple(chosen)
        return None

    @staticmethod
    def _usable(room: FreeGpus, job: int) -> IntArray:
        free, limit = room.free, room.limit(job)
        if room.site.has_host:
            free = np.minimum(free, (room.host // np.maximum(1, room.site.asks[:, job])[:, None]).min(axis=0))
        return free if limit is None else np.where(limit, free, 0)

    @staticmethod
    def _by_free(free: IntArray, inside: BoolArray) -> list[int]:
        machines = np.flatnonzero(inside)
        return machines[np.lexsort((machines, -free[machines]))].tolist()  # type: ignore[no-any-return]

    @staticmethod
    def _take(room: FreeGpus, machines: list[int], free: IntArray, width: int) -> Iterator[int]:
        for machine in machines:
            count = min(width, int(free[machine]))
            yield from room.whole_gpus(machine)[:count]
            width -= count

    def _victims(self, view: View, gpus: Mapping[int, Gpus], used: FloatArray) -> Iterator[int]:
        """Yield the newest jobs of virtual clusters that use at least their quota without these jobs."""
        group, running = view.group, np.fromiter(view.running, np.int64, len(view.running))
        running = running[(used - 1 >= self.limit)[group[running]]]
        for job in running[np.lexsort((running, view.started_us[running]))[::-1]].tolist():
            if job in gpus and used[group[job]] - len(gpus[job]) >= self.limit[group[job]]:
                used[group[job]] -= len(gpus[job])
                yield job
