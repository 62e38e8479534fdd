"""Hidden units of a conditional restricted Boltzmann machine.

The method is that of Berral, Wang and Youssef (AI4DL: mining behaviors of deep learning workloads for resource
management, HotCloud 2020): k-means on the hidden units' probabilities. The paper's options are
``autoregression=trained``, ``output=probability``, ``pooling=1``, ``spread=none`` and up to 2,000 epochs; the defaults
did best on generated containers. With all options, training and encoding order the samples of a history in the same
way, an embedding belongs to its window's last sample, and samples without history have no embedding instead of zeros.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from optim.core.archives import Field
from optim.core.arrays import FloatArray, IntArray
from optim.core.errors import InvalidOptionError, check_in
from optim.phases.encoders.base import Arrays, Encoder, Spread, Whitening
from optim.phases.preprocessing import ScaledSeries

if TYPE_CHECKING:
    from optim.kernels.crbm import CrbmParameters

EPOCHS_A_CALL = 10
"""Epochs between two evaluations of the held-out forecast error."""

VALIDATION_SHARE = 0.1
FIELDS = ("weights", "autoregression", "conditioning", "visible_bias", "hidden_bias")
MAX_WEIGHT = 1e15
"""Upper limit of plausible trained weights; squares of larger weights could overflow in single precision."""

RIDGE = 1e-6
"""Ridge term of the least-squares autoregression per window, which keeps it solvable if a resource is constant."""


class Autoregression(StrEnum):
    """Treatment of the direct connections from history to sample."""

    TRAINED = "trained"
    """Trained with the other parameters."""
    MIN_SQUARES = "least-squares"
    """Fixed at the best linear forecast, so that the hidden units model the forecast's residuals."""


class Output(StrEnum):
    """Output of a hidden unit that embeddings use."""

    PROBABILITY = "probability"
    LOGIT = "logit"


@dataclass(frozen=True, slots=True, kw_only=True)
class CrbmOptions:
    """Options of `CrbmEncoder`.

    Attributes
    ----------
    num_delays, num_hidden
        Numbers of samples of history and of hidden units; the defaults are the paper's.
    num_epochs, patience
        Maximum number of epochs, and number of epochs without a better forecast of held-out series after which training
        stops.
    learning_rate, batch_size, num_gibbs_steps
        Parameters of contrastive divergence.
    autoregression
        Treatment of the direct connections from history to sample.
    output
        Output of a hidden unit: its probability as in the paper, or the logit.
    pooling
        Number of a hidden unit's last outputs that are combined into the square root of their standard deviation. This
        measures the unit's activity at any level, and emphasises small differences. 1 for the output itself.
    spread
        Normalisation of the embeddings.
    """

    num_delays: int = 3
    num_hidden: int = 10
    num_epochs: int = 40
    patience: int = 40
    learning_rate: float = 0.03
    batch_size: int = 128
    num_gibbs_steps: int = 1
    autoregression: Autoregression = Autoregression.MIN_SQUARES
    output: Output = Output.LOGIT
    pooling: int = 8
    spread: Spread = Spread.STANDARDISED

    def __post_init__(self) -> None:
        """Check ranges."""
        check_in(
            "[1, inf)",
            self,
            *("num_delays", "num_hidden", "num_epochs", "patience", "batch_size", "num_gibbs_steps", "pooling"),
        )
        check_in("(0, inf)", self, "learning_rate")


