"""Autopilot's set of windows against a transcription in plain loops."""

import numpy as np
import pytest

from optim.rightsizing import make_plan
from tests.support.containers.worlds import world_of


def transcribed(demand, top, width):
    """Return the limits of one container and resource, cycle by cycle, by a plain transcription of the published rule."""
    limits = [top * (k + 1) / 100 for k in range(100)]
    models = [(d, m) for d in (0.1, 0.3, 0.6, 0.9) for m in (1.0, 1.1, 1.25)]
    over, under = [[0.0] * 100 for _ in models], [[0.0] * 100 for _ in models]
    place, cost, followed, given = [-1] * 12, [0.0] * 12, -1, []
    for cycle in range(1, -(-len(demand) // width)):
        own = demand[(cycle - 1) * width : cycle * width]
        told = [min((limit for limit in limits if limit >= x), default=np.inf) for x in own]
        found = []
        for j, (d, margin) in enumerate(models):
            totals = []
            for k, limit in enumerate(limits):
                over[j][k] = (1 - d) * over[j][k] + d * sum(b > limit for b in told) / width
                under[j][k] = (1 - d) * under[j][k] + d * sum(b < limit for b in told) / width
                totals.append(8 * over[j][k] + under[j][k] + 0.1 * (k != place[j]))
            best = totals.index(min(totals))
            changed, place[j] = best != place[j], best
            limit = margin * limits[best]
            fresh = 8 * sum(x > limit for x in own) / width + 0.1 * changed
            fresh += sum(max(limit - x, 0) for x in own) / width / max(sum(own) / width, limits[0])
            cost[j] = 0.7 * cost[j] + 0.3 * fresh
            found.append((limit, changed))
        judged = [cost[j] + 0.1 * ((j != followed) + found[j][1]) for j in range(12)]
        followed = judged.index(min(judged))
        given.append(found[followed][0])
    return given


def given(demand):
    """Return the limits that the policy gives one container, cycle by cycle."""
    world = world_of([demand], limit=np.array([[8.0, 8.0]]), training=[np.ones(4)])
    return make_plan(world, "autopilot-ml").allocate(np.ones(2))[0, 1:, 0]


@pytest.mark.parametrize(("seed", "idle"), [(0, 0), (1, 0), (2, 4), (3, 9)])
def test_limits_are_those_of_the_transcription(seed, idle):
    rng = np.random.default_rng(seed)
    demand = rng.choice([1.0, 2.0, 5.0], size=22) + 0.1 * rng.random(22)
    demand[4 : 4 + idle] = 0.0
    assert given(demand) == pytest.approx(np.minimum(transcribed(demand.tolist(), 8.0, 4), 8.0))


def test_limits_come_down_with_the_demand() -> None:
    """No sample is exactly a limit: the least limit that holds it is as good."""
    demand = np.concatenate([np.full(4, 5.01), np.full(80, 1.01)])
    assert given(demand)[0] >= 5.01
    assert given(demand)[-1] == pytest.approx(1.04)


def test_a_model_pays_for_the_changes_of_its_limit():
    """Demand occasionally drops for one cycle: a policy that follows it saves resources, and is too low the next time."""
    demand = np.repeat([4.0, 4.0, 4.0, 4.0, 2.72, 4.0, 2.72, 4.0], 4)
    limits = given(demand)
    assert limits == pytest.approx(transcribed(demand.tolist(), 8.0, 4))
    assert limits == pytest.approx(np.full(7, 4.0))
