"""The loops that each solver compiles before the clock of its solve starts, by its options and the form of the servers."""

import importlib

import pytest

from optim.models.reference import reference_instance
from optim.solvers.admission import warm_up
from optim.solvers.solve import solve, solver_named
from tests.support.admission.tiny import BY_HAND

COLUMNS, MOVES, NODES = "columns", "moves", "nodes"
CASES = [
    ("branch-and-price", {}, {COLUMNS, MOVES, NODES}),
    ("column-generation", {}, {COLUMNS, "online"}),
    ("column-generation", {"warm_start": False}, {COLUMNS}),
    ("compact-milp", {}, {"bound"}),
    ("dorm", {}, {"placement", "bound"}),
    ("drf", {}, {"placement", "bound"}),
    ("exact", {}, {COLUMNS, MOVES, NODES}),
    ("fifo", {}, {"placement", "bound"}),
    ("online", {}, {"online"}),
    ("rrh", {}, {"placement", "bound"}),
    ("search", {}, {COLUMNS, MOVES, "cuts", "count_cuts"}),
    ("search", {"cut_rounds": 0}, {COLUMNS, MOVES, "count_cuts"}),
    ("search", {"cut_rounds": 1, "count_rounds": 1}, {COLUMNS, MOVES, "cuts", "count_cuts"}),
    ("search", {"count_rounds": 0}, {COLUMNS, MOVES, "cuts"}),
]


@pytest.mark.parametrize("form", ["plain", "shared"])
@pytest.mark.parametrize(("name", "options", "expected"), CASES)
def test_a_solver_compiles_what_its_options_ask_for(name, options, expected, form, monkeypatch):
    asked = {}
    solver = solver_named("admission", name)
    module = importlib.import_module(type(solver).warm_up.__module__)
    for loops in (one for one in dir(warm_up) if one.startswith("compile_") and hasattr(module, one)):
        monkeypatch.setattr(module, loops, lambda loops=loops, **form: asked.update({loops: form}))
    solver.warm_up(BY_HAND[form], solver.options_type(**options))
    assert {loops.removeprefix("compile_") for loops in asked} == expected
    assert all(form_of in ({}, {"is_shared": form == "shared"}) for form_of in asked.values())


@pytest.mark.parametrize("is_shared", [False, True])
def test_the_smallest_instance_has_one_job_that_can_run(is_shared):
    instance = warm_up.smallest_instance(is_shared=is_shared)
    assert (instance.num_jobs, instance.horizon, instance.has_shared_servers) == (1, 1, is_shared)
    plan = solve(instance, "fifo").decision
    assert plan.workers.tolist() == plan.ps.tolist() == [[0, 0, 0, 1]]


def test_first_order_steps_are_compiled_for_large_clusters_alone():
    assert not any(warm_up.has_large_master(BY_HAND[form]) for form in ("plain", "shared"))
    assert warm_up.has_large_master(reference_instance("large-0"))
