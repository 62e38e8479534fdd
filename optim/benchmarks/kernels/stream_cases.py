"""What is measured of the kernels that work on one vector: pushes as they arrive, damped ones, compressed ones, copies."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from optim.benchmarks.kernels import loop
from optim.benchmarks.kernels.contest import JAX, RATE, Contest, FloatArray
from optim.kernels.parameter_server import (
    Damping,
    Sgd,
    apply_damped_batch,
    copy_arrays,
    decode_int8,
    decode_top_k,
    encode_int8,
    encode_top_k,
    initial_state,
    pull_dense,
    push_dense,
)

SENT = 100
"""Top-k sends one entry in so many."""

LEVELS = 127.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamCase:
    """A kernel on one vector.

    Parameters
    ----------
    kernel
        Name of the kernel.
    parameters
        Length of the vector.
    workers
        Gradients that come together; 1 except for asynchronous ones.
    """

    kernel: str
    parameters: int
    workers: int = 1

    @property
    def shape(self) -> list[int]:
        """Gradients by parameters."""
        return [self.workers, self.parameters]

    @property
    def moved(self) -> int:
        """Bytes that must be moved."""
        return int(self.parameters * _BYTES[self.kernel](self.workers))


_BYTES: Mapping[str, Callable[[int], float]] = MappingProxyType(
    {
        "push": lambda workers: 12,  # gradient and sum read, sum written
        "async-sgd": lambda workers: 4 * (workers + 2),  # gradients and parameters read, parameters written
        # Gradient and residual read, residual written; the entries sent are written, read, and added to the sum.
        "push-top-k": lambda workers: 12 + 24 / SENT,
        # The same; levels of one byte are written and read, and the sum read and written.
        "push-int8": lambda workers: 22,
        "pull-dense": lambda workers: 8,  # read, written
        "snapshot": lambda workers: 16,  # the same of parameters and one slot
    }
)


def stream_contest(case: StreamCase, rng: np.random.Generator) -> Contest:
    """Draw a case's data and make its sides."""
    gradients: FloatArray = rng.random((case.workers, case.parameters), dtype=np.float32) - np.float32(0.5)
    return _CONTESTS[case.kernel](gradients)


def _contest(calls: dict[str, Callable[[], Any]], found: Callable[[], Any], wanted: Callable[[], Any]) -> Contest:
    return Contest(
        calls=calls,
        error=lambda: float(np.abs(np.asarray(found()) - np.asarray(wanted())).max()),
        checksum=lambda: float(np.asarray(found()).mean(dtype=np.float64)),
    )


def _push(gradients: FloatArray) -> Contest:
    """Add one push to a shard's sum."""
    size = gradients.shape[1]
    sent, weight = jnp.array(gradients[0]), jnp.float32(0.5)
    state = [initial_state(jnp.zeros(size), Sgd(learning_rate=RATE))]
    total, work, looped = np.zeros(size, np.float32), np.empty(size, np.float32), np.zeros(size, np.float32)

    def kernel() -> None:
        state[0] = jax.block_until_ready(push_dense(state[0], sent, weight))

    def by_numpy() -> None:
        np.multiply(gradients[0], np.float32(0.5), out=work)
        np.add(total, work, out=total)

    calls = {JAX: kernel, "numpy": by_numpy, "numba": lambda: loop.push(looped, gradients[0], 0.5)}
    return _contest(calls, lambda: state[0].accumulator, lambda: total)


def _damped(gradients: FloatArray) -> Contest:
    """Apply gradients of several lags one after the other; a product with a vector of weights does the same here."""
    workers, size = gradients.shape
    damping, rule = Damping(), Sgd(learning_rate=RATE)
    read = np.maximum(0, np.arange(workers) - np.arange(workers) % 4).astype(np.int32)
    weights = (1.0 / (1.0 + np.arange(workers) - read)).astype(np.float32)
    sent, seen, version = jnp.array(gradients), jnp.array(read), jnp.int32(0)
    w, work, looped = np.zeros(size, np.float32), np.empty(size, np.float32), np.zeros(size, np.float32)
    state: list[jax.Array] = [jnp.zeros(size)]
    product = jax.jit(lambda held, pushed: held - RATE * (jnp.asarray(weights) @ pushed), donate_argnums=0)
    other: list[jax.Array] = [jnp.zeros(size)]

    def kernel() -> None:
        done, _, total = apply_damped_batch(state[0], (), sent, version, seen, optimiser=rule, damping=damping)
        state[0] = done
        total.block_until_ready()
        done.block_until_ready()

    def by_numpy() -> None:
        for gradient, weight in zip(gradients, weights, strict=True):
            np.multiply(gradient, np.float32(RATE) * weight, out=work)
            np.subtract(w, work, out=w)

    def by_product() -> None:
        other[0] = product(other[0], sent).block_until_ready()

    calls = {
        JAX: kernel,
        "numpy": by_numpy,
        "numba": lambda: loop.damped_sgd(looped, gradients, weights, RATE),
        "xla": by_product,
    }
    return _contest(calls, lambda: state[0], lambda: w)


