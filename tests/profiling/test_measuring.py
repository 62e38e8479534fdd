"""Timings with simulated clocks, steps compared with plain NumPy, and profiles of simulated machines."""

import math
from dataclasses import replace
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest
from msgspec import UNSET

import optim
from optim.core.errors import InvalidOptionError, NotAllowedError
from optim.profiling import machine_benchmarks, measuring
from optim.profiling.document import SCHEMA, MeasuredValue, ProfileDocument, UpdateCost, read_profiles, write_profiles
from optim.profiling.fitting import steps_per_second, synchronous_terms
from optim.profiling.job_profile import (
    MAX_ERROR,
    JobMeasurements,
    ProfileOptions,
    ServerFigures,
    job_profile,
    placement_of,
    quality_warnings,
    update_seconds,
)
from optim.profiling.machine_benchmarks import LinkFigures, fit_link, measure_link
from optim.profiling.measuring import LEARNING_RATE, StepWorld, measure_profiles, time_minibatch, time_steps
from optim.profiling.timing import Timing, check_quiet, time_interleaved
from optim.training.application import DeviceApplication
from optim.training.applications import LogisticRegression
from optim.workloads.admission.generator import GeneratorOptions
from optim.workloads.auction.generator import GeneratorOptions as AuctionOptions
from optim.workloads.bidding.generator import GeneratorOptions as BiddingOptions
from optim.workloads.profiles import admission_instance, profiled_instance, published_profiles
from tests.support.profiles.jobs import Quadratic, SteppedClock


def test_works_take_turns_and_the_first_repeats_are_dropped():
    order = []
    ticks = iter([0.0, 1.0, 1.0, 3.0, 3.0, 5.0, 5.0, 9.0])  # begin and end of each timed work
    works = [lambda: order.append("fast"), lambda: order.append("slow")]
    reads = iter([100.0, 200.0])  # the starts of dropped steps
    clock = lambda: next(reads, None) or next(ticks)  # noqa: E731 - shorter than a class
    fast, slow = time_interleaved(works, repeats=2, dropped=1, clock=clock)
    assert order == ["fast", "slow"] * 3
    assert fast.seconds.tolist() == [1.0, 2.0]
    assert slow.seconds.tolist() == [2.0, 4.0]


def test_a_timing_tells_its_median_noise_and_interval():
    timing = Timing(seconds=np.array([1.0, 1.0, 1.1, 0.9, 5.0]))
    assert timing.median == 1.0
    assert timing.noise == pytest.approx(0.1)
    interval = timing.interval(1000.0)
    assert interval.value == 1000.0
    assert interval.low <= 1000.0 <= interval.high
    rate = timing.rate(2.0)
    assert rate.low <= rate.value == 2.0 <= rate.high


@pytest.mark.parametrize(
    ("noise", "load", "cause"), [(0.01, 1.5, "load 1.50 on 2 processors"), (0.2, 0.0, "differ by 20%")]
)
def test_refuses_a_noisy_machine_and_says_what_to_do(noise, load, cause):
    check_quiet(0.05, 0.5, 2)
    with pytest.raises(NotAllowedError, match=cause) as caught:
        check_quiet(noise, load, 2)
    assert "--accept-noise" in str(caught.value)


def test_the_whole_measurement_refuses_before_long_work(monkeypatch):
    monkeypatch.setattr("optim.profiling.machine_benchmarks.present_load", lambda: 50.0)
    monkeypatch.setattr("optim.profiling.machine_benchmarks.last_level_cache", lambda: 2**16)
    with pytest.raises(NotAllowedError, match="too noisy"):
        measure_profiles({"quadratic": Quadratic()}, ProfileOptions())


def test_how_much_jobs_of_the_applications_do_is_drawn_as_their_passes_are_an_option(monkeypatch):
    within = "optim.profiling.measuring"
    room = SimpleNamespace(cache=1, allowed=1)
    monkeypatch.setattr(f"{within}.measure_machine", lambda *_, **__: (SimpleNamespace(noise=0, load=0, cores=2), room))
    for name in ("measure_update", "measure_link", "measure_crbm", "_startup_s", "ServerFigures"):
        monkeypatch.setattr(f"{within}.{name}", lambda *_, **__: None)
    assert measure_profiles({}, ProfileOptions()).is_work_drawn


