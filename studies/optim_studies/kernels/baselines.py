"""Baselines for the same updates: NumPy, Numba, PyTorch, Ray; and the sizes of the kernels' studies."""

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jax
import numpy as np

from optim.compiled import compiled
from optim.core.errors import InvalidOptionError, MissingDependencyError, check_in
from optim.core.options import options_as_dict
from optim.kernels.parameter_server import AbstractOptimiser, Adagrad, Adam, Momentum, Sgd
from optim.training.stages import bounds

FloatArray = np.ndarray[Any, np.dtype[np.float32]]

RowArray = np.ndarray[Any, np.dtype[np.int32]]
"""Row numbers of a table."""

Calls = dict[str, Callable[[], Any]]
"""Functions that run one update, by name of the implementation."""

RATE = 0.01

JAX = "jax"
"""Name of the kernel among the implementations."""

RULES: Mapping[str, AbstractOptimiser] = MappingProxyType(
    {
        "sgd": Sgd(learning_rate=RATE),
        "momentum": Momentum(learning_rate=RATE),
        "adagrad": Adagrad(learning_rate=RATE),
        "adam": Adam(learning_rate=RATE),
    }
)
"""Optimisers of the measured rows, all with learning rate RATE."""


class StatefulCall:
    """A state of one or several arrays; each call replaces it by a function's result, and waits for the result."""

    def __init__(self, function: Callable[..., Any], state: Any, *fixed: Any) -> None:
        self.function, self.state, self.fixed = function, state, fixed

    def __call__(self) -> None:
        """Replace the state by one update."""
        self.state = jax.block_until_ready(self.function(self.state, *self.fixed))


def furthest(first: Any, *others: Any) -> float:
    """Return the maximum absolute difference of any array from the first."""
    known = np.asarray(first, np.float64)
    return max(float(np.abs(np.asarray(other, np.float64) - known).max()) for other in others)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelComparison:
    """Implementations of a case, ready to run.

    Parameters
    ----------
    calls
        One update by each implementation; the kernel is `JAX`.
    result, others
        Functions that return the kernel's parameters, and those of implementations to compare with it, NumPy's first.
    shards
        Number of arrays into which the parameters are split; each has one thread.
    close
        Release the processes and threads of the implementations.
    """

    calls: Calls
    result: Callable[[], Any]
    others: tuple[Callable[[], Any], ...]
    shards: int = 1
    close: Callable[[], None] = lambda: None

    def error(self) -> float:
        """Return the largest difference from NumPy's parameters; call it when all have run equally often."""
        reference, *others = (np.asarray(other()) for other in self.others)
        return furthest(reference, self.result(), *others)

    def checksum(self) -> float:
        """Return the mean of the kernel's parameters."""
        return float(np.asarray(self.result()).mean(dtype=np.float64))


def _check_positive(options: "KernelOptions | TrapOptions") -> None:
    for name, value in options_as_dict(options).items():
        if name != "skew" and not isinstance(value, bool) and value < 1:
            raise InvalidOptionError(f"{name} must be at least 1, got {value}")


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelOptions:
    """Sizes of the study.

    Parameters
    ----------
    parameters, small_parameters
        Length of large and of small dense pushes; the small length is also that of the kernels on one vector.
    pushed, width, rows
        Number of rows per sparse push, width of a row, and number of rows of the table.
    rounds
        Number of rounds; times are medians over them.
    is_brief
        Whether to measure only two optimisers on dense pushes and two on tables.
    skew
        Exponent of Zipf's law by which rows are drawn, so that a few rows are pushed repeatedly; 0 draws uniformly.
    """

    parameters: int = 1 << 24
    small_parameters: int = 1 << 22
    pushed: int = 262_144
    width: int = 64
    rows: int = 1_000_000
    rounds: int = 30
    is_brief: bool = False
    skew: float = 0.0

    def __post_init__(self) -> None:
        _check_positive(self)
        check_in("[0, 10]", self, "skew")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrapOptions:
    """Sizes of the study.

    Parameters
    ----------
    parameters, workers
        Length of dense pushes, and number of pushes per update.
    leaves
        Number of arrays of a model's parameters.
    pushed, width, rows
        Number of rows per sparse push, width of a row, and number of rows of the table.
    carried_pushes, carried_rows
        Number of rows of the push and of the table for the loop that carries two arrays.
    rounds
        Number of rounds; times are medians over them.
    """

    parameters: int = 1 << 22
    workers: int = 16
    leaves: int = 200
    pushed: int = 262_144
    width: int = 64
    rows: int = 1_000_000
    carried_pushes: int = 512
    carried_rows: int = 2_000
    rounds: int = 15

    def __post_init__(self) -> None:
        _check_positive(self)
        if self.carried_pushes > self.carried_rows:
            raise InvalidOptionError(
                f"carried_pushes must be at most carried_rows {self.carried_rows}, got {self.carried_pushes}: each row "
                "is pushed once"
            )


