"""`exact`: plans that its threads exchange, and proofs that tampering invalidates.

Its optima are compared with those of independent programmes in `test_branch_and_price`.
"""

import time
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import optim
from optim.core.driver import Monitor
from optim.core.errors import InvalidOptionError, SolverError
from optim.core.stopping import IterationLimit
from optim.models.admission.compact_programme import compact_model
from optim.models.admission.decision import AdmissionPlan, TreeProof
from optim.solvers.admission import exact as module
from optim.solvers.admission.branching.support_search import CompactProgramme, Support
from optim.solvers.admission.exact import CompactThread, Finders
from optim.solvers.lp.highs import CompiledModel, HighsOutcome, run_highs, silent_highs

FEW_MOVES = {"search_moves": 20}
OPTIMA = {"tiny-0": 63.885, "tiny-1": 168.3453577, "tiny-2": 307.8381276}
NOBODY = AdmissionPlan.from_rows([], [])


@cache
def solved(name):
    """Return a reference instance, and its proven bound."""
    instance = optim.reference_instance(name)
    return instance, optim.solve(instance, "exact", options=FEW_MOVES)


def test_the_same_seed_gives_the_same_objective_and_status():
    instance, first = solved("tiny-2")
    second = optim.solve(instance, "exact", options=FEW_MOVES)
    assert (first.termination, first.objective) == (second.termination, second.objective)


def test_without_further_threads_it_is_branch_and_price():
    instance = optim.reference_instance("tiny-2")
    alone = optim.solve(instance, "exact", options={"parallel": False, **FEW_MOVES})
    tree = optim.solve(instance, "branch-and-price", options=FEW_MOVES)
    assert alone.stats.counts == tree.stats.counts
    assert alone.decision == tree.decision


@pytest.mark.parametrize("nodes", [0, 1])
def test_any_stop_leaves_a_plan_and_a_bound_that_verify(nodes):
    instance = optim.reference_instance("tiny-2")
    stopped = optim.solve(instance, "exact", stop=IterationLimit(nodes), options=FEW_MOVES)
    assert stopped.bound >= OPTIMA["tiny-2"] * (1 - 1e-9)
    assert optim.verify(instance, stopped).is_ok


@pytest.mark.parametrize("number", [-1, 400_001])
def test_refuses_a_size_that_the_compact_programme_cannot_have(number):
    with pytest.raises(InvalidOptionError, match="max_variables"):
        optim.solve(optim.reference_instance("tiny-0"), "exact", options={"max_variables": number})


def waited_for(compact, has_come):
    """Wait for a thread's plan; the last one that was handed over."""
    plan, deadline = None, time.monotonic() + 60
    while not has_come() and time.monotonic() < deadline:
        plan = [plan, *compact.find_plans()][-1]
        time.sleep(0.01)
    return [plan, *compact.find_plans()][-1]


def test_the_compact_programme_hands_its_best_plan_over(monkeypatch):
    instance = optim.reference_instance("tiny-0")
    monkeypatch.setattr(module, "HEAD_START_S", 0.0)
    compact = CompactThread(CompactProgramme(instance), Monitor(), 0)
    compact.start()
    plan = waited_for(compact, lambda: not compact.is_running)
    compact.stop()
    assert plan.objective(instance) == pytest.approx(OPTIMA["tiny-0"], rel=1e-8)
    assert compact.bound == pytest.approx(OPTIMA["tiny-0"], rel=1e-5)


@pytest.fixture
def whole_runs(monkeypatch):
    """Return a list that gets an entry where HiGHS would run on the whole programme."""
    runs = []

    def ended(*_, **__):
        runs.append(1)
        return HighsOutcome(
            termination="optimal", values=None, objective=None, bound=None, nodes=0, simplex_iterations=0
        )

    monkeypatch.setattr(module, "run_highs", ended)
    monkeypatch.setattr(module, "HEAD_START_S", 60.0)
    return runs


def test_an_unfinished_support_is_searched_before_the_whole_programme(whole_runs):
    instance, known = solved("tiny-1")
    slots = np.full(instance.num_jobs, -1)
    slots[known.decision.admitted] = known.decision.completion
    support = Support(is_required=slots >= 0, is_allowed=slots[:, None] == np.arange(instance.horizon))
    compact = CompactThread(CompactProgramme(instance), Monitor(), 0)
    compact.start()
    compact.search_fully(support, 0.0)
    plan = waited_for(compact, lambda: not compact.is_running)
    compact.stop()
    assert plan.objective(instance) == pytest.approx(known.objective, rel=1e-9)
    assert whole_runs == [1], "the whole programme follows"


