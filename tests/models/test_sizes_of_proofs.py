"""Small files with large requirements: the checkers' memory grows with the file, and one line reports if it is too much."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from optim.core.documents import decode
from optim.core.errors import InvalidProblemError
from optim.core.limits import read_limits
from optim.models.admission.check.exact_instance import read_exact_instance as read_admission
from optim.models.admission.check.tree import check_tree
from optim.models.admission.decision import Branch, BranchKind
from optim.models.admission.decision import TreeNode as AdmissionNode
from optim.models.admission.decision import TreeProof as AdmissionTree
from optim.models.auction.check.bounds import PriceBound, evaluate_tree
from optim.models.auction.check.exact_instance import read_facts as read_auction
from optim.models.auction.decision import PriceProof, TreeNode, TreeProof
from optim.models.bidding.check.exact_instance import VerifierContext
from optim.models.bidding.check.tree import proven_bound
from optim.models.bidding.decision import RatioProof
from optim.models.bidding.decision import TreeNode as BiddingNode
from optim.models.cluster.check.bounds import max_by_prices, min_mean_completion
from optim.models.cluster.check.utility import max_earned
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.proof import DivisibleSchedule, Worth
from optim.models.cluster.proof import PriceProof as ClusterPrices
from optim.models.cluster.workload import Workload
from optim.models.reference import reference_instance
from tests.models.bidding.check.test_tree import nothing
from tests.support.small_clusters import workload

MIB = 2**20
DEPTH = 1_500


@pytest.fixture
def peak():
    """Return a function that gives the maximum memory so far, in MiB."""
    tracemalloc.start()
    yield lambda: tracemalloc.get_traced_memory()[1] / MIB
    tracemalloc.stop()


def chain(node, leaf, split, depth=DEPTH):
    """Return nodes of which each even one is split, and its high child the next."""
    nodes = []
    for number in range(depth):
        nodes += [node(low=2 * number + 1, high=2 * number + 2, **split(number)), leaf]
    return (*nodes, leaf)


@pytest.mark.prove
def test_a_chain_of_splits_of_an_auction(peak):
    none = np.zeros(0)
    leaf = TreeNode(proof=PriceProof(kinds=np.zeros((0, 3), np.int64), row_price=none, supply_price=none))
    tree = TreeProof(nodes=chain(TreeNode, leaf, lambda number: {"level": 0, "size": number + 1, "value": 0}))
    exact = read_auction(reference_instance("auction-tiny-0"))
    bound, _, wrong = evaluate_tree(PriceBound(exact), exact, tree, None)
    assert not wrong
    assert np.isfinite(bound)
    assert peak() < 20


def test_a_chain_of_splits_of_bids(peak):
    exact = VerifierContext(instance=reference_instance("spot-market-0"))
    size = len(exact.instance.bids)
    depth = 6_000
    assert 16 * size * depth > 16 * MIB, "copies of all boxes take that much"
    nodes = chain(BiddingNode, BiddingNode(), lambda number: {"bid": number % size, "value": number // size}, depth)
    proof = RatioProof(ratio=0.1, nodes=nodes, multipliers=(nothing(exact),))
    _, wrong = proven_bound(exact, proof)
    assert not wrong
    assert peak() < 12


def test_a_chain_of_branches_of_jobs(peak):
    instance = reference_instance("small-0")
    exact, slots = read_admission(instance), instance.horizon

    def split(number):
        kind, place = BranchKind.WORKERS, number // instance.num_jobs
        return {
            "branch": Branch(kind=kind, job=number % instance.num_jobs, server_class=0, slot=place % slots, value=place)
        }

    tree = AdmissionTree(nodes=chain(AdmissionNode, AdmissionNode(), split))
    assert check_tree(exact, tree).violations  # leaves without proof
    assert peak() < 20


def test_a_tree_that_asks_for_too_much_is_a_line():
    exact = read_admission(reference_instance("tiny-0"))
    split = {"branch": Branch(kind=BranchKind.ADMITTED, job=0)}
    tree = AdmissionTree(nodes=chain(AdmissionNode, AdmissionNode(), lambda number: split))
    with read_limits(steps=DEPTH), pytest.raises(InvalidProblemError, match="the tree takes more than"):
        check_tree(exact, tree)


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"[%b{}]" % (b"{}," * 200), "objects"),
        (b"[%b1]" % (b"1," * 200), "values"),
        (b"[%b[]]" % (b"[]," * 199), "lists"),
    ],
)
def test_documents_of_more_objects_lists_or_values_than_are_read_are_refused_before_they_are_built(data, what):
    with (
        read_limits(**{what: 100}),
        pytest.raises(InvalidProblemError, match=f"JSON {what}: at most 100 are read, got 20"),
    ):
        decode(data, list)
    with read_limits(**{what: 201}):
        assert len(decode(data, list)) == 201 - (what == "lists")  # the outer one counts as well


def test_prices_of_many_slots_end_in_a_line_and_not_in_hours():
    jobs, price = workload([(0, 1, 10**6)]), np.linspace(1.0, 2.0, 50_000) * 1e-6
    proof = ClusterPrices(end_us=np.arange(1, 50_001) * 1_000_000, price=price)
    with read_limits(steps=10**5), pytest.raises(InvalidProblemError, match="steps to check 50000 prices for 1 jobs"):
        min_mean_completion(jobs, Cluster.grid("1x1"), proof)


@pytest.mark.parametrize("start", [1, -1])
def test_a_schedule_of_many_parts_ends_in_a_line_and_not_in_hours(start):
    """20,000 parts of a job run until, or together with, jobs that arrive each microsecond and take their GPU."""
    count, others = 20_000, 2_000
    submit = np.append(0, np.arange(others))
    duration = np.append(5_000_000, np.ones(others, np.int64))
    jobs = Workload(submit_us=submit, gpus=np.ones(others + 1, np.int64), duration_us=duration)
    job = np.append(np.zeros(count, np.int64), np.arange(others + 1))
    exact = {"job": job, "weight": np.ones(len(job)), "gpu_type": np.zeros(len(job), np.int64)}
    schedule = DivisibleSchedule(**exact, start_us=start * np.arange(len(job)))
    with read_limits(steps=10**6), pytest.raises(InvalidProblemError, match="steps to check a schedule of 22001 parts"):
        max_by_prices(jobs, Cluster.grid("1x2"), schedule)


def test_a_run_time_of_many_slots_is_summed_in_time_that_grows_with_it():
    """A job of 20,000 slots at prices that rise: exactly its cheapest slots are paid for."""
    slots = 20_000
    price = np.linspace(1.0, 2.0, slots + 10)
    worth = Worth(theta=np.array([[1e9, 0.0, 0.0]]), price=price, slot_us=1, utility=0.0, bound=1e12)
    jobs = replace(workload([(0, 1, 1)]), duration_us=np.array([slots]))
    found = max_earned(jobs, Cluster.grid("1x1"), worth)
    # At no urgency the value is half of theta1; paid are the cheapest slots, all time is free only after the last price.
    assert found >= 1e9 / 2
    assert found == pytest.approx(price.sum() + 5e8, rel=1e-6)


def test_gpus_beyond_what_a_cluster_has_are_refused_before_there_are_any():
    with pytest.raises(InvalidProblemError, match="GPUs of a cluster: at most 1000000 are read, got 104857600"):
        Cluster(gpus=np.full(100, 2**20))
    with pytest.raises(InvalidProblemError, match="GPUs of a cluster"):
        Cluster.grid("90000x1024")
    assert Cluster.grid("1000x1000").num_gpus == 10**6
