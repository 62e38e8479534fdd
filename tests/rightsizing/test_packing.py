"""Profiles, instances, and replays by hand; and the complete comparison."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.models.admission.decision import AdmissionPlan
from optim.rightsizing import PhaseLabels
from optim.rightsizing.packing import (
    PackingOptions,
    Profile,
    admission_instance,
    demand_by_slot,
    min_phase_samples,
    pack,
    perturbed,
    phase_spread,
    profile_of,
    replay,
)
from optim.workloads.containers import ContainerOptions, generate_containers
from tests.support.containers.worlds import series_of

ONE = np.ones((3, 1))


def column(*values):
    return np.array(values, dtype=np.float64)[:, None]


def test_a_profile_holds_runs_with_their_means():
    profile = profile_of(column(1, 3, 8, 8, 4), np.array([-1, -1, 0, 0, 1]), 2)
    assert profile.phase.tolist() == [2, 0, 1]
    assert profile.dwell.tolist() == [2, 2, 1]
    assert profile.level[:, 0].tolist() == [2, 8, 4]


def test_a_slot_is_given_the_most_of_the_runs_that_touch_it():
    profile = Profile(phase=np.array([0, 1, 0]), dwell=np.array([3.0, 2.5, 9.0]), level=column(1, 5, 2))
    assert demand_by_slot(profile, ONE, 4, 2)[:, 0].tolist() == [1, 5, 5, 2]


def test_the_last_run_goes_on_where_the_job_takes_longer_than_last_time():
    profile = Profile(phase=np.array([0]), dwell=np.array([1.0]), level=column(3))
    assert demand_by_slot(profile, 2 * ONE, 3, 2)[:, 0].tolist() == [6, 6, 6]


@given(seed=st.integers(0, 2**32 - 1), risk=st.sampled_from([0.0, 0.05, 0.25]))
def test_so_many_training_samples_lie_above_what_their_phase_is_given(seed, risk):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, size=12).repeat(20)
    series = series_of([np.stack([rng.random(240), 1 + rng.random(240)], axis=1)])
    spread = phase_spread(series, labels, 2).factor(risk)
    level = {}
    for run, rows in enumerate(np.split(np.arange(240), np.flatnonzero(np.diff(labels)) + 1)):
        level[run] = (rows, series.values[rows].mean(axis=0))
    for phase in np.unique(labels).tolist():
        above = total = 0
        for rows, mean in level.values():
            if labels[rows[0]] == phase:
                above = above + (series.values[rows] > mean * spread[phase] * (1 + 1e-12)).sum(axis=0)
                total += len(rows)
        assert (np.asarray(above) <= risk * total + 1).all()


def test_an_instance_asks_for_a_slot_of_work_a_slot_and_changes_its_demands_in_between():
    demands = [np.array([[1.0, 2.0], [1.0, 2.0], [3.0, 1.0]]), np.array([[0.5, 0.1234567]])]
    instance = admission_instance(
        "two", demands, np.array([0, 1]), np.array([4.0, 4.0]), 1, 6, 300.0, ("cpu", "memory")
    )
    assert instance.work.tolist() == [3, 1]
    assert instance.jobs.segment_start.tolist() == [0, 2, 0]
    assert instance.jobs.worker_demand.tolist() == [[10**6, 2 * 10**6], [3 * 10**6, 10**6], [500_000, 123_457]]
    assert instance.value[0].tolist() == [3.0] * 6


def test_a_replay_finds_the_samples_that_do_not_fit():
    """Two jobs on one server of 4, two samples per slot; the second runs in slots 0 and 2."""
    series = [column(1, 1, 3, 3), column(2, 4, 1, 1)]
    demands = [column(1, 3), column(3, 1)]
    plan = AdmissionPlan.from_rows([(0, 0, 0, 1), (0, 1, 0, 1), (1, 0, 0, 1), (1, 2, 0, 1)], [])
    found = replay(plan, series, demands, np.array([4.0]), 1, 2)
    assert found.overload.tolist() == [1 / 6]
    assert found.excess.tolist() == [1 / 16]
    assert found.under_time.tolist() == [1 / 8]
    assert found.used.tolist() == [16 / 24]


def test_phases_pack_more_than_peaks_and_peaks_never_overload():
    series = generate_containers(ContainerOptions(num_containers=34), seed=0)
    training, jobs = series.select(np.arange(20)), series.select(np.arange(20, 34))
    phases = PhaseLabels(labels=jobs.phase, training=training.phase, num_phases=5)
    options = PackingOptions(num_servers=1, jobs_per_server=3.0, horizon_hours=2.0)
    peak, flat, phase = pack(training, jobs, phases, options, seed=0)
    assert [row.sizing for row in (peak, flat, phase)] == ["peak", "flat", "phase"]
    assert peak.gain == 0.0
    assert set(peak.overload.values()) == {0.0}
    assert set(peak.under_time.values()) == {0.0}
    assert phase.work >= peak.work
    assert phase.gain == pytest.approx(phase.work / peak.work - 1)
    assert all(0 <= value < 0.2 for row in (flat, phase) for value in row.overload.values())
    again = list(pack(training, jobs, phases, options, seed=0))
    assert again[2] == phase


@pytest.mark.parametrize(
    ("name", "value"),
    [("risk", 1.0), ("profile_error", -0.1), ("num_servers", 0), ("slot_s", 0.0), ("horizon_hours", 0.0)],
)
def test_options_out_of_range_are_refused(name, value):
    with pytest.raises(InvalidOptionError, match=f"{name} must be"):
        PackingOptions(**{name: value})


def test_a_disturbed_profile_is_off_by_one_factor_a_level_and_one_a_dwell():
    profile = Profile(phase=np.array([0, 1]), dwell=np.array([4.0, 6.0]), level=np.array([[1.0, 2.0], [3.0, 5.0]]))
    found = perturbed(profile, 0.3, np.random.default_rng(0))
    rng = np.random.default_rng(0)
    assert found.dwell == pytest.approx(profile.dwell * np.exp(0.3 * rng.normal(size=2)))
    assert found.level == pytest.approx(profile.level * np.exp(0.3 * rng.normal(size=(1, 2))))
    assert found.phase is profile.phase


def test_an_instance_has_equal_servers_and_a_host_that_parameter_servers_do_not_fill():
    instance = admission_instance(
        "one", [np.array([[1.0, 2.0]] * 2)], np.array([3]), np.array([4.0, 5.5]), 3, 6, 120.0, ("cpu", "memory")
    )
    assert (instance.horizon, instance.slot_micro_s, instance.resources) == (6, 120_000_000, ("cpu", "memory"))
    assert instance.worker_servers.capacity[0].tolist() == [[4_000_000, 5_500_000]] * 6
    assert (instance.worker_servers.count.tolist(), instance.ps_servers.count.tolist()) == ([3], [1])
    assert instance.jobs.arrival.tolist() == [3]
    assert instance.jobs.ps_demand.tolist() == [[0, 0]]
    assert instance.jobs.segment_offset.tolist() == [0, 1]
    with pytest.raises(InvalidProblemError, match="at least one job"):
        admission_instance("none", [], np.zeros(0, int), np.ones(1), 1, 2, 60.0, ("cpu",))


def test_demands_are_rounded_up_to_a_millionth_but_not_by_rounding_noise():
    instance = admission_instance(
        "one", [np.array([[0.1 + 0.2], [0.3000004]])], np.array([0]), np.array([1.0]), 1, 4, 60.0, ("cpu",)
    )
    assert instance.jobs.worker_demand[:, 0].tolist() == [300_000, 300_001]


def test_a_replay_of_nothing_is_nothing():
    plan = AdmissionPlan.from_rows([], [])
    found = replay(plan, [column(1, 1)], [column(1)], np.array([4.0]), 1, 2)
    assert [found.overload.tolist(), found.excess.tolist(), found.under_time.tolist(), found.used.tolist()] == [
        [0.0]
    ] * 4


def test_a_server_that_is_just_full_is_not_overloaded_and_95_per_cent_are_enough():
    series = [column(0.1, 0.2), column(0.2, 0.1)]
    plan = AdmissionPlan.from_rows([(0, 0, 0, 1), (1, 0, 0, 1)], [])
    found = replay(plan, series, [column(0.96 * 0.2)] * 2, np.array([0.1 + 0.2]), 1, 2)
    assert found.overload.tolist() == [0.0]
    assert found.under_time.tolist() == [0.0]
    short = replay(plan, series, [column(0.94 * 0.2)] * 2, np.array([0.25]), 1, 2)
    assert short.under_time.tolist() == [0.5]
    assert short.overload.tolist() == [1.0]
    assert short.excess == pytest.approx([0.1 / 0.6])


def test_jobs_must_lie_on_a_grid_finer_than_a_slot():
    series = series_of([np.ones(8)] * 3)
    phases = PhaseLabels(labels=np.zeros(24, int), training=np.zeros(24, int), num_phases=1)
    with pytest.raises(InvalidProblemError, match="grid with an interval of at most slot_s 5"):
        next(pack(series, series, phases, PackingOptions(slot_s=5.0), seed=0))


def test_the_rarest_phase_is_the_one_known_by_fewest_samples_of_those_that_are_seen():
    assert (
        min_phase_samples(np.array([0, 0, 0, 2, 2, -1, -1, -1, -1]), 4) == 2
    )  # phases 1 and 3 take all samples' spread
    assert min_phase_samples(np.array([0, 0, 0, -1]), 1) == 1
