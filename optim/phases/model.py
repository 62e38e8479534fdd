"""From containers' consumption to phases: fit, label, forecast, watch, update."""

from pathlib import Path
from typing import Self

import numpy as np

from optim.core.ranges import check_in
from optim.models.containers.series import ContainerSeries, IntArray
from optim.phases.anomaly import LinearForecast
from optim.phases.clustering import updated_centres
from optim.phases.encoders import make_encoder
from optim.phases.fitted import FittedPhases, require_series
from optim.phases.fitting import find_clusters, split_grid
from optim.phases.grid import to_grid
from optim.phases.names import phase_names
from optim.phases.runs import runs_of
from optim.phases.scaling import Scaling
from optim.phases.statistics import phase_statistics
from optim.phases.transitions import choose_order

USUAL_PHASES = 5
"""Hint for encoders that need a number of phases before it is known; the paper's."""

STATISTICS_DELAYS = 3


class PhaseModel(FittedPhases):
    """Phases of containers, found without labels; with names as in scikit-learn.

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
        scaled = self._coding.scaled(split.training)
        self.encoder_.fit(scaled, self.num_phases or USUAL_PHASES, self.seed)
        self.centres_, self.weights_, self.count_rows_ = find_clusters(
            self._coding, split, self.num_phases, self.resources_, self.seed
        )
        self.linear_forecast_ = LinearForecast.fit(scaled)
        self.calibrations_ = self._scoring.calibrations(split.held, self.anomaly_rate)
        labels = self._labels(grid)
        self.statistics_ = phase_statistics(grid, labels, self.num_phases_, STATISTICS_DELAYS)
        self.runs_ = runs_of(labels, grid.lengths, self.min_dwell)
        self.names_ = phase_names(self.statistics_, self.resources_)
        sides = [runs_of(self._labels(side), side.lengths, self.min_dwell) for side in (split.training, split.held)]
        chosen_order, self.order_likelihoods_ = choose_order(sides[0], sides[1], self.num_phases_)
        self.order_ = self.order or chosen_order
        self._forget()
        return self

    def fit_predict(self, series: ContainerSeries, y: object = None) -> IntArray:
        """Fit, and return the phase of each sample."""
        return self.fit(series, y).predict(series)

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
        calibrations = self._scoring.calibrations(grid, self.anomaly_rate)
        codes, _ = self._coding.codes(grid)
        self.centres_, self.weights_ = updated_centres(self.centres_, self.weights_, codes)
        labels = self._labels(grid)
        fresh = phase_statistics(grid, labels, self.num_phases_, STATISTICS_DELAYS)
        self.statistics_ = self.statistics_.merged(fresh)
        self.runs_ = self.runs_.joined(runs_of(labels, grid.lengths, self.min_dwell))
        self.calibrations_ = calibrations
        self._forget()
        return self

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
