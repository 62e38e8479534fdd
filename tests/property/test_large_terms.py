"""Terms of a proof that cancel, or that belong to a part without decisions, don't widen the tolerance of the stated bound."""

from dataclasses import replace

import numpy as np
import pytest

import optim
from optim.core.solution import Certificate, CertificateKind, PointStatus, Solution, Stats, Termination
from optim.models.admission.decision import Branch, BranchKind, PriceProof, TreeNode, TreeProof
from optim.models.auction import decision as auction
from optim.models.bidding.decision import RatioProof
from tests.support.admission.tiny import job_document, tiny_instance

FAR = 1e13
"""A billionth of it is far above any objective here."""


def claiming(solution: Solution, proof: object, bound: float) -> Solution:
    """Return a solution with another bound and proof."""
    certificate = Certificate(kind=CertificateKind.BOUND, statement="", proof=proof)
    return replace(
        solution,
        bound=bound,
        dual=PointStatus.FEASIBLE,
        termination=Termination.COMPLETED,
        certificate=certificate,
        stats=Stats(seconds=solution.stats.seconds),
    )


def admission_proof(payoff: float) -> TreeProof:
    """Return a tree whose leaf both rejects and admits job 0, with any payoff of it there; the others prove 6,000."""
    instance = optim.reference_instance("tiny-0")
    worker, ps = (np.zeros(classes.capacity.shape) for classes in (instance.worker_servers, instance.ps_servers))
    honest = np.full(instance.num_jobs, 1e3)
    impossible = np.append(payoff, honest[1:])
    leaf, empty = (TreeNode(proof=PriceProof(worker_price=worker, ps_price=ps, payoff=p)) for p in (honest, impossible))
    admitted = Branch(kind=BranchKind.ADMITTED, job=0)
    nodes = (TreeNode(branch=admitted, low=1, high=2), leaf, TreeNode(branch=admitted, low=3, high=4), empty, leaf)
    return TreeProof(nodes=nodes)


def auction_proof(price: float) -> auction.AuctionProof:
    """Return a tree whose second leaf has more bundles than there are GPUs, at any price of them."""
    kinds = np.array([[0, 1, -1]])
    few = auction.PriceProof(kinds=kinds[:0], row_price=np.zeros(0), supply_price=np.zeros(0), is_counted=True)
    many = auction.PriceProof(kinds=kinds, row_price=np.zeros(1), supply_price=np.array([price]), is_counted=True)
    split = auction.TreeNode(level=0, size=1, value=10**6, low=1, high=2)
    tree = auction.TreeProof(nodes=(split, auction.TreeNode(proof=few), auction.TreeNode(proof=many)))
    solution = optim.solve(optim.reference_instance("auction-tiny-0"), "exact")
    return replace(solution.certificate.proof, welfare=tree)


def ratio_proof(ratio: float) -> RatioProof:
    """Return an exact solver's proof that states another ratio."""
    return replace(optim.solve(optim.reference_instance("spot-hour-0"), "dinkelbach").certificate.proof, ratio=ratio)


def test_a_job_that_cannot_run_buys_no_tolerance() -> None:
    """Job `big` has value 1e12 and fits nowhere; the leaf in which the other has 1,001 workers is empty."""
    big, other = ({"kind": "constant", "value": worth} for worth in (1e12, 16))
    instance = tiny_instance(job_document("big", worker=[3, 0], utility=big), job_document("b", utility=other))
    solution = optim.solve(instance, "branch-and-price")
    assert solution.objective == 16.0
    prices = np.zeros(instance.worker_servers.capacity.shape)
    free, empty = (
        TreeNode(proof=PriceProof(worker_price=prices, ps_price=prices, payoff=np.array([0.0, payoff])))
        for payoff in (16.0, -1e15)
    )
    split = Branch(kind=BranchKind.WORKERS, job=1, value=1000, server_class=0, slot=0)
    tree = TreeProof(nodes=(TreeNode(branch=split, low=1, high=2), free, empty))
    for bound in (1.0, -400.0):
        assert [wrong.row for wrong in optim.verify(instance, claiming(solution, tree, bound)).violations] == ["bound"]
    assert optim.verify(instance, claiming(solution, tree, 16.0)).is_ok


@pytest.mark.parametrize("bound", [0.5, -3.0])
def test_an_infinite_bound_proves_no_other(bound: float) -> None:
    """Rows that cost more than the supply, without a limit on their number."""
    instance = optim.reference_instance("auction-tiny-0")
    solution = optim.solve(instance, "exact")
    endless = auction.PriceProof(
        kinds=np.array([[1, 4, -1]]), row_price=np.ones(1), supply_price=np.zeros(1), is_counted=True
    )
    proof = replace(solution.certificate.proof, welfare=endless)
    assert [wrong.row for wrong in optim.verify(instance, claiming(solution, proof, bound)).violations] == ["bound"]


CASES = {
    "admission": ("tiny-0", "online", admission_proof, -FAR, (1.0, -1.0)),
    "auction": ("auction-tiny-0", "greedy", auction_proof, FAR, (-50.0, 0.0)),
    "bidding": ("spot-hour-0", "greedy", ratio_proof, 1e9, (0.9, 1e-9)),
}
"""By problem: an instance, a solver of its decision, a proof with a number to inflate, the number, and false bounds."""


@pytest.mark.parametrize("problem", CASES)
def test_large_terms_buy_no_tolerance(problem: str) -> None:
    name, solver, proof_of, far, bounds = CASES[problem]
    instance = optim.reference_instance(name)
    solution = optim.solve(instance, solver)
    proof = proof_of(far)
    recomputed = optim.verify(instance, claiming(solution, proof, bounds[0])).bound
    assert recomputed is not None
    for bound in bounds:
        found = optim.verify(instance, claiming(solution, proof, bound))
        assert [wrong.row for wrong in found.violations] == ["bound"], (bound, found)


@pytest.mark.parametrize("problem", CASES)
def test_what_such_a_proof_does_prove_may_be_stated(problem: str) -> None:
    name, solver, proof_of, far, bounds = CASES[problem]
    instance = optim.reference_instance(name)
    solution = optim.solve(instance, solver)
    proof = proof_of(far)
    recomputed = optim.verify(instance, claiming(solution, proof, bounds[0])).bound
    assert optim.verify(instance, claiming(solution, proof, recomputed)).is_ok
