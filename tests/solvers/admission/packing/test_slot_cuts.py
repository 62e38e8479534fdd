"""Slot cuts: valid for all packings of a slot, violated by the mixture for which they were made, and effective."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.core.arrays import FloatArray, IntArray
from optim.models.admission.check.cuts import CutCheck
from optim.models.admission.check.exact_instance import read_exact_instance
from optim.models.admission.decision import SlotCut
from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.cuts.separation import SlotSeparator
from tests.support.admission.count_cuts import gain_of
from tests.support.admission.slot_cuts import (
    left_side,
    make_slot_cut,
    most_over_rows,
    packed_numbers,
    scarce_instance,
)
from tests.support.admission.tiny import job_document, tiny_instance, tiny_instances

SEEDS = st.integers(0, 2**32 - 1)


def random_mixture(instance: AdmissionInstance, rng: np.random.Generator) -> tuple[IntArray, FloatArray]:
    """Draw up to three numbers of workers of each job in each slot, each with a weight; each number fits alone."""
    rows, weights = [], [np.zeros(0)]
    for t in range(instance.horizon):
        for job, most in enumerate(packed_numbers(instance, t).max(axis=0).tolist()):
            if most:
                numbers = np.unique(rng.integers(1, most + 1, 3))
                rows += [(t, job, int(number)) for number in numbers]
                weights.append(rng.dirichlet(np.ones(len(numbers))) * rng.uniform(0.5, 1.0))
    return np.array(rows, dtype=np.int64).reshape(-1, 3), np.concatenate(weights)


def check_cuts(instance: AdmissionInstance, seed: int) -> list[SlotCut]:
    """Check each cut of a random mixture against the enumerated packings and the checker."""
    rows, weight = random_mixture(instance, np.random.default_rng(seed))
    cuts = SlotSeparator(instance).separate(rows, weight)
    check = CutCheck(read_exact_instance(instance))
    for number, cut in enumerate(cuts):
        assert max(left_side(cut, numbers) for numbers in packed_numbers(instance, cut.slot)) <= cut.right_hand_side
        assert most_over_rows(instance, cut) == cut.right_hand_side
        assert check.violations(cut, number, "", SlotCut) == []
        jobs = cut.jobs.tolist()
        at_point = sum(
            share * gain_of(cut.gain[jobs.index(job)], units)
            for (t, job, units), share in zip(rows.tolist(), weight.tolist(), strict=True)
            if t == cut.slot and job in jobs
        )
        assert at_point > cut.right_hand_side * (1.0 + 1e-4)
    return cuts


@given(tiny_instances(max_jobs=3), SEEDS)
def test_holds_for_all_packings_and_not_for_the_mixture(instance: AdmissionInstance, seed: int) -> None:
    check_cuts(instance, seed)


def test_holds_where_workers_crowd_each_other_out() -> None:
    found: Counter[tuple[bool, bool]] = Counter()
    for seed in range(60):
        instance = scarce_instance(seed)
        for cut in check_cuts(instance, seed):
            found[instance.has_shared_servers, bool((cut.divisor > 1).any())] += 1
    assert min(found[False, True], found[True, True]) >= 5


def test_takes_the_tightest_rows_where_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    all_rows = {seed: len(cut.divisor) for seed in range(20) for cut in check_cuts(scarce_instance(seed), seed)[:1]}
    monkeypatch.setattr("optim.solvers.admission.cuts.separation.MAX_DIVISORS", 2)
    few_rows = {seed: len(cut.divisor) for seed in range(20) for cut in check_cuts(scarce_instance(seed), seed)[:1]}
    assert max(all_rows.values()) > 2
    assert max(few_rows.values()) == 2
    assert len(few_rows) >= len(all_rows) // 2


@pytest.mark.parametrize("is_shared", [False, True])
def test_rounds_each_server_before_it_adds_them(is_shared: bool) -> None:
    # Two servers of three GPUs fit one worker of two GPUs each, although six GPUs would fit three.
    wide = {"chunks": 4, "worker": [2, 0], "ps": [0, 0]}
    servers = {"shared_servers" if is_shared else "worker_servers": [{"type": "g", "capacity": [3, 9], "count": 2}]}
    instance = tiny_instance(job_document("a", **wide), job_document("b", **wide), **servers)
    both = np.array([(0, 0, 1), (0, 0, 2), (0, 1, 1), (0, 1, 2)])
    (cut,) = SlotSeparator(instance).separate(both, np.array([0.2, 0.7, 0.3, 0.6]))
    # If one job has both servers, the other has none.
    assert (cut.right_hand_side, cut.gain.tolist()) == (1, [[0, 1], [1, 1]])
    assert 2_000_000 in cut.divisor
    assert SlotSeparator(instance).separate(both, np.array([0.4, 0.3, 0.4, 0.3])) == []
    assert SlotSeparator(instance).separate(np.zeros((0, 3), dtype=np.int64), np.zeros(0)) == []
    # Without the row of two GPUs the same gains aren't proven.
    loose = make_slot_cut(jobs=cut.jobs, gain=cut.gain, divisor=np.array([1]))
    assert most_over_rows(instance, loose) > 1
