"""What the formal programmes in Pyomo share: rows that are added under the name of their rule."""

from collections.abc import Callable
from typing import Any

import pyomo.environ as pyo

Model = Any
"""A Pyomo model; Pyomo has no annotations."""


def add_rows(model: Model, rule: Callable[..., Any], *index: Any) -> None:
    """Add a rule's constraint under the rule's own name, with its statement as `doc`."""
    model.add_component(rule.__name__, pyo.Constraint(*index, rule=rule, doc=rule.__doc__))
