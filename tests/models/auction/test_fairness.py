"""Finish-time fairness by hand: the slides' app, both readings of the ideal time, several trials, horizons."""

import math

import pytest

from optim.core.errors import InvalidProblemError
from optim.models.auction.data import PRESETS, Horizon, Locality, Slowdown
from optim.models.auction.fairness import (
    AppProfile,
    Combine,
    Estimator,
    IdealTime,
    Needs,
    Trial,
    ideal_minutes,
    remaining_minutes,
    shared_minutes,
)


def app(*works, max_gpus=2, **fields):
    trials = tuple(Trial(work_min=w, total_work_min=w, max_gpus=max_gpus) for w in works)
    return AppProfile(**{"elapsed_min": 0.0, "active_apps": 1.0, "trials": trials, **fields})


def shared(profile, gpus, locality=Locality.SLOT, *, horizon=Horizon.HOLD, lease=20.0, cluster=8):
    return shared_minutes(profile, gpus, locality, horizon=horizon, lease_min=lease, cluster_gpus=cluster)


def test_two_jobs_of_two_tasks_of_ten_minutes_take_forty_gpu_minutes():
    slides = app(20.0, 20.0)
    assert slides.work_min == 40.0
    assert slides.demand == 4
    assert remaining_minutes(slides, 4, 1.0) == 10.0


def test_alone_on_the_cluster_a_new_app_has_fairness_one():
    profile = app(100.0, max_gpus=16)
    assert shared(profile, 8) / ideal_minutes(profile, 8) == 1.0


def test_both_readings_of_the_ideal_time_agree_where_the_demand_exceeds_the_cluster():
    times = [ideal_minutes(app(100.0, max_gpus=8, active_apps=4.0, ideal=reading), 8) for reading in IdealTime]
    assert times == [50.0, 50.0]


def test_for_a_narrow_job_the_papers_reading_is_more_lenient_by_the_number_of_apps():
    narrow = [ideal_minutes(app(100.0, max_gpus=1, active_apps=4.0, ideal=reading), 8) for reading in IdealTime]
    assert narrow == [400.0, 100.0]


def test_slowdown_and_elapsed_time_lengthen_the_shared_time():
    profile = app(100.0, max_gpus=4, elapsed_min=7.0, slowdown=Slowdown(rack=1.3, cluster=1.8))
    assert shared(profile, 4, Locality.MACHINE) == 7.0 + 25.0
    assert shared(profile, 4, Locality.CLUSTER) == 7.0 + 25.0 * 1.8


def test_no_number_of_gpus_is_faster_than_the_longest_trial():
    uneven = app(90.0, 10.0, max_gpus=2)
    assert remaining_minutes(uneven, 4, 1.0) == 45.0


def test_the_best_trial_alone_counts_where_the_app_ends_with_its_winner():
    assert remaining_minutes(app(90.0, 10.0, combine=Combine.BEST), 2, 1.0) == 5.0


def test_the_split_gives_further_gpus_to_the_slowest_trial():
    profile = app(60.0, 20.0, max_gpus=8, estimator=Estimator.SPLIT)
    assert remaining_minutes(profile, 4, 1.0) == 20.0
    assert remaining_minutes(profile, 1, 1.0) == 80.0


def test_killed_trials_cost_nothing():
    trials = (
        Trial(work_min=0.0, total_work_min=50.0, max_gpus=4),
        Trial(work_min=8.0, total_work_min=50.0, max_gpus=4),
    )
    profile = AppProfile(elapsed_min=1.0, active_apps=1.0, trials=trials)
    assert profile.demand == 4
    assert remaining_minutes(profile, 4, 1.0) == 2.0


def test_a_lease_horizon_continues_at_the_fair_share():
    """W = 1000, D = 8, fair share 8: without GPUs 20 minutes and then 125; four GPUs do 80 minutes' work first."""
    profile = app(1000.0, max_gpus=8, active_apps=1.0)
    facts = {"horizon": Horizon.LEASE, "lease": 20.0, "cluster": 8}
    assert shared(profile, 0, **facts) == 20.0 + 125.0
    assert shared(profile, 4, **facts) == 20.0 + (1000 - 80) / 8
    assert shared(profile, 8, **facts) == 125.0


def test_the_fair_share_after_a_lease_is_that_of_the_apps_active_on_average():
    profile = app(1000.0, max_gpus=8, active_apps=2.0)
    assert shared(profile, 0, horizon=Horizon.LEASE) == 20.0 + 1000 / 4
    assert shared(profile, 8, horizon=Horizon.LEASE) == 20.0 + (1 - 20 / 125) * 1000 / 4
    assert shared(profile, 0, horizon=Horizon.LEASE, cluster=1) == 20.0 + 1000  # one GPU at least


def test_held_gpus_add_to_a_bundle():
    profile = app(100.0, max_gpus=8, held_gpus=2, held_locality=Locality.RACK, slowdown=Slowdown(rack=2.0, cluster=2.0))
    assert shared(profile, 2, Locality.RACK) == 50.0
    assert math.isfinite(shared(profile, 0))


def test_a_bundle_within_a_subtree_counts_on_its_worst_placement():
    assert PRESETS["bert-pollux"].at(Locality.CLUSTER) == 1.77
    assert PRESETS["bert-pollux"].within(Locality.CLUSTER) == 2.83


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"elapsed_min": -1.0}, "elapsed_min must be at least 0"),
        ({"active_apps": 0.5}, "active_apps must be at least 1"),
        ({"gang": 0}, "gang must be at least 1"),
        ({"trials": ()}, "at least one must have work left"),
        ({"held_gpus": -1}, "held_gpus must be at least 0"),
        ({"held_gpus": 2, "held_places": ((0, 1),)}, "held_places must add up to the 2 GPUs of held_gpus"),
    ],
)
def test_refuses_profiles_that_contradict_themselves(fields, text):
    with pytest.raises(InvalidProblemError, match=text):
        app(1.0, **fields)


def test_published_slowdowns_are_those_of_their_tables():
    assert round(PRESETS["vgg16-themis"].rack, 3) == 1.289
    assert PRESETS["inception3-themis"].rack == 1.0
    assert round(PRESETS["resnet50-philly"].rack, 2) == 1.17
    assert round(PRESETS["vgg19"].cluster, 3) == 1.389
    with pytest.raises(InvalidProblemError, match=r"slowdown\.rack must be at least 1"):
        Slowdown(rack=0.9)


def test_needs_stand_for_trials_by_the_aggregate_estimate_of_all():
    needs = Needs(work_min=10.0, longest_min=5.0, demand=2, total_work_min=10.0, total_longest_min=5.0, total_demand=2)
    alone = {"elapsed_min": 0.0, "active_apps": 1.0, "trials": (), "needs": needs}
    assert AppProfile(**alone).work_min == 10.0
    trials = (Trial(work_min=1.0, total_work_min=1.0, max_gpus=1),)
    for beside in ({"trials": trials}, {"estimator": Estimator.SPLIT}, {"combine": Combine.BEST}):
        with pytest.raises(InvalidProblemError, match="remove `needs`, or the others"):
            AppProfile(**alone | beside)
