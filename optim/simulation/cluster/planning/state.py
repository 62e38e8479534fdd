"""Allocation of GPUs, and progress of jobs. Times and work are integer microseconds."""

from collections.abc import Iterable
from heapq import heappop, heappush

import numpy as np

from optim.core.arrays import IntArray
from optim.models.cluster.rules import Rules, checkpoint_steps, tries_of
from optim.models.cluster.workload import PPM, WHOLE_MILLI
from optim.simulation.cluster.planning.free_gpus import FreeGpus, Gpus, SimulationContext

NEVER = 2**62


class ClusterState:
    """The state of a run.

    A job's slowdown is the product of four factors, rounded up to parts per million ((D.4) of docs/mathematics/cluster.md). The
    factors stand for the locality of its GPUs, their type, other jobs on its GPUs or machines, and its gang divided by its
    width. Work is rounded down to a microsecond whenever the slowdown changes.

    Parameters
    ----------
    site
        Jobs and cluster.
    rules
        Costs of starts, and permitted allocations.
    """

    def __init__(self, site: SimulationContext, rules: Rules) -> None:
        jobs, cluster = site.jobs, site.cluster
        count = len(jobs)
        self.site, self.jobs, self.cluster, self.rules = site, jobs, cluster, rules
        self.shown: dict[int, Gpus] = {}
        self.holders: list[list[int]] = [[] for _ in range(cluster.num_gpus)]
        self.is_active, self.is_running, self.is_done = (np.zeros(count, np.bool_) for _ in range(3))
        self.executed, self.served, self.overhead = (np.zeros(count, np.int64) for _ in range(3))
        self.saved, self.lost = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self.stop_steps = checkpoint_steps(jobs, rules.preempt_checkpoint_us)
        self.outage_steps = checkpoint_steps(jobs, rules.checkpoint_us)
        self.tries = tries_of(jobs, rules)
        self.tried, self.try_base = [0] * count, [0] * count
        self.held_back: list[tuple[int, int]] = []
        self.is_up = np.ones(cluster.num_machines, np.bool_)
        self.first_start, self.started, self.stopped, self.end = (np.full(count, -1) for _ in range(4))
        self.run_since, self.pause_end, self.factor = (np.zeros(count, np.int64) for _ in range(3))
        self.version = [0] * count
        self.last: dict[int, Gpus] = {}
        self.ends: list[tuple[int, int, int]] = []
        self.fails: list[tuple[int, int, int]] = []
        self.touched: set[int] = set()
        self.free_room = FreeGpus(site)
        self.num_free, self.held_milli = cluster.num_gpus, 0
        self.allocated_gpu_us, self.overhead_gpu_us, self.held_since = 0, 0, 0  # GPU-times in thousandths of a GPU
        self.has_neighbours = rules.jobs_a_gpu > 1 or rules.neighbour_ppm > PPM

    def room(self, without: Iterable[int]) -> FreeGpus:
        """Return the GPUs that are free while the running jobs continue, except the jobs in `without`."""
        room = self.free_room.copy()
        for job in without:
            if job in self.shown:
                room.give(job, self.shown[job])
        return room

    def executed_at(self, now: int, count: int) -> IntArray:
        """Return the time of progress with GPUs of the first `count` jobs."""
        executed = self.executed[:count].copy()
        running = np.flatnonzero(self.is_running[:count])
        executed[running] += np.maximum(0, now - self.run_since[running])
        return executed

    def served_at(self, now: int, count: int) -> IntArray:
        """Return the work done by the first `count` jobs."""
        served = self.served[:count].copy()
        running = np.flatnonzero(self.is_running[:count])
        elapsed, factor = np.maximum(0, now - self.run_since[running]), self.factor[running]
        served[running] += elapsed // factor * PPM + elapsed % factor * PPM // factor
        return served

    def start(self, job: int, gpus: Gpus, now: int) -> None:
        """Give a job its GPUs."""
        is_first = self.first_start[job] < 0
        pause = self.rules.restart_us if set(self.last.get(job, ())) == set(gpus) else self.rules.move_us
        if is_first:
            self.first_start[job] = now
        self.shown[job] = gpus
        self.is_running[job] = True
        self.started[job] = now
        self.run_since[job] = self.pause_end[job] = now + (self.rules.startup_us if is_first else pause)
        self.factor[job] = 0  # computed after all starts of the instant
        self._hold(job, gpus, 1, now)

    def stop(self, job: int, now: int, is_done: bool) -> None:
        """Take a job's GPUs away."""
        gpus = self.shown.pop(job)
        self._settle(job, now)
        paused = min(now, int(self.pause_end[job])) - int(self.started[job])
        self.overhead[job] += paused
        self.overhead_gpu_us += paused * len(gpus) * self.site.shares[job]
        self.version[job] += 1
        self.is_running[job] = False
        self.stopped[job] = now
        self.last[job] = gpus
        self._hold(job, gpus, -1, now)
        self.saved[job] = self.served[job]
        if is_done:
            self.served[job] = self.jobs.duration_us[job]
            self.is_done[job] = True

    def crash(self, job: int, now: int) -> None:
        """Take a job's GPUs away; it loses the work since its last checkpoint or stop."""
        self._lose(job, now, int(self.outage_steps[job]))

    def preempt(self, job: int, now: int) -> None:
        """Take a job's GPUs away; if stops undo work, it loses the work since its last checkpoint or stop."""
        self._lose(job, now, int(self.stop_steps[job]) or 1)

    def _lose(self, job: int, now: int, step: int) -> None:
        saved = int(self.saved[job])
        self.stop(job, now, is_done=False)
        done = int(self.served[job])
        kept = max(saved, done // step * step)
        self.lost[job] += done - kept
        self.served[job] = self.saved[job] = kept

    def fault(self, job: int, now: int) -> bool:
        """Take a job's GPUs away, and undo all work of its attempt; return whether it was the last attempt."""
        self.stop(job, now, is_done=False)
        self.lost[job] += int(self.served[job]) - self._begin_of_try(job)
        self.tried[job] += 1
        self.try_base[job] = int(self.executed[job])
        self.served[job] = self.saved[job] = self._begin_of_try(job)
        is_last = self.tried[job] >= int(self.tries.last[job])
        if not is_last and self.rules.retry_wait_us:
            self.is_active[job] = False
            heappush(self.held_back, (now + self.rules.retry_wait_us, job))
        return is_last

    def _begin_of_try(self, job: int) -> int:
        """Return the run time at which a job's present attempt begins."""
        number, good = self.tried[job], int(self.tries.good[job])
        return min(number * int(self.tries.fails[job]), good) if self.is_bound_to_fail(job) else good

    def is_bound_to_fail(self, job: int) -> bool:
        """Return whether the present attempt of a job fails."""
        return self.tried[job] < int(self.tries.failing[job])

    def jobs_on(self, machine: int) -> list[int]:
        """Return the jobs that have GPUs of a machine."""
        first = self.site.first
        return sorted({job for gpu in range(first[machine], first[machine + 1]) for job in self.holders[gpu]})

    def set_up(self, machine: int, is_up: bool) -> None:
        """Add or remove the GPUs of a machine, all of which are free."""
        self.is_up[machine] = is_up
        self.free_room.set_up(machine, is_up)

    def close(self, job: int, now: int) -> None:
        """Mark a job as ended."""
        self.is_active[job] = False
        self.end[job] = now

    def refresh(self, now: int) -> None:
        """Compute the slowdowns that starts and stops of this instant changed, and the ends of the affected jobs."""
        for job in sorted(self.touched):
            if job in self.shown:
                factor = self.slowdown(job)
                if factor != self.factor[job]:
                    self._settle(job, now)
                    self.factor[job] = factor
                    self._foresee(job)
        self.touched.clear()

    def slowdown(self, job: int) -> int:
        """Return the slowdown of a running job in parts per million, rounded up."""
        gpus, jobs, rules, machine_of = self.shown[job], self.jobs, self.rules, self.site.machine_of
        machines = {machine_of[gpu] for gpu in gpus}
        level = 0 if len(machines) == 1 else 1 if len({int(self.cluster.rack[m]) for m in machines}) == 1 else 2
        product = int(jobs.slowdown_ppm[job, level])
        if jobs.gpu_type_slowdown_ppm.shape[1]:
            product = product * max(int(jobs.gpu_type_slowdown_ppm[job, self.cluster.kind[m]]) for m in machines)
        else:
            product *= PPM
        product *= self._crowding(gpus) if rules.jobs_a_gpu > 1 else PPM
        product *= rules.neighbour_ppm if rules.neighbour_ppm > PPM and self._has_neighbour(job, machines) else PPM
        return -(-product * int(jobs.gpus[job]) // (len(gpus) * PPM**3))

    def _crowding(self, gpus: Gpus) -> int:
        busy = self.jobs.busy_milli
        return (
            max(WHOLE_MILLI, *(sum(int(busy[other]) for other in self.holders[gpu]) for gpu in gpus))
            * PPM
            // WHOLE_MILLI
        )

    def _has_neighbour(self, job: int, machines: set[int]) -> bool:
        if len(self.shown[job]) < 2:
            return False
        first = self.site.first
        others = {
            other
            for m in machines
            for gpu in range(first[m], first[m + 1])
            for other in self.holders[gpu]
            if other != job
        }
        return any(len(self.shown[other]) > 1 for other in others)

    def _hold(self, job: int, gpus: Gpus, sign: int, now: int) -> None:
        self.touched.add(job)
        self.allocated_gpu_us += self.held_milli * (now - self.held_since)
        self.held_since = now
        share = self.site.shares[job]
        (self.free_room.take if sign > 0 else self.free_room.give)(job, gpus)
        for gpu in gpus:
            holders = self.holders[gpu]
            before = min(WHOLE_MILLI, sum(self.site.shares[other] for other in holders))
            holders.append(job) if sign > 0 else holders.remove(job)
            after = min(WHOLE_MILLI, before + share) if sign > 0 else sum(self.site.shares[other] for other in holders)
            self.held_milli += min(WHOLE_MILLI, after) - before
            self.num_free += (not holders) - (sign > 0 and len(holders) == 1)
        if self.has_neighbours:
            self._touch(gpus)

    def _touch(self, gpus: Gpus) -> None:
        """Mark the jobs whose slowdown may change when jobs take or release these GPUs."""
        for gpu in gpus:
            self.touched.update(self.holders[gpu])
        if self.rules.neighbour_ppm > PPM:
            first = self.site.first
            for machine in {self.site.machine_of[gpu] for gpu in gpus}:
                for gpu in range(first[machine], first[machine + 1]):
                    self.touched.update(self.holders[gpu])

    def _settle(self, job: int, now: int) -> None:
        """Record a job's work since its last progress update."""
        elapsed = now - int(self.run_since[job])
        if elapsed > 0:
            self.executed[job] += elapsed
            self.served[job] += elapsed * PPM // int(self.factor[job])
            self.run_since[job] = now

    def _foresee(self, job: int) -> None:
        """Compute the end of a job at its present slowdown, and the failure of its attempt."""
        self.version[job] += 1
        left = int(self.jobs.duration_us[job] - self.served[job])
        if self.is_bound_to_fail(job):
            left = int(self.tries.fails[job]) - (int(self.executed[job]) - self.try_base[job])
            heappush(self.fails, (int(self.run_since[job]) + left, job, self.version[job]))
            return
        end = int(self.run_since[job]) - (-left * int(self.factor[job]) // PPM)
        heappush(self.ends, (end, job, self.version[job]))
        if self.rules.retries:
            return  # all failing attempts are over
        fails = int(self.jobs.fails_us[job])
        if fails > self.executed[job]:
            when = int(self.run_since[job]) + fails - int(self.executed[job])
            if when < end:
                heappush(self.fails, (when, job, self.version[job]))

    def next_of(self, heap: list[tuple[int, int, int]]) -> int:
        """Return the time of the first event of a heap; void entries are removed."""
        while heap and heap[0][2] != self.version[heap[0][1]]:
            heappop(heap)
        return heap[0][0] if heap else NEVER
