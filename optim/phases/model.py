"""The phase model of container metrics: fits, labels, forecasts, anomaly scores, updates, and files."""

import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, fields
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from optim.core.archives import LARGEST, Arrays, Field, check_fields, read_arrays, write_arrays
from optim.core.arrays import FloatArray, IntArray
from optim.core.errors import (
    InvalidOptionError,
    InvalidProblemError,
    NotAllowedError,
    OptimError,
    check_in,
    unknown_name,
)
from optim.models.containers.series import UNKNOWN_PHASE, ContainerSeries, Resource
from optim.phases.anomalies import (
    DELAYS,
    AnomalyKind,
    Calibration,
    DriftTrigger,
    LinearForecast,
    Scoring,
    anomaly_kinds,
    container_means,
)
from optim.phases.clustering import CountRow, assign, choose_count, cluster_order, fit_clusters, updated_centres
from optim.phases.description import NUM_LEVELS, PhaseStatistics, demand_quantiles, phase_names, phase_statistics
from optim.phases.encoders import Encoder, make_encoder
from optim.phases.forecasting import ForecastMethod, PhaseForecaster, forecast_segments
from optim.phases.preprocessing import Grid, ScaledSeries, Scaling, split_containers, to_grid
from optim.phases.sequences import (
    ChangeModel,
    PhaseRuns,
    Prototypes,
    choose_order,
    fit_changes,
    packed_sequences,
    prefix_tree,
    prototypes,
    runs_of,
    transition_graph,
)

if TYPE_CHECKING:
    import networkx as nx

DEFAULT_ENCODER = "hmm"


