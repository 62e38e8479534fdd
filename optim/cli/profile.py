"""`optim profile`: measure this machine and training jobs on it, as profiles that instances are built from."""

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
    """Where applications are measured."""

    CPU = "cpu"
    GPU = "gpu"


OF_SCRIPTS = frozenset({"rounds", "patience_s"})
OF_APPLICATIONS = frozenset({
    "gpu", "memory_gb", "max_workers", "max_servers", "max_points", "repeats", "epochs", "cache_mib", "allowed_gb"
})  # fmt: skip
"""Options that say how the one or the other is measured, or what a script tells itself."""

NO_APPLICATION = (
    "--command profiles a script of one's own; leave --application, --scale, --device, --seed and --accept-noise out"
)


def profile(
    *,
    out: Annotated[Path | None, option("--out", "Where to write; else it goes to stdout as JSON.", "FILE")] = None,
    application: Annotated[list[str] | None, option("--application", "Repeat or commas; default: all.", "NAME")] = None,
    scale: Annotated[float, option("--scale", "Sizes of the data over those of the published ones.")] = SCALE,
    device: Annotated[
        Device | None, option("--device", "Where applications are measured; default: what JAX finds.")
    ] = None,
    settings: Annotated[
        list[str] | None, option("--option", "What isn't measured on one machine; repeat for several.", "NAME=VALUE")
    ] = None,
    accept_noise: Annotated[bool, option("--accept-noise", "Go on although other work disturbs the times.")] = False,
    command: Annotated[
        str | None,
        option("--command", "A script of one's own instead, with {workers} where their number goes.", "WORDS"),
    ] = None,
    workers: Annotated[str, option("--workers", "Numbers of workers that the script runs with.", "N,N,...")] = WORKERS,
    name: Annotated[str, option("--name", "Name of the script's job.", "NAME")] = NAME,
    seed: SeedOption = 0,
    output: FormatOption = OutputFormat.TABLE,
) -> ExitCode:
    """Profile training jobs on this machine: step times, bandwidths, speed functions, scaling, placement slowdown.

    With --command it is a script of one's own, in any framework, whose loop calls `optim.profiling.StepTimer` each step.
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
        _check_options(given, OF_APPLICATIONS, "the applications; leave it out, or --command")
        if application or device or accept_noise or seed or scale != SCALE:
            raise InvalidOptionError(NO_APPLICATION)
        return _profile_script(command, workers, options, name, out, output)
    if (workers, name) != (WORKERS, NAME):
        raise InvalidOptionError("--workers and --name are of a script of one's own; add --command, or leave them out")
    _check_options(given, OF_SCRIPTS, "a script of one's own; add --command, or leave it out")
    names = split_list(application) or tuple(APPLICATIONS)
    for word in names:
        if word not in APPLICATIONS:
            raise unknown_name("application", word, APPLICATIONS)
    import jax

    jobs = {word: APPLICATIONS[word].at_scale(scale, seed=seed) for word in names}
    with (
        jax.default_device(find_device(device)),
        terminal_progress() as progress,
        listening("a profile of the jobs that are finished is written") as stop,
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
    """Refuse options that only what isn't profiled has."""
    for name in given:
        if name in others:
            raise InvalidOptionError(f"--option {name} is of {whose}")


def _profile_script(
    command: str, workers: str, options: "ProfileOptions", name: str, out: Path | None, output: OutputFormat
) -> ExitCode:
    """Profile a script of one's own."""
    from optim.profiling.commands import profile_command
    from optim.profiling.document import SCHEMA, ProfileDocument, write_profiles
    from optim.profiling.job_profile import quality_warnings
    from optim.profiling.timing import MAX_LOAD, present_load

    numbers = [whole_number(word.strip(), "each of --workers") for word in workers.split(",")]
    load = present_load()
    with terminal_progress() as progress, listening("the script is ended") as stop:
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
            f"measured beside other work (load {load:.1f} on {cores} processors), which makes steps longer; measure again on "
            "an idle machine, or with --option rounds=N"
        )
    if job.usage:
        info(f"the data support the model: {job.usage.model}")
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
        *("job", "device", "tau ms", "e MB", "b Mbit/s", "B Mbit/s", "speed-up by workers", "slower in rack, cluster"),
        "error: sync, async, update",
    )
    print_table(header, rows, title="median and 95 % interval (order statistics; of rates bootstrap)")


def _text(interval: "MeasuredValue", scale: float = 1.0) -> str:
    return f"{interval.value * scale:.4g} ({interval.low * scale:.3g}-{interval.high * scale:.3g})"
