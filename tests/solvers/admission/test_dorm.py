"""Dorm: its programme against enumeration, its bounds, and constant allocations between events."""

import math
from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given

import optim
from optim.core.errors import InvalidOptionError
from optim.core.stopping import Never
from optim.solvers.admission import dorm
from optim.solvers.admission.dorm import (
    Division,
    DivisionLimits,
    DivisionOutcome,
    DivisionProblem,
    DormOptions,
    DormPolicy,
    divide,
)
from tests.support.admission.slot_runs import cluster, job, plan_faults, recorded, run, seeded_instance, seeds
from tests.support.admission.strategies import ServerSketch

EXACT = DivisionLimits(columns=1000, nodes=100_000, time_s=60.0, relative_gap=0.0)
CONFINED = DivisionLimits(columns=0, nodes=100_000, time_s=60.0, relative_gap=0.0)
TOL = 1e-6
"""HiGHS' tolerance of rows and integers."""


def seeded_problem(seed: int) -> DivisionProblem:
    """Return a programme small enough to enumerate; limits on sums avoid ties with possible sums of counts."""
    rng = np.random.default_rng(seed)
    jobs, classes, resources = ((2, 2, 1), (2, 1, 2), (3, 1, 2))[int(rng.integers(3))]
    is_shared = bool(rng.integers(2)) and classes == 1
    is_running = rng.integers(2, size=jobs)
    limit = rng.integers(0, 4, size=(jobs, classes))
    current = Division(
        workers=np.where(is_running[:, None], np.minimum(limit, rng.integers(0, 3, size=limit.shape)), 0),
        ps=np.where(is_running[:, None], rng.integers(0, 2, size=(jobs, 1)), 0),
    )
    least = np.where(is_running > 0, 1, rng.integers(1, 3, size=jobs))
    return DivisionProblem(
        worker_demand=rng.integers(0, 4, size=(jobs, resources)).astype(float),
        ps_demand=rng.integers(0, 3, size=(jobs, resources)).astype(float),
        worker_limit=limit,
        ps_limit=rng.integers(1, 3, size=(jobs, 1)),
        worker_capacity=rng.integers(3, 9, size=(classes, resources)).astype(float),
        ps_capacity=rng.integers(1, 5, size=(1, resources)).astype(float),
        is_shared=is_shared,
        ps_per_worker=rng.choice([0.25, 0.5, 1.0], size=jobs),
        least=least,
        most=least + rng.integers(0, 4, size=jobs),
        fair=rng.integers(0, 4, size=jobs),
        is_running=is_running,
        current=current,
        fairness_limit=float(rng.choice([0.3137, 0.7171, 1.6183, 9.0])),
        change_limit=int(rng.integers(0, 3)),
    )


def faults(problem: DivisionProblem, division: Division) -> list[str]:
    """Return which rows of the programme a division violates, row by row."""
    y, z, found = division.workers, division.ps, []
    total, num_ps = y.sum(axis=1), z.sum(axis=1)
    use = y.T @ problem.worker_demand
    if problem.is_shared:
        use = use + z.T @ problem.ps_demand
    elif (z.T @ problem.ps_demand > problem.ps_capacity + TOL).any():
        found.append("PS capacity")
    if (use > problem.worker_capacity + TOL).any():
        found.append("worker capacity")
    if (y > problem.worker_limit).any() or (z > problem.ps_limit).any():
        found.append("class limit")
    if (total * problem.ps_per_worker > num_ps + TOL).any() or (num_ps > total).any():
        found.append("PSs for workers")
    for i in range(problem.num_jobs):
        may_wait = not problem.is_running[i]
        if not (may_wait and total[i] == 0) and not problem.least[i] <= total[i] <= problem.most[i]:
            found.append("least and most")
    share = [max(problem.worker_demand[i] / problem.worker_capacity.sum(axis=0)) for i in range(problem.num_jobs)]
    if np.abs(total - problem.fair) @ np.array(share) > problem.fairness_limit + TOL:
        found.append("fairness")
    moved = (y != problem.current.workers).any(axis=1) | (z != problem.current.ps).any(axis=1)
    if int(moved[problem.is_running > 0].sum()) > problem.change_limit:
        found.append("change")
    return found


def worth(problem: DivisionProblem, division: Division) -> float:
    """Return the utilisation of a division, summed over resources and both sides of servers."""
    workers = division.workers.sum(axis=1)
    of_workers = workers @ problem.worker_demand / problem.worker_capacity.sum(axis=0)
    of_ps = (workers * problem.ps_per_worker) @ problem.ps_demand
    of_ps = of_ps / (problem.worker_capacity if problem.is_shared else problem.ps_capacity).sum(axis=0)
    return float(of_workers.sum() + of_ps.sum())


