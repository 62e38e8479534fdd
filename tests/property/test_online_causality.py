"""Online rules: jobs appended after a slot do not change the decisions up to it."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import settings

import optim
from optim.core.driver import Monitor
from optim.core.errors import InvalidOptionError
from optim.models.admission.data import ConstantUtility
from optim.models.admission.instance import AdmissionInstance, take_jobs
from optim.solvers.admission.online import (
    BoundSource,
    OnlineOptions,
    OnlineSolver,
    make_bounds,
    make_function,
    make_seen,
)
from optim.solvers.admission.posted_prices.online_run import run_online
from optim.solvers.admission.posted_prices.price_functions import job_value_stats
from optim.solvers.admission.slots import run_slots
from optim.solvers.solve import solver_named, solvers_of
from tests.support.admission.slot_runs import seeded_instance

CAUSAL = {
    "seen": OnlineOptions(bounds="seen"),
    "seen, exponential": OnlineOptions(bounds="seen", price="exponential"),
    "seen, in units": OnlineOptions(bounds="seen", unit_free=False),
    "seen, strict": OnlineOptions(bounds="seen", strict=True, eps=0.5),
    "history": OnlineOptions(bounds="history", history="medium-0-day1"),
}
READS_FUTURE = ("oracle", "paper", "estimated", "first")
SLOT_SOLVERS = ("dorm", "drf", "fifo", "rrh")
OTHERS = {"online", "online-learned"}  # `online-learned`: tests/solvers/admission/posted_prices/test_learned_run.py
PLAN_OFFLINE = {"branch-and-price", "column-generation", "compact-milp", "exact", "search"}


def with_worths(instance: AdmissionInstance, rng: np.random.Generator, since: int) -> AdmissionInstance:
    """Return an instance in which values of jobs that arrive from a slot on are scaled by a thousandth to a million."""
    worths = 10.0 ** rng.uniform(-3, 6, instance.num_jobs)
    utilities = tuple(
        ConstantUtility(value=float(worth)) if arrival >= since else utility
        for worth, arrival, utility in zip(worths, instance.jobs.arrival.tolist(), instance.jobs.utilities, strict=True)
    )
    return replace(instance, jobs=replace(instance.jobs, utilities=utilities))


@cache
def continued() -> tuple[tuple[AdmissionInstance, AdmissionInstance, int], ...]:
    """Return instances, each with its version without the jobs that arrive after a slot, and that slot."""
    found, seed = [], 0
    while len(found) < max(50, settings.default.max_examples):  # 200 before a release
        seed += 1
        whole = seeded_instance(seed, max_jobs=8)
        rng = np.random.default_rng([seed, 1])
        slot = int(rng.integers(0, max(1, whole.horizon - 1)))
        early = np.flatnonzero(whole.jobs.arrival <= slot)
        if 0 < len(early) < whole.num_jobs:
            whole = with_worths(whole, rng, slot + 1)
            found.append((whole, replace(whole, jobs=take_jobs(whole.jobs, early)), slot))
    return tuple(found)


def decided(instance: AdmissionInstance, slot: int, options: OnlineOptions) -> Mapping[str, object]:
    """Return the schedule of each job that arrived up to a slot, by its id; None if it was rejected."""
    worth = job_value_stats(instance)
    run = run_online(
        instance,
        bounds=make_bounds(instance, options, np.random.default_rng(0), worth),
        function=make_function(instance, options),
        seen=make_seen(instance, options, worth),
    )
    rows = {}
    for i, name in enumerate(instance.jobs.ids):
        if instance.jobs.arrival[i] <= slot:
            mine = [part[part[:, 0] == i, 1:].tolist() for part in (run.plan.workers, run.plan.ps)]
            rows[name] = mine
    return rows


SOLVER = OnlineSolver()


def moved(options: OnlineOptions) -> int:
    """Return in how many continuations a decision up to the slot differs."""
    return sum(decided(whole, slot, options) != decided(part, slot, options) for whole, part, slot in continued())


@pytest.mark.parametrize("mode", [name for name in CAUSAL if name != "history"])
def test_a_causal_rule_decides_the_same_whatever_comes_later(mode):
    assert not CAUSAL[mode].bounds.reads_future
    assert SOLVER.foresight(CAUSAL[mode]) == ""
    assert moved(CAUSAL[mode]) == 0


@pytest.mark.parametrize(
    "bounds",
    [pytest.param(name, marks=pytest.mark.prove) if name == "first" else name for name in READS_FUTURE],  # seen in 200
)
def test_a_rule_that_reads_the_future_says_so_and_does(bounds):
    options = OnlineOptions(bounds=bounds, sample_share=0.3)
    assert options.bounds.reads_future
    assert "jobs that arrive later" in SOLVER.foresight(options)
    assert moved(options) > 0
    tiny = optim.solve(optim.reference_instance("tiny-0"), "online", options=options)
    assert tiny.message.startswith(SOLVER.foresight(options))


def test_every_source_of_bounds_is_one_or_the_other():
    assert {options.bounds for options in CAUSAL.values()} | set(map(BoundSource, READS_FUTURE)) == set(BoundSource)
    known = {solver.name for solver in solvers_of("admission") if type(solver).__module__.startswith("optim.")}
    assert known == {*SLOT_SOLVERS, *OTHERS, *PLAN_OFFLINE}


@pytest.mark.prove
def test_a_history_decides_the_same_whatever_comes_later():
    today = optim.reference_instance("medium-0")
    rng = np.random.default_rng(0)
    for slot in (2, 9):
        whole = with_worths(today, rng, slot + 1)
        part = replace(whole, jobs=take_jobs(whole.jobs, np.flatnonzero(whole.jobs.arrival <= slot)))
        options = CAUSAL["history"]
        assert decided(whole, slot, options) == decided(part, slot, options)
    assert optim.verify(
        today, optim.solve(today, "online", options={"bounds": "history", "history": "medium-0-day1"})
    ).is_ok


def test_six_jobs_are_admitted_whatever_a_seventh_is_worth():
    jobs = [{"id": f"a{v}", "work": 2, "max_workers": 2, "worker": {"gpu": 1}, "value": v} for v in range(3, 9)]
    late = {"id": "late", "arrival": 3, "work": 1, "worker": {"gpu": 1}, "value": 1e6}

    def admitted(bounds: str, given: list) -> list[int]:
        cluster = {"horizon": 4, "worker_servers": [{"capacity": {"gpu": 4}}]}
        instance = optim.AdmissionInstance.from_jobs(given, **cluster)
        solution = optim.solve(instance, "online", options={"bounds": bounds})
        assert optim.verify(instance, solution).is_ok
        return solution.decision.admitted.tolist()

    assert admitted("seen", jobs) == [0, 1, 2, 3, 4, 5]
    assert admitted("seen", [*jobs, late]) == [0, 1, 2, 3, 4, 5, 6]
    assert admitted("oracle", jobs) == [0, 1, 2, 3, 4, 5]
    assert admitted("oracle", [*jobs, late])[:-1] == [0, 1, 2, 3]  # the future is read


class Recorded:
    """A policy whose answers are written down by slot and job's id."""

    def __init__(self, instance, policy):
        self.ids, self.policy, self.answers = instance.jobs.ids, policy, []

    def allocate(self, state):
        answer = self.policy.allocate(state)
        self.answers.append({self.ids[job]: (held.workers.tolist(), held.ps.tolist()) for job, held in answer.items()})
        return answer


