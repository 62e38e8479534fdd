"""Every minimal schedule of every job, and the packing programmes over them: duality, slackness, classes."""

import pyomo.environ as pyo
import pytest
from hypothesis import given
from optim_studies.packing_programme import (
    Level,
    Row,
    Schedule,
    ScheduleSet,
    enumerate_schedules,
    packing_dual,
    packing_model,
    row_capacity,
)

from optim.core.errors import UnsupportedProblemError
from optim.models.admission.data import MICRO
from optim.models.admission.decision import Side
from optim.models.admission.instance import AdmissionInstance
from optim.models.reference import reference_instance
from tests.support.admission.enumeration import Enumerator
from tests.support.admission.enumeration import Schedule as Listed
from tests.support.admission.small_clusters import best_value, clusters, instance, job, servers
from tests.support.admission.solving import optimum

TOL = 1e-6
"""HiGHS' feasibility tolerance is 1e-7 and values are of the order of 10."""


@given(clusters())
def test_primal_and_dual_have_one_optimum_and_complementary_slackness_holds(given_instance: AdmissionInstance):
    schedules = enumerate_schedules(given_instance)
    primal, dual = packing_model(given_instance, schedules), packing_dual(given_instance, schedules)
    assert optimum(primal) == pytest.approx(optimum(dual), abs=TOL)
    x, mu = primal.chosen.extract_values(), dual.payoff.extract_values()
    prices = dual.worker_price.extract_values(), dual.ps_price.extract_values()
    for l, schedule in enumerate(schedules.schedules):
        cost = sum(
            amount / MICRO * prices[row.side is Side.PS][row.place, row.slot, row.resource]
            for row, amount in schedule.use.items()
        )
        if x[l] > TOL:  # only best responses are used
            assert mu[schedule.job] == pytest.approx(schedule.value - cost, abs=TOL)
    for i, positions in schedules.by_job.items():
        if mu[i] > TOL:  # a positive payoff admits the job
            assert sum(x[l] for l in positions) == pytest.approx(1, abs=TOL)
    for row, uses in primal.used_rows.items():
        if prices[row.side is Side.PS][row.place, row.slot, row.resource] > TOL:  # only scarce rows have a price
            used = sum(amount * x[l] for l, amount in uses)
            assert used == pytest.approx(schedules.capacity[row], abs=TOL * MICRO)


@given(clusters())
def test_classes_of_servers_leave_the_lp_optimum_as_it_is(given_instance: AdmissionInstance):
    on_servers, on_classes = (
        optimum(packing_model(given_instance, enumerate_schedules(given_instance, level=level))) for level in Level
    )
    assert on_classes == pytest.approx(on_servers, abs=TOL)


@given(clusters(max_jobs=3, max_horizon=2, max_servers=1))
def test_the_ilp_finds_the_best_of_all_plans(given_instance: AdmissionInstance):
    schedules = enumerate_schedules(given_instance)
    found = optimum(packing_model(given_instance, schedules, is_integer=True))
    assert found == pytest.approx(best_value(given_instance), abs=TOL)


def test_classes_of_shared_servers_keep_pairs_that_no_single_server_holds_out_of_the_lp():
    """A worker of 2 and its PS of 2 never share a server of 3, so two servers run one worker at a time.

    A class of two servers taken as one box of 6 with 2 workers and 2 PSs at most would hold more.
    """
    jobs = [job(f"j{i}", chunks=1, worker=[2], ps=[2], ps_mbps=1) for i in range(2)]
    shared = instance(*jobs, horizon=1, shared_servers=servers([3], count=2))
    for level in Level:
        model = packing_model(shared, enumerate_schedules(shared, level=level))
        assert optimum(model) == pytest.approx(8 * 6 / 4)
        assert len(model.PS_ROWS) == 0


def test_schedules_that_no_empty_cluster_holds_would_make_the_lp_larger():
    """One slot, one server for one worker, a job that needs two at once: no plan, no schedule.

    Half of the schedule that the empty server doesn't hold would fit, and earn half its value.
    """
    small = instance(job(), horizon=1, worker_servers=servers([1]))
    assert optimum(packing_model(small, enumerate_schedules(small))) == 0
    large = instance(job(), horizon=1, worker_servers=servers([2]))
    without_capacities = ScheduleSet(
        level=Level.SERVERS,
        schedules=enumerate_schedules(large).schedules,
        capacity=row_capacity(small, Level.SERVERS),
    )
    assert optimum(packing_model(small, without_capacities)) == pytest.approx(8 / 2)
    assert optimum(packing_model(small, without_capacities, is_integer=True)) == 0


def test_the_ilp_over_classes_can_exceed_every_plan_on_real_servers():
    """Servers of 3: two workers of 2 fit in a class of capacity 6 thrice over, but never two on one server."""
    jobs = [job(f"j{i}", chunks=1, worker=[2], ps=[0]) for i in range(3)]
    packed = instance(*jobs, horizon=1, worker_servers=servers([3], count=2))
    by_level = {
        level: optimum(packing_model(packed, enumerate_schedules(packed, level=level), is_integer=True))
        for level in Level
    }
    assert by_level == {Level.SERVERS: 16, Level.CLASSES: 24}


