"""Packages that only some commands need: their absence costs one line that says how to install them."""

from importlib import import_module
from types import ModuleType

from optim.core.errors import MissingDependencyError

DISTRIBUTION = "mlcluster-optim"

EXTRA_OF = {
    "dask": "dask",
    "distributed": "dask",
    "matplotlib": "plot",
    "pandas": "pandas",
    "sklearn": "learn",
    "torch": "torch",
}
"""By package the extra that installs it."""


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
        package = module.partition(".")[0]
        raise MissingDependencyError(
            f"{purpose} needs {package} ({error}); install it: pip install '{DISTRIBUTION}[{EXTRA_OF[package]}]'"
        ) from error