@dataclass(kw_only=True, eq=False)
class PhaseParameters:
    """The parameters of `PhaseModel`; they are stored unchecked, and each is checked where it is used."""

    encoder: str = DEFAULT_ENCODER
    encoder_options: Mapping[str, Any] | None = None
    num_phases: int | None = None
    resources: Sequence[str] | None = None
    interval_s: float = 15.0
    max_gap_s: float = 60.0
    has_logarithm: bool = True
    is_padded: bool = False
    smoothing: int = 1
    min_dwell: int = 2
    order: int | None = None
    anomaly_rate: float = 0.01
    seed: int = 0

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name; `deep` has no effect, since no parameter has parameters of its own."""
        del deep
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def set_params(self, **parameters: Any) -> Self:
        """Set parameters by name.

        Raises
        ------
        InvalidOptionError
            If a parameter doesn't exist.
        """
        known = self.get_params()
        for name, value in parameters.items():
            if name not in known:
                raise unknown_name(f"parameter of {type(self).__name__}", name, known)
            setattr(self, name, value)
        return self


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PhasedSeries:
    """Series on the model's grid with their phases.

    Attributes
    ----------
    series
        Series on the grid.
    labels
        Shape (T,): phase of each sample, -1 where history is insufficient.
    """

    series: ContainerSeries
    labels: IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """Scaling followed by the encoder.

    Attributes
    ----------
    scaling
        Fitted scaling.
    encoder
        Fitted encoder; an unfitted encoder suffices for calls of `scaled`.
    is_padded
        Whether the first sample of each segment is repeated as its history, so that every sample has an embedding.
    """

    scaling: Scaling
    encoder: Encoder
    is_padded: bool

    def scaled(self, grid: ContainerSeries) -> ScaledSeries:
        """Return scaled values, including the repeated history if series are padded."""
        scaled = self.scaling.scaled(grid)
        return scaled.padded(self.encoder.num_delays) if self.is_padded else scaled

    def embeddings(self, grid: ContainerSeries) -> tuple[FloatArray, IntArray]:
        """Return embeddings, shape (n, width), and the rows of the grid to which they belong, shape (n,), increasing."""
        embeddings = self.encoder.encode(self.scaled(grid))
        if self.is_padded:
            return embeddings, np.arange(grid.num_samples)
        return embeddings, grid.ends(self.encoder.num_delays)

    def labels(self, grid: ContainerSeries, centres: FloatArray, smoothing: int) -> IntArray:
        """Return each sample's phase, the most frequent nearest centre of the last samples; -1 without history; shape (T,).

        Parameters
        ----------
        grid
            Series of T samples.
        centres
            Shape (K, width): centres of the clusters.
        smoothing
            Number of last samples, the current one included, whose nearest centres are counted; at least 1.
        """
        labels = np.full(grid.num_samples, UNKNOWN_PHASE, dtype=np.int64)
        embeddings, rows = self.embeddings(grid)
        missing = 0 if self.is_padded else self.encoder.num_delays
        counts = np.maximum(grid.lengths - missing, 0)
        labels[rows] = majority(assign(embeddings, centres), counts, smoothing, len(centres))
        return labels


def majority(labels: IntArray, lengths: IntArray, size: int, num_labels: int) -> IntArray:
    """Return at each sample the most frequent of the segment's last `size` labels, including the sample's own label.

    Parameters
    ----------
    labels
        Shape (n,): labels of one segment after the other, none unknown.
    lengths
        Number of labels of each segment, zeros allowed.
    size
        Number of labels that are counted; in a tie the sample's own label wins, then the lowest label.
    num_labels
        Number of distinct labels.
    """
    if size <= 1 or not len(labels):
        return labels
    begin = np.repeat(np.cumsum(lengths) - lengths, lengths)
    row = np.arange(len(labels))
    hits = np.zeros((len(labels) + 1, num_labels), dtype=np.int64)
    hits[row + 1, labels] = 1
    sums = hits.cumsum(axis=0)
    votes = 2 * (sums[row + 1] - sums[np.maximum(begin, row - size + 1)])
    votes[row, labels] += 1
    return np.asarray(votes.argmax(axis=1), dtype=np.int64)


class FittedPhases(PhaseParameters):
    """The methods of `PhaseModel` that use a fitted model without changing it; `PhaseModel` documents the attributes."""

    resources_: tuple[Resource, ...]
    scaling_: Scaling
    encoder_: Encoder
    centres_: FloatArray
    weights_: FloatArray
    count_rows_: tuple[CountRow, ...]
    linear_forecast_: LinearForecast
    calibrations_: dict[str, Calibration]
    statistics_: PhaseStatistics
    names_: tuple[str, ...]
    runs_: PhaseRuns
    order_: int
    order_likelihoods_: tuple[float, ...]

    @property
    def num_phases_(self) -> int:
        """Number of phases, K."""
        return len(self.centres_)

    @property
    def anomaly_kinds(self) -> tuple[AnomalyKind, ...]:
        """Anomaly scores that the encoder allows."""
        return anomaly_kinds(self.encoder_)

    @property
    def default_score(self) -> AnomalyKind:
        """Default anomaly score: the calibrated score that finds most faults."""
        self._require_fit()
        return [kind for kind in self.anomaly_kinds if str(kind) in self.calibrations_][-1]

    def prepare(self, series: ContainerSeries) -> Grid:
        """Return series on the model's grid, restricted to the model's resources."""
        self._require_fit()
        require_series(series)
        chosen = series.select_resources([resource.name for resource in self.resources_])
        return to_grid(chosen, self.interval_s, self.max_gap_s)

    def label(self, series: ContainerSeries) -> PhasedSeries:
        """Return series on the model's grid with the phase of each sample."""
        grid = self.prepare(series).series
        return PhasedSeries(series=grid, labels=self._labels(grid))

    def predict(self, series: ContainerSeries) -> IntArray:
        """Return the phase of each given sample, shape (T,), -1 where history is insufficient.

        Irregular samples have the phase of their grid point.
        """
        grid = self.prepare(series)
        return self._labels(grid.series)[grid.row]

    def transform(self, series: ContainerSeries) -> FloatArray:
        """Return the embedding of each given sample, shape (T, width), NaN where history is insufficient."""
        grid = self.prepare(series)
        embeddings, rows = self._pipeline.embeddings(grid.series)
        spread = np.full((grid.series.num_samples, embeddings.shape[1]), np.nan)
        spread[rows] = embeddings
        return spread[grid.row]

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
            Shape (S, num_steps, K) for S segments and K phases; NaN for a segment without a phase.
        """
        phased = self.label(series)
        runs = runs_of(phased.labels, phased.series.lengths, self.min_dwell)
        return forecast_segments(self.forecaster, runs, num_steps, method)

    def demand_quantile(
        self,
        series: ContainerSeries,
        level: float,
        num_steps: int = 40,
        method: ForecastMethod | str = ForecastMethod.SEMI_MARKOV,
    ) -> FloatArray:
        """Return the quantile at `level` of the demand in the next `num_steps` samples, which count equally.

        The demand's distribution is a mixture of the phases' distributions in the training containers, weighted by the
        forecast shares of the phases in these samples.

        Returns
        -------
        numpy.ndarray
            Shape (S, R) for S segments and R resources; NaN for a segment without a phase.
        """
        shares = self.forecast(series, num_steps, method).mean(axis=1)
        return demand_quantiles(self.statistics_, shares, level)

    def anomaly_scores(self, series: ContainerSeries, kind: AnomalyKind | str | None = None) -> FloatArray:
        """Return the anomaly score of each given sample, shape (T,), NaN where history is insufficient.

        Samples above ``calibrations_[kind].threshold`` are anomalies; `kind` is `default_score` by default.

        Raises
        ------
        InvalidOptionError
            If the encoder doesn't allow this score.
        """
        grid = self.prepare(series)
        return self._scoring.scores(grid.series, self._kind(kind))[grid.row]

    def container_scores(self, series: ContainerSeries, kind: AnomalyKind | str | None = None) -> FloatArray:
        """Return the mean anomaly score of each container that has one, for a `DriftTrigger`."""
        grid = self.prepare(series).series
        return container_means(*self._scoring.owned_scores(grid, self._kind(kind)))

    def drift_trigger(self, kind: AnomalyKind | str | None = None) -> DriftTrigger:
        """Return a trigger that fires when the scores of further containers exceed those of the calibration."""
        self._require_fit()
        return DriftTrigger(self.calibrations_[str(self._kind(kind))])

    @cached_property
    def forecaster(self) -> PhaseForecaster:
        """Forecaster fitted to the runs."""
        self._require_fit()
        return PhaseForecaster(self.runs_, self.num_phases_)

    @cached_property
    def changes(self) -> ChangeModel:
        """Model of the next phase's probabilities, of order `order_`."""
        self._require_fit()
        return fit_changes(self.runs_, self.num_phases_, self.order_)

    def graph(self, order: int | None = None) -> "nx.DiGraph[tuple[int, ...]]":
        """Return the graph of changes of phase, by default of order `order_`; see `transition_graph`."""
        self._require_fit()
        return transition_graph(self.runs_, self.names_, order or self.order_)

    def tree(self) -> "nx.DiGraph[tuple[str, ...]]":
        """Return the prefix tree of sequences with collapsed repeats; see `prefix_tree`."""
        self._require_fit()
        return prefix_tree(packed_sequences(self.runs_))

    def prototypes(self) -> Prototypes:
        """Return the smallest set of paths that 90 % of the containers follow."""
        self._require_fit()
        return prototypes(packed_sequences(self.runs_))

    def _forget(self) -> None:
        """Clear the caches of values computed from the runs."""
        for name in ("forecaster", "changes"):
            self.__dict__.pop(name, None)

    def _require_fit(self) -> None:
        if not hasattr(self, "centres_"):
            raise NotAllowedError("this PhaseModel isn't fitted; call fit, or load one")

    def _kind(self, kind: AnomalyKind | str | None) -> AnomalyKind:
        self._require_fit()
        if kind is None:
            return self.default_score
        if kind not in list(AnomalyKind) or kind not in self.anomaly_kinds:
            known = ", ".join(self.anomaly_kinds)
            raise InvalidOptionError(
                f"a model with encoder {self.encoder!r} has no score {str(kind)!r}; it has: {known}"
            )
        return AnomalyKind(kind)

    @property
    def _pipeline(self) -> Pipeline:
        return Pipeline(scaling=self.scaling_, encoder=self.encoder_, is_padded=self.is_padded)

    @property
    def _scoring(self) -> Scoring:
        return Scoring(scaling=self.scaling_, encoder=self.encoder_, linear_forecast=self.linear_forecast_)

    def _labels(self, grid: ContainerSeries) -> IntArray:
        return self._pipeline.labels(grid, self.centres_, self.smoothing)


