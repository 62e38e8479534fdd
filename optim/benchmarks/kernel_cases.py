"""What is measured of the parameter-server kernels: each case with the same work done by other means beside it."""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from optim.benchmarks import kernel_loop, kernel_peers
from optim.benchmarks.kernel_contest import JAX, RATE, Contest, FloatArray
from optim.benchmarks.kernel_server import ServerProcess
from optim.benchmarks.kernel_stream_cases import StreamCase, stream_contest
from optim.benchmarks.machine import machine_facts
from optim.kernels.parameter_server import (
    AbstractOptimiser,
    Adagrad,
    Adam,
    Momentum,
    RowLayout,
    Rows,
    Sgd,
    apply_pushes,
    initial_rows,
    pull_rows,
    push_sparse,
    row_parameters,
    shard_ranges,
)

RULES: Mapping[str, AbstractOptimiser] = MappingProxyType(
    {
        "sgd": Sgd(learning_rate=RATE),
        "momentum": Momentum(learning_rate=RATE),
        "adagrad": Adagrad(learning_rate=RATE),
        "adam": Adam(learning_rate=RATE),
    }
)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseCase:
    """Push rows into a table, or pull them.

    Parameters
    ----------
    rule
        The optimiser, or "pull".
    pushed, width, rows
        Rows of a message, their width, and rows of the table.
    """

    rule: str
    pushed: int
    width: int
    rows: int
    workers: int = 1

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
        distinct = self.rows * (1.0 - (1.0 - 1.0 / self.rows) ** self.pushed)
        kept = 8 * (1 + RULES[self.rule].num_slots)
        return int(4 * self.pushed * (self.width + 1) + kept * distinct * self.width)


Case = DenseCase | SparseCase | StreamCase


def contest_of(case: Case, seed: int) -> Contest:
    """Draw a case's data and make its sides."""
    rng = np.random.default_rng(seed)
    match case:
        case DenseCase():
            return dense_contest(case, rng)
        case SparseCase():
            return sparse_contest(case, rng)
        case StreamCase():
            return stream_contest(case, rng)


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
    if case.is_half:
        pushes = [np.concatenate([np.asarray(part[k], np.float32) for part in sent]) for k in range(case.workers)]
    states = []
    for low, high in ranges:
        own = jnp.array(start[low:high])
        states.append((own, rule.initial_slots(own)))
    weights, steps = jnp.ones(case.workers), [0, 0]
    pool = ThreadPoolExecutor(cores)

    def one(shard: int) -> None:
        version = jnp.int32(steps[0])
        done = apply_pushes(*states[shard], sent[shard], weights, version, optimiser=rule)
        states[shard] = jax.block_until_ready(done)

    def kernel() -> None:
        if len(states) == 1:
            one(0)
        else:
            list(pool.map(one, range(len(states))))
        steps[0] += 1

    plain = _PlainDense(rule, start.copy(), pushes, pool, cores)
    calls: dict[str, Callable[[], Any]] = {JAX: kernel, "numpy": plain.by_numpy}
    if not case.is_half:
        calls |= plain.others()
    if case.rule == "sgd" and not case.is_half:
        calls["xla"] = _stacked_sum(start, pushes)

    server: ServerProcess | None = None
    if case.rule == "sgd" and not case.is_half and jax.default_backend() == "cpu":
        server = ServerProcess(start, pushes, RATE)
        calls["process"] = server.update

    def found() -> FloatArray:
        return np.concatenate([np.asarray(state[0]) for state in states])

    def error() -> float:
        sides = [found()] if server is None else [found(), server.parameters()]
        return max(float(np.abs(side - plain.w).max()) for side in sides)

    def close() -> None:
        pool.shutdown()
        if server is not None:
            server.close()

    return Contest(
        calls=calls,
        error=error,
        checksum=lambda: float(found().mean(dtype=np.float64)),
        shards=len(ranges),
        close=close,
    )


