"""Quotas that lend against a linear programme that shares no code, and the examples of Kueue's concepts pages."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.core.errors import InvalidProblemError
from optim.models.cluster.quota_tree import QuotaLedger
from tests.support.quota_trees import fits_below, is_admitted, most_by_programme, quota_tree, trees

PAIR = ("team-ab", "", 0, None, None)


@pytest.mark.parametrize(
    ("a", "b", "most"),
    [
        ((9, None, None), (12, None, None), {"a": 21, "b": 21}),
        ((9, 1, None), (12, None, None), {"a": 10, "b": 21}),
        ((9, None, None), (12, None, 1), {"a": 10, "b": 21}),
    ],
)
def test_the_borrowing_examples_of_kueues_concepts_page(a, b, most):
    """ "Cluster Queue", sections Borrowing example, BorrowingLimit and LendingLimit, with GPUs in place of CPUs."""
    tree = quota_tree(PAIR, ("a", "team-ab", *a), ("b", "team-ab", *b))
    ledger = QuotaLedger(tree)
    assert {name: ledger.available(row, 0) / 1000 for name, row in tree.queues.items()} == most
    assert {name: ledger.potential(row, 0) / 1000 for name, row in tree.queues.items()} == most


def test_a_cohorts_own_quota_is_a_pool_that_its_queues_share():
    """ "Cohort", section Configuring Quotas: a queue without quota may use the 12 of its cohort, which two share."""
    tree = quota_tree(
        ("hello-cohort", "", 12, None, None), ("a", "hello-cohort", 0, None, None), ("b", "hello-cohort", 0, None, None)
    )
    ledger = QuotaLedger(tree)
    assert ledger.available(1, 0) == 12_000
    ledger.change(2, 0, 5_000)
    assert ledger.available(1, 0) == 7_000


def drawn_usage(data, tree):
    """Return usage that was admitted queue by queue, in integral GPUs."""
    ledger, used = QuotaLedger(tree), {}
    for queue in data.draw(st.permutations(sorted(tree.queues.values()))):
        most = ledger.available(queue, 0) // 1000
        if most > 0:
            used[queue] = data.draw(st.integers(0, most))
            ledger.change(queue, 0, used[queue] * 1000)
    return ledger, used


@given(trees(), st.data())
def test_what_a_queue_may_use_is_what_a_linear_programme_admits(tree, data):
    ledger, used = drawn_usage(data, tree)
    assert is_admitted(tree, used)
    for queue in tree.queues.values():
        most = most_by_programme(tree, used, queue)
        assert (used.get(queue, 0) * 1000 + ledger.available(queue, 0)) / 1000 == most
        assert not is_admitted(tree, used | {queue: most + 1})
        alone = most_by_programme(tree, {}, queue)
        assert QuotaLedger(tree).potential(queue, 0) / 1000 == alone


@given(trees(), st.data())
def test_usage_that_is_given_back_leaves_nothing(tree, data):
    ledger, used = drawn_usage(data, tree)
    before = [row.copy() for row in QuotaLedger(tree).usage]
    for queue in data.draw(st.permutations(sorted(used))):
        ledger.change(queue, 0, -used[queue] * 1000)
    assert ledger.usage == before


@given(trees(), st.data())
def test_the_lowest_cohort_that_fits_is_the_first_whose_quota_needs_nothing_from_above(tree, data):
    """The expected node is the first whose subtree alone, without cohorts above it, admits the usage."""
    ledger, used = drawn_usage(data, tree)
    for queue in tree.queues.values():
        amount = data.draw(st.integers(1, 4))
        wanted = used | {queue: used.get(queue, 0) + amount}
        expected = next((node for node in tree.path(queue) if fits_below(tree, node, wanted, queue)), None)
        found = ledger.lowest_that_fits(queue, 0, amount * 1000)
        assert found == expected


def test_what_is_borrowed_counts_over_all_flavors():
    tree = quota_tree(
        ("c", "", 0, None, None), ("a", "c", 2, None, None), ("b", "c", 4, None, None), flavors=("x", "y")
    )
    ledger = QuotaLedger(tree)
    ledger.change(1, 0, 3_000)
    ledger.change(1, 1, 4_000)
    assert (ledger.borrowed(1), ledger.borrowed(1, 500, 1), ledger.borrowed(2)) == (3_000, 3_500, 0)


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({"parent": np.array([-1, 2, 0])}, "listed before it"),
        ({"nominal": np.full((3, 1), -1)}, "quotas and limits"),
        ({"weight": np.ones(2)}, "one entry per node"),
        ({"names": ("c", "a", "a")}, "different names"),
    ],
)
def test_what_is_no_tree_is_refused(change, cause):
    tree = quota_tree(("c", "", 0, None, None), ("a", "c", 2, None, None), ("b", "c", 4, None, None))
    with pytest.raises(InvalidProblemError, match=cause):
        replace(tree, **change)
