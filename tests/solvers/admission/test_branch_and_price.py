"""Branch and price: optima of brute force, bounds at every stop, proofs that the checker walks."""

from dataclasses import replace

import pytest
from hypothesis import given

import optim
from optim.core.status import CertificateKind
from optim.core.stopping import IterationLimit
from optim.models.admission.proof import TreeProof
from optim.workloads.admission.stress import KNOWN_OPTIMA, STRESS_INSTANCES
from tests.support.admission.oracle import ilp_optimum, packing
from tests.support.admission.strategies import tiny_instances

OPTIMA = {"tiny-0": 63.885, "tiny-1": 168.3453577, "tiny-2": 307.8381276}
FEW_MOVES = {"search_moves": 20}


@pytest.mark.parametrize(("name", "optimum"), OPTIMA.items())
def test_proves_the_optimum_of_tiny_instances(name, optimum):
    instance = optim.reference_instance(name)
    solution = optim.solve(instance, "branch-and-price")
    assert solution.termination == "optimal"
    assert solution.certificate.kind is CertificateKind.OPTIMALITY
    assert solution.objective == pytest.approx(optimum, rel=1e-8)
    assert optim.verify(instance, solution).is_ok


@pytest.mark.parametrize("name", sorted(set(KNOWN_OPTIMA) & set(STRESS_INSTANCES)))
def test_proves_the_optimum_of_stress_instances(name):
    instance = STRESS_INSTANCES[name]()
    if instance.has_shared_servers:
        pytest.skip("shared servers are not supported")
    solution = optim.solve(instance, "branch-and-price", options=FEW_MOVES)
    assert solution.objective == pytest.approx(KNOWN_OPTIMA[name], rel=1e-9)
    assert solution.bound == pytest.approx(solution.objective, rel=1e-6, abs=1e-9)
    assert optim.verify(instance, solution).is_ok


@given(tiny_instances(is_shared=False))
def test_equals_the_packing_of_all_schedules_on_real_servers(instance):
    solution = optim.solve(instance, "branch-and-price", options=FEW_MOVES)
    optimum = ilp_optimum(packing(instance))
    assert solution.objective <= optimum * (1 + 1e-9) + 1e-9
    assert solution.bound >= optimum * (1 - 1e-9) - 1e-9
    if solution.termination == "optimal":
        assert solution.objective == pytest.approx(optimum, rel=2e-6, abs=1e-9)
    else:
        assert solution.stats.counts["unsplittable"] > 0, "only counts that no servers hold may stay open"
    assert optim.verify(instance, solution).violations == ()


@pytest.mark.parametrize("nodes", [0, 1, 2, 4])
def test_any_stop_leaves_a_plan_and_a_bound_that_verify(nodes):
    instance = optim.reference_instance("tiny-2")
    for stopped in (
        optim.solve(instance, "branch-and-price", stop=IterationLimit(nodes), options=FEW_MOVES),
        optim.solve(instance, "branch-and-price", options={"max_nodes": nodes, **FEW_MOVES}),
    ):
        assert stopped.objective <= OPTIMA["tiny-2"] + 1e-6 <= stopped.bound + 2e-6
        assert optim.verify(instance, stopped).is_ok


def test_a_tree_without_one_of_its_leaves_is_refused():
    instance = optim.reference_instance("tiny-2")
    solution = optim.solve(instance, "branch-and-price")
    nodes = list(solution.certificate.proof.nodes)
    split = next(number for number, node in enumerate(nodes) if node.branch is not None)
    nodes[split] = replace(nodes[split], high=nodes[split].low)
    forged = replace(solution, certificate=replace(solution.certificate, proof=TreeProof(nodes=tuple(nodes))))
    assert not optim.verify(instance, forged).is_ok


def test_a_lower_bound_than_the_leaves_prove_is_refused():
    instance = optim.reference_instance("tiny-2")
    stopped = optim.solve(instance, "branch-and-price", options={"max_nodes": 1})
    assert stopped.bound > stopped.objective
    forged = replace(stopped, bound=0.5 * (stopped.bound + stopped.objective))
    assert not optim.verify(instance, forged).is_ok
