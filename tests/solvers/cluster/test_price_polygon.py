"""The search for the best prices evaluates as many as its memory allows, and its bound at that point is proven."""

import numpy as np
import pytest

from optim.solvers.cluster.time_shares import KINDS, dearest_prices

FACTS = (
    np.tile([[1.0, 0.5, 0.2], [1.0, 0.3, 0.6], [0.7, 1.0, 0.4]], (2, 1)),
    np.ones((6, KINDS)),
    np.tile([100.0, 200.0, 300.0], 2),
    np.tile([300.0, 500.0, 400.0], 2),
    np.zeros(6),
)
"""Three jobs twice, and one GPU per type: speeds, gangs over GPUs, minimum seconds left, isolated ends, elapsed seconds."""

FLOOR, TOL, UNTOUCHED = 0.75, 1e-8, -1.0
"""The floor is the last job's 300 s on its fastest type alone, of its 400."""


@pytest.mark.parametrize("most", [1, 2, 5])
def test_no_more_prices_are_looked_at_than_there_is_room_for(most):
    room = np.full((most + 1, KINDS), UNTOUCHED)
    ratio, proof, looked = dearest_prices(*FACTS, FLOOR, TOL, room[:most])
    assert looked == most
    assert (room[most] == UNTOUCHED).all()
    assert room[:most].sum(axis=1) == pytest.approx(1.0)
    best, _, needed = dearest_prices(*FACTS, FLOOR, TOL, np.empty((200, KINDS)))
    assert needed > most
    assert FLOOR < ratio <= best
    assert 0 <= proof < most
