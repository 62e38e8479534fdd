"""Count cuts: the largest left-hand side over the capacity of a class, and the improvement of a bound by them."""

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.core.errors import InvalidProblemError
from optim.models.admission.check import check
from optim.models.admission.check.cuts import CutCheck
from optim.models.admission.check.exact_instance import read_exact_instance
from optim.models.admission.decision import CountCut, Side
from optim.models.admission.instance import AdmissionInstance
from optim.models.admission.problem import PROBLEM
from tests.support.admission.count_cuts import make_count_cut, most_left_side, random_count_cut
from tests.support.admission.enumeration import Enumerator, Market, best_gain, random_market
from tests.support.admission.plans import families, proven_by, solution_of
from tests.support.admission.tiny import job_document, tiny_instance, tiny_instances

SEEDS = st.integers(0, 2**32 - 1)


def causes(instance: AdmissionInstance, cut: Any) -> list[str]:
    """Return the reason for which the checker rejects a cut."""
    check = CutCheck(read_exact_instance(instance))
    return [violation.message for violation in check.violations(cut, 0, "", CountCut)]


def two_jobs(**second: Any) -> AdmissionInstance:
    """Return two jobs of four worker-slots, at most four at once, and one server of four GPUs."""
    wide = {"epochs": 1, "chunks": 4, "ps_mbps": 4, "utility": {"kind": "table", "table": [16]}}
    servers = [{"type": "gpus", "capacity": [4, 0], "count": 1}]
    return tiny_instance(job_document("a", **wide), job_document("b", **(wide | second)), worker_servers=servers)


TWO_JOBS = two_jobs()
"""Either job needs all four GPUs in slot 0: of the two "has at least three" holds for one at most."""


