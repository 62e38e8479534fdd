"""Generated instances: determinism, ranges, earlier days, and the likeness to the reference instances."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from optim.core.arrays import FloatArray
from optim.core.errors import InvalidOptionError
from optim.models.admission.data import MEGABITS_THERE_AND_BACK, MICRO, SigmoidUtility
from optim.models.admission.earliest_completion import earliest_completion
from optim.models.admission.instance import AdmissionInstance
from optim.models.admission.problem import PROBLEM
from optim.models.admission.summary import describe
from optim.models.reference import reference_instance
from optim.workloads.admission.generator import (
    GeneratorOptions,
    UtilityMix,
    draw_arrivals,
    draw_durations,
    drawn_days,
    generate,
)
from tests.support.admission.days import days

SMALL: Mapping[str, Any] = {"num_jobs": 20, "num_slots": 24, "num_worker_servers": 6, "num_ps_servers": 6}
QUARTILES = (0.25, 0.5, 0.75, 0.9)
FIGURES: Mapping[str, Callable[[AdmissionInstance], FloatArray]] = {
    "work": lambda instance: instance.work.astype(float),
    "chunks": lambda instance: instance.jobs.chunks.astype(float),
    "duration": lambda instance: instance.work / instance.jobs.chunks,
    "arrival": lambda instance: instance.jobs.arrival / instance.horizon,
}
LIKENESS = 1.35
"""Largest ratio of quartiles: the two reference instances of 200 jobs differ by up to 1.3 themselves."""


def _sigmoids(instance: AdmissionInstance) -> list[SigmoidUtility]:
    return [utility for utility in instance.jobs.utilities if isinstance(utility, SigmoidUtility)]


def test_same_seed_gives_the_same_instance() -> None:
    options = GeneratorOptions(**SMALL)
    assert PROBLEM.write_instance(generate(options, 5)) == PROBLEM.write_instance(generate(options, 5))


def test_another_seed_gives_another_instance() -> None:
    options = GeneratorOptions(**SMALL)
    first, second = (generate(options, seed) for seed in (5, 6))
    assert first.work.tolist() != second.work.tolist()
    assert first.name != second.name


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"shared_servers": True, "max_share_per_server": 0.25},
        {"slot_s": 1800.5},
        {"chunk_integral": True},
    ],
    ids=lambda options: ",".join(options) or "plain",
)
def test_every_quantity_survives_writing_and_reading(options: dict[str, Any]) -> None:
    data = PROBLEM.write_instance(generate(GeneratorOptions(**SMALL, **options), 2))
    assert PROBLEM.write_instance(PROBLEM.read_instance(data)) == data


@pytest.mark.parametrize("figure", FIGURES)
def test_resembles_the_reference_instances(figure: str) -> None:
    references = [reference_instance(name) for name in ("medium-0", "heavy-0")]
    drawn = [generate(GeneratorOptions(), seed) for seed in range(4)]
    ours, theirs = (
        np.quantile(np.concatenate([FIGURES[figure](instance) for instance in several]), QUARTILES)
        for several in (drawn, references)
    )
    assert np.maximum(ours / theirs, theirs / ours).max() < LIKENESS, (ours, theirs)


@pytest.mark.parametrize(("servers", "least"), [(50, 0.85), (10, 0.6)])
def test_most_jobs_can_finish_alone(servers: int, least: float) -> None:
    options = GeneratorOptions(num_worker_servers=servers, num_ps_servers=servers)
    for seed in range(3):
        assert (earliest_completion(generate(options, seed)) >= 0).mean() >= least


def test_jobs_that_cannot_finish_are_redrawn_until_enough_can() -> None:
    sizes = {"num_jobs": 30, "num_slots": 6, "num_worker_servers": 2, "num_ps_servers": 2}
    share = {
        wanted: (earliest_completion(generate(GeneratorOptions(**sizes, min_schedulable=wanted), 0)) >= 0).mean()
        for wanted in (0.0, 1.0)
    }
    assert share[0.0] < 0.9
    assert share[1.0] == 1.0


def test_says_so_when_no_draw_can_finish() -> None:
    options = GeneratorOptions(**SMALL, worker_types=("p2.xlarge",), worker_gpu=(2, 4))
    with pytest.raises(InvalidOptionError, match=r"min_schedulable must be at most 0\.00"):
        generate(options, 0)


def test_no_job_needs_longer_than_its_target_delay() -> None:
    instance = generate(GeneratorOptions(arrival_span=1.0), 0)
    shortest = -(-instance.work // instance.jobs.chunks)
    assert (shortest <= [utility.theta3 for utility in _sigmoids(instance)]).all()
    assert (instance.jobs.arrival + shortest <= instance.horizon).all()


def test_communication_stays_within_its_share_of_a_minibatch() -> None:
    jobs = generate(GeneratorOptions(communication=(0.1, 0.3)), 0).jobs
    sending = MEGABITS_THERE_AND_BACK * jobs.gradient_micro_mb / jobs.worker_micro_mbps
    assert (sending <= 0.3 * (sending + (jobs.minibatch_micro_s + 1) / MICRO)).all()


def test_classes_of_utilities_have_their_shares() -> None:
    number = 4000
    drawn = UtilityMix().draw(np.full(number, 5.0), np.random.default_rng(0))
    urgency = np.array([utility.theta2 for utility in drawn])
    shares = [(urgency == 0).mean(), ((urgency > 0) & (urgency <= 1)).mean(), (urgency >= 4).mean()]
    assert shares == pytest.approx([0.10, 0.55, 0.35], abs=3 * 0.5 / np.sqrt(number))
    assert all(1 <= utility.theta1 <= 100 for utility in drawn)


def test_durations_have_the_tail_that_is_asked_for() -> None:
    """Without cuts the mean over the median is exp(sigma^2 / 2), as in the published run times."""
    drawn = draw_durations(3.0, 1.5, 0.0, np.full(200_000, np.inf), np.random.default_rng(1))
    assert np.median(drawn) == pytest.approx(3.0, rel=0.02)
    assert drawn.mean() / np.median(drawn) == pytest.approx(np.exp(1.5**2 / 2), rel=0.05)


def test_durations_keep_to_their_limits() -> None:
    longest = np.array([0.5, 1.0, 2.0, 50.0])
    drawn = draw_durations(100.0, 2.46, 1.0, longest, np.random.default_rng(0))
    assert (drawn <= longest).all()
    assert (drawn >= np.minimum(longest, 1.0)).all()


def _dispersion(burstiness: float) -> float:
    """Return the variance over the mean of the number of arrivals per slot, without a daily wave."""
    rng = np.random.default_rng(3)
    slots = draw_arrivals(40_000, 4_000, 3600.0, swing=0.0, burstiness=burstiness, rng=rng)
    counts = np.bincount(slots, minlength=4_000)
    return float(counts.var() / counts.mean())


def test_bursts_raise_the_variance_of_arrivals() -> None:
    # 10 arrivals a slot: variance m + m^2 burstiness.
    assert _dispersion(0.0) == pytest.approx(1.0, abs=0.1)
    assert _dispersion(0.35) == pytest.approx(4.5, rel=0.1)


def test_most_jobs_arrive_by_day() -> None:
    slots = draw_arrivals(20_000, 48, 3600.0, swing=0.8, burstiness=0.0, rng=np.random.default_rng(0))
    hours = np.bincount(slots % 24, minlength=24)
    assert hours.argmax() in (13, 14)
    assert hours.max() / hours.min() == pytest.approx(1.8 / 0.2, rel=0.25)


def test_arrivals_are_sorted_and_within_their_span() -> None:
    arrival = generate(GeneratorOptions(**SMALL, arrival_span=0.5), 0).jobs.arrival
    assert (np.diff(arrival) >= 0).all()
    assert arrival.max() < 12


def test_shared_servers_are_one_pool() -> None:
    instance = generate(GeneratorOptions(**SMALL, shared_servers=True), 0)
    assert instance.has_shared_servers
    assert instance.worker_servers.num_servers == 12


def test_small_clusters_get_small_jobs() -> None:
    assert GeneratorOptions(num_worker_servers=2).chunk_range == (2, 4)
    assert GeneratorOptions(num_worker_servers=50).chunk_range == (5, 100)
    assert GeneratorOptions(num_worker_servers=2, chunks=(7, 9)).chunk_range == (7, 9)


def test_an_instance_without_jobs_can_be_drawn() -> None:
    assert describe(generate(GeneratorOptions(num_jobs=0), 0))["jobs"] == 0


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"num_jobs": -1}, "num_jobs must be at least 0, got -1"),
        ({"num_slots": 0}, "num_slots must be at least 1"),
        ({"num_worker_servers": 0}, "num_worker_servers"),
        ({"num_ps_servers": 0}, "num_ps_servers"),
        ({"epochs": (5, 4)}, "epochs must be a range"),
        ({"worker_mbps": (100, 6000)}, "worker_mbps must not exceed ps_mbps"),
        ({"communication": (0.5, 1.0)}, "communication must be below 1"),
        ({"chunks": (0, 4)}, "chunks must be a range"),
        ({"slot_s": 0.0}, r"slot_s must be in \(0, 1e9\]"),
        ({"slot_s": 1e308}, r"slot_s must be in \(0, 1e9\]"),
        ({"slot_s": 1e-7}, "slot_s must have at most 6 decimal places"),
        ({"duration_sigma": float("inf")}, "duration_sigma must be positive"),
        ({"arrival_swing": 1.5}, r"arrival_swing must be in \[0, 1\]"),
        ({"arrival_span": 0.0}, "arrival_span must be in"),
        ({"arrival_burstiness": -0.1}, "arrival_burstiness must be at least 0"),
        ({"max_share_per_server": 0.0}, "max_share_per_server must be in"),
        ({"min_schedulable": float("nan")}, "min_schedulable must be in"),
        ({"worker_types": ("p9.huge",)}, "worker_types must list at least one of .* got 'p9.huge'"),
        ({"ps_types": ()}, "ps_types must list at least one of .* got none"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_refuses_options_out_of_range(options: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidOptionError, match=text):
        GeneratorOptions(**options)


@pytest.mark.parametrize(
    "options", [{"critical": -1.0}, {"insensitive": 0, "sensitive": 0, "critical": 0}, {"theta1": (2.0, 1.0)}]
)
def test_refuses_a_mix_of_utilities_out_of_range(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOptionError):
        UtilityMix(**options)


@pytest.mark.parametrize(
    ("sizes", "text"),
    [
        (
            {"num_jobs": 10**6},
            "num_jobs: at most 100000 are generated, got 1000000; generate fewer, or raise .*--limit count=N",
        ),
        ({"num_slots": 10**6}, "num_slots: at most 100000"),
        ({"num_worker_servers": 10**6}, "num_worker_servers: at most 100000"),
        ({"num_ps_servers": 2**63}, "num_ps_servers: at most 100000"),
        ({"num_jobs": 10**5, "num_slots": 10**5}, "num_slots times num_jobs: at most 50000000"),
    ],
)
def test_refuses_to_draw_more_than_a_reader_takes_before_anything_is_made(sizes: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidOptionError, match=text):
        generate(GeneratorOptions(**{**SMALL, **sizes}), seed=0)


def test_the_largest_reference_is_within_the_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing it takes long: here only up to its servers."""
    monkeypatch.setattr("optim.workloads.admission.generator._draw_sides", lambda options, rng: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        generate(GeneratorOptions(num_jobs=10_000, num_slots=1_000, num_worker_servers=1_000, num_ps_servers=1_000), 0)


def test_drawn_days_have_the_cluster_s_servers_and_jobs_of_their_own() -> None:
    today = days(0)[-1]
    first, second = drawn_days(today, 2, seed=0)
    assert first.name != second.name
    for day in (first, second):
        assert day.worker_servers is today.worker_servers
        assert day.num_jobs == today.num_jobs
    assert not np.array_equal(first.jobs.epochs, second.jobs.epochs)
    again = drawn_days(today, 2, seed=0)[1]
    np.testing.assert_array_equal(second.jobs.epochs, again.jobs.epochs)
    assert not np.array_equal(drawn_days(today, 1, seed=1)[0].jobs.epochs, first.jobs.epochs)


def test_no_earlier_day_is_the_day_itself() -> None:
    """The generator's seed 1,001 is the second draw of seed 0; its days are the same as for any other instance."""
    options = GeneratorOptions(num_jobs=4, num_slots=6, num_worker_servers=3, num_ps_servers=3)
    today, other = (generate(options, seed) for seed in (1001, 7))
    usual, found = drawn_days(other, 4, seed=0), drawn_days(today, 3, seed=0)
    assert np.array_equal(usual[1].jobs.epochs, today.jobs.epochs)
    assert [day.jobs.epochs.tolist() for day in found] == [usual[k].jobs.epochs.tolist() for k in (0, 2, 3)]


def test_other_resources_are_refused_with_what_to_give_instead() -> None:
    with pytest.raises(InvalidOptionError, match="give --history FILE instead"):
        drawn_days(replace(days(0)[-1], resources=("a", "b", "c", "d")), 1, 0)