def best_by_enumeration(problem: DivisionProblem) -> float | None:
    """Return the best value over all counts within the class limits, None if none is allowed."""
    best = None
    for y in product(*[range(n + 1) for n in problem.worker_limit.ravel().tolist()]):
        workers = np.array(y).reshape(problem.worker_limit.shape)
        for z in product(*[range(n + 1) for n in problem.ps_limit.ravel().tolist()]):
            division = Division(workers=workers, ps=np.array(z).reshape(problem.ps_limit.shape))
            value = worth(problem, division)
            if (best is None or value > best) and not faults(problem, division):
                best = value
    return best


@given(seed=seeds)
def test_the_programme_equals_enumeration(seed: int) -> None:
    """Confined to its relaxation's neighbourhood it stays feasible, and is never better."""
    problem = seeded_problem(seed)
    full, confined = divide(problem, EXACT).division, divide(problem, CONFINED).division
    best = best_by_enumeration(problem)
    assert (full is None) == (confined is None) == (best is None)
    if full is not None and confined is not None:
        assert faults(problem, full) == faults(problem, confined) == []
        assert worth(problem, full) == pytest.approx(best, abs=1e-5)
        assert worth(problem, confined) <= worth(problem, full) + 1e-5


def test_a_confined_programme_may_leave_every_job_as_it_is() -> None:
    """The relaxation changes both jobs by halves although one may change: the allocation of the other stays feasible."""
    problem = DivisionProblem(
        worker_demand=np.ones((2, 1)),
        ps_demand=np.zeros((2, 1)),
        worker_limit=np.full((2, 1), 4),
        ps_limit=np.ones((2, 1), dtype=np.int64),
        worker_capacity=np.array([[10.0]]),
        ps_capacity=np.array([[1.0]]),
        is_shared=False,
        ps_per_worker=np.full(2, 0.25),
        least=np.ones(2, dtype=np.int64),
        most=np.full(2, 4),
        fair=np.full(2, 4),
        is_running=np.ones(2, dtype=np.int64),
        current=Division(workers=np.ones((2, 1), dtype=np.int64), ps=np.ones((2, 1), dtype=np.int64)),
        fairness_limit=9.0,
        change_limit=1,
    )
    outcome = divide(problem, CONFINED)
    assert outcome.is_confined
    assert outcome.division is not None
    assert sorted(outcome.division.workers.ravel().tolist()) == [1, 4]


@given(seed=seeds)
def test_plans_are_feasible(seed: int) -> None:
    instance = seeded_instance(seed, max_jobs=4)
    assert plan_faults(instance, run(instance, DormPolicy(DormOptions())).plan) == []


def watch(monkeypatch: pytest.MonkeyPatch) -> list[tuple[DivisionProblem, DivisionOutcome]]:
    """Remember every programme of a run and its outcome."""
    seen = []

    def divide_and_remember(problem: DivisionProblem, limits: DivisionLimits) -> DivisionOutcome:
        outcome = divide(problem, limits)
        seen.append((problem, outcome))
        return outcome

    monkeypatch.setattr(dorm, "divide", divide_and_remember)
    return seen


@pytest.mark.parametrize("full_columns", [0, 1000])
def test_every_division_of_a_run_respects_its_bounds(monkeypatch: pytest.MonkeyPatch, full_columns: int) -> None:
    seen = watch(monkeypatch)
    policy = DormPolicy(DormOptions(theta1=0.2, theta2=0.3, full_columns=full_columns))
    run(optim.reference_instance("small-0"), policy)
    assert len(seen) == policy.counts["programmes"] > 5
    for problem, outcome in seen:
        assert problem.fairness_limit == pytest.approx(0.2 * 2 * 4)
        assert problem.change_limit == math.ceil(0.3 * problem.is_running.sum())
        assert outcome.division is not None
        assert faults(problem, outcome.division) == []
    assert any(outcome.is_confined for _, outcome in seen) is (full_columns == 0)


def test_nobody_changes_where_no_change_is_allowed() -> None:
    """With theta2 = 0 a job keeps its servers from its first slot to the last but one."""
    recorder, _ = recorded(optim.reference_instance("small-0"), DormPolicy(DormOptions(theta2=0.0)))
    changes = [
        int(np.abs(one[name].workers - two[name].workers).sum())
        for one, two, three in zip(recorder.answers, recorder.answers[1:], recorder.answers[2:], strict=False)
        for name in sorted(one.keys() & two.keys() & three.keys())
    ]
    assert changes == [0] * len(changes) != []


def test_a_job_that_does_not_change_stays_on_its_servers() -> None:
    """Job 0 leaves server 0 free and job 2 arrives: job 1 stays on server 1 all the same."""
    jobs = [job(1), job(1, 3), job(1, arrival=1)]
    recorder, _ = recorded(cluster(jobs, ServerSketch(capacity=("1",), count=3)), DormPolicy(DormOptions()))
    assert [answer[1].workers.tolist() for answer in recorder.answers[:3]] == [[0, 1, 0]] * 3


def first_workers(jobs: list[Any], capacity: tuple[str, ...], **options: Any) -> dict[int, int]:
    instance = cluster(jobs, ServerSketch(capacity=capacity), horizon=1)
    return recorded(instance, DormPolicy(DormOptions(**options)))[0].workers()[0]


