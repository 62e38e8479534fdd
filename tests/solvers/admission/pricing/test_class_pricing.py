"""Class-level pricing against the list of all schedules, with every optional feature of an instance."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from optim_studies.packing_programme import Level, Schedule, enumerate_schedules

from optim.core.arrays import FloatArray, IntArray
from optim.core.errors import UnsupportedProblemError
from optim.models.admission.data import MICRO
from optim.models.admission.decision import Side
from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.pricing.classes import CountCharges, JobTables, PricedSchedules, Prices, price
from tests.support.admission.tiny import BY_HAND, job_document, tiny_instance, tiny_instances

MAX_SCHEDULES = 2_000
COST_TOL = 1e-9
"""Costs are sums of fewer than a hundred products, in different orders."""


def schedules_by_job(instance: AdmissionInstance) -> list[list[Schedule]]:
    """List the schedules over classes; reject the example if there are too many."""
    try:
        found = enumerate_schedules(instance, limit=MAX_SCHEDULES, level=Level.CLASSES).schedules
    except UnsupportedProblemError:
        assume(False)
    return [[schedule for schedule in found if schedule.job == i] for i in range(instance.num_jobs)]


def random_prices(
    instance: AdmissionInstance, rng: np.random.Generator, *, has_extras: bool, at_nodes: bool = False
) -> Prices:
    """Draw prices, a third of them zero, at which some jobs have a positive payoff and others not."""

    def draw(*shape: int) -> FloatArray:
        level = 10.0 ** rng.uniform(-2, 1)
        return np.where(rng.random(shape) < 1 / 3, 0.0, np.round(rng.random(shape) * level, 2))

    slots, resources = instance.horizon, instance.num_resources
    hosts = instance.worker_servers.num_classes
    ps_hosts = hosts if instance.has_shared_servers else instance.ps_servers.num_classes

    def curves(classes: int) -> CountCharges | None:
        if not has_extras:
            return None
        extra = np.cumsum(draw(3, classes, 3), axis=2)
        extra[0] = extra[:, :, 0] = 0.0
        return CountCharges(rng.integers(0, 3, (instance.num_jobs, slots)), extra)

    segments = len(instance.jobs.segment_start)
    return Prices(
        worker=draw(hosts, slots, resources),
        ps=draw(0 if instance.has_shared_servers else ps_hosts, slots, resources),
        worker_extra=draw(segments, hosts, slots) if has_extras else None,
        ps_extra=draw(segments, ps_hosts, slots) if has_extras else None,
        worker_curves=curves(hosts),
        ps_curves=curves(ps_hosts),
        slot_charges=curves(1) if at_nodes else None,
    )


@pytest.mark.parametrize("count", [0, 2])
def test_blank_schedules_have_a_row_for_each_class_of_either_side(count: int) -> None:
    """Two classes of worker servers, one of hosts, four slots."""
    servers = [{"type": kind, "capacity": [2, 0], "count": 1} for kind in ("a", "b")]
    tables = JobTables.build(tiny_instance(job_document("a"), job_document("b"), worker_servers=servers))
    blank = PricedSchedules.blank(tables, np.arange(count))
    assert (blank.workers.shape, blank.ps.shape) == ((count, 2, 4), (count, 1, 4))
    assert (blank.completion == -1).all()
    assert (
        len(
            blank.followed_by(price(tables, random_prices(tables.instance, np.random.default_rng(0), has_extras=False)))
        )
        == count + 2
    )


def segment_of_slot(instance: AdmissionInstance, schedule: Schedule) -> dict[int, int]:
    """Return the demand segment of each slot in which a schedule has workers."""
    first, last = instance.jobs.segment_offset[schedule.job : schedule.job + 2]
    done, result = 0, {}
    for slot in sorted({slot for slot, _, _ in schedule.workers}):
        starts = instance.jobs.segment_start[first:last]
        result[slot] = int(first) + int(np.searchsorted(starts, done, side="right")) - 1
        total = sum(count for at, _, count in schedule.workers if at == slot)
        done += int(instance.progress[schedule.job][total])
    return result


def cost(instance: AdmissionInstance, schedule: Schedule, prices: Prices) -> float:
    """Return the cost of a listed schedule, directly from its usage and counts."""
    total = 0.0
    for row, amount in schedule.use.items():
        side = prices.worker if row.side is Side.WORKER else prices.ps
        total += side[row.place, row.slot, row.resource] * amount / MICRO
    segment = segment_of_slot(instance, schedule)
    for units, extra in ((schedule.workers, prices.worker_extra), (schedule.ps, prices.ps_extra)):
        if extra is not None:
            total += sum(count * extra[segment[slot], place, slot] for slot, place, count in units)
    for units, curves in ((schedule.workers, prices.worker_curves), (schedule.ps, prices.ps_curves)):
        if curves is not None:
            total += sum(
                curves.extra[curves.place[schedule.job, slot], place, min(count, 2)] for slot, place, count in units
            )
    if prices.slot_charges is not None:
        place, extra = prices.slot_charges
        total += sum(extra[place[schedule.job, slot], 0, min(y, 2)] for slot, y in workers_by_slot(schedule).items())
    return total


def workers_by_slot(schedule: Schedule) -> Counter[int]:
    """Return a schedule's number of workers in all classes by slot."""
    total: Counter[int] = Counter()
    for slot, _, count in schedule.workers:
        total[slot] += count
    return total