@compiled
def dense_sgd(w, pushes, rate, start, stop):
    """Aggregate pushes and step against their mean, from element `start` to `stop`."""
    workers = len(pushes)
    scale = np.float32(rate / workers)
    for i in range(start, stop):
        total = pushes[0][i]
        for k in range(1, workers):
            total += pushes[k][i]
        w[i] -= scale * total


@compiled
def dense_adam(w, m, v, pushes, rate, first, second, epsilon, step, start, stop):
    """Aggregate pushes and apply Adam, from element `start` to `stop`."""
    workers = len(pushes)
    share = np.float32(1.0 / workers)
    one = np.float32(1.0)
    b1, b2, eps = np.float32(first), np.float32(second), np.float32(epsilon)
    scaled = np.float32(rate / (1.0 - first**step))
    correction = np.float32(1.0 / (1.0 - second**step))
    for i in range(start, stop):
        total = pushes[0][i]
        for k in range(1, workers):
            total += pushes[k][i]
        g = total * share
        m[i] = b1 * m[i] + (one - b1) * g
        v[i] = b2 * v[i] + (one - b2) * g * g
        w[i] -= scaled * m[i] / (np.sqrt(v[i] * correction) + eps)


@compiled
def dense_momentum(w, u, pushes, rate, decay, start, stop):
    """Aggregate pushes and apply the heavy ball, from element `start` to `stop`."""
    workers = len(pushes)
    share, step, decay_f32 = np.float32(1.0 / workers), np.float32(rate), np.float32(decay)
    for i in range(start, stop):
        total = pushes[0][i]
        for k in range(1, workers):
            total += pushes[k][i]
        u[i] = decay_f32 * u[i] + total * share
        w[i] -= step * u[i]


@compiled
def dense_adagrad(w, h, pushes, rate, epsilon, start, stop):
    """Aggregate pushes and apply Adagrad, from element `start` to `stop`."""
    workers = len(pushes)
    share, step, eps = np.float32(1.0 / workers), np.float32(rate), np.float32(epsilon)
    for i in range(start, stop):
        total = pushes[0][i]
        for k in range(1, workers):
            total += pushes[k][i]
        g = total * share
        h[i] += g * g
        w[i] -= step * g / (np.sqrt(h[i]) + eps)


@compiled
def sparse_sgd(table, rows, values, rate):
    """Apply the pushed rows one by one."""
    step = np.float32(rate)
    for i in range(rows.shape[0]):
        row = rows[i]
        for j in range(table.shape[1]):
            table[row, j] -= step * values[i, j]


@compiled
def sparse_adagrad(table, squares, rows, values, rate, epsilon, first, sums):
    """Add up repeated rows at the position of their first push, then update each once; `first` and `sums` are scratch."""
    step, eps = np.float32(rate), np.float32(epsilon)
    for i in range(rows.shape[0] - 1, -1, -1):
        first[rows[i]] = i
    sums[:] = 0
    for i in range(rows.shape[0]):
        k = first[rows[i]]
        for j in range(table.shape[1]):
            sums[k, j] += values[i, j]
    for i in range(rows.shape[0]):
        row = rows[i]
        if first[row] != i:
            continue
        for j in range(table.shape[1]):
            g = sums[i, j]
            squares[row, j] += g * g
            table[row, j] -= step * g / (np.sqrt(squares[row, j]) + eps)


