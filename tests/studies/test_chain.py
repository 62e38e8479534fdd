"""The chain: measurements of the jobs change the decisions about them in the expected direction."""

import pytest
from msgspec import structs
from optim_studies.chain import ChainOptions, changed, one_worker_h

import optim
from optim.benchmarks.suite import SUITES, BenchRequest
from optim.core.progress import SilentProgress
from optim.core.stopping import Never
from optim.profiling.document import MeasuredValue, ScalingPoint
from optim.workloads.admission.generator import GeneratorOptions
from optim.workloads.profiles import profiled_instance, published_profiles
from tests.support.admission.by_hand import ByHand

SIGNS = {
    "admission": {"tau x 10": -1, "e x 10": -1, "bandwidth / 10": -1, "machine / 1000": -1},
    "bidding": {"tau x 10": 1, "e x 10": 1, "bandwidth / 10": 1, "machine / 1000": 1},
    # Slow mini-batches hide slow links; if both are slower by the same factor, placement matters as before.
    "auction": {"tau x 10": 1, "e x 10": -1, "bandwidth / 10": -1, "machine / 1000": 0},
}
"""Utility, US dollars, and welfare."""


@pytest.mark.prove
def test_dollars_move_with_time_and_welfare_with_size_in_the_direction_they_should():
    wanted = {"bidding": "tau x 10", "auction": "e x 10"}
    found = signs(lambda work: wanted.get(work.labels["problem"]) == work.labels["change"], auctions=2)
    assert found == {problem: {change: SIGNS[problem][change]} for problem, change in wanted.items()}


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


def shorter(profiles):
    """The same types with a tenth of their epochs: on tiny clusters some of their jobs complete at any speed."""
    return structs.replace(profiles, jobs=[structs.replace(job, epochs=job.epochs / 10) for job in profiles.jobs])


SEEDS = (0, 3)
"""Instances on which changes show."""


@pytest.mark.prove
def test_admission_and_who_is_admitted_move_as_the_compact_programme_says():
    """By HiGHS on the programme of the paper, written out by hand from the instances' columns; the curve is in its row (2)."""
    options = GeneratorOptions(num_jobs=5, num_slots=8, num_worker_servers=2, num_ps_servers=2)
    worth, admitted = dict.fromkeys([None, *SIGNS["admission"]], 0.0), {}
    for change in worth:
        profiles = shorter(published_profiles() if change is None else changed(published_profiles(), change))
        for seed in SEEDS:
            instance = profiled_instance("admission", profiles, options, seed)
            programme = ByHand(instance)
            expected, _ = programme.best()
            solution = optim.solve(instance, "branch-and-price")
            assert solution.termination == "optimal"
            assert solution.objective == pytest.approx(expected, rel=1e-9, abs=1e-9)
            chosen = frozenset(solution.decision.admitted.tolist())
            assert programme.best(chosen)[0] == pytest.approx(expected, rel=1e-9, abs=1e-9), "or as good a choice"
            assert optim.verify(instance, solution).is_ok
            worth[change] += expected
            admitted[change, seed] = chosen
    for change in SIGNS["admission"]:
        assert worth[change] < worth[None]
        assert sum(admitted[change, seed] < admitted[None, seed] for seed in SEEDS) >= 1, "fewer of the same"
        assert change == "machine / 1000" or worth[change] > 0, "no difference without data"


def test_the_programme_by_hand_knows_a_choice_that_is_worse():
    instance = profiled_instance(
        "admission", shorter(published_profiles()),
        GeneratorOptions(num_jobs=5, num_slots=8, num_worker_servers=2, num_ps_servers=2), 3,
    )  # fmt: skip
    programme = ByHand(instance)
    best, chosen = programme.best()
    assert all(programme.best(chosen - {i})[0] < best for i in chosen)
    refused = programme.best(frozenset(range(5)))[0]
    assert refused < best, "all five don't fit"


def test_a_jobs_hours_are_those_of_one_worker():
    job = structs.replace(
        published_profiles().jobs[0], minibatch_s=MeasuredValue.exactly(2.0), gradient_mb=50.0,
        worker_mbps=MeasuredValue.exactly(800.0), epochs=6.0, minibatches=100, scaling=[ScalingPoint(workers=1, speedup=1.0)]
    )  # fmt: skip
    assert one_worker_h(job) == pytest.approx(600 * 3.0 / 3600)
    assert ChainOptions().profile == "published"
