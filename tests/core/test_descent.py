"""Walking a proof's tree: the same conditions as if each node had a copy of its own, in the room of one path."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.core.claims import Descent
from optim.core.errors import InvalidProblemError
from optim.core.limits import Effort, read_limits

TREES = st.recursive(
    st.none(), lambda inner: st.lists(st.tuples(st.integers(0, 3), st.integers(1, 9), inner), max_size=3), max_leaves=25
)


def numbered(tree, nodes):
    """Return a tree as a list of nodes, each a list of (child, key, value)."""
    own = len(nodes)
    nodes.append([])
    for key, value, child in tree or ():
        at = len(nodes)
        numbered(child, nodes)
        nodes[own].append((at, key, value))
    return nodes


def by_copies(nodes):
    """Return each node's conditions, in the order of the walk, with a copy for each."""
    waiting, found = [(0, {})], []
    while waiting:
        number, conditions = waiting.pop()
        found.append((number, list(conditions.items())))
        for child, key, value in nodes[number]:
            before = conditions.get(key)
            waiting.append((child, {**conditions, key: value if before is None else 10 * before + value}))
    return found


@given(TREES)
def test_every_node_has_the_conditions_of_its_path_in_the_order_in_which_they_were_said(tree):
    nodes, heard = numbered(tree, []), {}
    walk = Descent(Effort("a tree"), lambda key, value: heard.update({key: value}))
    found = []
    for number in walk:
        found.append((number, list(walk.conditions.items())))
        assert walk.conditions == {key: value for key, value in heard.items() if value is not None}
        for child, key, value in nodes[number]:
            walk.add(child, key, lambda before, value=value: value if before is None else 10 * before + value)
    assert found == by_copies(nodes)


def test_a_chain_takes_the_room_of_one_path():
    depth = 10_000
    walk = Descent(Effort("a chain"))
    tracemalloc.start()
    for number in walk:
        if number < 2 * depth and number % 2 == 0:
            for child in (number + 1, number + 2):
                walk.add(child, number, lambda before: 1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 * 2**20


def walk_in_a_circle():
    walk = Descent(Effort("a circle"))
    for number in walk:
        walk.add(number, 0, lambda before: 1)


def test_a_walk_in_a_circle_ends():
    with read_limits(steps=1000), pytest.raises(InvalidProblemError, match=r"takes more than 1000 .*--limit steps=N"):
        walk_in_a_circle()


def test_effort_is_counted_to_the_step():
    with read_limits(steps=10):
        effort = Effort("it")
        effort.spend(4)
        effort.spend(6)
        with pytest.raises(InvalidProblemError, match="it takes more than 10 steps"):
            effort.spend(1)
