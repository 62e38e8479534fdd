"""Kernels are tested strictly: arrays of different ranks meet on purpose only."""

from collections.abc import Iterator

import jax
import pytest


@pytest.fixture(autouse=True)
def ranks_are_equal() -> Iterator[None]:
    """Let JAX refuse to stretch an array over axes that it doesn't have."""
    with jax.numpy_rank_promotion("raise"):
        yield
