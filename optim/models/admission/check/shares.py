"""The largest share of one server's resource that one job can take in a slot, exactly: the theorems' eps."""

from fractions import Fraction

from optim.models.admission.check.facts import Facts, JobFacts
from optim.models.admission.check.restrictions import FREE
from optim.models.admission.check.room import ps_beside_on_one, units_on_server
from optim.models.admission.check.schedules import has_schedule
from optim.models.admission.proof import Side


def largest_share(facts: Facts) -> Fraction:
    """Return eps over all jobs that can complete alone, from their arrival to their deadline."""
    found = Fraction(0)
    for job in facts.jobs:
        if job.deadline >= job.arrival and has_schedule(facts, job, FREE):
            found = max(found, _share_of(facts, job))
    return found


def _share_of(facts: Facts, job: JobFacts) -> Fraction:
    """Return the largest share that one job takes."""
    found = Fraction(0)
    most = (job.most_workers, job.ps_needed(job.most_workers))
    for side in (Side.WORKER,) if facts.is_shared else (Side.WORKER, Side.PS):
        servers = facts.servers(side)
        for c in range(len(servers.count)):
            rooms = {servers.room(c, slot) for slot in range(job.arrival, job.deadline + 1)}
            for room in rooms:
                for demand in job.demands:
                    if facts.is_shared:
                        beside = (
                            (y, ps_beside_on_one(demand, room, facts.share, y, most[1])) for y in range(most[0] + 1)
                        )
                        pairs = [(y, z) for y, z in beside if z >= 0]
                    elif side is Side.WORKER:
                        pairs = [(units_on_server(demand.worker, room, facts.share, most[0]), 0)]
                    else:
                        pairs = [(0, units_on_server(demand.ps, room, facts.share, most[1]))]
                    for y, z in pairs:
                        for worker, ps, limit in zip(demand.worker, demand.ps, room, strict=True):
                            used = y * worker + z * ps
                            if used:
                                found = max(found, Fraction(used, limit))
    return found
