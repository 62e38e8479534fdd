"""Time shares against their statement in CVXPY, and by hand."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.optimize import linprog

from optim.core.errors import UnsupportedProblemError
from optim.models.cluster.time_shares import ShareProblem, finish_time_model, max_min_model, worst_ratio
from optim.solvers.cluster.time_shares import (
    finish_time_shares,
    finish_time_shares_by_programmes,
    max_min_shares,
    price_shares,
)

AGREEMENT = 1e-5


def drawn(seed, jobs, kinds=3):
    """Return jobs at different stages of their lives, on types that suit them more or less, some not at all."""
    rng = np.random.default_rng(seed)
    throughput = rng.uniform(1, 5, (jobs, kinds)) * (rng.random((jobs, kinds)) < 0.8)
    throughput[:, 0] = np.maximum(throughput[:, 0], 0.5)
    total, done = rng.uniform(100, 5000, jobs), rng.uniform(0, 0.9, jobs)
    problem = ShareProblem(
        throughput=throughput,
        width=rng.choice([1, 2, 4], jobs),
        gpus=rng.integers(4, 9, kinds),
        elapsed_s=np.zeros(jobs),
        left=total * (1 - done),
        isolated_s=np.zeros(jobs),
    )
    isolated = total * done / problem.isolated
    return replace(problem, isolated_s=isolated, elapsed_s=isolated * rng.uniform(0.1, 1.5, jobs))


def _is_feasible(problem, x):
    assert (x >= -1e-9).all()
    assert (x.sum(axis=1) <= 1 + 1e-7).all()
    assert (problem.width @ x <= problem.gpus * (1 + 1e-7)).all()
    assert (x[problem.throughput == 0] == 0).all()


def test_programmes_print_nothing(capfd):
    problem = drawn(0, 3)
    for shares in (max_min_shares, finish_time_shares_by_programmes):
        assert shares(problem).solves > 0
    assert capfd.readouterr() == ("", "")


@given(st.integers(0, 10**6), st.integers(1, 12))
def test_finish_time_shares_reach_what_the_convex_programme_does(seed, jobs):
    problem = drawn(seed, jobs)
    found = finish_time_shares(problem)
    _is_feasible(problem, found.x)
    assert found.value == pytest.approx(worst_ratio(problem, found.x))
    model = finish_time_model(problem)
    model.solve(solver="CLARABEL")
    assert found.value == pytest.approx(model.value, rel=AGREEMENT)


@given(st.integers(0, 10**6), st.integers(1, 60), st.integers(1, 4), st.booleans())
@example(4536, 34, 2, False)  # a need that is just a type's speed
def test_prices_and_programmes_find_the_same_ratio(seed, jobs, kinds, is_alike):
    """For equal jobs, all prices at which they change their choice coincide."""
    problem = drawn(seed, jobs, kinds)
    if is_alike:
        first = np.zeros(jobs, np.int64)
        columns = {name: getattr(problem, name)[first] for name in ("throughput", "width", "left", "isolated_s")}
        problem = replace(problem, **columns, elapsed_s=problem.elapsed_s * 0.1)
    found, other = finish_time_shares(problem), finish_time_shares_by_programmes(problem)
    _is_feasible(problem, found.x)
    assert found.value == pytest.approx(worst_ratio(problem, found.x))
    assert found.value == pytest.approx(other.value, rel=AGREEMENT)
    if kinds <= 3:
        priced = price_shares(problem)
        assert priced.lower <= other.value * (1 + 1e-7)
        assert worst_ratio(problem, priced.x) <= priced.lower * (1 + 1e-6)


@given(st.integers(0, 10**6), st.integers(1, 12))
def test_max_min_shares_reach_what_the_programme_does(seed, jobs):
    problem = drawn(seed, jobs)
    found = max_min_shares(problem)
    _is_feasible(problem, found.x)
    model = max_min_model(problem)
    model.solve(solver="CLARABEL")
    assert found.value == pytest.approx(model.value, rel=AGREEMENT)


def _one_type(jobs, gpus, **more):
    ones = np.ones(jobs)
    columns = {"elapsed_s": 0 * ones, "left": 100 * ones, "isolated_s": 0 * ones, **more}
    return ShareProblem(throughput=np.ones((jobs, 1)), width=np.ones(jobs, np.int64), gpus=np.array([gpus]), **columns)


def test_equal_jobs_share_equally():
    found = finish_time_shares(_one_type(4, 2))
    assert found.x.ravel() == pytest.approx([0.5] * 4)
    assert found.value == pytest.approx(1)


def test_a_job_that_is_late_gets_more():
    """Two jobs on a GPU, 100 s left each, isolated 200 s each; one is 100 s late: 100 + 100 / a = 100 / (1 - a)."""
    problem = _one_type(2, 1, elapsed_s=np.array([100.0, 0.0]))
    late = (5**0.5 - 1) / 2
    found = finish_time_shares(problem)
    assert found.x.ravel() == pytest.approx([late, 1 - late], abs=1e-5)
    assert found.value == pytest.approx(0.5 / (1 - late), rel=AGREEMENT)


def test_a_job_that_runs_nowhere_is_refused():
    nowhere = replace(_one_type(2, 1), throughput=np.array([[1.0], [0.0]]))
    gone = replace(_one_type(2, 1), throughput=np.array([[1.0, 0], [0, 1.0]]), gpus=np.array([1, 0]))
    for solve in (max_min_shares, finish_time_shares):
        for problem in (nowhere, gone):
            with pytest.raises(UnsupportedProblemError, match="on any type of GPU"):
                solve(problem)


def test_a_type_without_gpus_is_nobodys():
    problem = replace(_one_type(4, 2), throughput=np.ones((4, 2)), gpus=np.array([2, 0]))
    found = finish_time_shares(problem)
    assert found.x[:, 1] == pytest.approx([0] * 4)
    assert found.value == pytest.approx(1, rel=AGREEMENT)


def _lexicographic(problem):
    """Return the relative throughputs of the max-min optimum; a separate programme finds the jobs that can't exceed a level."""
    jobs, kinds = problem.throughput.shape
    rate = np.zeros((jobs, jobs * kinds))
    for job in range(jobs):
        rate[job, job * kinds : (job + 1) * kinds] = problem.throughput[job] / problem.isolated[job]
    places = np.kron(np.eye(jobs), np.ones(kinds))
    room = np.concatenate([problem.width[job] * np.eye(kinds) for job in range(jobs)], axis=1)
    fixed = {}

    def most(job, level):
        """Raise one job, or with None the level of all that aren't fixed; variables x and the level."""
        floor = [fixed.get(each, 0.0 if level is None else level) for each in range(jobs)]
        rises = [[-1.0 if level is None and each not in fixed else 0.0] for each in range(jobs)]
        rows = np.concatenate(
            [-np.concatenate([rate, rises], axis=1), np.pad(np.concatenate([places, room]), ((0, 0), (0, 1)))]
        )
        goal = np.append(np.zeros(jobs * kinds), 1.0) if job is None else np.append(rate[job], 0.0)
        limits = np.concatenate([-np.array(floor) + 1e-8, np.ones(jobs), problem.gpus])
        found = linprog(-goal, A_ub=rows, b_ub=limits, bounds=[(0, None)] * (jobs * kinds + 1))
        return -found.fun

    while len(fixed) < jobs:
        level = most(None, None)
        stuck = [job for job in range(jobs) if job not in fixed and most(job, level) <= level + 1e-6]
        fixed.update(dict.fromkeys(stuck, level))
    return [fixed[job] for job in range(jobs)]


