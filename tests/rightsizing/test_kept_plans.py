"""What every policy allocates in two small worlds, and what is tuned, compared, traded off and recommended, as it was kept."""

from dataclasses import asdict, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from optim.rightsizing import Measure, Slo, compare_policies, make_plan, measure
from optim.rightsizing.clairvoyant import claim_of, clairvoyant
from optim.rightsizing.comparison import by_unit, resampled, resamples, trade_curve, trade_points
from optim.rightsizing.engine import Restarts
from optim.rightsizing.features import examples_of
from optim.rightsizing.policy import BOUNDS, need_phases, policy_names
from optim.rightsizing.recommendation import Recommender, RecommendOptions, as_json, as_yaml, recommend_blocks
from optim.rightsizing.tuning import draw_needs, requirement_on
from optim.rightsizing.vpa import Buckets, DecayingHistograms
from optim.rightsizing.world import TRUTH, WorldOptions, prepare_split, split_series
from optim.statistics import bootstrap
from tests.support.containers.worlds import INTERVAL_S, drawn_series
from tests.support.kept import assert_kept, outcome, short

KEPT = Path(__file__).parent / "kept"
CYCLE_S = 6 * INTERVAL_S
WANTED = {
    "harm": Slo(kills=0.15, throttled=0.2, checkpoint_s=200.0, startup_s=40.0),
    "paper": Slo(measure=Measure.UNDER_TIME, under_time=0.1),
}


@cache
def trial(cycle_s=CYCLE_S):
    """Return containers to tune on and to test on, with their true phases."""
    options = WorldOptions(encoder=TRUTH, test_share=0.4, calibration_share=0.4, cycle_s=cycle_s)
    return prepare_split(drawn_series(1, 26), options, 3)


def allocated(name, world):
    plan = make_plan(world, name)
    return {str(multiplier): plan.allocate(np.array(multiplier)) for multiplier in ((0.0, 0.0), (1.0, 0.6), (1.7, 3.0))}


@pytest.mark.parametrize("name", policy_names())
def test_a_policy_allocates_what_it_did(name):
    found = {f"test {key}": each for key, each in allocated(name, trial().test).items()}
    found |= {f"long cycles {key}": each for key, each in allocated(name, trial(4 * CYCLE_S).calibration).items()}
    assert_kept(KEPT / "plans" / f"{name}.json", {**found, "needs_phases": need_phases([name])})


def test_policies_without_phases_do_without_and_others_say_that_they_need_them():
    bare = prepare_split(drawn_series(1, 26), WorldOptions(test_share=0.4, cycle_s=CYCLE_S), 3, has_phases=False).test
    found = {
        name: outcome(allocated, name, bare) for name in ("vpa", "analogs", "level-price", "phase-rule", "phase-price")
    }
    assert_kept(KEPT / "without-phases.json", found)


@pytest.mark.parametrize("wanted", WANTED)
def test_comparisons_and_bounds_come_out_as_before(wanted):
    names = ("prev-step-rules", "vpa", "phase-rule", "phase-price", "analogs", *BOUNDS)
    found = {}
    for rows in compare_policies(trial(), names, WANTED[wanted], num_resamples=20, seed=4):
        found |= {f"{row.policy} {row.resource}": asdict(row) for row in rows}
    for name in ("holt", "phase-price"):
        found[f"points {name}"] = trade_points(trial().test, name, WANTED[wanted], (0.0, 0.8, 2.0))
        found[f"curve {name}"] = trade_curve(trial().test, name, WANTED[wanted], 3)
    series = split_series(drawn_series(1, 26), WorldOptions(test_share=0.4, calibration_share=0.4, cycle_s=CYCLE_S), 3)[
        2
    ]
    for is_harmless in (False, True):
        best = clairvoyant(trial().test, WANTED[wanted], is_harmless=is_harmless)
        found[f"plan {is_harmless}"] = best
        found[f"claims {is_harmless}"] = [
            claim_of(series, trial().test, best, WANTED[wanted], column) for column in (0, 1)
        ]
    assert_kept(KEPT / f"comparison-{wanted}.json", found)


