"""Optional packages and plug-ins: what is installed, and one line that says how to install what is missing."""

import logging
import sys
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from importlib.util import find_spec
from types import ModuleType

from optim.core.errors import MissingDependencyError

DISTRIBUTION = "mlcluster-optim"

EXTRA_OF = {
    "dask": "dask",
    "distributed": "dask",
    "hypothesis": "testing",
    "matplotlib": "plot",
    "pandas": "pandas",
    "sklearn": "learn",
    "torch": "torch",
}

"""By package the extra that installs it."""

PACKAGE_OF = {"sklearn": "scikit-learn"}

"""What a package is called where it is installed, if not by its own name."""


def import_extra(module: str, purpose: str) -> ModuleType:
    """Import a module of an optional package.

    Parameters
    ----------
    module
        Dotted name; its first part is a key of `EXTRA_OF`.
    purpose
        What needs it, as the subject of a sentence: "reading CSV files".

    Raises
    ------
    MissingDependencyError
        If the package, or one that it needs, isn't installed; the text holds the command that installs it.

    Examples
    --------
    >>> require("pandas", "reading CSV files").__name__
    'pandas'
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise _missing(module.partition(".")[0], purpose, f" ({error})") from error


def check_installed(package: str, purpose: str) -> None:
    """Find out whether an optional package is there, before the work that ends in using it; nothing is imported.

    Raises
    ------
    MissingDependencyError
        If it isn't.
    """
    is_there = sys.modules[package] is not None if package in sys.modules else find_spec(package) is not None
    if not is_there:
        raise _missing(package, purpose, "")


def _missing(package: str, purpose: str, cause: str) -> MissingDependencyError:
    return MissingDependencyError(
        f"{purpose} needs {PACKAGE_OF.get(package, package)}{cause}; install it: pip install '{DISTRIBUTION}[{EXTRA_OF[package]}]'"
    )


LOGGER = logging.getLogger(__name__)

_OWN = __name__.partition(".")[0]

_REGISTRATIONS: list[frozenset[str]] = []

"""For each solver and suite that isn't this library's own, the packages that were being imported as it was registered."""


@cache
def installed_version(package: str) -> str | None:
    """Return a package's version, None where it isn't installed (such as a source tree that is only on the path)."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def note_registration() -> None:
    """Remember who registers something now, so that a plug-in that registers nothing can be told."""
    frame, importing = sys._getframe(1), []
    while frame is not None:
        if frame.f_code.co_name == "<module>":
            importing.append(str(frame.f_globals.get("__name__")).partition(".")[0])
        frame = frame.f_back  # type: ignore[assignment]  # None at the outermost one
    if importing[:1] != [_OWN]:
        _REGISTRATIONS.append(frozenset(importing))


def load_plugins(group: str) -> None:
    """Import the modules that other packages name in an entry-point group.

    One that fails, or ends the process, is named and left out; one that registers nothing is named.
    """
    for entry_point in entry_points(group=group):
        before = len(_REGISTRATIONS)
        try:
            loaded = entry_point.load()
        except (Exception, SystemExit) as error:  # a plug-in may fail in any way; the others still serve
            LOGGER.warning(
                "plug-in %r (%s) can't be loaded: %s: %s; it is left out until it is mended or uninstalled",
                entry_point.name, entry_point.value, type(error).__name__, error,
            )  # fmt: skip
            continue
        if len(_REGISTRATIONS) == before and not _has_registered(entry_point):
            LOGGER.warning(
                "plug-in %r (%s) is a %s and registers no solver and no suite; its entry point in %s must name the module "
                "whose import registers them",
                entry_point.name, entry_point.value, type(loaded).__name__, group,
            )  # fmt: skip


def _has_registered(entry_point: EntryPoint) -> bool:
    """Whether its package has registered something: in another group, by an earlier entry point, or imported by hand."""
    return any(entry_point.module.partition(".")[0] in importing for importing in _REGISTRATIONS)