def _pushed(push: FloatArray, is_half: bool) -> jax.Array:
    return jnp.array(push, jnp.bfloat16 if is_half else jnp.float32)


def _stacked_sum(start: FloatArray, pushes: list[FloatArray]) -> Callable[[], Any]:
    """Return the update as one would write it first: a sum over the first axis of stacked pushes."""
    update = jax.jit(lambda w, stacked: w - RATE * jnp.sum(stacked, axis=0) / len(pushes), donate_argnums=0)
    state = [jnp.array(start), jnp.array(np.stack(pushes))]

    def call() -> None:
        state[0] = update(*state)
        state[0].block_until_ready()

    return call


class _PlainDense:
    """The same update in NumPy, in Numba and by what else is installed; NumPy's state is the reference."""

    def __init__(
        self, rule: AbstractOptimiser, w: FloatArray, pushes: list[FloatArray], pool: ThreadPoolExecutor, cores: int
    ) -> None:
        self.rule, self.w, self.pushes = rule, w, pushes
        self.slots = [np.zeros_like(w) for _ in range(rule.num_slots)]
        self._mean, self._work = np.empty_like(w), np.empty_like(w)
        self._step = 0
        self._pool, self._ranges = pool, shard_ranges(w.size, cores)
        self._own = [w.copy(), *(np.zeros_like(w) for _ in range(rule.num_slots))]

    def by_numpy(self) -> None:
        """Run one update, without allocating anything."""
        mean, work, rate = self._mean, self._work, np.float32(RATE)
        self._step += 1
        np.copyto(mean, self.pushes[0])
        for push in self.pushes[1:]:
            np.add(mean, push, out=mean)
        np.multiply(mean, np.float32(1.0 / len(self.pushes)), out=mean)
        match self.rule:
            case Sgd():
                np.multiply(mean, rate, out=mean)
            case Momentum():
                np.multiply(self.slots[0], np.float32(self.rule.decay), out=self.slots[0])
                np.add(self.slots[0], mean, out=self.slots[0])
                np.multiply(self.slots[0], rate, out=mean)
            case Adagrad():
                np.multiply(mean, mean, out=work)
                np.add(self.slots[0], work, out=self.slots[0])
                np.sqrt(self.slots[0], out=work)
                np.add(work, np.float32(self.rule.epsilon), out=work)
                np.multiply(mean, rate, out=mean)
                np.divide(mean, work, out=mean)
            case Adam():
                self._adam(self.rule, mean, work)
        np.subtract(self.w, mean, out=self.w)

    def _adam(self, rule: Adam, mean: FloatArray, work: FloatArray) -> None:
        first, second = self.slots
        np.multiply(mean, np.float32(1 - rule.first_decay), out=work)
        np.multiply(first, np.float32(rule.first_decay), out=first)
        np.add(first, work, out=first)
        np.multiply(mean, mean, out=work)
        np.multiply(work, np.float32(1 - rule.second_decay), out=work)
        np.multiply(second, np.float32(rule.second_decay), out=second)
        np.add(second, work, out=second)
        np.multiply(second, np.float32(1 / (1 - rule.second_decay**self._step)), out=work)
        np.sqrt(work, out=work)
        np.add(work, np.float32(rule.epsilon), out=work)
        np.multiply(first, np.float32(RATE / (1 - rule.first_decay**self._step)), out=mean)
        np.divide(mean, work, out=mean)

    def others(self) -> dict[str, Callable[[], Any]]:
        """Return the other sides that there are."""
        pushes, own = tuple(self.pushes), self._own
        if isinstance(self.rule, Sgd):
            return {
                "numba": lambda: self._spread(kernel_loop.dense_sgd, own[0], pushes, RATE),
                **kernel_peers.dense_sgd(self.w, self.pushes, RATE),
            }
        if isinstance(self.rule, Momentum):
            decay = self.rule.decay
            return {"numba": lambda: self._spread(kernel_loop.dense_momentum, *own, pushes, RATE, decay)}
        if isinstance(self.rule, Adagrad):
            epsilon = self.rule.epsilon
            return {"numba": lambda: self._spread(kernel_loop.dense_adagrad, *own, pushes, RATE, epsilon)}
        if isinstance(self.rule, Adam):
            rule = self.rule
            settings = (RATE, rule.first_decay, rule.second_decay, rule.epsilon, 3)
            return {"numba": lambda: self._spread(kernel_loop.dense_adam, *own, pushes, *settings)}
        return {}

    def _spread(self, loop: Callable[..., None], *arguments: Any) -> None:
        """Run a loop's ranges, a thread each."""
        list(self._pool.map(lambda part: loop(*arguments, part.start, part.stop), self._ranges))


