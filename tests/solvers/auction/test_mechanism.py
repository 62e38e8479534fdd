"""Agents and arbiter: eligible bidders, disjoint grants, the place of the leftover, and the cost of bidding."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.core.errors import InvalidOptionError, NotAllowedError
from optim.models.auction.codec import MachineDocument, cluster_from_documents
from optim.models.auction.fairness import AppProfile, Needs, Trial
from optim.models.auction.payment import share_leftover
from optim.models.files import verify
from optim.simulation.cluster.policies.themis.apps import AppAgent
from optim.solvers.auction.mechanism import Arbiter, ArbiterOptions, Ledger, Offer, ProfileAgent, bidders_of
from optim.solvers.solve import solve
from optim.workloads.auction.generator import GeneratorOptions, draw_profiles


def cluster(machines=4, gpus=8):
    return cluster_from_documents([MachineDocument(rack=0, slots=[gpus], count=machines)])


def agents(number, where, seed=0):
    options = GeneratorOptions(num_apps=number, num_gpus=where.num_gpus, num_machines=where.num_machines)
    profiles = draw_profiles(options, where, np.random.default_rng(seed))
    return [ProfileAgent(f"a{i}", profile) for i, profile in enumerate(profiles)]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), max_size=12))
def test_no_sequence_of_grants_overlaps(requests):
    ledger, taken = Ledger(np.array([4, 2, 0, 3])), [0, 0, 0, 0]
    for slot, count in requests:
        try:
            grant = ledger.grant("a", ((slot, count),), 20.0)
        except NotAllowedError:
            assert taken[slot] + count > [4, 2, 0, 3][slot]
        else:
            for s, k in grant.entries:
                taken[s] += k
    assert [t + left for t, left in zip(taken, ledger.left, strict=True)] == [4, 2, 0, 3]


def test_a_grant_that_doesnt_fit_takes_nothing():
    ledger = Ledger(np.array([4, 1]))
    with pytest.raises(NotAllowedError, match="2 GPUs of slot 1 can't be granted to 'a': 1 are left"):
        ledger.grant("a", ((0, 4), (1, 2)), 20.0)
    assert ledger.left == (4, 1)


@pytest.mark.parametrize(("fairness", "number"), [(0.0, 10), (0.8, 2), (0.95, 1), (1.0, 1)])
def test_the_worst_apps_may_bid(fairness, number):
    rho = {f"a{i}": float(i) for i in range(10)}
    bidders = bidders_of(rho, fairness)
    assert bidders == tuple(f"a{i}" for i in range(9, 9 - number, -1))


def test_a_fairness_of_zero_is_the_auction_of_all():
    where = cluster()
    held = Arbiter(ArbiterOptions(fairness=0.0)).hold(where, agents(6, where))
    assert set(held.bidders) == {f"a{i}" for i in range(6)}
    assert held.solution.objective == solve(held.instance, "exact").objective
    assert verify(held.instance, held.solution).is_ok


@pytest.mark.parametrize("fairness", [0.0, 0.5, 0.8, 1.0])
def test_grants_lie_within_the_offer_and_every_agent_hears_of_its_own(fairness):
    where = cluster()
    crew = agents(8, where)
    held = Arbiter(ArbiterOptions(fairness=fairness)).hold(where, crew, seed=1)
    used = np.zeros(4, dtype=int)
    for grant in held.grants:
        for slot, count in grant.entries:
            used[slot] += count
    assert (used + np.array(held.idle) == where.slot_free).all()
    for agent in crew:
        assert tuple(agent.grants) == tuple(grant for grant in held.grants if grant.app == agent.name)


def test_what_payments_leave_goes_to_apps_outside_first():
    where = cluster()
    held = Arbiter(ArbiterOptions(fairness=0.5)).hold(where, agents(8, where), seed=1)
    paid = held.solution.decision.granted_gpus(len(held.bidders)).sum()
    outside = sum(grant.num_gpus for grant in held.grants if grant.app not in held.bidders)
    assert outside > 0
    assert paid + outside <= where.num_free


def test_a_bidder_whose_demand_is_met_gets_nothing_of_the_leftover():
    """A single app keeps its entire bundle; it can use 4 GPUs of 8."""
    where = cluster(machines=2, gpus=4)
    trial = Trial(work_min=100.0, total_work_min=100.0, max_gpus=4)
    agent = ProfileAgent("a", AppProfile(elapsed_min=0.0, active_apps=1.0, trials=(trial,)))
    held = Arbiter(ArbiterOptions(fairness=0.0)).hold(where, [agent])
    assert sum(grant.num_gpus for grant in held.grants) == 4
    assert sum(held.idle) == 4


def test_an_app_bids_for_no_more_than_its_demand_less_what_it_holds():
    trial = Trial(work_min=100.0, total_work_min=100.0, max_gpus=6)
    profile = AppProfile(elapsed_min=0.0, active_apps=1.0, trials=(trial,), held_gpus=4)
    bid = ProfileAgent("a", profile).bid(Offer(cluster=cluster(), lease_min=20.0))
    assert {k for k, _, _ in bid.table.rows} == {1, 2}


def test_leftover_goes_by_what_bidders_want_beside_their_wins_and_where_these_lie(monkeypatch):
    asked = []

    def share(cluster, free, wanted, gang, holds, rng):
        asked.append((list(wanted), [sorted(holds(k)) for k in range(len(wanted))]))
        return share_leftover(cluster, free, wanted, gang, holds, rng)

    monkeypatch.setattr("optim.solvers.auction.mechanism.share_leftover", share)
    where = cluster(machines=2, gpus=4)
    trial = Trial(work_min=100.0, total_work_min=100.0, max_gpus=8)
    crew = [ProfileAgent(name, AppProfile(elapsed_min=0.0, active_apps=2.0, trials=(trial,))) for name in "ab"]
    held = Arbiter(ArbiterOptions(fairness=0.0)).hold(where, crew)
    plan = held.solution.decision
    machines = [sorted(plan.grants[plan.grants[:, 0] == i, 1].tolist()) for i in (0, 1)]  # one slot each
    wins = plan.granted_gpus(2)
    assert (wins > 0).all()
    assert asked == [([8 - int(won) for won in wins], machines)]


def wide(max_gpus=8, **fields):
    """An app of one trial."""
    trial = Trial(work_min=100.0, total_work_min=100.0, max_gpus=max_gpus)
    return AppProfile(**{"elapsed_min": 0.0, "active_apps": 2.0, "trials": (trial,), **fields})


def test_leftovers_are_drawn_by_seed_and_round(monkeypatch):
    drawn = []

    def share(cluster, free, wanted, gang, holds, rng):
        drawn.append(float(rng.random()))
        return share_leftover(cluster, free, wanted, gang, holds, rng)

    monkeypatch.setattr("optim.solvers.auction.mechanism.share_leftover", share)
    where = cluster(machines=2, gpus=4)
    for seed, round_number in ((0, 0), (0, 1), (1, 0), (0, 0)):
        Arbiter(ArbiterOptions(fairness=1.0)).hold(
            where, [ProfileAgent(n, wide(max_gpus=2)) for n in "abc"], seed=seed, round_number=round_number
        )
    rounds = [drawn[k : k + 2] for k in range(0, len(drawn), 2)]
    assert rounds[0] == rounds[3]
    assert len({values[0] for values in rounds}) == 3


def test_an_app_outside_the_filter_gets_leftovers_beside_the_gpus_it_holds():
    where = cluster_from_documents([MachineDocument(rack=0, slots=[4], free=[2]), MachineDocument(rack=0, slots=[4])])
    outside = ProfileAgent("z", wide(max_gpus=4))
    outside.hold(where, [(0, 2)])
    bidder = ProfileAgent("a", wide(max_gpus=2, elapsed_min=1e5))
    held = Arbiter(ArbiterOptions(fairness=1.0)).hold(where, [bidder, outside])
    assert held.bidders == ("a",)
    mine = {slot for grant in held.grants if grant.app == "z" for slot, _ in grant.entries}
    theirs = {slot for grant in held.grants if grant.app == "a" for slot, _ in grant.entries}
    assert mine == ({0} if theirs == {1} else {1})
    assert sum(grant.num_gpus for grant in held.grants if grant.app == "z") == 2


def test_an_app_whose_demand_is_met_takes_nobodys_place():
    where = cluster_from_documents([MachineDocument(rack=0, slots=[8], free=[4])])
    met = ProfileAgent("a", wide(max_gpus=4, elapsed_min=1e6))
    met.hold(where, [(0, 4)])
    needy = ProfileAgent("b", wide(max_gpus=4))
    held = Arbiter(ArbiterOptions(fairness=1.0)).hold(where, [met, needy])
    assert held.bidders == ("b",)
    assert [(grant.app, grant.num_gpus) for grant in held.grants] == [("b", 4)]
    alone = Arbiter().hold(where, [met])
    assert alone.bidders == ()
    assert alone.grants == ()
    assert alone.idle == (4,)


def test_a_limit_and_a_stop_end_an_auction_with_what_it_has():
    where = cluster(machines=8)
    limited = Arbiter(ArbiterOptions(fairness=0.0, time_limit_s=0.0)).hold(where, agents(12, where))
    assert verify(limited.instance, limited.solution).is_ok
    asked = []

    class Counting:
        def __call__(self, state):
            asked.append(state)

        def remaining_s(self, elapsed_s):
            return float("inf")

    Arbiter(ArbiterOptions(fairness=0.0, solver="greedy")).hold(where, agents(12, where), stop=Counting())
    assert asked


def test_an_app_of_several_gangs_bids_for_their_sums_and_keeps_what_it_can_use():
    trials = tuple(Trial(work_min=100.0, total_work_min=100.0, max_gpus=gang) for gang in (3, 5))
    profile = AppProfile(elapsed_min=0.0, active_apps=1.0, trials=trials, gangs=(3, 5))
    bid = ProfileAgent("a", profile).bid(Offer(cluster=cluster(), lease_min=20.0))
    assert {k for k, _, _ in bid.table.rows} == {3, 5, 8}
    assert [bid.usable(gpus) for gpus in (2, 4, 7, 9)] == [0, 3, 5, 8]
    where = cluster(machines=1, gpus=8)
    crew = [ProfileAgent("a", profile), ProfileAgent("b", wide(max_gpus=8))]
    for rule in ("floor", "nearest"):
        held = Arbiter(ArbiterOptions(fairness=0.0, solver_options={"rule": rule})).hold(where, crew)
        mine = sum(grant.num_gpus for grant in held.grants[:1] if grant.app == "a")
        assert mine in (0, 3, 5, 8)


def test_a_profile_ages_with_its_rivals_and_what_it_holds():
    where = cluster()
    agent = ProfileAgent("a", wide(max_gpus=4, elapsed_min=10.0))
    before = agent.rho(where)
    agent.advance(10.0, active_apps=6.0)
    assert (agent.profile.elapsed_min, agent.profile.active_apps) == (20.0, 4.0)
    assert agent.profile.work_min == 100.0
    assert agent.rho(where) < before  # rho of N_avg 4, not 2, over an elapsed time that counts little
    agent.hold(where, [(0, 4)])
    agent.advance(10.0, active_apps=4.0)
    assert agent.profile.work_min == pytest.approx(60.0)
    agent.advance(100.0, active_apps=4.0)
    assert 0 < agent.profile.work_min <= 0.01
    assert agent.wanted() == 0


@pytest.mark.parametrize("gangs", [(), (3, 5)])
def test_apps_without_gpus_tell_rho_with_one_gang_whoever_asks(gangs):
    """As a profile, and as a simulated app: 30 elapsed and 120 serial minutes on its smallest gang, over 2 x 120 / 8."""
    where, gang = cluster(machines=1, gpus=8), min(gangs, default=4)
    needs = Needs(
        work_min=120.0, longest_min=1.0, demand=8, total_work_min=120.0, total_longest_min=1.0, total_demand=8
    )
    trials = (Trial(work_min=120.0, total_work_min=120.0, max_gpus=8),)
    profile = AppProfile(elapsed_min=30.0, active_apps=2.0, trials=trials, gang=1 if gangs else gang, gangs=gangs)
    told = [ProfileAgent("a", profile).rho(where), AppAgent(0, replace(profile, trials=(), needs=needs)).rho(where)]
    assert told == pytest.approx([(30 + 120 / gang) / (2 * 120 / 8)] * 2)


@pytest.mark.parametrize("rivals", [1.0, 0.0])
def test_an_app_is_active_itself_however_few_others_are(rivals):
    agent = ProfileAgent("a", wide(max_gpus=4, elapsed_min=10.0, active_apps=1.0))
    agent.advance(10.0, active_apps=rivals)
    assert agent.profile.active_apps == 1.0


def test_leftover_prefers_machines_that_an_app_uses_and_keeps_to_gangs():
    where = cluster(machines=3, gpus=4)
    given = share_leftover(where, np.array([1, 2, 3]), [2, 4], [2, 4], [[1], [0]].__getitem__, np.random.default_rng(0))
    by_app = {i: [(s, k) for a, s, k in given.tolist() if a == i] for i in (0, 1)}
    assert by_app[0] == [(1, 2)]
    assert sum(k for _, k in by_app[1]) in (0, 4)


def test_bidding_is_recorded_and_negligible_beside_a_lease():
    where = cluster(machines=32)
    held = Arbiter(ArbiterOptions(fairness=0.0)).hold(where, agents(32, where))
    assert set(held.prepare_s) == set(held.rows) == set(held.bidders)
    assert all(rows > 0 for rows in held.rows.values())
    assert max(held.prepare_s.values()) < 20 * 60 / 100


def test_a_scheduler_may_kill_trials_between_auctions():
    class Halving:
        def jobs(self):
            return (Trial(work_min=10.0, total_work_min=50.0, max_gpus=8),)

    where = cluster()
    (agent,) = agents(1, where)
    short = ProfileAgent("b", agent.profile, Halving())
    offer = Offer(cluster=where, lease_min=20.0)
    assert max(k for k, _, _ in short.bid(offer).table.rows) <= 8
    halved = replace(agent.profile, trials=Halving().jobs())
    assert short.rho(where) == ProfileAgent("c", halved).rho(where) != agent.rho(where)


def test_refuses_options_out_of_range():
    with pytest.raises(InvalidOptionError, match="fairness must be in"):
        ArbiterOptions(fairness=1.5)
    with pytest.raises(InvalidOptionError, match="lease_min must be positive"):
        ArbiterOptions(lease_min=0.0)
