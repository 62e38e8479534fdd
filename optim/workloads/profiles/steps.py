"""Steps on one machine: threads that compute, carry their gradients, and servers that apply them.

Bulk-synchronous steps wait for all workers; asynchronous updates for nobody but whom a server serves at that moment.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from optim.workloads.profiles.timing import Clock, Timing, time_interleaved

Vector = NDArray[np.float32]

LEARNING_RATE = 1e-3

UPDATES = 3
"""Asynchronous updates a worker makes in one timing, so that the wait at its end weighs little."""

BUDGET_S, LEAST_REPEATS = 2.0, 3
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
    and has each server apply its range of the vector. Workers and servers are threads: the work is done in compiled code
    that runs beside Python.

    Parameters
    ----------
    job
        The job.
    workers, servers
        How many.
    """

    def __init__(self, job: Measurable, workers: int, servers: int) -> None:
        import jax.numpy as jnp

        from optim.kernels.parameter_server import shard_ranges

        self._job, self._workers, self._servers = job, workers, servers
        self._parameters = np.array(job.initial_parameters(), dtype=np.float32)
        self._ranges = [slice(r.start, r.stop) for r in shard_ranges(job.num_parameters, servers)]
        self._shards = [jnp.asarray(self._parameters[own]) for own in self._ranges]
        self._carried = np.zeros((workers, job.num_parameters), dtype=np.float32)
        self._pool = ThreadPoolExecutor(max(workers, servers))
        self._locks = [Lock() for _ in range(servers)]
        self._versions = [0] * servers
        self._clock = 0

    def step(self) -> None:
        """Make one step; it is over when the new parameters are at every worker."""
        list(self._pool.map(self._work, range(self._workers)))
        list(self._pool.map(self._serve, range(self._servers)))
        self._clock += 1

    def update(self) -> None:
        """Let every worker make `UPDATES` asynchronous updates, each of one partition's gradient."""
        list(self._pool.map(self._update_alone, range(self._workers)))
        self._clock += UPDATES

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown()

    def _work(self, worker: int) -> None:
        total: Vector | None = None
        for partition in range(worker, self._job.num_partitions, self._workers):
            gradient, _ = self._job.gradient(self._parameters, partition, self._clock)
            total = gradient if total is None else total + gradient
        if total is not None:
            np.copyto(self._carried[worker], total)

    def _update_alone(self, worker: int) -> None:
        for clock in range(self._clock, self._clock + UPDATES):
            read = tuple(self._versions)
            partition = (worker + clock * self._workers) % self._job.num_partitions
            gradient, _ = self._job.gradient(self._parameters.copy(), partition, clock)
            for server in range(self._servers):
                self._serve_one((server + worker) % self._servers, gradient, read)

    def _serve_one(self, server: int, gradient: Vector, read: tuple[int, ...]) -> None:
        """Apply one gradient as it arrives, damped by what has been applied since it was begun."""
        from optim.kernels.parameter_server import Damping, Sgd, apply_damped

        own = self._ranges[server]
        with self._locks[server]:
            self._shards[server], _ = apply_damped(
                self._shards[server],
                (),
                gradient[own],
                np.int32(self._versions[server]),
                np.int32(read[server]),
                optimiser=Sgd(learning_rate=LEARNING_RATE),
                damping=Damping(),
            )
            self._versions[server] += 1
            np.copyto(self._parameters[own], np.asarray(self._shards[server]))

    def _serve(self, server: int) -> None:
        import jax.numpy as jnp

        from optim.kernels.parameter_server import Sgd, apply_pushes

        own = self._ranges[server]
        pushes = [jnp.asarray(self._carried[worker, own]) for worker in range(self._workers)]
        self._shards[server], _ = apply_pushes(
            self._shards[server],
            (),
            pushes,
            jnp.ones(self._workers, jnp.float32),
            jnp.zeros((), jnp.int32),
            optimiser=Sgd(learning_rate=LEARNING_RATE),
        )
        np.copyto(self._parameters[own], np.asarray(self._shards[server]))


def time_steps(job: Measurable, grid: Sequence[tuple[int, int]], clock: Clock, *, repeats: int = 9) -> list[Timing]:
    """Time steps of a job at each (workers, servers) of a grid: `repeats` of them, fewer where they are long."""
    return [_time_world(job, workers, servers, StepWorld.step, clock, repeats) for workers, servers in grid]


def time_updates(job: Measurable, grid: Sequence[tuple[int, int]], clock: Clock, *, repeats: int = 9) -> list[Timing]:
    """Time asynchronous updates likewise: seconds that a worker takes for one while all of them make theirs."""
    timings = [_time_world(job, workers, servers, StepWorld.update, clock, repeats) for workers, servers in grid]
    return [Timing(seconds=timing.seconds / UPDATES) for timing in timings]


def _time_world(
    job: Measurable, workers: int, servers: int, work: Callable[[StepWorld], None], clock: Clock, repeats: int
) -> Timing:
    """Time what a world does, as often as the budget allows."""
    world = StepWorld(job, workers, servers)
    try:
        (first,) = time_interleaved([lambda: work(world)], repeats=1, dropped=1, clock=clock)
        number = int(np.clip(BUDGET_S / max(first.median, 1e-9), LEAST_REPEATS, repeats))
        return time_interleaved([lambda: work(world)], repeats=number, dropped=0, clock=clock)[0]
    finally:
        world.close()


def time_minibatch(job: Measurable, clock: Clock, *, repeats: int = 20) -> Timing:
    """Time the gradient of one partition, in turn over all of them."""
    parameters = np.array(job.initial_parameters(), dtype=np.float32)
    turn = iter(range(10**9))

    def compute() -> None:
        number = next(turn)
        job.gradient(parameters, number % job.num_partitions, number // job.num_partitions)

    return time_interleaved([compute], repeats=repeats, clock=clock)[0]
