"""`optim profile`: profile this machine and training jobs on it; instances are built from the profiles."""

import os
from collections.abc import Collection, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from optim.cli.border import listening
from optim.cli.messages import ExitCode, info
from optim.cli.output import OutputFormat, print_json, print_table, terminal_progress
from optim.cli.parameters import FormatOption, SeedOption, check_out, option, split_list, split_options, whole_number
from optim.core.errors import InvalidOptionError, unknown_name

if TYPE_CHECKING:
    from optim.profiling.document import MeasuredValue, ProfileDocument
    from optim.profiling.job_profile import ProfileOptions

SCALE, WORKERS, NAME = 0.01, "1,2,4", "script"


class Device(StrEnum):
    """Device on which to measure applications."""

    CPU = "cpu"
    GPU = "gpu"


OF_SCRIPTS = frozenset({"rounds", "patience_s"})
OF_APPLICATIONS = frozenset({
    "gpu", "memory_gb", "max_workers", "max_servers", "max_points", "repeats", "epochs", "cache_mib", "allowed_gb"
})  # fmt: skip
"""Options that apply only to scripts, and those that apply only to applications; a script reports these values itself."""

NO_APPLICATION = "--command profiles a script; omit --application, --scale, --device, --seed and --accept-noise"


def profile(
    *,
    out: Annotated[Path | None, option("--out", "Profile to write; default: print JSON to stdout.", "FILE")] = None,
    application: Annotated[
        list[str] | None,
        option("--application", "Applications; repeatable or comma-separated; default: all.", "NAME"),
    ] = None,
    scale: Annotated[float, option("--scale", "Data size relative to the published data, in (0, 1].")] = SCALE,
    device: Annotated[
        Device | None, option("--device", "Device on which to measure applications; default: JAX's default.")
    ] = None,
    settings: Annotated[
        list[str] | None, option("--option", "An option of the measurement; repeatable.", "NAME=VALUE")
    ] = None,
    accept_noise: Annotated[
        bool, option("--accept-noise", "Continue although other processes disturb the times.")
    ] = False,
    command: Annotated[
        str | None,
        option("--command", "Profile this command instead; {workers} is replaced by the number of workers.", "WORDS"),
    ] = None,
    workers: Annotated[str, option("--workers", "Numbers of workers to run the script with.", "N,N,...")] = WORKERS,
    name: Annotated[str, option("--name", "Name of the script's job.", "NAME")] = NAME,
    seed: SeedOption = 0,
    output: FormatOption = OutputFormat.TABLE,
) -> ExitCode:
    """Profile training jobs on this machine: step times, bandwidths, speed functions, scaling, placement slowdown.

    With --command, profile a script in any framework whose loop calls `optim.profiling.StepTimer` in each step.
    """
    from optim.core.options import build_options
    from optim.profiling.document import write_profiles
    from optim.profiling.job_profile import ProfileOptions, quality_warnings
    from optim.profiling.machine_benchmarks import find_device
    from optim.profiling.measuring import measure_profiles
    from optim.training.applications import APPLICATIONS

    check_out(out)
    if not 0 < scale <= 1:
        raise InvalidOptionError(f"--scale must be above 0 and at most 1, got {scale}")
    given = split_options(settings)
    options = build_options(ProfileOptions, given)
    if command is not None:
        _check_options(given, OF_APPLICATIONS, "applications; omit it, or --command")
        if application or device or accept_noise or seed or scale != SCALE:
            raise InvalidOptionError(NO_APPLICATION)
        return _profile_script(command, workers, options, name, out, output)
    if (workers, name) != (WORKERS, NAME):
        raise InvalidOptionError("--workers and --name require --command; add it, or omit them")
    _check_options(given, OF_SCRIPTS, "scripts; add --command, or omit it")
    names = split_list(application) or tuple(APPLICATIONS)
    for word in names:
        if word not in APPLICATIONS:
            raise unknown_name("application", word, APPLICATIONS, "; profile your own training by --command")
    import jax

    jobs = {word: APPLICATIONS[word].at_scale(scale, seed=seed) for word in names}
    with (
        jax.default_device(find_device(device)),
        terminal_progress() as progress,
        listening("the profile of finished jobs will be written") as stop,
    ):
        found = measure_profiles(
            jobs,
            options,
            accept_noise=accept_noise,
            with_encoder=not application,
            stop=stop,
            progress=progress,
        )
        was_stopped = stop.is_requested
    if found.jobs and out is not None:
        write_profiles(found, out)
        info(f"{len(found.jobs)} job profiles in {out}; `optim bench --profile {out}` runs on them")
    if output is OutputFormat.JSON or out is None:
        print_json(found)
    else:
        _print_profiles(found)
    for remark in quality_warnings(found):
        info(remark)
    if was_stopped:
        return ExitCode.INTERRUPTED
    return ExitCode.DONE


