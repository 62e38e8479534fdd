"""Utilities and their bound are recomputed: against all schedules of small worlds, and with claims changed."""

from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.core.errors import InvalidProblemError
from optim.models.cluster.check import check_runs
from optim.models.cluster.check.utility import max_earned
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.metrics import measure
from optim.models.cluster.proof import Worth
from optim.models.cluster.run_file import LoggedRun, RunRecord, load_run, save_run
from optim.simulation.cluster.catalogue import make_policy
from optim.simulation.cluster.engine import simulate
from optim.simulation.cluster.options import EngineOptions
from tests.support.small_clusters import workload

SLOT_S = 2


def _worth(theta, price):
    return Worth(theta=np.array(theta), slot_us=SLOT_S * 10**6, price=np.array(price), utility=0.0, bound=0.0)


def _best_earned(rows, theta, num_gpus, horizon):
    """Enumerate all ways to run complete gangs second by second."""

    def utility(job, end):
        first, urgency, target = theta[job]
        return first / (1 + np.exp(urgency * ((end - rows[job][0]) / SLOT_S - target)))

    @cache
    def most(now, left):
        if now == horizon:
            return 0.0
        active = [job for job, (submit, *_) in enumerate(rows) if submit <= now and left[job]]
        best = 0.0
        for chosen in product((0, 1), repeat=len(active)):
            run = [job for job, takes in zip(active, chosen, strict=True) if takes]
            if sum(rows[job][1] for job in run) <= num_gpus:
                after = tuple(work - (job in run) for job, work in enumerate(left))
                won = sum(utility(job, now + 1) for job in run if not after[job])
                best = max(best, won + most(now + 1, after))
        return best

    return most(0, tuple(duration for *_, duration in rows))


@given(st.data())
def test_no_prices_prove_less_than_the_best_schedule_earns(data):
    rows = sorted(
        (data.draw(st.integers(0, 3)), data.draw(st.integers(1, 2)), data.draw(st.integers(1, 3))) for _ in range(3)
    )
    rows = [(submit - rows[0][0], *rest) for submit, *rest in rows]
    thetas = st.tuples(st.floats(0, 10), st.sampled_from([0, 0.5, 4]), st.floats(0, 3))
    theta = [data.draw(thetas) for _ in rows]
    price = data.draw(st.lists(st.sampled_from([0.0, 0.3, 1.0, 5.0]), max_size=5))
    found = max_earned(workload(rows), Cluster.grid("1x2"), _worth(theta, price))
    assert found >= _best_earned(rows, theta, 2, 8) * (1 - 1e-9)


def test_the_bound_of_one_job_by_hand():
    """Three GPU-slots have price 1, and the job (3 s in slots of 2 s) buys 1.5 of them for a utility of 10."""
    worth = _worth([(10.0, 1000.0, 2.0)], [1.0, 1.0, 1.0])
    found = max_earned(workload([(0, 1, 3)]), Cluster.grid("1x1"), worth)
    assert found == pytest.approx(3.0 + 10 - 1.5)


@pytest.mark.parametrize(("off", "is_refused"), [(0.0, False), (-1e-8, True)])
def test_a_bound_that_is_reached_is_no_contradiction(off, is_refused):
    """A single job at no cost: it earns the maximum."""
    jobs, cluster = workload([(0, 1, 6)]), Cluster.grid("1x1")
    run = simulate(jobs, cluster, make_policy("fifo", jobs), EngineOptions(overhead_s=0))
    plain = _worth([(10.0, 1.0, 4.0)], [])
    most = max_earned(jobs, cluster, plain)
    assert most == pytest.approx(10 / (1 + np.exp(-1)))
    worth = replace(plain, utility=most, bound=most * (1 + off))
    logged = LoggedRun(policy="fifo", log=run.log, metrics=measure(jobs, cluster, run), rules=run.rules, worth=worth)
    _, (_, found) = check_runs(RunRecord(jobs=jobs, cluster=cluster, overhead_us=0, runs=(logged,)))
    assert (found.violations != ()) == is_refused


@pytest.fixture(scope="module")
def record():
    """A run of `oasis` that rejects some jobs."""
    rng = np.random.default_rng(3)
    jobs, cluster = workload([(0, 1, int(1800 * rng.integers(1, 5))) for _ in range(60)]), Cluster.grid("1x1")
    run = simulate(jobs, cluster, make_policy("oasis", jobs), EngineOptions(overhead_s=0), seed=1)
    metrics = measure(jobs, cluster, run)
    logged = LoggedRun(policy="oasis", log=run.log, metrics=metrics, rules=run.rules, worth=run.worth)
    return RunRecord(jobs=jobs, cluster=cluster, overhead_us=0, runs=(logged,))


def test_what_a_run_earned_holds_and_comes_back_from_a_file(record, tmp_path):
    save_run(record, tmp_path / "run.npz")
    for each in (record, load_run(tmp_path / "run.npz")):
        assert [found.violations for _, found in check_runs(each)] == [(), ()]
    assert 0 < record.runs[0].worth.utility <= record.runs[0].worth.bound


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (lambda worth: {"utility": worth.utility * (1 + 1e-6)}, "but the log gives"),
        (lambda worth: {"bound": worth.bound / 2}, "is proven"),
        (lambda worth: {"price": worth.price * 0.9 + 1}, "is proven"),
        (lambda worth: {"theta": worth.theta * 1.01}, "but the log gives"),
        (lambda worth: {"theta": worth.theta[1:]}, "must have one row of theta per job"),
    ],
)
def test_a_changed_claim_is_refused(record, change, cause):
    run = record.runs[0]
    changed = replace(run, worth=replace(run.worth, **change(run.worth)))
    _, (_, found) = check_runs(replace(record, runs=(changed,)))
    assert any(cause in row.message for row in found.violations)


def test_worth_is_finite_and_not_negative():
    for theta, price in (([(np.inf, 1.0, 1.0)], [1.0]), ([(1.0, 1.0, 1.0)], [-1.0]), ([(1.0, -1.0, 1.0)], [1.0])):
        with pytest.raises(InvalidProblemError, match=r"must be at least 0|finite"):
            _worth(theta, price)


@pytest.mark.parametrize(
    "change",
    [
        {"slot_us": 0},
        {"slot_us": 2**51},
        {"utility": float("nan")},
        {"bound": float("inf")},
        {"price": np.array([1e308])},
        {"theta": np.array([(1e308, 1.0, 1.0)])},
        {"theta": np.array([(1.0, 1.0, -1e308)])},
    ],
)
def test_worth_that_no_sum_could_hold_is_refused(change):
    plain = _worth([(1.0, 1.0, 1.0)], [1.0])
    with pytest.raises(InvalidProblemError, match=r"slot_us must lie in 1\.\.|finite"):
        replace(plain, **change)


def test_a_run_time_of_more_slots_than_are_read_is_refused():
    jobs = workload([(0, 1, 10**6)])
    with pytest.raises(InvalidProblemError, match="in slots of 1 us takes more than 50000000 steps"):
        max_earned(jobs, Cluster.grid("1x1"), replace(_worth([(1.0, 1.0, 1.0)], []), slot_us=1))
