"""Every registered bidding solver on every small instance that it supports: what all solvers owe."""

from functools import cache

import numpy as np
import pytest

from optim.core.errors import UnsupportedProblemError
from optim.models.bidding.instance import BiddingInstance
from optim.models.reference import reference_instance
from optim.solvers.conformance import CHECKS, ConformanceError, Trial
from optim.solvers.solve import solve, solvers_of
from tests.support.bidding.small_markets import drawn, hour_instance

SOLVERS = [solver.name for solver in solvers_of("bidding")]
REFERENCES = ("spot-vector", "spot-tiny-own", "spot-tiny-any", "spot-tiny-market", "spot-tiny-windows")
SPECIAL = {
    "no-bids": lambda: hour_instance([], [], [], name="no-bids", fixed_usd=1.0),
    "no-work": lambda: hour_instance([0], [0.1], [0.0], name="no-work", fixed_usd=1.0),
    "cap-of-none": lambda: hour_instance([0], [0.1], [1.0], cap=0, name="cap-of-none", fixed_usd=1.0),
    "free": lambda: hour_instance([0], [0.0], [1.0], name="free"),
    "one-bid": lambda: hour_instance([0], [0.1], [1.0], name="one-bid"),
    "all-there": lambda: hour_instance([0], [0.1], [1.0], name="all-there", fixed_usd=0.1, fixed_rate=5.0),
    "drawn-hour": lambda: drawn(3),
    "drawn-windows": lambda: drawn(1),
}
"""Instances with one trait each that solvers may stumble over."""

ITERATIONS = 10
"""Of each solve: steps or boxes."""


@cache
def instance_named(name: str) -> BiddingInstance:
    """Return a special or a reference instance."""
    return SPECIAL[name]() if name in SPECIAL else reference_instance(name)


@cache
def trial(solver: str, name: str) -> Trial:
    """Return a solver's trial on an instance; solved once for all checks."""
    return Trial(instance_named(name), solver, iteration_limit=ITERATIONS)


@pytest.mark.parametrize("name", [*SPECIAL, *REFERENCES])
@pytest.mark.parametrize("solver", SOLVERS)
def test_keeps_what_all_solvers_promise_or_says_why_it_can_not(solver, name):
    entry = next(entry for entry in solvers_of("bidding") if entry.name == solver)
    if not entry.supports(instance_named(name)):
        with pytest.raises(UnsupportedProblemError, match=rf"{solver}.*can't treat"):
            solve(instance_named(name), solver)
        return
    failed = []
    for check_name, check in CHECKS.items():
        try:
            check(trial(solver, name))
        except ConformanceError as error:
            failed.append(f"{check_name}: {error}")
    assert failed == []


@pytest.mark.parametrize("name", REFERENCES)
def test_all_bounds_lie_below_all_objectives(name):
    solutions = [trial(solver, name).solution for solver in SOLVERS if _supports(solver, name)]
    best = min(s.objective for s in solutions if s.objective is not None)
    assert np.isfinite(best)
    assert all(s.bound is None or s.bound <= best * (1 + 1e-12) for s in solutions)


def _supports(solver: str, name: str) -> bool:
    return bool(next(e for e in solvers_of("bidding") if e.name == solver).supports(instance_named(name)))
