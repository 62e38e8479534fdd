"""From containers' consumption to phases: fit, label, forecast, watch, update."""

import inspect
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from optim.core.errors import InvalidOptionError, InvalidProblemError, NotAllowedError
from optim.models.containers.series import UNKNOWN_PHASE, ContainerSeries, FloatArray, IntArray, Resource
from optim.phases.anomaly import AnomalyKind, LinearForecast
from optim.phases.clustering import CountRow, assign, choose_count, fit_clusters
from optim.phases.drift import Calibration, DriftTrigger, calibrate, container_means
from optim.phases.encoders import Encoder, make_encoder
from optim.phases.encoders.crbm import CrbmEncoder
from optim.phases.forecasting import ForecastMethod, PhaseForecaster
from optim.phases.grid import Grid, to_grid
from optim.phases.labelling import cluster_order, majority
from optim.phases.names import phase_names
from optim.phases.runs import PhaseRuns, runs_of
from optim.phases.scaling import Scaling
from optim.phases.statistics import PhaseStatistics, mixture_quantile, phase_statistics
from optim.phases.transitions import ChangeModel, choose_order, fit_changes, transition_graph
from optim.phases.tree import Prototypes, packed_sequences, prefix_tree, prototypes
from optim.phases.windows import ScaledSeries, split_containers

if TYPE_CHECKING:
    import networkx as nx

DEFAULT_ENCODER = "hmm"
USUAL_PHASES = 5
"""Hint for encoders that need a number of phases before it is known; the paper's."""

HELD_OUT_SHARE = 0.2
STATISTICS_DELAYS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class PhasedSeries:
    """Series on the model's grid with their phases.

    Attributes
    ----------
    series
        On the grid.
    labels
        Shape (T,): phase of each sample, -1 where history is insufficient.
    """

    series: ContainerSeries
    labels: IntArray


