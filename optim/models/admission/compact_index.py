"""The index sets of the compact programme (1)-(13) of the admission problem, and its size.

Index sets need no Pyomo, so the size of a programme is known before Pyomo is loaded. The notation is that of
`optim.models.admission.compact_programme`.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from optim.core.arrays import IntArray
from optim.models.admission.data import ServerClasses
from optim.models.admission.instance import AdmissionInstance

Place = tuple[int, int, int, int]
"""A place of workers or of PSs: job, demand segment of the job (0, 1, ...), server, slot."""

JOB, SEGMENT, SERVER, SLOT = range(4)
"""Indices of the entries of a place."""


@dataclass(frozen=True, kw_only=True, eq=False)
class JobWindow:
    """The slots in which one job may run, and bounds on its progress before each slot.

    Parameters
    ----------
    job
        The job.
    slots
        Slots from the job's arrival to the last slot in which its completion earns anything.
    completions
        Slots in which completion earns something and by whose end the empty cluster could do the work.
    max_workers
        Shape (slots,): maximum number of workers that fit the empty cluster in each slot, over all segments.
    max_progress
        Shape (slots + 1,): an upper bound on the progress before each slot, and after the last.
    segments
        Indices, among the segments of all jobs, of the job's demand segments that start below its target.
    """

    job: int
    slots: range
    completions: tuple[int, ...]
    max_workers: IntArray
    max_progress: IntArray
    segments: range

    def can_be_in(self, start: int, slot: int) -> bool:
        """Whether the progress before `slot` can have reached `start`."""
        return bool(self.max_progress[slot - self.slots.start] >= start)


def job_windows(instance: AdmissionInstance) -> Iterator[JobWindow]:
    """Yield the window of each job that could complete alone in time; other jobs have no variables."""
    jobs = instance.jobs
    workers_in_class = instance.workers_per_server * instance.worker_servers.count[None, :, None]
    for i in range(instance.num_jobs):
        slots = range(int(jobs.arrival[i]), int(instance.deadline[i]) + 1)
        first = int(jobs.segment_offset[i])
        starts = jobs.segment_start[first : int(jobs.segment_offset[i + 1])]
        segments = range(first, first + int(np.count_nonzero(starts < instance.target[i])))
        max_units = workers_in_class[segments.start : segments.stop, :, slots.start : slots.stop].sum(axis=1)
        most = np.minimum(max_units.max(axis=0, initial=0), instance.max_workers[i])
        gain = np.minimum(instance.progress[i][most], instance.target[i])
        max_progress = np.concatenate(([0], np.cumsum(gain)))
        completions = tuple(
            slot
            for k, slot in enumerate(slots)
            if instance.value[i, slot] > 0 and max_progress[k + 1] >= instance.target[i]
        )
        if completions:
            yield JobWindow(
                job=i,
                slots=range(slots.start, completions[-1] + 1),
                completions=completions,
                max_workers=most,
                max_progress=max_progress,
                segments=segments,
            )


@dataclass(frozen=True, kw_only=True, eq=False)
class CompactIndex:
    """Index sets of the compact programme of an instance.

    Parameters
    ----------
    instance
        The instance.
    windows
        Windows by job; jobs that could not complete even alone are absent.
    """

    instance: AdmissionInstance
    windows: Mapping[int, JobWindow]

    @classmethod
    def of(cls, instance: AdmissionInstance) -> "CompactIndex":
        """Derive the index sets of an instance."""
        return cls(instance=instance, windows={window.job: window for window in job_windows(instance)})

    @cached_property
    def runs(self) -> tuple[tuple[int, int], ...]:
        """All (job, slot) in which the job may run."""
        return tuple((i, slot) for i, window in self.windows.items() for slot in window.slots)

    @cached_property
    def completions(self) -> tuple[tuple[int, int], ...]:
        """All (job, slot) in which the job may complete."""
        return tuple((i, slot) for i, window in self.windows.items() for slot in window.completions)

    @cached_property
    def segments(self) -> tuple[tuple[int, int, int], ...]:
        """All (job, segment, slot) with a reachable segment, for the jobs with several segments."""
        return tuple(
            (i, number, slot)
            for i, window in self.windows.items()
            if len(window.segments) > 1
            for number, slot in self._segment_slots(window)
        )

    @cached_property
    def workers(self) -> dict[Place, int]:
        """Maximum number of workers n_ih(t) by place (job, segment, server, slot), where positive."""
        return self._places(self.instance.workers_per_server, self.instance.worker_servers)

    @cached_property
    def ps(self) -> dict[Place, int]:
        """Maximum number of PSs m_ik(t) by place (job, segment, server, slot), where positive."""
        return self._places(self.instance.ps_per_server, self.instance.ps_servers)

    @cached_property
    def steps(self) -> dict[tuple[int, int], tuple[int, ...]]:
        """Worker counts by (job, slot) that make more progress than every smaller count."""
        result = {}
        for i, window in self.windows.items():
            gain = np.minimum(self.instance.progress[i], self.instance.target[i])
            steps = np.flatnonzero(np.diff(gain, prepend=0) > 0)
            for k, slot in enumerate(window.slots):
                result[i, slot] = tuple(steps[steps <= window.max_workers[k]].tolist())
        return result

    @cached_property
    def workers_of(self) -> dict[tuple[int, int], list[Place]]:
        """The places of `workers` by (job, slot)."""
        return _grouped(self.workers, JOB, SLOT)

    @cached_property
    def ps_of(self) -> dict[tuple[int, int], list[Place]]:
        """The places of `ps` by (job, slot)."""
        return _grouped(self.ps, JOB, SLOT)

    @cached_property
    def workers_on(self) -> dict[tuple[int, int], list[Place]]:
        """The places of `workers` by (server, slot)."""
        return _grouped(self.workers, SERVER, SLOT)

    @cached_property
    def ps_on(self) -> dict[tuple[int, int], list[Place]]:
        """The places of `ps` by (server, slot)."""
        return _grouped(self.ps, SERVER, SLOT)

    @cached_property
    def segments_of(self) -> dict[tuple[int, int], list[int]]:
        """Reachable segments by (job, slot), for the jobs with several segments."""
        result: dict[tuple[int, int], list[int]] = {}
        for i, number, slot in self.segments:
            result.setdefault((i, slot), []).append(number)
        return result

    def demand(self, job: int, number: int, resource: int) -> tuple[int, int]:
        """Return the use of a resource by one worker and by one PS of a job's segment, in 1e-6 units."""
        jobs, segment = self.instance.jobs, self.windows[job].segments[number]
        return int(jobs.worker_demand[segment, resource]), int(jobs.ps_demand[segment, resource])

    def gain(self, job: int, workers: int) -> int:
        """Return the progress that `workers` workers make in a slot, at most the job's target."""
        return min(int(self.instance.progress[job][workers]), int(self.instance.target[job]))

    def share_of(self, server: int, slot: int, resource: int) -> int:
        """Return floor(eps c), the amount of a server's resource that one job may use; the capacity without a cap."""
        servers = self.instance.worker_servers
        limit = int(servers.capacity[servers.class_of_server[server], slot, resource])
        share = self.instance.max_share_per_server
        return limit if share is None else share.numerator * limit // share.denominator

    def exceeds_share_alone(self, place: Place) -> bool:
        """Whether a single worker or a single PS uses more than the allowed share of a shared server."""
        job, number, server, slot = place
        return any(
            max(self.demand(job, number, r)) > self.share_of(server, slot, r)
            for r in range(self.instance.num_resources)
        )

    def segment_start(self, job: int, number: int) -> int:
        """Return the progress from which a job's segment holds."""
        return int(self.instance.jobs.segment_start[self.windows[job].segments[number]])

    def _segment_slots(self, window: JobWindow) -> Iterator[tuple[int, int]]:
        for number in range(len(window.segments)):
            start = self.segment_start(window.job, number)
            for slot in window.slots:
                if window.can_be_in(start, slot):
                    yield number, slot

    def _places(self, most: IntArray, servers: ServerClasses) -> dict[Place, int]:
        class_of_server = servers.class_of_server.tolist()
        result = {}
        for i, window in self.windows.items():
            for number, slot in self._segment_slots(window):
                class_limits = most[window.segments[number], :, slot].tolist()
                for server, c in enumerate(class_of_server):
                    if class_limits[c] > 0:
                        result[i, number, server, slot] = class_limits[c]
        return result


