"""A day at learned prices: nothing is seen before it arrives, no promise is broken, no past slot is touched."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.core.driver import Monitor, run_iteration
from optim.core.stopping import IterationLimit
from optim.models.admission.decision import JOB, SLOT
from optim.models.admission.instance import merge_days, take_jobs
from optim.models.admission.problem import PROBLEM
from optim.models.files import verify
from optim.solvers.admission.online_learned import OnlineLearnedOptions, run_day
from optim.solvers.admission.posted_prices.learned_run import DayResult, Guard, LearnedDay
from optim.solvers.admission.posted_prices.price_functions import ZeroStartPrice, job_value_stats
from optim.solvers.admission.pricing.classes import JobTables
from optim.solvers.solve import solver_named
from tests.support.admission.days import CLUSTERS, days, forecast, wrong
from tests.support.admission.tiny import BY_HAND

WAYS = {
    "static": {"replan": 0},
    "replan": {"replan": 4},
    "firm": {"replan": 4, "promised_share": 1.0},
    "guarded": {"replan": 3, "guard": 0.5},
    "no history": {"replan": 3, "warm_up": 0.3},
    "no standby": {"replan": 4, "standby": 0},
    "one on standby": {"replan": 2, "standby": 1},
}


def live(today, way: str, known, seed: int = 0, stop=None, **further) -> tuple[LearnedDay, Monitor]:
    """Return a day that is ready to be lived."""
    chosen = {"smoothing": 1, **WAYS[way], **further}
    options = OnlineLearnedOptions(history="" if way == "no history" else "given", **chosen)
    past = merge_days([day.jobs for day in known.days], today)
    guard = Guard(today, 0.5, job_value_stats(past), ZeroStartPrice()) if way == "guarded" else None
    day = LearnedDay(
        today,
        JobTables.build(today),
        options.run_config,
        prices=None if way == "no history" else known.prices,
        fill=known.fill,
        warm_up=options.warm_up,
        guard=guard,
        seed=seed,
    )
    return day, Monitor(stop)


def lived(today, way: str, known, seed: int = 0, stop=None, **further) -> DayResult:
    return run_iteration(*live(today, way, known, seed, stop, **further))


@given(
    cluster=st.integers(0, CLUSTERS - 1),
    way=st.sampled_from(sorted(WAYS)),
    kind=st.sampled_from(["random", "scaled", "permuted"]),
    seed=st.integers(0, 10**6),
    kept=st.integers(1, 13),
)
def test_a_later_job_changes_no_earlier_decision(cluster, way, kind, seed, kept) -> None:
    today, known = days(cluster)[-1], wrong(cluster, kind, seed)
    order = np.argsort(today.jobs.arrival, kind="stable")
    first = np.sort(order[:kept])
    fewer = replace(today, jobs=take_jobs(today.jobs, first))
    whole, part = lived(today, way, known, seed), lived(fewer, way, known, seed)
    for k, job in enumerate(first.tolist()):
        assert whole.decided[job] == part.decided[k]
        assert whole.promised.get(job) == part.promised.get(k)
    # What ran before the next job came is the same, too.
    before = int(today.jobs.arrival[order[kept]])
    for a, b in zip(ran(whole), ran(part), strict=True):
        renamed = b.copy()
        renamed[:, JOB] = first[b[:, JOB]]
        np.testing.assert_array_equal(a[a[:, SLOT] < before], renamed[b[:, SLOT] < before])


def ran(result: DayResult) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of workers and of PSs of all that ran, for nothing, too, in order."""
    pairs = ((result.plan.workers, result.unfinished.workers), (result.plan.ps, result.unfinished.ps))
    both = (np.concatenate(pair) for pair in pairs)
    return tuple(rows[np.lexsort(rows.T[::-1])] for rows in both)


@given(
    cluster=st.integers(0, CLUSTERS - 1),
    way=st.sampled_from(sorted(WAYS)),
    kind=st.sampled_from(["random", "scaled", "permuted", "zero"]),
    seed=st.integers(0, 10**6),
)
def test_who_was_promised_anything_never_notices_who_stands_by(cluster, way, kind, seed) -> None:
    today, known = days(cluster)[-1], wrong(cluster, kind, seed)
    alone = lived(today, way, known, seed, standby=0)
    among = lived(today, way, known, seed, standby=200)
    assert (among.decided, among.promised) == (alone.decided, alone.promised)
    assert not among.completed_on_standby.keys() & among.promised.keys()
    assert set(among.plan.admitted.tolist()) == {*among.promised, *among.completed_on_standby}
    assert not set(among.unfinished.workers[:, JOB].tolist()) & set(among.plan.admitted.tolist())
    for more, less in ((among.plan.workers, alone.plan.workers), (among.plan.ps, alone.plan.ps)):
        kept = more[np.isin(more[:, JOB], list(among.promised))]
        np.testing.assert_array_equal(kept, less)


