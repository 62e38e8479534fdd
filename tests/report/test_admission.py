"""The plot of an online run shows the solver's decisions, with the prices of rejected jobs as well."""

from io import BytesIO

import numpy as np
import pytest

import optim
from optim.models.admission.instance import AdmissionInstance
from optim.report.admission import CHEAPEST, draw_run, server_prices, watch
from optim.solvers.admission.online import OnlineOptions
from optim.workloads.admission.generator import GeneratorOptions, generate


@pytest.fixture
def crowded() -> AdmissionInstance:
    """Enough jobs for some to be rejected for their price."""
    return generate(GeneratorOptions(num_jobs=20, num_slots=8, num_worker_servers=2, num_ps_servers=2), 1)


def test_watching_changes_no_decision(crowded):
    plan = optim.solve(crowded, "online").decision
    run = watch(crowded).run
    assert sorted(made.job for made in run.decisions) == list(range(crowded.num_jobs))
    np.testing.assert_array_equal(run.plan.workers, plan.workers)
    np.testing.assert_array_equal(run.plan.ps, plan.ps)


def test_options_reach_the_run(crowded):
    options = OnlineOptions(price="exponential")
    expected = optim.solve(crowded, "online", options=options)
    watched = watch(crowded, options)
    assert watched.run.plan.objective(crowded) == expected.objective
    assert watched.run.state.capacity_value() != watch(crowded).run.state.capacity_value()


def test_admitted_jobs_are_worth_more_than_they_cost_and_some_refused_ones_less(crowded):
    offers = watch(crowded).offers
    assert all(offer.value > offer.cost for offer in offers if offer.is_admitted)
    assert any(offer.cost > offer.value for offer in offers if not offer.is_admitted)


def test_the_prices_of_whole_servers_sum_to_the_capacitys_worth(crowded):
    state = watch(crowded).run.state
    total = sum(server_prices(side).sum() for side in state.sides)
    assert total == pytest.approx(state.capacity_value(), rel=1e-12)


@pytest.mark.parametrize(("is_shared", "panels"), [(False, 3), (True, 2)])
def test_draws_a_heat_map_a_side_below_the_arrivals(is_shared, panels):
    options = GeneratorOptions(
        num_jobs=8, num_slots=6, num_worker_servers=2, num_ps_servers=2, shared_servers=is_shared
    )
    instance = generate(options, 1)
    figure = draw_run(instance, watch(instance))
    drawn = [axes for axes in figure.axes if axes.get_label() != "<colorbar>"]
    assert len(drawn) == panels
    figure.savefig(BytesIO())
    for heat_map in drawn[1:]:
        assert all(float(tick).is_integer() for tick in heat_map.get_yticks()), "there are no parts of servers"


def test_each_job_has_a_dash_at_its_cost_and_a_marker_at_its_worth_in_its_slot(crowded):
    watched = watch(crowded)
    offers = draw_run(crowded, watched).axes[0]
    drawn = {"dashes": [], "markers": []}
    for line in offers.get_lines():
        drawn["dashes" if line.get_marker() == "_" else "markers"] += line.get_xydata().tolist()
    known = [offer for offer in watched.offers if np.isfinite(offer.value)]
    for points, heights in (("dashes", [offer.cost for offer in known]), ("markers", [offer.value for offer in known])):
        found = sorted((int(x), y) for x, y in drawn[points] if y > 2 * CHEAPEST)
        due = [(offer.arrival, y) for offer, y in zip(known, heights, strict=True) if y > 2 * CHEAPEST]
        assert len(due) > 5
        assert found == sorted(due)


def test_draws_a_run_without_jobs():
    instance = generate(GeneratorOptions(num_jobs=0, num_slots=4, num_worker_servers=1, num_ps_servers=1), 0)
    draw_run(instance, watch(instance)).savefig(BytesIO())
