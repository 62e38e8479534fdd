"""Where the instances of a benchmark come from: a file, a shipped reference, a generator, a trace."""

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.core.nearest import hint
from optim.core.options import build_options
from optim.models.catalogue import problem_of
from optim.models.files import load
from optim.models.reference import reference_names
from optim.workloads.generate import generator_of
from optim.workloads.references import GENERATED, reference_instance

if TYPE_CHECKING:
    from optim.workloads.profiles.document import ProfileDocument

SIZES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "admission": ("jobs", "slots", "worker_servers", "ps_servers"),
        "auction": ("apps", "gpus", "machines"),
        "bidding": (),
    }
)
"""Sizes by problem, as users name them; a generator's option is that name after ``num_``."""

PUBLISHED = "published"
"""Name of the built-in job profiles."""

PROFILED_SIZES: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "admission": {"num_jobs": 40, "num_slots": 30, "num_worker_servers": 6, "num_ps_servers": 6},
        "auction": {"num_apps": 16, "num_gpus": 64, "num_machines": 16},
    }
)
"""Sizes of instances with measured jobs, unless given: what all solvers do in a minute or two."""

_LOG = logging.getLogger(__name__)


class InstanceSource(Protocol):
    """Give an instance for a seed."""

    def load(self, seed: int) -> Any:
        """Return the instance; sources without chance ignore the seed."""
        ...


