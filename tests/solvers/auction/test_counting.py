"""Multiple-choice knapsacks over the number of GPUs against trying every choice."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.solvers.auction.counting import best_choice, best_without, count_tables

rows = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 12).map(lambda w: w / 4)), max_size=3)


def arrays(apps):
    """Return offsets, sizes and weights of apps' rows."""
    flat = [row for app in apps for row in app]
    offset = np.concatenate([[0], np.cumsum([len(app) for app in apps])]).astype(np.int64)
    return offset, np.array([k for k, _ in flat], dtype=np.int64), np.array([w for _, w in flat], dtype=np.float64)


def most(apps, room):
    """Return the largest welfare of any choice of at most one row per app."""
    choices = product(*[[(0, 0.0), *app] for app in apps])
    return max(sum(w for _, w in choice) for choice in choices if sum(k for k, _ in choice) <= room)


def worth(choice, offset, size, weight, room):
    """Return the welfare of a choice, which must consist of the apps' own rows and fit into the capacity."""
    taken = choice[choice >= 0]
    owner = np.searchsorted(offset, taken, side="right") - 1
    assert (choice[owner] == taken).all()
    assert size[taken].sum() <= room
    return weight[taken].sum()


@given(apps=st.lists(rows, min_size=1, max_size=4), room=st.integers(0, 8))
def test_tables_choices_and_leave_one_out_optima_are_those_of_trying_all(apps, room):
    data, order = arrays(apps), np.arange(len(apps))
    head = count_tables(order, *data, room)
    tail = count_tables(order[::-1].copy(), *data, room)
    for u in range(room + 1):
        assert head[-1, u] == pytest.approx(most(apps, u))
        assert tail[-1, u] == pytest.approx(most(apps, u))
    assert worth(best_choice(head, *data), *data, room) == pytest.approx(most(apps, room))
    for i in range(len(apps)):
        choice = np.full(len(apps), 7, dtype=np.int64)
        value = best_without(head, tail, *data, i, choice)
        assert choice[i] == -1
        assert value == pytest.approx(most(apps[:i] + apps[i + 1 :], room))
        assert worth(choice, *data, room) == pytest.approx(value)


def test_equal_values_keep_the_first_row():
    data = arrays([[(2, 1.0), (2, 1.0)], [(1, 0.5)]])
    assert best_choice(count_tables(np.arange(2), *data, 3), *data).tolist() == [0, 2]
