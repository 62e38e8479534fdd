"""The guard: whatever the forecast, at least what the paper's rule earns alone on its share of the servers."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.core.driver import Monitor
from optim.models.admission.data import as_int_array
from optim.models.admission.instance import merge_days
from optim.models.files import verify
from optim.solvers.admission.online_learned import OnlineLearnedOptions, run_day
from optim.solvers.admission.posted_prices.learned_run import Guard, least_share, on_share, wide_value
from optim.solvers.admission.posted_prices.online_run import run_online
from optim.solvers.admission.posted_prices.price_functions import (
    PriceFloorRule,
    ZeroStartPrice,
    job_value_stats,
    price_ranges,
)
from optim.solvers.solve import solve, solver_named
from tests.support.admission.days import CLUSTERS, days, forecast, wrong
from tests.support.admission.tiny import job_document, tiny_instance

KINDS = ("scaled", "permuted", "zero", "random", "of another cluster")


@cache
def alone(cluster: int, share: float):
    """Run the paper's rule alone on the first servers of each class, with the history's constants."""
    *past, today = days(cluster)

    def part(servers):
        return replace(servers, count=as_int_array([-(-int(n * share * 1000) // 1000) for n in servers.count.tolist()]))

    small = replace(today, worker_servers=part(today.worker_servers), ps_servers=part(today.ps_servers))
    worth = job_value_stats(merge_days([day.jobs for day in past], today))
    bounds = price_ranges(small, PriceFloorRule.UNIT_FREE_LAMBDA, stats=worth)
    return run_online(small, bounds=bounds, function=ZeroStartPrice())


@given(
    cluster=st.integers(0, CLUSTERS - 1),
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 10**6),
    share=st.sampled_from([0.25, 0.5, 0.75, 1.0]),
    replan=st.sampled_from([0, 5]),
)
def test_no_forecast_earns_less_than_the_rule_alone_on_its_servers(cluster, kind, seed, share, replan) -> None:
    today = days(cluster)[-1]
    options = OnlineLearnedOptions(history="given", guard=share, replan=replan)
    outcome = run_day(today, wrong(cluster, kind, seed), options, Monitor(), seed)
    run = alone(cluster, share)
    assert outcome.objective >= run.objective * (1 - 1e-12)
    assert outcome.counts["guard_earned"] == pytest.approx(run.objective)
    worth = dict(zip(outcome.decision.admitted.tolist(), outcome.decision.completion.tolist(), strict=True))
    for made in run.decisions:
        if made.is_accepted:
            assert today.value[made.job, worth[made.job]] >= made.schedule.value * (1 - 1e-12)


def test_the_whole_cluster_guarded_is_the_paper_s_rule_or_better() -> None:
    today = days(0)[-1]
    outcome = run_day(today, wrong(0, "zero", 0), OnlineLearnedOptions(history="given", guard=1.0), Monitor())
    assert outcome.objective >= alone(0, 1.0).objective


def test_the_certificate_carries_the_theorem_where_its_conditions_hold_and_names_those_that_fail(tmp_path) -> None:
    name = str(tmp_path / "forecast.json")
    capped = [replace(day, max_share_per_server=None) for day in days(0)]
    forecast(0).save(name)
    solution = solve(capped[0], "online-learned", options={"history": name, "guard": 0.5})
    assert "price" not in solution.certificate.statement


def test_ratio_and_wide_jobs_are_those_of_the_theorem() -> None:
    today = days(1)[-1]
    small = on_share(today, 0.5)
    assert least_share(today, small) >= 0.5
    assert wide_value(today, today) == 0
    by_hand = 0.0
    for i in range(today.num_jobs):
        s = int(today.jobs.segment_offset[i])
        is_wide = False
        for held, most, whole, part in (
            (today.workers_per_server[s], today.max_workers[i], today.worker_servers, small.worker_servers),
            (today.ps_per_server[s], today.ps_needed[i][-1], today.ps_servers, small.ps_servers),
        ):
            for c in range(whole.num_classes):
                for t in range(today.horizon):
                    most_here = min(int(most), int(held[c, t] * whole.count[c]))
                    is_wide |= most_here > held[c, t] * part.count[c]
        by_hand += is_wide * float(today.value[i].max())
    assert wide_value(today, small) == pytest.approx(by_hand)
    assert np.isfinite(by_hand)


def test_the_least_share_is_the_smallest_class_s_and_the_claim_takes_it_from_the_guard_s_servers() -> None:
    # Of 4 and 3 worker servers a half is 2 and 2, of 5 PS hosts 3: shares 1/2, 2/3 and 3/5.
    today = tiny_instance(
        job_document("a"),
        worker_servers=[
            {"type": "four", "capacity": [2, 0], "count": 4},
            {"type": "three", "capacity": [2, 0], "count": 3},
        ],
        ps_servers=[{"type": "cpus", "capacity": [0, 2], "count": 5}],
    )
    small = on_share(today, 0.5)
    assert small.worker_servers.count.tolist() == [2, 2]
    assert least_share(today, small) == 0.5
    guard = Guard(today, 0.5, job_value_stats(today), ZeroStartPrice())
    claim = guard.claim(job_value_stats(today))
    assert claim.rho == 0.5
    assert claim.ratio == pytest.approx(2 * claim.rule.ratio)


def test_verify_takes_a_guarded_solution() -> None:
    today = days(2)[-1]
    options = OnlineLearnedOptions(history="given", guard=0.5)
    solver = solver_named("admission", "online-learned")
    monitor = Monitor()
    outcome = run_day(today, forecast(2), options, monitor)
    solution = solver.solution(today, outcome, options=options, seed=0, monitor=monitor)
    assert verify(today, solution).violations == ()