@compiled
def pull(table, rows, out):
    """Copy the requested rows."""
    for i in range(rows.shape[0]):
        for j in range(table.shape[1]):
            out[i, j] = table[rows[i], j]


@compiled
def in_place(x, start, stop):
    """Add one to every element from `start` to `stop`."""
    for i in range(start, stop):
        x[i] += np.float32(1)


@compiled
def copy(source, target):
    """Copy an array."""
    for i in range(source.shape[0]):
        target[i] = source[i]


def ranges_of(size: int, count: int) -> list[tuple[int, int]]:
    """Return contiguous ranges that cover a vector once."""
    return [bounds(size, count, index) for index in range(count)]


SOURCE = Path(__file__).with_name("loops.c")

COMPILERS = ("cc", "gcc", "clang")

# Not -ffast-math: linked with it, a library switches subnormal numbers off for the process that loads it.
SUMS_IN_ANY_ORDER = ("-fassociative-math", "-fno-signed-zeros", "-fno-trapping-math", "-ffinite-math-only")

FLAGS = ("-O3", "-march=native", *SUMS_IN_ANY_ORDER, "-fno-math-errno", "-shared", "-fPIC")

Part = Callable[[int, int], Any]


class CLoops:
    """Loops that are compiled from C; they read arrays without a copy, and change them in place.

    Parameters
    ----------
    library
        The compiled library.
    pool, cores
        Threads, and number of parts into which the work is cut.
    """

    def __init__(self, library: ctypes.CDLL, pool: ThreadPoolExecutor, cores: int) -> None:
        self._library, self._pool, self._cores = library, pool, cores

    def in_place(self, x: FloatArray) -> None:
        """Add one to every element."""
        self._spread(x.size, lambda a, b: self._library.in_place(_at(x), _long(a), _long(b)))

    def stream_copy(self, source: FloatArray, target: FloatArray) -> None:
        """Copy with stores that bypass the cache."""
        call = self._library.stream_copy
        self._spread(source.size, lambda a, b: call(_at(source), _at(target), _long(a), _long(b)))

    def dense_sgd(self, w: FloatArray, pushes: list[FloatArray], rate: float) -> None:
        """Step against the pushes' mean."""
        places = (ctypes.c_void_p * len(pushes))(*(push.ctypes.data for push in pushes))
        call, many = self._library.dense_sgd, _long(len(pushes))
        self._spread(w.size, lambda a, b: call(_at(w), places, many, ctypes.c_float(rate), _long(a), _long(b)))

    def sparse_sgd(self, table: FloatArray, rows: RowArray, values: FloatArray, rate: float) -> None:
        """Step against each pushed row's gradient."""
        sizes = _long(rows.size), _long(table.shape[1])
        call, step = self._library.sparse_sgd, ctypes.c_float(rate)
        message = _at(table), _at(rows), _at(values)
        self._spread(len(table), lambda a, b: call(*message, *sizes, step, _long(a), _long(b)))

    def sparse_adagrad(
        self,
        table: FloatArray,
        squares: FloatArray,
        rows: RowArray,
        values: FloatArray,
        rate: float,
        epsilon: float,
        first: RowArray,
        after: RowArray,
    ) -> None:
        """Add up repeated rows, then apply Adagrad once to each.

        `first` (shape (rows,), -1 before and after) and `after` (shape (pushed,)) are scratch. Rows have 4096 numbers at most.
        """
        message = _at(table), _at(squares), _at(rows), _at(values), _long(rows.size), _long(table.shape[1])
        settings = ctypes.c_float(rate), ctypes.c_float(epsilon), _at(first), _at(after)
        call = self._library.sparse_adagrad
        self._spread(len(table), lambda a, b: call(*message, *settings, _long(a), _long(b)))

    def pull(self, table: FloatArray, rows: RowArray, out: FloatArray) -> None:
        """Copy the requested rows."""
        message, call = (_at(table), _at(rows), _at(out), _long(table.shape[1])), self._library.pull
        self._spread(rows.size, lambda a, b: call(*message, _long(a), _long(b)))

    def _spread(self, size: int, part: Part) -> None:
        list(self._pool.map(lambda ends: part(*ends), ranges_of(size, self._cores)))