@pytest.mark.parametrize(("workers", "servers"), [(1, 1), (2, 1), (3, 2), (4, 4)])
def test_a_step_is_a_step_of_gradient_descent_whoever_computes_it(workers, servers):
    job = Quadratic()
    world = StepWorld(job, workers, servers, SteppedClock(0.25))
    assert world.step() == pytest.approx(0.5)  # workers side by side, then servers side by side
    total = sum(job.gradient(job.initial_parameters(), partition, 0)[0] for partition in range(4))
    np.testing.assert_allclose(world._parameters, -LEARNING_RATE * total / workers, rtol=1e-5)
    assert sorted(job.asked[:4]) == [(partition, 0) for partition in range(4)]
    del job.asked[:]
    world.step()
    assert sorted(job.asked) == [(partition, 1) for partition in range(4)]  # the next clock's data


def test_mini_batches_are_taken_in_turn():
    job = Quadratic()
    timing = time_minibatch(job, SteppedClock(0.25), repeats=5)
    assert [partition for partition, _ in job.asked] == [0, 1, 2, 3, 0, 1, 2, 3]
    assert len(timing.seconds) == 5


def test_gradients_of_a_job_in_jax_are_timed_without_the_way_to_the_host(monkeypatch):
    def gradient(*_):
        raise AssertionError("it carries parameters to the device and gradients back")

    monkeypatch.setattr(DeviceApplication, "gradient", gradient)
    job = LogisticRegression.at_scale(0.001, num_partitions=2)
    assert len(time_minibatch(job, ticking(0.5), repeats=5).seconds) == 5


def test_a_new_worker_begins_on_the_platform_that_is_measured(monkeypatch):
    started = []
    monkeypatch.setattr(measuring.subprocess, "run", lambda words, **how: started.append((words[-1], how["env"])))
    monkeypatch.setattr(measuring, "find_device", lambda: SimpleNamespace(platform="gpu"))
    assert measuring._startup_s(ticking(0.5)) == 0.5
    assert {platform for platform, _ in started} == {"gpu"}
    assert {environment["XLA_PYTHON_CLIENT_PREALLOCATE"] for _, environment in started} == {"false"}


@pytest.mark.parametrize(("platform", "asked", "gpus"), [("gpu", None, 1.0), ("gpu", 0.5, 0.5), ("cpu", None, 0.0)])
def test_a_profile_names_its_device_and_jobs_of_instances_need_it(platform, asked, gpus, tmp_path, monkeypatch):
    monkeypatch.setattr(measuring, "find_device", lambda: SimpleNamespace(platform=platform))
    machine = SimpleNamespace(cores=2, cpu="a processor", device="a card")
    options = ProfileOptions(max_workers=2, max_servers=2, repeats=3, gpu=asked)
    known = measuring._measure_job("quadratic", Quadratic(), machine, options, 1.0, ticking(0.5))
    assert known.source == (
        "measured on a card with 2 cores of a processor" if platform == "gpu" else "measured on 2 cores of a processor"
    )
    job = job_profile(known, replace(measured(0)[1], options=options))
    assert (job.device, job.worker.gpu) == ("a card", gpus)
    write_profiles(ProfileDocument(schema=SCHEMA, jobs=[job]), tmp_path / "profile.json")
    profiles = read_profiles(tmp_path / "profile.json")
    assert profiles.jobs[0].device == "a card"
    sizes = GeneratorOptions(num_jobs=2, num_slots=6, num_worker_servers=2, num_ps_servers=2)
    jobs = admission_instance(profiles, sizes, 0).jobs
    assert set((jobs.worker_demand[:, 0] / 1e6).tolist()) == {gpus}


def test_profiles_of_earlier_versions_name_no_device(tmp_path):
    write_profiles(published_profiles(), tmp_path / "old.json")
    assert "device" not in (tmp_path / "old.json").read_text()
    assert {job.device for job in read_profiles(tmp_path / "old.json").jobs} == {UNSET}


