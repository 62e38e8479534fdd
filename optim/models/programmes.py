"""Mathematical programmes: export to MPS and LP files, and shared parts of the programmes in Pyomo and CVXPY.

CVXPY determines the shape of a sum by summing uninitialised memory, and NumPy warns if that contains infinities of both
signs. Programmes are therefore built, copied and solved under `unfilled_sums`.
"""

import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np

from optim.core.errors import InvalidOptionError
from optim.core.files import write_bytes
from optim.models.catalogue import problem_of

unfilled_sums = np.errstate(invalid="ignore", over="ignore")
"""Decorator for functions that build or solve programmes."""

Model = Any
"""A Pyomo model; Pyomo has no annotations."""


def add_rows(model: Model, rule: Callable[..., Any], *index: Any) -> None:
    """Add a rule's constraint under the rule's name, with its docstring as `doc`."""
    from optim.models.pyomo import pyo

    model.add_component(rule.__name__, pyo.Constraint(*index, rule=rule, doc=rule.__doc__))


FORMATS = {".mps": "mps", ".lp": "lp"}
"""Pyomo's format names by file suffix."""


def export(
    instance: Any, format: Literal["mps", "lp"] = "mps", path: str | Path | None = None, *, ratio: float | None = None
) -> str:
    """Return the formal programme of an instance as a text that any solver reads, and write it to `path` if given.

    For an admission instance it is the compact mixed-integer programme, for an auction the programme that places every
    bid GPU by GPU. For a bidding instance it is the linear relaxation of the cost per work (Charnes, Cooper), or with
    a `ratio` q the mixed-integer programme ``min cost - q work``.

    Parameters
    ----------
    instance
        Instance of any problem.
    format
        ``"mps"`` or ``"lp"``.
    path
        File to which the text is also written; a name ending in ``.gz`` is compressed.
    ratio
        Dollars per unit of work, for bidding instances only.

    Raises
    ------
    InvalidOptionError
        If the format is unknown, or a ratio is given for another problem.
    UnsupportedProblemError
        If the instance has no linear form.
    InvalidProblemError
        If the file can't be written.

    Examples
    --------
    >>> import optim
    >>> text = optim.export(optim.reference_instance("tiny-0"), "mps")
    >>> "OBJSENSE" in text, "RHS" in text
    (True, True)
    """
    if format not in FORMATS.values():
        raise InvalidOptionError(f"format must be one of {', '.join(FORMATS.values())}, got {format!r}")
    problem = problem_of(instance)
    model = problem.programme(instance) if ratio is None else problem.parametric_programme(instance, ratio)
    text = _text(model, format)
    if path is not None:
        write_bytes(path, text)
    return text.decode()


def export_model(model: Any, path: str | Path) -> None:
    """Write a Pyomo model to a file atomically.

    Variables and rows keep their names (with brackets and commas replaced). MPS files state the sense
    in a section OBJSENSE, which HiGHS, CPLEX, Gurobi, SCIP and Xpress read.

    Parameters
    ----------
    model
        A Pyomo model, such as `compact_model` returns.
    path
        Name ending in ``.mps`` or ``.lp``, or in ``.mps.gz`` or ``.lp.gz`` for a compressed file.

    Raises
    ------
    InvalidOptionError
        If the name has another ending.
    InvalidProblemError
        If the file can't be written.

    Examples
    --------
    >>> import optim
    >>> from optim.models.admission.compact_programme import compact_model
    >>> from optim.models.programmes import export_model
    >>> export_model(compact_model(optim.reference_instance("tiny-0")), "tiny-0.mps")  # doctest: +SKIP
    """
    path = Path(path)
    suffix = Path(path.name.removesuffix(".gz")).suffix
    if suffix not in FORMATS:
        known = " or ".join(FORMATS)
        raise InvalidOptionError(f"{path}: the name must end in {known} (or that and .gz), got {suffix!r}")
    write_bytes(path, _text(model, FORMATS[suffix]))


def _text(model: Any, format: str) -> bytes:
    # The file contains the name in a comment; other characters could end the comment.
    model.name = re.sub(r"[^\w.+-]", "_", str(model.name), flags=re.ASCII)
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / f"model.{format}"
        model.write(str(written), io_options={"symbolic_solver_labels": True})
        return written.read_bytes()
