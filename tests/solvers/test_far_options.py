"""Numeric options at the ends of their ranges: a run still ends by its time limit, and its claims verify."""

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields
from types import UnionType
from typing import Any, get_args, get_type_hints

import pytest

import optim
from optim.core.errors import InvalidOptionError, UnsupportedProblemError
from optim.core.options import LARGEST, MAX_WHOLE, SMALLEST, build_options
from optim.core.registry import Solver
from optim.solvers.solve import solver_named, solvers_of

INSTANCES = {"admission": "tiny-0", "auction": "auction-tiny-0", "bidding": "spot-tiny-market"}

FAR: dict[type, tuple[Any, ...]] = {int: (0, 1, 10**7, MAX_WHOLE), float: (0.0, SMALLEST, 1e-9, 1.0, 1e15, LARGEST)}

LIMIT_S, LATEST_S = 0.3, 5.0
"""Time limit of each run, and the latest end of a run: solvers check the limit at intervals, and the machine may be busy."""


def numeric(solver: Solver) -> Iterator[tuple[str, type]]:
    """Yield a solver's integer and float options."""
    hints = get_type_hints(solver.options_type)
    for field in fields(solver.options_type):
        hint = hints[field.name]
        for kind in get_args(hint) if isinstance(hint, UnionType) else (hint,):
            if kind in FAR:
                yield field.name, kind


def far_ends(problem: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a problem's solvers with one option each at a far end that is allowed."""
    for solver in solvers_of(problem):
        for name, kind in numeric(solver):
            for value in FAR[kind]:
                with suppress(InvalidOptionError):
                    build_options(solver.options_type, {name: value})
                    yield solver.name, {name: value}


def check_end(problem: str, solver: str, options: dict[str, Any]) -> None:
    """Assert that a run with these options ends in time, and verifies."""
    instance = optim.reference_instance(INSTANCES[problem])
    begun = time.perf_counter()
    solution = optim.solve(instance, solver, options=options, time_limit_s=LIMIT_S)
    taken_s = time.perf_counter() - begun - solution.stats.seconds["compile"]
    assert taken_s < LATEST_S, (solver, options)
    assert optim.verify(instance, solution).is_ok, (solver, options)


@pytest.mark.parametrize(
    ("problem", "solver", "options"),
    [
        ("admission", "branch-and-price", {"search_moves": MAX_WHOLE}),
        ("admission", "online-learned", {"replan": MAX_WHOLE, "warm_up": 0.1}),
        ("admission", "search", {"num_moves": MAX_WHOLE, "cycle_moves": MAX_WHOLE}),
    ],
)
def test_work_without_end_ends_by_the_limit(problem: str, solver: str, options: dict[str, Any]) -> None:
    check_end(problem, solver, options)


@pytest.mark.parametrize(
    ("problem", "solver", "option", "most"),
    [
        ("admission", "search", "chains", 1000),
        ("admission", "column-generation", "workers", 1000),
    ],
)
def test_what_is_made_at_once_is_bounded(problem: str, solver: str, option: str, most: int) -> None:
    known = solver_named(problem, solver).options_type
    assert getattr(build_options(known, {option: most}), option) == most
    with pytest.raises(InvalidOptionError, match=rf"{option} must be in \[1, {most}\], got {most + 1}"):
        build_options(known, {option: most + 1})


def test_a_tolerance_that_a_part_refuses_is_refused_before_the_run() -> None:
    with pytest.raises(InvalidOptionError, match=r"tol must be in \[1e-9, 1\), got 1e-10"):
        build_options(solver_named("bidding", "frontier").options_type, {"tol": 1e-10})


@pytest.mark.prove
@pytest.mark.parametrize("problem", INSTANCES)
def test_every_option_s_far_ends_end_by_the_limit(problem: str) -> None:
    for solver, options in far_ends(problem):
        with suppress(UnsupportedProblemError):  # as by the most variables of `compact-milp`, where that is 0
            check_end(problem, solver, options)
