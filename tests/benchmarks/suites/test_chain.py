"""The chain: what is measured of the jobs decides what is done with them, in the direction that it should."""

import pytest
from msgspec import structs

import optim
from optim.benchmarks.registry import SUITES
from optim.benchmarks.spec import BenchRequest
from optim.benchmarks.suites.chain import ChainOptions, changed, one_worker_h
from optim.core.progress import SilentProgress
from optim.core.stopping import Never
from optim.models.admission.compact import compact_model
from optim.solvers.lp.highs_model import CompiledModel, solve_with_highs
from optim.workloads.admission.generator import GeneratorOptions
from optim.workloads.profiles.document import Interval, ScalingPoint
from optim.workloads.profiles.instances import profiled_instance
from optim.workloads.profiles.published import published_profiles

SIGNS = {
    "admission": {"tau x 10": -1, "e x 10": -1, "bandwidth / 10": -1, "machine / 1000": -1},
    "bidding": {"tau x 10": 1, "e x 10": 1, "bandwidth / 10": 1, "machine / 1000": 1},
    # Slow mini-batches hide slow links; where both are slower alike, placement matters as before.
    "auction": {"tau x 10": 1, "e x 10": -1, "bandwidth / 10": -1, "machine / 1000": 0},
}
"""Utility, US dollars, and welfare."""


def test_dollars_and_welfare_move_with_time_size_and_bandwidth_in_the_direction_they_should():
    assert signs(lambda work: work.labels["problem"] != "admission", auctions=2) == {
        problem: found for problem, found in SIGNS.items() if problem != "admission"
    }


@pytest.mark.prove
def test_the_whole_study_moves_in_the_direction_it_should():
    assert signs(lambda work: True) == SIGNS


def signs(is_wanted, **options):
    """The signs that the study finds, by problem and change."""
    found = {}
    for work in filter(is_wanted, SUITES.get("chain").build(BenchRequest(options=options))):
        record = work.run(Never(), SilentProgress())
        assert record.verified, record.violations
        found.setdefault(work.labels["problem"], {})[work.labels["change"]] = record.findings["sign"]
        if work.labels["problem"] == "admission":
            assert record.findings["bound"] == pytest.approx(record.findings["objective"], rel=1e-9, abs=1e-9)
    return found


def test_admission_is_worth_what_the_compact_programme_says_and_less_by_slower_jobs():
    """By HiGHS on the programme of the paper, which shares no code with the solver; the curve is in its row (2)."""
    options = GeneratorOptions(num_jobs=4, num_slots=6, num_worker_servers=2, num_ps_servers=2)
    worth = dict.fromkeys([None, *SIGNS["admission"]], 0.0)
    for change in worth:
        profiles = published_profiles() if change is None else changed(published_profiles(), change)
        for seed in range(4):
            instance = profiled_instance("admission", profiles, options, seed)
            assert any(instance.jobs.speedup) or change == "tau x 10"
            expected = solve_with_highs(CompiledModel(compact_model(instance)), options={"mip_rel_gap": 0.0}).objective
            solution = optim.solve(instance, "branch-and-price")
            assert solution.termination == "optimal"
            assert solution.objective == pytest.approx(expected, rel=1e-9, abs=1e-9)
            assert optim.verify(instance, solution).is_ok
            worth[change] += expected
    assert all(worth[change] < worth[None] for change in SIGNS["admission"])


def test_a_jobs_hours_are_those_of_one_worker():
    job = structs.replace(
        published_profiles().jobs[0], minibatch_s=Interval.exactly(2.0), gradient_mb=50.0,
        worker_mbps=Interval.exactly(800.0), epochs=6.0, minibatches=100, scaling=[ScalingPoint(workers=1, speedup=1.0)]
    )  # fmt: skip
    assert one_worker_h(job) == pytest.approx(600 * 3.0 / 3600)
    assert ChainOptions().profile == "published"
