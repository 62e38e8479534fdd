"""Alarms at a set rate of false alarms, their sums (CUSUM), and how many faults they find."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from optim.core.arrays import FloatArray, IntArray
from optim.core.errors import InvalidProblemError, check_in

SECONDS_PER_DAY = 86_400.0

MUTE_S = 600.0
"""After an alarm a container raises none for so long: a fault is told once, not at each of its samples."""

SLACK = 0.5
"""Of `accumulated`, in deviations: half the shift that is to be found soonest."""


def accumulated(scores: FloatArray, lengths: IntArray, mean: float, deviation: float) -> FloatArray:
    """Return ``s <- max(0, s + (score - mean) / deviation - slack)`` along each segment, anew in each; 0 where there is no score.

    Parameters
    ----------
    scores
        Shape (T,), NaN where there is none.
    lengths
        Shape (S,).
    mean, deviation
        Of usual scores.

    References
    ----------
    Page (1954). Continuous inspection schemes. doi:10.1093/biomet/41.1-2.100.
    """
    step = np.where(np.isnan(scores), 0.0, (scores - mean) / deviation - SLACK)
    total, begin = np.empty(len(step)), 0
    for length in lengths.tolist():
        # The sum above its own least value so far: what starting anew at 0 comes to.
        run = np.cumsum(step[begin : begin + length])
        total[begin : begin + length] = run - np.minimum.accumulate(np.minimum(run, 0.0))
        begin += length
    return total


def alarms(scores: FloatArray, lengths: IntArray, threshold: float, mute: int) -> NDArray[np.bool_]:
    """Return the samples at which an alarm is raised, shape (T,): above the threshold, and none of the `mute` samples before it one."""
    raised = np.zeros(len(scores), dtype=np.bool_)
    above = scores > threshold  # NaN is not
    begin = 0
    for length in lengths.tolist():
        free = 0
        for place in np.flatnonzero(above[begin : begin + length]).tolist():
            if place >= free:
                raised[begin + place] = True
                free = place + mute + 1
        begin += length
    return raised


def threshold_for(scores: FloatArray, lengths: IntArray, per_day: float, interval_s: float) -> float:
    """Return the smallest observed score that raises at most so many alarms a container-day on series without faults.

    Raises
    ------
    InvalidOptionError
        If `per_day` isn't positive.
    InvalidProblemError
        If no sample has a score.
    """
    check_in("(0, inf)", {"per_day": per_day})
    known = np.unique(scores[np.isfinite(scores)])
    if not len(known):
        raise InvalidProblemError("no sample has a score: give longer series")
    allowed = per_day * len(scores) * interval_s / SECONDS_PER_DAY
    mute = mute_samples(interval_s)
    low, high = -1, len(known) - 1
    # With the threshold grow neither the samples above it nor, with few exceptions, the alarms: what is returned meets what is allowed.
    while high - low > 1:
        middle = (low + high) // 2
        if alarms(scores, lengths, float(known[middle]), mute).sum() <= allowed:
            high = middle
        else:
            low = middle
    return float(known[high])


def mute_samples(interval_s: float) -> int:
    """Return how many samples a container is silent after an alarm."""
    return max(0, round(MUTE_S / interval_s))


@dataclass(frozen=True, slots=True, kw_only=True)
class Detection:
    """How well faults are found.

    Attributes
    ----------
    recall
        Share of the faults during which an alarm is raised.
    precision
        Share of the alarms that are raised during a fault; None without an alarm.
    delay_min
        Median minutes from a found fault's begin to its first alarm; None where none is found.
    false_per_day
        Alarms a container-day outside of faults.
    """

    recall: float
    precision: float | None
    delay_min: float | None
    false_per_day: float


def score_alarms(
    raised: NDArray[np.bool_], lengths: IntArray, onset: IntArray, end: IntArray, interval_s: float
) -> Detection:
    """Compare alarms, shape (T,), with faults, from `onset` to before `end` by segment, -1 for none, shape (S,) both."""
    starts = np.cumsum(lengths) - lengths
    segment = np.repeat(np.arange(len(lengths)), lengths)
    place = np.arange(len(raised)) - starts[segment]
    is_fault = (onset[segment] >= 0) & (place >= onset[segment]) & (place < end[segment])
    true = raised & is_fault
    detected, first = np.unique(segment[true], return_index=True)
    delays = (place[true][first] - onset[detected]) * interval_s / 60.0
    number = int(raised.sum())
    days = float((~is_fault).sum()) * interval_s / SECONDS_PER_DAY
    return Detection(
        recall=len(detected) / max(1, int((onset >= 0).sum())),
        precision=float(true.sum()) / number if number else None,
        delay_min=float(np.median(delays)) if len(delays) else None,
        false_per_day=float((raised & ~is_fault).sum()) / days if days else 0.0,
    )