def require_series(series: object) -> None:
    """Raise InvalidProblemError for anything but a `ContainerSeries`.

    Raises
    ------
    InvalidProblemError
        If the argument has another type.
    """
    if not isinstance(series, ContainerSeries):
        raise InvalidProblemError(
            f"series must be a ContainerSeries, got {type(series).__name__}; make one with ContainerSeries.from_arrays, "
            "or read one with optim.workloads.containers.read_containers"
        )


HELD_OUT_SHARE = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSplit:
    """Series on the grid, split for a fit.

    Attributes
    ----------
    training
        Series to which scaling, encoder and clusters are fitted.
    held_out
        Series that determine the number of phases and the order of the change model, and calibrate scores.
    every
        All series, in their order.
    """

    training: ContainerSeries
    held_out: ContainerSeries
    every: ContainerSeries


def split_grid(grid: ContainerSeries, interval_s: float, delays: int, rng: np.random.Generator) -> TrainingSplit:
    """Hold out a fifth of the containers; if only one is long enough, both parts have all containers.

    Parameters
    ----------
    grid
        Series on a grid of `interval_s`.
    delays
        Samples of history that an embedding needs.

    Raises
    ------
    InvalidProblemError
        If no segment has more samples than `delays`.
    """
    if grid.lengths.max() <= delays:
        raise InvalidProblemError(
            f"no series has more than {delays} samples at {interval_s:g} s without a gap; "
            "give longer series, a shorter interval or fewer delays"
        )
    training, held_out = (grid.select(part) for part in split_containers(grid, HELD_OUT_SHARE, rng, delays + 1))
    return TrainingSplit(training=training, held_out=held_out, every=grid)


