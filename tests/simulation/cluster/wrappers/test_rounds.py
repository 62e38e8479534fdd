"""Rounds around any policy: by hand, and starts and preemptions at multiples only."""

import numpy as np
import pytest

from optim.core.errors import InvalidOptionError, UnsupportedProblemError
from optim.models.cluster.check import replay
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.log import Event
from optim.models.cluster.workload import US
from optim.simulation.cluster.catalogue import make_policy
from optim.simulation.cluster.engine import simulate
from optim.simulation.cluster.options import EngineOptions
from tests.support.small_clusters import workload


def played(rows, cluster, inner="fifo", round_s=100, **more):
    jobs = workload(rows)
    policy = make_policy(f"rounds+{inner}", jobs, {"rounds.round_s": round_s})
    run = simulate(jobs, cluster, policy, EngineOptions(**more))
    found, problems = replay(jobs, cluster, run.log, run.rules)
    assert not problems
    assert found.end_us == tuple(run.end_us.tolist())
    return run


def test_gpus_stay_idle_until_the_next_round():
    run = played([(0, 1, 150), (10, 1, 50), (530, 1, 20), (540, 1, 100)], Cluster.grid("1x1"), overhead_s=0)
    assert (run.first_start_us // US).tolist() == [0, 200, 600, 700]
    assert (run.end_us // US).tolist() == [150, 250, 620, 800]


@pytest.mark.parametrize("inner", ["srtf", "las", "tiresias", "yarn-cs", "max-min"])
def test_starts_and_stops_lie_at_multiples(inner):
    rng = np.random.default_rng(1)
    rows = [
        (int(when), int(rng.integers(1, 4)), int(rng.integers(10, 900))) for when in np.sort(rng.integers(0, 3000, 25))
    ]
    rows = [(when - rows[0][0], *rest) for when, *rest in rows]
    if inner == "max-min":
        with pytest.raises(UnsupportedProblemError, match=r"has rounds of its own; set max-min\.round_s"):
            played(rows, Cluster.grid("2x4"), inner)
        return
    log = played(rows, Cluster.grid("2x4"), inner, round_s=70).log
    times = log.time_us[np.isin(log.kind, (Event.START, Event.PREEMPT))]
    assert len(times) >= 25
    assert (times % (70 * US) == 0).all()


def test_a_round_that_is_short_changes_little_and_none_is_refused():
    rows, one = [(0, 1, 100), (50, 1, 10)], Cluster.grid("1x1")
    assert (played(rows, one, "srtf", round_s=1, overhead_s=0).end_us // US).tolist() == [110, 60]
    with pytest.raises(InvalidOptionError, match="round_s"):
        played(rows, one, round_s=0)