def c_loops(pool: ThreadPoolExecutor, cores: int) -> CLoops | None:
    """Return the loops in C; None if there is no compiler or it fails."""
    library = _compiled()
    return None if library is None else CLoops(library, pool, cores)


@cache
def _compiled() -> ctypes.CDLL | None:
    """Compile once per process, into a folder that is removed after the library is loaded."""
    compiler = next((path for name in COMPILERS if (path := shutil.which(name))), None)
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, "loops.so")
        done = subprocess.run(
            [compiler, *FLAGS, "-o", str(target), str(SOURCE), "-lm"], capture_output=True, check=False
        )
        return ctypes.CDLL(str(target)) if done.returncode == 0 else None


def _at(array: np.ndarray[Any, Any]) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def _long(number: int) -> ctypes.c_int64:
    return ctypes.c_int64(number)


def dense_sgd_of_frameworks(w: Any, pushes: list[Any], rate: float) -> dict[str, Callable[[], Any]]:
    """Return the installed frameworks' functions that aggregate and apply dense pushes, by name."""
    return _installed({"torch": _torch_dense, "ray": _ray_server}, w, pushes, rate)


def sparse_sgd_of_frameworks(table: Any, rows: Any, values: Any, rate: float) -> dict[str, Callable[[], Any]]:
    """Return the installed frameworks' functions that apply pushed rows, by name."""
    return _installed({"torch": _torch_sparse}, table, rows, values, rate)


def optional(name: str) -> Any:
    """Import a package that only a baseline needs.

    Raises
    ------
    MissingDependencyError
        If it isn't installed.
    """
    try:
        module = import_module(name)
    except ImportError as error:
        raise MissingDependencyError(
            f"{name} isn't installed, so its baseline is left out; install it in the environment of optim"
        ) from error
    if getattr(module, "__file__", None) is None:  # a folder on the path, not a package
        raise MissingDependencyError(f"{name} is a folder on the path and no package; remove it, or install {name}")
    return module


def _installed(makers: dict[str, Callable[..., Callable[[], Any]]], *data: Any) -> dict[str, Callable[[], Any]]:
    """Return the implementations whose packages are installed."""
    sides = {}
    for name, make in makers.items():
        with suppress(MissingDependencyError):
            sides[name] = make(optional(name), *data)
    return sides


def _torch_dense(torch: Any, w: Any, pushes: list[Any], rate: float) -> Callable[[], Any]:
    parameters = torch.from_numpy(w.copy())
    sent = [torch.from_numpy(push) for push in pushes]

    def by_torch() -> None:
        for push in sent:
            parameters.add_(push, alpha=-rate / len(sent))

    return by_torch


def _torch_sparse(torch: Any, table: Any, rows: Any, values: Any, rate: float) -> Callable[[], Any]:
    parameters, index, sent = (
        torch.from_numpy(table.copy()),
        torch.from_numpy(rows.astype(np.int64)),
        torch.from_numpy(values),
    )
    return lambda: parameters.index_add_(0, index, sent, alpha=-rate)


def _ray_server(ray: Any, w: Any, pushes: list[Any], rate: float) -> Callable[[], Any]:
    """Return one round of a synchronous server in a separate process: pushes in its store, one update, one reply.

    Unlike the kernel in this process, it includes the transport: it measures the cost of a server.
    """
    if not ray.is_initialized():
        ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, configure_logging=False)

    class Server:
        """Parameters and one update."""

        def __init__(self, start: Any) -> None:
            self.w = start.copy()

        def update(self, *sent: Any) -> int:
            """Aggregate and apply."""
            mean = sent[0].copy()
            for push in sent[1:]:
                np.add(mean, push, out=mean)
            np.multiply(mean, np.float32(rate / len(sent)), out=mean)
            np.subtract(self.w, mean, out=self.w)
            return len(sent)

    server = ray.remote(Server).remote(w)

    def by_ray() -> None:
        ray.get(server.update.remote(*[ray.put(push) for push in pushes]))

    return by_ray