class CrbmEncoder(Encoder):
    """Embeddings from the hidden units of a CRBM trained by contrastive divergence.

    Attributes
    ----------
    forecast_errors
        Mean squared one-step forecast error of held-out series at each evaluation during training, in scaled units.
    """

    def __init__(self, options: CrbmOptions) -> None:
        super().__init__(options)
        self.forecast_errors: tuple[float, ...] = ()
        self._fitted: Arrays = {}
        self._spread: Whitening

    def fit(self, series: ScaledSeries, num_phases: int, seed: int) -> Self:
        """Train the CRBM, and use the parameters with the best forecast of held-out series.

        Raises
        ------
        InvalidOptionError
            If training diverges before the first evaluation of the forecast.
        """
        del num_phases
        self._fitted = self._train(series, seed)
        self._spread = Whitening.fit(self._outputs(series), self.options.spread)
        return self

    def encode(self, series: ScaledSeries) -> FloatArray:
        """Return embeddings, shape (n, num_hidden)."""
        return self._spread.apply(self._outputs(series))

    def free_energy(self, series: ScaledSeries) -> FloatArray:
        """Return each window's free energy, a measure of how unlikely the sample is given its history."""
        from optim.kernels import crbm

        return self._windowwise(crbm.free_energy, series)

    @property
    def parameters(self) -> "CrbmParameters":
        """Parameters of the CRBM."""
        import jax.numpy as jnp

        from optim.kernels.crbm import CrbmParameters

        return CrbmParameters(*(jnp.asarray(self._fitted[name], jnp.float32) for name in FIELDS))

    def _train(self, series: ScaledSeries, seed: int) -> Arrays:
        import jax
        import jax.numpy as jnp

        from optim.kernels import crbm

        options = self.options
        ends, held_out = _split_ends(series, self.num_delays, seed)
        keys = jax.random.split(jax.random.key(seed))
        width = series.values.shape[1]
        start = crbm.initial_parameters(keys[0], width, self.num_delays, options.num_hidden)
        start = _with_autoregression(start, series, ends, options.autoregression)
        rates = crbm.Rates(
            learning_rate=options.learning_rate,
            autoregression_factor=float(options.autoregression == Autoregression.TRAINED),
            autoregression_decay=2e-4 * (options.autoregression == Autoregression.TRAINED),
        )
        values, rows = jnp.asarray(series.values, jnp.float32), jnp.asarray(ends, jnp.int32)
        state, best, best_parameters, errors = crbm.initial_state(start), np.inf, start, []
        best_epoch = 0
        for begun in range(0, options.num_epochs, EPOCHS_A_CALL):
            epoch = min(begun + EPOCHS_A_CALL, options.num_epochs)
            state, _ = crbm.train(
                *(state, values, rows, rates, keys[1]),
                num_epochs=epoch - begun,
                batch_size=min(options.batch_size, len(ends)),
                num_gibbs_steps=options.num_gibbs_steps,
            )
            error = float(crbm.forecast_error(state.parameters, values, jnp.asarray(held_out, jnp.int32)).mean())
            errors.append(error)
            if error < best:
                best, best_epoch = error, epoch
                best_parameters = jax.tree.map(jnp.copy, state.parameters)
            if not np.isfinite(error) or epoch - best_epoch >= options.patience:
                break
        if not np.isfinite(best):
            raise InvalidOptionError(
                f"training diverged with learning_rate {options.learning_rate:g}; try a tenth of it, or larger batches"
            )
        self.forecast_errors = tuple(errors)
        return {name: np.asarray(getattr(best_parameters, name), np.float64) for name in FIELDS}

    def _outputs(self, series: ScaledSeries) -> FloatArray:
        from optim.kernels import crbm

        kernel = crbm.hidden_logits if self.options.output == Output.LOGIT else crbm.encode
        outputs = self._windowwise(kernel, series)
        if self.options.pooling == 1:
            return outputs
        return np.sqrt(recent_deviation(outputs, series, self.num_delays, self.options.pooling))

    def _windowwise(self, kernel: Callable[..., Any], series: ScaledSeries) -> FloatArray:
        """Return a kernel's result for each window, in double precision."""
        import jax.numpy as jnp

        values, ends = jnp.asarray(series.values, jnp.float32), jnp.asarray(series.ends(self.num_delays), jnp.int32)
        return np.asarray(kernel(self.parameters, values, ends), np.float64)

    def arrays(self) -> Arrays:
        """Return parameters and normalisation."""
        return {**self._fitted, **self._spread.arrays()}

    def fields(self, num_resources: int) -> dict[str, Field]:
        """Return the expected form of `arrays`."""
        options = self.options
        history, hidden = num_resources * self.num_delays, options.num_hidden
        shapes = {
            "weights": (num_resources, hidden),
            "autoregression": (history, num_resources),
            "conditioning": (history, hidden),
            "visible_bias": (num_resources,),
            "hidden_bias": (hidden,),
        }
        machine = {name: Field(shape=shape, least=-MAX_WEIGHT, most=MAX_WEIGHT) for name, shape in shapes.items()}
        return {**machine, **Whitening.fields(hidden)}

    def restore(self, arrays: Mapping[str, NDArray[np.float64]]) -> Self:
        """Restore parameters and normalisation."""
        self._fitted = {name: np.asarray(arrays[name]) for name in FIELDS}
        self._spread = Whitening.restore(arrays)
        return self


