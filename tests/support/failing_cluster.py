"""The plain engine of clusters with machines that fail and are repaired at given times."""

from tests.support.plain_cluster import NEVER, PlainCluster


class FailingCluster(PlainCluster):
    """`outages` are (time, machine, whether it fails) in order; a job keeps what it did up to its last `checkpoint` of work."""

    def __init__(self, *args, outages, checkpoint, **rest):
        super().__init__(*args, **rest)
        self.outages, self.checkpoint, self.down = list(outages), checkpoint, set()
        self.undone = [0] * len(self.jobs)

    def free(self):
        return [0 if machine in self.down else left for machine, left in enumerate(super().free())]

    def next_outage(self):
        return self.outages[0][0] if self.outages else NEVER

    def play_outages(self):
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
