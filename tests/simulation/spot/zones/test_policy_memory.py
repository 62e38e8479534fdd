"""Lifetimes by hand: hours watched over losses, both with a prior of one loss in six hours."""

from dataclasses import replace

import pytest

from optim.simulation.spot.zone_policies import ZoneMemory
from optim.simulation.spot.zones import ZoneView, facts_of
from tests.support.spot.zones import zone_job, zone_market

MARKET = zone_market("xxxx", "xxxx")


def test_lifetimes_are_time_watched_over_losses_with_a_prior():
    memory = ZoneMemory(facts_of(MARKET, zone_job(MARKET, 2, 4)))
    view = ZoneView(
        tick=0, elapsed_s=0, left_s=14_400, work_left_s=7200, held=None, setup_left_s=0, state=0, spot_micro=(1, 1),
        seen=(None, None), probe=lambda zone: True,
    )  # fmt: skip
    assert memory.lifetime_s(0) == 6.0 * 3600
    assert memory.is_stale(0, 0, 1)
    assert not memory.was_there(0)
    for tick, is_there in ((1, True), (3, True), (8, False), (9, False), (12, True)):
        memory.note(replace(view, tick=tick, seen=((tick, is_there), None)))
    # Observed from 1 to 3 and from 3 to the loss seen at 8; the time between 8 and 12 is unknown.
    assert memory.lifetime_s(0) == pytest.approx((6 + 7) / 2 * 3600)
    assert memory.lifetime_s(1) == 6.0 * 3600
    assert memory.was_there(0)
    assert not memory.is_stale(0, 13, 2)
    assert memory.is_stale(0, 14, 2)
