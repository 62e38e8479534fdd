"""Terms of a proof that cancel, or that belong to a part that holds no decision, buy no tolerance for the stated bound."""

from dataclasses import replace

import numpy as np
import pytest

import optim
from optim.core.certificate import Certificate
from optim.core.solution import Solution, Stats
from optim.core.status import CertificateKind, PointStatus, Termination
from optim.models.admission.proof import Branch, BranchKind, PriceProof, TreeNode, TreeProof
from optim.models.auction import proof as auction
from optim.models.bidding.proof import RatioProof

FAR = 1e13
"""A billionth of it is far above any objective here."""


def claiming(solution: Solution, proof: object, bound: float) -> Solution:
    """Return a solution with a bound and its proof in place of its own."""
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
    """Return a tree whose leaf refuses and admits job 0 at once, with any payoff of it there; the others prove 6,000."""
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
