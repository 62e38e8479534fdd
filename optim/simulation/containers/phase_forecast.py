"""Policies that forecast phases: what the coming cycle's phases will ask for, each with the share it is expected to have."""

from dataclasses import dataclass

import numpy as np

from optim.models.containers.series import FloatArray, IntArray
from optim.phases.forecasting import ForecastMethod, PhaseForecaster
from optim.phases.runs import runs_of
from optim.simulation.containers.phase_demand import TINY, moments, running_maximum
from optim.simulation.containers.policy import CycleView, Estimate, require_phases
from optim.simulation.containers.world import World

MIN_DWELL = 2
"""Runs of a single sample are noise of the labels."""


@dataclass(frozen=True, slots=True)
class PhaseForecast:
    """Mean plus m deviations of the mixture of phases expected in the cycle.

    Each phase has the moments of demand over the container's own maximum so far, as in the scaled rule.

    Attributes
    ----------
    method
        How phases are forecast.
    """

    method: ForecastMethod
    multiplier: float = 2.0
    has_feedback: bool = False

    @property
    def name(self) -> str:
        """Name with the method."""
        return f"phase-{self.method}"

    def start(self, world: World) -> "_ForecastStepper":
        """Take moments, transitions and dwells of the training containers."""
        training, labels = world.training, require_phases(world.training_phase)
        size = np.maximum(running_maximum(training), TINY)
        mean, deviation = moments(training.values / size, labels, world.num_phases)
        forecaster = PhaseForecaster(runs_of(labels, training.lengths, MIN_DWELL), world.num_phases)
        return _ForecastStepper(forecaster, self.method, np.nan_to_num(mean), np.nan_to_num(deviation))


class _ForecastStepper:
    def __init__(
        self, forecaster: PhaseForecaster, method: ForecastMethod, mean: FloatArray, deviation: FloatArray
    ) -> None:
        self._forecaster, self._method = forecaster, method
        self._mean, self._square = mean, deviation**2 + mean**2
        self._known: dict[tuple[int, int], FloatArray] = {}

    def estimate(self, view: CycleView) -> Estimate:
        phase = require_phases(view.phase)
        share = np.stack([self._shares(own, view.cycle_samples) for own in phase])
        size = view.past.max(axis=1)
        mean = share @ self._mean
        deviation = np.sqrt(np.maximum(share @ self._square - mean**2, 0.0))
        return Estimate(base=size * mean, spread=size * deviation)

    def _shares(self, labels: IntArray, num_steps: int) -> FloatArray:
        """Return the share of each phase in the coming cycle, NaN where no phase is known yet."""
        runs = runs_of(labels, np.array([len(labels)]), MIN_DWELL)
        if not len(runs.phase):
            return np.full(self._forecaster.num_phases, np.nan)
        key = (int(runs.phase[-1]), int(runs.dwell[-1]))
        # Both methods look at the present phase and its dwell only.
        if key not in self._known:
            found = self._forecaster.forecast(runs.phase, key[1], num_steps, self._method)
            self._known[key] = found.mean(axis=0)
        return self._known[key]
