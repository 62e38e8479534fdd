"""Adapter that simulates an index policy by planning, for features outside the compiled loop."""

from dataclasses import replace

import numpy as np

from optim.core.arrays import IntArray
from optim.core.errors import NotAllowedError
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.log import Event
from optim.models.cluster.rules import Rules
from optim.models.cluster.workload import Workload
from optim.simulation.cluster.index.policy import IndexPolicy, Key, Preempts, Tie, random_priorities
from optim.simulation.cluster.options import EngineOptions
from optim.simulation.cluster.planning.free_gpus import Gpus
from optim.simulation.cluster.planning.placing import HeldUp, sparing
from optim.simulation.cluster.planning.policy import Oracle, Plan, PlanningPolicy, View
from optim.simulation.cluster.planning.reservations import ReservationBook, rules_of_reservations

NEVER = 2**62


class IndexPolicyAdapter(PlanningPolicy):
    """Use the order, ticks, thresholds and preemption rule of the compiled loop; both produce the same log, event by event."""

    def __init__(self, policy: IndexPolicy, jobs: Workload) -> None:
        self.policy, self.jobs = policy, jobs
        self.name = policy.name  # type: ignore[misc]
        self.oracle_inputs = (Oracle.RUN_TIMES,) if policy.sees_run_times else ()  # type: ignore[misc]
        self.book: ReservationBook | None = None

    @property
    def needs(self) -> str:
        """Information that the policy uses and a real scheduler lacks."""
        return self.policy.needs

    def rules(self, options: EngineOptions) -> Rules:
        """Return the engine's rules, with the number of reserved jobs and whether jobs are stopped at their limits.

        Raises
        ------
        UnsupportedProblemError
            If the policy reserves GPUs and jobs share GPUs.
        """
        rules, reserves = super().rules(options), self.policy.reservations
        if reserves is None:
            return rules
        self.options = options
        rules = rules_of_reservations(self.policy, self.jobs, rules, options)
        return replace(rules, reservation_depth=reserves.depth)

    def promises(self) -> tuple[IntArray, IntArray, IntArray] | None:
        """Return the reserved starts."""
        return None if self.book is None else self.book.promises()

    def figures(self) -> dict[str, float]:
        """Return statistics of reserved starts."""
        return {} if self.book is None else self.book.figures()

    def begin(self, cluster: Cluster, seed: int) -> None:
        """Draw the random order, if any, and clear reservations."""
        del cluster
        self.book = None if self.policy.reservations is None else ReservationBook(self.policy, self.jobs)
        self.drawn = random_priorities(seed, len(self.jobs))

    def executed(self, view: View) -> IntArray:
        """Return the time of progress with GPUs, to which thresholds apply."""
        return view.executed_us

    def _keys(self, view: View) -> IntArray:
        """Return key and tie-breaker of each job submitted so far; shape (2, jobs)."""
        key, count = self.policy.key, len(view.gpus)
        first = np.zeros(count, np.int64)
        if key is Key.DRAWN:
            first = self.drawn[:count]
        elif key in (Key.REMAINING_TIME, Key.REMAINING_SERVICE):
            first = view.remaining_us
        elif key in (Key.ATTAINED_TIME, Key.ATTAINED_SERVICE):
            first = view.executed_us
        elif key is Key.TABLE:
            ranks = np.asarray(self.policy.ranks, np.int64)
            first = ranks[np.searchsorted(self.policy.thresholds, self.executed(view) * view.gpus, side="right")]
        elif key is not Key.SUBMISSION:  # an unknown key would otherwise be treated as the order of submission
            raise NotAllowedError(
                f"policy {self.name}: planning does not implement the key {key.name}; add its order here"
            )
        if key in (Key.REMAINING_SERVICE, Key.ATTAINED_SERVICE):
            first = first * view.gpus
        started = np.where(view.first_start_us >= 0, view.first_start_us, NEVER)
        return np.stack([first, started if self.policy.tie is Tie.FIRST_START else np.zeros(count, np.int64)])

    def _more_left(self, view: View, job: int) -> int:
        """Return the increase of a job's key when a stop undoes part of its work."""
        if self.policy.key not in (Key.REMAINING_TIME, Key.REMAINING_SERVICE):
            return 0
        return view.undone_by_stop(job) * (int(view.gpus[job]) if self.policy.key is Key.REMAINING_SERVICE else 1)

    def plan(self, view: View) -> Plan:
        """Make a pass through the jobs."""
        if self.book is not None:
            return self.book.plan(view, self.options)
        policy, gpus, room = self.policy, dict(view.running), view.room()
        is_tick = policy.preempts is Preempts.AT_TICKS and view.now_us % policy.quantum_us == 0
        keys = self._keys(view)
        waiting = view.waiting
        order = waiting[np.lexsort((waiting, keys[1][waiting], keys[0][waiting]))]
        running = np.fromiter(gpus, np.int64, len(gpus))
        victims = running[np.lexsort((running, keys[1][running], keys[0][running]))][::-1].tolist()
        rank = {job: (int(keys[0][job]), int(keys[1][job]), job) for job in [*victims, *order.tolist()]}
        can_preempt = is_tick or policy.preempts is Preempts.AT_EVENTS
        queue, held_up = order.tolist()[::-1], HeldUp(room.site, is_strict=not policy.backfill)
        steps: list[tuple[Event, int]] = []
        while queue and not held_up.is_all:
            job = queue.pop()
            if held_up.holds(job):
                continue
            taken = room.place(job)
            if taken is None and can_preempt:
                less = [other for other in victims if other in gpus and rank[other] > rank[job]]
                stopped = sparing(room, job, less, gpus)
                for other in stopped:
                    room.give(other, gpus.pop(other))
                    steps.append((Event.PREEMPT, other))
                    rank[other] = (rank[other][0] + self._more_left(view, other), *rank[other][1:])
                if stopped:
                    queue = sorted([*queue, *stopped], key=lambda other: rank[other], reverse=True)
                    taken = room.place(job)
            if taken is None:
                held_up.add(job)
                continue
            gpus[job] = taken
            steps.append((Event.START, job))
        return Plan(gpus=gpus, again_us=self._next_time(view, gpus), steps=steps)

    def _next_time(self, view: View, gpus: dict[int, Gpus]) -> int | None:
        """Return the next tick, or the next time at which a job reaches a threshold, if a job is waiting."""
        if not gpus or len(gpus) == len(view.jobs):
            return None
        times = (
            [(view.now_us // self.policy.quantum_us + 1) * self.policy.quantum_us]
            if self.policy.preempts is Preempts.AT_TICKS
            else []
        )
        executed = self.executed(view)
        for job in gpus:
            service = int(executed[job]) * int(view.gpus[job])
            ahead = next((threshold for threshold in self.policy.demotion_thresholds if threshold > service), None)
            if ahead is not None:
                begins = max(view.now_us, view.progress_since(job) if job in view.running else view.now_us)
                times.append(begins + -(-(ahead - service) // int(view.gpus[job])))
        return min((time for time in times if time > view.now_us), default=None)