def test_within_the_head_start_of_the_tree_highs_does_not_run(whole_runs):
    compact = CompactThread(CompactProgramme(optim.reference_instance("tiny-0")), Monitor(), 0)
    compact.start()
    time.sleep(0.1)
    assert compact.is_running
    compact.stop()
    assert not whole_runs


def test_a_plan_that_is_handed_over_is_the_answer(monkeypatch):
    # Neither the first plan nor the tree's search finds any plan; the origin of a plan doesn't affect the tree's bound.
    instance, known = solved("tiny-1")
    monkeypatch.setattr(CompactThread, "find_plans", lambda self: [known.decision])
    monkeypatch.setattr(CompactThread, "start", lambda self: None)
    solution = optim.solve(instance, "exact", options={"search_moves": 0})
    assert solution.termination == "optimal"
    assert solution.objective == known.objective


def test_an_error_of_highs_is_raised_where_plans_are_asked_for(monkeypatch):
    def fail(*_, **__):
        raise SolverError("no answer")

    monkeypatch.setattr(module, "run_highs", fail)
    monkeypatch.setattr(module, "HEAD_START_S", 0.0)
    compact = CompactThread(CompactProgramme(optim.reference_instance("tiny-0")), Monitor(), 0)
    compact.start()
    with pytest.raises(SolverError, match="no answer"):
        waited_for(compact, lambda: False)
    compact.stop()


class Finder:
    """Return a given plan, and record the reports."""

    def __init__(self, *plans):
        self.plans, self.learned = list(plans), []

    def start(self):
        """No preparation is necessary."""

    def learn(self, plan):
        self.learned.append(plan)

    def counts(self):
        return {}

    def find_plans(self):
        return [self.plans.pop()] if self.plans else []


def test_the_best_of_the_finders_plans_is_handed_over_where_it_is_better():
    instance, known = solved("tiny-2")
    worse = optim.solve(instance, "fifo").decision
    assert 0 < worse.objective(instance) < known.objective
    finders = Finder(NOBODY, worse, worse), Finder(worse, known.decision)
    both = Finders(finders, instance)
    assert both.exchange(NOBODY) is known.decision
    assert both.exchange(known.decision) is None
    assert both.exchange(known.decision) is None
    assert [finder.learned for finder in finders] == [[NOBODY, known.decision]] * 2
    assert both.counts() == {"plans_handed_over": 1.0}


def test_highs_hands_each_better_point_over():
    compiled, points = CompiledModel(compact_model(optim.reference_instance("tiny-0"))), []
    outcome = run_highs(silent_highs(compiled.lp), on_solution=points.append)
    assert points[-1] == pytest.approx(outcome.values, abs=1e-6)


def tampered(solution, rng):
    """Return a solution that claims more than it proves."""
    change = rng.integers(6)
    nodes = list(solution.certificate.proof.nodes)
    leaf = int(rng.choice([k for k, node in enumerate(nodes) if node.proof is not None]))
    proof, share = nodes[leaf].proof, float(rng.uniform(0.01, 0.5))
    inner = [k for k, node in enumerate(nodes) if node.branch is not None]
    match change:
        case 0:
            return replace(solution, objective=solution.objective * (1 + share))
        case 1:
            return replace(solution, bound=solution.bound * (1 - share))
        case 2:
            rows = solution.decision.workers.copy()
            rows[rng.integers(len(rows)), 3] += 1_000
            return replace(solution, decision=replace(solution.decision, workers=rows))
        case 3:  # a job whose stated payoff is too low
            job = int(np.argmax(proof.payoff))
            payoff = proof.payoff.copy()
            payoff[job] *= 1 - share
            nodes[leaf] = replace(nodes[leaf], proof=replace(proof, payoff=payoff))
        case 4 if inner:  # a branch whose one side is left out
            k = int(rng.choice(inner))
            nodes[k] = replace(nodes[k], high=nodes[k].low)
        case _:  # a leaf that falsely claims to be empty
            nodes[leaf] = replace(nodes[leaf], proof=None)
    return replace(solution, certificate=replace(solution.certificate, proof=TreeProof(nodes=tuple(nodes))))


@pytest.mark.parametrize("number", [20, pytest.param(200, marks=pytest.mark.prove)])
def test_tampered_solutions_are_refused(number):
    instance, solution = solved("tiny-2")
    rng = np.random.default_rng(0)
    passed = [k for k in range(number) if optim.verify(instance, tampered(solution, rng)).is_ok]
    assert passed == []