def _check_options(given: Mapping[str, str], others: Collection[str], whose: str) -> None:
    """Raise if a given option is one of `others`, which apply only to `whose`."""
    for name in given:
        if name in others:
            raise InvalidOptionError(f"--option {name} applies only to {whose}")


def _profile_script(
    command: str, workers: str, options: "ProfileOptions", name: str, out: Path | None, output: OutputFormat
) -> ExitCode:
    """Profile a training script."""
    from optim.profiling.commands import profile_command
    from optim.profiling.document import SCHEMA, ProfileDocument, write_profiles
    from optim.profiling.job_profile import quality_warnings
    from optim.profiling.timing import MAX_LOAD, present_load

    numbers = [whole_number(word.strip(), "each of --workers") for word in workers.split(",")]
    load = present_load()
    with terminal_progress() as progress, listening("the script ends now") as stop:
        job = profile_command(command, numbers, options, name=name, stop=stop, progress=progress)
    found = ProfileDocument(schema=SCHEMA, jobs=[job], slot_s=options.slot_s)
    if out is not None:
        write_profiles(found, out)
        info(f"the profile of {name} in {out}; `optim bench --profile {out}` runs on it")
    if output is OutputFormat.JSON or out is None:
        print_json(found)
    else:
        _print_profiles(found)
    cores = os.cpu_count() or 1
    if load > MAX_LOAD * cores:
        info(
            f"other processes (load {load:.1f} on {cores} processors) lengthened the steps; measure again on "
            "an idle machine, or with --option rounds=N"
        )
    if job.usage:
        info(f"terms of the speed function that the data support: {job.usage.model}")
    for remark in quality_warnings(found):
        info(remark)
    return ExitCode.DONE


def _print_profiles(found: "ProfileDocument") -> None:
    from msgspec import UNSET

    from optim.profiling.job_profile import fit_errors

    rows = [
        (
            job.name,
            "" if job.device is UNSET else job.device,
            _text(job.minibatch_s, 1e3),
            f"{job.gradient_mb:.3g}",
            _text(job.worker_mbps),
            _text(job.ps_mbps),
            " ".join(f"{point.workers}:{point.speedup:.2f}" for point in job.scaling),
            f"{job.placement.rack:.2f} {job.placement.cluster:.2f}",
            " ".join(f"{error:.1%}" for error in fit_errors(job).values()),
        )
        for job in found.jobs
    ]
    header = (
        *(
            "job",
            "device",
            "tau ms",
            "e MB",
            "b Mbit/s",
            "B Mbit/s",
            "speed-up by workers",
            "slowdown in rack, cluster",
        ),
        "error: sync, async, update",
    )
    print_table(header, rows, title="median and 95 % interval (by order statistics; for rates by bootstrap)")


def _text(interval: "MeasuredValue", scale: float = 1.0) -> str:
    """Return a value and its interval; a value without a width is assumed, not measured."""
    if interval.low == interval.high:
        return f"{interval.value * scale:.4g} (assumed)"
    return f"{interval.value * scale:.4g} ({interval.low * scale:.3g}-{interval.high * scale:.3g})"
