"""Rounds of leases with the apps' speeds: against a second account, with the offers and leftovers of each round."""

import math
from dataclasses import replace

import numpy as np
import pytest

import optim
from optim.core.errors import InvalidOptionError, UnsupportedProblemError
from optim.models.auction.codec import (
    AppDocument,
    AuctionDocument,
    HeldDocument,
    MachineDocument,
    ProfileDocument,
    SlowdownDocument,
    TrialDocument,
)
from optim.models.auction.fairness import Needs
from optim.models.auction.problem import PROBLEM
from optim.simulation.emulation.lease_rounds import (
    AppState,
    LeaseOutcome,
    RoundOptions,
    freed,
    profile_model,
    run_rounds,
    total_error,
)

LEASE_MIN = 20.0


def app(name, work_min, gpus, elapsed_min=0.0, **fields):
    trials = [TrialDocument(work_min=work_min, total_work_min=work_min, max_gpus=gpus)]
    slowdown = SlowdownDocument(slot=1.0, machine=1.0, rack=1.25, cluster=1.5)
    profile = ProfileDocument(elapsed_min=elapsed_min, active_apps=2.0, trials=trials, slowdown=slowdown, **fields)
    return AppDocument(id=name, gang=1, profile=profile)


def instance_of(*apps, gpus=4, free=None):
    machine = MachineDocument(rack=0, slots=[gpus], free=[gpus if free is None else free])
    return PROBLEM.instance_from_document(
        AuctionDocument(
            schema="optim/auction/1", name="rounds", machines=[machine], apps=list(apps), lease_min=LEASE_MIN
        )
    )


class Plan:
    """The grants of a decision."""

    def __init__(self, *grants):
        self.grants = np.array(grants).reshape(-1, 3)


def played(instance, plan, rounds, play=None, fairness=0.0):
    options = RoundOptions(rounds=rounds, fairness=fairness)
    return run_rounds(instance, plan, options, play or profile_model(LEASE_MIN))


def test_one_app_alone_goes_on_until_its_work_is_done():
    """130 serial minutes on two GPUs, then on all three that the app can use: 40 + 60 + 30, the last in half a lease."""
    rows, states = played(instance_of(app("a", 130.0, 3, elapsed_min=5.0)), Plan((0, 0, 2)), 9)
    assert [(row.round, row.gpus, row.left_min, row.planned_min) for row in rows] == [
        (0, 2, 130.0, 40.0),
        (1, 3, 90.0, 60.0),
        (2, 3, pytest.approx(30.0), pytest.approx(30.0)),
    ]
    assert [row.error for row in rows] == pytest.approx([0.0] * 3)
    state = states[0]
    assert (state.finish_min, state.leases) == (pytest.approx(50.0), 3)
    # Two apps on the mean for five minutes, then it alone for fifty; the ideal is that many times all its work on its GPUs.
    active = (2.0 * 5 + 1.0 * 50) / 55
    assert state.rho(instance_of(app("a", 130.0, 3)).cluster) == pytest.approx(55 / (active * 130 / 3))


def test_every_round_deals_out_all_gpus_that_apps_can_use_and_an_app_that_is_done_has_none():
    instance = instance_of(app("a", 60.0, 2), app("b", 500.0, 3), app("c", 20.0, 1))
    rows, states = played(instance, Plan((0, 0, 2), (1, 0, 1), (2, 0, 1)), 6)
    for number in range(6):
        own = [row for row in rows if row.round == number]
        demand = {"a": 2, "b": 3, "c": 1}
        assert all(0 < row.gpus <= demand[row.app] for row in own)
        live = [name for app, name in enumerate("abc") if (states[app].finish_min or math.inf) > LEASE_MIN * number]
        assert {row.app for row in own} <= set(live)
        assert sum(row.gpus for row in own) == min(4, sum(demand[name] for name in live))
    for number, name in enumerate("abc"):
        own = [row for row in rows if row.app == name]
        total = math.fsum(row.realised_min for row in own)
        assert states[number].left == pytest.approx(1 - total / states[number].work_min, abs=1e-12)
        assert [row.left_min for row in own] == pytest.approx(
            [states[number].work_min - math.fsum(r.realised_min for r in own[:k]) for k in range(len(own))]
        )
    assert states[2].finish_min == 20.0
    assert (states[1].finish_min, states[1].rho(instance.cluster)) == (None, None)


