"""Online rules for the rest of a day, their learning and decisions: guarded, resolved, without a history."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.core.driver import Monitor, run_iteration
from optim.core.stopping import IterationLimit
from optim.models.admission.data import as_int_array
from optim.models.admission.decision import JOB, SLOT
from optim.models.admission.instance import merge_days, take_jobs
from optim.models.admission.problem import PROBLEM
from optim.models.files import verify
from optim.solvers.admission.online_learned import OnlineLearnedOptions, run_day
from optim.solvers.admission.posted_prices.learned_run import (
    DayResult,
    Guard,
    LearnedDay,
    RisingPrices,
    least_share,
    on_share,
    post,
    posted_state,
    prices_for_the_rest,
    repeated,
    wide_value,
)
from optim.solvers.admission.posted_prices.online_run import run_online
from optim.solvers.admission.posted_prices.price_functions import (
    PriceFloorRule,
    ZeroStartPrice,
    job_value_stats,
    price_ranges,
)
from optim.solvers.admission.pricing.classes import JobTables, Prices
from optim.solvers.admission.pricing.servers import ClusterState, ResidualSearch, Use, uses
from optim.solvers.solve import solve, solver_named
from tests.support.admission.days import CLUSTERS, days, forecast, wrong
from tests.support.admission.tiny import BY_HAND, job_document, tiny_instance

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
    """Return a run of the learned prices before its first slot, and its monitor."""
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
        assert whole.decisions[job] == part.decisions[k]
        assert whole.promised.get(job) == part.promised.get(k)
    # The work done before the next job arrived is the same as well.
    before = int(today.jobs.arrival[order[kept]])
    for a, b in zip(ran(whole), ran(part), strict=True):
        renamed = b.copy()
        renamed[:, JOB] = first[b[:, JOB]]
        np.testing.assert_array_equal(a[a[:, SLOT] < before], renamed[b[:, SLOT] < before])


def ran(result: DayResult) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of workers and PSs of all work, including work without value, in order."""
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
    assert (among.decisions, among.promised) == (alone.decisions, alone.promised)
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
        # The rows of a standby job are added when it completes.
        rows = reservations.plan().workers
        rows = rows[(rows[:, SLOT] <= slot) & np.isin(rows[:, JOB], list(reservations.promised))]
        np.testing.assert_array_equal(rows[rows[:, SLOT] < slot], ran)
        ran = rows
        for job, due in promised.items():
            assert reservations.promised[job] == due
        promised = dict(reservations.promised)
        assert all(side.residual.min() >= 0 for side in reservations.state.sides)
    completion = dict(zip(now.plan.admitted.tolist(), now.plan.completion.tolist(), strict=True))
    assert promised.keys() == {job for job, is_in in now.decisions.items() if is_in}
    assert all(completion.pop(job) <= due for job, due in promised.items())
    assert completion == now.completed_on_standby


@pytest.mark.parametrize("way", sorted(WAYS))
def test_a_day_that_is_cut_short_keeps_its_promises_and_admits_nobody_else(way) -> None:
    today, known = days(1)[-1], forecast(1)
    result = lived(today, way, known, stop=IterationLimit(6))
    assert 0 < len(result.decisions) < today.num_jobs
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


KINDS = ("scaled", "permuted", "zero", "random", "of another cluster")


