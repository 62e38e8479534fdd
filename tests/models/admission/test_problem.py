"""Conversion of plans and proofs to plain values and back; invalid files are rejected."""

import copy
import json
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import optim
from optim.core.errors import InvalidProblemError
from optim.models.admission.decision import TreeProof
from optim.models.admission.problem import PROBLEM
from optim.models.files import write_solution

NAME = "tiny-2"


@cache
def values() -> tuple[Any, Any, Any]:
    """Return an instance, the plain values of its plan, and those of its tree."""
    instance, solution = optim.reference_instance(NAME), optim.reference_solution(NAME)
    written = json.loads(write_solution(solution, instance))
    return instance, written["decision"], written["certificate"]["proof"]


def plain(value: Any) -> Any:
    """Return values as a file gives them back."""
    return json.loads(json.dumps(value))


def test_plan_and_proof_survive_the_way_to_a_file_and_back() -> None:
    instance, decision, proof = values()
    assert plain(PROBLEM.decision_to_json(instance, PROBLEM.decision_from_json(instance, decision))) == decision
    again = PROBLEM.proof_from_json(instance, proof)
    assert isinstance(again, TreeProof)
    assert plain(PROBLEM.proof_to_json(instance, again)) == proof
    prices = next(node["proof"] for node in proof["nodes"] if node.get("proof"))
    assert plain(PROBLEM.proof_to_json(instance, PROBLEM.proof_from_json(instance, prices))) == prices


def lie(row: list[Any], place: int, value: Any) -> None:
    row[place] = value


PLANS = {
    "a count of zero on a server that isn't there": (
        lambda plan: plan[0]["workers"].append([0, 10**6, 0]),
        "at least 1",
    ),
    "a negative count": (lambda plan: lie(plan[0]["workers"][0], 2, -1), "at least 1"),
    "a negative slot": (lambda plan: lie(plan[0]["ps"][0], 0, -1), "at least 0"),
    "a server beyond 64 bits": (lambda plan: lie(plan[0]["workers"][0], 1, 2**63), "at most"),
    "a job twice": (lambda plan: plan.append(copy.deepcopy(plan[0])), "twice"),
    "a job that isn't there": (lambda plan: plan[0].update(job="nobody"), "refers to job 'nobody'"),
    "another completion": (lambda plan: plan[0].update(completion=plan[0]["completion"] + 1), "states completion"),
    "no workers": (lambda plan: plan[0].update(workers=[]), "states completion"),
    "a further field": (lambda plan: plan[0].update(more=1), "more"),
}


@pytest.mark.parametrize("name", PLANS)
def test_refuses_a_plan_with(name: str) -> None:
    change, says = PLANS[name]
    plan = copy.deepcopy(values()[1])
    change(plan)
    with pytest.raises(InvalidProblemError, match=says):
        PROBLEM.decision_from_json(values()[0], plan)


def leaf(proof: Any) -> Any:
    return next(node["proof"] for node in proof["nodes"] if node.get("proof") and node["proof"]["worker_price"])


PROOFS = {
    "a price twice": (lambda proof: leaf(proof)["worker_price"].append(leaf(proof)["worker_price"][0]), "twice"),
    "a price outside": (lambda proof: lie(leaf(proof)["worker_price"][0], 0, 99), "outside the instance"),
    "a price at the size itself": (
        lambda proof: lie(leaf(proof)["worker_price"][0], 2, values()[0].num_resources),
        "outside the instance",
    ),
    "a payoff twice": (lambda proof: leaf(proof)["payoff"].append(leaf(proof)["payoff"][0]), "twice"),
    "a payoff of no job": (lambda proof: lie(leaf(proof)["payoff"][0], 0, "nobody"), "refers to job"),
    "a branch on no job": (
        lambda proof: next(n for n in proof["nodes"] if n.get("branch"))["branch"].update(job="nobody"),
        "refers to job",
    ),
    "another kind": (lambda proof: proof.update(kind="magic"), "kind"),
}


@pytest.mark.parametrize("name", PROOFS)
def test_refuses_a_proof_with(name: str) -> None:
    change, says = PROOFS[name]
    proof = copy.deepcopy(values()[2])
    change(proof)
    with pytest.raises(InvalidProblemError, match=says):
        PROBLEM.proof_from_json(values()[0], proof)


def test_prices_that_are_not_listed_are_zero() -> None:
    instance, _, proof = values()
    prices = PROBLEM.proof_from_json(instance, leaf(proof))
    assert np.count_nonzero(prices.worker_price) == len(leaf(proof)["worker_price"])
    assert prices.payoff.shape == (instance.num_jobs,)


def test_a_solution_read_back_has_the_same_options_also_where_they_are_lists(tmp_path) -> None:
    instance = optim.reference_instance("tiny-0")
    solution = replace(optim.solve(instance, "fifo"), options={"days": ("a", "b"), "nested": ((1, 2.5), ()), "n": 3})
    optim.save_solution(solution, instance, tmp_path / "s.json")
    again = optim.load_solution(tmp_path / "s.json", instance)
    assert again == solution
    assert again.options == solution.options
