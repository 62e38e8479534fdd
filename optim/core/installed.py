"""What is installed beside this library: versions of packages, and plug-ins by entry-point group."""

import logging
from functools import cache
from importlib.metadata import PackageNotFoundError, entry_points, version

LOGGER = logging.getLogger(__name__)


@cache
def installed_version(package: str) -> str | None:
    """Return a package's version, None where it isn't installed (such as a source tree that is only on the path)."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def load_plugins(group: str) -> None:
    """Import the modules that other packages name in an entry-point group; one that fails is named and left out."""
    for entry_point in entry_points(group=group):
        try:
            entry_point.load()
        except Exception as error:  # a plug-in may fail in any way; the others still serve
            LOGGER.warning(
                "plug-in %r (%s) can't be loaded: %s: %s; it is left out until it is mended or uninstalled",
                entry_point.name, entry_point.value, type(error).__name__, error,
            )  # fmt: skip
