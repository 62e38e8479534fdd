"""A second engine of clusters, in plain Python: sorted lists and dictionaries, without shared code."""

from fractions import Fraction
from math import ceil, floor

NEVER = 10**30


class PlainCluster:
    """Play index policies by their stated rules, one instant after the other.

    `order` is the sort key of jobs: submission, drawn, remaining-time, remaining-service, attained-time,
    attained-service, or table (then `table` contains thresholds and ranks). `preempts` is never, events or ticks.
    """

    def __init__(self, jobs, sizes, racks, *, order, preempts, backfill, first_start_tie=False, quantum=0, table=((), (0,)),
                 crossings=(), placement="best-fit", spread=False, overhead=0, drawn=None):  # fmt: skip
        self.jobs = jobs  # rows (submit, gpus, duration, slowdowns)
        self.sizes, self.racks, self.order, self.preempts, self.backfill = sizes, racks, order, preempts, backfill
        self.by_first_start, self.quantum, self.table, self.crossings = first_start_tie, quantum, table, crossings
        self.placement, self.spread, self.overhead, self.drawn = placement, spread, overhead, drawn
        self.executed, self.served = [0] * len(jobs), [0] * len(jobs)
        self.first_start, self.started, self.places = {}, {}, {}
        self.waiting, self.log, self.now = set(), [], 0

    def free(self):
        left = list(self.sizes)
        for places in self.places.values():
            for machine, gpus in places:
                left[machine] -= gpus
        return left

    def progress_since(self, job):
        return self.started[job] + (0 if self.first_start[job] == self.started[job] else self.overhead)

    def factor(self, job):
        machines = [machine for machine, _ in self.places[job]]
        level = 0 if len(machines) == 1 else 1 if len({self.racks[machine] for machine in machines}) == 1 else 2
        return Fraction(self.jobs[job][3][level], 10**6)

    def end(self, job):
        return self.progress_since(job) + ceil((self.jobs[job][2] - self.served[job]) * self.factor(job))

    def totals(self, job):
        if job not in self.places:
            return self.executed[job], self.served[job]
        run = max(0, self.now - self.progress_since(job))
        return self.executed[job] + run, self.served[job] + floor(run / self.factor(job))

    def key(self, job):
        executed, served = self.totals(job)
        _, gpus, duration, _ = self.jobs[job]
        thresholds, ranks = self.table
        first = {
            "submission": 0,
            "drawn": self.drawn[job] if self.drawn else 0,
            "remaining-time": duration - served,
            "remaining-service": (duration - served) * gpus,
            "attained-time": executed,
            "attained-service": executed * gpus,
            "table": ranks[sum(threshold <= executed * gpus for threshold in thresholds)],
        }[self.order]
        return first, self.first_start.get(job, NEVER) if self.by_first_start else 0, job

    def lost(self, free):
        """Return the free GPUs of a machine times the jobs whose gang they can't hold."""
        return free * sum(min(gpus, max(self.sizes)) > free for _, gpus, _, _ in self.jobs)

    def find(self, gpus, free):
        """Return places for a gang in the given capacity, None if there are none."""
        machines = range(len(free))
        if gpus <= max(self.sizes):
            fitting = [machine for machine in machines if free[machine] >= gpus]
            if fitting:
                rule = {"best-fit": lambda m: free[m], "first-fit": lambda m: 0, "worst-fit": lambda m: -free[m],
                        "fgd": lambda m: (self.lost(free[m] - gpus) - self.lost(free[m]), free[m])}  # fmt: skip
                return [(min(fitting, key=lambda m: (rule[self.placement](m), m)), gpus)]
            pool = []
        else:
            pool = sorted((m for m in machines if free[m] == self.sizes[m]), key=lambda m: (-self.sizes[m], m))
        if sum(free[m] for m in pool) < gpus:
            if not self.spread or sum(free) < gpus:
                return None
            pool = sorted(machines, key=lambda m: (-free[m], m))
        places = []
        for machine in pool:
            if gpus:
                places.append((machine, min(gpus, free[machine])))
                gpus -= places[-1][1]
        return places

    def whole(self, room):
        return sum(size for size, left in zip(self.sizes, room, strict=True) if left == size)

    def victims(self, job):
        """Return the running jobs to stop for a waiting one, None if that is impossible."""
        gpus, free, passed = self.jobs[job][1], self.free(), []
        room = list(free)
        for other in sorted((o for o in self.places if self.key(o) > self.key(job)), key=self.key, reverse=True):
            passed.append(other)
            for machine, count in self.places[other]:
                room[machine] += count
            if self.spread:
                if sum(room) >= gpus:
                    return self.spare(passed, lambda o: sum(c for _, c in self.places[o]), sum(room) - gpus)
            elif gpus <= max(self.sizes):
                fitting = [m for m in range(len(room)) if room[m] >= gpus]
                if fitting:
                    return self.spare(
                        passed, lambda o, m=fitting[0]: dict(self.places[o]).get(m, 0), room[fitting[0]] - gpus
                    )
            elif self.whole(room) >= gpus:
                spared = []
                for urgent in reversed(passed):
                    rest = list(room)
                    for machine, count in (place for one in [*spared, urgent] for place in self.places[one]):
                        rest[machine] -= count
                    if self.whole(rest) >= gpus:
                        spared.append(urgent)
                return [one for one in passed if one not in spared]
        return None

    @staticmethod
    def spare(passed, held, spare):
        chosen = []
        for other in reversed(passed):
            if held(other) <= spare:
                spare -= held(other)
            else:
                chosen.append(other)
        return [other for other in passed if other in chosen]

    def start(self, job):
        self.waiting.remove(job)
        self.places[job] = self.find(self.jobs[job][1], self.free())
        self.started[job] = self.now
        self.first_start.setdefault(job, self.now)
        self.log.append((self.now, 0, job, tuple(self.places[job])))

    def stop(self, job, kind):
        self.executed[job], self.served[job] = self.totals(job)
        del self.places[job]
        self.log.append((self.now, kind, job, ()))
        if kind == 1:
            self.waiting.add(job)

    def schedule(self, can_preempt):
        held_up = set()
        while True:
            candidates = [job for job in self.waiting if self.jobs[job][1] not in held_up]
            if not candidates:
                return
            job = min(candidates, key=self.key)
            if self.find(self.jobs[job][1], self.free()) is not None:
                self.start(job)
                continue
            victims = self.victims(job) if can_preempt else None
            if victims:
                for other in victims:
                    self.stop(other, 1)
                self.start(job)
            elif self.backfill:
                held_up.add(self.jobs[job][1])
            else:
                return

    def crossing(self, job):
        gpus = self.jobs[job][1]
        service = self.executed[job] * gpus
        times = [self.progress_since(job) + ceil(Fraction(c - service, gpus)) for c in self.crossings if c > service]
        return min((time for time in times if time > self.now), default=NEVER)

    def next_outage(self):
        return NEVER

    def play_outages(self):
        """No machine fails here."""

    def own_times(self):
        return [self.end(job) for job in self.places]

    def play(self):
        arrived = 0
        while True:
            times = self.own_times()
            if arrived < len(self.jobs):
                times.append(self.jobs[arrived][0])
            if self.waiting and self.places:
                times += [self.crossing(job) for job in self.places if self.crossing(job) < self.end(job)]
                if self.preempts == "ticks":
                    times.append((self.now // self.quantum + 1) * self.quantum)
            if not times and not self.waiting:
                return self.log
            self.now = min([*times, self.next_outage()])
            for job in sorted(job for job in self.places if self.end(job) == self.now):
                self.stop(job, 2)
            self.play_outages()
            while arrived < len(self.jobs) and self.jobs[arrived][0] == self.now:
                self.waiting.add(arrived)
                arrived += 1
            self.schedule(self.preempts == "events" or (self.preempts == "ticks" and self.now % self.quantum == 0))
