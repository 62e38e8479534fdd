"""Branch and price, alone and in `exact`: optima of brute force, bounds at every stop, proofs that the checker walks."""

from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st
from optim_studies.stress import KNOWN_OPTIMA, STRESS_INSTANCES

import optim
from optim.core.solution import CertificateKind
from optim.core.stopping import IterationLimit
from optim.models.admission.codec import ConstantDocument
from optim.models.admission.decision import TreeProof
from optim.solvers.admission.cuts.separation import CountSeparator, CutSeparator, SlotSeparator
from tests.support.admission.oracle import ilp_optimum, packing
from tests.support.admission.strategies import JobSketch, ServerSketch, make_instance, tiny_instances
from tests.support.admission.tiny import job_document, tiny_instance


@cache
def solved(name, solver="branch-and-price"):
    """Return a reference instance, and the bound that a solver proves without limits."""
    instance = optim.reference_instance(name)
    return instance, optim.solve(instance, solver)


SOLVERS = ("branch-and-price", "exact")
OPTIMA = {"tiny-0": 63.885, "tiny-1": 168.3453577, "tiny-2": 307.8381276}
FEW_MOVES = {"search_moves": 20}


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize(("name", "optimum"), OPTIMA.items())
def test_proves_the_optimum_of_tiny_instances(name, optimum, solver):
    instance, solution = solved(name, solver)
    assert solution.termination == "optimal"
    assert solution.certificate.kind is CertificateKind.OPTIMALITY
    assert solution.objective == pytest.approx(optimum, rel=1e-8)
    assert optim.verify(instance, solution).is_ok


def test_a_looser_tolerance_ends_the_search_and_claims_no_optimum():
    """The checker calls a gap of 1e-6 optimal for any requested gap; a wider gap is a gap limit."""
    instance = optim.reference_instance("tiny-1")
    solution = optim.solve(instance, "branch-and-price", options={"tol": 0.1, **FEW_MOVES})
    assert solution.termination == "gap_limit"
    assert 1e-6 < solution.gap <= 0.1
    assert solution.certificate.kind is CertificateKind.BOUND
    assert optim.verify(instance, solution).is_ok


@pytest.mark.parametrize("name", sorted(set(KNOWN_OPTIMA) & set(STRESS_INSTANCES)))
def test_proves_the_optimum_of_stress_instances(name):
    instance = STRESS_INSTANCES[name]()
    solution = optim.solve(instance, "branch-and-price", options=FEW_MOVES)
    assert solution.objective == pytest.approx(KNOWN_OPTIMA[name], rel=1e-9)
    assert solution.bound == pytest.approx(solution.objective, rel=1e-6, abs=1e-9)
    assert optim.verify(instance, solution).is_ok


def check_optimum(instance, solver="branch-and-price"):
    """Compare a proven optimum with the packing of all schedules on real servers."""
    try:
        optimum = ilp_optimum(packing(instance))
    except OverflowError:
        reject()  # too many schedules to list
    solution = optim.solve(instance, solver, options=FEW_MOVES)
    assert solution.termination == "optimal"
    assert solution.objective == pytest.approx(optimum, rel=2e-6, abs=1e-9)
    assert solution.bound >= optimum * (1 - 1e-9) - 1e-9
    assert solution.stats.counts["unsplittable"] == 0
    assert optim.verify(instance, solution).violations == ()


@pytest.mark.parametrize("solver", SOLVERS)
@given(st.booleans().flatmap(lambda is_shared: tiny_instances(is_shared=is_shared)))
def test_equals_the_packing_of_all_schedules_on_real_servers(solver, instance):
    check_optimum(instance, solver)


@st.composite
def crowded_instances(draw):
    """Jobs of one or two slots, of awkward sizes, on equal servers: many counts fit a class and none of its servers."""
    size = st.sampled_from(["3", "4", "5", "6"])
    has_segments, horizon = draw(st.booleans()), draw(st.integers(1, 2))
    jobs = [
        JobSketch(
            epochs=draw(st.integers(1, 2)),
            chunks=draw(st.integers(1, 2)),
            worker=(draw(size),),
            ps=("1",),
            utility=ConstantDocument(float(draw(st.integers(1, 9)))),
            segments=((1, (draw(size),), ("2",)),) if has_segments else (),
        )
        for _ in range(draw(st.integers(3, 4)))
    ]
    servers = ServerSketch(capacity=("10",), count=draw(st.integers(2, 4 - horizon)))
    return make_instance(
        jobs=jobs,
        worker_servers=[servers],
        ps_servers=draw(st.sampled_from([None, [servers]])),
        horizon=horizon,
    )


