"""Next values by phase, against plain loops; and the price paid for risk against all choices."""

import numpy as np
import pytest

from optim.rightsizing import make_plan
from optim.rightsizing.phase_policies import LEVELS, cycle_level, next_ratios, run_level
from tests.support.containers.worlds import series_of, world_of

RNG = np.random.default_rng(5)
SERIES = series_of([1 + RNG.random((13, 2)), 1 + RNG.random((7, 2)), 1 + RNG.random((2, 2))])
LABELS = np.array([-1, 0, 0, 0, 1, 1, 0, 0, 2, 2, 2, 1, 1, *[0] * 3, *[1] * 4, 1, 1])


def segments():
    return [(rows.start, rows.stop) for rows in SERIES.segments()]


def test_levels_are_means_since_the_run_began_and_over_the_last_cycle():
    run, cycle = run_level(SERIES, LABELS), cycle_level(SERIES, 4)
    for start, stop in segments():
        for now in range(start, stop):
            first = now
            while first > start and LABELS[first - 1] == LABELS[now]:
                first -= 1
            assert run[now] == pytest.approx(SERIES.values[first : now + 1].mean(axis=0))
            assert cycle[now] == pytest.approx(SERIES.values[max(start, now - 3) : now + 1].mean(axis=0))


def test_ratios_are_those_of_the_next_samples_of_every_fourth_moment():
    level = 2.0 + SERIES.values
    found = next_ratios(SERIES, LABELS, level, 5, 4)
    ratios = {phase: [] for phase in range(4)}
    for start, stop in segments():
        for now in range(start + 3, stop - 1, 4):
            ratios[LABELS[now]] += list(SERIES.values[now + 1 : min(now + 6, stop)] / level[now])
    every = np.concatenate([own for own in ratios.values() if own])
    for phase, own in ratios.items():
        chosen = np.array(own) if own else every
        assert found[phase] == pytest.approx(np.quantile(chosen, LEVELS, axis=0).T)
    assert (next_ratios(SERIES.select([2]), LABELS[-2:], level[-2:], 5, 2) == 1.0).all()


@pytest.mark.parametrize("multiplier", [0.0, 0.3, 2.0, 50.0])
def test_no_other_choice_costs_less_at_the_price_of_risk(multiplier):
    training = [1 + RNG.random((60, 2)) for _ in range(3)]
    world = world_of([2 + RNG.random((12, 2))], training=training)
    given = make_plan(world, "level-price").allocate(np.full(2, multiplier))[0]
    known = series_of(training)
    level = np.where([False, True], known.values, cycle_level(known, 4))
    ratio = next_ratios(known, np.zeros(180, dtype=int), level, 4, 1)[0]
    for cycle in (1, 2):
        past = world.values[0, : 4 * cycle]
        own = np.array([past[-4:, 0].mean(), past[-1, 1]])
        for column in range(2):
            choices = 0.95 * own[column] * ratio[column]
            costs = choices + multiplier * known.values[:, column].mean() * (1 - LEVELS)
            assert given[cycle, column] in choices
            place = np.flatnonzero(choices == given[cycle, column])[-1]
            assert costs[place] == pytest.approx(costs.min())
