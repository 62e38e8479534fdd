"""Reservations by planning, for features outside the compiled loop: GPU types, hosts, wrappers.

The rules are those of `optim.simulation.cluster.index.policy.Reservations`, and the decisions equal those of the
compiled pass. Here each reserved job is compared with all free periods of the machines, machine by machine.
"""

from collections import deque
from dataclasses import replace

import numpy as np

from optim.core.arrays import BoolArray, IntArray
from optim.core.errors import UnsupportedProblemError
from optim.models.cluster.log import Event
from optim.models.cluster.rules import Rules
from optim.models.cluster.workload import WHOLE_MILLI, Workload
from optim.simulation.cluster.index.policy import IndexPolicy, histories, promises, stated_estimates
from optim.simulation.cluster.options import EngineOptions, Placement
from optim.simulation.cluster.planning.free_gpus import FreeGpus, Gpus
from optim.simulation.cluster.planning.policy import Plan, View

NEVER = 2**62


def rules_of_reservations(policy: IndexPolicy, jobs: Workload, rules: Rules, options: EngineOptions) -> Rules:
    """Return the engine's rules, to which this function adds whether jobs are stopped at their limits.

    Raises
    ------
    UnsupportedProblemError
        If jobs share GPUs.
    """
    assert policy.reservations is not None  # only called for policies with reservations
    if options.sharing and bool((jobs.share_milli < WHOLE_MILLI).any()):
        raise UnsupportedProblemError(
            f"policy {policy.name} reserves complete GPUs, but with sharing=true jobs take parts of them; remove "
            f"sharing=true"
        )
    return replace(rules, kills_at_limit=policy.reservations.kills)


class Calendar:
    """Free GPUs, vCPUs and memory of each machine from now on, as a step function of time."""

    def __init__(self, now: int, room: FreeGpus) -> None:
        self.room = room
        self.times = [now]
        self.level = [np.vstack([room.free, room.host])]

    def add(self, begin: int, end: int, change: IntArray) -> None:
        """Add a change of free GPUs, vCPUs and memory between two times; `change` has shape (3, machines)."""
        first = self._step_at(max(begin, self.times[0]))
        last = self._step_at(end) if end < NEVER else len(self.times)
        for step in range(first, last):
            self.level[step] = self.level[step] + change

    def _step_at(self, time: int) -> int:
        """Return the step that begins at a time; insert it if needed."""
        at = int(np.searchsorted(self.times, time))
        if at == len(self.times) or self.times[at] != time:
            self.times.insert(at, time)
            self.level.insert(at, self.level[at - 1])
        return at

    def least(self, begin: int, need: int) -> IntArray:
        """Return the GPUs, vCPUs and memory that are free throughout a period; shape (3, machines)."""
        first = int(np.searchsorted(self.times, begin, side="right")) - 1
        last = max(first + 1, int(np.searchsorted(self.times, begin + need)))
        return np.asarray(np.min(self.level[first:last], axis=0))


