"""Training of a CRBM in NumPy, as fast as plain batches go there, and one window at a time: what the kernel is held to."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]

FIELDS = ("weights", "autoregression", "conditioning", "visible_bias", "hidden_bias")
"""The kernel's names of the parameters that leave and enter."""


@dataclass(slots=True, eq=False)
class PlainCrbm:
    """A machine that is trained in place, float32.

    Attributes
    ----------
    windows
        Shape (n, D + V): histories, oldest frame first, beside samples; stored, so that a batch is a slice.
    num_visible
        V.
    weights
        Shape (V, H).
    dynamic
        Shape (D, V + H): autoregression beside conditioning, for one product instead of two.
    bias
        Shape (V + H,).
    """

    windows: Float32
    num_visible: int
    weights: Float32
    dynamic: Float32
    bias: Float32
    velocity: list[Float32] = field(init=False)

    def __post_init__(self) -> None:
        self.velocity = [np.zeros_like(own) for own in (self.weights, self.dynamic, self.bias)]

    def epoch(self, rng: np.random.Generator, batch_size: int, rate: float, momentum: float, decay: float) -> None:
        """Visit every window once, in batches of a fresh shuffle: CD-1 with drawn hiddens, momentum and decay.

        Arrays are reused and constants are float32 throughout, so that no step is widened or copied without need.
        """
        shuffled = self.windows[rng.permutation(len(self.windows))]
        split, length = self.num_visible, len(self.dynamic)
        step, keep, pull = np.float32(rate), np.float32(momentum), np.float32(decay)
        parameters = (self.weights, self.dynamic, self.bias)
        for first in range(0, len(shuffled), batch_size):
            batch = shuffled[first : first + batch_size]
            history, sample = batch[:, :length], batch[:, length:]
            inputs = history @ self.dynamic
            inputs += self.bias
            probability = _sigmoid(sample @ self.weights + inputs[:, split:])
            hidden = (rng.random(probability.shape, dtype=np.float32) < probability).astype(np.float32)
            rebuilt = hidden @ self.weights.T
            rebuilt += inputs[:, :split]
            again = _sigmoid(rebuilt @ self.weights + inputs[:, split:])
            gradient = sample.T @ probability
            gradient -= rebuilt.T @ again
            residual = np.concatenate([sample - rebuilt, probability - again], axis=1)
            scale = np.float32(1.0 / len(batch))
            gradients = (gradient, history.T @ residual, residual.sum(axis=0))
            for i, own_pull in enumerate((pull, pull, np.float32(0))):
                self.velocity[i] *= keep
                self.velocity[i] += step * (scale * gradients[i] - own_pull * parameters[i])
                np.add(parameters[i], self.velocity[i], out=parameters[i])

    def one_by_one(self, rows: NDArray[np.int64], rate: float) -> None:
        """Step after each window by itself: CD-1 with mean-field hiddens, neither momentum nor decay.

        References
        ----------
        The public code of AI4DL (https://github.com/HiEST/AI4DL), `crbm_tools`, trains so.
        """
        split, length, step = self.num_visible, len(self.dynamic), np.float32(rate)
        for row in rows.tolist():
            history, sample = self.windows[row, :length], self.windows[row, length:]
            inputs = history @ self.dynamic + self.bias
            probability = _sigmoid(sample @ self.weights + inputs[split:])
            rebuilt = self.weights @ probability + inputs[:split]
            again = _sigmoid(rebuilt @ self.weights + inputs[split:])
            residual = np.concatenate([sample - rebuilt, probability - again])
            self.weights += step * (np.outer(sample, probability) - np.outer(rebuilt, again))
            self.dynamic += step * np.outer(history, residual)
            self.bias += step * residual

    def fields(self) -> dict[str, Float32]:
        """Return the parameters by the kernel's names."""
        split = self.num_visible
        parts = (self.weights, self.dynamic[:, :split], self.dynamic[:, split:], self.bias[:split], self.bias[split:])
        return dict(zip(FIELDS, (part.copy() for part in parts), strict=True))


def _sigmoid(inputs: Float32) -> Float32:
    """Return the logistic function, in the place of its input."""
    np.negative(inputs, out=inputs)
    np.exp(inputs, out=inputs)
    inputs += np.float32(1)
    np.reciprocal(inputs, out=inputs)
    return inputs
