"""The apps' work under an auction's leases, and the effect of lateness on fairness; tests of the command cover execution."""

import math
from dataclasses import replace

import numpy as np
import pytest

import optim
from optim.core.errors import UnsupportedProblemError
from optim.models.auction.codec import (
    AppDocument,
    AuctionDocument,
    HeldDocument,
    MachineDocument,
    ProfileDocument,
    SlowdownDocument,
    TrialDocument,
)
from optim.models.auction.data import Horizon
from optim.models.auction.problem import PROBLEM
from optim.simulation.emulation import auction_run
from optim.simulation.emulation.auction_run import lease_row, log_welfare, read_leases, run_leases
from optim.simulation.emulation.job_run import JobRow, PlanOptions
from tests.support.auction.builders import auction


def instance_of(free=4, **fields):
    """Two machines of four GPUs in two racks; an app of 120 serial minutes, submitted ten minutes ago."""
    profile = ProfileDocument(
        elapsed_min=10.0,
        active_apps=2.0,
        trials=[TrialDocument(work_min=120.0, total_work_min=120.0, max_gpus=6)],
        slowdown=SlowdownDocument(slot=1.0, machine=1.0, rack=1.25, cluster=1.5),
        **fields,
    )
    return PROBLEM.instance_from_document(
        AuctionDocument(
            schema="optim/auction/1",
            name="leases",
            machines=[MachineDocument(rack=0, slots=[4], free=[free]), MachineDocument(rack=1, slots=[4])],
            apps=[AppDocument(id="a", gang=1, profile=profile)],
            lease_min=20.0,
        )
    )


class Plan:
    """The grants of a decision."""

    def __init__(self, *grants):
        self.grants = np.array(grants).reshape(-1, 3)


def test_a_lease_holds_what_its_gpus_do_at_the_speed_of_their_placement():
    instance = instance_of()
    (near,) = read_leases(instance, Plan((0, 0, 3)))
    assert (near.gpus, near.placement, near.left_min) == (3, "slot", 40.0)
    assert near.work_min(20.0) == pytest.approx(60.0)
    # Over two racks a step takes half as long again: four GPUs are no faster than 4 / 1.5.
    (far,) = read_leases(instance, Plan((0, 0, 2), (0, 1, 2)))
    assert (far.gpus, far.placement) == (4, "cluster")
    assert far.left_min == pytest.approx(120 * 1.5 / 4)
    # Beyond its demand an app is no faster, and a lease holds no more than is left.
    (wide,) = read_leases(instance, Plan((0, 0, 4), (0, 1, 4)))
    assert wide.left_min == pytest.approx(120 * 1.5 / 6)
    assert wide.work_min(20.0) == pytest.approx(80.0)
    assert wide.work_min(500.0) == 120.0


def test_gpus_held_before_train_along():
    (lease,) = read_leases(instance_of(free=3, held=HeldDocument(places=[(0, 1)])), Plan((0, 0, 2)))
    assert (lease.gpus, lease.placement, lease.left_min) == (3, "slot", 40.0)


def test_a_lease_is_a_plan_of_one_slot():
    instance = instance_of()
    (far,) = read_leases(instance, Plan((0, 0, 2), (0, 1, 2)))
    plan = far.job_plan(instance.lease_min)
    assert plan.machines == {0: (4, 1)}
    assert plan.speeds == pytest.approx([1 / 1.5, 2 / 1.5, 2.0, 4 / 1.5])
    assert plan.link_share == pytest.approx(1 / 3)
    assert plan.planned_slots == pytest.approx(1.0)
    # 120 serial minutes by six GPUs at 2/3 of their speed: half a lease of an hour.
    (wide,) = read_leases(instance, Plan((0, 0, 4), (0, 1, 4)))
    assert wide.job_plan(60.0).planned_slots == pytest.approx(0.5)


