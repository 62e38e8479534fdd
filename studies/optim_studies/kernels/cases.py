"""Benchmark cases of the kernels: dense pushes, rows of a table, streams on one vector."""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from optim.core.provenance import machine_facts
from optim.kernels.parameter_server import (
    AbstractOptimiser,
    Adagrad,
    RowLayout,
    Sgd,
    apply_pushes,
    copy_arrays,
    initial_rows,
    pull_rows,
    push_sparse,
)
from optim_studies.kernels import baselines
from optim_studies.kernels.baselines import (
    JAX,
    RATE,
    RULES,
    Calls,
    FloatArray,
    KernelComparison,
    PlainDense,
    PlainSparse,
    RowArray,
    StatefulCall,
    c_loops,
    ranges_of,
)
from optim_studies.kernels.server import ServerProcess


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseCase:
    """Aggregate pushes and apply them.

    Parameters
    ----------
    rule, workers, parameters
        Name of the optimiser, number of pushes, and their length.
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
        """Number of pushes, and of parameters."""
        return [self.workers, self.parameters]

    @property
    def moved(self) -> int:
        """Bytes that must be moved: pushes read, parameters and slots read and written."""
        state_bytes = 8 * (1 + RULES[self.rule].num_slots)
        return self.parameters * (self.workers * (2 if self.is_half else 4) + state_bytes)

    def contest(self, rng: np.random.Generator) -> KernelComparison:
        """Draw pushes, and return the implementations."""
        return dense_contest(self, rng)


def dense_contest(case: DenseCase, rng: np.random.Generator) -> KernelComparison:
    """Return the implementations of a dense case.

    An update with slots runs in a loop on one core. So there is one shard of the parameters per core, each with a thread, as in
    a sharded server.
    """
    rule, size = RULES[case.rule], case.parameters
    cores = int(machine_facts()["cpus_usable"])
    is_split = rule.num_slots > 0 and jax.default_backend() == "cpu"
    ranges = ranges_of(size, cores if is_split else 1)
    start: FloatArray = rng.random(size, dtype=np.float32)
    pushes: list[FloatArray] = [rng.random(size, dtype=np.float32) - np.float32(0.5) for _ in range(case.workers)]
    sent = [[_pushed(push[low:high], case.is_half) for push in pushes] for low, high in ranges]
    if case.is_half:  # the baselines apply the same rounded pushes as the kernel
        pushes = [np.concatenate([np.asarray(part[k], np.float32) for part in sent]) for k in range(case.workers)]
    pool = ThreadPoolExecutor(cores)
    kernel = _ShardedKernel(rule, [start[low:high] for low, high in ranges], sent, pool)
    baseline = PlainDense(rule, start.copy(), pushes, pool, cores)
    calls: Calls = {JAX: kernel.update, "numpy": baseline.by_numpy}
    if not case.is_half:
        calls |= baseline.others()
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

    return KernelComparison(
        calls=calls,
        result=kernel.parameters,
        others=(lambda: baseline.w, *(() if server is None else (server.parameters,))),
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
        self._states = [(shard, rule.initial_slots(shard)) for shard in shards]
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
    """Return the most obvious implementation of the update: a sum over the first axis of stacked pushes."""
    update = jax.jit(lambda w, stacked: w - RATE * jnp.sum(stacked, axis=0) / len(pushes), donate_argnums=0)
    return StatefulCall(update, jnp.array(start), jnp.array(np.stack(pushes)))


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseCase:
    """Push rows into a table, or pull them.

    Parameters
    ----------
    rule
        The optimiser, or "pull".
    pushed, width, rows
        Number of rows of the message, width of a row, and number of rows of the table.
    skew
        Exponent of Zipf's law by which rows are drawn.
    """

    rule: str
    pushed: int
    width: int
    rows: int
    workers: int = 1
    skew: float = 0.0

    @property
    def kernel(self) -> str:
        """Name of the kernel."""
        return "pull" if self.rule == "pull" else f"sparse-{self.rule}"

    @property
    def parameters(self) -> int:
        """Number of parameters of the table."""
        return self.rows * self.width

    @property
    def shape(self) -> list[int]:
        """Number of rows of the message, width of a row, and number of rows of the table."""
        return [self.pushed, self.width, self.rows]

    @property
    def moved(self) -> int:
        """Bytes that must be moved: the message, and the rows that it names."""
        if self.rule == "pull":
            return 8 * self.pushed * self.width
        distinct = float(-np.expm1(self.pushed * np.log1p(-self.chances)).sum())
        state_bytes = 8 * (1 + RULES[self.rule].num_slots)
        return int(4 * self.pushed * (self.width + 1) + state_bytes * distinct * self.width)

    @property
    def chances(self) -> NDArray[np.float64]:
        """Shape (rows,): probability of each row of the table to be pushed, before rows are shuffled."""
        weights = np.arange(1, self.rows + 1, dtype=np.float64) ** -self.skew
        # Even a single row has a probability below 1, since `moved` takes the logarithm of its complement.
        return np.asarray(weights / max(weights.sum(), np.nextafter(weights[0], np.inf)))

    def draw(self, rng: np.random.Generator) -> RowArray:
        """Return the rows of a message, shape (pushed,)."""
        if self.skew == 0:
            return rng.integers(0, self.rows, self.pushed).astype(np.int32)
        rank = np.searchsorted(np.cumsum(self.chances), rng.random(self.pushed))
        return rng.permutation(self.rows).astype(np.int32)[np.minimum(rank, self.rows - 1)]

    def draw_values(self, rng: np.random.Generator) -> FloatArray:
        """Return the values of a message, shape (pushed, width): multiples of 2^-10 in [-0.5, 0.5].

        Sums of fewer than 2^15 such values are exact in every order of addition. This matters near a sum of 0: the first step of
        Adagrad and of Adam has the size of the learning rate and the sign of the sum, so a rounding error could flip it.
        """
        return (rng.integers(-512, 513, (self.pushed, self.width), np.int16) / np.float32(1024)).astype(np.float32)

    def contest(self, rng: np.random.Generator) -> KernelComparison:
        """Draw a message, and return the implementations."""
        return sparse_contest(self, rng)


def sparse_contest(case: SparseCase, rng: np.random.Generator) -> KernelComparison:
    """Return the implementations of a sparse case; some rows are pushed twice.

    On a CPU the kernel is a loop that runs on one core. So there is one shard of the table per core, and the message is split
    by shard beforehand, as workers would do. The kernel on a single shard is measured separately.
    """
    rows = case.draw(rng)
    values = case.draw_values(rng)
    start: FloatArray = rng.random((case.rows, case.width), dtype=np.float32)
    cores = int(machine_facts()["cpus_usable"])
    if case.rule == "pull":
        return _pull_contest(start, rows, cores)
    rule = RULES[case.rule]
    is_on_cpu = jax.default_backend() == "cpu"
    layout = RowLayout(optimiser=rule, width=case.width, method="loop" if is_on_cpu else "sort")
    is_split = is_on_cpu and cores > 1
    server = _RowServer(layout, start, rows, values, cores if is_split else 1)
    baseline = PlainSparse(rule, start, rows, values)
    pool = ThreadPoolExecutor(cores)
    calls: Calls = {JAX: server.push, "numpy": baseline.by_numpy, **baseline.by_numba(), **baseline.by_c(pool, cores)}
    result, shards = server.parameters, server.num_shards
    if is_split:
        calls["one_shard"] = _RowServer(layout, start, rows, values, 1).push
    message = jnp.array(rows), jnp.array(values)
    if isinstance(rule, Sgd):
        calls |= {"xla": _scattered(start, *message), **baselines.sparse_sgd_of_frameworks(start, rows, values, RATE)}
    elif isinstance(rule, Adagrad):
        calls["xla"] = _sorted(start, *message, rule)

    def close() -> None:
        server.close()
        pool.shutdown()

    return KernelComparison(calls=calls, result=result, others=(lambda: baseline.w,), shards=shards, close=close)


class _RowServer:
    """The kernel on a table in shards of neighbouring rows, each with a thread and its part of the message."""

    def __init__(
        self,
        layout: RowLayout,
        start: FloatArray,
        rows: RowArray,
        values: FloatArray,
        num_shards: int,
    ) -> None:
        self.num_shards = num_shards
        self._layout, self._step, self._pool = layout, 0, ThreadPoolExecutor(num_shards)
        self._tables, self._messages = [], []
        for low, high in ranges_of(len(start), num_shards):
            is_inside = (rows >= low) & (rows < high)
            self._tables.append(initial_rows(jnp.array(start[low:high]), layout))
            self._messages.append((jnp.array(rows[is_inside] - low), jnp.array(values[is_inside])))

    def push(self) -> None:
        """Push the message once more."""
        list(self._pool.map(self._push, range(self.num_shards)))
        self._step += 1

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown()

    def _push(self, shard: int) -> None:
        done = push_sparse(self._tables[shard], *self._messages[shard], jnp.int32(self._step), layout=self._layout)
        self._tables[shard] = jax.block_until_ready(done)

    def parameters(self) -> FloatArray:
        """Return the parameters of all shards."""
        return np.concatenate([np.asarray(table.parameters) for table in self._tables])


def _pull_contest(start: FloatArray, rows: RowArray, cores: int) -> KernelComparison:
    """Return the implementations of a pull."""
    layout = RowLayout(optimiser=RULES["sgd"], width=start.shape[1])
    table, asked = initial_rows(jnp.array(start), layout), jnp.array(rows)
    by_numpy, looped = (np.empty((rows.size, start.shape[1]), np.float32) for _ in range(2))
    kernel = StatefulCall(lambda _: pull_rows(table, asked), None)
    pool = ThreadPoolExecutor(cores)
    in_c, copied = c_loops(pool, cores), np.empty((rows.size, start.shape[1]), np.float32)
    return KernelComparison(
        calls={
            JAX: kernel,
            "numpy": lambda: np.take(start, rows, axis=0, out=by_numpy, mode="clip"),
            "numba": lambda: baselines.pull(start, rows, looped),
            **({} if in_c is None else {"c": lambda: in_c.pull(start, rows, copied)}),
        },
        result=lambda: kernel.state,
        others=(lambda: by_numpy,),
        close=pool.shutdown,
    )


def _scattered(start: FloatArray, rows: jax.Array, values: jax.Array) -> Callable[[], Any]:
    """Return the update by XLA's built-in scatter."""
    update = jax.jit(lambda w, rows, values: w.at[rows].add(-RATE * values), donate_argnums=0)
    return StatefulCall(update, jnp.array(start), rows, values)


