"""Server cuts: the largest left-hand side over one server's packings, and the improvement of a bound by them."""

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from optim.models.admission.check import check
from optim.models.admission.check.cuts import CutCheck
from optim.models.admission.check.exact_instance import read_exact_instance
from optim.models.admission.decision import ServerCut, Side
from optim.models.admission.instance import AdmissionInstance
from tests.support.admission.enumeration import Enumerator, best_gain, random_market
from tests.support.admission.plans import exceeds_share, families, proven_by, solution_of
from tests.support.admission.tiny import job_document, tiny_instance, tiny_instances

SEEDS = st.integers(0, 2**32 - 1)


def make_cut(**fields: Any) -> ServerCut:
    """Return y_a + y_b <= 1 on one worker server in slot 0."""
    known: dict[str, Any] = {
        "side": Side.WORKER,
        "server_class": 0,
        "slot": 0,
        "jobs": np.array([0, 1]),
        "worker_coefficient": np.array([1, 1]),
        "ps_coefficient": np.array([0, 0]),
        "right_hand_side": 1,
        "multiplier": 1.0,
    }
    return ServerCut(**(known | fields))


def causes(instance: AdmissionInstance, cut: Any) -> list[str]:
    """Return the reason for which the checker rejects a cut."""
    return [violation.message for violation in CutCheck(read_exact_instance(instance)).violations(cut, 0, "")]


def two_large_jobs(**second: Any) -> AdmissionInstance:
    """Return two jobs that each need one worker of two GPUs on both servers of three, in slot 0."""
    large = {"worker": [2, 0], "epochs": 1, "utility": {"kind": "table", "table": [16]}}
    servers = [{"type": "gpus", "capacity": [3, 0], "count": 2}]
    return tiny_instance(job_document("a", **large), job_document("b", **(large | second)), worker_servers=servers)


TWO_LARGE_JOBS = two_large_jobs()
"""A server holds one worker of either job, y_a + y_b <= 1; its capacity row allows one and a half."""


def pairs_on_one_server(instance: AdmissionInstance, cut: ServerCut, job: int) -> list[tuple[int, int]]:
    """List the (workers, PSs) of a job on one server, with the smallest of its demands."""
    if not instance.jobs.arrival[job] <= cut.slot <= instance.deadline[job]:
        return [(0, 0)]
    own = slice(int(instance.jobs.segment_offset[job]), int(instance.jobs.segment_offset[job + 1]))
    worker, ps = instance.jobs.worker_demand[own].min(axis=0), instance.jobs.ps_demand[own].min(axis=0)
    servers = instance.worker_servers if cut.side is Side.WORKER else instance.ps_servers
    room = servers.capacity[cut.server_class, cut.slot]
    most, max_ps = int(instance.max_workers[job]), int(instance.ps_needed[job][-1])
    share = instance.max_share_per_server
    pairs = []
    for y, z in product(range(most + 1), range(max_ps + 1)):
        if not instance.has_shared_servers and (y, z)[1 if cut.side is Side.WORKER else 0]:
            continue
        use = y * worker + z * ps
        if (use <= room).all() and (
            share is None or y + z <= 1 or all(u <= share * int(c) for u, c in zip(use, room, strict=True))
        ):
            pairs.append((y, z))
    return pairs


def largest_left_side(instance: AdmissionInstance, cut: ServerCut) -> int:
    """Return the exact maximum by trying every packing."""
    servers = instance.worker_servers if cut.side is Side.WORKER else instance.ps_servers
    room = servers.capacity[cut.server_class, cut.slot]
    best = 0
    own = [slice(int(instance.jobs.segment_offset[j]), int(instance.jobs.segment_offset[j + 1])) for j in cut.jobs]
    worker = [instance.jobs.worker_demand[s].min(axis=0) for s in own]
    ps = [instance.jobs.ps_demand[s].min(axis=0) for s in own]
    for packing in product(*(pairs_on_one_server(instance, cut, int(job)) for job in cut.jobs)):
        load = sum((y * w + z * s for (y, z), w, s in zip(packing, worker, ps, strict=True)), np.zeros_like(room))
        if (load <= room).all():
            sides = zip(packing, cut.worker_coefficient, cut.ps_coefficient, strict=True)
            best = max(best, sum(int(a) * y + int(b) * z for (y, z), a, b in sides))
    return best