def sparse_contest(case: SparseCase, rng: np.random.Generator) -> Contest:
    """Make the sides of a sparse case; rows are drawn evenly, so some are pushed twice.

    As in a dense case a table with slots lies in as many shards as there are cores. Workers send each server its own
    rows, so that the message is split beforehand. The same on one shard is a side of its own.
    """
    rows = rng.integers(0, case.rows, case.pushed).astype(np.int32)
    values: FloatArray = rng.random((case.pushed, case.width), dtype=np.float32) - np.float32(0.5)
    start: FloatArray = rng.random((case.rows, case.width), dtype=np.float32)
    if case.rule == "pull":
        return _pull_contest(start, rows)
    rule = RULES[case.rule]
    is_on_cpu = jax.default_backend() == "cpu"
    layout = RowLayout(optimiser=rule, width=case.width, method="loop" if is_on_cpu else "sort")
    cores = int(machine_facts()["cpus_usable"])
    is_split = rule.num_slots > 0 and is_on_cpu and cores > 1
    server = _RowServer(layout, start, rows, values, cores if is_split else 1)
    plain = _PlainSparse(rule, start, rows, values)
    calls: dict[str, Callable[[], Any]] = {JAX: server.push, "numpy": plain.by_numpy, **plain.by_numba()}
    if is_split:
        calls["one_shard"] = _RowServer(layout, start, rows, values, 1).push
    message = jnp.array(rows), jnp.array(values)
    if isinstance(rule, Sgd):
        calls |= {"xla": _scattered(start, *message), **kernel_peers.sparse_sgd(start, rows, values, RATE)}
    elif isinstance(rule, Adagrad):
        calls["xla"] = _sorted(start, *message, rule)
    return Contest(
        calls=calls,
        error=lambda: float(np.abs(server.parameters() - plain.w).max()),
        checksum=lambda: float(server.parameters().mean(dtype=np.float64)),
        shards=server.num_shards,
    )


