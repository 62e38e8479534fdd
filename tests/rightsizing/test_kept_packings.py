"""Profiles, instances, replays and rows of packing come out as they were kept."""

from dataclasses import asdict
from pathlib import Path

import numpy as np

from optim.models.admission.decision import AdmissionPlan
from optim.rightsizing import PhaseLabels
from optim.rightsizing.packing import (
    PackingOptions,
    admission_instance,
    demand_by_slot,
    pack,
    perturbed,
    phase_spread,
    profile_of,
    replay,
)
from tests.support.containers.worlds import drawn_series
from tests.support.kept import assert_kept, outcome

KEPT = Path(__file__).parent / "kept"
CAPACITY = np.array([4.0, 6.0])


def drawn_demands(seed, number=7):
    """Return demands by slot of some jobs, each at most what a server has."""
    rng = np.random.default_rng(seed)
    return tuple(rng.choice([0.5, 1.0, 1.5, 2.5], (int(rng.integers(1, 6)), 2)) for _ in range(number))


def test_profiles_and_demands_come_out_as_before():
    rng, found = np.random.default_rng(4), {}
    series = drawn_series(11, 6)
    labels = np.where(rng.random(len(series.phase)) < 0.1, -1, series.phase)
    spread = phase_spread(series, np.where(labels < 0, 3, labels), 3)
    found["spread"] = [spread.factor(risk) for risk in (0.0, 0.05, 0.5)]
    for number, rows in enumerate(series.segments()):
        profile = profile_of(series.values[rows], labels[rows], 3)
        found[f"profile {number}"] = [profile, perturbed(profile, 0.2, np.random.default_rng(number))]
        found[f"demand {number}"] = [demand_by_slot(profile, spread.factor(0.1), slots, 8) for slots in (2, 12)]
    assert_kept(KEPT / "packing-profiles.json", found)


def test_instances_and_replays_come_out_as_before():
    demands = drawn_demands(2)
    instance = admission_instance("packed", demands, np.arange(7) // 2, CAPACITY, 2, 12, 300.0, ("cpu", "memory"))
    jobs = {name: getattr(instance.jobs, name) for name in ("ids", "arrival", "epochs", "segment_offset", "segment_start", "worker_demand", "ps_demand", "minibatch_micro_s")}  # fmt: skip
    servers = [[own.types, own.capacity, own.count] for own in (instance.worker_servers, instance.ps_servers)]
    utilities = [utility.value for utility in instance.jobs.utilities]
    found = {
        "jobs": jobs,
        "servers": servers,
        "utilities": utilities,
        "slots": [instance.horizon, instance.slot_micro_s],
    }
    rng = np.random.default_rng(3)
    rows = [(job, job // 2 + slot, int(rng.integers(2)), 1) for job in range(7) for slot in range(len(demands[job]))]
    series = [np.repeat(own, 3, axis=0)[: 3 * len(own) - 1] * rng.uniform(0.7, 2.0) for own in demands]
    plan = AdmissionPlan.from_rows(workers=rows, ps=[])
    found["replay"] = replay(plan, series, list(demands), CAPACITY, 2, 3)
    found["none"] = outcome(admission_instance, "none", (), np.zeros(0), CAPACITY, 2, 12, 300.0, ("cpu", "memory"))
    assert_kept(KEPT / "packing-instances.json", found)


def test_rows_come_out_as_before():
    training, jobs = drawn_series(21, 12), drawn_series(22, 10)
    phases = PhaseLabels(labels=jobs.phase, training=training.phase, num_phases=3)
    options = PackingOptions(num_servers=2, jobs_per_server=2.0, slot_s=75.0, horizon_hours=0.5, risk=0.1)
    rows = pack(training, jobs, phases, options, 3)
    assert_kept(KEPT / "packed.json", {f"packed {row.sizing}": asdict(row) for row in rows})
