"""Figures of what was drawn: a seed draws what it always drew, whatever is changed around it."""

import json
from collections.abc import Iterable
from typing import Any

import numpy as np


def numbers_of(value: Any) -> Iterable[float]:
    """Return all numbers in a value read from JSON, in order."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from numbers_of(one)
    elif isinstance(value, int | float):
        yield float(value)


def figures_of_document(data: bytes) -> tuple[int, float, float]:
    """Return the figures of all numbers in a JSON document."""
    return figures_of(np.array(list(numbers_of(json.loads(data)))))


def figures_of(*arrays: Any) -> tuple[int, float, float]:
    """Return how many numbers there are, their mean, and their mean weighted by place: 1, 2, ... modulo 97."""
    values = np.concatenate([np.ravel(np.asarray(array, dtype=np.float64)) for array in arrays])
    values = np.where(np.isfinite(values), values, -7.0)
    return len(values), float(values.mean()), float((values * (1 + np.arange(len(values)) % 97)).mean())
