"""What a fitted model says of series: phases, forecasts, demand, anomalies, and the graph of its changes."""

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from optim.core.errors import InvalidOptionError, InvalidProblemError, NotAllowedError
from optim.models.containers.series import ContainerSeries, FloatArray, IntArray, Resource
from optim.phases.anomaly import AnomalyKind, LinearForecast, Scoring, anomaly_kinds
from optim.phases.clustering import CountRow
from optim.phases.coding import Coding, PhasedSeries
from optim.phases.drift import Calibration, DriftTrigger, container_means
from optim.phases.encoders import Encoder
from optim.phases.estimator import PhaseParameters
from optim.phases.forecasting import ForecastMethod, PhaseForecaster, forecast_segments
from optim.phases.grid import Grid, to_grid
from optim.phases.runs import PhaseRuns, runs_of
from optim.phases.scaling import Scaling
from optim.phases.statistics import PhaseStatistics, demand_quantiles
from optim.phases.transitions import ChangeModel, fit_changes, transition_graph
from optim.phases.tree import Prototypes, packed_sequences, prefix_tree, prototypes

if TYPE_CHECKING:
    import networkx as nx


class FittedPhases(PhaseParameters):
    """The side of `PhaseModel` that needs a fit and changes nothing; the attributes are described there."""

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
        """K."""
        return len(self.centres_)

    @property
    def anomaly_kinds(self) -> tuple[AnomalyKind, ...]:
        """Kinds of anomaly scores that the encoder allows."""
        return anomaly_kinds(self.encoder_)

    @property
    def usual_kind(self) -> AnomalyKind:
        """The score that is used unless another is asked for: of those calibrated the one that finds most faults."""
        self._require_fit()
        return [kind for kind in self.anomaly_kinds if str(kind) in self.calibrations_][-1]

    def prepare(self, series: ContainerSeries) -> Grid:
        """Return series on the model's grid, with the model's resources only."""
        self._require_fit()
        require_series(series)
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
        codes, rows = self._coding.codes(grid.series)
        spread = np.full((grid.series.num_samples, codes.shape[1]), np.nan)
        spread[rows] = codes
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
            Shape (S, num_steps, K); NaN for a segment without a phase.
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
        """Return the least demand not exceeded with probability `level` at a random one of the next samples.

        Each phase's distribution over the training containers counts with the share of the next samples that the
        forecast expects in it.

        Returns
        -------
        numpy.ndarray
            Shape (S, R); NaN for a segment without a phase.
        """
        shares = self.forecast(series, num_steps, method).mean(axis=1)
        return demand_quantiles(self.statistics_, shares, level)

    def anomaly_scores(self, series: ContainerSeries, kind: AnomalyKind | str | None = None) -> FloatArray:
        """Return the anomaly score of each sample given, shape (T,), NaN where history is insufficient.

        Samples above ``calibrations_[kind].threshold`` are anomalies; `kind` is `usual_kind` unless given.

        Raises
        ------
        InvalidOptionError
            If the encoder doesn't allow this kind.
        """
        grid = self.prepare(series)
        return self._scoring.scores(grid.series, self._kind(kind))[grid.row]

    def container_scores(self, series: ContainerSeries, kind: AnomalyKind | str | None = None) -> FloatArray:
        """Return the mean anomaly score of each container that has one, for a `DriftTrigger`."""
        grid = self.prepare(series).series
        return container_means(*self._scoring.owned_scores(grid, self._kind(kind)))

    def drift_trigger(self, kind: AnomalyKind | str | None = None) -> DriftTrigger:
        """Return a trigger that says when containers no longer look like those that the model was fitted on."""
        self._require_fit()
        return DriftTrigger(self.calibrations_[str(self._kind(kind))])

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

    def _forget(self) -> None:
        """Drop what is computed from the runs on first use."""
        for name in ("forecaster", "changes"):
            self.__dict__.pop(name, None)

    def _require_fit(self) -> None:
        if not hasattr(self, "centres_"):
            raise NotAllowedError("this PhaseModel isn't fitted; call fit, or load one")

    def _kind(self, kind: AnomalyKind | str | None) -> AnomalyKind:
        self._require_fit()
        if kind is None:
            return self.usual_kind
        if kind not in list(AnomalyKind) or kind not in self.anomaly_kinds:
            known = ", ".join(self.anomaly_kinds)
            raise InvalidOptionError(
                f"a model with encoder {self.encoder!r} has no score {str(kind)!r}; it has: {known}"
            )
        return AnomalyKind(kind)

    @property
    def _coding(self) -> Coding:
        return Coding(scaling=self.scaling_, encoder=self.encoder_, is_padded=self.is_padded)

    @property
    def _scoring(self) -> Scoring:
        return Scoring(scaling=self.scaling_, encoder=self.encoder_, linear_forecast=self.linear_forecast_)

    def _labels(self, grid: ContainerSeries) -> IntArray:
        return self._coding.labels(grid, self.centres_, self.smoothing)


def require_series(series: object) -> None:
    """Refuse anything but a `ContainerSeries`.

    Raises
    ------
    InvalidProblemError
        If it is something else.
    """
    if not isinstance(series, ContainerSeries):
        raise InvalidProblemError(
            f"series must be a ContainerSeries, got {type(series).__name__}; make one with ContainerSeries.from_arrays, "
            "or read one with optim.workloads.containers.read_containers"
        )