def _top_k(gradients: FloatArray) -> Contest:
    """Send the largest entries of gradient and residual, and add them to a server's sum."""
    gradient = gradients[0]
    size = gradient.size
    number = max(1, size // SENT)
    add = jax.jit(lambda total, message: total + decode_top_k(message, size=size), donate_argnums=0)
    sent = jnp.array(gradient)
    held: list[jax.Array] = [jnp.zeros(size), jnp.zeros(size)]
    total, left = np.zeros(size, np.float32), np.zeros(size, np.float32)

    def kernel() -> None:
        message, held[0] = encode_top_k(sent, held[0], k=number)
        held[1] = add(held[1], message).block_until_ready()

    def by_numpy() -> None:
        np.add(left, gradient, out=left)
        chosen = np.argpartition(np.abs(left), size - number)[size - number :]
        total[chosen] += left[chosen]
        left[chosen] = 0

    calls = {JAX: kernel, "numpy": by_numpy}
    # Of equal magnitudes either may go: what was sent and what is left together are the same.
    return _contest(calls, lambda: held[0] + held[1], lambda: left + total)


def _int8(gradients: FloatArray) -> Contest:
    """Send gradient and residual in 255 levels, rounded at random, and add them to a server's sum."""
    gradient = gradients[0]
    size = gradient.size
    key, rng = jax.random.key(0), np.random.default_rng(0)
    add = jax.jit(lambda total, message: total + decode_int8(message), donate_argnums=0)
    sent = jnp.array(gradient)
    held: list[jax.Array] = [jnp.zeros(size), jnp.zeros(size)]
    total, left, looped = np.zeros(size, np.float32), np.zeros(size, np.float32), np.zeros((2, size), np.float32)
    noise = np.empty(size, np.float32)

    def kernel() -> None:
        message, held[0] = encode_int8(sent, held[0], key)
        held[1] = add(held[1], message).block_until_ready()

    def by_numpy() -> None:
        np.add(left, gradient, out=left)
        scale = np.float32(np.abs(left).max() / LEVELS)
        rng.random(dtype=np.float32, out=noise)
        levels = np.clip(np.floor(left / scale + noise), -LEVELS, LEVELS).astype(np.int8)
        decoded = levels * scale
        np.subtract(left, decoded, out=left)
        np.add(total, decoded, out=total)

    def by_numba() -> None:
        rng.random(dtype=np.float32, out=noise)
        loop.push_int8(*looped, gradient, noise, LEVELS)

    calls = {JAX: kernel, "numpy": by_numpy, "numba": by_numba}
    return _contest(calls, lambda: held[0] + held[1], lambda: left + total)


def _pull(gradients: FloatArray) -> Contest:
    """Copy a shard's parameters for a worker."""
    w, version, clocks = jnp.array(gradients[0]), jnp.int32(0), jnp.zeros(4, jnp.int32)
    got: list[Any] = [w, gradients[0], np.empty_like(gradients[0])]

    def kernel() -> None:
        got[0] = jax.block_until_ready(pull_dense(w, version, clocks)).parameters

    def by_numpy() -> None:
        got[1] = gradients[0].copy()

    calls = {JAX: kernel, "numpy": by_numpy, "numba": lambda: loop.copy(gradients[0], got[2])}
    return _contest(calls, lambda: got[0], lambda: got[1])


def _snapshot(gradients: FloatArray) -> Contest:
    """Copy a shard's parameters and one slot."""
    own = np.stack([gradients[0], np.square(gradients[0])])
    arrays = jnp.array(own[0]), (jnp.array(own[1]),)
    got: list[Any] = [arrays, own, np.empty_like(own)]

    def kernel() -> None:
        got[0] = jax.block_until_ready(copy_arrays(arrays))

    def by_numpy() -> None:
        got[1] = own.copy()

    calls = {JAX: kernel, "numpy": by_numpy, "numba": lambda: loop.copy(own.reshape(-1), got[2].reshape(-1))}
    return _contest(calls, lambda: jnp.stack([got[0][0], *got[0][1]]), lambda: got[1])


_CONTESTS: Mapping[str, Callable[[FloatArray], Contest]] = MappingProxyType(
    {
        "push": _push,
        "async-sgd": _damped,
        "push-top-k": _top_k,
        "push-int8": _int8,
        "pull-dense": _pull,
        "snapshot": _snapshot,
    }
)
