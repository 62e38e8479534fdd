"""Generated apps of trials: their figures compared with the published ones, and rejected options."""

import numpy as np
import pytest

from optim.core.errors import InvalidOptionError
from optim.workloads.cluster.themis_apps import ThemisOptions, draw_apps


@pytest.fixture(scope="module")
def many():
    """Enough apps for quantiles."""
    return draw_apps(ThemisOptions(apps=4000), seed=7)


def _work_h(jobs):
    return np.bincount(jobs.app, weights=jobs.gpus * jobs.duration_us) / 3.6e9


def test_the_same_seed_gives_the_same_apps():
    first, again, other = (draw_apps(ThemisOptions(apps=20), seed) for seed in (3, 3, 4))
    assert first.duration_us.tolist() == again.duration_us.tolist()
    assert first.duration_us.tolist() != other.duration_us.tolist()


def test_trials_an_app_are_bimodal_as_published(many):
    trials = np.bincount(many.app)
    shares = [(trials <= most).mean() for most in (5, 20, 80, 100)]
    assert shares == pytest.approx([0.2, 0.35, 0.5, 1.0], abs=0.005)
    assert trials.min() == 1


def test_gpu_hours_an_app_are_as_published(many):
    hours = _work_h(many)
    assert np.median(hours) == pytest.approx(250, rel=0.05)
    assert 725 < hours.max() <= 730.01


def test_trials_are_shorter_than_published_by_what_the_notes_say(many):
    minutes = np.percentile(many.duration_us / 6e7, [10, 50, 80, 95])
    assert minutes == pytest.approx([50, 165, 310, 570], rel=0.1)
    assert many.duration_us.max() <= 1600 * 60_000_000


def test_trials_of_an_app_arrive_together_and_share_gang_and_slowdown(many):
    first = np.flatnonzero(np.diff(many.app, prepend=-1))
    for column in (many.submit_us, many.gpus, many.slowdown_ppm[:, 2]):
        assert (column == column[first][many.app]).all()
    arrivals_min = many.submit_us[first] / 6e7
    assert arrivals_min[0] == 0
    assert np.diff(arrivals_min).mean() == pytest.approx(20, rel=0.05)


def test_a_share_of_the_apps_is_bound_by_the_network(many):
    first = np.flatnonzero(np.diff(many.app, prepend=-1))
    slow = many.slowdown_ppm[first]
    assert (slow[:, 2] == 1_800_000).mean() == pytest.approx(0.4, abs=0.03)
    assert {tuple(row) for row in slow.tolist()} == {(10**6, 1_300_000, 1_800_000), (10**6, 1_020_000, 1_100_000)}


def test_an_app_whose_trials_no_gang_brings_near_the_typical_run_time_takes_any():
    # One trial of 600 GPU-hours or more takes 75 hours even with eight GPUs, twenty times the typical run time.
    jobs = draw_apps(ThemisOptions(apps=8000, alignment=0.0), seed=0)
    trials, first = np.bincount(jobs.app), np.flatnonzero(np.diff(jobs.app, prepend=-1))
    assert set(jobs.gpus[first][trials == 1].tolist()) == {1, 2, 4, 8}


def test_one_gang_for_all_can_be_asked_for():
    assert set(draw_apps(ThemisOptions(apps=9, gang=4), seed=0).gpus.tolist()) == {4}


@pytest.mark.parametrize("options", [{"apps": 0}, {"gap_min": -1.0}, {"network_share": 1.5}, {"gang": -1}])
def test_options_out_of_range_are_refused(options):
    with pytest.raises(InvalidOptionError, match=next(iter(options))):
        ThemisOptions(**options)
