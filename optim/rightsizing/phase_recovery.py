"""Recovery of known phases by each encoder, fitted on some generated containers and scored on others."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

import numpy as np

from optim.core.arrays import IntArray
from optim.core.errors import InvalidOptionError
from optim.core.progress import Progress
from optim.core.stopping import Interruption, StoppingCriterion
from optim.execution import AbstractTask, Engine, in_order
from optim.phases.clustering import adjusted_mutual_information, adjusted_rand_index, confusion, matched_f1, near_change
from optim.phases.model import PhaseModel
from optim.statistics import Interval
from optim.workloads.containers import PHASE_NAMES, ContainerOptions, generate_containers

TRAINING_SHARE = 0.8
HISTORY = 3
"""For all encoders, only samples with at least this many earlier samples are scored. Samples without a phase form one class."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """Scores of one encoder with one seed.

    Attributes
    ----------
    encoder, seed
        Name of the encoder, and seed.
    ari
        Adjusted Rand index over the test containers' samples.
    ari_inner
        The same index without the three samples before and after each change of phase.
    ami
        Adjusted mutual information.
    f1
        F1 of each true phase, after fitted phases are matched with true ones; None if no sample has the true phase.
    num_phases
        Number of fitted phases.
    confusion
        Number of samples by true phase and fitted phase.
    """

    encoder: str
    seed: int
    ari: float
    ari_inner: float
    ami: float
    f1: tuple[float | None, ...]
    num_phases: int
    confusion: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverySummary:
    """Scores of one encoder over all seeds.

    Attributes
    ----------
    encoder
        Name of the encoder.
    ari, ari_low, ari_high
        Mean adjusted Rand index and its 95 % interval (Student's t over the seeds); None with one seed.
    ari_inner, ami
        Means of `Recovery.ari_inner` and of `Recovery.ami`.
    f1
        Mean F1 by true phase, over the seeds that have the phase; None if no seed has it.
    seeds, ari_by_seed
        The seeds, and the adjusted Rand index of each.
    """

    encoder: str
    ari: float
    ari_low: float | None
    ari_high: float | None
    ari_inner: float
    ami: float
    f1: Mapping[str, float | None]
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
        Options of the generated containers, which include training and test containers.
    encoder, encoder_options
        Name and options of the encoder.
    seed
        Seed of the containers and of the model.
    num_phases
        Number of phases to fit; None to choose it automatically.
    test_drift
        Drift of the test containers; 0 to use the drift in `options`, as for the training containers.
    **parameters
        Further parameters of `PhaseModel`.
    """
    number = round(TRAINING_SHARE * options.num_containers)
    if not 0 < number < options.num_containers:
        raise InvalidOptionError(f"at least 3 containers are needed, got {options.num_containers}")
    containers = generate_containers(options, seed)
    training, test = containers.select(np.arange(number)), containers.select(np.arange(number, options.num_containers))
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


@dataclass(frozen=True, kw_only=True)
class RecoveryTask(AbstractTask[tuple[str, int], Recovery]):
    """Score encoders on seeds: pieces are (encoder, seed).

    Parameters
    ----------
    options, num_phases, test_drift
        As in `recover`.
    encoder_options
        Options of each encoder, by its name.
    parameters
        Further parameters of `PhaseModel`.
    """

    options: ContainerOptions
    num_phases: int | None
    encoder_options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    test_drift: float = 0.0
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """Title of the progress display."""
        return "score"

    def name(self, piece: tuple[str, int]) -> str:
        """Return a label with encoder and seed."""
        return f"{piece[0]}, seed {piece[1]}"

    def kind(self, piece: tuple[str, int]) -> str:
        """Return the encoder's name; its loops are compiled once per process."""
        return piece[0]

    def do(self, piece: tuple[str, int], stop: StoppingCriterion, progress: Progress) -> Recovery:
        """Score an encoder on a seed."""
        del stop, progress
        encoder, seed = piece
        return recover(
            *(self.options, encoder, seed),
            num_phases=self.num_phases,
            encoder_options=self.encoder_options.get(encoder),
            test_drift=self.test_drift,
            **self.parameters,
        )

    def by_encoder(
        self, encoders: Sequence[str], seeds: Sequence[int], engine: Engine, stop: Interruption, progress: Progress
    ) -> Iterator[list[Recovery]]:
        """Yield the rows of each encoder over all seeds; after a `stop`, only of encoders with all seeds done."""
        pieces = [(encoder, seed) for encoder in encoders for seed in seeds]
        results = in_order(engine.run(self, pieces, stop, progress))
        for _, group in groupby(results, key=lambda row: row.encoder):
            rows = list(group)
            if len(rows) == len(seeds):
                yield rows


def _scored(
    encoder: str, seed: int, num_phases: int, truth: IntArray, labels: IntArray, scored: Any, inner: Any
) -> Recovery:
    """Return an encoder's scores: its labels compared with the true phases."""
    return Recovery(
        encoder=encoder,
        seed=seed,
        ari=adjusted_rand_index(truth[scored], labels[scored]),
        ari_inner=adjusted_rand_index(truth[inner], labels[inner]),
        ami=adjusted_mutual_information(truth[scored], labels[scored]),
        f1=_by_phase(truth[scored], labels[scored]),
        num_phases=num_phases,
        confusion=tuple(tuple(row) for row in confusion(truth[scored], labels[scored]).tolist()),
    )


def _by_phase(truth: IntArray, labels: IntArray) -> tuple[float | None, ...]:
    """Return F1 by phase, None for phases without samples."""
    scores = matched_f1(truth, labels)
    return tuple(float(scores[k]) if (truth == k).any() else None for k in range(len(PHASE_NAMES)))


def summarise(rows: Sequence[Recovery]) -> RecoverySummary:
    """Summarise an encoder's rows."""
    values = np.array([row.ari for row in rows])
    low = high = None
    if len(rows) > 1:
        interval = Interval.of(values)
        low, high = interval.low, interval.high
    f1 = {}
    for phase, name in enumerate(PHASE_NAMES):
        seen = [score for row in rows if (score := row.f1[phase]) is not None]
        f1[name] = float(np.mean(seen)) if seen else None
    return RecoverySummary(
        encoder=rows[0].encoder,
        ari=float(values.mean()),
        ari_low=low,
        ari_high=high,
        ari_inner=float(np.mean([row.ari_inner for row in rows])),
        ami=float(np.mean([row.ami for row in rows])),
        f1=f1,
        seeds=tuple(row.seed for row in rows),
        ari_by_seed=tuple(values.tolist()),
    )
