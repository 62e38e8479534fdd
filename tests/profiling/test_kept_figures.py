"""What profiles, fits, speeds and instances made of them tell, compared with what is kept; nothing is timed."""

import json
from pathlib import Path

import msgspec
import numpy as np

from optim.profiling.commands import Steps, measured, script_profile
from optim.profiling.document import SpeedFunction, UpdateCost, read_profiles, write_profiles
from optim.profiling.fitting import (
    MODELS,
    choose_model,
    concave_envelope,
    fit_times,
    identifiable_columns,
    intervals,
    scalability_of,
    speedup_table,
    speedups,
    steps_per_second,
    synchronous_terms,
    update_terms,
)
from optim.profiling.job_profile import (
    JobMeasurements,
    ProfileOptions,
    ServerFigures,
    fit_errors,
    job_profile,
    placement_of,
    quality_warnings,
    rescaled,
    update_seconds,
)
from optim.profiling.machine_benchmarks import LinkFigures, fit_link, update_points
from optim.profiling.timing import Timing, check_quiet, choose_points, time_interleaved
from optim.workloads.admission.generator import GeneratorOptions as AdmissionOptions
from optim.workloads.auction.generator import GeneratorOptions as AuctionOptions
from optim.workloads.profiles import admission_instance, auction_instance, published_profiles
from tests.support.kept import assert_kept, outcome, parts, short
from tests.support.profiles.jobs import SteppedClock
from tests.support.variants import answers, option_variants

KEPT = Path(__file__).parent / "kept"
ADMISSION = AdmissionOptions(num_jobs=8, num_slots=10, num_worker_servers=4, num_ps_servers=4, min_schedulable=0.1)


def timing(*seconds):
    return Timing(seconds=np.array(seconds))


def test_jobs_and_instances():
    profiles, found = published_profiles(), {}
    for job in profiles.jobs:
        curve = scalability_of(job)
        others = [rescaled(job, tau=2.0), rescaled(job, gradient=0.5), rescaled(job, bandwidth=4.0)]
        found[job.name] = [job, curve, speedups(job, 12), speedup_table(job, 8), fit_errors(job), others]
        if isinstance(job.speed, SpeedFunction):
            found[f"{job.name} speed"] = steps_per_second(job.speed, np.array([1.0, 2, 4, 8]), np.array([1.0, 1, 2, 4]))
    found["doubts"] = quality_warnings(profiles)
    for shared in (False, True):
        options = msgspec.structs.replace(ADMISSION) if isinstance(ADMISSION, msgspec.Struct) else ADMISSION
        found[f"admission {shared}"] = short(admission_instance(profiles, options, 3 + shared))
    found["auction"] = short(auction_instance(profiles, AuctionOptions(num_apps=6, num_gpus=16, num_machines=4), 3))
    assert_kept(KEPT / "jobs.json", found)


def test_fits_and_choices():
    rng = np.random.default_rng(3)
    workers, servers = np.array([1.0, 2, 4, 8, 1, 2, 4, 8]), np.array([1.0, 1, 1, 1, 2, 2, 4, 4])
    terms = synchronous_terms(workers, servers, 64.0)
    seconds = terms @ np.array([0.1, 0.5, 0.2, 0.01, 0.0]) * (1 + 0.01 * rng.random(8))
    fit = fit_times(terms, seconds)
    names = ([1, 2, 4], [1, 2, 4, 8], [1, 3])
    bytes_ = np.array([1e3, 1e4, 1e5, 1e6])
    found = {
        "terms": [terms, update_terms(workers, 1000 * servers)],
        "fit": [[round(float(one), 6) for one in np.ravel(getattr(fit, name))] for name in ("coefficients",)], "intervals": len(intervals(fit)),
        "apart": [identifiable_columns(terms), identifiable_columns(np.ones((4, 3))), identifiable_columns(np.eye(3))], "chosen": [choose_points(terms, seconds, number).tolist() for number in (3, 5, 8)],
        "models": [choose_model(given, [4.0 / w + 1.0 + 0.1 * w for w in given])[0] for given in names], "names": list(MODELS),
        "envelope": concave_envelope(np.array([1.0, 2, 3, 4]), np.array([1.0, 1.5, 2.9, 3.0])), "link": fit_link(bytes_, 1e-5 + bytes_ / 1e9),
        "points": [update_points(cache, allowed) for cache in (10**6, 3 * 10**7) for allowed in (10**8, 10**9)],
        "placement": [placement_of(tau, 10.0, own, ProfileOptions()) for tau in (0.1, 2.0) for own in (100.0, 20_000.0)],
        "quiet": [outcome(check_quiet, noise, load, 2) for noise in (0.05, 0.2) for load in (0.1, 1.5)],
        "timings": [parts(one) for one in time_interleaved([lambda: None, lambda: None], repeats=4, clock=SteppedClock(1.0, 2.0, 3.0, 2.5))],
        "within": [[parts(one) for one in time_interleaved([lambda: None, lambda: None], repeats=6, budget_s=budget, clock=SteppedClock(1.0, 2.0, 3.0, 2.5, 4.0))] for budget in (0.5, 9.0, 60.0)],
        "timing": parts(timing(1.0, 1.2, 5.0, 1.1)),
    }  # fmt: skip
    assert_kept(KEPT / "fits.json", found)


