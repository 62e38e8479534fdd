"""Policies of every simulated world: one decorator, in the policy's file, gives name, options, summary and source.

The command line, shell completion, the tables of the documentation and the conformance tests read this registry. Names
are read from the files by a regular expression, so that listing or completing them imports no policy.
"""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from optim.core.errors import NotAllowedError, unknown_name
from optim.core.optional import installed_names

WORLDS = ("cluster", "containers", "spot", "zones", "wrappers")
"""A cluster of GPUs, containers, bids on spot prices, a deadline over spot zones, and wrappers around cluster policies."""

PLUGIN_GROUPS: Mapping[str, str] = {"cluster": "optim.policies"}
"""Entry-point groups in which other packages name their policies, by world."""

FOLDERS = ("simulation", "rightsizing")
"""Folders of the package whose files may register policies."""

_DECORATOR = re.compile(r"""^@?policy\(\s*"([^"]+)",\s*world="([^"]+)\"""", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoOptions:
    """Options of a policy that has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredPolicy:
    """A policy of this package.

    Parameters
    ----------
    name, world
        Its name on the command line, and one of `WORLDS`.
    make
        Makes the policy; the arguments are those of the world.
    options_type
        The dataclass of its options.
    summary, source
        What it does, and the publication that it follows.
    is_default
        Whether a run plays it where no policy is named; over zones, where there are several of them.
    is_reference
        Whether it knows the future, so that it is a bound on policies.
    traits
        What else its world asks of it, in words that the world defines.
    """

    name: str
    world: str
    make: Callable[..., Any]
    options_type: type[Any] = NoOptions
    summary: str = ""
    source: str = ""
    is_default: bool = False
    is_reference: bool = False
    traits: frozenset[str] = frozenset()


_REGISTERED: dict[tuple[str, str], RegisteredPolicy] = {}

MakerT = TypeVar("MakerT", bound=Callable[..., Any])


def policy(
    name: str,
    /,
    *,
    world: str,
    options: type[Any] = NoOptions,
    summary: str = "",
    source: str = "",
    is_default: bool = False,
    is_reference: bool = False,
    traits: Iterable[str] = (),
    **arguments: Any,
) -> Callable[[MakerT], MakerT]:
    """Register a class or function that makes a policy; used as a decorator at the top level of the policy's own file.

    Name and world are literal texts, in this order, because completion reads them from the file. Several decorators on
    one maker register variants, each with its `arguments`. Without arguments, a class gets `name` and `source` as
    attributes. The summary is by default the first line of the docstring.

    Raises
    ------
    NotAllowedError
        If the name is taken.
    InvalidOptionError
        If there is no such world.
    """
    _check_world(world)

    def decorate(maker: MakerT) -> MakerT:
        if (world, name) in _REGISTERED:
            raise NotAllowedError(f"policy {name!r} of {world!r} is registered twice; choose another name")
        if isinstance(maker, type) and not arguments and not is_reference:
            maker.name, maker.source = name, source  # type: ignore[attr-defined]
        _REGISTERED[world, name] = RegisteredPolicy(
            name=name,
            world=world,
            make=partial(maker, **arguments) if arguments else maker,
            options_type=options,
            summary=summary or (inspect.getdoc(maker) or "").partition("\n")[0],
            source=source,
            is_default=is_default,
            is_reference=is_reference,
            traits=frozenset(traits),
        )
        return maker

    return decorate


def _check_world(world: str) -> None:
    if world not in WORLDS:
        raise unknown_name("world", world, sorted(WORLDS))


@cache
def _modules() -> Mapping[str, Mapping[str, str]]:
    """Return by world and name the module that registers each policy, in the order of the files."""
    root = Path(__file__).parents[1]
    modules: dict[str, dict[str, str]] = {world: {} for world in WORLDS}
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):
            for name, world in _DECORATOR.findall(path.read_text(encoding="utf-8")):
                modules[world][name] = ".".join((root.name, *path.relative_to(root).with_suffix("").parts))
    return modules


def shipped_names(world: str) -> tuple[str, ...]:
    """Return the names of this package's policies of a world, sorted; no policy is imported.

    Raises
    ------
    InvalidOptionError
        If there is no such world.
    """
    _check_world(world)
    return tuple(sorted(_modules()[world]))


def policy_names(world: str) -> tuple[str, ...]:
    """Return the names of the policies that can be played in a world, with clairvoyant references and plug-ins, sorted.

    Parameters
    ----------
    world
        ``"cluster"``, ``"containers"``, ``"spot"`` (bids on prices), ``"zones"``
        (availability and a deadline, in one zone or several), or ``"wrappers"`` (around policies of a cluster).

    Raises
    ------
    InvalidOptionError
        If there is no such world.

    Examples
    --------
    >>> import optim
    >>> "srtf" in optim.policy_names("cluster"), "proteus" in optim.policy_names("spot")
    (True, True)
    """
    plugins = installed_names(PLUGIN_GROUPS[world]) if world in PLUGIN_GROUPS else ()
    return tuple(sorted({*shipped_names(world), *plugins}))


def find_policy(world: str, name: str) -> RegisteredPolicy | None:
    """Return a policy of this package, None if there is none of that name; only its module is imported."""
    module = _modules()[world].get(name)
    if module is None:
        return None
    import_module(module)
    return _REGISTERED[world, name]


def policies_of(world: str) -> Mapping[str, RegisteredPolicy]:
    """Return this package's policies of a world by name, sorted; all their modules are imported."""
    entries = ((name, find_policy(world, name)) for name in shipped_names(world))
    return MappingProxyType({name: entry for name, entry in entries if entry is not None})


def default_names(world: str) -> tuple[str, ...]:
    """Return the names of the policies that are played where none is named, sorted."""
    return tuple(name for name, entry in policies_of(world).items() if entry.is_default)


def clairvoyant_names(world: str) -> tuple[str, ...]:
    """Return the names of a world's references, which know the future, sorted."""
    return tuple(name for name, entry in policies_of(world).items() if entry.is_reference)


def causal_names(world: str) -> tuple[str, ...]:
    """Return the names of a world's policies without the references that know the future, sorted."""
    return tuple(name for name, entry in policies_of(world).items() if not entry.is_reference)