def test_without_unfairness_the_division_is_that_of_dominant_shares() -> None:
    users = [job(9, worker=("1", "4")), job(9, worker=("3", "1"))]
    assert first_workers(users, ("9", "18"), theta1=0.0) == {0: 3, 1: 2}


def test_trades_fairness_for_utilisation_within_the_bound() -> None:
    """Of eleven units the fair two threes and one four use ten; one three and two fours differ by 7/11."""
    users = [job(9, worker=("3",)), job(9, worker=("4",))]
    assert first_workers(users, ("11",), theta1=0.0) == {0: 2, 1: 1}
    assert first_workers(users, ("11",), theta1=0.3) == {0: 2, 1: 1}
    assert first_workers(users, ("11",), theta1=0.35) == {0: 1, 1: 2}


def test_a_newcomer_takes_only_from_those_that_may_change() -> None:
    """Two jobs fill the cluster with four workers each; three, three and two are fair.

    One change leaves a loss of 2/8, none one of 4/8, which is too much: then the newcomer waits.
    """
    jobs = [job(4, 9), job(4, 9), job(4, 9, arrival=1)]
    instance = cluster(jobs, ServerSketch(capacity=("8",)), horizon=2)
    counts = {}
    for theta2 in (0.0, 0.5):
        policy = DormPolicy(DormOptions(theta1=0.2, theta2=theta2))
        counts[theta2] = recorded(instance, policy)[0].workers()
        assert policy.counts["fallbacks"] == (theta2 == 0.0)
    assert counts[0.0] == [{0: 4, 1: 4}, {0: 4, 1: 4}]
    assert sorted(counts[0.5][1][name] == 4 for name in (0, 1)) == [False, True]
    assert counts[0.5][1][2] >= 1


def test_holds_between_events_without_a_programme() -> None:
    policy = DormPolicy(DormOptions())
    recorder, _ = recorded(cluster([job(2, 4)], ServerSketch(capacity=("2",))), policy)
    assert recorder.workers() == [{0: 2}] * 4
    assert policy.counts["programmes"] == 1


def test_divides_anew_when_a_capacity_changes() -> None:
    policy = DormPolicy(DormOptions())
    by_slot = ServerSketch(capacity=(("2",), ("2",), ("4",), ("4",)))
    recorder, _ = recorded(cluster([job(4, 4)], by_slot), policy)
    assert recorder.workers() == [{0: 2}, {0: 2}, {0: 4}, {0: 4}]
    assert policy.counts["programmes"] == 2


def test_what_does_not_split_onto_single_servers_is_counted() -> None:
    """Two servers of three units are six to the programme: two workers of two units fit, a third doesn't."""
    jobs = [job(3, worker=("2",), chunk_slots="1")]
    policy = DormPolicy(DormOptions(theta1=1.0))
    instance = cluster(jobs * 3, ServerSketch(capacity=("3",), count=2), horizon=1)
    recorder, _ = recorded(instance, policy)
    assert sum(recorder.workers()[0].values()) == 2
    assert policy.counts["workers_not_placed"] == 1


def test_considers_only_the_first_of_the_waiting_jobs() -> None:
    jobs = [job(1) for _ in range(4)]
    assert first_workers(jobs, ("9",), max_waiting=2) == {0: 1, 1: 1}


def test_a_job_that_fits_nowhere_takes_no_place_among_the_waiting() -> None:
    jobs = [job(1, worker=("99",)), job(1), job(1)]
    assert first_workers(jobs, ("9",), max_waiting=1) == {1: 1}


def test_a_programme_has_no_more_time_than_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A programme that reaches its time limit leaves the allocations unchanged, and is counted."""
    given_s = []

    def give_up(problem: DivisionProblem, limits: DivisionLimits) -> DivisionOutcome:
        given_s.append(limits.time_s)
        return DivisionOutcome(division=None, is_confined=False, is_out_of_time=True)

    class NearlyOver(Never):
        def remaining_s(self, elapsed_s: float) -> float:
            return 3.0

    monkeypatch.setattr(dorm, "divide", give_up)
    policy = DormPolicy(DormOptions(time_limit_s=5.0))
    outcome = run(cluster([job(2, 2)], ServerSketch(capacity=("2",))), policy, NearlyOver())
    assert outcome.started == frozenset()
    assert given_s == [3.0]
    assert policy.counts["fallbacks"] == policy.counts["out_of_time"] == 1


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"theta1": 1.1}, "theta1"),
        ({"theta2": -0.1}, "theta2"),
        ({"node_limit": 0}, "node_limit"),
        ({"max_waiting": 0}, "max_waiting"),
        ({"relative_gap": float("nan")}, "relative_gap"),
    ],
)
def test_refuses_options_out_of_range(given: Mapping[str, Any], text: str) -> None:
    with pytest.raises(InvalidOptionError, match=text):
        DormOptions(**given)
