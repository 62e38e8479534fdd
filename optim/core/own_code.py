"""Classes of one's own by `./file.py:Class`, and of other packages by entry point: the one loader that all simulations share."""

import importlib.util
import sys
import traceback
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from optim.core.errors import InvalidOptionError

SEPARATOR = ".py:"
WORDS = 120
MOST_TEXT = 160
"""Characters of an error's text that are kept."""


def in_a_line(error: BaseException) -> str:
    """Return an error's type and text, and where the user's code raised it, in one line."""
    frames = traceback.extract_tb(error.__traceback__)
    last = frames[-1] if frames else None
    where = f" ({Path(last.filename).name}:{last.lineno} in {last.name})" if last else ""
    text = " ".join(str(error).split())[:MOST_TEXT]
    return f"{type(error).__name__}: {text}{where}"


def is_own(name: str) -> bool:
    """Tell whether a name is of the form ``./mine.py:MyPolicy``."""
    return SEPARATOR in name


def load_own(name: str, base: type[Any], what: str) -> type[Any]:
    """Return a class of a file, given as ``./mine.py:MyPolicy``.

    Parameters
    ----------
    name
        Path and class.
    base
        What it must be a subclass of.
    what
        What it is, for error texts: "a policy of simulate cluster".

    Raises
    ------
    InvalidOptionError
        If there is no such file or class, the file fails, or the class is something else.
    """
    path, _, attribute = name.rpartition(":")
    file = Path(path)
    if not file.is_file():
        raise InvalidOptionError(f"there is no file {path[:WORDS]!r}; give {what} as ./mine.py:MyPolicy")
    module_name = f"optim_own_{file.stem}_{abs(hash(str(file.resolve())))}"
    spec = importlib.util.spec_from_file_location(module_name, file)
    if spec is None or spec.loader is None:
        raise InvalidOptionError(f"{path[:WORDS]} can't be imported; give {what} as ./mine.py:MyPolicy")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # anything may happen in somebody else's file
        said = " ".join(str(error).split())[:WORDS]
        raise InvalidOptionError(f"{path[:WORDS]} fails with {type(error).__name__}: {said}; mend it first") from error
    return _require(getattr(module, attribute, None), f"{path[:WORDS]}:{attribute[:WORDS]}", base, what)


def load_installed(group: str, name: str, base: type[Any], what: str) -> type[Any] | None:
    """Return a class that another package names in an entry-point group, None if none does.

    Raises
    ------
    InvalidOptionError
        If it can't be imported, or is something else.
    """
    for entry_point in entry_points(group=group, name=name):
        try:
            found = entry_point.load()
        except (Exception, SystemExit) as error:  # a plug-in may fail in any way
            said = " ".join(str(error).split())[:WORDS]
            raise InvalidOptionError(f"{entry_point.value} can't be loaded ({said}); mend or uninstall it") from error
        return _require(found, entry_point.value, base, what)
    return None


def installed_names(group: str) -> tuple[str, ...]:
    """Return the names of an entry-point group."""
    return tuple(sorted(entry_point.name for entry_point in entry_points(group=group)))


def _require(found: Any, name: str, base: type[Any], what: str) -> type[Any]:
    if not isinstance(found, type) or not issubclass(found, base):
        raise InvalidOptionError(f"{name} isn't {what}; derive the class from {base.__module__}.{base.__name__}")
    return found
