"""What is measured of the kernels on dense pushes: several workers' pushes, aggregated and applied."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from optim.benchmarks.kernels.contest import JAX, RATE, RULES, Calls, Contest, FloatArray, Held
from optim.benchmarks.kernels.plain import PlainDense
from optim.benchmarks.kernels.server import ServerProcess
from optim.core.provenance import machine_facts
from optim.kernels.parameter_server import AbstractOptimiser, apply_pushes, shard_ranges


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseCase:
    """Aggregate pushes and apply them.

    Parameters
    ----------
    rule, workers, parameters
        Which optimiser, how many pushes, and of what length.
    is_half
        Whether pushes are bfloat16.
    """

    rule: str
    workers: int
    parameters: int
    is_half: bool = False

    @property
    def kernel(self) -> str:
        """Name of the kernel."""
        return f"dense-{self.rule}" + ("-bfloat16" if self.is_half else "")

    @property
    def shape(self) -> list[int]:
        """Pushes by parameters."""
        return [self.workers, self.parameters]

    @property
    def moved(self) -> int:
        """Bytes that must be moved: pushes read, parameters and slots read and written."""
        kept = 8 * (1 + RULES[self.rule].num_slots)
        return self.parameters * (self.workers * (2 if self.is_half else 4) + kept)

    def contest(self, rng: np.random.Generator) -> Contest:
        """Draw pushes, and make the sides."""
        return dense_contest(self, rng)


def dense_contest(case: DenseCase, rng: np.random.Generator) -> Contest:
    """Make the sides of a dense case.

    An update with slots runs in a loop on one core, so the parameters lie in as many shards as there are cores, and
    each has a thread, as each has a server.
    """
    rule, size = RULES[case.rule], case.parameters
    cores = int(machine_facts()["cpus_usable"])
    is_split = rule.num_slots > 0 and jax.default_backend() == "cpu"
    ranges = shard_ranges(size, cores if is_split else 1)
    start: FloatArray = rng.random(size, dtype=np.float32)
    pushes: list[FloatArray] = [rng.random(size, dtype=np.float32) - np.float32(0.5) for _ in range(case.workers)]
    sent = [[_pushed(push[low:high], case.is_half) for push in pushes] for low, high in ranges]
    if case.is_half:  # the other sides apply what the kernel is sent
        pushes = [np.concatenate([np.asarray(part[k], np.float32) for part in sent]) for k in range(case.workers)]
    pool = ThreadPoolExecutor(cores)
    kernel = _ShardedKernel(rule, [start[low:high] for low, high in ranges], sent, pool)
    plain = PlainDense(rule, start.copy(), pushes, pool, cores)
    calls: Calls = {JAX: kernel.update, "numpy": plain.by_numpy}
    if not case.is_half:
        calls |= plain.others()
    server: ServerProcess | None = None
    if case.rule == "sgd" and not case.is_half:
        calls["xla"] = _stacked_sum(start, pushes)
        if jax.default_backend() == "cpu":
            server = ServerProcess(start, pushes, RATE)
            calls["process"] = server.update

    def close() -> None:
        pool.shutdown()
        if server is not None:
            server.close()

    return Contest(
        calls=calls,
        found=kernel.parameters,
        others=(lambda: plain.w, *(() if server is None else (server.parameters,))),
        shards=len(ranges),
        close=close,
    )


class _ShardedKernel:
    """The kernel on parameters in shards, each with a thread and its part of every push."""

    def __init__(
        self, rule: AbstractOptimiser, starts: list[FloatArray], sent: list[list[jax.Array]], pool: ThreadPoolExecutor
    ) -> None:
        self._rule, self._sent, self._pool = rule, sent, pool
        shards = [jnp.array(start) for start in starts]
        self._states = [(own, rule.initial_slots(own)) for own in shards]
        self._weights, self._step = jnp.ones(len(sent[0])), 0

    def update(self) -> None:
        """Aggregate the pushes once more, and apply them."""
        if len(self._states) == 1:
            self._update(0)
        else:
            list(self._pool.map(self._update, range(len(self._states))))
        self._step += 1

    def _update(self, shard: int) -> None:
        version = jnp.int32(self._step)
        done = apply_pushes(*self._states[shard], self._sent[shard], self._weights, version, optimiser=self._rule)
        self._states[shard] = jax.block_until_ready(done)

    def parameters(self) -> FloatArray:
        """Return all parameters."""
        return np.concatenate([np.asarray(state[0]) for state in self._states])


def _pushed(push: FloatArray, is_half: bool) -> jax.Array:
    return jnp.array(push, jnp.bfloat16 if is_half else jnp.float32)


def _stacked_sum(start: FloatArray, pushes: list[FloatArray]) -> Callable[[], Any]:
    """Return the update as one would write it first: a sum over the first axis of stacked pushes."""
    update = jax.jit(lambda w, stacked: w - RATE * jnp.sum(stacked, axis=0) / len(pushes), donate_argnums=0)
    return Held(update, jnp.array(start), jnp.array(np.stack(pushes)))
