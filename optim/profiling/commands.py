"""Profiling of a user's training script: runs with several numbers of workers, and a fit of the step times."""

import os
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
from msgspec import UNSET, Struct

from optim.core.errors import InvalidOptionError, NotAllowedError
from optim.core.progress import Progress
from optim.core.stopping import Interruption
from optim.profiling.document import Demand, JobProfile, MeasuredValue, Usage
from optim.profiling.fitting import choose_model
from optim.profiling.job_profile import (
    MEGA,
    MINUTE_S,
    PATIENCE_S,
    ProfileOptions,
    linear_error,
    placement_of,
    scaling_points,
)
from optim.profiling.step_timer import FOLDER_VARIABLE, SCHEMA
from optim.profiling.timing import DROPPED, Timing

PLACE = "{workers}"
MIN_STEPS = 3
SHOWN = 200
"""Maximum number of characters that an error quotes from the last line of a failed script's output."""

GIGA = 1e9
LOCAL_MBPS = 100_000.0
"""Assumed bandwidth within a machine in megabits per second, which a script doesn't measure: about a tenth of that of
memory."""

LOOK_S = 0.1

GRACE_S = 5.0
"""Seconds that a script may take to end after SIGTERM."""


class Steps(Struct):
    """Measurements of one process of a script, as `StepTimer` writes them."""

    schema: str
    seconds: list[float]
    alone_s: list[float]
    started_at: float
    model_bytes: int
    wall_s: float
    host_bytes: int
    devices: int = 0
    cpu_share: float | None = None
    network_bytes: int | None = None
    device: str | None = None
    device_bytes: int | None = None
    device_share: float | None = None
    samples: int | None = None
    batch: int | None = None
    epochs: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Measured:
    """Measurements of a script's run with one number of workers.

    Parameters
    ----------
    workers
        Number of workers.
    step, alone
        Timing of a step, and timing of one worker's part of a step, both without warm-up steps.
    startup_s, warmup_s
        Seconds until the first step began, and seconds that the warm-up steps took beyond those of as many typical steps.
    processes
        Measurements of each process.
    """

    workers: int
    step: Timing
    alone: Timing
    startup_s: float
    warmup_s: float
    processes: tuple[Steps, ...]


def profile_command(
    command: str,
    workers: Sequence[int],
    options: ProfileOptions,
    *,
    name: str,
    stop: Interruption,
    progress: Progress,
) -> JobProfile:
    """Run a script for each number of workers, and return its profile; `usage.model` names the best model of step times.

    Parameters
    ----------
    command
        Command with ``{workers}`` in place of the number of workers. The script must call a `StepTimer` in each step.
    workers
        Numbers of workers, including 1.
    options
        Values that one machine can't measure.
    name
        Name of the job.

    Raises
    ------
    InvalidOptionError
        If the command has no ``{workers}``, or 1 isn't among the workers.
    NotAllowedError
        If the script fails, calls no timer, or is interrupted.
    """
    if PLACE not in command:
        raise InvalidOptionError(f"--command must contain {PLACE} for the number of workers, got {command!r}")
    try:
        shlex.split(command)
    except ValueError as error:
        raise InvalidOptionError(f"--command can't be split into words: {error}; got {command!r}") from error
    if not name.strip():
        raise InvalidOptionError("--name must not be empty; leave it out, or give a name")
    if 1 not in workers or len(set(workers)) < 2 or min(workers) < 1:
        raise InvalidOptionError(f"--workers must include 1 and other numbers, got {','.join(map(str, workers))}")
    counts = sorted(set(workers))
    best: dict[int, Measured] = {}
    progress.start(f"profile of {name}", options.rounds * len(counts))
    for number, count in enumerate(counts * options.rounds):
        run = run_script(command.replace(PLACE, str(count)), count, stop, patience_s=options.patience_s)
        best[count] = min(best.get(count, run), run, key=lambda run: run.step.median)
        progress.update(number + 1)
    progress.finish()
    return script_profile(name, command, [best[count] for count in counts], options)


def run_script(command: str, workers: int, stop: Interruption, *, patience_s: float = PATIENCE_S) -> Measured:
    """Run a script to its end, and read the measurements of its processes.

    Raises
    ------
    InvalidOptionError
        If the command can't be run.
    NotAllowedError
        If the script fails, calls no timer, reports no step for `patience_s`, or is interrupted.
    """
    with tempfile.TemporaryDirectory(prefix="optim-profile-") as folder:
        words, begun = shlex.split(command), time.time()
        with (Path(folder, "errors")).open("w+", encoding="utf-8", errors="replace") as errors:
            try:
                running = subprocess.Popen(
                    words,
                    env={**os.environ, FOLDER_VARIABLE: folder},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=errors,
                    process_group=0,  # so that the signals reach the script's workers as well
                )
            except OSError as error:
                raise InvalidOptionError(
                    f"--command can't be run: {error}; give a program and its arguments"
                ) from error
            try:
                while running.poll() is None and not stop.is_requested:
                    if time.time() - max(begun, _last_written(Path(folder))) > patience_s:
                        raise NotAllowedError(
                            f"{command!r} reported no step for {patience_s:g} s and was ended; if steps or their preparation take longer, "
                            "give --option patience_s=N"
                        )
                    time.sleep(LOOK_S)
            finally:
                _end(running)
            errors.seek(0)
            last = (errors.read().strip().splitlines() or ["no message"])[-1][:SHOWN]
        if stop.is_requested:
            raise NotAllowedError(f"interrupted while {command!r} ran: no profile")
        if running.returncode != 0:
            raise NotAllowedError(f"{command!r} ended with code {running.returncode}: {last}")
        return measured(_read(Path(folder), command), workers, begun)


