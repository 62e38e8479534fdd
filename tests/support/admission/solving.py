"""Optima of Pyomo models, for tests."""

from typing import Any

from optim.core.solution import Termination
from optim.solvers.lp.highs import CompiledModel, solve_with_highs


def optimum(model: Any) -> float:
    """Solve a model to optimality, load its variables, and return its objective."""
    outcome = solve_with_highs(CompiledModel(model), options={"mip_rel_gap": 0.0, "mip_abs_gap": 0.0})
    assert outcome.termination is Termination.OPTIMAL
    assert outcome.objective is not None
    return outcome.objective
