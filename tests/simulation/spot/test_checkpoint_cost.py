"""Checkpoints: seconds and dollars by hand."""

import pytest

from optim.core.errors import InvalidOptionError
from optim.simulation.spot.policy import CheckpointCost


def test_a_checkpoint_costs_its_gigabytes_over_the_bandwidth_and_their_dollars():
    cost = CheckpointCost(state_gb=120.0, write_gb_per_s=0.5, read_gb_per_s=2.0, usd_per_gb=0.01)
    assert (cost.write_s, cost.read_s, cost.usd) == (240.0, 60.0, 1.2)
    with pytest.raises(InvalidOptionError, match="write_gb_per_s must be"):
        CheckpointCost(state_gb=1.0, write_gb_per_s=0.0)