def random_cut(instance: AdmissionInstance, rng: np.random.Generator) -> ServerCut:
    """Draw a cut with the smallest valid right-hand side."""
    side = Side.WORKER if instance.has_shared_servers or rng.integers(2) else Side.PS
    servers = instance.worker_servers if side is Side.WORKER else instance.ps_servers
    coefficients = rng.integers(0, 4, (2, instance.num_jobs))
    if not instance.has_shared_servers:
        coefficients[1 if side is Side.WORKER else 0] = 0
    cut = make_cut(
        side=side,
        server_class=int(rng.integers(servers.num_classes)),
        slot=int(rng.integers(instance.horizon)),
        jobs=np.arange(instance.num_jobs),
        worker_coefficient=coefficients[0],
        ps_coefficient=coefficients[1],
        multiplier=float(rng.exponential(1.0)),
    )
    return replace(cut, right_hand_side=largest_left_side(instance, cut))


@given(tiny_instances(max_jobs=3), SEEDS)
def test_accepts_the_exact_right_hand_side_and_refuses_one_less(instance: AdmissionInstance, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(3):
        cut = random_cut(instance, rng)
        assert causes(instance, cut) == []
        if cut.right_hand_side > 0:
            lower = replace(cut, right_hand_side=cut.right_hand_side - 1)
            assert "exceeds the right-hand side" in causes(instance, lower)[0]


def test_lowers_the_bound_by_a_cut_that_capacity_does_not_imply() -> None:
    # Capacity alone: 2 (16 - 4 p) + 6 p, at best 24 at p = 4. The cut alone: 2 (16 - 2 m) + 2 m, at best 16.
    instance = TWO_LARGE_JOBS
    free = random_market(instance, np.random.default_rng(0), share_free=1.0)
    price = free.worker_price.copy()
    price[0, 0, 0] = 4.0
    for market, bound in (
        (replace(free, worker_price=price), 24.0),
        (replace(free, cuts=(make_cut(multiplier=8.0),)), 16.0),
    ):
        payoff = [best_gain(market, [None, *Enumerator(instance).schedules(job)]) for job in range(2)]
        found = check(instance, solution_of(instance, None, **proven_by(market.proof(payoff), bound)))
        assert found.is_ok
        assert found.bound == pytest.approx(bound)


@pytest.mark.parametrize(
    ("cause", "fields"),
    [
        ("exceeds the right-hand side 0", {"right_hand_side": 0}),
        ("exceeds the right-hand side 1", {"worker_coefficient": np.array([1, 2])}),
        ("right-hand side must be", {"right_hand_side": -1}),
        ("right-hand side must be", {"right_hand_side": 1.5}),
        ("multiplier", {"multiplier": -1e-9}),
        ("multiplier", {"multiplier": np.nan}),
        ("multiplier", {"multiplier": np.inf}),
        ("coefficients must not be negative", {"worker_coefficient": np.array([1, -1])}),
        ("whole numbers", {"worker_coefficient": np.array([1.0, 1.0])}),
        ("whole numbers", {"worker_coefficient": np.array([1])}),
        ("on separate servers", {"ps_coefficient": np.array([0, 1])}),
        ("ascending", {"jobs": np.array([1, 0])}),
        ("ascending", {"jobs": np.array([0, 0])}),
        ("ascending", {"jobs": np.array([0, 2])}),
        ("outside", {"server_class": 1}),
        ("outside", {"slot": 4}),
        ("outside", {"slot": -1}),
        ("side", {"side": "neither"}),
        ("side", {"side": "worker"}),
        ("on separate servers", {"side": Side.PS}),
    ],
)
def test_says_what_is_wrong_with_a_cut(cause: str, fields: dict[str, Any]) -> None:
    found = causes(TWO_LARGE_JOBS, make_cut(**fields))
    assert len(found) == 1
    assert cause in found[0]
    after_valid = CutCheck(read_exact_instance(TWO_LARGE_JOBS))
    for multiplier in (1.0, 2.0):
        assert after_valid.violations(make_cut(multiplier=multiplier), 0, "") == []
    assert [violation.message for violation in after_valid.violations(make_cut(**fields), 1, "")] == found


def test_names_the_cut_in_the_verification() -> None:
    market = replace(
        random_market(TWO_LARGE_JOBS, np.random.default_rng(0)),
        cuts=(make_cut(), make_cut(right_hand_side=0)),
    )
    proof = market.proof([100.0, 100.0])
    found = check(TWO_LARGE_JOBS, solution_of(TWO_LARGE_JOBS, None, **proven_by(proof, 1.0)))
    assert [violation.row for violation in found.violations] == ["cut [1, worker servers gpus, slot 0]"]
    assert families(found.violations) == {"cut"}


def test_counts_nothing_for_a_job_that_can_not_be_there() -> None:
    cut = make_cut(worker_coefficient=np.array([1, 9]))
    assert causes(TWO_LARGE_JOBS, cut) != []
    assert causes(two_large_jobs(arrival=1), cut) == []
    assert causes(two_large_jobs(min_utility=17), cut) == []


def test_gives_up_on_a_cut_that_is_too_hard_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    hard = make_cut(worker_coefficient=np.array([2, 2]), right_hand_side=2)
    assert causes(TWO_LARGE_JOBS, hard) == []
    monkeypatch.setattr("optim.models.admission.check.cuts.STATE_LIMIT", 0)
    assert "needs more than" in causes(TWO_LARGE_JOBS, hard)[0]


def test_tells_packings_apart_only_by_resources_that_can_run_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two workers of 2 GPUs of either job fill 8 completely.

    For every count of the first, the second fits, and one packing remains.
    """
    monkeypatch.setattr("optim.models.admission.check.cuts.STATE_LIMIT", 1)
    server = {"type": "gpus", "capacity": [8, 0], "count": 2}
    large = {"worker": [2, 0], "epochs": 1, "utility": {"kind": "table", "table": [16]}}
    jobs = job_document("a", **large), job_document("b", **large)
    found = causes(tiny_instance(*jobs, worker_servers=[server]), make_cut(right_hand_side=3))
    assert "exceeds the right-hand side 3" in found[0]


@given(st.integers(1, 12), SEEDS)
def test_searches_large_cuts_to_the_exact_maximum(num_jobs: int, seed: int) -> None:
    """One resource, in its smallest units: the maximum by a knapsack table instead of trying all packings."""
    rng = np.random.default_rng(seed)
    sizes, chunks = rng.integers(3, 8, num_jobs), rng.integers(1, 5, num_jobs)
    jobs = [
        job_document(f"j{i}", worker=[int(sizes[i]) / 10**6, 0], chunks=int(chunks[i]), epochs=4)
        for i in range(num_jobs)
    ]
    instance = tiny_instance(*jobs, worker_servers=[{"type": "gpus", "capacity": [24 / 10**6, 0], "count": 1}])
    gains = rng.integers(0, 20, num_jobs)
    assume((instance.deadline >= 0).all())
    table = np.zeros(25, dtype=np.int64)
    for size, most, gain in zip(sizes.tolist(), chunks.tolist(), gains.tolist(), strict=True):
        for _ in range(most):
            table[size:] = np.maximum(table[size:], table[:-size] + gain)
    cut = make_cut(jobs=np.arange(num_jobs), worker_coefficient=gains, ps_coefficient=np.zeros(num_jobs, dtype=int))
    assert causes(instance, replace(cut, right_hand_side=int(table[-1]))) == []
    if table[-1]:
        assert causes(instance, replace(cut, right_hand_side=int(table[-1]) - 1)) != []


def test_respects_the_share_of_a_job_on_one_server() -> None:
    shared = tiny_instance(
        job_document("a", worker=[1, 0], ps=[1, 0], chunks=4),
        job_document("b"),
        shared_servers=[{"type": "box", "capacity": [4, 9], "count": 1}],
        max_share_per_server=0.5,
    )
    assert not exceeds_share(shared, 0, [1, 1], shared.worker_servers.capacity[0, 0])
    # Two units of job a fit within half of four GPUs, whichever they are.
    cut = make_cut(worker_coefficient=np.array([1, 0]), ps_coefficient=np.array([1, 0]), right_hand_side=2)
    assert causes(shared, cut) == []
    assert causes(shared, replace(cut, right_hand_side=1)) != []