@dataclass(frozen=True, slots=True)
class NamedSource:
    """A file, or where there is no such file a shipped reference instance of that name."""

    name: str

    def load(self, seed: int) -> Any:
        """Return the instance."""
        del seed
        return find_instance(self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedSource:
    """An instance drawn by its problem's generator; `options` are that generator's `GeneratorOptions`."""

    options: Any
    problem: str = "admission"

    def load(self, seed: int) -> Any:
        """Draw the instance of this seed."""
        return generator_of(self.problem).generate(self.options, seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSource:
    """An admission instance sampled from a public trace; `options` are its `TraceOptions`."""

    path: Path
    format: str
    options: Any

    def load(self, seed: int) -> Any:
        """Sample the instance of this seed; what was left out of the trace is logged."""
        from optim.workloads.admission.traces import read_trace

        instance, summary = read_trace(self.path, self.format, self.options, seed)
        for line in summary.lines:
            _LOG.info("%s", line)
        return instance


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfiledSource:
    """An instance drawn with jobs as measured; `profiles` are a file or the built-in set, `options` the generator's."""

    profiles: str
    options: Any
    problem: str = "admission"

    def load(self, seed: int) -> Any:
        """Draw the instance of this seed."""
        from optim.workloads.profiles.instances import profiled_instance

        return profiled_instance(self.problem, find_profiles(self.profiles), self.options, seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceRequest:
    """Instances as a user describes them; None and () stand for what wasn't said.

    Parameters
    ----------
    names
        Files or reference names.
    trace, trace_format, slot_minutes
        A public trace, its format, and the length of a slot in minutes.
    jobs, slots, worker_servers, ps_servers
        Sizes of a generated admission instance, or of the sample of a trace.
    apps, gpus, machines
        Sizes of a generated auction.
    profile
        A file of job profiles, or ``published``: generated jobs are of its kinds.
    problem
        Whose generator is meant, where there is neither a file nor a trace.
    options
        Further options of the generator or of the trace's reader, by name.
    """

    names: tuple[str, ...] = ()
    trace: Path | None = None
    trace_format: str | None = None
    slot_minutes: float | None = None
    jobs: int | None = None
    slots: int | None = None
    worker_servers: int | None = None
    ps_servers: int | None = None
    apps: int | None = None
    gpus: int | None = None
    machines: int | None = None
    profile: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    problem: str = "admission"

    @property
    def is_profile_only(self) -> bool:
        """Whether nothing was said but which jobs there are: any problem can have such instances."""
        is_sized = any(getattr(self, name) is not None for names in SIZES.values() for name in names)
        return self.profile is not None and not (self.names or self.trace or self.options or is_sized)

    @property
    def problem_name(self) -> str:
        """Name of the problem that the instances belong to.

        Raises
        ------
        InvalidProblemError
            If the first file named can't be read.
        """
        if self.names:
            return problem_of(find_instance(self.names[0])).name
        return "admission" if self.trace is not None else self.problem

    def sources(self) -> tuple[InstanceSource, ...] | None:
        """Return where the instances come from, None if nothing was said.

        Raises
        ------
        InvalidOptionError
            If what was said doesn't belong together.
        """
        given = {**self.options, **self._sizes()}
        if self.trace is None and (self.trace_format is not None or self.slot_minutes is not None):
            raise InvalidOptionError("--trace-format and --slot-minutes describe a trace; add --trace FILE")
        if self.names and (given or self.trace is not None or self.profile is not None):
            raise InvalidOptionError(
                "--instance names whole instances; leave out sizes (such as --jobs), --trace and --profile"
            )
        if self.names:
            return tuple(NamedSource(name) for name in self.names)
        if self.trace is not None and self.profile is not None:
            raise InvalidOptionError("a trace has jobs of its own; leave out --trace or --profile")
        if self.trace is not None:
            return (self._trace_source(self.trace, given),)
        if self.profile is not None:
            return (profiled(self.profile, self.problem, given),)
        return (generated(given, self.problem),) if given else None

    def _sizes(self) -> dict[str, int]:
        """Return the sizes that were said, by the generator's names."""
        sizes = {}
        for problem, names in SIZES.items():
            for name in names:
                value = getattr(self, name)
                if value is None:
                    continue
                if problem != self.problem:
                    raise InvalidOptionError(
                        f"--{name.replace('_', '-')} is a size of {problem!r} instances, not of {self.problem!r}; leave it out"
                    )
                sizes[f"num_{name}"] = value
        return sizes

    def _trace_source(self, trace: Path, sizes: Mapping[str, Any]) -> TraceSource:
        if self.trace_format is None:
            raise InvalidOptionError("--trace needs --trace-format: philly, gavel, alibaba, csv or another format")
        from optim.workloads.admission.traces import TraceOptions

        minutes = {} if self.slot_minutes is None else {"slot_minutes": self.slot_minutes}
        options = build_options(TraceOptions, {**sizes, **minutes})
        return TraceSource(path=trace, format=self.trace_format, options=options)


def generated(sizes: Mapping[str, Any], problem: str = "admission") -> GeneratedSource:
    """Return a source of drawn instances; sizes that aren't given are the generator's own.

    Raises
    ------
    InvalidOptionError
        If the problem has no generator, or the generator doesn't know an option.
    """
    options = build_options(generator_of(problem).GeneratorOptions, sizes)
    return GeneratedSource(options=options, problem=problem)


def profiled(profiles: str, problem: str, sizes: Mapping[str, Any] = MappingProxyType({})) -> ProfiledSource:
    """Return a source of instances with measured jobs; sizes that aren't given are those of small runs.

    Raises
    ------
    InvalidProblemError
        If the file can't be read.
    InvalidOptionError
        If the problem has no generator, or the generator doesn't know an option.
    """
    usual = dict(PROFILED_SIZES.get(problem, {}))
    document = find_profiles(profiles)
    if problem == "admission":
        usual["slot_s"] = document.slot_s
    options = build_options(generator_of(problem).GeneratorOptions, {**usual, **sizes})
    return ProfiledSource(profiles=profiles, options=options, problem=problem)


def find_profiles(name: str) -> "ProfileDocument":
    """Read a file of job profiles, or return the built-in set by its name.

    Raises
    ------
    InvalidProblemError
        If the file can't be read, or isn't a file of profiles.
    """
    from optim.workloads.profiles.document import read_profiles
    from optim.workloads.profiles.published import published_profiles

    return published_profiles() if name == PUBLISHED and not os.path.exists(name) else read_profiles(Path(name))


def find_instance(name: str) -> Any:
    """Read an instance file, or find a shipped reference instance by its bare or file name.

    Raises
    ------
    InvalidProblemError
        If there is neither, or the file is bad; the text names the field and the remedy.
    """
    if os.path.exists(name):
        return load(name)
    bare = name.removesuffix(".gz").removesuffix(".json")
    if bare in (*reference_names(), *GENERATED):
        return reference_instance(bare)
    known = (*reference_names(), *GENERATED)
    raise InvalidProblemError(
        f"{name}: no such file, and no reference instance of that name; {hint(bare, known)}there are: {', '.join(known)}"
    )
