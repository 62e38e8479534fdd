"""Instances by name or file: references, generators, traces, and the user's files."""

import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Protocol, overload

from optim.core.errors import InvalidOptionError, InvalidProblemError, check_seed, did_you_mean
from optim.core.options import build_options
from optim.models import reference
from optim.models.catalogue import problem_names, problem_of
from optim.models.files import InstanceT, load, of_kind
from optim.models.reference import AdmissionName, AuctionName, BiddingName, reference_names
from optim.workloads.admission import generator
from optim.workloads.admission.generator import GeneratorOptions

if TYPE_CHECKING:
    from optim.models.admission.instance import AdmissionInstance
    from optim.models.auction.instance import AuctionInstance
    from optim.models.bidding.instance import BiddingInstance
    from optim.profiling.document import ProfileDocument


@cache
def generator_names() -> tuple[str, ...]:
    """Return the problems with a generator module ``optim.workloads.<problem>.generator``, without importing any."""
    here = Path(__file__).parent
    return tuple(name for name in problem_names() if (here / name / "generator.py").exists())


@overload
def generate(problem: Literal["admission"], *, seed: int = 0, **options: object) -> "AdmissionInstance": ...


@overload
def generate(problem: Literal["auction"], *, seed: int = 0, **options: object) -> "AuctionInstance": ...


@overload
def generate(problem: Literal["bidding"], *, seed: int = 0, **options: object) -> "BiddingInstance": ...


@overload
def generate(problem: str, *, seed: int = 0, **options: object) -> Any: ...


def generate(problem: str, *, seed: int = 0, **options: object) -> Any:
    """Generate an instance.

    Parameters
    ----------
    problem
        ``"admission"``, ``"auction"`` or ``"bidding"``.
    seed
        Equal seeds give equal instances.
    options
        Fields of the generator's options, `GeneratorOptions` of ``optim.workloads.<problem>.generator``: ``num_jobs``,
        ``num_slots``; ``num_apps``, ``num_gpus``; and so on. The error for an unknown name lists the known ones.

    Raises
    ------
    InvalidOptionError
        If the problem has no generator, an option is unknown or out of its range, or the seed isn't an integer.

    Examples
    --------
    >>> import optim
    >>> optim.generate("admission", seed=3, num_jobs=5, num_slots=8).num_jobs
    5
    """
    module = generator_of(problem)
    check_seed(seed)
    return module.generate(build_options(module.GeneratorOptions, options), seed)


def generator_of(problem: str) -> Any:
    """Return the module of a problem's generator.

    Raises
    ------
    InvalidOptionError
        If the problem has no generator.
    """
    if problem not in generator_names():
        raise InvalidOptionError(f"{problem!r} has no generator; choose one of {', '.join(generator_names())}")
    return import_module(f"optim.workloads.{problem}.generator")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Generator options of an admission instance, and the first 16 digits of the SHA-256 of the instance's document."""

    options: GeneratorOptions
    seed: int
    digest: str


GENERATED: Mapping[str, Recipe] = MappingProxyType(
    {
        "xl-0": Recipe(
            options=GeneratorOptions(num_jobs=10_000, num_slots=1_000, num_worker_servers=500, num_ps_servers=500),
            seed=0,
            digest="82aaa34df4fb468f",
        ),
    }
)
"""Recipes of large instances by name. `xl-0` has the generator's defaults except for its sizes; its generation takes
about 10 s."""

GENERATED_PROBLEM = "admission"
"""Problem of the instances in `GENERATED`."""


@overload
def reference_instance(name: AdmissionName) -> "AdmissionInstance": ...


@overload
def reference_instance(name: AuctionName) -> "AuctionInstance": ...


@overload
def reference_instance(name: BiddingName) -> "BiddingInstance": ...


@overload
def reference_instance(name: str) -> Any: ...


@overload
def reference_instance(name: str, kind: type[InstanceT]) -> InstanceT: ...


def reference_instance(name: str, kind: type[Any] | None = None) -> Any:
    """Return a reference instance by name.

    Parameters
    ----------
    name
        One of `optim.reference_names`, or the name of a large instance that is generated on demand, such as ``xl-0``.
        Type checkers know the instance type of the shipped instances.
    kind
        Expected type, such as `optim.AdmissionInstance`, for names known only at run time.

    Raises
    ------
    InvalidProblemError
        If no instance has this name (the message lists the names), the instance isn't of the expected type, or a
        generated instance doesn't have its recipe's digest.

    Examples
    --------
    >>> import optim
    >>> optim.reference_instance("tiny-0").num_jobs
    6
    """
    if name not in GENERATED:
        if name in reference.reference_names():
            return of_kind(reference.reference_instance(name), kind)
        raise InvalidProblemError(f"no reference instance {name!r}; {_known(name)}")
    return of_kind(drawn(name, GENERATED[name]), kind)


