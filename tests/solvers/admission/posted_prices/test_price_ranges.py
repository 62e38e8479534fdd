"""U, L and lambda: by hand, compared with all schedules, and in other units."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from optim_studies.packing_programme import Row, Schedule, enumerate_schedules

from optim.core.errors import UnsupportedProblemError
from optim.models.admission.data import MICRO
from optim.models.admission.decision import Side
from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.posted_prices.price_functions import (
    PriceFloorRule,
    PriceRanges,
    first_jobs,
    job_value_stats,
    max_worker_slots,
    num_rows,
    price_ranges,
    sample_jobs,
)
from tests.support.admission.tiny import BY_HAND, SEGMENTS, job_document, tiny_instance, tiny_instances

MAX_SCHEDULES = 2_000
SUM_TOL = 1e-9
"""Sums of fewer than a hundred products."""


def listed(instance: AdmissionInstance) -> tuple[Schedule, ...]:
    """List all schedules; reject the example if there are too many."""
    try:
        return enumerate_schedules(instance, limit=MAX_SCHEDULES).schedules
    except UnsupportedProblemError:
        assume(False)
        raise


def entry(instance: AdmissionInstance, bounds: PriceRanges, row: Row, *, of_upper: bool) -> float:
    """Return U or the lower scale of a single server's row."""
    is_worker = row.side is Side.WORKER
    side = bounds.worker if is_worker else bounds.ps
    servers = instance.worker_servers if is_worker else instance.ps_servers
    table = side.log_upper if of_upper else side.log_lower
    return math.exp(table[servers.class_of_server[row.place], row.slot, row.resource])


@given(tiny_instances())
def test_u_is_at_least_the_value_of_every_schedule_over_its_use(instance: AdmissionInstance) -> None:
    bounds = price_ranges(instance, PriceFloorRule.UNIT_FREE_LAMBDA)
    for schedule in listed(instance):
        for row, amount in schedule.use.items():
            density = schedule.value / (amount / MICRO)
            assert entry(instance, bounds, row, of_upper=True) >= density * (1 - SUM_TOL)


@given(tiny_instances())
def test_no_schedule_costs_more_than_its_value_at_lambda(instance: AdmissionInstance) -> None:
    for lower in (PriceFloorRule.UNIT_FREE_LAMBDA, PriceFloorRule.SUMMED_LAMBDA):
        bounds = price_ranges(instance, lower)
        for schedule in listed(instance):
            cost = sum(
                entry(instance, bounds, row, of_upper=False) * amount / MICRO for row, amount in schedule.use.items()
            )
            assert cost <= schedule.value * (1 + SUM_TOL)


@given(tiny_instances())
def test_the_empty_clusters_worth_is_at_most_half_of_what_some_job_earns_alone(instance: AdmissionInstance) -> None:
    """So it is at most half of the optimum. Jobs without demand on a side don't affect its rows."""
    worth = job_value_stats(instance)
    largest = [worth.max_worker, worth.max_ps]
    if instance.has_shared_servers:
        largest = [sum(largest)]
    least = [worth.least[side.any(axis=1)].min(initial=np.inf) for side in largest]
    half = max((value for value in least if value < np.inf), default=0.0) / 2
    for lower in (PriceFloorRule.PAPER_L, PriceFloorRule.SIMPLE_L, PriceFloorRule.UNIT_FREE_L):
        bounds = price_ranges(instance, lower)
        sides = [(instance.worker_servers, bounds.worker)]
        if not instance.has_shared_servers:
            sides.append((instance.ps_servers, bounds.ps))
        total = sum(
            float(np.einsum("ctr,ctr,c->", np.exp(side.log_lower), servers.capacity / MICRO, servers.count))
            for servers, side in sides
        )
        assert total <= half * (1 + SUM_TOL)


@given(tiny_instances())
def test_no_minimal_schedule_has_more_worker_slots_than_are_counted_on(instance: AdmissionInstance) -> None:
    most = max_worker_slots(instance)
    for schedule in listed(instance):
        assert sum(count for _, _, count in schedule.workers) <= most[schedule.job]


def by_hand(**fields: Any) -> AdmissionInstance:
    """Return one job: values 16, 8, 4, 2; four worker-slots, two at once, so the second slot is the earliest."""
    return tiny_instance(job_document("a", worker=[2, 1]), **fields)


