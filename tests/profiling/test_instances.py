"""Instances built from profiles: measurements are from the profile, sizes from the generator."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from optim import verify
from optim.core.errors import InvalidProblemError
from optim.models.bidding.data import CurveKind
from optim.profiling.document import ScalingPoint, read_profiles, write_profiles
from optim.profiling.fitting import scalability_of
from optim.profiling.job_profile import rescaled
from optim.solvers.solve import solve
from optim.workloads.admission.generator import GeneratorOptions as AdmissionOptions
from optim.workloads.admission.generator import generate
from optim.workloads.auction.generator import GeneratorOptions as AuctionOptions
from optim.workloads.bidding.generator import GeneratorOptions as BiddingOptions
from optim.workloads.profiles import admission_instance, auction_instance, bidding_instance, published_profiles

SMALL = AdmissionOptions(num_jobs=30, num_slots=24, num_worker_servers=6, num_ps_servers=6)


def test_jobs_have_the_profiles_seconds_sizes_and_rates():
    profiles = published_profiles()
    instance = admission_instance(profiles, SMALL, 0)
    known = {
        (
            round(job.minibatch_s.value * 1e6),
            round(job.gradient_mb * 1e6),
            round(job.worker_mbps.value * 1e6),
            round(job.ps_mbps.value * 1e6),
        )
        for job in profiles.jobs
    }
    jobs = instance.jobs
    drawn = set(
        zip(
            jobs.minibatch_micro_s.tolist(),
            jobs.gradient_micro_mb.tolist(),
            jobs.worker_micro_mbps.tolist(),
            jobs.ps_micro_mbps.tolist(),
            strict=True,
        )
    )
    assert drawn <= known
    assert len(drawn) > 1


def without_work(profiles):
    """Profiles of a file that states no work."""
    plain = {"epochs": msgspec.UNSET, "minibatches": msgspec.UNSET, "samples": msgspec.UNSET}
    jobs = [msgspec.structs.replace(job, **plain) for job in profiles.jobs]
    return msgspec.structs.replace(profiles, jobs=jobs)


def test_jobs_without_work_of_their_own_last_about_as_long_as_those_of_the_generator():
    own, plain = admission_instance(without_work(published_profiles()), SMALL, 3), generate(SMALL, 3)
    # Both are rounded up to worker-slots, and the profile's mini-batches can't be divided.
    ratio = np.median(own.work / own.jobs.chunks) / np.median(plain.work / plain.jobs.chunks)
    assert 0.5 < ratio < 2


def test_a_job_without_work_of_its_own_has_the_mini_batches_that_its_drawn_seconds_hold():
    own, plain = admission_instance(without_work(published_profiles()), SMALL, 3), generate(SMALL, 3)
    assert own.jobs.chunks.tolist() == plain.jobs.chunks.tolist()
    seconds = [np.array([float(chunk) for chunk in each.chunk_slots]) * each.jobs.epochs for each in (own, plain)]
    is_long = own.jobs.epochs >= 10  # for others, rounding to integral epochs is visible
    assert is_long.sum() > 5
    np.testing.assert_allclose(seconds[0][is_long], seconds[1][is_long], rtol=0.06)


def test_jobs_do_their_kinds_epochs_however_long_these_take():
    profiles = published_profiles()
    minibatches = {}
    for tau in (1.0, 100.0):
        jobs = [rescaled(job, tau=tau) for job in profiles.jobs]
        instance = admission_instance(msgspec.structs.replace(profiles, jobs=jobs), SMALL, 3)
        minibatches[tau] = instance.jobs.epochs * instance.jobs.chunks * instance.jobs.minibatches
        seconds = instance.work * instance.slot_micro_s / 1e6
        assert (seconds >= tau * 0.1 * minibatches[tau]).all(), "a tenth of a second is the least tau here"
    np.testing.assert_array_equal(minibatches[1.0], minibatches[100.0])
    # An epoch is all of ImageNet; jobs make 90 of them, scaled relative to a typical job.
    plain = generate(SMALL, 3)
    size = (
        plain.jobs.epochs
        * plain.jobs.minibatches
        * np.array([float(c / plain.jobs.minibatches[i]) for i, c in enumerate(plain.chunk_slots)])
        / SMALL.duration_median
    )
    kinds = {round(job.minibatch_s.value * 1e6): job.minibatches for job in profiles.jobs}
    drawn = admission_instance(profiles, SMALL, 3).jobs
    wanted = np.array([90 * kinds[tau] for tau in drawn.minibatch_micro_s.tolist()]) * size
    is_large = wanted > 50 * drawn.chunks  # for small jobs, rounding to integral mini-batches per chunk is visible
    assert is_large.sum() > 5
    np.testing.assert_allclose(minibatches[1.0][is_large], wanted[is_large], rtol=0.05)


def test_the_same_seed_gives_the_same_instance_and_another_another():
    profiles = published_profiles()
    first, again, other = (admission_instance(profiles, SMALL, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.jobs.gradient_micro_mb, again.jobs.gradient_micro_mb)
    assert not np.array_equal(first.jobs.gradient_micro_mb, other.jobs.gradient_micro_mb)


def test_apps_are_slowed_down_as_their_kind_is():
    profiles = published_profiles()
    instance = auction_instance(profiles, AuctionOptions(num_apps=12, num_gpus=32, num_machines=8), 0)
    known = {(job.placement.rack, job.placement.cluster) for job in profiles.jobs}
    assert instance.profiles is not None
    drawn = {(app.slowdown.rack, app.slowdown.cluster) for app in instance.profiles}
    assert drawn <= known
    assert len(drawn) > 1


def test_a_bidding_decision_has_the_scalability_and_losses_of_its_kind():
    profiles = published_profiles()
    instance = bidding_instance(profiles, BiddingOptions(num_types=2, num_zones=2, days=3), 0)
    job = next(job for job in profiles.jobs if instance.name.endswith(job.name))
    assert instance.scalability == scalability_of(job)
    assert instance.change_loss_h == pytest.approx(job.change_min / 60)
    assert instance.eviction_loss_h == pytest.approx(job.eviction_min / 60)


def test_a_footprint_without_bids_has_start_up_and_losses_of_its_kind_too():
    times = {"startup_min": 9.0, "change_min": 2.0, "eviction_min": 4.0}
    published = published_profiles()
    profiles = structs.replace(published, jobs=[structs.replace(job, **times) for job in published.jobs])
    for seed in range(2):
        instance = bidding_instance(profiles, BiddingOptions(zone_types=6, windows=8), seed)
        job = next(job for job in profiles.jobs if instance.name.endswith(job.name))
        assert instance.scalability == scalability_of(job)
        assert (instance.outlook.ready_s, instance.change_loss_h, instance.eviction_loss_h) == (540, 2 / 60, 4 / 60)
        solution = solve(instance, "dinkelbach")
        assert verify(instance, solution).is_ok


@given(st.lists(st.floats(0.1, 50), min_size=0, max_size=8), st.floats(0, 500))
def test_speed_ups_are_concave_reach_what_was_measured_and_stay_from_twice_as_many_on(speedups, rate):
    job = published_profiles().jobs[0]
    points = [ScalingPoint(workers=1, speedup=1.0)]
    points += [ScalingPoint(workers=2 * n + 2, speedup=value) for n, value in enumerate(speedups)]
    curve = scalability_of(msgspec.structs.replace(job, scaling=points))
    assert curve.kind is CurveKind.POINTS
    for point in points:
        assert curve.value(np.array([float(point.workers)]))[0] >= point.speedup - 1e-9
    most = 2.0 * points[-1].workers
    assert curve.value(np.array([most + rate]))[0] == pytest.approx(curve.value(np.array([most]))[0])
    grid = np.linspace(0, most, 50)
    assert (np.diff(curve.value(grid), 2) <= 1e-9).all()


def test_what_is_written_is_read_again(tmp_path):
    path = tmp_path / "profile.json"
    write_profiles(published_profiles(), path)
    assert read_profiles(path) == published_profiles()


def test_a_parameter_server_may_serve_just_one_worker(tmp_path):
    document = msgspec.to_builtins(published_profiles())
    own = document["jobs"][0]
    own["ps_mbps"] = dict(own["worker_mbps"])
    path = tmp_path / "alone.json"
    path.write_bytes(msgspec.json.encode(document))
    job = read_profiles(path).jobs[0]
    assert job.ps_mbps.value == job.worker_mbps.value


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (lambda d: d.update(schema="optim/profile/9"), "schema"),
        (lambda d: d.update(jobs=[]), "jobs"),
        (lambda d: d["jobs"][0].update(colour="red"), "colour"),
        (lambda d: d["jobs"][0].update(gradient_mb=-1), "gradient_mb"),
        (lambda d: d["jobs"][0].update(scaling=[{"workers": 2, "speedup": 1.0}]), "scaling"),
        (lambda d: d["jobs"][0].pop("epochs"), "state a job's work together"),
        (lambda d: d["jobs"][0]["ps_mbps"].update(value=1.0), "ps_mbps"),
    ],
)
def test_refuses_a_bad_file_and_names_what_is_wrong(tmp_path, change, cause):
    document = msgspec.to_builtins(published_profiles())
    change(document)
    path = tmp_path / "bad.json"
    path.write_bytes(msgspec.json.encode(document))
    with pytest.raises(InvalidProblemError, match=cause) as caught:
        read_profiles(path)
    assert "\n" not in str(caught.value)


@given(
    epochs=st.floats(0.5, 400), minibatches=st.integers(1, 400), seed=st.integers(0, 2**16), workers=st.integers(2, 12)
)
def test_jobs_make_all_of_their_kinds_work(epochs, minibatches, seed, workers):
    profiles = published_profiles()
    jobs = [structs.replace(job, epochs=epochs, minibatches=minibatches) for job in profiles.jobs[:2]]
    own = structs.replace(profiles, jobs=jobs, is_work_drawn=False)
    options = AdmissionOptions(num_jobs=8, num_slots=12, num_worker_servers=workers, num_ps_servers=2)
    drawn = admission_instance(own, options, seed).jobs
    made = drawn.epochs * drawn.chunks * drawn.minibatches
    wanted = epochs * minibatches
    # Equal chunks, all drawn or half of them, can't always sum to a given number: it may be off by half a mini-batch
    # per chunk.
    assert (np.abs(made - wanted) <= np.maximum(max(1.0, 0.02 * wanted), drawn.chunks / 2)).all()
    assert (drawn.chunks <= options.chunk_range[1]).all()


def test_three_passes_over_a_hundred_mini_batches_are_three_hundred(caplog):
    profiles = published_profiles()
    jobs = [structs.replace(job, epochs=3.0, minibatches=100) for job in profiles.jobs]
    own = structs.replace(profiles, jobs=jobs, is_work_drawn=False)
    with caplog.at_level("INFO"):
        whole = admission_instance(own, SMALL, 0).jobs
        assert not caplog.records
        part = admission_instance(own, replace(SMALL, draw_work=True), 0).jobs
    assert "% of their profiles' work (median" in caplog.text
    made = whole.epochs * whole.chunks * whole.minibatches
    assert made.tolist() == [300] * 30
    assert np.median(part.epochs * part.chunks * part.minibatches) < 100


def test_the_built_in_set_says_that_its_work_is_drawn_and_an_option_keeps_it():
    profiles = published_profiles()
    by_kind = {round(job.minibatch_s.value * 1e6): job.epochs * job.minibatches for job in profiles.jobs}
    made = {}
    for draw_work in (None, True, False):
        jobs = admission_instance(profiles, replace(SMALL, draw_work=draw_work), 3).jobs
        stated = np.array([by_kind[tau] for tau in jobs.minibatch_micro_s.tolist()])
        made[draw_work] = jobs.epochs * jobs.chunks * jobs.minibatches / stated
    np.testing.assert_array_equal(made[None], made[True])
    np.testing.assert_allclose(made[False], 1.0, rtol=0.01)
