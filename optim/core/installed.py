"""What is installed beside this library: versions of packages, and plug-ins by entry-point group."""

import logging
import sys
from functools import cache
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version

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