class PlainDense:
    """The same update in NumPy, in Numba and in other installed packages; NumPy's state is the reference."""

    def __init__(
        self, rule: AbstractOptimiser, w: FloatArray, pushes: list[FloatArray], pool: ThreadPoolExecutor, cores: int
    ) -> None:
        self.rule, self.w, self.pushes = rule, w, pushes
        self.slots = [np.zeros_like(w) for _ in range(rule.num_slots)]
        self._mean, self._work = np.empty_like(w), np.empty_like(w)
        self._step = 0
        self._pool, self._ranges = pool, ranges_of(w.size, cores)
        self._arrays = [w.copy(), *(np.zeros_like(w) for _ in range(rule.num_slots))]

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
        """Return the other available implementations."""
        pushes, arrays = tuple(self.pushes), self._arrays
        if isinstance(self.rule, Sgd):
            in_c, target = c_loops(self._pool, len(self._ranges)), self.w.copy()
            return {
                "numba": lambda: self._spread(dense_sgd, arrays[0], pushes, RATE),
                **({} if in_c is None else {"c": lambda: in_c.dense_sgd(target, self.pushes, RATE)}),
                **dense_sgd_of_frameworks(self.w, self.pushes, RATE),
            }
        if isinstance(self.rule, Momentum):
            decay = self.rule.decay
            return {"numba": lambda: self._spread(dense_momentum, *arrays, pushes, RATE, decay)}
        if isinstance(self.rule, Adagrad):
            epsilon = self.rule.epsilon
            return {"numba": lambda: self._spread(dense_adagrad, *arrays, pushes, RATE, epsilon)}
        if isinstance(self.rule, Adam):
            rule = self.rule
            settings = (RATE, rule.first_decay, rule.second_decay, rule.epsilon, 3)
            return {"numba": lambda: self._spread(dense_adam, *arrays, pushes, *settings)}
        return {}

    def _spread(self, update: Callable[..., None], *arguments: Any) -> None:
        """Run an update on all ranges, one thread per range."""
        list(self._pool.map(lambda ends: update(*arguments, *ends), self._ranges))


class PlainSparse:
    """The same push in NumPy and Numba; NumPy's table is the reference."""

    def __init__(self, rule: AbstractOptimiser, start: FloatArray, rows: RowArray, values: FloatArray) -> None:
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

    def by_c(self, pool: ThreadPoolExecutor, cores: int) -> dict[str, Callable[[], Any]]:
        """Return the loop in C, with one thread per core, if the optimiser has one and there is a compiler."""
        in_c, copied = c_loops(pool, cores), self.w.copy()
        if in_c is None:
            return {}
        if isinstance(self.rule, Sgd):
            return {"c": lambda: in_c.sparse_sgd(copied, self.rows, self.values, RATE)}
        if isinstance(self.rule, Adagrad):
            squares, first = np.zeros_like(copied), np.full(len(copied), -1, np.int32)
            message = (self.rows, self.values, RATE, self.rule.epsilon, first, np.empty(len(self.rows), np.int32))
            return {"c": lambda: in_c.sparse_adagrad(copied, squares, *message)}
        return {}

    def by_numba(self) -> dict[str, Callable[[], Any]]:
        """Return a serial loop, if the optimiser has one."""
        copied = self.w.copy()
        if isinstance(self.rule, Sgd):
            return {"numba": lambda: sparse_sgd(copied, self.rows, self.values, RATE)}
        if isinstance(self.rule, Adagrad):
            squares, first = np.zeros_like(copied), np.zeros(len(copied), np.int32)
            sums, epsilon = np.zeros_like(self.values), self.rule.epsilon
            message = (self.rows, self.values, RATE, epsilon, first, sums)
            return {"numba": lambda: sparse_adagrad(copied, squares, *message)}
        return {}
