"""Splits of fractional points against their written-out definitions, and the costs of past splits."""

from itertools import product

import numpy as np
import pytest

from optim.models.admission.decision import Branch, BranchKind
from optim.solvers.admission.branching.tree import (
    MIN_LOSS,
    Candidate,
    PseudoCosts,
    count_candidates,
    score,
    value_candidates,
)
from optim.solvers.admission.pricing.classes import PricedSchedules

JOBS, CLASSES, SLOTS = 4, 2, 3


def drawn(seed):
    """Return several schedules per job, and their weights in a fractional point; the weights of some jobs sum to 1."""
    rng = np.random.default_rng(seed)
    jobs = np.sort(rng.integers(0, JOBS, 12))
    weight = rng.uniform(0, 1, 12) * (rng.random(12) < 0.7)
    sums = np.bincount(jobs, weight, JOBS)
    weight /= np.maximum(np.where(rng.random(JOBS) < 0.5, sums, 1.25 * sums), 1e-9)[jobs]
    schedules = PricedSchedules(
        jobs=jobs,
        payoff=np.zeros(12),
        completion=rng.integers(0, SLOTS, 12),
        workers=rng.integers(0, 4, (12, CLASSES, SLOTS)),
        ps=rng.integers(0, 2, (12, CLASSES, SLOTS)),
    )
    return schedules, weight


def told(candidate):
    """Return the fields of a candidate, rounded, for comparison."""
    branch = candidate.branch
    place = (branch.server_class, branch.slot) if branch.kind in (BranchKind.WORKERS, BranchKind.PS) else ()
    return (branch.kind, branch.job, branch.value, place, round(candidate.low_share, 9), round(candidate.high_share, 9))


def plain_value_candidates(schedules, weight, is_admitted):
    """List the splits by admission and by completion of each job; the completion split is the most balanced one."""
    found = []
    for i in range(JOBS):
        own = [(c, w) for j, c, w in zip(schedules.jobs, schedules.completion, weight, strict=True) if j == i and w > 0]
        total = sum(w for _, w in own)
        if not is_admitted[i] and 1e-6 < total < 1 - 1e-6:
            found.append((BranchKind.ADMITTED, i, 0, (), round(total, 9), round(1 - total, 9)))
        slots = sorted({c for c, _ in own})
        best = None
        for slot in slots[:-1]:
            until = sum(w for c, w in own if c <= slot)
            if best is None or min(until, total - until) > min(best[1], total - best[1]) + 1e-12:
                best = (slot, until)
        if best is not None:
            found.append((BranchKind.COMPLETION, i, int(best[0]), (), round(total - best[1], 9), round(best[1], 9)))
    return found


@pytest.mark.parametrize("seed", range(25))
def test_splits_by_value_are_all_undecided_admissions_and_the_most_balanced_completions(seed):
    schedules, weight = drawn(seed)
    is_admitted = np.random.default_rng(seed).integers(0, 2, JOBS)
    found = [told(one) for one in value_candidates(schedules, weight, is_admitted)]
    assert found == plain_value_candidates(schedules, weight, is_admitted)


def plain_count_splits(schedules, weight, i):
    """Return for each place of a job's units the split at its average count, limited to the existing counts."""
    splits = {}
    own = [k for k in range(len(weight)) if schedules.jobs[k] == i and weight[k] > 1e-6]
    for kind, counts in ((BranchKind.WORKERS, schedules.workers), (BranchKind.PS, schedules.ps)):
        for c, t in product(range(CLASSES), range(SLOTS)):
            numbers = [int(counts[k, c, t]) for k in own]
            if len(set(numbers)) > 1:
                total = sum(weight[k] for k in own)
                mean = sum(weight[k] * counts[k, c, t] for k in own) / total
                value = min(max(int(mean + 1e-6), min(numbers)), max(numbers) - 1)
                above = sum(weight[k] for k in own if counts[k, c, t] > value)
                splits[kind, (c, t)] = (value, above, total - above)
    return splits


@pytest.mark.parametrize("seed", range(25))
def test_splits_by_count_part_a_jobs_own_schedules_at_their_average(seed):
    schedules, weight = drawn(seed)
    found = count_candidates(schedules, weight, JOBS, 5)
    plain = {i: plain_count_splits(schedules, weight, i) for i in range(JOBS)}
    for one in found:
        branch = one.branch
        value, above, below = plain[branch.job][branch.kind, (branch.server_class, branch.slot)]
        assert (branch.value, one.low_share, one.high_share) == (value, pytest.approx(above), pytest.approx(below))
    expected = sorted((min(a, b) for splits in plain.values() for _, a, b in splits.values()), reverse=True)[:5]
    assert [one.balance for one in found] == pytest.approx(expected)


def candidate(job, low, high, kind=BranchKind.ADMITTED):
    return Candidate(branch=Branch(kind=kind, job=job), low_share=low, high_share=high)


def test_losses_are_learnt_a_unit_of_weight_by_job_and_of_all_jobs_for_those_not_tried():
    costs, own, other = PseudoCosts(), candidate(0, 0.5, 0.25), candidate(1, 0.4, 0.6)
    assert costs.score(own, 8.0) == 8.0 * 0.5 * 8.0 * 0.25
    costs.record(own, 3.0, is_high=False)
    costs.record(own, 1.0, is_high=False)
    costs.record(own, -1.0, is_high=True)
    costs.record(candidate(2, 0.5, 0.001), 0.02, is_high=True)  # a tiny share counts as a hundredth
    assert costs.number(own) == 1
    assert costs.number(other) == costs.number(candidate(2, 0.5, 0.5)) == 0
    # Job 0 loses (6 + 2) / 2 per unit if it is rejected, and 0 if it is admitted.
    assert costs.score(own, 8.0) == pytest.approx(4.0 * 0.5 * MIN_LOSS)
    assert costs.score(other, 8.0) == pytest.approx(4.0 * 0.4 * 1.0 * 0.6)
    assert costs.score(candidate(0, 0.5, 0.25, BranchKind.COMPLETION), 8.0) == 8.0 * 0.5 * 8.0 * 0.25


def test_losses_of_a_count_are_learnt_by_place_and_of_its_job_for_places_not_tried():
    def at(slot, job=0):
        branch = Branch(kind=BranchKind.PS, job=job, value=1, server_class=0, slot=slot)
        return Candidate(branch=branch, low_share=0.5, high_share=0.5)

    costs = PseudoCosts()
    for slot, loss in ((3, 2.0), (4, 0.0)):
        costs.record(at(slot), loss, is_high=False)
        costs.record(at(slot), loss, is_high=True)
    assert costs.score(at(3), 8.0) == pytest.approx(2.0 * 2.0)
    assert costs.score(at(4), 8.0) == MIN_LOSS**2
    assert costs.score(at(5), 8.0) == costs.score(at(4, job=1), 8.0) == pytest.approx(1.0 * 1.0)
    assert costs.number(at(3)) == 0


def test_a_split_is_as_good_as_the_product_of_its_losses():
    assert score(2.0, 3.0) == 6.0
    assert score(2.0, 0.0) == 2.0 * MIN_LOSS
    assert score(-1.0, 0.0) == MIN_LOSS**2