class _RowServer:
    """The kernel on a table in shards of neighbouring rows, each with a thread and its part of the message."""

    def __init__(
        self,
        layout: RowLayout,
        start: FloatArray,
        rows: np.ndarray[Any, np.dtype[np.int32]],
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

    def _push(self, shard: int) -> None:
        done = push_sparse(self._tables[shard], *self._messages[shard], jnp.int32(self._step), layout=self._layout)
        self._tables[shard] = jax.block_until_ready(done)

    def parameters(self) -> FloatArray:
        """Return the whole table's parameters."""
        return np.concatenate([np.asarray(row_parameters(table, self._layout)) for table in self._tables])


def _pull_contest(start: FloatArray, rows: np.ndarray[Any, np.dtype[np.int32]]) -> Contest:
    """Make the sides of a pull."""
    layout = RowLayout(optimiser=RULES["sgd"], width=start.shape[1])
    table, asked = initial_rows(jnp.array(start), layout), jnp.array(rows)
    taken, looped = (np.empty((rows.size, start.shape[1]), np.float32) for _ in range(2))
    got: list[jax.Array] = [jnp.zeros(())]

    def kernel() -> None:
        got[0] = pull_rows(table, asked, layout=layout).block_until_ready()

    return Contest(
        calls={
            JAX: kernel,
            "numpy": lambda: np.take(start, rows, axis=0, out=taken, mode="clip"),
            "numba": lambda: kernel_loop.pull(start, rows, looped),
        },
        error=lambda: float(np.abs(np.asarray(got[0]) - taken).max()),
        checksum=lambda: float(np.asarray(got[0]).mean(dtype=np.float64)),
    )


def _scattered(start: FloatArray, rows: jax.Array, values: jax.Array) -> Callable[[], Any]:
    """Return the update by XLA's own scatter."""
    update = jax.jit(lambda w, rows, values: w.at[rows].add(-RATE * values), donate_argnums=0)
    state = [jnp.array(start)]

    def call() -> None:
        state[0] = update(state[0], rows, values).block_until_ready()

    return call


def _sorted(start: FloatArray, rows: jax.Array, values: jax.Array, rule: Adagrad) -> Callable[[], Any]:
    """Return exact Adagrad the usual way: sort, sum of segments, gather and scatter."""
    layout = RowLayout(optimiser=rule, width=start.shape[1], method="sort")
    state: list[Rows] = [initial_rows(jnp.array(start), layout)]

    def call() -> None:
        state[0] = jax.block_until_ready(push_sparse(state[0], rows, values, jnp.int32(0), layout=layout))

    return call


class _PlainSparse:
    """The same push in NumPy and Numba; NumPy's table is the reference."""

    def __init__(
        self, rule: AbstractOptimiser, start: FloatArray, rows: np.ndarray[Any, np.dtype[np.int32]], values: FloatArray
    ) -> None:
        self.rule, self.rows, self.values = rule, rows, values
        self.w = start.copy()
        self.slots = [np.zeros_like(start) for _ in range(rule.num_slots)]
        self._step = 0

    def by_numpy(self) -> None:
        """Sort, add up equal rows, update each once."""
        self._step += 1
        order = np.argsort(self.rows, kind="stable")
        ordered = self.rows[order]
        first = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
        sums = np.add.reduceat(self.values[order], first, axis=0)
        pushed, slots = ordered[first], self.slots
        match self.rule:
            case Sgd():
                self.w[pushed] -= np.float32(RATE) * sums
            case Adagrad():
                slots[0][pushed] += sums**2
                self.w[pushed] -= RATE * sums / (np.sqrt(slots[0][pushed]) + np.float32(self.rule.epsilon))
            case Adam():
                decay, second = np.float32(self.rule.first_decay), np.float32(self.rule.second_decay)
                slots[0][pushed] = decay * slots[0][pushed] + (1 - decay) * sums
                slots[1][pushed] = second * slots[1][pushed] + (1 - second) * sums**2
                scale = np.float32(1 / (1 - self.rule.second_decay**self._step))
                rate = np.float32(RATE / (1 - self.rule.first_decay**self._step))
                root = np.sqrt(slots[1][pushed] * scale) + np.float32(self.rule.epsilon)
                self.w[pushed] -= rate * slots[0][pushed] / root

    def by_numba(self) -> dict[str, Callable[[], Any]]:
        """Return a serial loop where there is one."""
        own = self.w.copy()
        if isinstance(self.rule, Sgd):
            return {"numba": lambda: kernel_loop.sparse_sgd(own, self.rows, self.values, RATE)}
        if isinstance(self.rule, Adagrad):
            squares, first = np.zeros_like(own), np.zeros(len(own), np.int32)
            sums, epsilon = np.zeros_like(self.values), self.rule.epsilon
            message = (self.rows, self.values, RATE, epsilon, first, sums)
            return {"numba": lambda: kernel_loop.sparse_adagrad(own, squares, *message)}
        return {}
