"""Whole counts that fit together: the best ones, lifted gains, and mixtures outside their hull, against all of them."""

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.optimize import linprog

from optim.core.arrays import FloatArray
from optim.solvers.admission.cuts.packings import PackingSpace, best_packing, lift, separate_fenchel

SEEDS = st.integers(0, 2**32 - 1)
MANY = 10**6


def random_space(rng: np.random.Generator) -> tuple[PackingSpace, FloatArray]:
    """Draw up to four jobs with some of their counts, and list all kinds that fit together as rows of 0 and 1."""
    num_jobs = int(rng.integers(1, 5))
    unit, room = rng.integers(0, 6, (num_jobs, 2)), rng.integers(4, 16, 2)
    counts, first = [], [0]
    for own in unit:
        alone = int(min([4, *(room[own > 0] // own[own > 0])]))
        assume(alone >= 1)
        counts += sorted(rng.choice(np.arange(1, alone + 1), rng.integers(1, alone + 1), replace=False).tolist())
        first.append(len(counts))
    space = PackingSpace(np.array(first), np.array(counts), unit, room, MANY)
    rows = []
    for chosen in product(*(range(first[j] - 1, first[j + 1]) for j in range(num_jobs))):
        units = np.array([counts[k] if k >= first[j] else 0 for j, k in enumerate(chosen)])
        if (units @ unit <= room).all():
            row = np.zeros(len(counts))
            for j, k in enumerate(chosen):
                row[first[j] : k + 1] = 1.0
            rows.append(row)
    return space, np.array(rows)


@given(SEEDS)
def test_finds_the_best_packing(seed: int) -> None:
    rng = np.random.default_rng(seed)
    space, rows = random_space(rng)
    gain, packing = rng.integers(0, 8, len(space.units)), np.empty(len(space.units), dtype=np.int64)
    value = best_packing(gain, space, packing)
    assert value == (rows @ gain).max()
    assert (rows == packing).all(axis=1).any()
    assert packing @ gain == value
    assert best_packing(gain, space._replace(node_limit=0), packing) == -1


@given(SEEDS)
def test_lifts_gains_to_the_last_unit_one_job_after_the_other(seed: int) -> None:
    rng = np.random.default_rng(seed)
    space, rows = random_space(rng)
    gain = rng.integers(0, 8, len(space.units))
    right_hand_side = int((rows @ gain).max())
    lifted = gain.copy()
    lift(lifted, space, right_hand_side, False)
    assert (lifted >= 0).all()
    assert (rows @ lifted).max() <= right_hand_side
    # The job that was lifted last, at its largest count, leaves nothing over.
    last = rows[:, -1] > 0
    if last.any():
        assert (rows[last] @ lifted).max() == right_hand_side
    for begin, end in pairwise(space.first.tolist()):
        assert (np.cumsum(lifted[begin:end]) >= np.cumsum(gain[begin:end])).all()


@given(SEEDS)
def test_tells_how_far_a_mixture_is_outside(seed: int) -> None:
    rng = np.random.default_rng(seed)
    space, rows = random_space(rng)
    share = np.concatenate(
        [np.sort(rng.uniform(0.05, 1.0, end - begin))[::-1] for begin, end in pairwise(space.first.tolist())]
    )
    gains, ones = np.empty(len(share)), np.ones(len(share), dtype=np.int64)
    covered = separate_fenchel(share, ones, np.arange(len(share)), space, MANY, gains)
    needed = linprog(np.ones(len(rows)), A_ub=-rows.T, b_ub=-share).fun
    if covered == 0.0:
        assert needed <= 1.0 + 1e-5
    else:
        assert covered == pytest.approx(needed, rel=1e-6)
        assert (rows @ gains <= 1.0 + 1e-6).all()
