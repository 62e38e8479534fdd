"""Replay a log: no GPU twice, gangs whole, work equal to the exclusive time, overhead and what failures undo as the options say."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from optim.core.verification import Violation, violation
from optim.models.cluster.check.event_rules import (
    CRASH,
    END,
    FAIL,
    FAULT,
    GIVE_UP,
    NOBODY,
    PPM,
    PREEMPT,
    REPAIR,
    START,
    BrokenEventError,
)
from optim.models.cluster.check.tries import Fate, fates
from optim.models.cluster.log import EventLog
from optim.models.cluster.rules import Rules
from optim.models.cluster.workload import Workload
from optim.models.cluster.world import Cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What a log says, derived from its events alone: one entry a job, microseconds; -1 where it never came to that."""

    first_start_us: tuple[int, ...]
    end_us: tuple[int, ...]
    executed_us: tuple[int, ...]
    overhead_us: tuple[int, ...]
    lost_us: tuple[int, ...]
    is_done: tuple[bool, ...]
    held_gpu_us: float
    overhead_gpu_us: float


class Machines:
    """Which machines are down, and which jobs one that just failed takes with it."""

    def __init__(self, count: int, checkpoint_us: int) -> None:
        self.down = [False] * count
        self.doomed: set[int] = set()
        self.when, self.checkpoint_us = -1, checkpoint_us

    def heed(self, kind: int, job: int, time: int) -> None:
        """Check that jobs on a machine that failed crash at once, and no others."""
        if self.doomed and (kind != CRASH or time != self.when):
            raise BrokenEventError(f"comes before job {min(self.doomed)} crashes, whose machine has failed")
        if kind == CRASH and job not in self.doomed:
            raise BrokenEventError("crashes a job of which no machine has just failed")
        self.doomed.discard(job)

    def change(self, kind: int, time: int, places: Sequence[tuple[int, int]], holders: Iterable[int]) -> int:
        """Let a machine fail or be repaired, and return it; `holders` are the jobs that have GPUs of it."""
        if not self.checkpoint_us:
            raise BrokenEventError("is a machine's, where the rules let none fail")
        if len(places) != 1 or places[0][1] != 0 or not 0 <= places[0][0] < len(self.down):
            raise BrokenEventError("names no machine")
        machine = places[0][0]
        if self.down[machine] == (kind == FAIL):
            raise BrokenEventError(f"lets machine {machine} {'fail' if kind == FAIL else 'be repaired'} twice")
        self.down[machine], self.when = kind == FAIL, time
        self.doomed = set(holders)
        return machine

    def kept(self, kind: int, before: int, work: int, rules: Rules) -> int:
        """Return the work that a job keeps at a stop which had done so much at its last stop, and so much now."""
        step = {CRASH: rules.checkpoint_us, PREEMPT: rules.preempt_checkpoint_us}.get(kind, 0)
        return max(before, work - work % step) if step else work

    def end(self) -> None:
        """Check that nobody is left on a machine that failed."""
        if self.doomed:
            raise BrokenEventError(f"leaves job {min(self.doomed)} on a machine that failed")


@dataclass(slots=True)
class _Job:
    """One job while the log is read."""

    submit: int
    gpus: int
    duration: int
    slowdown: list[int]
    fate: Fate
    first: int = -1
    started: int = -1
    ended: int = -1
    executed: int = 0
    work: int = 0
    overhead: int = 0
    lost: int = 0
    is_done: bool = False
    places: tuple[tuple[int, int], ...] = ()

    def has_place_on(self, machines: tuple[tuple[int, int], ...]) -> bool:
        """Tell whether it runs on one of some machines."""
        return self.started >= 0 and not {machine for machine, _ in machines}.isdisjoint(m for m, _ in self.places)

    def start(self, time: int, places: tuple[tuple[int, int], ...], free: list[int]) -> None:
        """Let it take its GPUs."""
        if time < self.submit:
            raise BrokenEventError("starts a job before its submission")
        if self.started >= 0 or self.ended >= 0:
            raise BrokenEventError("starts a job that runs or is over")
        self.fate.start(time)
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

    def stop(self, time: int, rack: list[int], restart_us: int, kind: int) -> None:
        """Count what it did since its start."""
        if self.started < 0:
            raise BrokenEventError("stops a job that doesn't run")
        pause = 0 if self.started == self.first else restart_us
        run = max(0, time - self.started - pause)
        racks = {rack[machine] for machine, _ in self.places}
        factor = self.slowdown[0 if len(self.places) == 1 else 1 if len(racks) == 1 else 2]
        work, is_end = self.work + run * PPM // factor, kind == END
        self.fate.check(run, kind)
        self.fate.spent += run
        if is_end and work < self.duration:
            raise BrokenEventError(f"ends a job after {work} of its {self.duration} microseconds of work")
        if is_end and run and self.work + (run - 1) * PPM // factor >= self.duration:
            raise BrokenEventError("ends a job later than its work was done")
        if not is_end and not self.fate.left and work >= self.duration:
            raise BrokenEventError("preempts a job whose work is done")
        if kind in (FAULT, GIVE_UP):
            self.lost += work - self.fate.base
            self.fate.fail(time)
            work = self.fate.base
        self.executed, self.work = self.executed + run, work
        self.overhead += time - self.started - run
        self.started = -1
        self.ended, self.is_done = time if kind in (END, GIVE_UP) else -1, is_end