@pytest.mark.parametrize("name", SLOT_SOLVERS)
def test_a_policy_by_slots_allocates_the_same_whatever_comes_later(name):
    solver = solver_named("admission", name)
    options = solver.options_type()
    for whole, part, slot in continued()[: 50 if name == "dorm" else None]:  # which solves programmes at each event
        found = []
        for instance in (whole, part):
            policy = Recorded(instance, solver.make_policy(instance, options, np.random.default_rng(0)))
            run_slots(instance, policy, Monitor())
            found.append(policy.answers[: slot + 1])
        assert found[0] == found[1]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (MappingProxyType({"bounds": "history"}), "history names the days that bounds=history learns from"),
        (MappingProxyType({"history": "medium-0-day1"}), "give both or neither"),
        (MappingProxyType({"bounds": "seen", "strict": True}), "needs eps"),
    ],
)
def test_a_source_says_what_it_lacks(options, said):
    with pytest.raises(InvalidOptionError, match=said):
        OnlineOptions(**options)


@pytest.mark.parametrize("mode", ["seen", "seen, exponential", "seen, in units"])
def test_bounds_of_the_jobs_seen_so_far_are_those_of_these_jobs_alone(mode):
    """For each job, the bounds equal those of an instance without other jobs."""
    options = CAUSAL[mode]
    for whole, _, _ in continued()[:60]:
        seen = make_seen(whole, options, job_value_stats(whole))
        for job in range(whole.num_jobs):
            seen.see(job)
            alone = replace(whole, jobs=take_jobs(whole.jobs, np.arange(job + 1)))
            known = make_bounds(alone, replace(options, bounds="oracle"), np.random.default_rng(0))
            for found, right in ((seen.ranges.worker, known.worker), (seen.ranges.ps, known.ps)):
                if len(job_value_stats(alone).jobs):
                    is_used = np.isfinite(right.log_lower)
                    assert (np.isfinite(found.log_lower) == is_used).all()
                    # Other scales are minima over jobs that include jobs not using the row: no theorem needs that.
                    assert (found.log_lower[is_used] >= right.log_lower[is_used] - 1e-9).all()
                    if mode == "seen":
                        assert found.log_lower[is_used] == pytest.approx(right.log_lower[is_used], rel=1e-12)
                    assert found.log_upper[is_used] == pytest.approx(right.log_upper[is_used], abs=2e-9)
