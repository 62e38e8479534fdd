"""The plain engine of clusters with machines that fail at given times, and jobs whose attempts fail."""

from tests.support.plain_cluster import NEVER, PlainCluster


class FailingCluster(PlainCluster):
    """`outages` are (time, machine, whether it fails) in order; a job keeps its work up to its last `checkpoint`.

    `tries` gives for each job the run times of its failing attempts, their number, whether a successful attempt follows
    and its remaining work, and the number of allowed failures. `wait` is the backoff after each failure.
    """

    def __init__(self, *args, outages=(), checkpoint=1, tries=None, wait=0, **rest):
        super().__init__(*args, **rest)
        self.outages, self.checkpoint, self.down = list(outages), checkpoint, set()
        self.undone = [0] * len(self.jobs)
        self.tries, self.wait = tries or [(0, 0, 0, 0)] * len(self.jobs), wait
        self.failed, self.before, self.back = [0] * len(self.jobs), [0] * len(self.jobs), {}

    def is_failing(self, job):
        return self.failed[job] < self.tries[job][1]

    def begin_of_try(self, job):
        fails, number, left, _ = self.tries[job]
        good = self.jobs[job][2] - left
        return min(self.failed[job] * fails, good) if self.failed[job] < number else good

    def end(self, job):
        return NEVER if self.is_failing(job) else super().end(job)

    def fault(self, job):
        if not self.is_failing(job):
            return NEVER
        return self.progress_since(job) + self.tries[job][0] - (self.executed[job] - self.before[job])

    def own_times(self):
        return [*super().own_times(), *(self.fault(job) for job in self.places), *self.back.values()]

    def fail_tries(self):
        for job in sorted(job for job in self.places if self.fault(job) == self.now):
            _, number, left, allowed = self.tries[job]
            base = self.begin_of_try(job)
            is_last = self.failed[job] + 1 >= allowed or (self.failed[job] + 1 == number and not left)
            self.stop(job, 8 if is_last else 7)
            self.undone[job] += self.served[job] - base
            self.failed[job] += 1
            self.before[job], self.served[job] = self.executed[job], self.begin_of_try(job)
            if not is_last:
                self.back[job] = self.now + self.wait
        for job in [job for job, when in self.back.items() if when == self.now]:
            del self.back[job]
            self.waiting.add(job)

    def free(self):
        return [0 if machine in self.down else left for machine, left in enumerate(super().free())]

    def next_outage(self):
        return self.outages[0][0] if self.outages else NEVER

    def play_outages(self):
        self.fail_tries()
        while self.next_outage() == self.now:
            _, machine, fails = self.outages.pop(0)
            self.log.append((self.now, 5 if fails else 6, -1, ((machine, 0),)))
            for job in sorted(j for j, places in self.places.items() if fails and machine in dict(places)):
                before = self.served[job]
                self.stop(job, 4)
                self.waiting.add(job)
                whole = self.served[job] // self.checkpoint * self.checkpoint
                self.undone[job] += self.served[job] - max(before, whole)
                self.served[job] = max(before, whole)
            (self.down.add if fails else self.down.remove)(machine)