def find_clusters(
    pipeline: Pipeline, split: TrainingSplit, num_phases: int | None, resources: tuple[Resource, ...], seed: int
) -> tuple[FloatArray, FloatArray, tuple[CountRow, ...]]:
    """Cluster the training embeddings, and order the clusters by their mean resource use over all containers.

    Parameters
    ----------
    pipeline
        Pipeline fitted to the training part.
    num_phases
        Number of phases K; None to use `choose_count`, with a warning if no number meets its criteria.
    resources
        Resources of the series.
    seed
        Seed of the clusters' first centres.

    Returns
    -------
    tuple
        Centres, shape (K, width); number of training embeddings of each centre, shape (K,); and the rows of
        `choose_count`, empty if `num_phases` was given.
    """
    embeddings, rows = pipeline.embeddings(split.training)
    owner = split.training.owner[rows]
    number = num_phases
    count_rows: tuple[CountRow, ...] = ()
    if number is None:
        held_out_embeddings, _ = pipeline.embeddings(split.held_out)
        number, count_rows = choose_count(embeddings, owner, held_out_embeddings, seed)
        if not any(row.passes for row in count_rows):
            warnings.warn(
                "no number of phases improves the fit enough and is stable, so 2 are used; give num_phases, or another encoder",
                stacklevel=3,
            )
    centres = fit_clusters(embeddings, number, seed)
    every, where = pipeline.embeddings(split.every)
    centres = centres[cluster_order(split.every.values[where], assign(every, centres), number, resources)]
    weights = np.bincount(assign(embeddings, centres), minlength=number).astype(np.float64)
    return centres, weights, count_rows


USUAL_PHASES = 5
"""Number of phases in AI4DL (HotCloud 2020), used for encoders that need a number of phases before it is determined."""

STATISTICS_DELAYS = 3


