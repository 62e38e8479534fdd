"""Autopilot's recommendations against a transcription of its rules, one container and one resource at a time."""

import numpy as np
import pytest

from optim.rightsizing import make_plan, make_world
from tests.support.containers.worlds import series_of

AGGREGATE = 20
"""Samples of 15 s in five minutes."""

CYCLE = 40
HELD = 6
"""Cycles of ten minutes in an hour."""


def plain_recommendations(demand, top, *, is_level):
    """Recommendations for the cycles 1, 2, ... of one resource."""
    width = (top if top > 0 else 1.0) / 400
    half_life_s = (48 if is_level else 12) * 3600
    load, weight, total, signals, given = np.zeros(400), 0.0, 0.0, [], []
    for cycle in range(1, -(-len(demand) // CYCLE)):
        for begin in range((cycle - 1) * CYCLE, cycle * CYCLE, AGGREGATE):
            part = demand[begin : begin + AGGREGATE]
            fade = 2 ** (-len(part) * 15 / half_life_s)
            own = [max(part)] if is_level else list(part)
            load *= fade
            for value in own:
                bucket = min(max(int(value / width), 0), 399)
                load[bucket] += (bucket + 1) * width
            weight, total = fade * weight + 1, fade * total + np.mean(own)
        if not is_level:
            signals.append(total / weight)
        else:
            reached, bucket = load[0], 0
            while reached < 0.98 * load.sum() - 1e-12:
                bucket += 1
                reached += load[bucket]
            signals.append((bucket + 1) * width)
        given.append(max(signals[-HELD:]))
    return given


@pytest.mark.parametrize("seed", range(3))
def test_recommendations_are_those_of_the_transcription(seed):
    rng = np.random.default_rng(seed)
    arrays = [rng.gamma(2.0, 1.0, size=(n, 2)) * np.exp(-np.arange(n)[:, None] / 200) for n in (600, 410, 90)]
    limit = np.array([[30.0, np.nan], [np.nan, 40.0], [25.0, 25.0]])
    training = series_of([rng.random((50, 2))])
    world = make_world(series_of(arrays, limit=limit), training)
    found = make_plan(world, "autopilot").allocate(np.ones(2))
    for place, own in enumerate(arrays):
        for column in range(2):
            known = limit[place, column]
            top = 1.25 * training.values[:, column].max() if np.isnan(known) else known
            wanted = plain_recommendations(own[:, column], top, is_level=column == 1)
            assert found[place, 1 : 1 + len(wanted), column] == pytest.approx(wanted)
