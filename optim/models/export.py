"""Write formal models to files that any solver reads: MPS and LP."""

import tempfile
from pathlib import Path
from typing import Any

from optim.core.errors import InvalidOptionError
from optim.core.files import write_bytes

FORMATS = {".mps": "mps", ".lp": "lp"}
"""Pyomo's name of the format by the file's suffix."""


def export_model(model: Any, path: str | Path) -> None:
    """Write a Pyomo model to a file, whole or not at all.

    Variables and rows keep their names (with brackets and commas replaced). MPS files state the sense
    in a section OBJSENSE, which HiGHS, CPLEX, Gurobi, SCIP and Xpress read.

    Parameters
    ----------
    model
        A Pyomo model, such as those of `compact_model`, `packing_model` and `packing_dual`.
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
    >>> from optim.models.admission.compact import compact_model
    >>> from optim.models.export import export_model
    >>> export_model(compact_model(optim.reference_instance("tiny-0")), "tiny-0.mps")  # doctest: +SKIP
    """
    path = Path(path)
    suffix = Path(path.name.removesuffix(".gz")).suffix
    if suffix not in FORMATS:
        known = " or ".join(FORMATS)
        raise InvalidOptionError(f"{path}: the name must end in {known} (or that and .gz), got {suffix!r}")
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / f"model{suffix}"
        model.write(str(written), format=FORMATS[suffix], io_options={"symbolic_solver_labels": True})
        write_bytes(path, written.read_bytes())