def test_worlds_measures_draws_and_resamples_come_out_as_before():
    world, rng = trial().test, np.random.default_rng(8)
    names = ("values", "lengths", "group", "limit", "first", "cycle_samples", "phase", "training_phase", "num_phases")
    found = {
        name: getattr(world, name)
        for name in (*names, "is_level", "num_containers", "num_cycles", "running", "samples")
    }
    given = rng.uniform(0, 6, (world.num_containers, world.num_cycles, 2))
    for restarts in (None, Restarts(checkpoint_s=100.0, startup_s=7.0)):
        measured = measure(world, given, restarts)
        found[f"measured {restarts}"] = [measured, measured.summary(), measured.container_percentiles()]
    for is_whole in (False, True):
        draws = draw_needs(world, np.random.default_rng(2), is_whole=is_whole)
        found[f"draws {is_whole}"] = [draws, draws.covered(given)]
        found[f"lessons {is_whole}"] = [
            examples_of(world, has_phases=each, is_whole=is_whole) for each in (False, True)
        ]
    found["met"] = [
        requirement_on(world, each, 5)(given * factor) for each in WANTED.values() for factor in (0.3, 1.0, 4.0)
    ]
    counts = resamples(world, 30, rng)
    totals = resampled(world, given.sum(axis=1), counts)
    found |= {
        "counts": counts,
        "by unit": by_unit(world, given.sum(axis=1)),
        "totals": totals,
        "interval": bootstrap(totals),
    }
    histograms = DecayingHistograms(Buckets(first=0.1, cap=40.0), 3)
    for time in range(0, 200_000, 9_000):
        histograms.add(np.arange(3), rng.uniform(0, 50, 3) ** 1.0, 1.0 + time % 7, float(time))
        if time % 4:
            histograms.subtract(np.array([1]), np.array([3.0]), 0.4, float(time))
    found["percentiles"] = [histograms.percentile(level, 3) for level in (0.0, 0.5, 0.9, 1.0)]
    assert_kept(KEPT / "worlds.json", found)


def test_splits_come_out_as_before():
    series = drawn_series(6, 12, lengths=(60, 200))
    found = {}
    for label, options in {
        "units": WorldOptions(test_share=0.3, calibration_share=0.6, cycle_s=CYCLE_S),
        "by time": WorldOptions(is_by_time=True, cycle_s=CYCLE_S / 2),
    }.items():
        for part, own in zip(("learned", "tuned", "held"), split_series(series, options, 9), strict=True):
            found[f"{label} {part}"] = [own.containers, own.lengths, own.values, own.limit, own.phase, short(own.units)]
    found["few"] = outcome(split_series, series.select([0, 1]), WorldOptions(), 0)
    found["short"] = outcome(split_series, series.select([0, 1]), WorldOptions(is_by_time=True, cycle_s=9000.0), 0)
    assert_kept(KEPT / "splits.json", found)


def test_recommendations_and_their_files_come_out_as_before():
    options = RecommendOptions(cycle_s=CYCLE_S, requirement=WANTED["harm"])
    recommender = Recommender(drawn_series(2, 30), options, 5)
    asked = drawn_series(3, 5)
    given = list(recommend_blocks(recommender, [asked, replace(drawn_series(4, 3), limit=None)]))
    found = {f"{number} {each.container}": each for number, each in enumerate(given)}
    found |= {"tuned": recommender.tuned, "number": recommender.num_tuned, "promise": recommender.promise()}
    found |= {"json": as_json(given, recommender), "yaml": as_yaml(given, recommender)}
    found["one unit"] = outcome(Recommender, asked.select([1]), options, 5)
    found["too short"] = outcome(Recommender, asked, RecommendOptions(cycle_s=1e5), 5)
    assert_kept(KEPT / "recommendations.json", found)