def drawn(name: str, recipe: Recipe) -> Any:
    """Return the instance of a recipe, under a name.

    Raises
    ------
    InvalidProblemError
        If the instance's digest isn't the recipe's.
    """
    instance = replace(generator.generate(recipe.options, recipe.seed), name=name)
    digest = sha256(problem_of(instance).write_instance(instance)).hexdigest()[: len(recipe.digest)]
    if digest != recipe.digest:
        raise InvalidProblemError(
            f"{name}: the generator gives another instance here (digest {digest}, pinned {recipe.digest}); "
            "use a NumPy that draws the same random numbers, or an unchanged generator"
        )
    return instance


SIZES = ("jobs", "slots", "worker_servers", "ps_servers", "apps", "gpus", "machines")
"""Command-line options of instance sizes, without dashes; a generator's option is ``num_`` plus this name."""

PUBLISHED = "published"
"""Name of the built-in job profiles."""

_LOG = logging.getLogger(__name__)


class InstanceSource(Protocol):
    """Source of an instance for each seed."""

    def load(self, seed: int) -> Any:
        """Return the instance; deterministic sources ignore the seed."""
        ...


@dataclass(frozen=True, slots=True)
class NamedSource:
    """A file, or, without such a file, a shipped reference instance of this name."""

    name: str

    def load(self, seed: int) -> Any:
        """Return the instance."""
        del seed
        return find_instance(self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedSource:
    """An instance from its problem's generator; `options` are the generator's `GeneratorOptions`."""

    options: Any
    problem: str = "admission"

    def load(self, seed: int) -> Any:
        """Generate the instance of this seed."""
        return generator_of(self.problem).generate(self.options, seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSource:
    """An admission instance sampled from a public trace; `options` are its `TraceOptions`."""

    path: Path
    format: str
    options: Any

    def load(self, seed: int) -> Any:
        """Sample the instance of this seed, and log the dropped rows of the trace."""
        from optim.workloads.admission.traces import read_trace

        instance, summary = read_trace(self.path, self.format, self.options, seed)
        for line in summary.lines:
            _LOG.info("%s", line)
        return instance


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfiledSource:
    """An instance of jobs with measured profiles: `profiles` is a file or the built-in set; `options` are the generator's."""

    profiles: str
    options: Any
    problem: str = "admission"

    def load(self, seed: int) -> Any:
        """Generate the instance of this seed."""
        from optim.workloads.profiles import profiled_instance

        return profiled_instance(self.problem, find_profiles(self.profiles), self.options, seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceRequest:
    """Instances as a user requests them; None and () stand for unset fields.

    Parameters
    ----------
    names
        Files or reference names.
    trace, trace_format, slot_minutes
        A trace, its format (by default the user's table), and the length of a slot in minutes.
    jobs, slots, worker_servers, ps_servers
        Sizes of a generated admission instance, or of the sample of a trace.
    apps, gpus, machines
        Sizes of a generated auction.
    profile
        A file of job profiles, or ``published``: generated jobs follow its profiles.
    problem
        Problem to generate for, if there is neither a file nor a trace.
    options
        Further options, by name: of the generator (`GeneratorOptions`) or, with a trace, those of `TraceOptions`.
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
        """Whether only the profile is set, so that instances of any problem can be generated from it."""
        is_sized = any(getattr(self, name) is not None for name in SIZES)
        return self.profile is not None and not (self.names or self.trace or self.options or is_sized)

    @property
    def problem_name(self) -> str:
        """Name of the problem that the instances belong to.

        Raises
        ------
        InvalidProblemError
            If the first file can't be read.
        """
        if self.names:
            return problem_of(find_instance(self.names[0])).name
        return "admission" if self.trace is not None else self.problem

    def sources(self) -> tuple[InstanceSource, ...] | None:
        """Return the sources of the instances, None if nothing is set.

        Raises
        ------
        InvalidOptionError
            If the fields contradict each other.
        """
        given = {**self.options, **self._sizes()}
        if self.trace is None and (self.trace_format is not None or self.slot_minutes is not None):
            raise InvalidOptionError("--trace-format and --slot-minutes describe a trace; add --trace FILE")
        if self.names and (given or self.trace is not None or self.profile is not None):
            raise InvalidOptionError(
                "--instance names complete instances; leave out sizes (such as --jobs), --trace and --profile"
            )
        if self.names:
            return tuple(NamedSource(name) for name in self.names)
        if self.trace is not None and self.profile is not None:
            raise InvalidOptionError("a trace has jobs already; leave out --trace or --profile")
        if self.trace is not None:
            return (self._trace_source(self.trace, given),)
        if self.profile is not None:
            return (profiled(self.profile, self.problem, given),)
        return (generated(given, self.problem),) if given else None

    def _sizes(self) -> dict[str, int]:
        """Return the sizes that are set, by the generator's option names."""
        sizes = {f"num_{name}": getattr(self, name) for name in SIZES if getattr(self, name) is not None}
        if sizes:
            known = {each.name for each in fields(generator_of(self.problem).GeneratorOptions)}
            for name in sorted(sizes.keys() - known):
                flag = "--" + name.removeprefix("num_").replace("_", "-")
                raise InvalidOptionError(f"{flag} isn't a size of {self.problem!r} instances; leave it out")
        return sizes

    def _trace_source(self, trace: Path, sizes: Mapping[str, Any]) -> TraceSource:
        from optim.workloads.admission.traces import TraceOptions
        from optim.workloads.traces.formats import DEFAULT_FORMAT
        from optim.workloads.traces.job_table import by_one_name

        minutes = {} if self.slot_minutes is None else {"slot_minutes": self.slot_minutes}
        options = build_options(TraceOptions, by_one_name({**sizes, **minutes}))
        return TraceSource(path=trace, format=self.trace_format or DEFAULT_FORMAT, options=options)


def generated(sizes: Mapping[str, Any], problem: str = "admission") -> GeneratedSource:
    """Return a source of generated instances; absent sizes are the generator's defaults.

    Raises
    ------
    InvalidOptionError
        If the problem has no generator, or the generator has no such option.
    """
    options = build_options(generator_of(problem).GeneratorOptions, sizes)
    return GeneratedSource(options=options, problem=problem)


def profiled(profiles: str, problem: str, sizes: Mapping[str, Any] = MappingProxyType({})) -> ProfiledSource:
    """Return a source of instances with measured jobs; absent sizes are those of `PROFILED_SIZES` or the defaults.

    Raises
    ------
    InvalidProblemError
        If the file can't be read.
    InvalidOptionError
        If the problem has no generator, or the generator has no such option.
    """
    usual = dict(getattr(generator_of(problem), "PROFILED_SIZES", {}))
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
    from optim.profiling.document import read_profiles
    from optim.workloads.profiles import published_profiles

    return published_profiles() if name == PUBLISHED and not os.path.exists(name) else read_profiles(Path(name))


def find_instance(name: str) -> Any:
    """Read an instance file, or find a shipped reference instance by its bare or file name.

    Raises
    ------
    InvalidProblemError
        If neither exists, or the file is invalid; the message gives field and remedy.
    """
    if os.path.exists(name):
        return load(name)
    bare = name.removesuffix(".gz").removesuffix(".json")
    if bare in (*reference_names(), *GENERATED):
        return reference_instance(bare)
    raise InvalidProblemError(f"{name}: no such file, and no reference instance with this name; {_known(bare)}")


def _known(wrong: str) -> str:
    """Return a hint on the known names that begin like a wrong name or resemble it; all names if there are none."""
    names = (*reference_names(), *GENERATED)
    begun = [name for name in names if wrong and name.startswith(f"{wrong.rstrip('-')}-")]
    hint = f"did you mean {', '.join(numbered(begun))}?" if begun else did_you_mean(wrong, names).strip()
    return hint or f"there are: {', '.join(numbered(names))}"


def numbered(names: Iterable[str]) -> list[str]:
    """Return names in their order; a run of names with consecutive final numbers becomes one range.

    Examples
    --------
    >>> numbered(["light-0", "light-1", "light-3", "spot-vector", "wide-0"])
    ['light-0 to light-1', 'light-3', 'spot-vector', 'wide-0']
    """
    return [" to ".join(dict.fromkeys((run[0], run[-1]))) for run in runs_of(names)]


def runs_of(names: Iterable[str]) -> list[list[str]]:
    """Return names in their order, grouped where their final numbers are consecutive."""
    runs: list[list[str]] = []
    before: tuple[str, int] | None = None
    for name in names:
        stem, _, number = name.rpartition("-")
        place = (stem, int(number)) if number.isdecimal() else None
        if place is not None and before == (stem, place[1] - 1):
            runs[-1].append(name)
        else:
            runs.append([name])
        before = place
    return runs
