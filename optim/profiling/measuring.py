"""Measurement of a machine and its jobs for `optim profile`, and of the steps of one job.

Each piece of a step is run and timed alone: a gradient, its transfer to the servers, a server's update. Pieces that
would run concurrently on different machines are then overlapped on a simulated clock. If several workers ran at once on
the same cores, the times would show how the workers disturb each other, not how the job scales. Steps are
bulk-synchronous: they wait for all workers.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Protocol, runtime_checkable

import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray

from optim.core.progress import Progress, SilentProgress
from optim.core.stopping import Interruption
from optim.profiling.document import SCHEMA, Machine, ProfileDocument
from optim.profiling.job_profile import JobMeasurements, ProfileOptions, ServerFigures, job_profile
from optim.profiling.machine_benchmarks import find_device, measure_crbm, measure_link, measure_machine, measure_update
from optim.profiling.timing import Clock, Timing, check_quiet, time_interleaved, time_worthwhile

Vector = NDArray[np.float32]


LEARNING_RATE = 1e-3


BUDGET_S, MIN_REPEATS = 0.6, 3
"""Time limit in seconds for the repeats at a grid point, and minimum number of repeats."""


class Measurable(Protocol):
    """A training job that computes gradients."""

    @property
    def num_partitions(self) -> int:
        """Number of data partitions."""
        ...

    @property
    def num_parameters(self) -> int:
        """Length of the flat vector of parameters."""
        ...

    def initial_parameters(self) -> Vector:
        """Return the initial parameters, shape (n,), float32."""
        ...

    def gradient(self, parameters: Vector, partition: int, clock: int) -> tuple[Vector, float]:
        """Return the gradient over a partition, shape (n,), and its loss."""
        ...


@runtime_checkable
class ComputesOnDevice(Protocol):
    """A training job in JAX, as `optim.training.application.DeviceApplication` is."""

    @property
    def compiled_gradient(self) -> Callable[..., Any]:
        """Compiled gradient; its arguments are the parameters in parts and the results of `on_device`."""
        ...

    def on_device(self, partition: int, clock: int) -> tuple[Any, ...]:
        """Return a partition's data as arrays of the device."""
        ...


