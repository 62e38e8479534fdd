"""Optional packages and plug-ins: versions, imports, and errors that name the command to install a missing package.

`import_deferring` imports a package without the slow modules that it imports but does not use.
"""

import logging
import sys
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from optim.core.errors import InvalidOptionError, MissingDependencyError

DISTRIBUTION = "mlcluster-optim"

EXTRA_OF = {
    "dask": "dask",
    "distributed": "dask",
    "hypothesis": "testing",
    "matplotlib": "plot",
    "pandas": "pandas",
    "sklearn": "learn",
    "torch": "torch",
    "yaml": "yaml",
}
"""The extra of this distribution that installs a package, by the package's import name."""

PACKAGE_OF = {"sklearn": "scikit-learn", "yaml": "pyyaml"}
"""The distribution that contains a package, if its name differs from the import name."""


def import_extra(module: str, purpose: str) -> ModuleType:
    """Import a module of an optional package.

    Parameters
    ----------
    module
        Dotted name; its first part is a key of `EXTRA_OF`.
    purpose
        The purpose of the import, as the subject of a sentence: "reading CSV files".

    Raises
    ------
    MissingDependencyError
        If the package or one of its dependencies is not installed; the message has the command that installs it.

    Examples
    --------
    >>> import_extra("pandas", "reading CSV files").__name__
    'pandas'
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise _missing(module.partition(".")[0], purpose, f" ({error})") from error


def check_installed(package: str, purpose: str) -> None:
    """Check that an optional package is installed, without importing it.

    Raises
    ------
    MissingDependencyError
        If the package is not installed.
    """
    is_installed = sys.modules[package] is not None if package in sys.modules else find_spec(package) is not None
    if not is_installed:
        raise _missing(package, purpose, "")


def _missing(package: str, purpose: str, cause: str) -> MissingDependencyError:
    return MissingDependencyError(
        f"{purpose} needs {PACKAGE_OF.get(package, package)}{cause}; install it: pip install '{DISTRIBUTION}[{EXTRA_OF[package]}]'"
    )


class _Deferred(ModuleType):
    """A module that is imported when one of its attributes is first used."""

    def __getattr__(self, attribute: str) -> Any:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), attribute)


def import_deferring(module: str, *deferred: str) -> ModuleType:
    """Import a module; modules that it imports but does not use are imported when they are first used.

    `importlib.util.LazyLoader` does not serve: a second import statement of the same module loads it.

    Parameters
    ----------
    module
        Dotted name.
    deferred
        Dotted names of modules to defer, unless they are loaded already.

    Examples
    --------
    >>> import_deferring("pyomo.environ", "scipy.stats").__name__
    'pyomo.environ'
    """
    stands_in = {name: _Deferred(name) for name in deferred if name not in sys.modules}
    sys.modules.update(stands_in)
    try:
        return import_module(module)
    finally:
        for name, stand_in in stands_in.items():
            if sys.modules.get(name) is stand_in:
                del sys.modules[name]


@cache
def installed_version(package: str) -> str | None:
    """Return a package's version, None if it is not installed (for example, a source tree on the path)."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


LOGGER = logging.getLogger(__name__)

MAX_CAUSE = 120
"""Maximum length of the original exception's text in the error about a plug-in."""

_REGISTERED_PLUGINS: list[str] = []
"""The names of solvers and suites that other packages registered in this process."""


def note_registration(name: str) -> None:
    """Record that another package registered a solver or a suite."""
    _REGISTERED_PLUGINS.append(name)


def installed_names(group: str) -> tuple[str, ...]:
    """Return the names of an entry-point group."""
    return tuple(sorted(entry_point.name for entry_point in entry_points(group=group)))


def find_plugin(group: str, name: str) -> EntryPoint | None:
    """Return the entry point of a name in a group, None if no package has one."""
    return next(iter(entry_points(group=group, name=name)), None)


def load_plugin(entry_point: EntryPoint) -> Any:
    """Return the object that an entry point of another package names.

    Raises
    ------
    InvalidOptionError
        If its import fails, or would end the process.
    """
    try:
        return entry_point.load()
    except (Exception, SystemExit) as error:  # a plug-in may fail in any way
        cause = " ".join(f"{type(error).__name__}: {error}".split())[:MAX_CAUSE]
        raise InvalidOptionError(
            f"plug-in {entry_point.name!r} ({entry_point.value}) cannot be loaded: {cause}; repair or uninstall it"
        ) from error


def load_plugins(group: str) -> None:
    """Import the modules that other packages name in an entry-point group.

    A warning reports a plug-in that fails (it is skipped), and a plug-in that registers no solver or suite.
    """
    for entry_point in entry_points(group=group):
        before, is_imported = len(_REGISTERED_PLUGINS), entry_point.module in sys.modules
        try:
            loaded = load_plugin(entry_point)
        except InvalidOptionError as error:
            LOGGER.warning("%s; it is skipped", error)
            continue
        if len(_REGISTERED_PLUGINS) == before and not is_imported:
            LOGGER.warning(
                "plug-in %r (%s) is a %s and registers no solver and no suite; its entry point in %s must name the module "
                "whose import registers them",
                entry_point.name, entry_point.value, type(loaded).__name__, group,
            )  # fmt: skip