def test_a_link_is_found_among_disturbed_copies():
    rng = np.random.default_rng(0)
    num_bytes = np.repeat([1e4, 1e5, 1e6, 1e7], 15)
    seconds = 2e-5 + num_bytes / 5e9
    seconds[rng.random(60) < 0.2] *= 3
    link = fit_link(num_bytes, seconds)
    assert link.mbps.value == pytest.approx(8 * 5e9 / 1e6, rel=0.05)
    assert link.mbps.low <= link.mbps.value <= link.mbps.high


SIMULATED = UpdateCost(
    in_cache=[MeasuredValue(value=v, low=v, high=v) for v in (1e-5, 0.0, 2e-11, 1e-11)],
    beyond=[MeasuredValue(value=v, low=v, high=v) for v in (1e-5, 0.0, 2e-10, 1e-10)],
    cache_bytes=1e6,
    error=0.0,
)
THETA = np.array([0.02, 0.05, 0.01, 0.004, 0.006])


def measured(seed, noise=0.1):
    """Timings of a simulated job, with noise."""
    rng = np.random.default_rng(seed)
    options = ProfileOptions(max_workers=16, max_servers=8)
    workers, servers = np.array(options.grid, dtype=float).T
    exact = synchronous_terms(workers, servers, 32.0) @ THETA

    def timing(seconds):
        return Timing(seconds=seconds * np.exp(noise * rng.standard_normal(15)))

    return JobMeasurements(
        name="simulated",
        source="a test",
        minibatch=timing(0.02),
        num_parameters=250_000,
        num_partitions=32,
        grid=options.grid,
        steps=tuple(timing(value) for value in exact.tolist()),
        startup_s=6.0,
    ), ServerFigures(
        link=LinkFigures(start_s=0.0, mbps=MeasuredValue(value=8000.0, low=7000.0, high=9000.0)),
        update=SIMULATED,
        options=options,
    )


@pytest.mark.parametrize("seed", range(4))
def test_a_profile_recovers_a_simulated_machine_within_a_tenth(seed):
    job = job_profile(*measured(seed))
    assert job.minibatch_s.value == pytest.approx(0.02, rel=0.1)
    assert job.gradient_mb == 1.0
    assert job.startup_min == pytest.approx(0.1)
    # 4 pushes of 1 MB: 8 Mbit each through a link of 8000 Mbit/s, then added in 1e-5 + 2e-4 + 4e-4 s.
    assert job.ps_mbps.value == pytest.approx(32.0 / (0.004 + 1e-5 + 2e-4 + 4e-4))
    assert job.worker_mbps.value == pytest.approx(job.ps_mbps.value / 4)
    workers, servers = np.array(ProfileOptions(max_workers=16, max_servers=8).grid, dtype=float).T
    speed = steps_per_second(job.speed, workers, servers)
    exact = 1.0 / (synchronous_terms(workers, servers, 32.0) @ THETA)
    assert np.abs(speed / exact - 1).max() < 0.1
    assert job.speed.error < 0.1
    assert [point.workers for point in job.scaling] == [1, 2, 4, 8, 16]
    best = {w: exact[workers == w].max() for w in (1, 2, 4, 8, 16)}
    for point in job.scaling:
        assert point.low <= point.speedup <= point.high
        assert point.low * 0.95 <= best[point.workers] / best[1] <= point.high * 1.05


def test_steps_are_timed_at_every_point_of_the_grid():
    timings = time_steps(Quadratic(), [(1, 1), (4, 2)], ticking(0.001), repeats=5)
    np.testing.assert_allclose([timing.seconds for timing in timings], np.full((2, 5), 0.002))


def test_a_step_is_repeated_as_often_as_the_budget_allows_whatever_the_clock_shows():
    # A step of one worker and one server takes 2 ticks of the clock; with all readings around it, 5 of the 0.6 s.
    for tick_s, repeats in ((2**-8, 9), (2**-6, 7), (1.0, 3)):
        (timing,) = time_steps(Quadratic(), [(1, 1)], ticking(tick_s, 2**20))
        assert timing.seconds.tolist() == [2 * tick_s] * repeats


def ticking(seconds, first=0):
    """A clock that advances slightly at each reading, so that every block of work takes as long."""
    reads = count(first)
    return lambda: seconds * next(reads)


