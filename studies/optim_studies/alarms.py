"""Alarm thresholds for a given rate of false alarms, cumulative sums (CUSUM), and detection metrics."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from optim.core.arrays import FloatArray, IntArray
from optim.core.errors import InvalidProblemError, check_in

SECONDS_PER_DAY = 86_400.0

MUTE_S = 600.0
"""Seconds without alarms after an alarm of a container, so that a fault does not raise one at each sample."""

SLACK = 0.5
"""Slack of `accumulated`, in standard deviations: half of the shift for which detection is fastest."""


def accumulated(scores: FloatArray, lengths: IntArray, mean: float, deviation: float) -> FloatArray:
    """Return ``s <- max(0, s + (score - mean) / deviation - slack)`` along each segment, from 0; a missing score adds 0.

    Parameters
    ----------
    scores
        Shape (T,): score of each sample, NaN if missing.
    lengths
        Shape (S,): samples of each segment.
    mean, deviation
        Mean and standard deviation of scores without faults.

    References
    ----------
    Page (1954). Continuous inspection schemes. doi:10.1093/biomet/41.1-2.100.
    """
    step = np.where(np.isnan(scores), 0.0, (scores - mean) / deviation - SLACK)
    total, begin = np.empty(len(step)), 0
    for length in lengths.tolist():
        # The recursion equals the running sum minus its minimum so far (at most 0).
        run = np.cumsum(step[begin : begin + length])
        total[begin : begin + length] = run - np.minimum.accumulate(np.minimum(run, 0.0))
        begin += length
    return total


def alarms(scores: FloatArray, lengths: IntArray, threshold: float, mute: int) -> NDArray[np.bool_]:
    """Return the samples with an alarm, shape (T,): scores above the threshold without an alarm in the previous `mute` samples."""
    raised = np.zeros(len(scores), dtype=np.bool_)
    above = scores > threshold  # False for NaN
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
    """Return the smallest observed score that, as a threshold, raises at most `per_day` alarms per container-day without faults.

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
    # The number of alarms falls with the threshold, with few exceptions; the returned threshold always meets the allowed rate.
    while high - low > 1:
        middle = (low + high) // 2
        if alarms(scores, lengths, float(known[middle]), mute).sum() <= allowed:
            high = middle
        else:
            low = middle
    return float(known[high])


def mute_samples(interval_s: float) -> int:
    """Return the number of samples without alarms after an alarm."""
    return max(0, round(MUTE_S / interval_s))


@dataclass(frozen=True, slots=True, kw_only=True)
class Detection:
    """Detection metrics.

    Attributes
    ----------
    recall
        Fraction of faults with an alarm.
    precision
        Fraction of alarms during faults; None without alarms.
    delay_min
        Median minutes from the onset of a detected fault to its first alarm; None if no fault is detected.
    false_per_day
        Alarms outside faults per container-day without faults.
    """

    recall: float
    precision: float | None
    delay_min: float | None
    false_per_day: float


def score_alarms(
    raised: NDArray[np.bool_], lengths: IntArray, onset: IntArray, end: IntArray, interval_s: float
) -> Detection:
    """Compare alarms, shape (T,), with each segment's fault from `onset` to before `end`, shape (S,), -1 for none."""
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