def test_bounds_of_one_job_are_those_computed_by_hand() -> None:
    instance = by_hand(worker_servers=[{"type": "w", "capacity": [4, 2], "count": 2}])
    worth = job_value_stats(instance)
    assert (worth.most.tolist(), worth.least.tolist(), worth.worker_slots.tolist()) == ([8.0], [2.0], [4.0])
    bounds = price_ranges(instance, PriceFloorRule.UNIT_FREE_LAMBDA)
    assert np.exp(bounds.worker.log_upper[0, 0]).tolist() == pytest.approx([8 / 2, 8 / 1])
    assert np.exp(bounds.worker.log_lower[0, 0]).tolist() == pytest.approx([2 / (2 * 2 * 4 * 2), 2 / (2 * 2 * 4 * 1)])
    summed = price_ranges(instance, PriceFloorRule.SUMMED_LAMBDA)
    assert np.exp(summed.worker.log_lower[0, 0]).tolist() == pytest.approx([2 / (2 * 4 * 3)] * 2)
    # Both servers, four slots, six units; one PS host of two CPUs.
    simple = price_ranges(instance, PriceFloorRule.SIMPLE_L)
    assert np.exp(simple.worker.log_lower[0, 0]).tolist() == pytest.approx([2 / (4 * 4 * 12)] * 2)
    paper = price_ranges(instance, PriceFloorRule.PAPER_L)
    need = 4 * 3
    assert np.exp(paper.worker.log_lower[0, 0]).tolist() == pytest.approx([2 / need * (need / 48) / 4] * 2)
    rows = 4 * (2 * 2 + 1)
    assert num_rows(instance) == rows
    unit_free = price_ranges(instance, PriceFloorRule.UNIT_FREE_L)
    assert np.exp(unit_free.worker.log_lower[0, 0]).tolist() == pytest.approx([2 / (2 * rows * 4), 2 / (2 * rows * 2)])


def test_the_papers_u_is_what_the_fastest_completion_with_all_workers_earns() -> None:
    # Two workers at once would be done in two slots, at a delay of 1; the cluster holds one, which takes four.
    job = job_document("a", utility={"kind": "table", "table": [16, 8, 4, 2]})
    instance = tiny_instance(job, worker_servers=[{"type": "w", "capacity": [1, 0], "count": 1}])
    paper = price_ranges(instance, PriceFloorRule.PAPER_L, has_paper_values=True)
    assert math.exp(paper.worker.log_upper[0, 0, 0]) == pytest.approx(8)
    assert math.exp(price_ranges(instance, PriceFloorRule.PAPER_L).worker.log_upper[0, 0, 0]) == pytest.approx(2)


def paper_lower(utility: dict[str, Any]) -> float:
    """Return the logarithm of the paper's L on worker rows for one job of four worker-slots on four GPUs."""
    instance = tiny_instance(job_document("a", utility=utility))
    return float(price_ranges(instance, PriceFloorRule.PAPER_L, has_paper_values=True).worker.log_lower[0, 0, 0])


def test_the_papers_l_is_from_the_last_slot_however_little_that_earns() -> None:
    # f(T - a) / (4 eta W w) with 1 / eta = W w / (T c): the share of 16 slots that four slots of four GPUs have.
    assert math.exp(paper_lower({"kind": "table", "table": [16, 8, 4, 1e-3]})) == pytest.approx(1e-3 / (4 * 16))
    assert paper_lower({"kind": "sigmoid", "theta1": 1, "theta2": 350, "theta3": 1}) == pytest.approx(
        -350 * 2 - math.log(4 * 16)
    )


def test_the_papers_l_is_from_the_last_slot_that_earns_where_the_very_last_earns_nothing() -> None:
    assert math.exp(paper_lower({"kind": "step", "value": 3, "deadline": 2})) == pytest.approx(3 / (4 * 16))


def test_segments_give_u_their_smallest_and_lambda_their_largest_demand() -> None:
    instance = tiny_instance(job_document("a", segments=SEGMENTS))
    bounds = price_ranges(instance, PriceFloorRule.UNIT_FREE_LAMBDA)
    worth = job_value_stats(instance)
    assert math.exp(bounds.worker.log_upper[0, 0, 0]) == pytest.approx(worth.most[0] / 1)
    assert math.exp(bounds.worker.log_lower[0, 0, 0]) == pytest.approx(worth.least[0] / (2 * 2 * 4 * 2))


def test_shared_servers_take_the_smaller_demand_for_u_and_both_for_lambda() -> None:
    job = job_document("a", worker=[2, 1], ps=[1, 0])
    instance = tiny_instance(job, shared_servers=[{"type": "s", "capacity": [8, 8], "count": 1}])
    bounds = price_ranges(instance, PriceFloorRule.UNIT_FREE_LAMBDA)
    assert bounds.ps is bounds.worker
    assert np.exp(bounds.worker.log_upper[0, 0]).tolist() == pytest.approx([8 / 1, 8 / 1])
    assert np.exp(bounds.worker.log_lower[0, 0]).tolist() == pytest.approx([2 / (2 * 4 * 3), 2 / (2 * 4 * 1)])