@pytest.mark.parametrize("stretch", [1.0, 1.5])
def test_rho_is_that_of_the_horizon_at_the_pace_that_was_realised(stretch):
    instance = instance_of()
    (lease,) = read_leases(instance, Plan((0, 0, 3)))
    ideal = 2.0 * 120 / 6
    assert lease.rho(instance, stretch) == pytest.approx((10 + 40 * stretch) / ideal)
    # For one lease, then by a share of four GPUs (all eight, in two) in the best place: thirty minutes for everything.
    bound = replace(instance, horizon=Horizon.LEASE)
    assert lease.rho(bound, stretch) == pytest.approx((10 + 20 + (1 - 20 / (40 * stretch)) * 30) / ideal)


def test_a_lease_that_takes_half_as_long_again_is_worth_what_rho_says_at_that_pace():
    instance = instance_of()
    (lease,) = read_leases(instance, Plan((0, 0, 3)))
    assert auction_run._value(instance, lease, 2.0, 3.0) == pytest.approx(1 / lease.rho(instance, 1.5))


def row(realised, planned_utility=2.0, realised_utility=1.0):
    """Return a job's row; fields other than the arguments don't matter here."""
    return JobRow(
        job="a", application="x", planned_slots=1.0, realised_slots=realised, error=None, planned_utility=planned_utility,
        realised_utility=realised_utility, clocks=1, gradients=1, changes=0, first_loss=None, last_loss=None, is_exact=None,
    )  # fmt: skip


def test_what_is_late_is_not_done_within_the_lease():
    instance = instance_of()
    (lease,) = read_leases(instance, Plan((0, 0, 3)))
    early, late, never = (lease_row(instance, lease, row(realised)) for realised in (0.9, 1.25, None))
    assert (early.planned_min, early.realised_min) == (60.0, 60.0)
    assert late.realised_min == pytest.approx(48.0)
    assert (never.realised_min, never.realised_rho) == (None, None)
    assert (late.planned_rho, late.realised_rho, late.gpus, late.placement) == (0.5, 1.0, 3, "slot")
    assert log_welfare([early, late]) == pytest.approx((2 * math.log(2), 0.0))
    assert log_welfare([early, never]) is None


class Ended:
    """A job's run that took a given multiple of its plan."""

    def __init__(self, plan, times):
        self.plan, self.times = plan, times

    def row(self, planned_utility, utility_at):
        realised = self.times * self.plan.planned_slots
        return replace(row(realised), planned_utility=planned_utility, realised_utility=utility_at(realised))


def test_each_app_has_a_row_with_what_its_lateness_costs(monkeypatch):
    asked = {}

    def play(jobs, options, *, scale, is_stopped, on_slot, on_paused):
        asked.update(scale=scale, options=options)
        return tuple(Ended(job, 1.5) for job in jobs)

    monkeypatch.setattr(auction_run, "play_jobs", play)
    (found,) = run_leases(instance_of(), Plan((0, 0, 3)), PlanOptions(slot_s=4.0))
    assert asked["scale"] == pytest.approx(4.0 / 1200)
    assert found.planned_utility == pytest.approx(40 / 50)
    assert found.realised_utility == pytest.approx(40 / 70)
    assert (found.planned_rho, found.realised_rho) == pytest.approx((50 / 40, 70 / 40))


def test_bids_alone_do_not_say_how_much_work_there_is():
    with pytest.raises(UnsupportedProblemError, match="bids without profiles"):
        read_leases(auction([4], [(1, "slot", 2.0)]), Plan((0, 0, 1)))


def test_the_reference_auctions_leases_are_those_of_its_grants():
    instance = optim.reference_instance("auction-tiny-0")
    decision = optim.solve(instance, "exact").decision
    leases = read_leases(instance, decision)
    assert {lease.app: lease.gpus for lease in leases} == {
        app: count for app, count in enumerate(decision.granted_gpus(6).tolist()) if count
    }
