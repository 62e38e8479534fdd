"""Suites by name: one file a suite in `optim.benchmarks.suites`, entry points add those of other packages."""

import pkgutil
from collections.abc import Iterator, Sequence
from importlib import import_module

from optim.benchmarks import suites
from optim.benchmarks.spec import BenchSpec
from optim.core.errors import InvalidOptionError, NotAllowedError
from optim.core.installed import load_plugins, note_registration
from optim.core.nearest import hint

ENTRY_POINT_GROUP = "optim.suites"


class SuiteRegistry:
    """A table of suites by name."""

    def __init__(self) -> None:
        self._specs: dict[str, BenchSpec] = {}
        self._are_suites_loaded = False

    def register(self, spec: BenchSpec) -> BenchSpec:
        """Add a suite; called once, at the end of the suite's own file.

        Raises
        ------
        NotAllowedError
            If the name is taken.
        """
        if spec.name in self._specs:
            raise NotAllowedError(f"suite {spec.name!r} is registered twice; choose another name")
        self._specs[spec.name] = spec
        note_registration()
        return spec

    def get(self, name: str) -> BenchSpec:
        """Return a suite by name.

        Raises
        ------
        InvalidOptionError
            If there is none; the text lists those there are.
        """
        self._load()
        if name not in self._specs:
            near = hint(name, sorted(self._specs))
            raise InvalidOptionError(f"unknown suite {name!r}; {near}there are: {', '.join(sorted(self._specs))}")
        return self._specs[name]

    def __iter__(self) -> Iterator[BenchSpec]:
        self._load()
        yield from (self._specs[name] for name in sorted(self._specs))

    def _load(self) -> None:
        """Import every suite once; importing its module registers it."""
        if not self._are_suites_loaded:
            self._are_suites_loaded = True
            for module in pkgutil.iter_modules(suites.__path__):
                import_module(f"{suites.__name__}.{module.name}")
            load_plugins(ENTRY_POINT_GROUP)


SUITES = SuiteRegistry()
"""The table of this process. It holds code, not state: running a suite changes nothing in it."""

register_suite = SUITES.register


def choose_suites(
    words: Sequence[str], names: Sequence[str] = (), *, instances_of: str | None = None, is_profiled: bool = False
) -> tuple[BenchSpec, ...]:
    """Return the suites that a command line means, each once.

    Parameters
    ----------
    words
        Suites, or problems: a problem's name means its usual suite, or with `names` those of its suites.
    names
        Suites asked for by option.
    instances_of
        The problem of the user's instances, if there are any: all suites then stands for those of it that take them.
    is_profiled
        Whether instances are drawn from job profiles: all suites then stands for each problem's usual one.

    Raises
    ------
    InvalidOptionError
        If a name is unknown, or a suite doesn't belong to the problem named.
    """
    if not words and not names and is_profiled:
        return tuple(spec for spec in SUITES if spec.takes_instances and spec.name == spec.problem)
    if not words and not names:
        return tuple(
            spec for spec in SUITES if instances_of is None or (spec.takes_instances and spec.problem == instances_of)
        )
    if not names:
        return tuple(dict.fromkeys(SUITES.get(word) for word in words))
    chosen = tuple(dict.fromkeys(SUITES.get(name) for name in names))
    for word in words:
        if not any(word in (spec.problem, spec.name) for spec in chosen):
            raise InvalidOptionError(f"suite {chosen[0].name!r} doesn't belong to {word!r}; leave one of them out")
    return chosen
