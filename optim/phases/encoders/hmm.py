"""Filtered states of a hidden Markov model, from samples up to the current one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from optim.core.archives import Field
from optim.core.arrays import FloatArray
from optim.core.errors import check_in
from optim.phases.encoders.base import Arrays, Encoder
from optim.phases.preprocessing import ScaledSeries

MAX_VALUE, MIN_LOGARITHM, ROUNDED = 1e15, -1e6, 1e-3
"""Upper limit of parameters, lower limit of log-probabilities, and tolerance of sums of probabilities in single precision."""

_FIELDS = ("log_initial", "log_transition", "regression", "covariance")


@dataclass(frozen=True, slots=True, kw_only=True)
class HmmOptions:
    """Options of `HmmEncoder`.

    Attributes
    ----------
    num_states
        Number of states; None for the number of phases, or 5 if this is unknown.
    is_autoregressive
        Whether a state's mean is a linear function of the previous sample, rather than a constant.
    stickiness
        Pseudo-counts of transitions from each state to itself.
    num_restarts, max_iterations
        Number of restarts of the fit, and maximum number of iterations of each.
    max_series, max_samples
        Maximum numbers of series and of samples to fit on; larger data are reduced to random series, and to random
        crops of long series.
    """

    num_states: int | None = None
    is_autoregressive: bool = True
    stickiness: float = 0.0
    num_restarts: int = 12
    max_iterations: int = 50
    max_series: int = 200
    max_samples: int = 100_000

    def __post_init__(self) -> None:
        """Check ranges."""
        check_in("[1, inf)", self, "num_states", "num_restarts", "max_iterations", "max_series", "max_samples")
        check_in("[0, inf)", self, "stickiness")


class HmmEncoder(Encoder):
    """Probabilities of the states given the samples so far."""

    def __init__(self, options: HmmOptions) -> None:
        super().__init__(options)
        self._fitted: Arrays = {}

    @property
    def num_delays(self) -> int:
        """Number of earlier samples that an embedding needs: 1 if means depend on the previous sample, else 0."""
        return int(self.options.is_autoregressive)

    def fit(self, series: ScaledSeries, num_phases: int, seed: int) -> Self:
        """Fit the model by expectation maximisation."""
        import jax
        import jax.numpy as jnp

        from optim.kernels import hidden_markov

        options = self.options
        rng = np.random.default_rng(seed)
        chosen = series.sampled(options.max_series, rng)
        chosen = chosen.random_crops(max(2, options.max_samples // len(chosen.lengths)), rng)
        fitted = hidden_markov.fit(
            jnp.asarray(hidden_markov.pad_series(chosen.values, chosen.lengths)),
            jnp.asarray(chosen.lengths, jnp.int32),
            jax.random.key(seed),
            num_states=options.num_states or num_phases,
            is_autoregressive=options.is_autoregressive,
            num_restarts=options.num_restarts,
            max_iterations=options.max_iterations,
            stickiness=options.stickiness,
        )
        self._fitted = {name: np.asarray(getattr(fitted.parameters, name), np.float64) for name in _FIELDS}
        return self

    def encode(self, series: ScaledSeries) -> FloatArray:
        """Return the filtered probabilities, shape (n, num_states)."""
        from optim.kernels import hidden_markov

        return self._samplewise(lambda *arguments: hidden_markov.filter(*arguments)[0], series)

    def nll(self, series: ScaledSeries) -> FloatArray:
        """Return the negative log-density of each sample given the earlier ones, shape (n,)."""
        from optim.kernels import hidden_markov

        return self._samplewise(hidden_markov.negative_log_likelihood, series)

    def _samplewise(self, kernel: Callable[..., Any], series: ScaledSeries) -> FloatArray:
        """Return a kernel's result for each sample with history, in double precision."""
        import jax.numpy as jnp

        from optim.kernels import hidden_markov

        parameters = hidden_markov.HmmParameters(*(jnp.asarray(self._fitted[name], jnp.float32) for name in _FIELDS))
        padded = hidden_markov.pad_series(series.values, series.lengths)
        values = kernel(parameters, jnp.asarray(padded), jnp.asarray(series.lengths, jnp.int32))
        rows = series.ends(self.num_delays)
        return np.asarray(values, np.float64)[series.segment[rows], series.place[rows]]

    def arrays(self) -> Arrays:
        """Return the model's parameters."""
        return dict(self._fitted)

    def fields(self, num_resources: int) -> dict[str, Field]:
        """Return the expected form of `arrays`."""
        inputs = 1 + num_resources * self.options.is_autoregressive
        return {
            "log_initial": Field(shape=("W",), least=MIN_LOGARITHM, most=ROUNDED),
            "log_transition": Field(shape=("W", "W"), least=MIN_LOGARITHM, most=ROUNDED),
            "regression": Field(shape=("W", inputs, num_resources), least=-MAX_VALUE, most=MAX_VALUE),
            "covariance": Field(shape=("W", num_resources, num_resources), least=-MAX_VALUE, most=MAX_VALUE),
        }

    def embedding_width(self, num_resources: int) -> int | str:
        """Return the number of states, or ``W`` if it depends on the fit."""
        del num_resources
        return self.options.num_states or "W"

    def restore(self, arrays: Mapping[str, NDArray[np.float64]]) -> Self:
        """Restore the parameters; raise ValueError unless probabilities sum to one and variances are positive."""
        for name in ("log_initial", "log_transition"):
            sums = np.exp(arrays[name]).sum(axis=-1)
            if not np.allclose(sums, 1.0, atol=1e-3):
                raise ValueError(f"probabilities of {name!r} must sum to one")
        covariance = arrays["covariance"]
        if (
            not np.allclose(covariance, covariance.transpose(0, 2, 1), rtol=1e-3)
            or (np.linalg.eigvalsh(covariance) <= 0).any()
        ):
            raise ValueError("'covariance' must be symmetric with positive variances")
        self._fitted = {name: np.asarray(arrays[name]) for name in _FIELDS}
        return self
