"""Steps of workers and servers that each have a machine of their own, put together on one machine.

Every piece of work is done and timed alone: a gradient, its way to the servers, a server's update. What runs at the
same time on different machines is then laid side by side on a clock of its own. Workers that share two cores would tell
how they disturb each other, not how the job scales. Bulk-synchronous steps wait for all workers; asynchronous updates
for nobody but whom a server serves at that moment.
"""

import heapq
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from optim.profiling.timing import Clock, Timing, time_interleaved

Vector = NDArray[np.float32]

LEARNING_RATE = 1e-3

UPDATES = 3
"""Asynchronous updates a worker makes in one timing, so that the wait at its end weighs little."""

BUDGET_S, MIN_REPEATS = 0.6, 3
"""Seconds of repeats at one point of the grid, and how many there are at least."""


class Measurable(Protocol):
    """A training job whose gradients can be computed."""

    @property
    def num_partitions(self) -> int:
        """Data partitions."""
        ...

    @property
    def num_parameters(self) -> int:
        """Length of the flat vector of parameters."""
        ...

    def initial_parameters(self) -> Vector:
        """Return the parameters to begin with, shape (n,), float32."""
        ...

    def gradient(self, parameters: Vector, partition: int, clock: int) -> tuple[Vector, float]:
        """Return the gradient over a partition, shape (n,), and its loss."""
        ...


class StepWorld:
    """A job with so many workers and servers, ready to make steps.

    A step computes the gradients of all partitions, dealt out to the workers, carries each worker's sum to the servers,
    and has each server apply its range of the vector.

    Parameters
    ----------
    job
        The job.
    workers, servers
        How many.
    clock
        Seconds.
    """

    def __init__(self, job: Measurable, workers: int, servers: int, clock: Clock) -> None:
        import jax.numpy as jnp

        from optim.kernels.parameter_server import shard_ranges

        self._job, self._workers, self._servers, self._seconds = job, workers, servers, clock
        self._parameters = np.array(job.initial_parameters(), dtype=np.float32)
        self._ranges = [slice(r.start, r.stop) for r in shard_ranges(job.num_parameters, servers)]
        self._shards = [jnp.asarray(self._parameters[part]) for part in self._ranges]
        self._carried = np.zeros((workers, job.num_parameters), dtype=np.float32)
        self._versions = [0] * servers
        self._clock = 0

    def step(self) -> float:
        """Make one step; return its seconds: the slowest worker's and the slowest server's."""
        computing = max(self._timed(self._work, worker) for worker in range(self._workers))
        serving = max(self._timed(self._serve, server) for server in range(self._servers))
        self._clock += 1
        return computing + serving

    def update(self) -> float:
        """Let every worker make `UPDATES` asynchronous updates, each of one partition's gradient.

        A server takes one gradient at a time, in the order in which they arrive. Returns the seconds of the workers'
        mean update.
        """
        free = [0.0] * self._servers
        ends = []
        # Time, worker, updates done, and servers that have the present gradient.
        arrivals = [(0.0, worker, 0, 0) for worker in range(self._workers)]
        pushed: dict[int, tuple[Vector, tuple[int, ...]]] = {}
        while arrivals:
            now, worker, done, served = heapq.heappop(arrivals)
            if served == 0:
                begun = self._seconds()
                pushed[worker] = self._gradient(worker, self._clock + done), tuple(self._versions)
                now += self._seconds() - begun
                heapq.heappush(arrivals, (now, worker, done, 1))
                continue
            server = (served - 1 + worker) % self._servers
            now = free[server] = max(now, free[server]) + self._timed(self._serve_one, server, *pushed[worker])
            if served < self._servers:
                heapq.heappush(arrivals, (now, worker, done, served + 1))
            elif done + 1 < UPDATES:
                heapq.heappush(arrivals, (now, worker, done + 1, 0))
            else:
                ends.append(now)
        self._clock += UPDATES
        return float(np.mean(ends)) / UPDATES

    def _timed(self, work: Callable[..., None], *arguments: object) -> float:
        begun = self._seconds()
        work(*arguments)
        return self._seconds() - begun

    def _work(self, worker: int) -> None:
        total: Vector | None = None
        for partition in range(worker, self._job.num_partitions, self._workers):
            gradient, _ = self._job.gradient(self._parameters, partition, self._clock)
            total = gradient if total is None else total + gradient
        if total is not None:
            np.copyto(self._carried[worker], total)

    def _gradient(self, worker: int, clock: int) -> Vector:
        partition = (worker + clock * self._workers) % self._job.num_partitions
        return self._job.gradient(self._parameters.copy(), partition, clock)[0]

    def _serve_one(self, server: int, gradient: Vector, read: tuple[int, ...]) -> None:
        """Apply one gradient as it arrives, damped by what has been applied since it was begun."""
        from optim.kernels.parameter_server import Damping, Sgd, apply_damped

        part = self._ranges[server]
        self._shards[server], _ = apply_damped(
            self._shards[server],
            (),
            gradient[part],
            np.int32(self._versions[server]),
            np.int32(read[server]),
            optimiser=Sgd(learning_rate=LEARNING_RATE),
            damping=Damping(),
        )
        self._versions[server] += 1
        np.copyto(self._parameters[part], np.asarray(self._shards[server]))

    def _serve(self, server: int) -> None:
        import jax.numpy as jnp

        from optim.kernels.parameter_server import Sgd, apply_pushes

        part = self._ranges[server]
        pushes = [jnp.asarray(self._carried[worker, part]) for worker in range(self._workers)]
        self._shards[server], _ = apply_pushes(
            self._shards[server],
            (),
            pushes,
            jnp.ones(self._workers, jnp.float32),
            jnp.zeros((), jnp.int32),
            optimiser=Sgd(learning_rate=LEARNING_RATE),
        )
        np.copyto(self._parameters[part], np.asarray(self._shards[server]))


def time_steps(job: Measurable, grid: Sequence[tuple[int, int]], clock: Clock, *, repeats: int = 9) -> list[Timing]:
    """Time steps of a job at each (workers, servers) of a grid: `repeats` of them, fewer where they are long."""
    return [_time_world(job, workers, servers, StepWorld.step, clock, repeats) for workers, servers in grid]


def time_updates(job: Measurable, grid: Sequence[tuple[int, int]], clock: Clock, *, repeats: int = 9) -> list[Timing]:
    """Time asynchronous updates likewise: seconds that a worker takes for one while all of them make theirs."""
    return [_time_world(job, workers, servers, StepWorld.update, clock, repeats) for workers, servers in grid]


def _time_world(
    job: Measurable, workers: int, servers: int, work: Callable[[StepWorld], float], clock: Clock, repeats: int
) -> Timing:
    """Time what a world does, as often as the budget allows; the first time warms up."""
    world = StepWorld(job, workers, servers, clock)
    work(world)
    begun = clock()
    first = work(world)
    number = int(np.clip(BUDGET_S / max(clock() - begun, 1e-9), MIN_REPEATS, repeats))
    return Timing(seconds=np.array([first, *(work(world) for _ in range(number - 1))]))


def time_minibatch(job: Measurable, clock: Clock, *, repeats: int = 20) -> Timing:
    """Time the gradient of one partition, in turn over all of them."""
    parameters = np.array(job.initial_parameters(), dtype=np.float32)
    turn = iter(range(10**9))

    def compute() -> None:
        number = next(turn)
        job.gradient(parameters, number % job.num_partitions, number // job.num_partitions)

    return time_interleaved([compute], repeats=repeats, clock=clock)[0]
