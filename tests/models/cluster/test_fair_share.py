"""Slurm's fair-share factors against the examples and rules of its documentation, and usage against its integral."""

import math
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.models.cluster.fair_share import AssociationTree, DecayedUsage

HOUR_US = 3600 * 10**6


def tree(*rows, users=()):
    """Return a tree from rows (name, parent's name, shares); those named in `users` are users."""
    names = ("root", *(name for name, _, _ in rows))
    return AssociationTree(
        names=names,
        parent=np.array([-1, *(names.index(parent) for _, parent, _ in rows)]),
        shares=np.array([1, *(0 if shares == "parent" else shares for _, _, shares in rows)]),
        is_user=np.array([name in users for name in names]),
        takes_parent=np.array([False, *(shares == "parent" for _, _, shares in rows)]),
    )


USERS = ("user1", "user2", "user3", "user4", "user5")
EXAMPLE = tree(
    *(("A", "root", 40), ("D", "root", 60), ("B", "A", 30), ("C", "A", 10), ("E", "D", 25), ("F", "D", 35)),
    *(("user1", "B", 1), ("user2", "C", 1), ("user3", "C", 1), ("user4", "E", 1), ("user5", "F", 1)),
    users=USERS,
)


def used(association_tree, **usage):
    return np.array([usage.get(name, 0.0) for name in association_tree.names])


def test_the_worked_example_of_the_classic_factor():
    """ "Classic Fairshare Algorithm", section Example: the machine's usage is 0.2, 0.25 and 0.25 of users 1, 2 and 4, and the rest is idle.

    There usage is a share of the machine's capacity. Here an additional user outside the accounts has the idle rest, so
    that shares of the total usage are the same.
    """
    found = EXAMPLE.classic_factors(used(EXAMPLE, user1=0.2, user2=0.25, user4=0.25, root=0.3))
    factors = dict(zip(EXAMPLE.names, found.tolist(), strict=True))
    assert [factors[name] for name in USERS] == pytest.approx([0.408479, 0.022097, 0.125, 0.5, 0.749154], abs=2e-5)
    exact = [2 ** -(0.3875 / 0.3), 2 ** -(0.275 / 0.05), 0.125, 0.5, 2 ** -(0.25 * 35 / 60 / 0.35)]
    assert [factors[name] for name in USERS] == pytest.approx(exact, rel=1e-12)


def test_a_dampening_factor_divides_the_exponent():
    usage = used(EXAMPLE, user4=1.0)
    assert EXAMPLE.classic_factors(usage, 2.0) == pytest.approx(np.sqrt(EXAMPLE.classic_factors(usage)))


def test_shares_of_the_parent_give_all_its_users_its_factor():
    found = tree(("A", "root", 1), ("B", "root", 3), ("u", "A", "parent"), ("v", "A", "parent"), users=("u", "v"))
    factors = found.classic_factors(used(found, u=3.0, B=1.0))
    assert factors[3] == factors[4] == factors[1] == 2 ** -(0.75 / 0.25)


def test_without_usage_all_have_the_best_factor_and_without_shares_the_least():
    found = tree(("A", "root", 0), ("B", "root", 1), ("u", "A", 1), ("v", "B", 1), users=("u", "v"))
    assert found.classic_factors(used(found)).tolist() == [1.0, 0.0, 1.0, 0.0, 1.0]


def rank_by_first_common_ancestor(found, usage):
    """Return factors by the higher level fair share below the first common ancestor, as in the documentation's overview.

    Computed by exact fractions for every pair of users; None if two users tie.
    """
    children = {name: [i for i in range(1, len(found.names)) if found.parent[i] == name] for name in range(len(usage))}

    def below(row):
        return usage[row] + sum(below(child) for child in children[row])

    def level(row):
        siblings = children[int(found.parent[row])]
        shares = Fraction(int(found.shares[row]), sum(int(found.shares[each]) for each in siblings))
        total = sum(below(each) for each in siblings)
        part = Fraction(below(row), total) if total else Fraction(0)
        return math.inf if not part else shares / part

    def path(row):
        return [] if row == 0 else [*path(int(found.parent[row])), row]

    users = [row for row in range(len(usage)) if found.is_user[row]]
    wins = dict.fromkeys(users, 0)
    for one, other in combinations(users, 2):
        mine, yours = next((a, b) for a, b in zip(path(one), path(other), strict=False) if a != b)
        if level(mine) == level(yours):
            return None
        wins[one if level(mine) > level(yours) else other] += 1
    return {row: (wins[row] + 1) / len(users) for row in users}


@given(st.data())
def test_fair_tree_ranks_users_by_their_first_common_ancestors(data):
    rows = data.draw(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 9)), min_size=1, max_size=4))
    accounts = [
        (f"a{i}", "root" if not i else ["root", *(f"a{j}" for j in range(i))][up % (i + 1)], shares)
        for i, (up, shares) in enumerate(rows)
    ]
    count = data.draw(st.integers(1, 5))
    users = [
        (f"u{i}", data.draw(st.sampled_from([name for name, _, _ in accounts])), data.draw(st.integers(1, 9)))
        for i in range(count)
    ]
    found = tree(*accounts, *users, users={name for name, _, _ in users})
    usage = [data.draw(st.integers(1, 50)) if user else 0 for user in found.is_user]
    expected = rank_by_first_common_ancestor(found, usage)
    factors = found.fair_tree_factors(np.array(usage, float))
    if expected is not None:
        assert {row: factors[row] for row in expected} == pytest.approx(expected)
    assert np.nanmax(factors) == 1.0


