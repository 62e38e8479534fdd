"""Packages that only some commands need: their absence costs one line that says how to install them."""

import sys
from importlib import import_module
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


def require(module: str, purpose: str) -> ModuleType:
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
