"""Packings of one server against trying all of them: the best one, covers by linear programme, lifted gains."""

from itertools import product

import numpy as np
import pytest
from scipy.optimize import linprog

from optim.solvers.admission.cuts.server_cuts import (
    PackingSpace,
    best_packing,
    lifted_gain,
    separate_fenchel,
    to_integers,
)

PLENTY = 10_000


def drawn(seed, kinds=None):
    """Return units that fit alone, a server's room, how many of each it may hold, and whole gains."""
    rng = np.random.default_rng(seed)
    kinds = int(rng.integers(1, 5)) if kinds is None else kinds
    resources = int(rng.integers(1, 4))
    room = rng.integers(3, 12, resources)
    unit = np.minimum(rng.integers(0, 6, (kinds, resources)), room)
    return unit, room, rng.integers(1, 4, kinds), rng.integers(0, 9, kinds)


def all_packings(unit, room, most):
    """Return every packing."""
    table = np.array(list(product(*[range(int(n) + 1) for n in most])))
    return table[(table @ unit <= room).all(axis=1)]


@pytest.mark.parametrize("seed", range(40))
def test_the_best_packing_is_the_best_of_all(seed):
    unit, room, most, gain = drawn(seed)
    packing = np.empty(len(gain), dtype=np.int64)
    best = best_packing(gain, unit, room, most, PLENTY, packing)
    table = all_packings(unit, room, most)
    assert best == (table @ gain).max() == packing @ gain
    assert (table == packing).all(axis=1).any()
    assert not packing[gain == 0].any()


@pytest.mark.parametrize("seed", range(8))
def test_a_search_is_given_up_at_its_limit_and_not_before(seed):
    unit, room, most, gain = drawn(seed, kinds=4)
    packing = np.empty(4, dtype=np.int64)
    full = best_packing(gain, unit, room, most, PLENTY, packing)
    answers = [best_packing(gain, unit, room, most, limit, packing) for limit in range(1, 80)]
    first = answers.index(full)
    assert answers == [-1] * first + [full] * (len(answers) - first)


@pytest.mark.parametrize("seed", range(25))
def test_a_load_outside_is_told_from_all_packings_by_the_dual_of_its_cover(seed):
    unit, room, most, _ = drawn(seed)
    alone = np.min(np.where(unit > 0, room // np.maximum(unit, 1), 9), axis=1)
    most = np.minimum(most, alone)
    load = np.random.default_rng(seed).uniform(0.2, 1.0, len(most)) * most
    gains = np.empty(len(most))
    found = separate_fenchel(load, most, PackingSpace(unit, room, most, PLENTY), 200, gains)
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
    unit, room, most, gain = drawn(seed)
    table = all_packings(unit, room, most)
    right = int((table @ gain).max())
    rng = np.random.default_rng(seed)
    new_unit, new_most = np.minimum(rng.integers(0, 5, len(room)), room), int(rng.integers(1, 4))
    packing, rest = np.empty(len(gain), dtype=np.int64), np.empty_like(room)
    found = lifted_gain(gain, unit, room, most, right, new_unit, new_most, PLENTY, packing, rest)
    slack = [
        (right - int((table[(table @ unit <= room - n * new_unit).all(axis=1)] @ gain).max())) // n
        for n in range(1, new_most + 1)
        if (n * new_unit <= room).all()
    ]
    assert found == min([right, *slack])


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
