"""Registry of the policies of all simulations: a decorator in the policy's file gives name, options, summary and source.

The command line, shell completion, documentation tables and conformance tests read this registry. A regular expression
reads the names from the files, so that listing or completing them imports no policy.
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
"""Types of policies: for a cluster of GPUs, for containers, for bids on spot prices, and for a deadline over spot zones; and
wrappers of cluster policies."""

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
        Name on the command line, and one of `WORLDS`.
    make
        Factory of the policy; its arguments depend on the world.
    options_type
        Dataclass of the options.
    summary, source
        Description, and the publication that it implements.
    is_default
        Whether a simulation runs the policy if none is named; for zones, in simulations of several zones.
    is_reference
        Whether it knows the future, and thus bounds other policies.
    traits
        Further properties, defined by the world.
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
    """Register a class or function that makes a policy; use as a decorator at the top level of the policy's file.

    Name and world must be literals, in this order, because completion reads them from the file. Several decorators on
    one factory register variants, each with its `arguments`. Without arguments, a class gets `name` and `source` as
    attributes. The default summary is the first line of the docstring.

    Raises
    ------
    NotAllowedError
        If the name is taken.
    InvalidOptionError
        If the world is unknown.
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
    """Return the module of each policy by world and name, in the order of the files."""
    root = Path(__file__).parents[1]
    modules: dict[str, dict[str, str]] = {world: {} for world in WORLDS}
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):
            for name, world in _DECORATOR.findall(path.read_text(encoding="utf-8")):
                modules[world][name] = ".".join((root.name, *path.relative_to(root).with_suffix("").parts))
    return modules


def shipped_names(world: str) -> tuple[str, ...]:
    """Return the sorted names of this package's policies of a world, without importing them.

    Raises
    ------
    InvalidOptionError
        If the world is unknown.
    """
    _check_world(world)
    return tuple(sorted(_modules()[world]))


def policy_names(world: str) -> tuple[str, ...]:
    """Return the sorted names of a world's policies, with clairvoyant references and plug-ins.

    Parameters
    ----------
    world
        ``"cluster"``, ``"containers"``, ``"spot"`` (bids on prices), ``"zones"``
        (availability and a deadline, in one zone or several), or ``"wrappers"`` (of cluster policies).

    Raises
    ------
    InvalidOptionError
        If the world is unknown.

    Examples
    --------
    >>> import optim
    >>> "srtf" in optim.policy_names("cluster"), "proteus" in optim.policy_names("spot")
    (True, True)
    """
    plugins = installed_names(PLUGIN_GROUPS[world]) if world in PLUGIN_GROUPS else ()
    return tuple(sorted({*shipped_names(world), *plugins}))


def find_policy(world: str, name: str) -> RegisteredPolicy | None:
    """Return a policy of this package, None if the name is unknown; imports only the policy's module."""
    module = _modules()[world].get(name)
    if module is None:
        return None
    import_module(module)
    return _REGISTERED[world, name]


def policies_of(world: str) -> Mapping[str, RegisteredPolicy]:
    """Return this package's policies of a world by name, sorted; imports all their modules."""
    entries = ((name, find_policy(world, name)) for name in shipped_names(world))
    return MappingProxyType({name: entry for name, entry in entries if entry is not None})


def default_names(world: str) -> tuple[str, ...]:
    """Return the sorted names of the policies that run if none is named."""
    return tuple(name for name, entry in policies_of(world).items() if entry.is_default)


def clairvoyant_names(world: str) -> tuple[str, ...]:
    """Return the sorted names of a world's clairvoyant policies: references that know the future."""
    return tuple(name for name, entry in policies_of(world).items() if entry.is_reference)


def causal_names(world: str) -> tuple[str, ...]:
    """Return the sorted names of a world's policies that do not know the future."""
    return tuple(name for name, entry in policies_of(world).items() if not entry.is_reference)