def test_tiny_2_is_worth_more_over_classes_than_on_real_servers():
    tiny = reference_instance("tiny-2")
    schedules = enumerate_schedules(tiny, level=Level.CLASSES)
    found = optimum(packing_model(tiny, schedules, is_integer=True))
    assert found == pytest.approx(368.2245926, abs=1e-6)


def test_every_row_is_named_by_its_number_and_states_itself():
    given_instance = instance(job())
    schedules = enumerate_schedules(given_instance)
    primal, dual = packing_model(given_instance, schedules), packing_dual(given_instance, schedules)
    for model in (primal, dual):
        rows = [*model.component_objects(pyo.Constraint), *model.component_objects(pyo.Objective)]
        for component in rows:
            assert component.doc.startswith(f"({component.local_name.split('_')[-1]}) ")
    names = {component.local_name for component in primal.component_objects(pyo.Constraint)}
    assert names == {"worker_capacity_15", "ps_capacity_16", "one_schedule_17"}
    assert dual.payoff_20.doc.startswith("(20) mu_i >= v_il - ")


def test_prices_are_utils_a_whole_unit_of_the_resource():
    """Two jobs of value 8 compete for the 1.5 units that one worker of each needs."""
    jobs = [job(f"j{i}", chunks=1, worker=[1.5], ps=[0]) for i in range(2)]
    scarce = instance(*jobs, horizon=1, worker_servers=servers([1.5]))
    dual = packing_dual(scarce, enumerate_schedules(scarce))
    assert optimum(dual) == pytest.approx(8)
    assert dual.worker_price[0, 0, 0].value == pytest.approx(8 / 1.5)


def test_an_instance_without_schedules_has_optimum_zero():
    empty = instance()
    schedules = enumerate_schedules(empty)
    assert optimum(packing_model(empty, schedules)) == 0
    assert optimum(packing_model(empty, schedules, is_integer=True)) == 0
    assert optimum(packing_dual(empty, schedules)) == 0


def test_a_pyomo_solver_interface_fills_the_duals_of_the_rows():
    scarce = instance(*[job(f"j{i}", chunks=1, ps=[0]) for i in range(2)], horizon=1, worker_servers=servers([1]))
    model = packing_model(scarce, enumerate_schedules(scarce))
    pyo.SolverFactory("appsi_highs").solve(model)
    assert pyo.value(model.total_value_14) == pytest.approx(8)
    assert model.dual[model.worker_capacity_15[0, 0, 0]] == pytest.approx(8)


def counts_of(schedules: tuple[Schedule, ...]) -> list[tuple]:
    return [(schedule.workers, schedule.ps) for schedule in schedules]


def test_lists_the_three_ways_to_do_two_worker_slots_in_two_slots():
    found = enumerate_schedules(instance(job()))
    assert counts_of(found.schedules) == [
        (((1, 0, 2),), ((1, 0, 1),)),
        (((0, 0, 1), (1, 0, 1)), ((0, 0, 1), (1, 0, 1))),
        (((0, 0, 2),), ((0, 0, 1),)),
    ]
    assert [schedule.completion for schedule in found.schedules] == [1, 1, 0]
    assert [schedule.value for schedule in found.schedules] == [4, 4, 8]