def test_profiles_of_measurements_and_scripts():
    grid = ((1, 1), (2, 1), (4, 1), (2, 2), (4, 2), (4, 4), (1, 2))
    steps = tuple(timing(*(0.1 + 0.4 / w + 0.05 * w / p + 0.01 * p + 0.001 * k for k in range(5))) for w, p in grid)
    update = next((job.update for job in published_profiles().jobs if isinstance(job.update, UpdateCost)), None)
    link = LinkFigures(**{name: 1e-4 if name == "start_s" else 1e9 for name in LinkFigures.__dataclass_fields__})
    found = {}
    for what, given in option_variants(ProfileOptions):
        options = outcome(ProfileOptions, **given)
        if isinstance(options, str) or update is None:
            found[f"options {what}"] = options
            continue
        told = JobMeasurements(
            name="job", source="here", minibatch=timing(0.4, 0.41, 0.42), num_parameters=1000, num_partitions=8, grid=grid,
            steps=steps, startup_s=3.0, num_samples=64,
        )  # fmt: skip
        made = outcome(job_profile, told, ServerFigures(link=link, update=update, options=options))
        found[f"options {what}"] = (
            made
            if isinstance(made, str)
            else short([round(made.minibatch_s.value, 9), made.gradient_mb, made.epochs, made.worker, made.placement])
        )
    if update is not None:
        found["update"] = [update_seconds(update, pushes, size) for pushes in (1, 4) for size in (1e3, 1e8)]

    def told_by(workers, seconds, **more):
        known = {
            "schema": "optim/steps/1",
            "started_at": 105.0,
            "model_bytes": 2_000_000,
            "wall_s": 10.0,
            "host_bytes": 3 * 10**9,
        }
        return measured(
            [Steps(seconds=[seconds] * 6, alone_s=[seconds / 2] * 6, **known, **more)] * workers, workers, 100.0
        )

    for name, more in {
        "whole": {
            "samples": 100,
            "batch": 8,
            "epochs": 5.0,
            "devices": 2,
            "network_bytes": 10**7,
            "cpu_share": 0.5,
            "device_bytes": 10**9,
            "device_share": 0.25,
        },
        "bare": {},
    }.items():
        runs = [told_by(w, 4.0 / w + 1.0, **more) for w in (1, 2, 4)]
        made = script_profile("mine", "x", runs, ProfileOptions())
        found[f"script {name}"] = [made, [parts(one) for one in runs]]
    assert_kept(KEPT / "profiles.json", found)


def test_files_with_one_field_changed(tmp_path):
    path = tmp_path / "profiles.json"
    whole = published_profiles()
    write_profiles(msgspec.structs.replace(whole, jobs=whole.jobs[:1]), path)

    def said(document):
        path.write_text(json.dumps(document))
        found = outcome(read_profiles, path)
        return found.replace(str(tmp_path), "") if isinstance(found, str) else short(found)

    assert_kept(KEPT / "files.json", answers(json.loads(path.read_text()), said, 1))
