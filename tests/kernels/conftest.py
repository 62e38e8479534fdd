"""Strict settings for the kernels' tests: JAX rejects implicit broadcasts between arrays of different ranks."""

from collections.abc import Iterator

import jax
import pytest


@pytest.fixture(autouse=True)
def ranks_are_equal() -> Iterator[None]:
    """Make JAX reject broadcasts of an array over missing axes."""
    with jax.numpy_rank_promotion("raise"):
        yield
