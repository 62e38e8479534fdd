"""What is measured of the kernels that work on one vector: pushes as they arrive, damped ones, compressed ones, copies."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from optim.benchmarks.kernels import loop
from optim.benchmarks.kernels.contest import JAX, RATE, Calls, Contest, FloatArray, Held
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

    def contest(self, rng: np.random.Generator) -> Contest:
        """Draw gradients, and make the sides."""
        gradients: FloatArray = rng.random((self.workers, self.parameters), dtype=np.float32) - np.float32(0.5)
        return _CONTESTS[self.kernel](gradients)


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


def _contest(calls: Calls, found: Callable[[], Any], wanted: Callable[[], Any]) -> Contest:
    return Contest(calls=calls, found=found, others=(wanted,))


def _push(gradients: FloatArray) -> Contest:
    """Add one push to a shard's sum."""
    size = gradients.shape[1]
    sent, weight = jnp.array(gradients[0]), jnp.float32(0.5)
    state = initial_state(jnp.zeros(size), Sgd(learning_rate=RATE))
    kernel = Held(push_dense, state, sent, weight)
    total, work, looped = np.zeros(size, np.float32), np.empty(size, np.float32), np.zeros(size, np.float32)

    def by_numpy() -> None:
        np.multiply(gradients[0], np.float32(0.5), out=work)
        np.add(total, work, out=total)

    calls: Calls = {JAX: kernel, "numpy": by_numpy, "numba": lambda: loop.push(looped, gradients[0], 0.5)}
    return _contest(calls, lambda: kernel.held.accumulator, lambda: total)


def _damped(gradients: FloatArray) -> Contest:
    """Apply gradients of several lags one after the other; a product with a vector of weights does the same here."""
    workers, size = gradients.shape
    damping, rule = Damping(), Sgd(learning_rate=RATE)
    read = np.maximum(0, np.arange(workers) - np.arange(workers) % 4).astype(np.int32)
    weights = (1.0 / (1.0 + np.arange(workers) - read)).astype(np.float32)
    sent, seen, version = jnp.array(gradients), jnp.array(read), jnp.int32(0)
    w, work, looped = np.zeros(size, np.float32), np.empty(size, np.float32), np.zeros(size, np.float32)
    product = jax.jit(lambda held, pushed: held - RATE * (jnp.asarray(weights) @ pushed), donate_argnums=0)
    kernel = Held(
        lambda held: apply_damped_batch(held[0], (), sent, version, seen, optimiser=rule, damping=damping),
        (jnp.zeros(size),),
    )

    def by_numpy() -> None:
        for gradient, weight in zip(gradients, weights, strict=True):
            np.multiply(gradient, np.float32(RATE) * weight, out=work)
            np.subtract(w, work, out=w)

    calls: Calls = {
        JAX: kernel,
        "numpy": by_numpy,
        "numba": lambda: loop.damped_sgd(looped, gradients, weights, RATE),
        "xla": Held(product, jnp.zeros(size), sent),
    }
    return _contest(calls, lambda: kernel.held[0], lambda: w)


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

    calls: Calls = {JAX: kernel, "numpy": by_numpy}
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

    calls: Calls = {JAX: kernel, "numpy": by_numpy, "numba": by_numba}
    return _contest(calls, lambda: held[0] + held[1], lambda: left + total)


def _pull(gradients: FloatArray) -> Contest:
    """Copy a shard's parameters for a worker."""
    w, version, clocks = jnp.array(gradients[0]), jnp.int32(0), jnp.zeros(4, jnp.int32)
    return _copies(gradients[0], lambda: pull_dense(w, version, clocks).parameters, jnp.asarray)


def _snapshot(gradients: FloatArray) -> Contest:
    """Copy a shard's parameters and one slot."""
    own = np.stack([gradients[0], np.square(gradients[0])])
    arrays = jnp.array(own[0]), (jnp.array(own[1]),)
    return _copies(own, lambda: copy_arrays(arrays), lambda copied: jnp.stack([copied[0], *copied[1]]))


def _copies(own: FloatArray, copied: Callable[[], Any], shown: Callable[[Any], jax.Array]) -> Contest:
    """Return a copy by the kernel, and plain ones of the same floats."""
    kernel, plain = Held(lambda _: copied(), copied()), Held(lambda _: own.copy(), own)
    target = np.empty_like(own)
    calls: Calls = {JAX: kernel, "numpy": plain, "numba": lambda: loop.copy(own.reshape(-1), target.reshape(-1))}
    return _contest(calls, lambda: shown(kernel.held), lambda: plain.held)


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
