"""One slot on shared servers: the exact recursion against enumeration, and greedy filling, which is wrong there."""

from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optim_studies.packing_programme import server_pairs, sum_of_pairs

from optim.core.arrays import FloatArray, IntArray
from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.pricing import shared
from optim.solvers.admission.pricing.servers import ResidualSearch
from optim.solvers.admission.pricing.shared import (
    GreedyScratch,
    Places,
    class_frontiers,
    fill_frontier,
    fold_frontier,
    pair_scratch,
    pair_table,
    split_pair,
)
from tests.solvers.admission.pricing.test_server_search import fresh_state
from tests.support.admission.tiny import BY_HAND, job_document, tiny_instance

COST_TOL = 1e-9
"""Costs are sums of a dozen products."""

Pair = tuple[int, int]


def frontier(
    worker: Sequence[int], ps: Sequence[int], room: Sequence[int], left: Sequence[int], most: Pair
) -> IntArray:
    front = np.full(most[0] + 1, -1, dtype=np.int64)
    fill_frontier(*(np.array(v, dtype=np.float64) for v in (worker, ps, room, left)), *most, front)
    return front


def held(worker: Sequence[int], ps: Sequence[int], room: Sequence[int], left: Sequence[int], most: Pair) -> list[Pair]:
    """List the pairs that fit on a server: within the capacity, or a single unit within the residual."""

    def within(y: int, z: int, limit: Sequence[int]) -> bool:
        return all(y * w + z * s <= c for w, s, c in zip(worker, ps, limit, strict=True))

    return [
        (y, z)
        for y, z in product(range(most[0] + 1), range(most[1] + 1))
        if within(y, z, room) or (y + z == 1 and within(y, z, left))
    ]


def as_places(fronts: Sequence[IntArray], worker_cost: Sequence[float], ps_cost: Sequence[float]) -> Places:
    width = len(fronts[0])
    return Places(
        np.array(worker_cost, dtype=np.float64),
        np.array(ps_cost, dtype=np.float64),
        np.arange(len(fronts)) * width,
        np.concatenate(fronts),
    )


def cheapest_ways(pairs: Sequence[Sequence[Pair]], costs: Sequence[tuple[float, float]]) -> dict[Pair, float]:
    """Return the least cost of every reachable (Y, Z), by going through all combinations."""
    best: dict[Pair, float] = {(0, 0): 0.0}
    for options, (worker_cost, ps_cost) in zip(pairs, costs, strict=True):
        following: dict[Pair, float] = {}
        for (y, z), cost in best.items():
            for a, b in options:
                total = cost + a * worker_cost + b * ps_cost
                following[y + a, z + b] = min(total, following.get((y + a, z + b), np.inf))
        best = following
    return best


def greedy(
    pairs: Sequence[Sequence[Pair]], costs: Sequence[tuple[float, float]], due: Pair, *, workers_first: bool
) -> float | None:
    """Fill the cheapest servers with one type of unit, then with the other, as on separate servers."""
    placed = [(0, 0)] * len(pairs)
    total = 0.0
    for kind in (0, 1) if workers_first else (1, 0):
        left = due[kind]
        for s in sorted(range(len(pairs)), key=lambda s: costs[s][kind]):
            while left:
                y, z = placed[s]
                more = (y + 1, z) if kind == 0 else (y, z + 1)
                if more not in pairs[s]:
                    break
                placed[s] = more
                total += costs[s][kind]
                left -= 1
        if left:
            return None
    return total


def table_of(places: Places, needed: Sequence[int]) -> FloatArray:
    """Return the table of costs for Y = 0, 1, ..., as far as it goes."""
    most = len(needed) - 1
    table = np.empty(most + 1)
    scratch = pair_scratch(most, needed[-1])
    largest = pair_table(places, len(places.start), most, np.array(needed, dtype=np.int64), np.inf, scratch, table)
    return table[: largest + 1]


@pytest.mark.parametrize(
    ("residuals", "prices", "by_greedy", "optimum"),
    [((2, 1), (1.0, 1.2), None, 3.2), ((2, 9), (1.0, 3.0), 7.0, 5.0)],
    ids=["greedy-calls-it-infeasible", "greedy-pays-more"],
)
def test_filling_with_workers_first_is_wrong_on_shared_servers(
    residuals: tuple[int, int], prices: tuple[float, float], by_greedy: float | None, optimum: float
) -> None:
    # One resource: a worker takes 1 of it, a PS 2; one of each is due.
    pairs = [held([1], [2], [c], [c], (1, 1)) for c in residuals]
    costs = [(price, 2 * price) for price in prices]
    assert greedy(pairs, costs, (1, 1), workers_first=True) == by_greedy
    fronts = [frontier([1], [2], [c], [c], (1, 1)) for c in residuals]
    places = as_places(fronts, [c[0] for c in costs], [c[1] for c in costs])
    assert table_of(places, [0, 1]).tolist() == [0.0, pytest.approx(optimum)]


def test_a_false_infeasibility_would_refuse_the_job() -> None:
    # The first counterexample as a complete instance: the job is admitted since the worker goes to the more expensive
    # server.
    job = job_document("a", epochs=1, chunks=1, worker=[1, 0], ps=[2, 0], ps_mbps=1)
    servers = [{"type": "two", "capacity": [2, 0], "count": 1}, {"type": "one", "capacity": [1, 0], "count": 1}]
    instance = tiny_instance(job, shared_servers=servers)
    state = fresh_state(instance)
    state.worker.price[:, 0] = [1.0, 1.2]
    found = ResidualSearch(instance).find(0, state, 0.0)
    assert found is not None
    assert found.cost == pytest.approx(3.2)
    assert (found.workers[0, 1], found.ps[0, 1]) == (1, 0)


