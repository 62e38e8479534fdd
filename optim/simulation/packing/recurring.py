"""What a recurring job will ask for, slot by slot of its work, from its earlier runs; the same runs and errors for every way of asking."""

from collections.abc import Sequence
from enum import StrEnum

import numpy as np

from optim.models.containers.series import FloatArray

FLAT_LEVEL = 0.95
"""Level of the quantiles of `flat` and `slot`."""


class Asking(StrEnum):
    """How requests follow from earlier runs."""

    PEAK = "peak"
    """The most of any run, for the whole life."""
    FLAT = "flat"
    """The 95 % quantile of all samples, for the whole life."""
    SLOT = "slot"
    """The 95 % quantile of the samples in the slot and its two neighbours."""


def earlier_runs(values: FloatArray, number: int, error: float, rng: np.random.Generator) -> list[FloatArray]:
    """Return runs like a job's own that differ in lengths and levels by factors exp(error N(0, 1)).

    Parameters
    ----------
    values
        Shape (samples, R): the run to come, which nobody knows.
    number, error
        Of runs, and how far each is off.
    rng
        Source of randomness.
    """
    runs = []
    for _ in range(number):
        length = max(1, round(len(values) * float(np.exp(error * rng.normal()))))
        place = np.minimum((np.arange(length) * len(values) / length).astype(np.int64), len(values) - 1)
        runs.append(values[place] * np.exp(error * rng.normal(size=(1, values.shape[1]))))
    return runs


def requests(runs: Sequence[FloatArray], asking: Asking, slot_samples: int) -> FloatArray:
    """Return what a job asks for in each slot of its work, shape (slots, R), as many slots as its longest run has."""
    slots = max(-(-len(run) // slot_samples) for run in runs)
    whole = np.concatenate(runs)
    if asking is Asking.PEAK:
        return np.tile(whole.max(axis=0), (slots, 1))
    if asking is Asking.FLAT:
        return np.tile(np.quantile(whole, FLAT_LEVEL, axis=0), (slots, 1))
    found = []
    for slot in range(slots):
        begin, end = max(0, slot - 1) * slot_samples, (slot + 2) * slot_samples
        near = [run[begin:end] for run in runs if len(run) > begin]
        found.append(np.quantile(np.concatenate(near), FLAT_LEVEL, axis=0))
    return np.array(found)