def test_states_what_a_schedule_uses_of_every_row():
    found = enumerate_schedules(instance(job(worker=[0.5], ps=[0.25]), horizon=1))
    (only,) = found.schedules
    assert only.use == {Row(Side.WORKER, 0, 0, 0): MICRO, Row(Side.PS, 0, 0, 0): MICRO // 4}
    assert found.capacity == {Row(Side.WORKER, 0, 0, 0): 2 * MICRO, Row(Side.PS, 0, 0, 0): MICRO}


def test_uses_the_demands_of_the_segment_in_which_a_slot_starts():
    segments = [{"start": 0, "worker": [1], "ps": [1]}, {"start": 1, "worker": [2], "ps": [1]}]
    found = enumerate_schedules(instance(job(chunks=1, epochs=2, segments=segments)))
    (only,) = found.schedules
    assert [only.use[Row(Side.WORKER, 0, slot, 0)] for slot in (0, 1)] == [MICRO, 2 * MICRO]


def test_splits_workers_over_single_servers_but_not_over_a_class():
    given_instance = instance(job(), horizon=1, worker_servers=servers([2], count=2))
    on_servers = enumerate_schedules(given_instance).schedules
    assert [schedule.workers for schedule in on_servers] == [((0, 1, 2),), ((0, 0, 1), (0, 1, 1)), ((0, 0, 2),)]
    on_classes = enumerate_schedules(given_instance, level=Level.CLASSES)
    assert [schedule.workers for schedule in on_classes.schedules] == [((0, 0, 2),)]
    assert on_classes.capacity[Row(Side.WORKER, 0, 0, 0)] == 4 * MICRO


def test_a_class_of_shared_servers_holds_only_sums_of_what_single_ones_hold():
    """Two servers of 3 hold no worker of 2 together with a PS of 2, although the class has three times the capacity for both."""
    found = enumerate_schedules(
        instance(job(worker=[2], ps=[2], ps_mbps=1), horizon=1, shared_servers=servers([3], count=2)),
        level=Level.CLASSES,
    )
    assert found.schedules == ()
    found = enumerate_schedules(
        instance(job(worker=[1], ps=[2], ps_mbps=1), horizon=1, shared_servers=servers([3], count=2)),
        level=Level.CLASSES,
    )
    assert counts_of(found.schedules) == [(((0, 0, 2),), ((0, 0, 2),))]


def test_a_unit_above_the_share_stands_alone_on_a_shared_server():
    """Half of 4 is 2: a worker of 3 may be alone on a server, with its PS on the other one."""
    found = enumerate_schedules(
        instance(
            job(chunks=1, worker=[3], ps=[1]),
            horizon=1,
            shared_servers=servers([4], count=2),
            max_share_per_server=0.5,
        )
    )
    assert counts_of(found.schedules) == [(((0, 1, 1),), ((0, 0, 1),)), (((0, 0, 1),), ((0, 1, 1),))]


def test_skips_worker_counts_that_finish_no_further_chunk():
    found = enumerate_schedules(
        instance(
            job(chunks=4, minibatch_s=15, epochs=1),
            chunk_integral=True,
            horizon=3,
            worker_servers=servers([4]),
            ps_servers=servers([2]),
        )
    )
    assert {count for schedule in found.schedules for _, _, count in schedule.workers} == {2, 3}


def test_lists_nothing_for_a_job_that_can_only_complete_too_late():
    late = {"kind": "step", "value": 1, "deadline": 0}
    assert enumerate_schedules(instance(job(chunks=1, epochs=2, utility=late))).by_job == {}


def test_refuses_to_list_more_schedules_than_the_limit():
    assert len(enumerate_schedules(instance(job()), limit=3).schedules) == 3
    with pytest.raises(UnsupportedProblemError, match=r"'cluster' has more than 2 schedules.*'a'.*raise limit"):
        enumerate_schedules(instance(job()), limit=2)


def test_stops_at_the_limit_without_listing_a_huge_set_first():
    huge = instance(
        job(chunks=20, epochs=4, utility={"kind": "constant", "value": 1}),
        horizon=20,
        worker_servers=servers([5], count=10),
        ps_servers=servers([5], count=5),
    )
    with pytest.raises(UnsupportedProblemError, match="more than 100 schedules"):
        enumerate_schedules(huge, limit=100)


@given(clusters(max_jobs=2, max_horizon=2, max_servers=1))
def test_every_schedule_contains_a_listed_one_and_every_listed_one_is_a_schedule(given_instance: AdmissionInstance):
    listed = enumerate_schedules(given_instance)
    every = Enumerator(given_instance, is_stripped=False, is_by_class=False)
    for i in range(given_instance.num_jobs):
        own = [listed.schedules[position] for position in listed.by_job.get(i, [])]
        plain = list(every.schedules(i))
        assert {(one.completion, one.workers, one.ps) for one in own} <= {
            (one.completion, _rows(one, 0), _rows(one, 1)) for one in plain
        }
        for one in plain:
            use = one.load.reshape(-1, given_instance.horizon, given_instance.num_resources)
            assert any(less.completion <= one.completion and _is_within(less, use, given_instance) for less in own)


@given(clusters())
def test_the_schedules_of_classes_are_those_of_servers_summed_up(given_instance: AdmissionInstance):
    on_servers = enumerate_schedules(given_instance)
    on_classes = enumerate_schedules(given_instance, level=Level.CLASSES)
    sides = given_instance.worker_servers.class_of_server, given_instance.ps_servers.class_of_server
    summed = {(one.job, _summed(one.workers, sides[0]), _summed(one.ps, sides[1])) for one in on_servers.schedules}
    found = [(one.job, one.workers, one.ps) for one in on_classes.schedules]
    assert len(found) == len(set(found))
    assert summed == set(found)


def _rows(schedule: Listed, side: int) -> tuple[tuple[int, int, int], ...]:
    """Return the counts of workers (0) or PSs (1) as (slot, server, count)."""
    slots = sorted(schedule.counts.items())
    return tuple((t, h, count) for t, counts in slots for h, count in enumerate(counts[side]) if count)


def _is_within(schedule: Schedule, use, given_instance: AdmissionInstance) -> bool:
    """Whether a schedule uses no more of any server."""
    first_ps = 0 if given_instance.has_shared_servers else given_instance.worker_servers.num_servers
    return all(
        amount <= use[row.place + (first_ps if row.side is Side.PS else 0), row.slot, row.resource]
        for row, amount in schedule.use.items()
    )


def _summed(rows: tuple[tuple[int, int, int], ...], class_of_server) -> tuple[tuple[int, int, int], ...]:
    total: dict[tuple[int, int], int] = {}
    for slot, server, count in rows:
        key = (slot, int(class_of_server[server]))
        total[key] = total.get(key, 0) + count
    return tuple((*key, count) for key, count in sorted(total.items()))