def _last_written(folder: Path) -> float:
    """Return the time at which any timer last wrote its file, 0 if there is no file."""
    return max((path.stat().st_mtime for path in folder.glob("*.json")), default=0.0)


def _end(running: "subprocess.Popen[bytes]") -> None:
    """End a script and all processes of its group, by SIGTERM and, after `GRACE_S`, by SIGKILL."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(running.pid, how)
        with suppress(subprocess.TimeoutExpired):
            running.wait(GRACE_S)


def _read(folder: Path, command: str) -> list[Steps]:
    try:
        processes = [msgspec.json.decode(path.read_bytes(), type=Steps) for path in sorted(folder.glob("*.json"))]
    except msgspec.DecodeError as error:
        raise NotAllowedError(f"{command!r} wrote a file that isn't from this release's StepTimer: {error}") from error
    if not processes or any(
        len(process.seconds) < DROPPED + MIN_STEPS or process.schema != SCHEMA for process in processes
    ):
        raise NotAllowedError(
            f"{command!r} timed {min((len(process.seconds) for process in processes), default=0)} steps, at least {DROPPED + MIN_STEPS} "
            "are needed; call optim.profiling.StepTimer each step"
        )
    return processes


def measured(processes: Sequence[Steps], workers: int, begun: float) -> Measured:
    """Combine the measurements of a run's processes; a step takes as long as in the slowest process."""
    length = min(len(process.seconds) for process in processes)
    steps = np.max([process.seconds[:length] for process in processes], axis=0)
    alone = np.max(
        [(process.alone_s if len(process.alone_s) >= length else process.seconds)[:length] for process in processes],
        axis=0,
    )
    typical_s = float(np.median(steps[DROPPED:]))
    return Measured(
        workers=workers,
        step=Timing(seconds=steps[DROPPED:]),
        alone=Timing(seconds=alone[DROPPED:]),
        startup_s=max(0.0, max(process.started_at for process in processes) - begun),
        warmup_s=max(0.0, float(steps[:DROPPED].sum()) - DROPPED * typical_s),
        processes=tuple(processes),
    )


def script_profile(name: str, command: str, runs: Sequence[Measured], options: ProfileOptions) -> JobProfile:
    """Fit and assemble a script's profile; bandwidths come from the options, since one machine can't measure them.

    `minibatch_s` is a full step of one worker, even if the script timed a part of the step by `alone`.
    """
    one = next(run for run in runs if run.workers == 1)
    model, speed = choose_model([run.workers for run in runs], [run.step.median for run in runs])
    first_process = one.processes[0]
    gradient_mb = max(first_process.model_bytes / MEGA, 1e-6)
    worker = MeasuredValue.exactly(options.rack_mbps)
    carry_s = 8 * gradient_mb / options.rack_mbps
    has_work = None not in (first_process.samples, first_process.batch, first_process.epochs)
    points = scaling_points((run.workers, run.step) for run in runs)
    host_gb = max(process.host_bytes for run in runs for process in run.processes) / GIGA
    return JobProfile(
        name=name,
        source=f"measured by {command!r}",
        minibatch_s=one.step.interval(),
        gradient_mb=gradient_mb,
        worker_mbps=worker,
        ps_mbps=worker.through(lambda mbps: mbps * options.workers_a_server),
        scaling=points,
        startup_min=one.startup_s / MINUTE_S,
        change_min=carry_s / MINUTE_S,
        eviction_min=carry_s / MINUTE_S,
        placement=placement_of(one.step.median, gradient_mb, LOCAL_MBPS, options),
        worker=Demand(gpu=float(first_process.devices), vcpu=options.vcpu, memory_gb=round(host_gb, 3)),
        ps=Demand(gpu=0.0, vcpu=1.0, memory_gb=max(1.0, round(3 * gradient_mb / 1000, 3))),
        speed=speed,
        linear_error=linear_error(points),
        usage=_usage(runs, model),
        epochs=first_process.epochs if has_work and first_process.epochs is not None else UNSET,
        minibatches=-(-first_process.samples // first_process.batch)
        if has_work and first_process.samples and first_process.batch
        else UNSET,
        samples=first_process.samples if has_work and first_process.samples is not None else UNSET,
        device=first_process.device or UNSET,
    )


def _usage(runs: Sequence[Measured], model: str) -> Usage:
    """Return the script's use of the machine, as far as its processes report it."""
    processes = [process for run in runs for process in run.processes]

    def most(values: Sequence[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return max(known) if known else None

    device = most([process.device_bytes for process in processes])
    return Usage(
        model=model,
        alone_s=next(run.alone.median for run in runs if run.workers == 1),
        warmup_s=max(run.warmup_s for run in runs),
        host_gb=max(process.host_bytes for process in processes) / GIGA,
        device_gb=None if device is None else device / GIGA,
        cpu_share=most([process.cpu_share for process in processes]),
        device_share=most([process.device_share for process in processes]),
        network_mbps=most(
            [
                None
                if process.network_bytes is None or process.wall_s <= 0
                else process.network_bytes * 8 / MEGA / process.wall_s
                for process in processes
            ]
        ),
    )