def test_filling_greedily_goes_on_where_a_place_holds_no_more_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cheaper place holds one worker: the second one goes to the other, and no table of pairs is needed."""
    for name in ("sort_by_key", "_is_full"):  # as they are written: to compile them for a test alone takes longer
        monkeypatch.setattr(shared, name, getattr(shared, name).py_func)
    places = as_places([np.array([1, 0, -1]), np.array([2, 1, 0])], [1.0, 2.0], [9.0, 0.5])
    scratch = GreedyScratch(*np.zeros((5, 2), dtype=np.int64))
    table = np.empty(3)
    needed = np.array([0, 1, 1])
    assert shared.greedy_table.py_func(2, 2, needed, np.inf, places, scratch, table) == (2, 2)
    assert table.tolist() == [0.0, 1.5, 3.5]
    assert (scratch.workers.tolist(), scratch.ps.tolist()) == ([1, 1], [0, 1])


def draw_slot(
    rng: np.random.Generator,
) -> tuple[list[list[Pair]], list[IntArray], list[tuple[float, float]], list[int]]:
    """Draw servers, costs and PSs needed."""
    most = int(rng.integers(1, 7))
    rate = float(rng.choice([1.0, 0.5, 0.4, 0.25]))
    needed = [int(np.ceil(y * rate)) for y in range(most + 1)]
    worker, ps = rng.integers(0, 4, 2).tolist(), rng.integers(0, 4, 2).tolist()
    pairs, fronts, costs = [], [], []
    for _ in range(int(rng.integers(1, 4))):
        left = rng.integers(0, 9, 2).tolist()
        room = [min(c, int(rng.integers(0, 9))) for c in left] if rng.random() < 0.3 else left
        pairs.append(held(worker, ps, room, left, (most, needed[-1])))
        fronts.append(frontier(worker, ps, room, left, (most, needed[-1])))
        costs.append(tuple(np.round(rng.random(2) * 5, 1).tolist()))
    return pairs, fronts, costs, needed


def test_every_slot_costs_what_enumeration_says_and_splits_into_that() -> None:
    rng = np.random.default_rng(1018)
    wrong = {"infeasible": 0, "dearer": 0, "either order more expensive": 0}
    for _ in range(1_500):
        pairs, fronts, costs, needed = draw_slot(rng)
        places = as_places(fronts, [c[0] for c in costs], [c[1] for c in costs])
        best = cheapest_ways(pairs, costs)
        table = table_of(places, needed)
        possible = [y for y in range(len(needed)) if (y, needed[y]) in best]
        assert len(table) == len(possible)
        for y, cost in enumerate(table.tolist()):
            assert cost == pytest.approx(best[y, needed[y]], abs=COST_TOL)
        due = (len(table) - 1, needed[len(table) - 1])
        check_split(places, pairs, costs, due, table[-1])
        orders = [greedy(pairs, costs, due, workers_first=first) for first in (True, False)]
        wrong["infeasible"] += orders[0] is None
        wrong["dearer"] += orders[0] is not None and orders[0] > table[-1] + COST_TOL
        wrong["either order more expensive"] += all(cost is None or cost > table[-1] + COST_TOL for cost in orders)
    assert all(count > 0 for count in wrong.values()), "the draws must include slots on which greedy fails"


def check_split(
    places: Places, pairs: Sequence[Sequence[Pair]], costs: Sequence[tuple[float, float]], due: Pair, cost: float
) -> None:
    """Check that a split has the right sums, fits on each server, and has the cost of the table."""
    out = np.zeros((2, len(pairs)), dtype=np.int64)
    split_pair(places, len(pairs), *due, pair_scratch(*due).windows, out[0], out[1])
    assert tuple(out.sum(axis=1).tolist()) == due
    assert all(pair in options for pair, options in zip(zip(*out.tolist(), strict=True), pairs, strict=True))
    total = sum(y * a + z * b for (y, z), (a, b) in zip(out.T.tolist(), costs, strict=True))
    assert total == pytest.approx(cost, abs=COST_TOL)


@given(st.integers(0, 2**32 - 1), st.integers(1, 6))
def test_equal_servers_together_hold_the_sums_of_their_pairs(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    most = (int(rng.integers(1, 8)), int(rng.integers(1, 5)))
    worker, ps, left = (rng.integers(0, high, 2).tolist() for high in (4, 4, 9))
    one = frontier(worker, ps, left, left, most)
    total, power, work = np.empty((3, most[0] + 1), dtype=np.int64)
    fold_frontier(one, count, *most, total, power, work)
    sums = set(sum_of_pairs(held(worker, ps, left, left, most), count, most))
    assert {(y, z) for y in range(most[0] + 1) for z in range(int(total[y]) + 1)} == sums


@pytest.mark.parametrize("name", ["shared", "shared-capped"])
def test_class_frontiers_are_those_of_the_listed_pairs(name: str) -> None:
    instance: AdmissionInstance = BY_HAND[name]
    room = class_frontiers(instance)
    for s, i in enumerate(instance.segment_job.tolist()):
        most = (int(instance.max_workers[i]), int(instance.ps_needed[i][-1]))
        for c, count in enumerate(instance.worker_servers.count.tolist()):
            start = room.start[s, room.pattern[c, int(instance.jobs.arrival[i])]]
            front = room.front[start : start + most[0] + 1]
            sums = set(sum_of_pairs(server_pairs(instance, s, c, 0), count, most))
            assert {(y, z) for y in range(most[0] + 1) for z in range(int(front[y]) + 1)} == sums
