"""Bounds that solvers report during a run: each must be valid when reported, since stopping rules and displays use it."""

from collections.abc import Mapping
from itertools import pairwise

import pytest

import optim
from optim.core.progress import SilentProgress
from optim.core.stopping import AnyOf, GapLimit, TimeLimit

OPTIMA = {
    "tiny-0": 63.885,
    "tiny-1": 168.3453577,
    "auction-tiny-0": 3.9853338,
    "spot-hour-0": 0.0420836041,
}
"""Values that several solvers prove; auctions maximise the sum of logarithms, spot instances minimise cost per work."""

PROBLEMS = {"tiny-0": "admission", "tiny-1": "admission", "auction-tiny-0": "auction"}
TOL = 1e-6
RUNS = [
    (name, solver)
    for name, problem in {**PROBLEMS, "spot-hour-0": "bidding"}.items()
    for solver in optim.solver_names(problem)
]
FEW = {"branch-and-price": {"search_moves": 20}, "search": {"num_moves": 2000}}


class Listener(SilentProgress):
    """Progress that records the reports of each task, in the order of tasks."""

    def __init__(self) -> None:
        self.open: list[list[Mapping[str, float | None]]] = []
        self.tasks: list[list[Mapping[str, float | None]]] = []

    def start(self, task: str, total: float | None = None) -> None:
        self.open.append([])
        self.tasks.append(self.open[-1])

    def update(self, completed: float, values: Mapping[str, float | None] | None = None) -> None:
        if self.open and values is not None:
            self.open[-1].append(values)

    def finish(self) -> None:
        if self.open:
            self.open.pop()


@pytest.mark.parametrize(("name", "solver"), RUNS)
def test_bounds_that_are_told_hold_and_only_get_better(name: str, solver: str):
    instance, listener = optim.reference_instance(name), Listener()
    is_lower = name.startswith("spot")
    optim.solve(instance, solver, options=FEW.get(solver), progress=listener, time_limit_s=10)
    for told in listener.tasks:
        bounds = [values["bound"] for values in told if values.get("bound") is not None]
        signed = [-bound if is_lower else bound for bound in bounds if bound is not None]
        optimum = -OPTIMA[name] if is_lower else OPTIMA[name]
        assert all(bound >= optimum - TOL * abs(optimum) for bound in signed)
        assert all(later <= earlier + TOL * abs(earlier) for earlier, later in pairwise(signed))


@pytest.mark.parametrize("limit", [0.005, pytest.param(0.05, marks=pytest.mark.prove)])
@pytest.mark.parametrize(("name", "solver"), RUNS)
def test_a_gap_limit_that_ends_a_run_is_kept_by_what_is_returned(name: str, solver: str, limit: float):
    instance = optim.reference_instance(name)
    solution = optim.solve(
        instance, solver, options=FEW.get(solver), stop=AnyOf(GapLimit(limit), TimeLimit(1.0)), seed=1
    )
    assert optim.verify(instance, solution).is_ok
    if solution.termination != "gap_limit":
        return
    if solution.decision is None:  # a bound alone: the gap is that of the linear programme
        assert solution.bound <= (1 + limit + TOL) * solution.relaxation.objective
        assert "linear programme" in solution.message
    else:
        assert solution.gap <= limit
