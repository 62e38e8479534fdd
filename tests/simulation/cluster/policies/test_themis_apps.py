"""The knowledge of an app's agent about the app's jobs."""

from types import SimpleNamespace

import numpy as np

from optim.models.auction.fairness import IdealTime
from optim.simulation.cluster.policies.themis.apps import MINUTE_US, AppTracker, Profiles, live_apps


def profiles(app, gpus, minutes=10):
    """Return the known facts of apps whose jobs have all just been submitted, by app."""
    jobs = np.arange(len(app))
    view = SimpleNamespace(
        now_us=0, submit_us=0 * jobs, app=np.array(app), gpus=np.array(gpus), slowdown_ppm=np.zeros((len(app), 3))
    )
    left = np.full(len(app), minutes * MINUTE_US)
    live, census = live_apps(view, jobs, left, np.zeros(len(app), bool)), AppTracker()
    census.update(view, left, len(live.apps))
    known = Profiles(view, live, census, IdealTime.TIME_SHARE, np.ones(len(live.apps)))
    return [known.of(row) for row in range(len(live.apps))]


def test_gangs_are_listed_job_by_job_only_of_apps_that_have_several_sizes():
    mixed, alike, single = profiles(app=[0, 1, 0, 1, 2], gpus=[4, 2, 6, 2, 1])
    assert (mixed.gang, mixed.gangs, mixed.demand) == (2, (4, 6), 10)
    assert (alike.gang, alike.gangs, alike.demand) == (2, (), 4)
    assert (single.gang, single.gangs, single.demand) == (1, (), 1)
