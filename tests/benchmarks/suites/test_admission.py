"""The admission suite: its instances and solvers, and the omitted pairs."""

import numpy as np
import pytest

import optim
from optim.benchmarks.cases import GIVEN_LIMIT_S
from optim.benchmarks.runner import plan_work
from optim.benchmarks.suite import BenchRequest
from optim.benchmarks.suites.admission import EXACT_SOLVERS, SPEC, TIE_ORDERS, TIES
from optim.core.progress import SilentProgress
from optim.core.stopping import Never
from optim.models.files import load
from optim.models.reference import reference_names
from optim.solvers.admission.online import tied_runs
from optim.solvers.solve import solvers_of
from optim.workloads.instances import NamedSource


def pairs(**request):
    return [(piece.subject.name, piece.solver) for piece in plan_work([SPEC], BenchRequest(**request)).work]


def test_at_small_size_every_solver_is_run_on_some_instance():
    assert {solver for _, solver in pairs()} == {solver.name for solver in solvers_of("admission")}


def test_the_exact_solver_has_no_limit_of_nodes_at_small_size():
    """The headline compares it with a solver that has none either."""
    work = plan_work([SPEC], BenchRequest(solvers=("exact", "compact-milp"))).work
    assert {piece.solver: piece.resolved_options().get("max_nodes") for piece in work} == {
        "exact": None,
        "compact-milp": None,
    }


def test_solvers_with_trees_are_left_out_of_larger_instances_unless_asked_for():
    assert not {solver for name, solver in pairs() if name == "medium-0"} & EXACT_SOLVERS
    asked = tuple(sorted(EXACT_SOLVERS & {solver.name for solver in solvers_of("admission")}))
    assert ("medium-0", asked[0]) in pairs(solvers=asked)


def test_at_full_size_every_reference_instance_of_the_targets_is_there(dummies):
    found = {name for name, _ in pairs(size="full", solvers=("idle",))}
    targets = ("tiny-", "small-", "light-", "medium-", "heavy-", "large-0", "wide-0")
    assert found == {name for name in reference_names("admission") if name.startswith(targets)}


def test_own_instances_have_every_solver_and_the_limit_given(dummies):
    request = BenchRequest(sources=(NamedSource("medium-0"),))
    work = plan_work([SPEC], request).work
    assert {piece.solver for piece in work} >= EXACT_SOLVERS & {solver.name for solver in solvers_of("admission")}
    assert {piece.time_limit_s for piece in work} == {GIVEN_LIMIT_S}
    limited = plan_work([SPEC], BenchRequest(sources=request.sources, time_limit_s=7.0)).work
    assert {piece.time_limit_s for piece in limited} == {7.0}


def test_who_learns_gets_the_days_that_ship_those_given_or_drawn_ones(tmp_path):
    def history(**request):
        (piece,) = plan_work([SPEC], BenchRequest(solvers=("online-learned",), folder=tmp_path, **request)).work
        return piece.options.get("history")

    medium, tiny = ((NamedSource(name),) for name in ("medium-0", "tiny-0"))
    assert history(sources=medium) == ",".join(f"medium-0-day{k}" for k in range(1, 5))
    assert history(sources=medium, histories=1) == "medium-0-day1"
    assert history(sources=medium, histories=0) is None
    assert history(sources=medium, options={"online-learned.history": "mine.json"}) == "mine.json"
    assert history(sources=tiny) is None
    files = history(sources=tiny, histories=2).split(",")
    assert [load(name).worker_servers.types for name in files] == [load_reference().worker_servers.types] * 2


def load_reference():
    return NamedSource("tiny-0").load(0)


def test_generated_instances_depend_on_the_seed():
    generated = [name for name, _ in pairs(seeds=(0, 1)) if name.startswith("generated")]
    assert len(set(generated)) == 2


def test_the_paper_s_rule_says_what_it_earns_under_other_orders_of_ties():
    def findings(**request):
        sources = (NamedSource("tiny-1"),)
        (piece,) = plan_work([SPEC], BenchRequest(sources=sources, solvers=("online",), **request)).work
        return piece.run(Never(), SilentProgress())

    record = findings()
    least, median, most = (record.figure(name) for name in TIES)
    drawn = [run.objective for run in tied_runs(optim.reference_instance("tiny-1"), num_orders=TIE_ORDERS)]
    assert (least, median, most) == (
        pytest.approx(min(drawn)),
        pytest.approx(np.median(drawn)),
        pytest.approx(max(drawn)),
    )
    assert least < most <= optim.reference_solution("tiny-1").objective
    other = findings(options={"online.upper_scale": 0.01})
    assert [other.figure(name) for name in TIES] != [least, median, most]


def test_other_solvers_have_no_ties():
    (piece,) = plan_work([SPEC], BenchRequest(sources=(NamedSource("tiny-0"),), solvers=("column-generation",))).work
    assert piece.run(Never(), SilentProgress()).figure(TIES[0]) is None
