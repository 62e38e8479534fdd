"""Packings of units against all of them: the best one, points outside their hull, lifted gains; for gains of any function of
a job's units, and where each unit gains the same."""

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from optim.core.arrays import FloatArray
from optim.solvers.admission.cuts.packings import PackingSpace, best_packing, lift, separate_fenchel, to_integers

SEEDS = st.integers(0, 2**32 - 1)
MANY = 10**6


def random_space(rng: np.random.Generator, *, is_linear: bool) -> tuple[PackingSpace, FloatArray]:
    """Draw up to four jobs with some of their counts, all from 1 on if linear, and list all packings as kinds of 0 and 1."""
    num_jobs = int(rng.integers(1, 5))
    unit, room = rng.integers(0, 6, (num_jobs, 2)), rng.integers(6, 16, 2)
    counts, first = [], [0]
    for own in unit:
        alone = int(min([4, *(room[own > 0] // own[own > 0])]))
        number = int(rng.integers(1, alone + 1))
        chosen = np.arange(1, number + 1) if is_linear else rng.choice(np.arange(1, alone + 1), number, replace=False)
        counts += sorted(chosen.tolist())
        first.append(len(counts))
    use = np.repeat(unit, np.diff(first), axis=0) * np.array(counts)[:, None]
    space = PackingSpace(np.array(first), np.array(counts), use, room, MANY)
    rows = []
    for kept in product(*(range(first[j] - 1, first[j + 1]) for j in range(num_jobs))):
        units = np.array([counts[k] if k >= first[j] else 0 for j, k in enumerate(kept)])
        if (units @ unit <= room).all():
            row = np.zeros(len(counts))
            for j, k in enumerate(kept):
                row[first[j] : k + 1] = 1.0
            rows.append(row)
    return space, np.array(rows)


def job_of_kind(space: PackingSpace) -> np.ndarray:
    """Return the job of each kind."""
    return np.repeat(np.arange(len(space.first) - 1), np.diff(space.first))


@given(SEEDS, st.booleans())
def test_finds_the_best_packing_and_gives_up_at_the_limit_of_nodes(seed: int, is_linear: bool) -> None:
    rng = np.random.default_rng(seed)
    space, rows = random_space(rng, is_linear=is_linear)
    job = job_of_kind(space)
    gain = rng.integers(0, 8, len(space.first) - 1)[job] if is_linear else rng.integers(0, 8, len(job))
    packing = np.empty(len(job), dtype=np.int64)
    best = best_packing(gain, space, packing)
    assert best == (rows @ gain).max() == packing @ gain
    assert (rows == packing).all(axis=1).any()
    answers = [best_packing(gain, space._replace(node_limit=limit), packing) for limit in range(60)]
    number = answers.index(best) if best in answers else len(answers)
    assert answers == [-1] * number + [best] * (len(answers) - number)


@given(SEEDS)
def test_lifts_gains_to_the_last_unit_one_job_after_the_other(seed: int) -> None:
    rng = np.random.default_rng(seed)
    space, rows = random_space(rng, is_linear=False)
    gain = rng.integers(0, 8, len(space.units))
    right_hand_side = int((rows @ gain).max())
    lifted = gain.copy()
    lift(lifted, space, right_hand_side, False)
    assert (lifted >= 0).all()
    assert (rows @ lifted).max() <= right_hand_side
    # The job that was lifted last, at its largest count, leaves no slack.
    last = rows[:, -1] > 0
    if last.any():
        assert (rows[last] @ lifted).max() == right_hand_side
    for begin, end in pairwise(space.first.tolist()):
        assert (np.cumsum(lifted[begin:end]) >= np.cumsum(gain[begin:end])).all()


@given(SEEDS)
def test_a_gain_of_each_unit_is_lifted_as_far_as_the_cut_holds(seed: int) -> None:
    """The last job has no gain at first; the others are lifted no further."""
    rng = np.random.default_rng(seed)
    space, rows = random_space(rng, is_linear=True)
    job = job_of_kind(space)
    by_job = np.append(rng.integers(1, 9, len(space.first) - 2), 0)
    gain = by_job[job]
    right_hand_side = int((rows @ gain).max())
    lifted = gain.copy()
    lift(lifted, space, right_hand_side, True)
    assert lifted[job < job[-1]].tolist() == gain[job < job[-1]].tolist()
    units = rows[:, job == job[-1]].sum(axis=1)
    slack = (right_hand_side - rows @ gain)[units > 0] // units[units > 0]
    assert set(lifted[job == job[-1]].tolist()) == {int(min([right_hand_side, *slack.tolist()]))}
    given_up = gain.copy()
    lift(given_up, space._replace(node_limit=0), right_hand_side, True)
    assert np.array_equal(given_up, gain)


@given(SEEDS, st.booleans())
def test_tells_how_far_a_point_is_outside(seed: int, is_linear: bool) -> None:
    rng = np.random.default_rng(seed)
    space, rows = random_space(rng, is_linear=is_linear)
    job = job_of_kind(space)
    if is_linear:
        variable, most = job, np.diff(space.first)
        load = most * rng.uniform(0.05, 1.0, len(most))
    else:
        variable, most = np.arange(len(job)), np.ones(len(job), dtype=np.int64)
        drawn = (rng.uniform(0.05, 1.0, end - begin) for begin, end in pairwise(space.first.tolist()))
        load = np.concatenate([np.sort(own)[::-1] for own in drawn])
    gains = np.empty(len(load))
    covered = separate_fenchel(load, most, variable, space, MANY, gains)
    packings = np.stack([np.bincount(variable, row, len(load)) for row in rows])
    needed = linprog(np.ones(len(packings)), A_ub=-packings.T, b_ub=-load).fun
    if covered == 0.0:
        assert needed <= 1.0 + 1e-5
    else:
        assert covered == pytest.approx(needed, rel=1e-6) == pytest.approx(gains @ load)
        assert (packings @ gains <= 1.0 + 1e-6).all()
        assert (gains >= 0).all()


def test_gains_are_written_over_their_smallest_common_denominator_or_rounded_down() -> None:
    whole = np.empty(3, dtype=np.int64)
    for gains, most, expected in (
        ([0.5, 1.0, 0.25], 200, [2, 4, 1]),
        ([1 / 3, 2 / 3, 0.0], 200, [1, 2, 0]),
        ([1.0, 2.0, 0.0], 1, [1, 2, 0]),
        ([1 / 7, 0.5, 1.0], 14, [2, 7, 14]),
        ([1 / 7, 0.5, 1.0], 13, [142, 500, 1000]),
    ):
        to_integers(np.array(gains), most, 1000, whole)
        assert whole.tolist() == expected