@given(st.data())
def test_max_min_leaves_nobody_a_gain_for_free(data):
    jobs, kinds = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 3))
    speed = st.sampled_from([0.0, 0.25, 0.5, 1.0, 2.0])
    throughput = np.array([[data.draw(speed) for _ in range(kinds)] for _ in range(jobs)])
    throughput[throughput.max(axis=1) == 0] = 1.0
    gpus = np.array([data.draw(st.integers(1, 4)) for _ in range(kinds)])
    width = np.array([data.draw(st.integers(1, int(gpus.max()))) for _ in range(jobs)])
    ones = np.ones(jobs)
    problem = ShareProblem(throughput=throughput, width=width, gpus=gpus, elapsed_s=ones, left=ones, isolated_s=ones)
    found = max_min_shares(problem)
    reached = (throughput * found.x).sum(axis=1) / problem.isolated
    assert sorted(reached) == pytest.approx(sorted(_lexicographic(problem)), abs=1e-5)
    assert (found.x.sum(axis=1) <= 1 + 1e-6).all()
    assert (width @ found.x <= gpus + 1e-6).all()


def test_a_job_that_has_a_type_to_itself_uses_all_of_it():
    """A is four times as fast on the first type, B as fast on both: B gets all that it can use of the other, A all of the first."""
    ones = np.ones(2)
    problem = ShareProblem(
        throughput=np.array([[1.0, 0.25], [1.0, 1.0]]),
        width=np.array([1, 1]),
        gpus=np.array([1, 1]),
        elapsed_s=ones,
        left=ones,
        isolated_s=ones,
    )
    assert (problem.throughput * max_min_shares(problem).x).sum(axis=1) == pytest.approx([1.0, 1.0])
