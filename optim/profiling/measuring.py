"""Measure a machine and jobs on it: the whole of `optim profile`."""

import subprocess
import sys
import time
from collections.abc import Mapping

import numpy as np

from optim.core.progress import Progress, SilentProgress
from optim.core.stopping import Interruption
from optim.profiling.document import SCHEMA, Machine, ProfileDocument
from optim.profiling.job_profile import JobMeasurements, ProfileOptions, ServerFigures, job_profile
from optim.profiling.machine_benchmarks import measure_crbm, measure_link, measure_machine, measure_update
from optim.profiling.steps import Measurable, time_minibatch, time_steps, time_updates
from optim.profiling.timing import Clock, check_quiet, time_worthwhile

START_PROGRAM = "import jax.numpy; jax.numpy.ones(1).block_until_ready()"
"""What a new worker does before it can compute."""

START_REPEATS = 3


def measure_profiles(
    jobs: Mapping[str, Measurable],
    options: ProfileOptions,
    *,
    accept_noise: bool = False,
    clock: Clock = time.perf_counter,
    stop: Interruption | None = None,
    progress: Progress | None = None,
) -> ProfileDocument:
    """Measure this machine and the jobs on it.

    Parameters
    ----------
    jobs
        Jobs by name.
    options
        What isn't measured, and how much is.
    accept_noise
        Whether to go on where other work disturbs the times; the document says how noisy it was.
    clock
        Seconds.
    stop
        Ends the measurement between two jobs; those measured are returned.
    progress
        Hears of each step.

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
    crbm = measure_crbm(clock)
    profiles = []
    for number, (name, job) in enumerate(jobs.items()):
        progress.update(4 + number)
        if stop.is_requested:
            break
        profiles.append(job_profile(_measure_job(name, job, machine, options, startup_s, clock), server))
    progress.finish()
    # How many passes an application makes is an option here, and nobody's own work: jobs make parts of it.
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
        options.most_points,
        float(job.num_partitions),
        lambda points: time_steps(job, points, clock, repeats=options.repeats),
    )
    grid = tuple(timings)
    return JobMeasurements(
        name=name,
        source=f"measured on {machine.cores} cores of {machine.cpu}",
        minibatch=time_minibatch(job, clock),
        num_parameters=job.num_parameters,
        num_partitions=job.num_partitions,
        grid=grid,
        steps=tuple(timings.values()),
        startup_s=startup_s,
        num_samples=int(getattr(job, "num_examples", 0)),
        updates=tuple(time_updates(job, grid, clock, repeats=options.repeats)),
    )


def _startup_s(clock: Clock) -> float:
    """Return the seconds until a new process of Python can compute."""
    seconds = []
    for _ in range(START_REPEATS):
        begun = clock()
        subprocess.run([sys.executable, "-P", "-c", START_PROGRAM], check=True, capture_output=True)
        seconds.append(clock() - begun)
    return float(np.median(seconds))
