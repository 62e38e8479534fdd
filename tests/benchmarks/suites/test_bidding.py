"""The bidding suite: its instances and solvers, and the omitted pairs."""

from optim.benchmarks.cases import GIVEN_LIMIT_S
from optim.benchmarks.runner import plan_work
from optim.benchmarks.suite import BenchRequest
from optim.benchmarks.suites.bidding import SPEC, WINDOWS_TOL
from optim.models.reference import reference_names
from optim.solvers.solve import solvers_of
from optim.workloads.instances import NamedSource

NAMES = {*reference_names("bidding"), "capacity-12-64-0", "capacity-12-64-16gpus-0.8-0"}
"""Reference instances, and decisions without bids."""


def work(**request):
    return plan_work([SPEC], BenchRequest(**request)).work


def test_at_small_size_every_reference_instance_is_solved_and_every_solver_runs():
    pieces = work()
    assert {piece.subject.name for piece in pieces} == NAMES
    assert {piece.solver for piece in pieces} == {solver.name for solver in solvers_of("bidding")}


def test_a_solver_that_is_asked_for_runs_wherever_it_can():
    names = {piece.subject.name for piece in work(solvers=("dinkelbach",))}
    assert names == NAMES


def test_windows_are_solved_to_the_gap_that_is_promised_for_them():
    (piece,) = (p for p in work(solvers=("dinkelbach",)) if p.subject.name == "spot-windows-0")
    assert piece.options["tol"] == WINDOWS_TOL


def test_own_instances_have_the_limit_given():
    pieces = work(sources=(NamedSource("spot-tiny-own"),), solvers=("greedy", "dinkelbach"))
    assert [(piece.solver, piece.time_limit_s) for piece in pieces] == [
        ("greedy", GIVEN_LIMIT_S),
        ("dinkelbach", GIVEN_LIMIT_S),
    ]