class PhaseModel(FittedPhases):
    """Phases of containers, found without labels, with scikit-learn's interface.

    Parameters
    ----------
    encoder
        ``window-statistics``, ``crbm``, ``hmm`` or ``raw-window``.
    encoder_options
        Options of the encoder by name.
    num_phases
        Number of phases; None for the largest number that improves the fit enough and is stable, see `choose_count`.
    resources
        Resources to use; None for all resources of the series.
    interval_s, max_gap_s
        Seconds between grid points, and the longest gap over which a sample is repeated.
    has_logarithm
        Whether resources are scaled by their logarithm.
    is_padded
        Whether the first sample of each segment is repeated as its history, so that every sample has a phase.
    smoothing
        Number of last samples whose nearest clusters vote on the phase; 1 for no smoothing.
    min_dwell
        Minimum number of samples of a run in sequences; shorter runs are merged into the previous run.
    order
        Number of last phases on which the next phase depends; None for the number with the best held-out likelihood.
    anomaly_rate
        Share of held-out samples that count as anomalies.
    seed
        Equal series, parameters and seeds give equal models.

    Attributes
    ----------
    num_phases_, names_, centres_
        Number of phases K, a name for each phase, and the clusters' centres.
    statistics_
        Resource use of each phase.
    runs_
        Runs of all training containers.
    order_, order_likelihoods_
        Order of the change model, and mean held-out log-likelihood of each tried order (1, 2, ...).
    count_rows_
        Rows of `choose_count`; empty if `num_phases` was given.
    calibrations_
        Calibration of each anomaly score, by name.

    Examples
    --------
    >>> from optim.workloads.containers import ContainerOptions, generate_containers
    >>> series = generate_containers(ContainerOptions(num_containers=20), seed=0)
    >>> model = PhaseModel(encoder="raw-window", num_phases=4).fit(series)
    >>> model.predict(series).shape == (series.num_samples,)
    True
    """

    def fit(self, series: ContainerSeries, y: object = None) -> Self:
        """Find the phases of containers.

        A fifth of the containers is held out to determine the number of phases and the order of the change model, and
        to calibrate the anomaly scores. Statistics, runs, tree and graph use all containers.

        Parameters
        ----------
        series
            Any number of containers with any named resources; true phases are ignored.
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
        check_in("[1, inf)", self, "num_phases", "order", "smoothing", "min_dwell")
        require_series(series)
        chosen = series if self.resources is None else series.select_resources(self.resources)
        self.resources_ = chosen.resources
        grid = to_grid(chosen, self.interval_s, self.max_gap_s).series
        rng = np.random.default_rng(self.seed)
        self.encoder_ = make_encoder(self.encoder, self.encoder_options)
        delays = max(self.encoder_.num_delays, STATISTICS_DELAYS)
        split = split_grid(grid, self.interval_s, delays, rng)
        self.scaling_ = Scaling.fit(split.training.values, has_logarithm=self.has_logarithm)
        scaled = self._pipeline.scaled(split.training)
        self.encoder_.fit(scaled, self.num_phases or USUAL_PHASES, self.seed)
        self.centres_, self.weights_, self.count_rows_ = find_clusters(
            self._pipeline, split, self.num_phases, self.resources_, self.seed
        )
        self.linear_forecast_ = LinearForecast.fit(scaled)
        self.calibrations_ = self._scoring.calibrations(split.held_out, self.anomaly_rate)
        labels = self._labels(grid)
        self.statistics_ = phase_statistics(grid, labels, self.num_phases_, STATISTICS_DELAYS)
        self.runs_ = runs_of(labels, grid.lengths, self.min_dwell)
        self.names_ = phase_names(self.statistics_, self.resources_)
        sides = [runs_of(self._labels(side), side.lengths, self.min_dwell) for side in (split.training, split.held_out)]
        chosen_order, self.order_likelihoods_ = choose_order(sides[0], sides[1], self.num_phases_)
        self.order_ = self.order or chosen_order
        self._forget()
        return self

    def fit_predict(self, series: ContainerSeries, y: object = None) -> IntArray:
        """Fit, and return the phase of each sample."""
        return self.fit(series, y).predict(series)

    def partial_fit(self, series: ContainerSeries, y: object = None) -> Self:
        """Update with further containers: centres move, statistics and runs grow; scaling, encoder and names stay.

        Each centre becomes the mean of its previous embeddings and of the new embeddings nearest to it. The anomaly
        scores are calibrated again, with the further containers only. On an unfitted model, this is `fit`.
        """
        del y
        if not hasattr(self, "centres_"):
            return self.fit(series)
        grid = self.prepare(series).series
        # All checks precede the first change, so that an error leaves the model unchanged.
        calibrations = self._scoring.calibrations(grid, self.anomaly_rate)
        embeddings, _ = self._pipeline.embeddings(grid)
        self.centres_, self.weights_ = updated_centres(self.centres_, self.weights_, embeddings)
        labels = self._labels(grid)
        fresh = phase_statistics(grid, labels, self.num_phases_, STATISTICS_DELAYS)
        self.statistics_ = self.statistics_.merged(fresh)
        self.runs_ = self.runs_.joined(runs_of(labels, grid.lengths, self.min_dwell))
        self.calibrations_ = calibrations
        self._forget()
        return self

    def save(self, path: str | Path) -> None:
        """Write the model as arrays and a JSON header, without executable content."""
        self._require_fit()
        save_model(self, path)

    @classmethod
    def load(cls, path: str | Path) -> "PhaseModel":
        """Read a model.

        Raises
        ------
        InvalidProblemError
            If the file isn't a phase model.
        """
        return load_model(path)


SCHEMA = "optim/phase-model/1"

REMEDY = "write one with 'optim phases fit --out FILE'"

TINY = 1e-300
"""Lower limit of standard deviations, so that no divisor is 0."""

ROUNDED = 1e-6

DAMAGES = (ArithmeticError, AttributeError, LookupError, MemoryError, OptimError, RecursionError, TypeError, ValueError)
"""Exceptions that the parts of a model raise for malformed arrays."""

PARTS: Mapping[str, tuple[str, type[Any]]] = MappingProxyType(
    {
        "scaling": ("scaling_", Scaling),
        "linear": ("linear_forecast_", LinearForecast),
        "runs": ("runs_", PhaseRuns),
        "statistics": ("statistics_", PhaseStatistics),
    }
)
"""Attribute and dataclass of each part of a model that consists of arrays, by the prefix of the arrays' names."""


