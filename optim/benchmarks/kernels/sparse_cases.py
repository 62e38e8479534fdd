"""What is measured of the kernels on a table's rows: a push of rows, and a pull."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from optim.benchmarks.kernels import loop, peers
from optim.benchmarks.kernels.c_loops import c_loops
from optim.benchmarks.kernels.contest import JAX, RATE, RULES, Calls, Contest, FloatArray, Held, RowArray
from optim.benchmarks.kernels.plain import PlainSparse
from optim.core.provenance import machine_facts
from optim.kernels.parameter_server import (
    Adagrad,
    RowLayout,
    Sgd,
    initial_rows,
    pull_rows,
    pull_rows_to_host,
    push_sparse,
    row_parameters,
    shard_ranges,
)
from optim.training.host_rows import HostRows


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseCase:
    """Push rows into a table, or pull them.

    Parameters
    ----------
    rule
        The optimiser, or "pull".
    pushed, width, rows
        Rows of a message, their width, and rows of the table.
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
        """Parameters of the table."""
        return self.rows * self.width

    @property
    def shape(self) -> list[int]:
        """Rows of a message, their width, rows of the table."""
        return [self.pushed, self.width, self.rows]

    @property
    def moved(self) -> int:
        """Bytes that must be moved: the message, and the rows that it names."""
        if self.rule == "pull":
            return 8 * self.pushed * self.width
        distinct = float(-np.expm1(self.pushed * np.log1p(-self.chances)).sum())
        kept = 8 * (1 + RULES[self.rule].num_slots)
        return int(4 * self.pushed * (self.width + 1) + kept * distinct * self.width)

    @property
    def chances(self) -> NDArray[np.float64]:
        """Shape (rows,): how likely a pushed row is which of the table's, before these are shuffled."""
        weights = np.arange(1, self.rows + 1, dtype=np.float64) ** -self.skew
        return np.asarray(
            weights / max(weights.sum(), np.nextafter(weights[0], np.inf))
        )  # no chance is 1, as of a single row

    def draw(self, rng: np.random.Generator) -> RowArray:
        """Return the rows of a message, shape (pushed,)."""
        if self.skew == 0:
            return rng.integers(0, self.rows, self.pushed).astype(np.int32)
        rank = np.searchsorted(np.cumsum(self.chances), rng.random(self.pushed))
        return rng.permutation(self.rows).astype(np.int32)[np.minimum(rank, self.rows - 1)]

    def contest(self, rng: np.random.Generator) -> Contest:
        """Draw a message, and make the sides."""
        return sparse_contest(self, rng)


def sparse_contest(case: SparseCase, rng: np.random.Generator) -> Contest:
    """Make the sides of a sparse case; some rows are pushed twice.

    On a CPU descent and Adagrad are the server's loops in place, a thread a core on ranges of one table's rows; the same with
    one thread is a side of its own, and so is XLA's loop over rows. That one runs on one core, so there, and for Adam, the
    table lies in as many shards as there are cores, and workers send each its own rows: the message is split beforehand.
    """
    rows = case.draw(rng)
    values: FloatArray = rng.random((case.pushed, case.width), dtype=np.float32) - np.float32(0.5)
    start: FloatArray = rng.random((case.rows, case.width), dtype=np.float32)
    cores = int(machine_facts()["cpus_usable"])
    if case.rule == "pull":
        return _pull_contest(start, rows, cores)
    rule = RULES[case.rule]
    is_on_cpu = jax.default_backend() == "cpu"
    layout = RowLayout(optimiser=rule, width=case.width, method="loop" if is_on_cpu else "sort")
    is_split = is_on_cpu and cores > 1
    server = _RowServer(layout, start, rows, values, cores if is_split else 1)
    plain = PlainSparse(rule, start, rows, values)
    pool = ThreadPoolExecutor(cores)
    calls: Calls = {JAX: server.push, "numpy": plain.by_numpy, **plain.by_numba(), **plain.by_c(pool, cores)}
    found, shards = server.parameters, server.num_shards
    if is_on_cpu and HostRows.takes(rule):
        host, alone = (HostRows(start, plain.slots, rule, threads=threads) for threads in (cores, 1))
        calls |= {JAX: partial(host.push, rows, values), "xla_loop": server.push}
        calls["one_shard"] = partial(alone.push, rows, values)
        found, shards = host.parameters, 1
    elif is_split:
        calls["one_shard"] = _RowServer(layout, start, rows, values, 1).push
    message = jnp.array(rows), jnp.array(values)
    if isinstance(rule, Sgd):
        calls |= {"xla": _scattered(start, *message), **peers.sparse_sgd(start, rows, values, RATE)}
    elif isinstance(rule, Adagrad):
        calls["xla"] = _sorted(start, *message, rule)

    def close() -> None:
        server.close()
        pool.shutdown()
        if is_on_cpu and HostRows.takes(rule):
            host.close()

    return Contest(calls=calls, found=found, others=(lambda: plain.w,), shards=shards, close=close)


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
        for low, high in shard_ranges(len(start), num_shards):
            own = (rows >= low) & (rows < high)
            self._tables.append(initial_rows(jnp.array(start[low:high]), layout))
            self._messages.append((jnp.array(rows[own] - low), jnp.array(values[own])))

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
        """Return the whole table's parameters."""
        return np.concatenate([np.asarray(row_parameters(table, self._layout)) for table in self._tables])


def _pull_contest(start: FloatArray, rows: RowArray, cores: int) -> Contest:
    """Make the sides of a pull."""
    layout = RowLayout(optimiser=RULES["sgd"], width=start.shape[1])
    table, asked = initial_rows(jnp.array(start), layout), jnp.array(rows)
    taken, looped = (np.empty((rows.size, start.shape[1]), np.float32) for _ in range(2))
    pulled = np.empty((rows.size, start.shape[1]), np.float32)
    kernel = Held(lambda _: pull_rows_to_host(table, rows, layout=layout, out=pulled), None)
    gather = Held(lambda _: pull_rows(table, asked, layout=layout), None)
    pool = ThreadPoolExecutor(cores)
    in_c, copied = c_loops(pool, cores), np.empty((rows.size, start.shape[1]), np.float32)
    return Contest(
        calls={
            JAX: kernel,
            "numpy": lambda: np.take(start, rows, axis=0, out=taken, mode="clip"),
            "numba": lambda: loop.pull(start, rows, looped),
            "xla": gather,
            **({} if in_c is None else {"c": lambda: in_c.pull(start, rows, copied)}),
        },
        found=lambda: kernel.held,
        others=(lambda: taken,),
        close=pool.shutdown,
    )


def _scattered(start: FloatArray, rows: jax.Array, values: jax.Array) -> Callable[[], Any]:
    """Return the update by XLA's own scatter."""
    update = jax.jit(lambda w, rows, values: w.at[rows].add(-RATE * values), donate_argnums=0)
    return Held(update, jnp.array(start), rows, values)


def _sorted(start: FloatArray, rows: jax.Array, values: jax.Array, rule: Adagrad) -> Callable[[], Any]:
    """Return exact Adagrad the usual way: sort, sum of segments, gather and scatter."""
    layout = RowLayout(optimiser=rule, width=start.shape[1], method="sort")
    return Held(
        lambda table: push_sparse(table, rows, values, jnp.int32(0), layout=layout),
        initial_rows(jnp.array(start), layout),
    )
