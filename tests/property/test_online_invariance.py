"""Changes of the instance that must change nothing in the online algorithm's decisions, or the LP only one way."""

from decimal import Decimal

import numpy as np
import pytest
from hypothesis import assume, given, reject
from hypothesis import strategies as st

from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.job_tables import JobTables
from optim.solvers.admission.online import BoundSource, OnlineOptions, PriceKind, make_bounds, make_function
from optim.solvers.admission.online_run import OnlineRun, run_online
from optim.solvers.admission.price_bound import evaluate, search_scale
from optim.solvers.admission.rows import CapacityRows
from tests.oracle import ilp_optimum, lp_optimum, packing
from tests.strategies import small_job_instances, tiny_instances
from tests.transformations import with_more_room, with_reversed_servers, with_scaled_resource, with_scaled_values

REL_TOL = 1e-7
"""Tolerance of HiGHS' optima, relative."""

VARIANTS = [OnlineOptions(price=price, unit_free=is_free) for price in PriceKind for is_free in (True, False)]
PAPER = OnlineOptions(price=PriceKind.EXPONENTIAL, bounds=BoundSource.PAPER)


def run(instance: AdmissionInstance, options: OnlineOptions) -> OnlineRun:
    """Run one variant."""
    bounds = make_bounds(instance, options, np.random.default_rng(0))
    return run_online(instance, bounds=bounds, function=make_function(instance, options))


def told(seen: OnlineRun, unit: float = 1.0) -> list[tuple[int, bool, float, int]]:
    """Return what was decided about each job: admitted, at which payoff, completing when."""
    return [
        (
            made.job,
            made.is_accepted,
            pytest.approx(unit * made.payoff, rel=1e-9, abs=1e-12),
            made.schedule.completion if made.is_accepted else -1,
        )
        for made in seen.decisions
    ]


@given(tiny_instances(), st.randoms(use_true_random=False))
def test_online_is_at_most_the_ilp_is_at_most_the_lp_is_at_most_any_price_bound(instance, random):
    try:
        problem = packing(instance)
    except OverflowError:
        reject()
    lp, ip = lp_optimum(problem), ilp_optimum(problem)
    runs = [run(instance, options) for options in [*VARIANTS, PAPER]]
    slack = REL_TOL * max(1.0, lp)
    assert max(seen.objective for seen in runs) <= ip + slack
    assert ip <= lp + slack
    assert lp_optimum(packing(instance, is_by_class=True)) == pytest.approx(lp, abs=slack)
    tables = JobTables.build(instance)
    rows = CapacityRows.of(tables)
    drawn = np.array([random.choice([0.0, random.random(), 100 * random.random()]) for _ in range(rows.num_rows)])
    for prices in (drawn, rows.flat(runs[0].state.mean_prices()), rows.flat(runs[-1].state.mean_prices())):
        assert lp <= evaluate(tables, rows, prices).bound + slack
    assert lp <= search_scale(tables, rows, drawn).bound + slack


@given(st.one_of(tiny_instances(), small_job_instances()), st.sampled_from([0.25, 4.0, 1024.0]))
def test_scaling_every_utility_changes_no_decision(instance, factor):
    scaled = with_scaled_values(instance, factor)
    for options in [*VARIANTS, PAPER]:
        assert told(run(scaled, options)) == told(run(instance, options), unit=factor)


@given(st.one_of(tiny_instances(), small_job_instances()), st.sampled_from([2, 8, 1024]))
def test_stating_a_resource_in_another_unit_changes_no_decision_of_the_unit_free_variants(instance, factor):
    scaled = with_scaled_resource(instance, 0, factor)
    for options in VARIANTS:
        if options.unit_free:
            assert told(run(scaled, options)) == told(run(instance, options))


@given(st.one_of(tiny_instances(), small_job_instances()))
def test_renumbering_the_servers_changes_no_payoff(instance):
    renumbered = with_reversed_servers(instance)
    for options in VARIANTS:
        assert told(run(renumbered, options)) == told(run(instance, options))


@given(tiny_instances(), st.sampled_from(["0.1", "1", "2.5"]))
def test_adding_capacity_never_lowers_the_lp(instance, amount):
    try:
        before, after = packing(instance), packing(with_more_room(instance, Decimal(amount)))
    except OverflowError:
        reject()
    assume(len(before.value))
    lp = lp_optimum(before)
    assert lp <= lp_optimum(after) + REL_TOL * max(1.0, lp)
