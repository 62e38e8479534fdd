"""Kernels are tested strictly: arrays of different ranks meet on purpose only."""

from collections.abc import Iterator

import jax
import pytest


@pytest.fixture(autouse=True)
def ranks_are_equal() -> Iterator[None]:
    """Make JAX reject broadcasts of an array over missing axes."""
    with jax.numpy_rank_promotion("raise"):
        yield
