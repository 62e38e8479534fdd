"""What each solver does under its options, against a record: see `tests.support.golden`."""

import pytest

import optim
from optim.core.errors import OptimError
from optim.core.stopping import IterationLimit
from optim.solvers.admission.online import OnlineOptions, tied_runs
from tests.support.admission.seeded import seeded_instance as of_all_traits
from tests.support.admission.tiny import BY_HAND
from tests.support.golden import check

OPTIONS = {
    "column-generation": ({}, {"warm_start": False, "first_steps": 3, "steps_between": 1}),
    "search": (
        {"num_moves": 600, "first_cycle": 400},
        {"num_moves": 400, "chains": 1, "dives": False, "cut_rounds": 0, "count_rounds": 0, "largest_ruin": 2},
        {"num_moves": 200, "lp_tol": 0.01, "count_rounds": 1, "start_heat": 0.5, "end_heat": 0.1},
    ),
    "branch-and-price": ({"search_moves": 60}, {"tol": 0.02, "max_nodes": 3, "search_moves": 0}),
    "compact-milp": ({}, {"mip_gap": 0.1}),
    "online": (
        {},
        {"price": "exponential", "bounds": "paper"},
        {"strict": True, "bounds": "estimated", "sample_share": 0.5},
        {"price": "exponential", "bounds": "first", "sample_share": 0.3, "unit_free": False, "lower_scale": 2.0},
    ),
    "fifo": ({}, {"least_workers": 2, "most_workers": 4}),
    "drf": ({},),
    "rrh": ({}, {"rate": 0.1, "alpha": 0.9, "threshold": 2.0}, {"is_cost_shared": False, "most_workers": 4}),
    "dorm": ({}, {"theta1": 0.4, "theta2": 0.3, "most_waiting": 2}, {"full_columns": 1, "node_limit": 1}),
}
BY_FORM = ("shared-capped", "by-slot")


def solved(solver):
    """Solve instances of every form under a solver's default options, and one or two under each of the others."""
    first, *others = OPTIONS[solver]
    found = [attempt(BY_HAND[name], solver, first) for name in BY_FORM]
    if solver != "compact-milp":
        found.append(attempt(optim.reference_instance("tiny-1"), solver, first))
    if solver not in ("compact-milp", "branch-and-price"):
        stop = IterationLimit(2)
        found += [
            attempt(of_all_traits(seed), solver, first, stop=stop if seed & 4 else None) for seed in range(3, 32, 8)
        ]
    for options in others:
        instance = BY_HAND["capped"] if solver == "compact-milp" else optim.reference_instance("tiny-2")
        found.append(attempt(instance, solver, options))
    return found


def attempt(instance, solver, options, stop=None):
    """Solve an instance if the solver does."""
    try:
        return optim.solve(instance, solver, options=options, seed=1, stop=stop)
    except OptimError as error:
        return str(error)


def tied():
    """Run the online rule under drawn orders of what is equal."""
    options = OnlineOptions(bounds="estimated", sample_share=0.7)
    return [
        [(run.plan, run.objective) for run in tied_runs(BY_HAND[name], chosen, num_orders=4, seed=1)]
        for name in BY_FORM
        for chosen in (None, options)
    ]


def test_orders_of_what_is_equal_come_out_as_recorded():
    check("solvers/admission", "ties", tied)


@pytest.mark.prove
@pytest.mark.parametrize("solver", OPTIONS)
def test_does_what_the_golden_record_says(solver):
    check("solvers/admission", solver, lambda: solved(solver))
