"""Changes of the instance that must not change the online algorithm's decisions, or change the LP in one direction only."""

from decimal import Decimal

import numpy as np
import pytest
from hypothesis import example, given, reject
from hypothesis import strategies as st

from optim.models.admission.codec import ConstantDocument
from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.online import BoundSource, OnlineOptions, PriceKind, make_bounds, make_function
from optim.solvers.admission.packing.capacity_rows import CapacityRows
from optim.solvers.admission.packing.dual_points import evaluate, search_scale
from optim.solvers.admission.posted_prices.online_run import OnlineRun, run_online
from optim.solvers.admission.pricing.classes import JobTables
from tests.support.admission.oracle import ilp_optimum, lp_optimum, packing
from tests.support.admission.strategies import (
    JobSketch,
    ServerSketch,
    make_instance,
    small_job_instances,
    tiny_instances,
)
from tests.support.admission.transformations import (
    with_more_room,
    with_reversed_servers,
    with_scaled_resource,
    with_scaled_values,
)

REL_TOL = 1e-7
"""Tolerance of HiGHS' optima, relative."""

VARIANTS = [OnlineOptions(price=price, unit_free=is_free) for price in PriceKind for is_free in (True, False)]
UNIT_FREE = [options for options in VARIANTS if options.unit_free]
PAPER = OnlineOptions(price=PriceKind.EXPONENTIAL, bounds=BoundSource.PAPER)


def run(instance: AdmissionInstance, options: OnlineOptions) -> OnlineRun:
    """Run one variant."""
    bounds = make_bounds(instance, options, np.random.default_rng(0))
    return run_online(instance, bounds=bounds, function=make_function(instance, options))


def told(seen: OnlineRun, unit: float = 1.0, first: int | None = None) -> list[tuple[int, bool, float, int]]:
    """Return the decision on each job: admitted, payoff and completion (or those of the `first` jobs only)."""
    return [
        (
            made.job,
            made.is_accepted,
            pytest.approx(unit * made.payoff, rel=1e-9, abs=1e-12),
            made.schedule.completion if made.is_accepted and first is None else -1,
        )
        for made in seen.decisions[:first]
    ]


def up_to_a_tie(seen: OnlineRun, other: OnlineRun) -> int:
    """Return how many decisions can be compared: up to the first that places a job on other servers or slots.

    In other units, prices are equal except for their last digits, which decide between schedules of equal cost. The
    payoff of such a decision is still the same, but later decisions see other prices.
    """
    for k, (one, two) in enumerate(zip(seen.decisions, other.decisions, strict=True)):
        if one.schedule is not None and two.schedule is not None:
            same = [np.array_equal(getattr(one.schedule, at), getattr(two.schedule, at)) for at in ("workers", "ps")]
            if one.is_accepted and two.is_accepted and not all(same):
                return k + 1
    return len(seen.decisions)


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
    if len(problem.value):
        assert lp <= search_scale(tables, rows, drawn).bound + slack


def tied(ps: str, value: float, worker_capacity: str, ps_capacity: str) -> AdmissionInstance:
    """Return an instance with schedules of equal cost, between which rounding decides."""
    return make_instance(
        jobs=[
            JobSketch(
                arrival=0,
                epochs=2,
                chunks=2,
                chunk_slots="0.7",
                worker=("0.5",),
                ps=(ps,),
                workers_per_ps="1",
                utility=ConstantDocument(value),
                copies=3,
            )
        ],
        worker_servers=[ServerSketch(capacity=(worker_capacity,), count=2)],
        ps_servers=[ServerSketch(capacity=(ps_capacity,), count=2)],
        horizon=2,
        share="0.1",
    )


@given(
    st.one_of(tiny_instances(), small_job_instances()),
    st.sampled_from([0.25, 4.0, 1024.0]),
    st.sampled_from([2, 8, 1024]),
)
@example(tied("0.3", 1.0, "7.5", "10"), 0.25, 2)
@example(tied("0.5", 2.0, "10", "7.5"), 0.25, 2)
def test_other_currency_other_units_and_other_numbers_change_no_decision(instance, currency, unit):
    dearer = with_scaled_values(instance, currency)
    finer = with_scaled_resource(instance, 0, unit)
    renumbered = with_reversed_servers(instance)
    for options in UNIT_FREE:
        seen = run(instance, options)
        assert told(run(renumbered, options)) == told(seen), "server classes are renumbered"
        for other, unit_of_value, change in ((dearer, currency, "utilities are scaled"), (finer, 1.0, "a finer unit")):
            found = run(other, options)
            first = up_to_a_tie(seen, found)
            assert told(found, first=first) == told(seen, unit_of_value, first), change


def test_the_papers_constants_depend_on_the_units_of_resources():
    """A documented limit: L sums GPUs and gigabytes, so its decisions depend on the unit of memory."""
    instance = make_instance(
        jobs=[JobSketch(worker=("1", "1"), ps=("0", "0"), utility=ConstantDocument(v), copies=3) for v in (1.0, 2.0)],
        worker_servers=[ServerSketch(capacity=("4", "8"))],
        ps_servers=[ServerSketch(capacity=("4", "8"))],
        horizon=1,
    )
    finer = with_scaled_resource(instance, 1, 1024)
    first = [run(instance, PAPER).decisions[k].payoff for k in range(2)]
    second = [run(finer, PAPER).decisions[k].payoff for k in range(2)]
    assert first != pytest.approx(second)


@given(tiny_instances(), st.sampled_from(["0.1", "1", "2.5"]))
def test_adding_capacity_never_lowers_the_lp(instance, amount):
    try:
        before = packing(instance, is_by_class=True)
        after = packing(with_more_room(instance, Decimal(amount)), is_by_class=True)
    except OverflowError:
        reject()
    lp = lp_optimum(before)
    assert lp <= lp_optimum(after) + REL_TOL * max(1.0, lp)
