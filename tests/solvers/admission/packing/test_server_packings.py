"""Packings where each unit gains the same, against all of them: the best one, covers by linear programme, lifted gains."""

from itertools import product

import numpy as np
import pytest
from scipy.optimize import linprog

from optim.solvers.admission.cuts.packings import PackingSpace, best_packing, lift, separate_fenchel, to_integers

PLENTY = 10_000


def drawn(seed, kinds=None):
    """Return units, a server's room, how many of each it may hold, at least one, and whole gains."""
    rng = np.random.default_rng(seed)
    kinds = int(rng.integers(1, 5)) if kinds is None else kinds
    resources = int(rng.integers(1, 4))
    room = rng.integers(3, 12, resources)
    unit = np.minimum(rng.integers(0, 6, (kinds, resources)), room)
    alone = np.min(np.where(unit > 0, room // np.maximum(unit, 1), 9), axis=1)
    return unit, room, np.minimum(rng.integers(1, 4, kinds), alone), rng.integers(0, 9, kinds)


def space_of(unit, room, most, limit=PLENTY):
    """Return the space of units, and the job of each kind."""
    first = np.concatenate([[0], np.cumsum(most)])
    job = np.repeat(np.arange(len(most)), most)
    return PackingSpace(first, np.arange(1, first[-1] + 1) - first[job], unit, room, limit), job


def best_of(unit, room, most, gain, limit=PLENTY):
    """Return the largest gain, and how many units of each job gain it."""
    space, job = space_of(unit, room, most, limit)
    packing = np.empty(len(job), dtype=np.int64)
    return best_packing(gain[job], space, packing), np.bincount(job, packing, len(most))


def all_packings(unit, room, most):
    """Return every packing."""
    table = np.array(list(product(*[range(int(n) + 1) for n in most])))
    return table[(table @ unit <= room).all(axis=1)]


@pytest.mark.parametrize("seed", range(40))
def test_the_best_packing_is_the_best_of_all(seed):
    unit, room, most, gain = drawn(seed)
    best, packing = best_of(unit, room, most, gain)
    table = all_packings(unit, room, most)
    assert best == (table @ gain).max() == packing @ gain
    assert (table == packing).all(axis=1).any()
    assert not packing[gain == 0].any()


@pytest.mark.parametrize("seed", range(8))
def test_a_search_is_given_up_at_its_limit_and_not_before(seed):
    unit, room, most, gain = drawn(seed, kinds=4)
    full = best_of(unit, room, most, gain)[0]
    answers = [best_of(unit, room, most, gain, limit)[0] for limit in range(1, 80)]
    first = answers.index(full)
    assert answers == [-1] * first + [full] * (len(answers) - first)


@pytest.mark.parametrize("seed", range(25))
def test_a_load_outside_is_told_from_all_packings_by_the_dual_of_its_cover(seed):
    unit, room, most, _ = drawn(seed)
    load = np.random.default_rng(seed).uniform(0.2, 1.0, len(most)) * most
    gains = np.empty(len(most))
    space, job = space_of(unit, room, most)
    found = separate_fenchel(load, most, job, space, 200, gains)
    table = all_packings(unit, room, most)
    servers = linprog(np.ones(len(table)), A_ub=-table.T, b_ub=-load).fun
    if servers <= 1.0 + 1e-6:
        assert found == 0.0
    else:
        assert found == pytest.approx(servers, rel=1e-6)
        assert gains @ load == pytest.approx(found)
        assert (table @ gains).max() <= 1.0 + 1e-6
        assert (gains >= 0).all()


@pytest.mark.parametrize("seed", range(30))
def test_a_lifted_gain_is_the_largest_that_keeps_the_cut(seed):
    """The last job gains nothing at first; the others are lifted no further."""
    unit, room, most, gain = drawn(seed, kinds=4)
    gain = np.append(np.maximum(gain[:3], 1), 0)
    table = all_packings(unit, room, most)
    right = int((table @ gain).max())
    space, job = space_of(unit, room, most)
    spread = gain[job]
    lift(spread, space, right, True)
    lifted = spread[space.first[:-1]]
    assert np.array_equal(spread, lifted[job])
    assert lifted[:3].tolist() == gain[:3].tolist()
    with_some = table[table[:, 3] > 0]
    assert lifted[3] == min([right, *((right - with_some @ gain) // with_some[:, 3]).tolist()])
    spread = gain[job]
    lift(spread, space._replace(node_limit=0), right, True)
    assert np.array_equal(spread, gain[job])


def test_gains_are_written_over_their_smallest_common_denominator_or_rounded_down():
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
