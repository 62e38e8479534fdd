"""Whether the minimum units under branching restrictions fit on the servers, compared with trying every packing."""

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.models.admission.check import tree
from optim.models.admission.check.exact_instance import read_exact_instance
from optim.models.admission.check.schedules import FREE, Restriction
from optim.models.admission.check.tree import is_crowded
from optim.models.admission.decision import Branch, BranchKind
from optim.models.admission.instance import AdmissionInstance
from tests.support.admission.tiny import job_document, tiny_instance

SIZES = st.lists(st.tuples(st.integers(1, 6), st.integers(0, 3)), min_size=1, max_size=4)
"""For each job the demand of a worker, and its minimum number of workers."""


def cluster(sizes: list[int], number: int, **fields: Any) -> AdmissionInstance:
    """Return jobs of up to three workers at once on equal servers of ten units."""
    jobs = [job_document(f"j{k}", epochs=1, chunks=3, worker=[size, 0]) for k, size in enumerate(sizes)]
    servers = [{"type": "w", "capacity": [10, 9], "count": number}]
    return tiny_instance(*jobs, **({"worker_servers": servers} | fields))


def at_least(
    units: int, *, kind: BranchKind = BranchKind.WORKERS, slot: int = 0, after: Restriction = FREE
) -> Restriction:
    """Return a condition on a count in class 0."""
    if not units:
        return after
    branch = Branch(kind=kind, job=0, value=units - 1, server_class=0, slot=slot)
    return after.narrowed(branch, is_high=True)


def ways(units: int, number: int) -> list[tuple[int, ...]]:
    """List the ways to put equal units on servers."""
    return [way for way in product(range(units + 1), repeat=number) if sum(way) == units]


@given(SIZES, st.integers(1, 3))
def test_counts_are_crowded_where_no_way_to_pack_them_exists(jobs: list[tuple[int, int]], number: int) -> None:
    exact = read_exact_instance(cluster([size for size, _ in jobs], number))
    found = is_crowded(exact, {k: at_least(units) for k, (_, units) in enumerate(jobs)})
    every = product(*(ways(units, number) for _, units in jobs))
    fits = any(
        all(sum(way[h] * size for way, (size, _) in zip(placed, jobs, strict=True)) <= 10 for h in range(number))
        for placed in every
    )
    assert found == (not fits)


@pytest.mark.parametrize(("workers", "ps", "is_full"), [(2, 1, False), (2, 2, True), (3, 0, False), (3, 1, True)])
def test_workers_and_pss_crowd_shared_servers_together(workers: int, ps: int, is_full: bool) -> None:
    # Two boxes of five hold two workers of two and one PS of one each; three workers leave one unit on one of them.
    job = job_document("a", epochs=1, chunks=3, worker=[2, 0], ps=[2, 0], ps_mbps=1)
    exact = read_exact_instance(tiny_instance(job, shared_servers=[{"type": "box", "capacity": [3, 0], "count": 3}]))
    left = at_least(ps, kind=BranchKind.PS, after=at_least(workers))
    assert is_crowded(exact, {0: left}) == is_full


def test_a_server_takes_no_more_pss_of_a_job_than_its_share() -> None:
    """Each of two servers holds four PSs, but a job may use only half of a server: two PSs on each."""
    job = job_document("a", epochs=1, chunks=8, worker=[1, 0], ps=[0, 1], ps_mbps=1)
    servers = {"worker_servers": [{"type": "w", "capacity": [8, 0], "count": 2}],
               "ps_servers": [{"type": "p", "capacity": [0, 4], "count": 2}]}  # fmt: skip
    exact = read_exact_instance(tiny_instance(job, **servers, max_share_per_server=0.5))
    for fewest, crowds in ((4, False), (5, True)):
        assert is_crowded(exact, {0: at_least(fewest, kind=BranchKind.PS)}) is crowds


@pytest.mark.parametrize("is_fixed", [False, True])
def test_a_job_counts_in_the_segment_in_which_it_certainly_is(is_fixed: bool) -> None:
    # After one worker-slot a worker takes six of ten instead of four: two of them then fill two servers each alone.
    segments = [{"start": 0, "worker": [4, 0], "ps": [0, 1]}, {"start": 1, "worker": [6, 0], "ps": [0, 1]}]
    jobs = [job_document(f"j{k}", epochs=2, chunks=2, segments=segments) for k in range(3)]
    servers = [{"type": "w", "capacity": [10, 0], "count": 2}]
    exact = read_exact_instance(
        tiny_instance(*jobs, worker_servers=servers, ps_servers=[{"type": "p", "capacity": [0, 9], "count": 1}])
    )
    left = at_least(1, slot=1, after=at_least(1) if is_fixed else FREE)
    assert is_crowded(exact, dict.fromkeys(range(3), left)) == is_fixed


def test_more_servers_than_calls_may_be_nested_are_filled_one_after_the_other() -> None:
    """A worker takes two of a server's three units, so 1,200 servers hold 1,200 workers."""
    job = job_document("a", epochs=1, chunks=2000, worker=[2, 0])
    instance = tiny_instance(job, worker_servers=[{"type": "w", "capacity": [3, 0], "count": 1200}], horizon=2)
    exact = read_exact_instance(instance)
    for fewest, crowds in ((1201, True), (1200, False)):
        assert is_crowded(exact, {0: at_least(fewest)}) is crowds


def test_rests_that_were_tried_are_not_tried_again() -> None:
    """A server of size ten holds two units of size four or five, so 60 servers hold 120 units, and not 121."""
    jobs = [job_document(name, epochs=1, chunks=70, worker=[size, 0]) for name, size in (("a", 4), ("b", 5))]
    instance = tiny_instance(*jobs, worker_servers=[{"type": "w", "capacity": [10, 0], "count": 60}], horizon=2)
    assert is_crowded(read_exact_instance(instance), {0: at_least(61), 1: at_least(60)})
    assert not is_crowded(read_exact_instance(instance), {0: at_least(60), 1: at_least(60)})


def test_a_search_that_is_given_up_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [job_document(name, epochs=1, chunks=9, worker=[2, 0]) for name in "ab"]
    instance = tiny_instance(*jobs, worker_servers=[{"type": "w", "capacity": [3, 0], "count": 6}], horizon=2)
    restrictions = {job: at_least(4) for job in (0, 1)}
    assert is_crowded(read_exact_instance(instance), restrictions)
    for limit in range(4):
        monkeypatch.setattr(tree, "STEP_LIMIT", limit)
        assert not is_crowded(read_exact_instance(instance), restrictions)