def test_a_mini_batch_takes_longer_by_what_the_links_beyond_the_machine_carry_slower():
    # 0.5 s, and 100 MB there and back: 0.1 s in the machine, 0.16 s in the rack, 0.64 s in the cluster.
    options = ProfileOptions(rack_mbps=10_000.0, cluster_mbps=2_500.0)
    found = placement_of(0.5, 100.0, 16_000.0, options)
    assert (found.rack, found.cluster) == pytest.approx((0.66 / 0.6, 1.14 / 0.6))
    slow = placement_of(0.5, 100.0, 2_000.0, options)  # no link is faster than the machine's memory
    assert (slow.rack, slow.cluster) == (1.0, 1.0)


def test_a_profile_says_how_far_workers_are_from_being_alike():
    job = job_profile(*measured(0))
    found = {point.workers: point.speedup for point in job.scaling}
    assert job.linear_error == pytest.approx(max(abs(w / s - 1) for w, s in found.items()))


def test_a_profile_is_doubted_where_its_fits_miss_what_they_were_not_fitted_to():
    quiet, noisy = job_profile(*measured(0, noise=0.0)), job_profile(*measured(0, noise=1.5))
    assert quality_warnings(ProfileDocument(schema=SCHEMA, jobs=[quiet])) == []
    assert noisy.speed.error > MAX_ERROR
    (remark,) = quality_warnings(ProfileDocument(schema=SCHEMA, jobs=[quiet, noisy]))
    assert remark.startswith(
        f"simulated: predictions of the synchronous speed at points left out of the fit err by {noisy.speed.error:.0%}"
    )
    assert "--option repeats=N" in remark
    assert quality_warnings(published_profiles()) == []


def test_a_profile_says_what_its_measurements_cannot_tell_apart():
    job_measured, server = measured(0, noise=0.0)
    alone = [point for point, (_, servers) in enumerate(job_measured.grid) if servers == 1]
    one_server = replace(
        job_measured,
        grid=tuple(job_measured.grid[point] for point in alone),
        steps=tuple(job_measured.steps[point] for point in alone),
    )
    job = job_profile(one_server, server)
    assert [each.value for each in job.speed.coefficients[3:]] == [0.0, 0.0]
    assert quality_warnings(ProfileDocument(schema=SCHEMA, jobs=[job])) == [
        "simulated: measurements of the synchronous speed can't separate the term w from those before it, the term p from "
        "those before it; other terms include its share"
    ]


def test_beyond_the_machine_steps_take_as_much_longer_as_the_bandwidth_says():
    job = job_profile(*measured(0, noise=0.0))
    own = job.worker_mbps.value
    near = 0.02 + 16 / own
    assert job.placement.slot == job.placement.machine == 1.0
    assert job.placement.rack == 1.0  # 10 Gbit/s is more than a worker's share here
    assert job.placement.cluster == pytest.approx((0.02 + 16 / min(2500.0, own)) / near)


def test_updates_cost_more_beyond_the_cache():
    assert update_seconds(SIMULATED, 1, 1e5) == pytest.approx(1e-5 + 2e-6 + 1e-6)
    assert update_seconds(SIMULATED, 8, 1e6) == pytest.approx(1e-5 + 2e-4 + 8e-4)


def test_a_measured_profile_is_written_read_and_made_into_jobs(tmp_path):
    path = tmp_path / "profile.json.gz"
    write_profiles(ProfileDocument(schema=SCHEMA, jobs=[job_profile(*measured(1))]), path)
    profiles = read_profiles(path)
    assert profiles.jobs[0] == job_profile(*measured(1))
    instance = admission_instance(
        profiles, GeneratorOptions(num_jobs=6, num_slots=12, num_worker_servers=4, num_ps_servers=4), 0
    )
    assert set(instance.jobs.gradient_micro_mb.tolist()) == {1_000_000}