@given(
    cluster=st.integers(0, CLUSTERS - 1),
    way=st.sampled_from(sorted(WAYS)),
    kind=st.sampled_from(["random", "scaled", "zero"]),
    seed=st.integers(0, 10**6),
)
def test_no_promise_is_broken_and_no_past_slot_touched(cluster, way, kind, seed) -> None:
    today, known = days(cluster)[-1], wrong(cluster, kind, seed)
    day, _ = live(today, way, known, seed)
    promised: dict[int, int] = {}
    ran = np.zeros((0, 4), dtype=np.int64)
    for slot in range(today.horizon):
        day.step()
        now = day.finish(None) if slot == today.horizon - 1 else None
        reservations = day._reservations
        # Rows of a job that stood by come when it is complete.
        rows = reservations.plan().workers
        rows = rows[(rows[:, SLOT] <= slot) & np.isin(rows[:, JOB], list(reservations.promised))]
        np.testing.assert_array_equal(rows[rows[:, SLOT] < slot], ran)
        ran = rows
        for job, due in promised.items():
            assert reservations.promised[job] == due
        promised = dict(reservations.promised)
        assert all(side.residual.min() >= 0 for side in reservations.state.sides)
    completion = dict(zip(now.plan.admitted.tolist(), now.plan.completion.tolist(), strict=True))
    assert promised.keys() == {job for job, is_in in now.decided.items() if is_in}
    assert all(completion.pop(job) <= due for job, due in promised.items())
    assert completion == now.completed_on_standby


@pytest.mark.parametrize("way", sorted(WAYS))
def test_a_day_that_is_cut_short_keeps_its_promises_and_admits_nobody_else(way) -> None:
    today, known = days(1)[-1], forecast(1)
    result = lived(today, way, known, stop=IterationLimit(6))
    assert 0 < len(result.decided) < today.num_jobs
    assert set(result.plan.admitted.tolist()) == {*result.promised, *result.completed_on_standby}
    options = OnlineLearnedOptions(history="given", **{k: v for k, v in WAYS[way].items() if k != "warm_up"})
    monitor = Monitor(IterationLimit(6))
    solver = solver_named("admission", "online-learned")
    outcome = run_day(today, known, options, monitor)
    solution = solver.solution(today, outcome, options=options, seed=0, monitor=monitor)
    assert verify(today, solution).violations == ()


@pytest.mark.parametrize("name", sorted(BY_HAND))
@pytest.mark.parametrize("options", [{}, {"replan": 10, "smoothing": 1}], ids=["usual", "many moves"])
def test_instances_of_every_trait_are_decided_and_verified(name, options) -> None:
    instance = BY_HAND[name]
    solver = solver_named("admission", "online-learned")
    monitor, chosen = Monitor(), OnlineLearnedOptions(warm_up=0.25, **options)
    outcome = run_day(instance, None, chosen, monitor)
    solution = solver.solution(instance, outcome, options=chosen, seed=0, monitor=monitor)
    assert verify(instance, solution).violations == ()
    assert PROBLEM.decision_to_json(instance, solution.decision) is not None


def test_what_a_day_with_fixed_schedules_tells_of_its_value_is_its_plan_s() -> None:
    today, known = days(1)[-1], forecast(1)
    day, monitor = live(today, "static", known)
    assert day.standing().objective == 0.0
    result = run_iteration(day, monitor)
    assert day.standing().objective == pytest.approx(result.plan.objective(today))
    assert result.completed_on_standby


@pytest.mark.parametrize(("warm_up", "solves"), [(0.01, 4), (0.3, 2), (0.5, 1), (1.0, 0)])
def test_without_a_history_prices_are_found_after_the_first_share_and_again_after_twice_that(warm_up, solves) -> None:
    # Of nine slots: at 1, 2, 4 and 8; at 3 and 6; at 5; never.
    today = days(0)[-1]
    options = OnlineLearnedOptions(warm_up=warm_up, replan=0)
    day = LearnedDay(today, JobTables.build(today), options.run_config, prices=None, warm_up=warm_up)
    assert len(run_iteration(day, Monitor()).resolve_s) == solves
