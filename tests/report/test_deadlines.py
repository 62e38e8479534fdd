"""The plot of a deadline's rule shows its decisions."""

import numpy as np

from optim.deadlines import DeadlinePolicy, DeadlineView, Machines
from optim.report.deadlines import decisions
from optim.simulation.spot.deadline_policy import CHOICES


def test_a_point_is_what_is_decided_there_and_white_is_what_cannot_be():
    policy = DeadlinePolicy.fit([], work_s=36_000, deadline_s=43_200, setup_s=600, spot_usd=0.9, on_demand_usd=3.0)
    found, times, works = decisions(policy, is_available=True, held=Machines.NONE, spell_s=0.0)
    row, column = len(works) - 1, 3
    view = DeadlineView(3600 * times[column], 3600 * works[row], is_available=True, spell_s=0.0)
    assert CHOICES[int(found[row, column])] is policy.decide(view)
    assert np.isnan(found[0, 0])
    assert np.isnan(found[row, -1])
    assert set(np.unique(found[~np.isnan(found)])) >= {1.0, 2.0}