@given(tiny_instances(max_jobs=3), SEEDS)
def test_accepts_the_exact_right_hand_side_and_refuses_one_less(instance: AdmissionInstance, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(3):
        cut = random_count_cut(instance, rng)
        assert causes(instance, cut) == []
        if cut.right_hand_side > 0:
            lower = replace(cut, right_hand_side=cut.right_hand_side - 1)
            assert "exceeds the right-hand side" in causes(instance, lower)[0]


@given(st.integers(1, 9), SEEDS)
def test_searches_large_cuts_to_the_exact_maximum(num_jobs: int, seed: int) -> None:
    """One resource, in its smallest units: the maximum by a knapsack table instead of trying all counts."""
    rng = np.random.default_rng(seed)
    sizes, chunks = rng.integers(3, 8, num_jobs), rng.integers(1, 5, num_jobs)
    jobs = [
        job_document(f"j{i}", worker=[int(sizes[i]) / 10**6, 0], chunks=int(chunks[i]), epochs=4)
        for i in range(num_jobs)
    ]
    instance = tiny_instance(*jobs, worker_servers=[{"type": "gpus", "capacity": [12 / 10**6, 0], "count": 2}])
    gain = np.cumsum(rng.integers(0, 8, (num_jobs, 4)), axis=1)
    table = np.zeros(25, dtype=np.int64)
    for size, most, gains in zip(sizes.tolist(), chunks.tolist(), gain.tolist(), strict=True):
        before = table.copy()
        for count in range(1, min(most, 2 * (12 // size)) + 1):
            if count * size <= 24:
                shifted = before[: 25 - count * size] + gains[count - 1]
                table[count * size :] = np.maximum(table[count * size :], shifted)
    cut = make_count_cut(jobs=np.arange(num_jobs), gain=gain)
    assert causes(instance, replace(cut, right_hand_side=int(table[-1]))) == []
    if table[-1]:
        assert causes(instance, replace(cut, right_hand_side=int(table[-1]) - 1)) != []


def test_lowers_the_bound_where_only_counts_tell() -> None:
    # Half of each job with four workers keeps to capacity, and to all cuts of one server's average load.
    free = random_market(TWO_JOBS, np.random.default_rng(0), share_free=1.0)
    price = free.worker_price.copy()
    price[0, 0, 0] = 4.0
    counts = (make_count_cut(multiplier=16.0),)
    for market, bound in ((replace(free, worker_price=price), 16.0), (replace(free, count_cuts=counts), 16.0)):
        payoff = [best_gain(market, [None, *Enumerator(TWO_JOBS).schedules(job)]) for job in range(2)]
        found = check(TWO_JOBS, solution_of(TWO_JOBS, None, **proven_by(market.proof(payoff), bound)))
        assert found.is_ok
        assert found.bound == pytest.approx(bound)


@given(tiny_instances(), SEEDS)
def test_bounds_are_those_of_an_enumeration(instance: AdmissionInstance, seed: int) -> None:
    rng = np.random.default_rng(seed)
    cuts = tuple(random_count_cut(instance, rng) for _ in range(3))
    check_bound(replace(random_market(instance, rng, share_free=0.6, scale=0.5), count_cuts=cuts))


def check_bound(market: Market) -> None:
    """Compare a dual point's bound with an enumeration's, and see it refused with a payoff that is too small."""
    instance = market.instance
    listed = [Enumerator(instance).schedules(job) for job in range(instance.num_jobs)]
    payoff = [best_gain(market, [None, *own]) for own in listed]
    bound = sum(payoff) + market.rents()
    found = check(instance, solution_of(instance, None, **proven_by(market.proof(payoff), bound * (1 + 1e-12) + 1e-12)))
    assert found.is_ok
    assert found.bound == pytest.approx(bound, rel=1e-9, abs=1e-9)
    for job, needed in enumerate(payoff):
        if needed > 1e-3:
            low = [*payoff[:job], needed - 1e-4, *payoff[job + 1 :]]
            refused = check(instance, solution_of(instance, None, **proven_by(market.proof(low), bound)))
            assert families(refused.violations) == {"(21)"}


@pytest.mark.parametrize(
    ("cause", "fields"),
    [
        ("exceeds the right-hand side 0", {"right_hand_side": 0}),
        ("exceeds the right-hand side 1", {"gain": np.array([[0, 1, 1], [0, 1, 1]])}),
        ("exceeds the right-hand side 1", {"gain": np.array([[0, 0, 1, 2], [0, 0, 1, 1]])}),
        ("right-hand side must be", {"right_hand_side": -1}),
        ("right-hand side must be", {"right_hand_side": 1.5}),
        ("multiplier", {"multiplier": -1e-9}),
        ("multiplier", {"multiplier": np.nan}),
        ("multiplier", {"multiplier": np.inf}),
        ("must not be negative", {"gain": np.array([[-1, 0, 1], [0, 0, 1]])}),
        ("must not decrease", {"gain": np.array([[0, 1, 0], [0, 0, 1]])}),
        ("whole numbers", {"gain": np.array([[0.0, 1.0], [0.0, 1.0]])}),
        ("whole numbers", {"gain": np.array([[0, 1]])}),
        ("ascending", {"jobs": np.array([1, 0])}),
        ("ascending", {"jobs": np.array([0, 0])}),
        ("ascending", {"jobs": np.array([0, 2])}),
        ("outside", {"server_class": 1}),
        ("outside", {"slot": 4}),
        ("outside", {"slot": -1}),
        ("side", {"side": "neither"}),
        ("ps_gain is required on shared servers", {"ps_gain": np.array([[0, 1], [0, 1]])}),
    ],
)
def test_says_what_is_wrong_with_a_cut(cause: str, fields: dict[str, Any]) -> None:
    found = causes(TWO_JOBS, make_count_cut(**fields))
    assert len(found) == 1
    assert cause in found[0]


def shared_jobs() -> AdmissionInstance:
    """Return two jobs whose workers and PSs share a server of four GPUs and four cores."""
    wide = {"epochs": 1, "chunks": 2, "ps_mbps": 1, "worker": [1, 0], "ps": [1, 0], "worker_mbps": 1}
    servers = [{"type": "both", "capacity": [4, 4], "count": 1}]
    return tiny_instance(job_document("a", **wide), job_document("b", **wide), shared_servers=servers)


@pytest.mark.parametrize(
    ("cause", "fields"),
    [
        (None, {}),
        ("exceeds the right-hand side 1", {"right_hand_side": 1}),
        ("exceeds the right-hand side 2", {"ps_gain": np.array([[1, 1], [0, 1]])}),
        ("ps_gain is required on shared servers", {"ps_gain": None}),
        ("must not decrease", {"ps_gain": np.array([[1, 0], [0, 1]])}),
        ("must not be negative", {"ps_gain": np.array([[0, 1], [-1, 1]])}),
        ("one row of gains per job", {"ps_gain": np.array([[0, 1]])}),
        ("side", {"side": Side.PS}),
    ],
)
def test_workers_and_ps_gain_on_shared_servers(cause: str | None, fields: dict[str, Any]) -> None:
    # Two workers or two PSs of a job take two GPUs of four: two such pairs, or one and a worker of the second job.
    known: dict[str, Any] = {
        "right_hand_side": 2,
        "gain": np.array([[0, 1], [1, 1]]),
        "ps_gain": np.array([[0, 1], [0, 1]]),
    }
    found = causes(shared_jobs(), make_count_cut(**(known | fields)))
    assert (cause in found[0]) if cause else found == []


def test_more_units_than_are_listed_gain_as_the_last() -> None:
    assert causes(TWO_JOBS, make_count_cut(gain=np.array([[1], [1]]))) != []
    assert causes(TWO_JOBS, make_count_cut(gain=np.array([[1], [1]]), right_hand_side=2)) == []
    assert causes(TWO_JOBS, make_count_cut(gain=np.zeros((2, 0), dtype=np.int64), right_hand_side=0)) == []


def test_counts_nothing_for_a_job_that_can_not_be_there() -> None:
    cut = make_count_cut(gain=np.array([[0, 0, 1], [1, 1, 1]]))
    assert causes(TWO_JOBS, cut) != []
    assert causes(two_jobs(arrival=1), cut) == []


def test_gives_up_on_a_cut_that_is_too_hard_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    hard = make_count_cut(gain=np.array([[0, 0, 9, 9], [0, 0, 9, 9]]), right_hand_side=9)
    assert causes(TWO_JOBS, hard) == []
    monkeypatch.setattr("optim.models.admission.check.cuts.STATE_LIMIT", 0)
    assert "needs more than" in causes(TWO_JOBS, hard)[0]


def test_files_hold_count_cuts() -> None:
    market = replace(random_market(TWO_JOBS, np.random.default_rng(0)), count_cuts=(make_count_cut(),))
    solution = solution_of(TWO_JOBS, None, **proven_by(market.proof([16.0, 16.0]), 100.0))
    assert solution.certificate is not None
    document = PROBLEM.proof_to_json(TWO_JOBS, solution.certificate.proof)
    (read,) = PROBLEM.proof_from_json(TWO_JOBS, document).count_cuts
    (cut,) = market.count_cuts
    assert isinstance(read, CountCut)
    assert (read.side, read.server_class, read.slot, read.multiplier) == (Side.WORKER, 0, 0, 1.0)
    assert read.jobs.tolist() == cut.jobs.tolist()
    assert read.gain.tolist() == cut.gain.tolist()
    assert read.ps_gain is None
    document["count_cuts"][0]["gains"][1] = ("b", [0, 1])
    (read,) = PROBLEM.proof_from_json(TWO_JOBS, document).count_cuts
    assert read.gain.tolist() == [[0, 0, 1], [0, 1, 1]]


def test_files_hold_gains_of_ps() -> None:
    instance = shared_jobs()
    cut = make_count_cut(ps_gain=np.array([[0, 1], [1, 1]]))
    market = replace(random_market(instance, np.random.default_rng(0)), count_cuts=(cut,))
    document = PROBLEM.proof_to_json(instance, market.proof([1.0, 1.0]))
    (read,) = PROBLEM.proof_from_json(instance, document).count_cuts
    assert read.gain.tolist() == cut.gain.tolist()
    assert read.ps_gain.tolist() == [[0, 1], [1, 1]]
    # A job that is missing from one list has no gain there.
    document["count_cuts"][0]["ps_gains"] = [("b", [1])]
    (read,) = PROBLEM.proof_from_json(instance, document).count_cuts
    assert (read.jobs.tolist(), read.ps_gain.tolist()) == ([0, 1], [[0], [1]])
    document["count_cuts"][0]["ps_gains"] = [("b", [1]), ("b", [2])]
    with pytest.raises(InvalidProblemError, match="twice"):
        PROBLEM.proof_from_json(instance, document)


def test_the_oracle_tries_all_counts() -> None:
    cut = make_count_cut(gain=np.array([[1, 2, 3, 3], [1, 2, 3, 3]]))
    pairs = [(a, b) for a, b in product(range(5), repeat=2) if a + b <= 4]
    assert most_left_side(TWO_JOBS, cut) == max([0, 1, 2, 3, 3][a] + [0, 1, 2, 3, 3][b] for a, b in pairs) == 4
