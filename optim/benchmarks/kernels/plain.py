"""The same updates in NumPy, which is the reference, and in Numba's loops; and by what else is installed."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from optim.benchmarks.kernels import loop, peers
from optim.benchmarks.kernels.c_loops import c_loops
from optim.benchmarks.kernels.contest import RATE, FloatArray, RowArray
from optim.kernels.parameter_server import AbstractOptimiser, Adagrad, Adam, Momentum, Sgd, shard_ranges


class PlainDense:
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
            in_c, target = c_loops(self._pool, len(self._ranges)), self.w.copy()
            return {
                "numba": lambda: self._spread(loop.dense_sgd, own[0], pushes, RATE),
                **({} if in_c is None else {"c": lambda: in_c.dense_sgd(target, self.pushes, RATE)}),
                **peers.dense_sgd(self.w, self.pushes, RATE),
            }
        if isinstance(self.rule, Momentum):
            decay = self.rule.decay
            return {"numba": lambda: self._spread(loop.dense_momentum, *own, pushes, RATE, decay)}
        if isinstance(self.rule, Adagrad):
            epsilon = self.rule.epsilon
            return {"numba": lambda: self._spread(loop.dense_adagrad, *own, pushes, RATE, epsilon)}
        if isinstance(self.rule, Adam):
            rule = self.rule
            settings = (RATE, rule.first_decay, rule.second_decay, rule.epsilon, 3)
            return {"numba": lambda: self._spread(loop.dense_adam, *own, pushes, *settings)}
        return {}

    def _spread(self, update: Callable[..., None], *arguments: Any) -> None:
        """Run an update's ranges, a thread each."""
        list(self._pool.map(lambda part: update(*arguments, part.start, part.stop), self._ranges))


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
        """Return the loop in C, on as many threads as there are cores, where there is one and a compiler."""
        in_c, own = c_loops(pool, cores), self.w.copy()
        if in_c is None:
            return {}
        if isinstance(self.rule, Sgd):
            return {"c": lambda: in_c.sparse_sgd(own, self.rows, self.values, RATE)}
        if isinstance(self.rule, Adagrad):
            squares, first = np.zeros_like(own), np.full(len(own), -1, np.int32)
            message = (self.rows, self.values, RATE, self.rule.epsilon, first, np.empty(len(self.rows), np.int32))
            return {"c": lambda: in_c.sparse_adagrad(own, squares, *message)}
        return {}

    def by_numba(self) -> dict[str, Callable[[], Any]]:
        """Return a serial loop where there is one."""
        own = self.w.copy()
        if isinstance(self.rule, Sgd):
            return {"numba": lambda: loop.sparse_sgd(own, self.rows, self.values, RATE)}
        if isinstance(self.rule, Adagrad):
            squares, first = np.zeros_like(own), np.zeros(len(own), np.int32)
            sums, epsilon = np.zeros_like(self.values), self.rule.epsilon
            message = (self.rows, self.values, RATE, epsilon, first, sums)
            return {"numba": lambda: loop.sparse_adagrad(own, squares, *message)}
        return {}