def _grouped(places: Iterable[Place], *columns: int) -> dict[tuple[int, int], list[Place]]:
    """Group places by two of their columns."""
    first, second = columns
    result: dict[tuple[int, int], list[Place]] = {}
    for place in places:
        result.setdefault((place[first], place[second]), []).append(place)
    return result


def compact_size(instance: AdmissionInstance) -> int:
    """Return the number of variables of the compact programme without building it."""
    total = 0
    sides = (
        (instance.workers_per_server > 0, instance.worker_servers.count),
        (instance.ps_per_server > 0, instance.ps_servers.count),
    )
    for window in job_windows(instance):
        slots = slice(window.slots.start, window.slots.stop)
        total += len(window.completions) + 1
        starts = instance.jobs.segment_start[window.segments.start : window.segments.stop]
        reached = window.max_progress[None, : len(window.slots)] >= starts[:, None]
        for holds, count in sides:
            places = holds[window.segments.start : window.segments.stop, :, slots] & reached[:, None, :]
            total += int((places * count[None, :, None]).sum())
        if len(window.segments) > 1:
            total += int(reached.sum())
        if instance.has_steps:
            gain = np.minimum(instance.progress[window.job], instance.target[window.job])
            steps = np.flatnonzero(np.diff(gain, prepend=0) > 0)
            most = window.max_workers[: len(window.slots)]
            total += int((steps[None, :] <= most[:, None]).sum())
    return total