def test_later_rounds_start_from_what_was_really_done():
    instance = instance_of(app("a", 100.0, 2), app("b", 100.0, 4))
    plan = Plan((0, 0, 2), (1, 0, 2))

    def slow(number, leases):
        return [
            LeaseOutcome(done_min=0.25 * lease.work_min(LEASE_MIN) if lease.name == "a" else lease.work_min(LEASE_MIN))
            for lease in leases
        ]

    rows, states = played(instance, plan, 3, slow)
    first, second = ([row for row in rows if row.app == name] for name in "ab")
    assert [row.left_min for row in first[:2]] == [100.0, 90.0]
    assert [row.error for row in first] == pytest.approx([-0.75] * len(first))
    assert [row.error for row in second] == [0.0] * len(second)
    assert states[0].left > states[1].left
    assert total_error(rows) == pytest.approx(
        sum(row.realised_min for row in rows) / sum(row.planned_min for row in rows) - 1
    )
    assert total_error([]) is None
    assert states[0].minutes == 60.0


def test_what_is_held_is_used_in_the_first_round_and_on_offer_after_it():
    holding = app("b", 400.0, 4, held=HeldDocument(places=[(0, 1)]))
    instance = instance_of(app("a", 400.0, 1), holding, free=2)
    assert freed(instance).slot_free.tolist() == [3]
    rows, _ = played(instance, Plan((0, 0, 1)), 2)
    assert [(row.round, row.app, row.gpus) for row in rows] == [(0, "a", 1), (0, "b", 1), (1, "a", 1), (1, "b", 2)]


def test_with_fairness_those_who_are_worst_off_bid_and_the_others_take_what_is_left():
    instance = instance_of(app("old", 4000.0, 4, elapsed_min=9000.0), app("new", 4000.0, 4))
    plan = Plan((1, 0, 4))
    (unfair,) = [row for row in played(instance, plan, 2, fairness=1.0)[0] if row.round == 1]
    assert (unfair.app, unfair.gpus) == ("old", 4)
    both = [row for row in played(instance, plan, 2, fairness=0.0)[0] if row.round == 1]
    # If both bid, GPUs go to the app whose rho they lower most: of 9,000 past minutes, no app can recover any.
    assert [(row.app, row.gpus) for row in both] == [("new", 4)]


def test_the_present_of_an_app_is_that_of_its_agent_after_as_much_time():
    """The state equals that of `ProfileAgent.advance`, which advances an app exactly as its profile predicts."""
    from optim.models.auction.bids import with_allocation
    from optim.solvers.auction.mechanism import ProfileAgent

    instance = optim.reference_instance("auction-tiny-0")
    for app_number, profile in enumerate(instance.profiles):
        agent = ProfileAgent("a", with_allocation(profile, instance.cluster, [(0, 2)]))
        left = profile.work_min
        agent.advance(LEASE_MIN, 5.0)
        state = AppState(
            profile=profile, left=agent.profile.work_min / left, minutes=LEASE_MIN, apps_minutes=5.0 * LEASE_MIN
        )
        present = state.present(instance.cluster)
        assert present.elapsed_min == pytest.approx(agent.profile.elapsed_min), app_number
        assert present.active_apps == pytest.approx(agent.profile.active_apps)
        assert [t.work_min for t in present.trials] == pytest.approx([t.work_min for t in agent.profile.trials])
        assert (present.held_gpus, present.held_places) == (0, ())


def test_wrong_use_is_told():
    with pytest.raises(InvalidOptionError, match="rounds"):
        RoundOptions(rounds=0)
    with pytest.raises(InvalidOptionError, match="fairness"):
        RoundOptions(fairness=1.5)
    instance = instance_of(app("a", 10.0, 2))
    needs = Needs(work_min=10.0, longest_min=5.0, demand=2, total_work_min=10.0, total_longest_min=5.0, total_demand=2)
    known = replace(instance, profiles=(replace(instance.profiles[0], trials=(), needs=needs),))
    with pytest.raises(UnsupportedProblemError, match="needs without trials"):
        played(known, Plan((0, 0, 1)), 2)
