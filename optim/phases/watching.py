"""Containers one after the other against a model: their anomalies, how odd they are, and whether an update is due."""

from dataclasses import dataclass

import numpy as np

from optim.models.containers.series import ContainerSeries
from optim.phases.anomaly import AnomalyKind
from optim.phases.model import PhaseModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a model says of a container.

    Attributes
    ----------
    container
        Which.
    samples
        Samples of the grid that have a score.
    anomalies
        Those above the calibrated threshold.
    score
        Mean score; None, as the next two, where no sample has enough history.
    excess
        The score in deviations above what was usual when the model was fitted.
    drift_sum
        The trigger's cumulative sum after this container.
    is_update_due
        Whether the trigger has gone off, at this container or before.
    """

    container: str
    samples: int
    anomalies: int
    score: float | None
    excess: float | None
    drift_sum: float | None
    is_update_due: bool


def watch(model: PhaseModel, series: ContainerSeries, kind: AnomalyKind | str | None = None) -> tuple[Reading, ...]:
    """Look at containers in their order, with one drift trigger for all.

    Parameters
    ----------
    model
        A fitted model.
    series
        Containers that it wasn't fitted on.
    kind
        The anomaly score; the model's `usual_kind` unless given.

    Returns
    -------
    tuple of Reading
        One a container; parts between gaps count together.

    Raises
    ------
    InvalidOptionError
        If the encoder doesn't allow this kind.
    """
    grid = model.prepare(series).series
    scores = model.anomaly_scores(grid, kind)
    owner = grid.owner
    trigger = model.drift_trigger(kind)
    readings = []
    for place, name in enumerate(dict.fromkeys(grid.containers)):
        own = scores[owner == place]
        own = own[np.isfinite(own)]
        score = float(own.mean()) if len(own) else None
        if score is not None:
            trigger.update(score)
        readings.append(
            Reading(
                container=name,
                samples=len(own),
                anomalies=int((own > trigger.calibration.threshold).sum()),
                score=score,
                excess=None if score is None else trigger.excess(score),
                drift_sum=None if score is None else trigger.sum,
                is_update_due=trigger.is_triggered,
            )
        )
    return tuple(readings)