@given(crowded_instances())
def test_goes_on_where_the_servers_of_a_class_hold_less_than_the_class(instance):
    check_optimum(instance)


@pytest.mark.parametrize("has_cuts", [True, False], ids=["cuts", "splits-alone"])
def test_six_jobs_that_crowd_two_equal_servers(has_cuts, monkeypatch):
    # A class of 20 holds 6 + 6 + 4 + 4; two servers of 10 do so only in pairs of 6 and 4, and 6 + 7 + 7 not at all.
    if not has_cuts:  # with them few points overload a server
        monkeypatch.setattr(CutSeparator, "separate", lambda self, *loads: [])
    sizes = (("7", 3.0), ("7", 3.0), ("6", 3.0), ("3", 1.0), ("3", 1.0), ("4", 1.5))
    jobs = [JobSketch(worker=(size,), ps=("0.1",), utility=ConstantDocument(value)) for size, value in sizes]
    servers = [ServerSketch(capacity=("10",), count=2)]
    check_optimum(make_instance(jobs=jobs, worker_servers=servers, ps_servers=servers, horizon=1))


def nodes_of_halves(*, is_shared, value=16):
    """Return the nodes of a tree for three jobs each of which needs two thirds of a slot's servers, and more than half."""
    job = {"epochs": 1, "chunks": 4, "ps_mbps": 4, "utility": {"kind": "table", "table": [value]}}
    workers = {"type": "gpus", "capacity": [6, 6], "count": 1}
    servers = {"shared_servers": [workers]} if is_shared else {"worker_servers": [workers]}
    if not is_shared:
        servers["ps_servers"] = [{"type": "cpus", "capacity": [0, 6], "count": 1}]
    instance = tiny_instance(*(job_document(name, **job) for name in "abc"), **servers)
    solution = optim.solve(instance, "branch-and-price", options=FEW_MOVES)
    assert solution.objective == pytest.approx(value)
    assert solution.termination == "optimal"
    assert optim.verify(instance, solution).is_ok
    return solution.stats.counts["nodes"], solution.certificate.proof.nodes[0].proof


@pytest.mark.parametrize("is_shared", [False, True], ids=["separate", "shared"])
@pytest.mark.parametrize(
    ("kind", "other"), [("count_cuts", SlotSeparator), ("slot_cuts", CountSeparator)], ids=["count", "slot"]
)
def test_cuts_on_counts_close_the_root_where_half_of_each_schedule_fits(kind, other, is_shared, monkeypatch):
    # One and a half jobs fit the servers on average, and keep to every cut of a server's average load.
    monkeypatch.setattr(other, "separate", lambda self, *mixture: [])
    nodes, proof = nodes_of_halves(is_shared=is_shared)
    assert nodes == 1
    assert len(getattr(proof, kind)) > 0
    assert nodes_of_halves(is_shared=is_shared, value=16e9)[0] == 1, (
        "utilities are scaled, and the proof is scaled back"
    )
    for separator in (CountSeparator, SlotSeparator):
        monkeypatch.setattr(separator, "separate", lambda self, *mixture: [])
    assert nodes_of_halves(is_shared=is_shared)[0] > 1


@pytest.mark.parametrize("nodes", [0, 1, 3])
def test_any_stop_leaves_a_plan_and_a_bound_that_verify(nodes):
    instance = optim.reference_instance("tiny-2")
    for stopped in (
        optim.solve(instance, "branch-and-price", stop=IterationLimit(nodes), options=FEW_MOVES),
        optim.solve(instance, "branch-and-price", options={"max_nodes": nodes, **FEW_MOVES}),
    ):
        assert stopped.objective <= OPTIMA["tiny-2"] + 1e-6 <= stopped.bound + 2e-6
        assert optim.verify(instance, stopped).is_ok


def test_a_tree_without_one_of_its_leaves_is_refused():
    instance, solution = solved("tiny-2")
    nodes = list(solution.certificate.proof.nodes)
    split = next(number for number, node in enumerate(nodes) if node.branch is not None)
    nodes[split] = replace(nodes[split], high=nodes[split].low)
    forged = replace(solution, certificate=replace(solution.certificate, proof=TreeProof(nodes=tuple(nodes))))
    assert not optim.verify(instance, forged).is_ok


def test_a_lower_bound_than_the_leaves_prove_is_refused():
    instance = optim.reference_instance("tiny-2")
    stopped = optim.solve(instance, "branch-and-price", options={"max_nodes": 1, **FEW_MOVES})
    assert stopped.bound > stopped.objective
    forged = replace(stopped, bound=0.5 * (stopped.bound + stopped.objective))
    assert not optim.verify(instance, forged).is_ok