def _sorted(start: FloatArray, rows: jax.Array, values: jax.Array, rule: Adagrad) -> Callable[[], Any]:
    """Return exact Adagrad by the usual method: sort, sums of segments, gather and scatter."""
    layout = RowLayout(optimiser=rule, width=start.shape[1], method="sort")
    return StatefulCall(
        lambda table: push_sparse(table, rows, values, jnp.int32(0), layout=layout),
        initial_rows(jnp.array(start), layout),
    )


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
        Number of gradients: one.
    """

    kernel: str
    parameters: int
    workers: int = 1

    @property
    def shape(self) -> list[int]:
        """Number of gradients, and of parameters."""
        return [self.workers, self.parameters]

    @property
    def moved(self) -> int:
        """Bytes that must be moved."""
        return self.parameters * _STREAMS[self.kernel][1]

    def contest(self, rng: np.random.Generator) -> KernelComparison:
        """Draw a gradient, and return the implementations."""
        return _STREAMS[self.kernel][0](rng.random(self.parameters, dtype=np.float32) - np.float32(0.5))


def _snapshot(gradient: FloatArray) -> KernelComparison:
    """Copy a shard's parameters and one slot."""
    stacked = np.stack([gradient, np.square(gradient)])
    arrays, target = tuple(map(jnp.array, stacked)), np.empty_like(stacked)
    kernel = StatefulCall(lambda _: copy_arrays(arrays), copy_arrays(arrays))
    numpy_copy = StatefulCall(lambda _: stacked.copy(), stacked)
    calls: Calls = {
        JAX: kernel,
        "numpy": numpy_copy,
        "numba": lambda: baselines.copy(stacked.reshape(-1), target.reshape(-1)),
    }
    return KernelComparison(calls=calls, result=lambda: jnp.stack(kernel.state), others=(lambda: numpy_copy.state,))


_STREAMS: Mapping[str, tuple[Callable[[FloatArray], KernelComparison], int]] = MappingProxyType(
    {
        "snapshot": (_snapshot, 16),
    }
)
"""For each kernel its implementations, and bytes moved per parameter: parameters and one slot are read and written."""
