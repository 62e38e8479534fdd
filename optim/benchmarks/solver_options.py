"""Options given once for several solvers: each solver receives those that it knows."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from optim.core.errors import InvalidOptionError
from optim.solvers.solve import solver_named


def options_for(problem: str, solvers: Sequence[str], given: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the options of each solver.

    A plain name goes to every chosen solver that knows it; ``solver.name`` to that solver alone.

    Raises
    ------
    InvalidOptionError
        If no chosen solver knows an option, or a solver named isn't chosen.
    """
    known = {name: _option_names(problem, name) for name in solvers}
    result: dict[str, dict[str, Any]] = {name: {} for name in solvers}
    for text, value in given.items():
        owner, dot, option = text.rpartition(".")
        if dot and owner not in known:
            raise InvalidOptionError(f"option {text!r} is for solver {owner!r}, which isn't run; add --solver {owner}")
        takers = [owner] if dot else [name for name in solvers if option in known[name]]
        if not takers or option not in known[takers[0]]:
            names = ", ".join(sorted(frozenset().union(*known.values()))) or "none"
            raise InvalidOptionError(f"unknown option {text!r}; the chosen solvers know: {names}")
        for name in takers:
            result[name][option] = value
    return result


def _option_names(problem: str, solver: str) -> frozenset[str]:
    options_type = solver_named(problem, solver).options_type
    return frozenset(field.name for field in dataclasses.fields(options_type))
