"""What an auction's parts must be, whoever puts them together."""

from dataclasses import replace

import pytest

import optim
from optim.core.errors import InvalidProblemError


@pytest.mark.parametrize("name", ["app", "gpus", "locality", "rho"])
def test_columns_of_bids_are_equally_long(name):
    instance = optim.reference_instance("auction-tiny-0")
    shorter = replace(instance.bids, **{name: getattr(instance.bids, name)[:-1]})
    with pytest.raises(InvalidProblemError, match="one entry a row"):
        replace(instance, bids=shorter)