def save_model(model: "PhaseModel", path: str | Path) -> None:
    """Write a fitted model; equal models give equal files."""
    header = {
        "schema": SCHEMA,
        "parameters": model.get_params(),
        "resources": [asdict(resource) for resource in model.resources_],
        "names": model.names_,
        "order": model.order_,
        "order_likelihoods": model.order_likelihoods_,
        "count_rows": [asdict(row) for row in model.count_rows_],
        "calibrations": {kind: asdict(calibration) for kind, calibration in model.calibrations_.items()},
    }
    arrays: Arrays = {
        "header": np.frombuffer(json.dumps(header, sort_keys=True, default=list).encode(), dtype=np.uint8),
        "centres": model.centres_,
        "weights": model.weights_,
        **_prefixed("encoder", model.encoder_.arrays()),
    }
    for prefix, (attribute, _) in PARTS.items():
        arrays |= _prefixed(prefix, asdict(getattr(model, attribute)))
    write_arrays(path, arrays)


def load_model(path: str | Path) -> "PhaseModel":
    """Read a model.

    Raises
    ------
    InvalidProblemError
        If the file isn't a phase model, or has anything but plain arrays.
    """
    try:
        arrays = read_arrays(path, "a phase model", REMEDY)
        header = _header(path, arrays)
        model = PhaseModel(**header["parameters"])
        model.resources_ = tuple(Resource(**resource) for resource in header["resources"])
        model.names_ = tuple(header["names"])
        model.order_ = header["order"]
        model.order_likelihoods_ = tuple(header["order_likelihoods"])
        model.count_rows_ = tuple(CountRow(**row) for row in header["count_rows"])
        model.calibrations_ = {kind: Calibration(**calibration) for kind, calibration in header["calibrations"].items()}
        model.encoder_ = make_encoder(model.encoder, model.encoder_options)
        _check_header(model)
        _check_arrays(model, {name: array for name, array in arrays.items() if name != "header"})
        model.centres_, model.weights_ = arrays["centres"], arrays["weights"]
        model.encoder_.restore(_part(arrays, "encoder"))
        for prefix, (attribute, kind) in PARTS.items():
            setattr(model, attribute, kind(**_part(arrays, prefix)))
        _check_relations(model)
    except InvalidProblemError:
        raise
    except DAMAGES as error:
        cause = " ".join(str(error).split()) or type(error).__name__
        reason = f"no {cause} in it" if isinstance(error, KeyError) else cause
        raise InvalidProblemError(f"{path}: not a phase model ({reason}); {REMEDY}") from error
    return model


