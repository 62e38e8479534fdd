"""Traps and the ways round them: both do the same work."""

import numpy as np
import pytest
from optim_studies.kernels.baselines import TrapOptions
from optim_studies.traps import NAIVE, OURS, TRAPS

SIZES = {
    "parameters": 40_000,
    "workers": 3,
    "leaves": 7,
    "pushed": 30,
    "width": 4,
    "rows": 20,
    "carried_pushes": 8,
    "carried_rows": 16,
}


@pytest.fixture(autouse=True)
def small_cache(monkeypatch):
    """Let buffers be small: nothing is judged by them here."""
    monkeypatch.setattr("optim_studies.traps.roof_bytes", lambda: 1 << 16)


@pytest.mark.parametrize("name", TRAPS)
def test_the_ways_agree_round_after_round(name):
    trap = TRAPS[name](TrapOptions(**SIZES), np.random.default_rng(2))
    assert {OURS, NAIVE} <= set(trap.calls)
    for _ in range(3):
        for call in trap.calls.values():
            call()
        assert trap.difference() <= 1e-5


def test_a_side_that_does_other_work_is_found_out():
    trap = TRAPS["row-scatter"](TrapOptions(**SIZES), np.random.default_rng(2))
    trap.calls[OURS]()
    assert trap.difference() > 1e-3
