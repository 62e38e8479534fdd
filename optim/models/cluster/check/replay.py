"""Replay a log: no GPU twice, gangs whole, work equal to the exclusive time, overhead as the options say."""

from dataclasses import dataclass

from optim.core.verification import Violation, violation
from optim.models.cluster.log import EventLog
from optim.models.cluster.workload import Workload
from optim.models.cluster.world import Cluster

START, PREEMPT, END = range(3)
PPM = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What a log says, derived from its events alone: one entry a job, microseconds; -1 where it never came to that."""

    first_start_us: tuple[int, ...]
    end_us: tuple[int, ...]
    executed_us: tuple[int, ...]
    overhead_us: tuple[int, ...]
    is_done: tuple[bool, ...]
    held_gpu_us: float
    overhead_gpu_us: float


class BrokenEventError(Exception):
    """An event breaks a rule."""


@dataclass(slots=True)
class _Job:
    """One job while the log is read."""

    submit: int
    gpus: int
    duration: int
    slowdown: list[int]
    first: int = -1
    started: int = -1
    ended: int = -1
    executed: int = 0
    work: int = 0
    overhead: int = 0
    places: tuple[tuple[int, int], ...] = ()

    def start(self, time: int, places: tuple[tuple[int, int], ...], free: list[int]) -> None:
        """Let it take its GPUs."""
        if time < self.submit:
            raise BrokenEventError("starts a job before its submission")
        if self.started >= 0 or self.ended >= 0:
            raise BrokenEventError("starts a job that runs or is over")
        if len({machine for machine, _ in places}) < len(places):
            raise BrokenEventError("names a machine twice")
        if sum(count for _, count in places) != self.gpus:
            raise BrokenEventError(f"gives {sum(count for _, count in places)} GPUs to a gang of {self.gpus}")
        for machine, count in places:
            if not 0 <= machine < len(free) or not 1 <= count <= free[machine]:
                raise BrokenEventError(f"takes {count} GPUs of machine {machine}, which are not free there")
            free[machine] -= count
        self.places, self.started = places, time
        self.first = time if self.first < 0 else self.first

    def stop(self, time: int, rack: list[int], restart_us: int, is_end: bool) -> None:
        """Count what it did since its start."""
        if self.started < 0:
            raise BrokenEventError("stops a job that doesn't run")
        pause = 0 if self.started == self.first else restart_us
        run = max(0, time - self.started - pause)
        racks = {rack[machine] for machine, _ in self.places}
        factor = self.slowdown[0 if len(self.places) == 1 else 1 if len(racks) == 1 else 2]
        work = self.work + run * PPM // factor
        if is_end and work < self.duration:
            raise BrokenEventError(f"ends a job after {work} of its {self.duration} microseconds of work")
        if is_end and run and self.work + (run - 1) * PPM // factor >= self.duration:
            raise BrokenEventError("ends a job later than its work was done")
        if not is_end and work >= self.duration:
            raise BrokenEventError("preempts a job whose work is done")
        self.executed, self.work = self.executed + run, work
        self.overhead += time - self.started - run
        self.started = -1
        self.ended = time if is_end else -1


def replay(
    jobs: Workload, cluster: Cluster, log: EventLog, overhead_us: int
) -> tuple[Replayed | None, list[Violation]]:
    """Go through a log and return what it says, or the first event that breaks a rule."""
    free, rack = cluster.gpus.tolist(), cluster.rack.tolist()
    columns = (jobs.submit_us.tolist(), jobs.gpus.tolist(), jobs.duration_us.tolist(), jobs.slowdown_ppm.tolist())
    state = [_Job(*row) for row in zip(*columns, strict=True)]
    now = 0
    for number, (time, kind, name, places) in enumerate(log.rows()):
        job = state[name] if 0 <= name < len(state) else None
        try:
            _play(job, (time, kind, places), now, free, rack, overhead_us)
        except BrokenEventError as broken:
            return None, [violation("log", str(broken), where=f"event {number}, job {name}, {time} us")]
        now = time
    return (
        Replayed(
            first_start_us=tuple(job.first for job in state),
            end_us=tuple(job.ended for job in state),
            executed_us=tuple(job.executed for job in state),
            overhead_us=tuple(job.overhead for job in state),
            is_done=tuple(job.ended >= 0 for job in state),
            held_gpu_us=float(sum(job.gpus * (job.executed + job.overhead) for job in state)),
            overhead_gpu_us=float(sum(job.gpus * job.overhead for job in state)),
        ),
        [],
    )


def _play(
    job: _Job | None,
    event: tuple[int, int, tuple[tuple[int, int], ...]],
    now: int,
    free: list[int],
    rack: list[int],
    overhead_us: int,
) -> None:
    """Apply an event."""
    time, kind, places = event
    if job is None:
        raise BrokenEventError("names a job that isn't there")
    if time < now:
        raise BrokenEventError("comes before the event ahead of it")
    if kind == START:
        job.start(time, places, free)
        return
    if kind not in (PREEMPT, END) or places:
        raise BrokenEventError(f"is no event: kind {kind}, {len(places)} places")
    job.stop(time, rack, overhead_us, kind == END)
    for machine, count in job.places:
        free[machine] += count