class StepWorld:
    """A simulated cluster that runs and times the steps of a job, with fixed numbers of workers and servers.

    In a step, the workers compute the gradients of their partitions, each worker's sum is transferred to the servers,
    and each server updates its range of the parameter vector.

    Parameters
    ----------
    job
        The job.
    workers, servers
        Number of workers, and number of servers.
    clock
        Clock in seconds.
    """

    def __init__(self, job: Measurable, workers: int, servers: int, clock: Clock) -> None:
        import jax.numpy as jnp

        self._job, self._workers, self._servers, self._seconds = job, workers, servers, clock
        self._parameters = np.array(job.initial_parameters(), dtype=np.float32)
        cuts = [server * job.num_parameters // servers for server in range(servers + 1)]
        self._ranges = [slice(*ends) for ends in pairwise(cuts)]
        self._shards = [jnp.asarray(self._parameters[part]) for part in self._ranges]
        self._carried = np.zeros((workers, job.num_parameters), dtype=np.float32)
        self._clock = 0

    def step(self) -> float:
        """Run one step, and return its time in seconds: that of the slowest worker plus that of the slowest server."""
        computing = max(self._timed(self._work, worker) for worker in range(self._workers))
        serving = max(self._timed(self._serve, server) for server in range(self._servers))
        self._clock += 1
        return computing + serving

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
    """Time `repeats` steps of a job (fewer if they are long) at each grid point, a pair of workers and servers."""
    return [_time_step(job, workers, servers, clock, repeats) for workers, servers in grid]


def _time_step(job: Measurable, workers: int, servers: int, clock: Clock, repeats: int) -> Timing:
    """Time a step as often as the time limit allows; the first step is a warm-up."""
    world = StepWorld(job, workers, servers, clock)
    world.step()
    begun = clock()
    first = world.step()
    number = int(np.clip(BUDGET_S / max(clock() - begun, 1e-9), MIN_REPEATS, repeats))
    return Timing(seconds=np.array([first, *(world.step() for _ in range(number - 1))]))


def time_minibatch(job: Measurable, clock: Clock, *, repeats: int = 20) -> Timing:
    """Time the gradient of a single partition, with each partition in turn; a JAX job's results stay on the device."""
    import jax

    parameters = np.array(job.initial_parameters(), dtype=np.float32)
    on_device = (jax.device_put(parameters),)
    turn = iter(range(10**9))

    def compute() -> None:
        number = next(turn)
        partition, at = number % job.num_partitions, number // job.num_partitions
        if isinstance(job, ComputesOnDevice):
            jax.block_until_ready(job.compiled_gradient(on_device, *job.on_device(partition, at)))
        else:
            job.gradient(parameters, partition, at)

    return time_interleaved([compute], repeats=repeats, clock=clock)[0]


START_PROGRAM = "import sys, jax.numpy; jax.numpy.ones(1, device=jax.devices(sys.argv[1])[0]).block_until_ready()"
"""Program whose run time is a worker's start-up time: it computes on a device of the given platform once."""


START_REPEATS = 3


def measure_profiles(
    jobs: Mapping[str, Measurable],
    options: ProfileOptions,
    *,
    accept_noise: bool = False,
    with_encoder: bool = True,
    clock: Clock = time.perf_counter,
    stop: Interruption | None = None,
    progress: Progress | None = None,
) -> ProfileDocument:
    """Measure this machine and its jobs, on the device of new JAX arrays (`jax.default_device`).

    Parameters
    ----------
    jobs
        Jobs by name.
    options
        Values that one machine can't measure, and the extent of the measurement.
    accept_noise
        Whether to continue if other work disturbs the times; the document records the noise.
    with_encoder
        Whether to measure the cost of the phase encoder.
    clock
        Clock in seconds.
    stop
        Ends the measurement between two jobs; the function returns the profiles of the jobs measured so far.
    progress
        Receives the progress of the measurement.

    Raises
    ------
    NotAllowedError
        If the machine is too noisy.
    """
    progress = progress if progress is not None else SilentProgress()
    stop = stop if stop is not None else Interruption()
    progress.start("profile", 4 + len(jobs))
    machine, buffers = measure_machine(
        clock, cache=_bytes(options.cache_mib, 2**20), allowed=_bytes(options.allowed_gb, 10**9)
    )
    if not accept_noise:
        check_quiet(machine.noise, machine.load, machine.cores)
    progress.update(1)
    update = measure_update(buffers.cache, clock, allowed_bytes=buffers.allowed)
    server = ServerFigures(link=measure_link(clock), update=update, options=options)
    progress.update(2)
    startup_s = _startup_s(clock)
    progress.update(3)
    crbm = measure_crbm(clock) if with_encoder else UNSET
    profiles = []
    for number, (name, job) in enumerate(jobs.items()):
        progress.update(4 + number)
        if stop.is_requested:
            break
        profiles.append(job_profile(_measure_job(name, job, machine, options, startup_s, clock), server))
    progress.finish()
    # `epochs` is an option here, not a property of the application, so generated jobs do random shares of the work.
    return ProfileDocument(
        schema=SCHEMA, jobs=profiles, slot_s=options.slot_s, is_work_drawn=True, machine=machine, crbm=crbm
    )


def _bytes(amount: float | None, unit: int) -> int | None:
    return None if amount is None else round(amount * unit)


def _measure_job(
    name: str, job: Measurable, machine: Machine, options: ProfileOptions, startup_s: float, clock: Clock
) -> JobMeasurements:
    timings = time_worthwhile(
        options.grid,
        options.max_points,
        float(job.num_partitions),
        lambda points: time_steps(job, points, clock, repeats=options.repeats),
    )
    grid = tuple(timings)
    where, is_gpu = f"{machine.cores} cores of {machine.cpu}", find_device().platform == "gpu"
    return JobMeasurements(
        name=name,
        source=f"measured on {machine.device} with {where}" if is_gpu else f"measured on {where}",
        minibatch=time_minibatch(job, clock),
        num_parameters=job.num_parameters,
        num_partitions=job.num_partitions,
        grid=grid,
        steps=tuple(timings.values()),
        startup_s=startup_s,
        num_samples=int(getattr(job, "num_examples", 0)),
        device=machine.device,
        gpu=is_gpu,
    )


def _startup_s(clock: Clock) -> float:
    """Return the seconds until a new Python process can compute on the device."""
    words = [sys.executable, "-P", "-c", START_PROGRAM, find_device().platform]
    # This process has allocated most of the GPU's memory: a second process with JAX's default share would fail.
    environment = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    seconds = []
    for _ in range(START_REPEATS):
        begun = clock()
        subprocess.run(words, check=True, capture_output=True, env=environment)
        seconds.append(clock() - begun)
    return float(np.median(seconds))