def test_only_jobs_that_can_complete_count() -> None:
    hopeless = job_document("hopeless", worker=[9, 0], utility={"kind": "constant", "value": 1e9})
    alone = price_ranges(tiny_instance(job_document("a")), PriceFloorRule.UNIT_FREE_L)
    both = price_ranges(tiny_instance(job_document("a"), hopeless), PriceFloorRule.UNIT_FREE_L)
    assert (both.worker.log_upper == alone.worker.log_upper).all()
    assert (both.worker.log_lower == alone.worker.log_lower).all()


def test_rows_that_no_job_uses_and_rows_without_capacity_have_no_bounds() -> None:
    bounds = price_ranges(tiny_instance(job_document("a")), PriceFloorRule.UNIT_FREE_L)
    assert np.isneginf(bounds.worker.log_lower[:, :, 1]).all()
    assert np.isneginf(bounds.ps.log_lower[:, :, 0]).all()
    nobody = price_ranges(tiny_instance(job_document("a", worker=[9, 0])), PriceFloorRule.SIMPLE_L)
    assert np.isneginf(nobody.worker.log_lower).all()


def test_scales_move_both_bounds_and_keep_u_above() -> None:
    bounds = price_ranges(BY_HAND["plain"], PriceFloorRule.UNIT_FREE_L)
    used = np.isfinite(bounds.worker.log_lower)
    wrong = bounds.scaled(upper=0.5, lower=4.0)
    assert wrong.worker.log_lower[used] == pytest.approx(bounds.worker.log_lower[used] + math.log(4))
    assert wrong.worker.log_upper[used] == pytest.approx(bounds.worker.log_upper[used] - math.log(2))
    assert (bounds.scaled(upper=1e-9).worker.log_upper > bounds.worker.log_lower)[used].all()


def in_other_units(factor: int) -> AdmissionInstance:
    """Return the cluster with its second resource counted in other units."""
    jobs = [job_document(f"j{k}", worker=[1, k * factor], ps=[1, factor], epochs=1 + k) for k in range(1, 3)]
    servers = [{"type": "w", "capacity": [4, 8 * factor], "count": 2}]
    return tiny_instance(*jobs, worker_servers=servers, ps_servers=[{**servers[0], "type": "p"}])


@pytest.mark.parametrize("lower", list(PriceFloorRule))
def test_only_the_unit_free_scales_don_t_care_about_units(lower: PriceFloorRule) -> None:
    plain, other = (price_ranges(in_other_units(factor), lower) for factor in (1, 1000))
    moved = other.worker.log_lower - plain.worker.log_lower
    ratio = plain.worker.log_upper - plain.worker.log_lower - (other.worker.log_upper - other.worker.log_lower)
    is_free = lower in (PriceFloorRule.UNIT_FREE_L, PriceFloorRule.UNIT_FREE_LAMBDA)
    assert np.allclose(ratio, 0.0) == is_free
    if is_free:
        assert moved[:, :, 0] == pytest.approx(np.zeros_like(moved[:, :, 0]))
        assert moved[:, :, 1] == pytest.approx(np.full_like(moved[:, :, 1], -math.log(1000)))


def test_samples_are_seeded_and_never_empty() -> None:
    instance = BY_HAND["plain"]
    drawn = [sample_jobs(instance, 0.6, np.random.default_rng(5)).tolist() for _ in range(2)]
    assert drawn[0] == drawn[1]
    assert len(drawn[0]) == 2
    assert len(sample_jobs(instance, 0.01, np.random.default_rng(0))) == 1
    assert first_jobs(instance, 0.5).tolist() == [0, 2]


def test_an_estimate_knows_the_sampled_jobs_only() -> None:
    rich = job_document("rich", utility={"kind": "constant", "value": 1000})
    instance = tiny_instance(job_document("a"), rich)
    worth = job_value_stats(instance)
    known = price_ranges(instance, PriceFloorRule.UNIT_FREE_L, stats=worth.of(np.array([0])))
    alone = price_ranges(tiny_instance(job_document("a")), PriceFloorRule.UNIT_FREE_L)
    assert (known.worker.log_upper == alone.worker.log_upper).all()
    assert price_ranges(instance, PriceFloorRule.UNIT_FREE_L).worker.log_upper.max() > known.worker.log_upper.max()