class ReservationBook:
    """Reservations of a run, and estimated run times of jobs.

    Parameters
    ----------
    policy
        The policy, which contains the rule of reservations.
    jobs
        All jobs; information that a real scheduler lacks is used only if the policy declares it.
    """

    def __init__(self, policy: IndexPolicy, jobs: Workload) -> None:
        assert policy.reservations is not None  # only called for policies with reservations
        self.rule, self.jobs = policy.reservations, jobs
        self.estimate = stated_estimates(jobs, self.rule).tolist()
        self.limit = np.where((jobs.estimate_us > 0) & self.rule.kills, jobs.estimate_us, NEVER).tolist()
        self.history, count = histories(jobs)
        self.past: list[deque[int]] = [deque(maxlen=self.rule.past) for _ in range(count + 1)]
        self.ends_by: dict[int, int] = {}
        self.started: dict[int, int] = {}
        self.planned: dict[int, tuple[int, Gpus] | None] = {}
        self.promised, self.reserved = np.full(len(jobs), NEVER), np.full(len(jobs), -1)
        self.first_start = np.full(len(jobs), NEVER)
        self.was_up: BoolArray = np.zeros(0, np.bool_)

    def plan(
        self, view: View, options: EngineOptions, order: IntArray | None = None, *, is_new_order: bool = False
    ) -> Plan:
        """Make a pass through the waiting jobs.

        Parameters
        ----------
        order
            Waiting jobs in order, or None for the order of submission.
        is_new_order
            Whether the order may have changed: reservations remain up to the first job whose position changed.
        """
        self.now = view.now_us
        self.view, self.options = view, options
        self.late: set[int] = set()
        self.gpus = dict(view.running)
        self._note_ends()
        self._take_over()
        self._note_outages()
        leave = self._pass_limits()
        self.room = view.room(leave)
        self.ideal = FreeGpus(self.room.site)
        for prepare in view.prepare:
            prepare(self.ideal)
        waiting = (view.waiting if order is None else order).tolist()
        if is_new_order:
            same = next(
                (nth for nth, pair in enumerate(zip(self.planned, waiting, strict=False)) if pair[0] != pair[1]),
                len(waiting),
            )
            self.planned = dict(list(self.planned.items())[:same])
        self._break_plans()
        there = set(waiting)
        self.planned = {job: slot for job, slot in self.planned.items() if job in there}
        if order is None:
            self.planned = dict(sorted(self.planned.items()))
        self.steps: list[tuple[Event, int]] = []
        for job in list(self.planned):
            self._improve(job)
        others = [job for job in waiting if job not in self.planned and job not in self.gpus]
        for job in others:
            self._guess(job)
        while others and len(self.planned) < self.rule.depth:
            job = others.pop(0)
            slot = self._slot(job, NEVER)
            if slot is not None and slot[0] == self.now:
                self._start(job)
            else:
                self._reserve(job, slot)
                if order is None:
                    self.planned = dict(sorted(self.planned.items()))
        for job in others:
            if self._could_start(job):
                self._start(job)
        times = [*self.ends_by.values(), *(each[0] for each in self.planned.values() if each is not None)]
        again = min((time for time in times if time > self.now), default=None)
        return Plan(gpus=self.gpus, again_us=again, leave=leave, steps=self.steps)

    def promises(self) -> tuple[IntArray, IntArray, IntArray]:
        """Return each job's estimate, time of its first reservation, and promised start, -1 if none; shape (jobs,) each."""
        promised = np.where(self.promised < NEVER, self.promised, -1)
        return np.array(self.estimate, np.int64), self.reserved, promised

    def figures(self) -> dict[str, float]:
        """Return statistics of reserved starts."""
        _, reserved, promised = self.promises()
        return promises(self.jobs.submit_us, self.jobs.gpus, reserved, promised, self.first_start)

    def _note_ends(self) -> None:
        """Add the run times of completed jobs to the histories, and remove ended runs."""
        done, executed = self.view.is_done, self.view.executed_us
        for job in [job for job in sorted(self.ends_by) if done[job]]:
            self._remember(job, int(executed[job]))
        for job in list(self.ends_by):
            if job not in self.gpus or self.view.started_us[job] != self.started[job]:
                del self.ends_by[job]

    def _take_over(self) -> None:
        """Expect running jobs that this book did not start, as in a present state, to end by their estimates."""
        for job in self.gpus:
            if job not in self.ends_by:
                self._guess(job)
                self.ends_by[job] = self.view.progress_since(job) + int(self.estimate[job])
                self.started[job] = int(self.view.started_us[job])

    def _remember(self, job: int, run_us: int) -> None:
        for history in (int(self.history[job]), -1):
            self.past[history].append(run_us)

    def _note_outages(self) -> None:
        """Find machines with an unplanned failure: their reservations are planned again."""
        is_up = self.view.is_up
        before = self.was_up if len(self.was_up) else np.ones(len(is_up), bool)
        begins = {(machine, begin) for machine, begin, _ in self.options.planned}
        failed = np.flatnonzero(before & ~is_up).tolist()
        self.late.update(machine for machine in failed if (machine, self.now) not in begins)
        self.was_up = is_up.copy()

    def _pass_limits(self) -> list[int]:
        """Return the jobs at their limits, and double the expected run time of jobs that exceeded their estimates."""
        leave = []
        for job in sorted(self.ends_by):
            ran = self.now - self.view.progress_since(job)
            if self.ends_by[job] > self.now:
                continue
            if ran >= self.limit[job]:
                leave.append(job)
                self._remember(job, int(self.view.executed_us[job]))
                del self.ends_by[job], self.gpus[job]
            else:
                self.ends_by[job] = self.now + max(1, ran)
                self.late.update(self.view.machine_of(gpu) for gpu in self.gpus[job])
        return leave

    def _break_plans(self) -> None:
        """Remove reservations on machines whose GPUs become free later than expected, and rebuild the calendar."""
        for job, slot in self.planned.items():
            if slot is not None and not self.late.isdisjoint(map(self.room.machine_of, slot[1])):
                self.planned[job] = None
        self.calendar = Calendar(self.now, self.room)
        whole = np.vstack([self.room.site.cluster.gpus, self.room.site.host])
        for machine, begin, end in self.options.planned:
            if end > self.now:
                gone = np.zeros_like(whole)
                gone[:, machine] = whole[:, machine]
                if begin > self.now:
                    self.calendar.add(begin, end, -gone)
                elif not self.view.is_up[machine]:
                    self.calendar.add(end, NEVER, gone)
        for job, end in self.ends_by.items():
            self.calendar.add(end, NEVER, self._taken(job, self.gpus[job]))
        for job, slot in self.planned.items():
            if slot is not None:
                self.calendar.add(slot[0], slot[0] + self._need(job), -self._taken(job, slot[1]))

    def _taken(self, job: int, gpus: Gpus) -> IntArray:
        """Return the GPUs, vCPUs and memory that a job takes of each machine; shape (3, machines)."""
        machines = np.bincount(
            [self.room.machine_of(gpu) for gpu in gpus], minlength=self.room.site.cluster.num_machines
        )
        return np.vstack([machines, self.room.site.asks[:, job][:, None] * machines]).astype(np.int64)

    def _guess(self, job: int) -> None:
        """Estimate the run time of a job without a stated estimate, when it is first seen."""
        if self.estimate[job] < 0:
            past = self.past[int(self.history[job])] or self.past[-1]
            rank = max(0, int(np.ceil(self.rule.quantile * len(past))) - 1)
            self.estimate[job] = max(1, sorted(past)[rank]) if past else self.rule.default_us

    def _need(self, job: int) -> int:
        started = self.view.first_start_us[job] >= 0
        return int(self.estimate[job]) + (self.options.overhead_us if started else self.options.startup_us)

    def _find(self, job: int, begin: int) -> Gpus | None:
        """Return the first GPUs that are free for a job from a time on, for its estimated time; None if there are none."""
        least = np.maximum(0, self.calendar.least(begin, self._need(job)))
        self.ideal.host = least[1:]
        gpus = self.ideal.find(job, most=least[0], placement=Placement.FIRST_FIT)
        site = self.room.site
        if gpus is None or site.widths[job] <= site.max_of[job] or self.ideal.spreads(job):
            return gpus
        # A wide gang starts on completely free machines, so all GPUs of its last machine are reserved until then.
        machines = sorted({site.machine_of[gpu] for gpu in gpus})
        return tuple(gpu for machine in machines for gpu in range(site.first[machine], site.first[machine + 1]))

    def _slot(self, job: int, limit: int) -> tuple[int, Gpus] | None:
        """Return a job's earliest start before a limit, and its GPUs; None if there is no such start."""
        for time in self.calendar.times:
            if time >= limit:
                break
            gpus = self._find(job, time)
            if gpus is not None:
                return time, gpus
        return None

    def _improve(self, job: int) -> None:
        """Start a reserved job that may start, or move it to an earlier start if possible."""
        slot = self.planned[job]
        limit = NEVER
        if slot is not None:
            self.calendar.add(slot[0], slot[0] + self._need(job), self._taken(job, slot[1]))
            limit = slot[0] if slot[0] > self.now else NEVER
        better = self._slot(job, limit)
        if better is not None and better[0] == self.now:
            del self.planned[job]
            self._start(job)
        else:
            self._reserve(job, better or (slot if limit < NEVER else None))

    def _reserve(self, job: int, slot: tuple[int, Gpus] | None) -> None:
        """Reserve a start and GPUs for a job; `slot` is None if the job fits only after a machine is repaired."""
        self.planned[job] = slot
        if slot is not None:
            self.calendar.add(slot[0], slot[0] + self._need(job), -self._taken(job, slot[1]))
            if self.promised[job] == NEVER and self.view.first_start_us[job] < 0:
                self.promised[job], self.reserved[job] = slot[0], self.now

    def _could_start(self, job: int) -> bool:
        if self.room.site.is_plain and self.room.site.widths[job] > self.room.num_free:
            return False
        return self._find(job, self.now) is not None

    def _start(self, job: int) -> None:
        """Start a job by the placement rule, on GPUs that are free for all of its estimate."""
        least = np.maximum(0, self.calendar.least(self.now, self._need(job)))
        trial = self.room.copy()
        trial.host = np.minimum(trial.host, least[1:])
        gpus = trial.find(job, most=least[0])
        assert gpus is not None  # the job fits, because its slot begins now
        self.room.take(job, gpus)
        self.calendar.add(self.now, self.now + self._need(job), -self._taken(job, gpus))
        self.gpus[job] = gpus
        self.steps.append((Event.START, job))
        self.ends_by[job] = self.now + self._need(job)
        self.started[job] = self.now
        self.first_start[job] = min(self.now, int(self.first_start[job]))