def replay(jobs: Workload, cluster: Cluster, log: EventLog, rules: Rules) -> tuple[Replayed | None, list[Violation]]:
    """Go through a log and return what it says, or the first event that breaks a rule."""
    world = _World(jobs, cluster, rules)
    for number, (time, kind, name, places) in enumerate(log.rows()):
        try:
            world.play(time, kind, name, places)
        except BrokenEventError as broken:
            return None, [violation("log", str(broken), where=f"event {number}, job {name}, {time} us")]
    try:
        world.end()
    except BrokenEventError as broken:
        return None, [violation("log", str(broken), where="its end")]
    state = world.state
    ends = tuple(job.ended if job.ended >= 0 else max(world.now, job.submit) for job in state)
    return (
        Replayed(
            first_start_us=tuple(job.first if job.first >= 0 else end for job, end in zip(state, ends, strict=True)),
            end_us=ends,
            executed_us=tuple(job.executed for job in state),
            overhead_us=tuple(job.overhead for job in state),
            lost_us=tuple(job.lost for job in state),
            is_done=tuple(job.is_done for job in state),
            held_gpu_us=float(sum(job.gpus * (job.executed + job.overhead) for job in state)),
            overhead_gpu_us=float(sum(job.gpus * job.overhead for job in state)),
        ),
        [],
    )


class _World:
    """Jobs, free GPUs and machines while the log is read."""

    def __init__(self, jobs: Workload, cluster: Cluster, rules: Rules) -> None:
        columns = (jobs.submit_us.tolist(), jobs.gpus.tolist(), jobs.duration_us.tolist(), jobs.slowdown_ppm.tolist())
        self.state = [_Job(*row) for row in zip(*columns, fates(jobs, rules), strict=True)]
        self.size: list[int] = cluster.gpus.tolist()
        self.rack: list[int] = cluster.rack.tolist()
        self.free, self.rules, self.now = self.size.copy(), rules, 0
        self.machines = Machines(len(self.size), rules.checkpoint_us)

    def play(self, time: int, kind: int, name: int, places: tuple[tuple[int, int], ...]) -> None:
        """Apply an event."""
        if time < self.now:
            raise BrokenEventError("comes before the event ahead of it")
        machines, self.now = self.machines, time
        machines.heed(kind, name, time)
        if kind in (FAIL, REPAIR):
            if name != NOBODY:
                raise BrokenEventError("is a machine's, but names a job")
            holders = [number for number, job in enumerate(self.state) if job.has_place_on(places)]
            machine = machines.change(kind, time, places, holders)
            self.free[machine] += self.size[machine] if kind == REPAIR else -self.size[machine]
            return
        if not 0 <= name < len(self.state):
            raise BrokenEventError("names a job that isn't there")
        job = self.state[name]
        if kind == START:
            job.start(time, places, self.free)
            return
        if kind not in (PREEMPT, END, CRASH, FAULT, GIVE_UP) or places:
            raise BrokenEventError(f"is no event: kind {kind}, {len(places)} places")
        before = job.work
        job.stop(time, self.rack, self.rules.restart_us, kind)
        if kind in (CRASH, PREEMPT):
            kept = machines.kept(kind, before, job.work, self.rules)
            job.lost, job.work = job.lost + job.work - kept, kept
        for machine, count in job.places:
            self.free[machine] += count

    def end(self) -> None:
        """Check that nobody runs on."""
        self.machines.end()
        for number, job in enumerate(self.state):
            if job.started >= 0:
                raise BrokenEventError(f"job {number} runs on when the log ends")
