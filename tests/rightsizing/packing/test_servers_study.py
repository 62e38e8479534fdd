"""Servers at equal kills: what is tuned holds where it is tuned, and rows are what a count finds."""

from functools import cache, partial

import numpy as np
import pytest

from optim.core.errors import InvalidOptionError
from optim.rightsizing.packing.bin_packing import first_fit, loads, min_servers
from optim.rightsizing.packing.recurring_jobs import RequestSizing
from optim.rightsizing.packing.study import TUNING_SEED, ServerStudyOptions, compare_asking, draw_set

OPTIONS = ServerStudyOptions(jobs=30, seeds=3, kills=0.05, most_shift=1)


@pytest.fixture(scope="module")
def rows():
    """A row a way of asking."""
    return {row.asking: row for row in compare_asking(OPTIONS, seed=0)}


fresh = cache(partial(draw_set, OPTIONS))
"""The jobs of a seed, drawn here once for all ways of asking."""


def harm(row, seeds):
    """Kills a job and samples short of CPU, by a walk along the samples of each server."""
    kills = jobs = short = busy = servers = least = 0
    for seed in seeds:
        own = fresh(seed)
        problem = own.problem(RequestSizing(row.asking), row.multiplier, OPTIONS.most_shift)
        placement = first_fit(problem)
        servers, least = servers + placement.num_servers, least + min_servers(problem)
        jobs += len(own.series)
        for load in loads(own.series, placement, 20):
            over = load > own.capacity * (1 + 1e-9)
            kills += sum(bool(over[k : k + 20, 1].any()) for k in range(0, len(load), 20))
            short += int(over[:, 0].sum())
            busy += int(load.any(axis=1).sum())
    return kills / jobs, short / busy, servers / len(seeds), least / len(seeds)


def test_figures_are_those_of_a_walk_along_fresh_sets_and_what_is_tuned_holds_on_its_own(rows):
    for row in rows.values():
        assert harm(row, [0, 1, 2]) == pytest.approx((row.kills, row.throttled, row.servers, row.least))
        kills, short, *_ = harm(row, [TUNING_SEED, TUNING_SEED + 1, TUNING_SEED + 2])
        assert row.is_reached
        assert kills <= OPTIONS.kills
        assert short <= OPTIONS.throttled


def test_what_no_multiplier_keeps_is_not_called_reached():
    options = ServerStudyOptions(jobs=30, seeds=2, runs=1, kills=0.01, error=1.0)
    found = list(compare_asking(options, seed=1))
    sets = [draw_set(options, TUNING_SEED + seed) for seed in (1, 2)]
    for row in found:
        kills = jobs = short = busy = 0
        for own in sets:
            placement = first_fit(own.problem(RequestSizing(row.asking), row.multiplier, 0))
            jobs += len(own.series)
            for load in loads(own.series, placement, own.slot_samples):
                over = load > own.capacity * (1 + 1e-9)
                slots = range(0, len(load), own.slot_samples)
                kills += sum(bool(over[k : k + own.slot_samples, 1].any()) for k in slots)
                short += int(over[:, 0].sum())
                busy += int(load.any(axis=1).sum())
        assert row.is_reached == (kills <= options.kills * jobs and short <= 0.02 * busy)
    assert not all(row.is_reached for row in found)


def test_savings_are_against_flat_and_no_count_is_below_its_bound(rows):
    for row in rows.values():
        assert row.least <= row.servers
        assert row.saved == pytest.approx(1 - row.servers / rows["flat"].servers)
        assert row.saved_low <= row.saved <= row.saved_high
    assert rows["peak"].servers >= rows["slot"].servers


def test_the_model_is_asked_where_it_has_any_time():
    options = ServerStudyOptions(jobs=2, seeds=2, kills=0.9, model_s=0.5)
    assert all(row.by_model == row.servers for row in compare_asking(options, seed=3))


@pytest.mark.prove
def test_the_model_lies_between_first_fit_and_the_bound():
    for row in compare_asking(ServerStudyOptions(jobs=10, seeds=2, kills=0.2, most_shift=1, model_s=5.0), seed=3):
        assert row.least <= row.claimed_bound <= row.by_model <= row.servers


def test_the_same_seed_gives_the_same_sets():
    one, two = draw_set(OPTIONS, 5), draw_set(OPTIONS, 5)
    assert np.array_equal(one.arrival, two.arrival)
    assert all(np.array_equal(a, b) for k in RequestSizing for a, b in zip(one.asked[k], two.asked[k], strict=True))


@pytest.mark.parametrize("wrong", [{"jobs": 0}, {"seeds": 1}, {"kills": 0.0}, {"error": 2.0}])
def test_options_out_of_range_are_refused(wrong):
    with pytest.raises(InvalidOptionError, match=f"{next(iter(wrong))} must be"):
        ServerStudyOptions(**wrong)
