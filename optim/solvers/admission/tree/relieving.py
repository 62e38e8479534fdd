"""Splits of a node whose counts over classes no single servers hold: a no-good, count by count.

The low child of each split has fewer units in the crowded place; the high child at least as many. Where all are at
least as many, the servers hold none of the node's plans, and the checker shows it from the restrictions alone.
"""

from optim.models.admission.proof import Branch, BranchKind, Side
from optim.solvers.admission.pricing.class_pricing import PricedSchedules
from optim.solvers.admission.pricing.job_tables import JobTables
from optim.solvers.admission.tree.node_pricing import NodeLimits
from optim.solvers.admission.tree.splitting import Crowded


def relieving(limits: NodeLimits, tables: JobTables, schedules: PricedSchedules, crowded: Crowded) -> Branch | None:
    """Return a split of a count in a crowded place that the node leaves lower, the largest count first.

    A job with several demand segments may be in another one there as long as its earlier workers aren't fixed: then
    they are split next. None if the node leaves nothing that is less crowded.
    """
    place = (crowded.server_class, crowded.slot)
    open_counts = []
    for kind in crowded.kinds:
        i, low = int(schedules.jobs[kind.owner]), limits.worker_low if kind.side is Side.WORKER else limits.ps_low
        if low[i, *place] < kind.units:
            open_counts.append((kind.units, -i, kind.side))
    if open_counts:
        units, minus_job, side = max(open_counts)
        return Branch(
            kind=BranchKind.WORKERS if side is Side.WORKER else BranchKind.PS,
            job=-minus_job,
            value=units - 1,
            server_class=crowded.server_class,
            slot=crowded.slot,
        )
    for owner in sorted({kind.owner for kind in crowded.kinds}):
        branch = _fixing_segment(limits, tables, schedules, owner, crowded.slot)
        if branch is not None:
            return branch
    return None


def _fixing_segment(
    limits: NodeLimits, tables: JobTables, schedules: PricedSchedules, owner: int, slot: int
) -> Branch | None:
    """Return a split of a count of workers before a slot that isn't fixed yet, None if the job has one segment only."""
    i = int(schedules.jobs[owner])
    own = slice(int(tables.segment_offset[i]), int(tables.segment_offset[i + 1]))
    if own.stop - own.start == 1:
        return None
    for t in range(int(tables.arrival[i]), slot):
        for c, units in enumerate(schedules.workers[owner, :, t].tolist()):
            low, high = int(limits.worker_low[i, c, t]), int(limits.worker_high[own, c, t].max())
            if low < units or high > units:
                value = units - 1 if low < units else units
                return Branch(kind=BranchKind.WORKERS, job=i, value=value, server_class=c, slot=t)
    return None