class PhaseModel:
    """Phases of containers, found without labels; with the conventions of scikit-learn.

    Parameters
    ----------
    encoder
        ``window-statistics``, ``crbm``, ``hmm`` or ``raw-window``.
    encoder_options
        Options of the encoder by name.
    num_phases
        Number of phases; None for the largest number that gains and is stable, see `choose_count`.
    resources
        Resources to use; None for all that the series have.
    interval_s, max_gap_s
        Grid, and the longest gap that is bridged.
    has_logarithm
        Whether resources are scaled by their logarithm.
    is_padded
        Whether the first sample is repeated as history, so that every sample has a phase.
    smoothing
        A phase is the majority of the last so many labels.
    min_dwell
        Samples that a run needs to count in sequences; shorter ones belong to the run before.
    order
        Phases that the next phase depends on; None for the order that held-out containers favour.
    anomaly_rate
        Share of usual samples that count as anomalies.
    seed
        Same series, parameters and seed, same model.

    Attributes
    ----------
    num_phases_, names_, centres_
        K, a name for each phase, and the clusters' centres.
    statistics_
        What each phase consumes.
    runs_
        Runs of all training containers.
    order_, order_likelihoods_
        Order of the change model, and what held-out containers say of orders 1, 2, ....
    count_rows_
        What the rule for the number of phases saw; empty where the number was given.
    calibrations_
        Of anomaly scores by kind.

    Examples
    --------
    >>> from optim.workloads.containers import ContainerOptions, generate_containers
    >>> series = generate_containers(ContainerOptions(num_containers=20), seed=0)
    >>> model = PhaseModel(encoder="raw-window", num_phases=4).fit(series)
    >>> model.predict(series).shape == (series.num_samples,)
    True
    """

    def __init__(
        self,
        *,
        encoder: str = DEFAULT_ENCODER,
        encoder_options: Mapping[str, Any] | None = None,
        num_phases: int | None = None,
        resources: Sequence[str] | None = None,
        interval_s: float = 15.0,
        max_gap_s: float = 60.0,
        has_logarithm: bool = True,
        is_padded: bool = False,
        smoothing: int = 1,
        min_dwell: int = 2,
        order: int | None = None,
        anomaly_rate: float = 0.01,
        seed: int = 0,
    ) -> None:
        self.encoder = encoder
        self.encoder_options = encoder_options
        self.num_phases = num_phases
        self.resources = resources
        self.interval_s = interval_s
        self.max_gap_s = max_gap_s
        self.has_logarithm = has_logarithm
        self.is_padded = is_padded
        self.smoothing = smoothing
        self.min_dwell = min_dwell
        self.order = order
        self.anomaly_rate = anomaly_rate
        self.seed = seed

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name."""
        del deep
        return {
            name: getattr(self, name) for name in inspect.signature(type(self).__init__).parameters if name != "self"
        }

    def set_params(self, **parameters: Any) -> Self:
        """Set parameters by name.

        Raises
        ------
        InvalidOptionError
            If there is no such parameter.
        """
        known = self.get_params()
        for name, value in parameters.items():
            if name not in known:
                raise InvalidOptionError(f"unknown parameter {name!r}; PhaseModel knows: {', '.join(known)}")
            setattr(self, name, value)
        return self

    def fit(self, series: ContainerSeries, y: object = None) -> Self:
        """Find phases.

        A fifth of the containers is held out: it decides on the number of phases and the order of changes and calibrates
        the anomaly scores. Statistics, runs, tree and graph are those of all containers.

        Parameters
        ----------
        series
            Any number of containers with any named resources; true phases, if any, aren't looked at.
        y
            Ignored.

        Raises
        ------
        InvalidOptionError
            If a parameter is out of its range.
        InvalidProblemError
            If the series are too short for the windows.
        """
        del y
        self._check()
        _require_series(series)
        chosen = series if self.resources is None else series.select_resources(self.resources)
        self.resources_: tuple[Resource, ...] = chosen.resources
        grid = to_grid(chosen, self.interval_s, self.max_gap_s).series
        rng = np.random.default_rng(self.seed)
        self.encoder_: Encoder = make_encoder(self.encoder, self.encoder_options)
        delays = max(self.encoder_.num_delays, STATISTICS_DELAYS)
        if grid.lengths.max() <= delays:
            raise InvalidProblemError(
                f"no series has more than {delays} samples at {self.interval_s:g} s without a gap; "
                "give longer series, a shorter interval or fewer delays"
            )
        split_segments = split_containers(grid, HELD_OUT_SHARE, rng, delays + 1)
        training, held = (grid.select(part) for part in split_segments)
        self.scaling_ = Scaling.fit(training.values, has_logarithm=self.has_logarithm)
        scaled = self._scaled(training)
        self.encoder_.fit(scaled, self.num_phases or USUAL_PHASES, self.seed)
        self._cluster(training, held, grid)
        self.linear_forecast_ = LinearForecast.fit(scaled)
        self.calibrations_ = self._calibrate(held)
        self._describe(grid)
        split = [runs_of(self._labels(part), part.lengths, self.min_dwell) for part in (training, held)]
        chosen_order, self.order_likelihoods_ = choose_order(split[0], split[1], self.num_phases_)
        self.order_ = self.order or chosen_order
        self._forget()
        return self

    def _check(self) -> None:
        for name in ("num_phases", "order"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidOptionError(f"{name} must be at least 1 or None, got {value}")
        for name in ("smoothing", "min_dwell"):
            if getattr(self, name) < 1:
                raise InvalidOptionError(f"{name} must be at least 1, got {getattr(self, name)}")

    def _cluster(self, training: ContainerSeries, held: ContainerSeries, grid: ContainerSeries) -> None:
        """Set the number of phases and the centres, in their final order."""
        codes, rows = self._codes(training)
        owner = np.repeat(training.container_index, training.lengths)[rows]
        number = self.num_phases
        self.count_rows_: tuple[CountRow, ...] = ()
        if number is None:
            held_codes, _ = self._codes(held)
            number, self.count_rows_ = choose_count(codes, owner, held_codes, self.seed)
            if not any(row.passes for row in self.count_rows_):
                warnings.warn(
                    "no number of phases gains and is stable; 2 are used: give num_phases, or another encoder",
                    stacklevel=3,
                )
        centres = fit_clusters(codes, number, self.seed)
        every, where = self._codes(grid)
        labels = assign(every, centres)
        self.centres_ = centres[cluster_order(grid.values[where], labels, number, self.resources_)]
        self.weights_ = np.bincount(assign(codes, self.centres_), minlength=number).astype(np.float64)

    def _calibrate(self, held: ContainerSeries) -> dict[str, Calibration]:
        found = {}
        for kind in self.anomaly_kinds:
            scores = self._scores(held, kind)
            known = np.isfinite(scores)
            owner = np.repeat(held.container_index, held.lengths)[known]
            noise = self.linear_forecast_.least_score if kind == AnomalyKind.FORECAST_ERROR else 0.0
            found[str(kind)] = calibrate(scores[known], owner, self.anomaly_rate, noise)
        return found

    def _describe(self, grid: ContainerSeries) -> None:
        labels = self._labels(grid)
        self.statistics_: PhaseStatistics = phase_statistics(grid, labels, self.num_phases_, STATISTICS_DELAYS)
        self.names_ = phase_names(self.statistics_, self.resources_)
        self.runs_: PhaseRuns = runs_of(labels, grid.lengths, self.min_dwell)

    @property
    def num_phases_(self) -> int:
        """K."""
        return len(self.centres_)

    @property
    def anomaly_kinds(self) -> tuple[AnomalyKind, ...]:
        """Kinds of anomaly scores that the encoder allows."""
        kinds = (AnomalyKind.FORECAST_ERROR, AnomalyKind.FREE_ENERGY)
        return kinds if isinstance(self.encoder_, CrbmEncoder) else kinds[:1]

    def prepare(self, series: ContainerSeries) -> Grid:
        """Return series on the model's grid, with the model's resources only."""
        self._require_fit()
        _require_series(series)
        chosen = series.select_resources([resource.name for resource in self.resources_])
        return to_grid(chosen, self.interval_s, self.max_gap_s)

    def label(self, series: ContainerSeries) -> PhasedSeries:
        """Return series on the model's grid with the phase of each sample."""
        grid = self.prepare(series).series
        return PhasedSeries(series=grid, labels=self._labels(grid))

    def predict(self, series: ContainerSeries) -> IntArray:
        """Return the phase of each sample given, shape (T,), -1 where history is insufficient.

        Irregular samples have the phase of the grid's point that they belong to.
        """
        grid = self.prepare(series)
        return self._labels(grid.series)[grid.row]

    def transform(self, series: ContainerSeries) -> FloatArray:
        """Return the code of each sample given, shape (T, width), NaN where history is insufficient."""
        grid = self.prepare(series)
        codes, rows = self._codes(grid.series)
        spread = np.full((grid.series.num_samples, codes.shape[1]), np.nan)
        spread[rows] = codes
        return spread[grid.row]

    def fit_predict(self, series: ContainerSeries, y: object = None) -> IntArray:
        """Fit, and return the phase of each sample."""
        return self.fit(series, y).predict(series)

    def forecast(
        self,
        series: ContainerSeries,
        num_steps: int = 40,
        method: ForecastMethod | str = ForecastMethod.SEMI_MARKOV,
    ) -> FloatArray:
        """Return the probability of each phase after the end of each segment of the grid.

        Returns
        -------
        numpy.ndarray
            Shape (S, num_steps, K); NaN for a segment without a phase.
        """
        phased = self.label(series)
        runs = runs_of(phased.labels, phased.series.lengths, self.min_dwell)
        found = np.full((runs.num_segments, num_steps, self.num_phases_), np.nan)
        for segment, (begin, end) in enumerate(zip(runs.offsets[:-1].tolist(), runs.offsets[1:].tolist(), strict=True)):
            if end > begin:
                dwell = int(runs.dwell[end - 1])
                found[segment] = self.forecaster.forecast(runs.phase[begin:end], dwell, num_steps, method)
        return found

    def demand_quantile(
        self,
        series: ContainerSeries,
        level: float,
        num_steps: int = 40,
        method: ForecastMethod | str = ForecastMethod.SEMI_MARKOV,
    ) -> FloatArray:
        """Return the least demand not exceeded with probability `level` at a random one of the next samples.

        Each phase's distribution over the training containers counts with the share of the next samples that the
        forecast expects in it.

        Returns
        -------
        numpy.ndarray
            Shape (S, R); NaN for a segment without a phase.
        """
        if not 0 <= level <= 1:
            raise InvalidOptionError(f"level must be in [0, 1], got {level}")
        shares = self.forecast(series, num_steps, method).mean(axis=1)
        found = np.full((len(shares), len(self.resources_)), np.nan)
        seen = self.statistics_.count > 0
        for segment in np.flatnonzero(np.isfinite(shares[:, 0])).tolist():
            weights = np.where(seen, shares[segment], 0.0)
            for place in range(len(self.resources_)):
                own = self.statistics_.quantiles[:, place]
                found[segment, place] = mixture_quantile(own, weights / weights.sum(), level)
        return found

    def anomaly_scores(
        self, series: ContainerSeries, kind: AnomalyKind | str = AnomalyKind.FORECAST_ERROR
    ) -> FloatArray:
        """Return the anomaly score of each sample given, shape (T,), NaN where history is insufficient.

        Samples above ``calibrations_[kind].threshold`` are anomalies.

        Raises
        ------
        InvalidOptionError
            If the encoder doesn't allow this kind.
        """
        grid = self.prepare(series)
        return self._scores(grid.series, self._kind(kind))[grid.row]

    def container_scores(
        self, series: ContainerSeries, kind: AnomalyKind | str = AnomalyKind.FORECAST_ERROR
    ) -> FloatArray:
        """Return the mean anomaly score of each container that has one, for a `DriftTrigger`."""
        grid = self.prepare(series).series
        scores = self._scores(grid, self._kind(kind))
        known = np.isfinite(scores)
        return container_means(scores[known], np.repeat(grid.container_index, grid.lengths)[known])

    def drift_trigger(self, kind: AnomalyKind | str = AnomalyKind.FORECAST_ERROR) -> DriftTrigger:
        """Return a trigger that says when containers no longer look like those that the model was fitted on."""
        self._require_fit()
        return DriftTrigger(self.calibrations_[str(self._kind(kind))])

    def partial_fit(self, series: ContainerSeries, y: object = None) -> Self:
        """Take in further containers: centres move, statistics and runs grow; scaling, encoder and names stay.

        Each centre becomes the mean of the codes that it has had and those that are now nearest to it. On a model that
        isn't fitted, this is `fit`.
        """
        del y
        if not hasattr(self, "centres_"):
            return self.fit(series)
        grid = self.prepare(series).series
        # Whatever can be refused is refused before anything changes.
        calibrations = self._calibrate(grid)
        codes, _ = self._codes(grid)
        labels = assign(codes, self.centres_)
        number = np.bincount(labels, minlength=self.num_phases_).astype(np.float64)
        sums = np.stack([np.bincount(labels, weights=part, minlength=self.num_phases_) for part in codes.T], axis=1)
        total = np.maximum(self.weights_ + number, 1.0)
        self.centres_ = self.centres_ + (sums - number[:, None] * self.centres_) / total[:, None]
        self.weights_ = self.weights_ + number
        labels = self._labels(grid)
        fresh = phase_statistics(grid, labels, self.num_phases_, STATISTICS_DELAYS)
        self.statistics_ = self.statistics_.merged(fresh)
        self.runs_ = self.runs_.joined(runs_of(labels, grid.lengths, self.min_dwell))
        self.calibrations_ = calibrations
        self._forget()
        return self

    @cached_property
    def forecaster(self) -> PhaseForecaster:
        """Forecasts from the runs."""
        self._require_fit()
        return PhaseForecaster(self.runs_, self.num_phases_)

    @cached_property
    def changes(self) -> ChangeModel:
        """Probabilities of the next phase, of order `order_`."""
        self._require_fit()
        return fit_changes(self.runs_, self.num_phases_, self.order_)

    def graph(self, order: int | None = None) -> "nx.DiGraph[tuple[int, ...]]":
        """Return the graph of changes, of `order_` unless an order is given; see `transition_graph`."""
        self._require_fit()
        return transition_graph(self.runs_, self.names_, order or self.order_)

    def tree(self) -> "nx.DiGraph[tuple[str, ...]]":
        """Return the prefix tree of packed sequences; see `prefix_tree`."""
        self._require_fit()
        return prefix_tree(packed_sequences(self.runs_))

    def prototypes(self) -> Prototypes:
        """Return the fewest paths that cover nine containers in ten."""
        self._require_fit()
        return prototypes(packed_sequences(self.runs_))

    def save(self, path: str | Path) -> None:
        """Write the model: arrays and a JSON header, nothing that runs when it is read."""
        from optim.phases.model_file import save_model

        self._require_fit()
        save_model(self, path)

    @classmethod
    def load(cls, path: str | Path) -> "PhaseModel":
        """Read a model.

        Raises
        ------
        InvalidProblemError
            If the file holds none.
        """
        from optim.phases.model_file import load_model

        return load_model(path)

    def _forget(self) -> None:
        """Drop what is computed from the runs on first use."""
        for name in ("forecaster", "changes"):
            self.__dict__.pop(name, None)

    def _require_fit(self) -> None:
        if not hasattr(self, "centres_"):
            raise NotAllowedError("this PhaseModel isn't fitted; call fit, or load one")

    def _kind(self, kind: AnomalyKind | str) -> AnomalyKind:
        self._require_fit()
        if kind not in list(AnomalyKind) or kind not in self.anomaly_kinds:
            known = ", ".join(self.anomaly_kinds)
            raise InvalidOptionError(
                f"a model with encoder {self.encoder!r} has no score {str(kind)!r}; it has: {known}"
            )
        return AnomalyKind(kind)

    def _scaled(self, grid: ContainerSeries) -> ScaledSeries:
        scaled = ScaledSeries(values=self.scaling_.apply(grid.values), lengths=grid.lengths)
        return scaled.padded(self.encoder_.num_delays) if self.is_padded else scaled

    def _codes(self, grid: ContainerSeries) -> tuple[FloatArray, IntArray]:
        """Return codes and their rows of the grid."""
        codes = self.encoder_.encode(self._scaled(grid))
        if self.is_padded:
            return codes, np.arange(grid.num_samples)
        plain = ScaledSeries(values=grid.values, lengths=grid.lengths)
        return codes, plain.ends(self.encoder_.num_delays)

    def _labels(self, grid: ContainerSeries) -> IntArray:
        labels = np.full(grid.num_samples, UNKNOWN_PHASE, dtype=np.int64)
        codes, rows = self._codes(grid)
        missing = 0 if self.is_padded else self.encoder_.num_delays
        counts = np.maximum(grid.lengths - missing, 0)
        labels[rows] = majority(assign(codes, self.centres_), counts, self.smoothing, self.num_phases_)
        return labels

    def _scores(self, grid: ContainerSeries, kind: AnomalyKind) -> FloatArray:
        series = ScaledSeries(values=self.scaling_.apply(grid.values), lengths=grid.lengths)
        scores = np.full(grid.num_samples, np.nan)
        if kind == AnomalyKind.FREE_ENERGY and isinstance(self.encoder_, CrbmEncoder):
            scores[series.ends(self.encoder_.num_delays)] = self.encoder_.free_energy(series)
        else:
            scores[series.ends(3)] = self.linear_forecast_.scores(series)
        return scores


def _require_series(series: object) -> None:
    if not isinstance(series, ContainerSeries):
        raise InvalidProblemError(
            f"series must be a ContainerSeries, got {type(series).__name__}; make one with ContainerSeries.from_arrays, "
            "or read one with optim.workloads.containers.read_containers"
        )