def test_sibling_users_who_tie_share_a_rank():
    found = tree(("A", "root", 1), ("u", "A", 1), ("v", "A", 1), ("w", "A", 1), users=("u", "v", "w"))
    assert found.fair_tree_factors(used(found, u=1.0, v=1.0, w=5.0))[2:].tolist() == [1.0, 1.0, pytest.approx(1 / 3)]


def test_a_user_who_ties_with_an_account_has_the_rank_of_its_first_user():
    """u and account A are siblings with equal shares and usage; v of A has used less than w."""
    found = tree(("A", "root", 1), ("u", "root", 1), ("v", "A", 1), ("w", "A", 1), users=("u", "v", "w"))
    factors = found.fair_tree_factors(used(found, u=4.0, v=1.0, w=3.0))
    assert factors[2:].tolist() == [1.0, 1.0, pytest.approx(1 / 3)]


def test_the_users_of_accounts_that_tie_are_ranked_as_of_one_account():
    """A and B tie; within them v (B) has the highest level fair share, then x (A), w (B), u (A)."""
    rows = (("A", "root", 1), ("B", "root", 1), ("u", "A", 1), ("x", "A", 1), ("v", "B", 1), ("w", "B", 1))
    found = tree(*rows, users=("u", "x", "v", "w"))
    factors = found.fair_tree_factors(used(found, u=7.0, x=3.0, v=2.0, w=8.0))
    assert factors[3:].tolist() == [0.5, 0.75, 1.0, 0.25]


def test_fair_tree_knows_no_shares_of_the_parent():
    found = tree(("A", "root", 1), ("u", "A", "parent"), users=("u",))
    with pytest.raises(InvalidProblemError, match="'parent'"):
        found.fair_tree_factors(used(found))


@given(
    st.lists(st.tuples(st.integers(1, 20), st.integers(0, 8)), min_size=1, max_size=6),
    st.sampled_from([1.0, 7.0, 168.0]),
)
def test_usage_is_the_integral_of_what_is_held_with_a_half_life(spells, half_life_h):
    """Against the sum over short periods that Slurm's documentation states, U_H."""
    usage, now = DecayedUsage(1, half_life_h * HOUR_US), 0
    for hours, gpus in spells:
        now += hours
        usage.advance(now * HOUR_US, np.array([float(gpus)]))
    steps, periods = 200, [gpus for hours, gpus in spells for _ in range(hours * 200)]
    decay = 0.5 ** (1 / steps / half_life_h)
    total = 0.0
    for gpus in periods:
        total = total * decay + gpus / steps
    assert usage.gpu_us[0] / HOUR_US == pytest.approx(total, rel=5e-3, abs=1e-9)


def test_usage_halves_after_a_half_life_and_without_one_adds_up():
    usage = DecayedUsage(2, 5.0 * HOUR_US)
    usage.advance(HOUR_US, np.array([4.0, 0.0]))
    before = usage.gpu_us[0]
    usage.advance(6 * HOUR_US, np.zeros(2))
    assert usage.gpu_us == pytest.approx([before / 2, 0])
    for_ever = DecayedUsage(1, math.inf)
    for hour in (1, 2, 3):
        for_ever.advance(hour * HOUR_US, np.array([2.0]))
    assert for_ever.gpu_us.tolist() == [6.0 * HOUR_US]
    with pytest.raises(InvalidOptionError, match="half_life_us"):
        DecayedUsage(1, 0.0)


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({"parent": np.array([-1, 2, 0])}, "listed before"),
        ({"shares": np.array([1, -1, 1])}, "at least 0"),
        ({"parent": np.array([-1, 0])}, "one entry per name"),
        ({"is_user": np.array([False, True, True]), "parent": np.array([-1, 0, 1])}, "listed before"),
    ],
)
def test_what_is_no_tree_is_refused(change, cause):
    whole = {
        "parent": np.array([-1, 0, 0]),
        "shares": np.ones(3, int),
        "is_user": np.array([False, True, True]),
        "takes_parent": np.zeros(3, bool),
    }
    with pytest.raises(InvalidProblemError, match=cause):
        AssociationTree(names=("root", "a", "b"), **(whole | change))


def test_a_tree_of_jobs_has_each_user_in_each_account_once():
    found = AssociationTree.of_jobs(np.array(["x", "", "x", "y"], object), np.array(["u", "u", "v", "u"], object))
    pairs = [(found.names[found.parent[row]], found.names[row]) for row in np.flatnonzero(found.is_user)]
    assert pairs == [("root", "u"), ("x", "u"), ("x", "v"), ("y", "u")]