def _check_header(model: "PhaseModel") -> None:
    """Raise ValueError or InvalidOptionError unless the header's values are possible for a fitted model."""
    for name in ("smoothing", "min_dwell"):
        _require(_is_whole(getattr(model, name), 1), name)
    _require(_is_whole(model.seed, 0), "seed")
    _require(0 < float(model.interval_s) <= float(model.max_gap_s) < LARGEST, "interval_s")
    check_in("(0, 1)", model, "anomaly_rate")
    names = [resource.name for resource in model.resources_]
    _require(len(names) > 0 and len(set(names)) == len(names), "resources")
    _require(all(isinstance(text, str) and text for text in names), "resources")
    _require(
        all(isinstance(resource.unit, str) and isinstance(resource.is_level, bool) for resource in model.resources_),
        "resources",
    )
    _require(len(model.names_) > 0 and all(isinstance(text, str) for text in model.names_), "names")
    _require(_is_whole(model.order_, 1), "order")
    _require(_are_finite(model.order_likelihoods_), "order_likelihoods")
    _require(all(_are_finite(astuple(row)) for row in model.count_rows_), "count_rows")
    _require(bool(model.calibrations_), "calibrations")
    for kind, calibration in model.calibrations_.items():
        _require(kind in list(AnomalyKind) and kind in model.anomaly_kinds, "calibrations")
        _require(
            _are_finite(astuple(calibration)) and 0 <= calibration.rate <= 1 and calibration.deviation >= 0,
            f"calibration {kind}",
        )
        _require(_is_whole(calibration.num_containers, 1), f"calibration {kind}")


def _require(is_right: bool, what: str) -> None:
    if not is_right:
        raise ValueError(f"{what!r} of the header has a value that is impossible for a fitted model")


def _is_whole(value: Any, minimum: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= minimum


def _are_finite(values: Iterable[Any]) -> bool:
    return all(isinstance(value, int | float) and abs(value) < LARGEST for value in values)


def _check_arrays(model: "PhaseModel", arrays: Arrays) -> None:
    """Raise ValueError unless all arrays have possible shapes and values for a fitted model."""
    num, count = len(model.resources_), len(model.names_)
    width, table = model.encoder_.embedding_width(num), (count, num)
    fields = {
        "scaling.offset": Field(shape=(num,), least=0.0, may_lack=True),
        "scaling.mean": Field(shape=(num,)),
        "scaling.deviation": Field(shape=(num,), least=TINY),
        **_prefixed("encoder", model.encoder_.fields(num)),
        "centres": Field(shape=(count, "W")),
        "weights": Field(shape=(count,), least=0.0),
        "linear.matrix": Field(shape=(DELAYS * num, num)),
        "linear.bias": Field(shape=(num,)),
        "linear.deviation": Field(shape=(num,), least=TINY),
        "runs.phase": Field(shape=("runs",), least=0, most=count - 1, is_whole=True),
        "runs.dwell": Field(shape=("runs",), least=1, is_whole=True),
        "runs.offsets": Field(shape=("offsets",), least=0, is_whole=True),
        "statistics.count": Field(shape=(count,), least=0, is_whole=True),
        "statistics.quantiles": Field(shape=(*table, NUM_LEVELS), least=0.0),
        "statistics.slope": Field(shape=table),
        "statistics.rising": Field(shape=table, least=0.0, most=1.0 + ROUNDED),
        "statistics.autocorrelation": Field(shape=table, least=-1.0 - ROUNDED, most=1.0 + ROUNDED),
        **{
            f"statistics.{name}": Field(shape=table, least=0.0)
            for name in ("mean", "deviation", "within", "window_deviation")
        },
    }
    check_fields(arrays, fields, **({"W": width} if isinstance(width, int) else {}))


def _check_relations(model: "PhaseModel") -> None:
    """Raise ValueError unless the arrays are consistent with each other."""
    offsets, quantiles = model.runs_.offsets, model.statistics_.quantiles
    if len(offsets) < 1 or offsets[0] != 0 or offsets[-1] != len(model.runs_.phase) or (np.diff(offsets) < 0).any():
        raise ValueError("'runs.offsets' must increase from 0 to the number of runs")
    if (np.diff(quantiles, axis=-1) < -ROUNDED * np.abs(quantiles[..., 1:])).any():
        raise ValueError("'statistics.quantiles' must increase")


def _header(path: str | Path, arrays: Arrays) -> dict[str, Any]:
    header: dict[str, Any] = json.loads(arrays["header"].tobytes())
    if header["schema"] != SCHEMA:
        raise InvalidProblemError(
            f"{path}: the model has schema {header['schema']!r}, but this version reads {SCHEMA!r}; {REMEDY}"
        )
    return header


def _prefixed(prefix: str, arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{prefix}.{name}": array for name, array in arrays.items()}


def _part(arrays: Arrays, prefix: str) -> Arrays:
    begin = f"{prefix}."
    return {name.removeprefix(begin): array for name, array in arrays.items() if name.startswith(begin)}