@cache
def alone(cluster: int, share: float):
    """Run the paper's rule alone on the first servers of each class, with the history's constants."""
    *past, today = days(cluster)

    def part(servers):
        return replace(servers, count=as_int_array([-(-int(n * share * 1000) // 1000) for n in servers.count.tolist()]))

    small = replace(today, worker_servers=part(today.worker_servers), ps_servers=part(today.ps_servers))
    worth = job_value_stats(merge_days([day.jobs for day in past], today))
    bounds = price_ranges(small, PriceFloorRule.UNIT_FREE_LAMBDA, stats=worth)
    return run_online(small, bounds=bounds, function=ZeroStartPrice())


@given(
    cluster=st.integers(0, CLUSTERS - 1),
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 10**6),
    share=st.sampled_from([0.25, 0.5, 0.75, 1.0]),
    replan=st.sampled_from([0, 5]),
)
def test_no_forecast_earns_less_than_the_rule_alone_on_its_servers(cluster, kind, seed, share, replan) -> None:
    today = days(cluster)[-1]
    options = OnlineLearnedOptions(history="given", guard=share, replan=replan)
    outcome = run_day(today, wrong(cluster, kind, seed), options, Monitor(), seed)
    run = alone(cluster, share)
    assert outcome.objective >= run.objective * (1 - 1e-12)
    assert outcome.counts["guard_earned"] == pytest.approx(run.objective)
    worth = dict(zip(outcome.decision.admitted.tolist(), outcome.decision.completion.tolist(), strict=True))
    for made in run.decisions:
        if made.is_accepted:
            assert today.value[made.job, worth[made.job]] >= made.schedule.value * (1 - 1e-12)


def test_the_whole_cluster_guarded_is_the_paper_s_rule_or_better() -> None:
    today = days(0)[-1]
    outcome = run_day(today, wrong(0, "zero", 0), OnlineLearnedOptions(history="given", guard=1.0), Monitor())
    assert outcome.objective >= alone(0, 1.0).objective


def test_the_certificate_carries_the_theorem_where_its_conditions_hold_and_names_those_that_fail(tmp_path) -> None:
    name = str(tmp_path / "forecast.json")
    capped = [replace(day, max_share_per_server=None) for day in days(0)]
    forecast(0).save(name)
    solution = solve(capped[0], "online-learned", options={"history": name, "guard": 0.5})
    assert "price" not in solution.certificate.statement


def test_ratio_and_wide_jobs_are_those_of_the_theorem() -> None:
    today = days(1)[-1]
    small = on_share(today, 0.5)
    assert least_share(today, small) >= 0.5
    assert wide_value(today, today) == 0
    by_hand = 0.0
    for i in range(today.num_jobs):
        s = int(today.jobs.segment_offset[i])
        is_wide = False
        for held, most, whole, part in (
            (today.workers_per_server[s], today.max_workers[i], today.worker_servers, small.worker_servers),
            (today.ps_per_server[s], today.ps_needed[i][-1], today.ps_servers, small.ps_servers),
        ):
            for c in range(whole.num_classes):
                for t in range(today.horizon):
                    most_here = min(int(most), int(held[c, t] * whole.count[c]))
                    is_wide |= most_here > held[c, t] * part.count[c]
        by_hand += is_wide * float(today.value[i].max())
    assert wide_value(today, small) == pytest.approx(by_hand)
    assert np.isfinite(by_hand)


def test_the_least_share_is_the_smallest_class_s_and_the_claim_takes_it_from_the_guard_s_servers() -> None:
    # Of 4 and 3 worker servers a half is 2 and 2, of 5 PS hosts 3: shares 1/2, 2/3 and 3/5.
    today = tiny_instance(
        job_document("a"),
        worker_servers=[
            {"type": "four", "capacity": [2, 0], "count": 4},
            {"type": "three", "capacity": [2, 0], "count": 3},
        ],
        ps_servers=[{"type": "cpus", "capacity": [0, 2], "count": 5}],
    )
    small = on_share(today, 0.5)
    assert small.worker_servers.count.tolist() == [2, 2]
    assert least_share(today, small) == 0.5
    guard = Guard(today, 0.5, job_value_stats(today), ZeroStartPrice())
    claim = guard.claim(job_value_stats(today))
    assert claim.rho == 0.5
    assert claim.ratio == pytest.approx(2 * claim.rule.ratio)


def test_verify_takes_a_guarded_solution() -> None:
    today = days(2)[-1]
    options = OnlineLearnedOptions(history="given", guard=0.5)
    solver = solver_named("admission", "online-learned")
    monitor = Monitor()
    outcome = run_day(today, forecast(2), options, monitor)
    solution = solver.solution(today, outcome, options=options, seed=0, monitor=monitor)
    assert verify(today, solution).violations == ()


def test_prices_are_each_server_s_class_s_and_taking_changes_none() -> None:
    today, rng = days(0)[-1], np.random.default_rng(0)
    shapes = today.worker_servers.capacity.shape, today.ps_servers.capacity.shape
    first, second = (Prices(worker=rng.random(shapes[0]), ps=rng.random(shapes[1])) for _ in range(2))
    first.worker[0, 0, 0] = 0.0
    state = posted_state(today, first)
    for prices in (first, second):
        post(state, prices)
        for side, array in zip(state.sides, (prices.worker, prices.ps), strict=True):
            for h, c in enumerate(side.servers.class_of_server.tolist()):
                np.testing.assert_allclose(side.price[:, :, h], array[c], rtol=1e-12)
    one = np.zeros(1, dtype=np.int64)
    _, after = state.worker.take(Use(slot=one, server=one, amount=np.ones((1, today.num_resources))))
    np.testing.assert_allclose(after[0], first.worker[0, 0], rtol=1e-12)


STEP = {"kind": "step", "value": 6, "deadline": 0}
RUSH = tiny_instance(*(job_document(f"j{k}", arrival=2, epochs=1, utility=STEP) for k in range(3)))
"""Three jobs for two GPUs each, of which slot 2 holds two, and then only one PS each."""


def test_only_what_is_left_counts() -> None:
    today, known = days(0)[-1], forecast(0)
    full, half = posted_state(today, known.prices), posted_state(today, known.prices)
    for side in half.sides:
        side.residual *= 0.5
    expected = known.days[0].jobs
    whole, scarce = (prices_for_the_rest(today, expected, state, 3, known.prices, known.fill) for state in (full, half))
    assert scarce.worker[:, 3:].sum() > whole.worker[:, 3:].sum()
    np.testing.assert_array_equal(whole.worker[:, :3], known.worker_price[:, :3])


def test_past_jobs_are_no_longer_expected() -> None:
    none = Prices(worker=np.zeros((1, 4, 2)), ps=np.zeros((1, 4, 2)))
    state = posted_state(RUSH, none)
    before = prices_for_the_rest(RUSH, RUSH.jobs, state, 1, none, 0.5)
    assert before.worker[0, 2].sum() + before.ps[0, 2].sum() > 0
    assert prices_for_the_rest(RUSH, RUSH.jobs, state, 3, none, 0.5) is none


PATIENT = tiny_instance(
    *(job_document(f"j{k}", arrival=2, epochs=1, utility={**STEP, "deadline": 1}) for k in range(3))
)
"""The same three jobs, for which slot 3 is as good: together the slots hold all of them."""


def test_a_full_slot_is_no_room_and_is_dear() -> None:
    none = Prices(worker=np.zeros((1, 4, 2)), ps=np.zeros((1, 4, 2)))
    state = posted_state(PATIENT, none)
    free = prices_for_the_rest(PATIENT, PATIENT.jobs, state, 1, none, 1.0)
    for side in state.sides:
        side.residual[2] = 0
    full = prices_for_the_rest(PATIENT, PATIENT.jobs, state, 1, none, 1.0)
    assert free.worker.sum() + free.ps.sum() == pytest.approx(0, abs=1e-6)
    # Slot 3 holds two of three jobs: there a job pays its full value, and in the full slot no less.
    cost = 2 * full.worker[0, :, 0] + full.ps[0, :, 1]
    assert cost[2] >= 0.95 * 6
    assert cost[3] == pytest.approx(6, rel=0.05)


def test_the_jobs_so_far_come_again_block_by_block() -> None:
    today = tiny_instance(*(job_document(name, arrival=a) for name, a in (("a", 0), ("b", 1), ("c", 3))), horizon=5)
    again = repeated(today, 2)
    assert again.arrival.tolist() == [2, 3, 4]
    assert [name.split(":")[-1] for name in again.ids] == ["a", "b", "a"]


def test_prices_are_the_paper_s_once_every_job_has_been_met() -> None:
    today = days(0)[-1]
    free = Prices(worker=np.zeros(today.worker_servers.capacity.shape), ps=np.zeros(today.ps_servers.capacity.shape))
    state = posted_state(today, free)
    rising = RisingPrices(today, state)
    bounds = price_ranges(today, PriceFloorRule.UNIT_FREE_LAMBDA, stats=job_value_stats(today))
    paper = ClusterState(today, bounds, ZeroStartPrice())
    for job in range(today.num_jobs):
        rising.meet(job)
    found = ResidualSearch(today).find(0, paper, 0.0)
    for side, other, use in zip(state.sides, paper.sides, uses(today, found), strict=True):
        side.residual[use.slot, :, use.server] -= use.amount
        other.take(use)
    rising.reprice_used(uses(today, found))
    for side, other in zip(state.sides, paper.sides, strict=True):
        np.testing.assert_allclose(side.price, other.price, rtol=1e-12)