@pytest.mark.parametrize(
    ("problem", "options", "solver"),
    [
        ("admission", GeneratorOptions(num_jobs=6, num_slots=12, num_worker_servers=4, num_ps_servers=4), "online"),
        ("auction", AuctionOptions(num_apps=4, num_gpus=8, num_machines=4), "exact"),
        ("bidding", BiddingOptions(num_types=2, num_zones=2, days=3), "greedy"),
    ],
)
def test_all_three_problems_are_solved_on_a_measured_profile(problem, options, solver):
    profiles = ProfileDocument(schema=SCHEMA, jobs=[job_profile(*measured(seed)) for seed in range(2)])
    instance = profiled_instance(problem, profiles, options, 0)
    solution = optim.solve(instance, solver)
    assert solution.decision is not None
    assert optim.verify(instance, solution).is_ok


@pytest.mark.parametrize(
    "bad", [{"workers_a_server": 0}, {"rack_mbps": 0.0}, {"vcpu": -1.0}, {"repeats": 0}, {"max_points": 5}]
)
def test_refuses_options_out_of_range(bad):
    with pytest.raises(InvalidOptionError):
        ProfileOptions(**bad)


def test_a_change_loses_the_carrying_and_an_eviction_the_applying_too():
    size, four = 250_000, MeasuredValue.exactly  # a megabyte
    update = UpdateCost(in_cache=[four(v) for v in (9.0, 9.0, 9.0, 9.0)], beyond=[four(v) for v in (1.0, 2.0, 3e-6, 1e-6)],
                        cache_bytes=1e6, error=0.0)  # fmt: skip
    timing = Timing(seconds=np.array([2.0, 2.0, 2.0]))
    grid = tuple((w, p) for w in (1, 2, 4) for p in (1, 2))
    measured = JobMeasurements(
        name="j",
        source="s",
        minibatch=timing,
        num_parameters=size,
        num_partitions=4,
        grid=grid,
        steps=(timing,) * len(grid),
        startup_s=90.0,
    )
    server = ServerFigures(link=LinkFigures(start_s=0.5, mbps=four(16.0)), update=update)
    profile = job_profile(measured, server)
    carry_s = 0.5 + 8 / 16
    apply_s = 1 + 2 * 4 + 3 + 4  # four pushes of a megabyte
    assert profile.change_min == pytest.approx(carry_s / 60)
    assert profile.eviction_min == pytest.approx((carry_s + apply_s) / 60)
    assert (profile.startup_min, profile.gradient_mb) == (1.5, 1.0)
    assert profile.ps_mbps.value == pytest.approx(4 * 8 / (4 * 0.5 + 4 * 8 / 16 + apply_s))
    assert profile.worker_mbps.value == pytest.approx(profile.ps_mbps.value / 4)
    assert profile.linear_error == pytest.approx(3.0)  # four workers are no faster than one
    assert profile.ps.memory_gb == 1.0
    assert (
        job_profile(replace(measured, num_parameters=500_000_000), server).ps.memory_gb == 6.0
    )  # with slots and a push


@pytest.mark.parametrize("slow", [0, 1])
def test_a_link_is_as_fast_as_the_slower_of_pulls_and_pushes_over_all_sizes(slow, monkeypatch):
    def timings(works, *, repeats, clock):
        del clock
        for work in works:
            work()
        seconds = [
            3e-5 + size / (4e9 if way == slow else 9e9) for way in range(2) for size in machine_benchmarks.COPY_SIZES
        ]
        return [Timing(seconds=np.full(repeats, each)) for each in seconds]

    monkeypatch.setattr(machine_benchmarks, "time_interleaved", timings)
    link = measure_link(None, repeats=5)
    assert link.start_s == pytest.approx(3e-5, rel=1e-6)
    assert link.mbps.value == pytest.approx(8 * 4e9 / 1e6, rel=1e-6)


@pytest.mark.parametrize("repeats", [20, 51, 100])
def test_the_interval_holds_the_median_nineteen_times_in_twenty_and_is_no_wider_than_that_takes(repeats):
    """For order statistics: the binomial distribution of the number of repeats below the true median."""
    found = Timing(seconds=np.arange(repeats, dtype=float)[::-1]).interval(2.0)
    low, high = round(found.low / 2), round(found.high / 2)
    below = [math.comb(repeats, k) / 2**repeats for k in range(repeats + 1)]
    assert sum(below[low + 1 : high + 1]) >= 0.95
    assert sum(below[low + 3 : high - 1]) < 0.95
    assert found.value == pytest.approx(repeats - 1)
