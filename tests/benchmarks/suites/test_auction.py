"""The auction suite: its instances and solvers, and the omitted pairs."""

from optim.benchmarks.cases import GIVEN_LIMIT_S
from optim.benchmarks.runner import plan_work
from optim.benchmarks.suite import BenchRequest
from optim.benchmarks.suites.auction import SPEC
from optim.models.reference import reference_names
from optim.solvers.solve import solvers_of
from optim.workloads.instances import NamedSource


def work(**request):
    return plan_work([SPEC], BenchRequest(**request)).work


def test_at_small_size_every_solver_runs_on_every_reference_instance():
    found = {(piece.subject.name, piece.solver) for piece in work()}
    for name in reference_names("auction"):
        for solver in solvers_of("auction"):
            assert (name, solver.name) in found or not solver.supports(NamedSource(name).load(0))


def test_rows_are_marked_by_what_they_are_about():
    assert {piece.labels["case"] for piece in work(solvers=("greedy",))} >= {"reference", "16 bidders", "packing binds"}


def test_own_instances_have_the_limit_given():
    pieces = work(sources=(NamedSource("auction-tiny-0"),), solvers=("exact", "greedy"))
    assert [(piece.solver, piece.time_limit_s) for piece in pieces] == [
        ("exact", GIVEN_LIMIT_S),
        ("greedy", GIVEN_LIMIT_S),
    ]


def test_generated_instances_depend_on_the_seed():
    names = {piece.subject.name for piece in work(seeds=(0, 1), solvers=("greedy",))}
    assert {"generated-16-256-32-0", "generated-16-256-32-1"} <= names