def counts(schedule: Schedule, shape: tuple[int, int], *, of_ps: bool) -> IntArray:
    """Return a schedule's units by place and slot."""
    result = np.zeros(shape, dtype=np.int64)
    for slot, place, count in schedule.ps if of_ps else schedule.workers:
        result[place, slot] = count
    return result


def check_pricing(instance: AdmissionInstance, prices: Prices) -> None:
    """Compare payoffs with the best listed ones, and look up each returned schedule in the list."""
    priced = price(JobTables.build(instance), prices)
    for i, listed in enumerate(schedules_by_job(instance)):
        best = max((schedule.value - cost(instance, schedule, prices) for schedule in listed), default=0.0)
        assert priced.payoff[i] == pytest.approx(max(best, 0.0), abs=COST_TOL)
        if priced.completion[i] < 0:
            assert best <= COST_TOL
            continue
        same = [
            schedule
            for schedule in listed
            if (counts(schedule, priced.workers[i].shape, of_ps=False) == priced.workers[i]).all()
            and (counts(schedule, priced.ps[i].shape, of_ps=True) == priced.ps[i]).all()
        ]
        assert len(same) == 1, "the returned counts are no schedule of the job"
        assert same[0].completion == priced.completion[i]
        assert same[0].value - cost(instance, same[0], prices) == pytest.approx(priced.payoff[i], abs=COST_TOL)


@given(tiny_instances(), st.integers(0, 2**32 - 1), st.booleans())
def test_best_schedules_are_the_best_of_all_listed_ones(
    instance: AdmissionInstance, seed: int, has_extras: bool
) -> None:
    check_pricing(instance, random_prices(instance, np.random.default_rng(seed), has_extras=has_extras))


@pytest.mark.parametrize("name", BY_HAND)
@pytest.mark.parametrize("has_extras", [False, True], ids=["rows", "rows-and-cuts"])
def test_every_trait_is_priced_exactly(name: str, has_extras: bool) -> None:
    rng = np.random.default_rng(7)
    for _ in range(10):
        check_pricing(BY_HAND[name], random_prices(BY_HAND[name], rng, has_extras=has_extras))


def test_jobs_are_priced_alone_or_together_alike() -> None:
    instance = BY_HAND["shared"]
    prices = random_prices(instance, np.random.default_rng(1), has_extras=True)
    tables = JobTables.build(instance)
    together = price(tables, prices)
    alone = price(tables, prices, jobs=np.array([1]))
    assert alone.payoff[0] == together.payoff[1]
    assert (alone.workers[0] == together.workers[1]).all()


def test_schedules_not_above_the_floor_are_not_returned() -> None:
    instance = BY_HAND["plain"]
    tables = JobTables.build(instance)
    free = price(tables, random_prices(instance, np.random.default_rng(3), has_extras=False))
    floor = free.payoff + np.array([0.0, -0.5, 0.0])
    assert price(tables, random_prices(instance, np.random.default_rng(3), has_extras=False), floor=floor).completion[
        [0, 2]
    ].tolist() == [-1, -1]


def test_a_class_of_shared_servers_holds_what_its_servers_hold_together() -> None:
    # Three GPUs and a CPU a box: a job of four workers and two PSs needs two boxes of the class.
    job = job_document("wide", chunks=4, epochs=1, worker=[1, 0], ps=[0, 1])
    instance = tiny_instance(job, shared_servers=[{"type": "box", "capacity": [3, 1], "count": 2}])
    prices = Prices(worker=np.ones((1, 4, 2)), ps=np.zeros((0, 4, 2)))
    priced = price(JobTables.build(instance), prices)
    assert priced.completion.tolist() == [0]
    assert priced.workers[0, 0, 0] == 4
    assert priced.ps[0, 0, 0] == 2
    assert priced.payoff[0] == 16 - 6
