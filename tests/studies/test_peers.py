"""The study `peers`: adapters against known optima, classes repaired, and the summary worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest
from optim_studies.peer_solvers import (
    CP_SAT_UNIT,
    PEERS,
    ProcessorLimit,
    classes_as_servers,
    on_single_servers,
    solve_by_peer,
    why_missing,
)
from optim_studies.peers import (
    REPORTED_SEEDS,
    ahead_of_ours,
    draw,
    family_instance,
    markdown,
    standings,
)

from optim.benchmarks.records import Record
from optim.benchmarks.suite import SUITES, BenchRequest, Skipped
from optim.core.errors import InvalidOptionError, MissingDependencyError
from optim.core.progress import SilentProgress
from optim.core.solution import PointStatus, Sense, Solution, Termination
from optim.core.stopping import Never, SolveState
from optim.models.admission.decision import AdmissionPlan
from optim.models.files import verify
from optim.models.reference import reference_instance, reference_solution
from optim.solvers.solve import solve
from optim.workloads.admission.generator import GeneratorOptions, generate
from optim.workloads.instances import NamedSource

LIMIT_S = 60.0
"""Peers take less than a second on the tiny instances."""


def checked_value(instance, plan):
    solution = Solution(
        problem="admission",
        instance=instance.name,
        solver="peer",
        sense=Sense.MAXIMISE,
        termination=Termination.COMPLETED,
        primal=PointStatus.FEASIBLE,
        decision=plan,
        objective=plan.objective(instance),
    )
    assert verify(instance, solution).is_ok
    return solution.objective


def skip_without(peer):
    reason = why_missing(peer)
    if reason is not None:
        pytest.skip(reason)


@pytest.mark.parametrize("peer", PEERS)
@pytest.mark.parametrize("name", ["tiny-0", "tiny-1", "tiny-2"])
def test_a_peer_finds_the_optimum_that_enumeration_proved(peer, name):
    skip_without(peer)
    instance, optimum = reference_instance(name), reference_solution(name).objective
    answer = solve_by_peer(peer, instance, lambda: ProcessorLimit.of(LIMIT_S))
    assert answer.claims_optimal
    assert not answer.on_classes
    assert answer.termination is Termination.COMPLETED
    assert checked_value(instance, answer.plan) == pytest.approx(optimum, rel=1e-6)
    assert answer.claimed_bound >= optimum - 1e-9
    assert answer.claimed_bound <= optimum * (1 + 1e-6) + CP_SAT_UNIT * instance.num_jobs


SHARED = generate(
    GeneratorOptions(
        num_jobs=5, num_slots=5, num_worker_servers=2, num_ps_servers=1, chunks=(1, 3), shared_servers=True
    ),
    seed=2,
)
"""Both sides on three servers, solved by branch and price in a moment."""


@pytest.fixture(scope="module")
def shared_optimum():
    """Value that branch and price proves."""
    proven = solve(SHARED, "branch-and-price", time_limit_s=LIMIT_S)
    assert proven.termination is Termination.OPTIMAL
    return proven.objective


@pytest.mark.parametrize("peer", PEERS)
def test_a_peer_on_shared_servers_agrees_with_branch_and_price(peer, shared_optimum):
    skip_without(peer)
    answer = solve_by_peer(peer, SHARED, lambda: ProcessorLimit.of(LIMIT_S))
    assert answer.claims_optimal
    assert checked_value(SHARED, answer.plan) == pytest.approx(shared_optimum, rel=2e-6)


def test_a_record_states_what_is_proven_and_what_a_peer_claims():
    work = request(solvers=("branch-and-price", "highs"), sources=(NamedSource("tiny-0"),))
    ours, theirs = (each.run(Never(), SilentProgress()) for each in work)
    assert (ours.measures["end"], theirs.measures["end"]) == ("proven", "claimed")
    assert ours.verified
    assert theirs.verified
    assert theirs.bound is None
    assert theirs.objective == pytest.approx(ours.objective)
    assert theirs.processor_s >= 0


@pytest.mark.parametrize("peer", PEERS)
def test_a_limit_of_no_time_leaves_a_valid_plan(peer):
    skip_without(peer)
    instance = reference_instance("small-2")
    answer = solve_by_peer(peer, instance, lambda: ProcessorLimit.of(0.2))
    assert answer.termination is Termination.TIME_LIMIT
    assert not answer.claims_optimal
    assert checked_value(instance, answer.plan) >= 0
    if answer.claimed_bound is not None:
        assert answer.claimed_bound >= reference_solution("small-2").objective * (1 - 1e-9)


def test_programme_on_classes_bounds_the_optimum_and_its_plan_is_repaired(monkeypatch):
    monkeypatch.setattr("optim_studies.peer_solvers.MAX_VARIABLES", 0)
    for name in ("tiny-0", "tiny-1", "tiny-2"):
        instance, optimum = reference_instance(name), reference_solution(name).objective
        answer = solve_by_peer("highs", instance, lambda: ProcessorLimit.of(LIMIT_S))
        assert answer.on_classes
        assert not answer.claims_optimal
        assert answer.claimed_bound >= optimum * (1 - 1e-9)
        assert 0 < checked_value(instance, answer.plan) <= optimum * (1 + 1e-9)


def test_classes_as_servers_keep_capacity_and_sharing():
    for name in ("small-2", "shared-0"):
        instance = reference_instance(name)
        whole = classes_as_servers(instance)
        assert whole.has_shared_servers == instance.has_shared_servers
        for one, many in ((whole.worker_servers, instance.worker_servers), (whole.ps_servers, instance.ps_servers)):
            assert (one.count == 1).all()
            single = many.capacity[many.class_of_server]
            by_class = [single[many.class_of_server == c].sum(axis=0) for c in range(len(many.count))]
            assert np.array_equal(one.capacity, np.array(by_class))


def test_repair_keeps_a_plan_of_single_server_classes():
    """small-1 has one server per class, so that its best plan is one over classes."""
    instance, best = reference_instance("small-1"), reference_solution("small-1")
    assert set(instance.worker_servers.count.tolist()) == {1}
    repaired = on_single_servers(instance, best.decision)
    assert checked_value(instance, repaired) == pytest.approx(best.objective, rel=1e-12)


def test_processor_limit_counts_from_when_it_was_made():
    state = SolveState(elapsed_s=1e9)
    rule = ProcessorLimit.of(1e3)
    assert rule(state) is None
    assert 999 < rule.remaining_s(1e9) <= 1e3
    spent = replace(rule, begun_s=rule.begun_s - 1e3)
    assert spent(state) is Termination.TIME_LIMIT
    assert spent.remaining_s(0.0) == 0.0


def request(**fields):
    return list(SUITES.get("peers").build(BenchRequest(**fields)))


def test_families_have_their_sizes_and_share_servers_where_the_seed_is_a_multiple_of_three():
    for family, jobs, slots, servers in (("16", 16, 12, 6), ("30", 30, 18, 8), ("50", 50, 24, 10)):
        for seed in (99, 100):
            instance = family_instance(family, "medium", seed)
            assert (instance.num_jobs, instance.horizon) == (jobs, slots)
            sides = {id(side): side for side in (instance.worker_servers, instance.ps_servers)}.values()
            assert sum(int(side.count.sum()) for side in sides) == servers
            assert instance.has_shared_servers == (seed == 99)
    assert sum(seed % 3 == 0 for seed in REPORTED_SEEDS) == 3


def test_suite_lists_every_cell_once_and_names_what_is_missing():
    entries = request(size="full", seeds=(100, 101), solvers=("search", "highs"))
    assert len({entry.key for entry in entries}) == len(entries) == 2 * 9 * 3 * 2
    some = request(size="full", options={"families": "30", "loads": "heavy", "limits": "7"}, solvers=("search",))
    assert [(entry.subject.name, entry.time_limit_s) for entry in some] == [("30-heavy-0", 7.0)]
    assert request(time_limit_s=3.0, solvers=("search",))[0].time_limit_s == 3.0


def test_a_peer_that_is_not_installed_is_left_out_with_the_remedy(monkeypatch):
    monkeypatch.setattr("optim_studies.peer_solvers.find_spec", lambda module: None)
    (skipped,) = request(solvers=("scip",))
    assert isinstance(skipped, Skipped)
    assert "studies[peers]" in skipped.reason
    with pytest.raises(MissingDependencyError, match="ortools"):
        solve_by_peer("cp-sat", reference_instance("tiny-0"), Never)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"families": "17"}, "17"),
        ({"loads": "idle"}, "idle"),
        ({"limits": "ten"}, "ten"),
        ({"limits": "-1"}, "-1"),
        ({"clock": "sun"}, "sun"),
        ({"threads": 0}, "0"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_refuses_wrong_options(options, word):
    with pytest.raises(InvalidOptionError, match=word):
        request(options=options)


def test_refuses_unknown_solvers():
    with pytest.raises(InvalidOptionError, match="simplex"):
        request(solvers=("simplex",))


def row(instance, solver, objective, end, seconds, limit=10.0):
    return Record(
        suite="peers",
        problem="admission",
        instance=instance,
        solver=solver,
        seed=0,
        termination="time_limit",
        objective=objective,
        verified=end != "refused",
        processor_s=seconds,
        seconds={},
        labels={"family": "16", "load": "light", "limit": limit},
        measures={"end": end},
    )


ROWS = [
    row("a", "search", 90.0, "open", 10.0),
    row("a", "branch-and-price", 100.0, "proven", 3.0),
    row("a", "scip", 100.0, "claimed", 7.0),
    row("b", "search", 50.0, "open", 10.0),
    row("b", "branch-and-price", 40.0, "open", 10.0),
    row("b", "scip", 60.0, "open", 10.0),
    row("c", "search", 70.0, "open", 10.0),
    row("c", "scip", 99.0, "refused", 1.0),
]
"""Two solved by hand and one that the checker rejected."""


def test_standings_by_hand():
    rows = {each.solver: each for each in standings(ROWS)}
    assert rows["branch-and-price"].proven == 0.5
    assert rows["branch-and-price"].seconds == pytest.approx((4 * 11) ** 0.5 - 1)
    assert rows["branch-and-price"].to_best == pytest.approx((1 + 40 / 60) / 2)
    assert rows["branch-and-price"].behind == 1
    assert (rows["search"].behind, rows["search"].proven, rows["search"].claimed) == (2, 0, 0)
    assert rows["scip"].claimed == pytest.approx(1 / 3)
    assert rows["scip"].to_best == pytest.approx(2 / 3)
    assert rows["scip"].behind == 1
    assert rows["scip"].seconds == pytest.approx((8 * 11 * 11) ** (1 / 3) - 1)
    assert "| 10 | 16 | light | `scip` | 3 | 0% | 33% |" in markdown(standings(ROWS))


def test_lists_where_a_peer_is_ahead_of_all_of_ours():
    assert ahead_of_ours(ROWS) == ["b at 10 s: scip 60; ours 50"]


def test_draws_a_profile_for_each_limit_that_somebody_ended_within():
    pytest.importorskip("matplotlib")
    (figure,) = draw([*ROWS, row("a", "search", 1.0, "open", 1.0, limit=1.0)])
    assert "10 s" in figure.svg
    assert draw([ROWS[0]]) == []


def test_an_empty_programme_is_ended_by_every_peer():
    """No job can finish in time, so there is no decision."""
    instance = reference_instance("tiny-0")
    jobs = replace(instance.jobs, epochs=instance.jobs.epochs * 10_000)
    answer = solve_by_peer("highs", replace(instance, jobs=jobs), Never)
    assert answer.claims_optimal
    assert answer.claimed_bound == 0.0
    assert np.array_equal(answer.plan.admitted, AdmissionPlan.from_rows([], []).admitted)
