"""`deadline-dp` is never late, for any traces and hazards, in back-tests and in a user's launcher."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.deadlines import DeadlinePolicy, DeadlineView, Machines, SpellHazards, SpellWatch
from optim.models.bidding.market.billing import Billing
from optim.models.bidding.market.spells import decision_s, prior_hazards
from optim.simulation.spot.deadline_zones import DeadlineProgramme
from optim.simulation.spot.zones import facts_of, run_zones
from tests.support.spot.zones import drawn, drawn_in_seconds, zone_job, zone_market


def wrong_hazards(rng, tick_s):
    """Return hazards unrelated to the traces: arbitrary, ten times too high or low, or reversed."""
    base = prior_hazards(decision_s(tick_s))
    kind = rng.integers(0, 5)
    if kind == 0:
        return SpellHazards(tick_s=base.tick_s, hazard=rng.random(base.hazard.shape))
    if kind == 1:
        return base.scaled(10.0, 0.1)
    if kind == 2:
        return base.scaled(0.1, 10.0)
    if kind == 3:
        return SpellHazards(tick_s=base.tick_s, hazard=base.hazard[:, ::-1])
    return SpellHazards(tick_s=base.tick_s, hazard=rng.integers(0, 2, base.hazard.shape))


def is_in_time(seeds, ticks, billing=None):
    for seed in seeds:
        market, job = (drawn if seed % 2 else drawn_in_seconds)(seed, ticks=ticks)
        rule = billing or list(Billing)[seed % 4]
        hazards = wrong_hazards(np.random.default_rng(seed), market.tick_s)
        policy = DeadlineProgramme(facts_of(market, job, rule, hazards))
        assert run_zones(market, job, policy, 0, billing=rule).deadline_met, seed


@given(seed=st.integers(0, 10**9), billing=st.sampled_from(Billing))
def test_no_hazards_make_it_late(seed, billing):
    is_in_time(range(seed, seed + 2), 16, billing)


@pytest.mark.prove
def test_no_hazards_make_it_late_in_ten_thousand_traces():
    is_in_time(range(10_000), 20)


def test_back_tests_know_for_how_long_machines_are_held(monkeypatch):
    seen, decide = [], DeadlinePolicy.decide
    monkeypatch.setattr(DeadlinePolicy, "decide", lambda self, view: seen.append(view) or decide(self, view))
    market = zone_market("xxx-xxxxxxxxxxxx", tick_s=600)
    policy = DeadlineProgramme(facts_of(market, zone_job(market, 9, 16), Billing.AWS_2009))
    run = run_zones(market, zone_job(market, 9, 16), policy, 0, billing=Billing.AWS_2009)
    began = [stay.begin_s for stay in run.stays]
    assert len(began) > 1
    held = {(view.elapsed_s, view.held_s) for view in seen if view.held is not Machines.NONE}
    assert held == {(now, now - max(at for at in began if at < now)) for now, _ in held}


class FakeCloud:
    """Machines that arrive late, fail to launch, and are evicted within a tick after a notice.

    On-demand machines are available at most `setup_s` after their launch; the behaviour of spot machines is random.
    """

    def __init__(self, rng, setup_s):
        self.rng, self.setup_s = rng, setup_s
        self.held, self.ready_s, self.lost_s = Machines.NONE, 0.0, np.inf

    def launch(self, kind, now_s):
        """Launch machines; return whether any are available."""
        if kind is Machines.SPOT:
            if self.rng.random() < 0.3:
                return False
            late_s = self.setup_s * (1 + 3 * (self.rng.random() < 0.2))
            self.ready_s, self.lost_s = now_s + late_s, now_s + float(self.rng.exponential(4000.0))
        else:
            self.ready_s, self.lost_s = now_s + self.setup_s * float(self.rng.random()), np.inf
        self.held = kind
        return True

    def work_s(self, now_s, until_s):
        """Return the seconds of work done in a span of time; machines may be lost in it."""
        until_s = min(until_s, self.lost_s)
        done = max(0.0, until_s - max(now_s, self.ready_s)) if self.held is not Machines.NONE else 0.0
        if until_s == self.lost_s:
            self.held, self.lost_s = Machines.NONE, np.inf
        return done


def launched(policy, cloud, tick_s, work_s):
    """Return the completion time; the policy decides at every tick, and immediately after a preemption notice."""
    watch, now_s, left_s, has_spot, since_s = SpellWatch(policy.hazards), 0.0, work_s, True, 0.0
    while left_s > 0:
        watch.see(now_s, is_available=has_spot)
        view = DeadlineView(
            elapsed_s=now_s,
            work_left_s=left_s,
            is_available=has_spot,
            held=cloud.held,
            setup_left_s=max(0.0, cloud.ready_s - now_s) if cloud.held is not Machines.NONE else 0.0,
            held_s=now_s - since_s,
            spell_s=watch.lasted_s(now_s, is_available=has_spot),
        )
        wanted = policy.updated(watch).decide(view)
        if wanted is not cloud.held:
            cloud.held = Machines.NONE
            if wanted is not Machines.NONE and not cloud.launch(wanted, now_s):
                has_spot = False
                continue  # ask again at once: there were none
            since_s = now_s
        until_s = min((now_s // tick_s + 1) * tick_s, cloud.lost_s)
        done_s = cloud.work_s(now_s, until_s)
        has_spot = cloud.held is Machines.SPOT or bool(cloud.rng.random() < 0.5)
        if done_s >= left_s:
            return until_s - (done_s - left_s)
        left_s, now_s = left_s - done_s, until_s
    return now_s


@pytest.mark.parametrize("setup_s", [0, 180, 720])
def test_a_launcher_of_ones_own_is_never_late(setup_s):
    work_s, deadline_s, tick_s = 20_000, 20_000 + 720 + 4_000, 600
    policy = DeadlinePolicy.fit(
        [], work_s=work_s, deadline_s=deadline_s, setup_s=setup_s, spot_usd=1.0, on_demand_usd=3.0, spare_s=tick_s
    )
    ends = [launched(policy, FakeCloud(np.random.default_rng(seed), setup_s), tick_s, work_s) for seed in range(300)]
    assert max(ends) <= deadline_s
    assert min(ends) < deadline_s - tick_s  # some run well on spot machines
