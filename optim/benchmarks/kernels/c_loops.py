"""The plain loops in C, compiled where a compiler is, each on as many threads as there are cores."""

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from optim.benchmarks.kernels.contest import FloatArray, RowArray
from optim.kernels.parameter_server import shard_ranges

SOURCE = Path(__file__).with_name("loops.c")
COMPILERS = ("cc", "gcc", "clang")
# Not -ffast-math: linked with it, a library switches subnormal numbers off for the process that loads it.
SUMS_IN_ANY_ORDER = ("-fassociative-math", "-fno-signed-zeros", "-fno-trapping-math", "-ffinite-math-only")
FLAGS = ("-O3", "-march=native", *SUMS_IN_ANY_ORDER, "-fno-math-errno", "-shared", "-fPIC")

Part = Callable[[int, int], Any]


class CLoops:
    """The compiled loops; arrays go in as they are, and are changed in place.

    Parameters
    ----------
    library
        What was compiled.
    pool, cores
        Threads, and how many parts the work is cut into.
    """

    def __init__(self, library: ctypes.CDLL, pool: ThreadPoolExecutor, cores: int) -> None:
        self._library, self._pool, self._cores = library, pool, cores

    def in_place(self, x: FloatArray) -> None:
        """Add one to every element."""
        self._spread(x.size, lambda a, b: self._library.in_place(_at(x), _long(a), _long(b)))

    def stream_copy(self, source: FloatArray, target: FloatArray) -> None:
        """Copy by stores that go past the cache."""
        call = self._library.stream_copy
        self._spread(source.size, lambda a, b: call(_at(source), _at(target), _long(a), _long(b)))

    def dense_sgd(self, w: FloatArray, pushes: list[FloatArray], rate: float) -> None:
        """Step against the pushes' mean."""
        places = (ctypes.c_void_p * len(pushes))(*(push.ctypes.data for push in pushes))
        call, many = self._library.dense_sgd, _long(len(pushes))
        self._spread(w.size, lambda a, b: call(_at(w), places, many, ctypes.c_float(rate), _long(a), _long(b)))

    def sparse_sgd(self, table: FloatArray, rows: RowArray, values: FloatArray, rate: float) -> None:
        """Step against each pushed row."""
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
        """Copy the rows asked for."""
        message, call = (_at(table), _at(rows), _at(out), _long(table.shape[1])), self._library.pull
        self._spread(rows.size, lambda a, b: call(*message, _long(a), _long(b)))

    def _spread(self, size: int, part: Part) -> None:
        list(self._pool.map(lambda own: part(own.start, own.stop), shard_ranges(size, self._cores)))


def c_loops(pool: ThreadPoolExecutor, cores: int) -> CLoops | None:
    """Return the loops in C, None where no compiler is or it fails."""
    library = _compiled()
    return None if library is None else CLoops(library, pool, cores)


@cache
def _compiled() -> ctypes.CDLL | None:
    """Compile once a process, into a folder that is gone when the library is loaded."""
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
