"""How well each encoder finds phases that are known: fitted on some generated containers, scored on others."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from optim.core.errors import InvalidOptionError
from optim.models.containers.series import IntArray
from optim.phases.agreement import adjusted_mutual_information, adjusted_rand_index, confusion, matched_f1, near_change
from optim.phases.model import PhaseModel
from optim.workloads.containers import PHASE_NAMES, ContainerOptions, generate_containers

TRAINING_SHARE = 0.8
HISTORY = 3
"""Samples of history from which on a sample is scored, whatever the encoder; one that has no phase there yet counts as a
class of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """One encoder on one seed.

    Attributes
    ----------
    encoder, seed
        Which.
    ari
        Adjusted Rand index over the test containers' samples.
    ari_inner
        The same without the samples within three of a change of phase.
    ami
        Adjusted mutual information.
    f1
        F1 of each true phase after matching.
    num_phases
        Phases that were fitted.
    confusion
        Samples by true phase and fitted phase.
    """

    encoder: str
    seed: int
    ari: float
    ari_inner: float
    ami: float
    f1: tuple[float, ...]
    num_phases: int
    confusion: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverySummary:
    """One encoder over all seeds.

    Attributes
    ----------
    encoder
        Which.
    ari, ari_low, ari_high
        Mean adjusted Rand index and its 95 % interval (Student's t over the seeds); None where there is one seed.
    ari_inner, ami
        Means, see `Recovery`.
    f1
        Mean F1 by true phase.
    seeds, ari_by_seed
        The seeds and their indices.
    """

    encoder: str
    ari: float
    ari_low: float | None
    ari_high: float | None
    ari_inner: float
    ami: float
    f1: Mapping[str, float]
    seeds: tuple[int, ...]
    ari_by_seed: tuple[float, ...]


def recover(
    options: ContainerOptions,
    encoder: str,
    seed: int,
    *,
    num_phases: int | None = len(PHASE_NAMES),
    encoder_options: Mapping[str, Any] | None = None,
    test_drift: float = 0.0,
    **parameters: Any,
) -> Recovery:
    """Fit a model on four fifths of the generated containers and score it on the rest.

    Parameters
    ----------
    options
        Containers, training and test together.
    encoder, encoder_options
        The encoder.
    seed
        Of the containers and of the model.
    num_phases
        Phases to fit; None for the rule.
    test_drift
        Drift of the test containers alone.
    **parameters
        Further parameters of `PhaseModel`.
    """
    number = round(TRAINING_SHARE * options.num_containers)
    if not 0 < number < options.num_containers:
        raise InvalidOptionError(f"at least 3 containers are needed, got {options.num_containers}")
    drawn = generate_containers(options, seed)
    training, test = drawn.select(np.arange(number)), drawn.select(np.arange(number, options.num_containers))
    if test_drift:
        moved = generate_containers(replace(options, drift=test_drift), seed)
        test = moved.select(np.arange(number, options.num_containers))
    parameters = {"interval_s": options.interval_s, "max_gap_s": 4 * options.interval_s, **parameters}
    model = PhaseModel(
        encoder=encoder, encoder_options=encoder_options, num_phases=num_phases, seed=seed, **parameters
    ).fit(training)
    phased = model.label(test)
    grid = phased.series
    assert grid.phase is not None  # generated
    is_scored = grid.place >= HISTORY
    labels = np.where(phased.labels < 0, model.num_phases_, phased.labels)
    is_inner = is_scored & ~near_change(grid.phase, grid.lengths, HISTORY)
    return _scored(encoder, seed, model.num_phases_, grid.phase, labels, is_scored, is_inner)


def _scored(
    encoder: str, seed: int, num_phases: int, truth: IntArray, labels: IntArray, scored: Any, inner: Any
) -> Recovery:
    """Compare truth and labels."""
    return Recovery(
        encoder=encoder,
        seed=seed,
        ari=adjusted_rand_index(truth[scored], labels[scored]),
        ari_inner=adjusted_rand_index(truth[inner], labels[inner]),
        ami=adjusted_mutual_information(truth[scored], labels[scored]),
        f1=tuple(matched_f1(truth[scored], labels[scored]).tolist()),
        num_phases=num_phases,
        confusion=tuple(tuple(row) for row in confusion(truth[scored], labels[scored]).tolist()),
    )


def summarise(rows: Sequence[Recovery]) -> RecoverySummary:
    """Summarise an encoder's rows."""
    values = np.array([row.ari for row in rows])
    low = high = None
    if len(rows) > 1:
        from scipy.stats import t

        half = float(t.ppf(0.975, len(rows) - 1) * values.std(ddof=1) / np.sqrt(len(rows)))
        low, high = float(values.mean()) - half, float(values.mean()) + half
    f1 = np.mean([row.f1 for row in rows], axis=0)
    return RecoverySummary(
        encoder=rows[0].encoder,
        ari=float(values.mean()),
        ari_low=low,
        ari_high=high,
        ari_inner=float(np.mean([row.ari_inner for row in rows])),
        ami=float(np.mean([row.ami for row in rows])),
        f1=dict(zip(PHASE_NAMES, f1.tolist(), strict=False)),
        seeds=tuple(row.seed for row in rows),
        ari_by_seed=tuple(values.tolist()),
    )
