"""Chains of availability: fitted on what was drawn from one, and refused where nothing tells."""

import numpy as np
import pytest

from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.models.bidding.market.zones import AvailabilityChain, fit_chain


def test_a_fit_of_a_long_draw_is_the_chain():
    chain = AvailabilityChain(stays=0.9, comes=0.2)
    assert chain.share == pytest.approx(2 / 3)
    flags = chain.draw(40_000, np.random.default_rng(0))
    found = fit_chain(flags)
    assert (found.stays, found.comes) == (pytest.approx(0.9, abs=0.01), pytest.approx(0.2, abs=0.02))
    assert flags.mean() == pytest.approx(2 / 3, abs=0.02)


def test_a_fit_counts_changes():
    found = fit_chain(np.array([True, True, False, False, False, True]))
    assert (found.stays, found.comes) == (0.5, pytest.approx(1 / 3))


def test_traces_without_changes_and_wrong_chances_are_refused():
    with pytest.raises(InvalidProblemError, match="no machines that come and go"):
        fit_chain(np.ones(10, dtype=bool))
    with pytest.raises(InvalidOptionError, match="stays must be"):
        AvailabilityChain(stays=1.1, comes=0.0)
    assert AvailabilityChain(stays=1.0, comes=0.0).share == 0.5