def recent_deviation(outputs: FloatArray, series: ScaledSeries, num_delays: int, size: int) -> FloatArray:
    """Return at each sample the standard deviation of the segment's last `size` outputs (or fewer), shape (n, H)."""
    if not len(outputs):
        return np.zeros_like(outputs)
    counts = np.maximum(series.lengths - num_delays, 0)
    begin = np.repeat(np.cumsum(counts) - counts, counts)
    row = np.arange(len(outputs))
    first = np.maximum(begin, row - size + 1)
    number = (row - first + 1)[:, None]
    # Centring at the overall mean avoids cancellation in differences of running sums.
    moved = outputs - outputs.mean(axis=0)
    sums, squares = (
        np.concatenate([np.zeros((1, moved.shape[1])), np.cumsum(part, axis=0)]) for part in (moved, moved**2)
    )
    mean = (sums[row + 1] - sums[first]) / number
    variance = (squares[row + 1] - squares[first]) / number - mean**2
    return np.asarray(np.sqrt(np.maximum(variance, 0.0)))


def _split_ends(series: ScaledSeries, num_delays: int, seed: int) -> tuple[IntArray, IntArray]:
    """Return the ends of the windows in training and in held-out segments; with few segments, twice those of all windows."""
    ends = series.ends(num_delays)
    segment = series.segment[ends]
    usable = np.unique(segment)
    if len(usable) < 1 / VALIDATION_SHARE:
        return ends, ends
    held_out = np.random.default_rng(seed).permutation(usable)[: round(VALIDATION_SHARE * len(usable))]
    is_held = np.isin(segment, held_out)
    return ends[~is_held], ends[is_held]


def _with_autoregression(
    parameters: "CrbmParameters", series: ScaledSeries, ends: IntArray, autoregression: Autoregression
) -> "CrbmParameters":
    """Return the CRBM; for ``least-squares``, with the best linear forecast as direct connections."""
    import jax.numpy as jnp

    if autoregression == Autoregression.TRAINED:
        return parameters
    matrix, bias = least_squares(series, ends, parameters.num_delays)
    return parameters._replace(
        autoregression=jnp.asarray(matrix, jnp.float32), visible_bias=jnp.asarray(bias, jnp.float32)
    )


def least_squares(series: ScaledSeries, ends: IntArray, num_delays: int) -> tuple[FloatArray, FloatArray]:
    """Return the matrix, shape (num_delays R, R), and bias, shape (R,), of the best linear forecast from the history."""
    history = series.values[ends[:, None] + np.arange(-num_delays, 0)].reshape(len(ends), -1)
    inputs = np.concatenate([history, np.ones((len(ends), 1))], axis=1)
    square = inputs.T @ inputs + RIDGE * len(ends) * np.eye(inputs.shape[1])
    solution = np.linalg.solve(square, inputs.T @ series.values[ends])
    return solution[:-1], solution[-1]
