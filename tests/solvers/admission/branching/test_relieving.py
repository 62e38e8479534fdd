"""Splits that relieve an overloaded class of servers, by hand."""

import numpy as np

from optim.models.admission.decision import Branch, BranchKind, Side
from optim.solvers.admission.branching.node_pricing import BranchRestrictions
from optim.solvers.admission.branching.splitting import Item, UnpackableSet, nogood_branch
from optim.solvers.admission.pricing.classes import JobTables, PricedSchedules
from tests.support.admission.tiny import SEGMENTS, job_document, tiny_instance


def workers(value: int, slot: int) -> Branch:
    """Return the split of the job's workers in a slot."""
    return Branch(kind=BranchKind.WORKERS, job=0, value=value, server_class=0, slot=slot)


def test_a_count_in_the_crowded_place_comes_first_and_then_earlier_ones_until_they_are_fixed() -> None:
    """One worker in each of two slots, and the third slot is overloaded: the job's segment there depends on both."""
    tables = JobTables.build(tiny_instance(job_document(segments=SEGMENTS)))
    schedules = PricedSchedules.blank(tables, np.arange(1))
    schedules.workers[0, 0, :3] = 1
    kind = Item(owner=0, side=Side.WORKER, units=1, demand=(2, 0), most=1)
    crowded = UnpackableSet(hosts=Side.WORKER, server_class=0, slot=2, items=(kind,), is_proven=True)
    limits = BranchRestrictions.free(tables)
    for branch, is_high in (
        (workers(0, 2), True),
        (workers(0, 0), True),  # at least one worker in the first slot
        (workers(1, 0), False),  # and at most one
        (workers(0, 1), True),
        (workers(1, 1), False),
    ):
        assert nogood_branch(limits, tables, schedules, crowded) == branch
        limits = limits.narrowed(tables, branch, is_high=is_high)
    assert nogood_branch(limits, tables, schedules, crowded) is None
