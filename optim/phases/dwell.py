"""How long phases last: hazards of leaving by time spent, where the end of a container hides the rest."""

from dataclasses import dataclass

import numpy as np

from optim.models.containers.series import FloatArray
from optim.phases.runs import PhaseRuns

LONGEST_DWELL = 512
"""Samples after which a hazard no longer changes."""

SHRINKAGE = 5.0
"""Samples at risk below which a hazard is drawn to the phase's mean hazard."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DwellModel:
    """Hazards of K phases.

    Attributes
    ----------
    hazard
        Shape (K, L): probability that a run of ``l + 1`` samples ends there, given that it lasted so long. Kaplan-Meier's ends over
        runs at risk, shrunk to the phase's mean hazard with the weight of `SHRINKAGE` runs: of few runs the mean says more.
    survival
        Shape (K, L): Kaplan-Meier estimate of the probability that a run is longer than ``l + 1`` samples.
    mean, p90
        Shape (K,): mean, up to L samples, and the 90 % quantile of the samples in a run.
    """

    hazard: FloatArray
    survival: FloatArray
    mean: FloatArray
    p90: FloatArray


def fit_dwells(runs: PhaseRuns, num_phases: int) -> DwellModel:
    """Estimate hazards; the last run of a segment ended with it, so its full length is unknown (censored).

    With d ends among n runs at risk, and h the phase's mean hazard, the hazard is ``(d + 5 h) / (n + 5)``; `survival`, `mean` and
    `p90` are Kaplan and Meier's, with ``d / n``.

    References
    ----------
    Kaplan and Meier (1958). Nonparametric estimation from incomplete observations. doi:10.1080/01621459.1958.10501452.
    """
    events = np.zeros((num_phases, LONGEST_DWELL))
    leaves = np.zeros((num_phases, LONGEST_DWELL))
    for phase, dwell in runs.sequences():
        place = np.minimum(dwell, LONGEST_DWELL) - 1
        np.add.at(leaves, (phase, place), 1)
        is_ended = (np.arange(len(phase)) < len(phase) - 1) & (dwell <= LONGEST_DWELL)
        np.add.at(events, (phase[is_ended], place[is_ended]), 1)
    at_risk = leaves[:, ::-1].cumsum(axis=1)[:, ::-1]
    # A phase that nobody left gets the smallest hazard that its time at risk allows.
    pooled = (events.sum(axis=1) + 0.5) / (at_risk.sum(axis=1) + 1.0)
    hazard = (events + SHRINKAGE * pooled[:, None]) / (at_risk + SHRINKAGE)
    plain = np.where(at_risk > 0, events / np.maximum(at_risk, 1.0), 0.0)
    survival: FloatArray = np.cumprod(1.0 - plain, axis=1, dtype=np.float64)
    mean = 1.0 + survival[:, :-1].sum(axis=1)
    is_over = survival <= 0.1 + 1e-12
    p90 = np.where(is_over.any(axis=1), is_over.argmax(axis=1) + 1, LONGEST_DWELL).astype(np.float64)
    return DwellModel(hazard=hazard, survival=survival, mean=mean, p90=p90)
