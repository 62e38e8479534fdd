"""The labelled generator: published shares of phases, parameters, and reproducibility by seed."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.core.errors import InvalidOptionError
from optim.workloads.containers import PHASE_NAMES, ContainerOptions, generate_containers
from optim.workloads.containers.generator import Sizes, draw_phase, two_state_chain

SHARES = (0.019, 0.087, 0.144, 0.623, 0.127)
"""Share of samples by phase that the distributions imply."""
SHARE_TOL = 0.02
"""Three deviations of a share over a thousand containers."""


def drawn(seed=0, **options):
    return generate_containers(ContainerOptions(**options), seed)


def test_phases_have_the_shares_that_their_lengths_imply():
    series = drawn(num_containers=1000)
    shares = np.bincount(series.phase) / series.num_samples
    assert np.abs(shares - SHARES).max() < SHARE_TOL
    assert 178 < series.num_samples / series.num_segments < 192


def test_same_seed_same_series_and_more_containers_leave_the_first_as_they_are():
    few, many, other = drawn(num_containers=3), drawn(num_containers=7), drawn(seed=1, num_containers=3)
    assert np.array_equal(few.values, many.select([0, 1, 2]).values)
    assert not np.array_equal(few.values[:50], other.values[:50])


def test_every_container_starts_with_warm_up_and_a_load():
    series = drawn(num_containers=30)
    for rows in series.segments():
        phase = series.phase[rows]
        changes = phase[np.flatnonzero(np.diff(phase, prepend=-1))]
        assert [PHASE_NAMES[k] for k in changes[:2]] == ["warmup", "load"]


def test_consumption_stays_within_the_limits():
    series = drawn(num_containers=200)
    assert (series.values <= np.repeat(series.limit, series.lengths, axis=0)).all()


def test_without_noise_a_stable_phase_is_constant():
    series = drawn(num_containers=5, noise=0.0)
    for rows in series.segments():
        is_stable = (series.phase[rows] == 3) & (np.roll(series.phase[rows], 1) == 3)
        steps = np.abs(np.diff(series.values[rows], axis=0, prepend=0))[is_stable]
        assert np.allclose(steps, 0.0, atol=1e-9)


@pytest.mark.parametrize("name", PHASE_NAMES)
def test_resources_deviate_independently_in_every_phase(name):
    number = 20_000
    sizes = Sizes(cores=1e3, start_gib=1.0, set_gib=4.0, busy_cores=100.0, memory_limit_gib=1e3, network_mb_per_s=50.0)
    values, _ = draw_phase(name, number, 4.0, 4.0, sizes, 1.0, np.random.default_rng(3))
    # A burst's two levels are looked at one by one: about 110 and 35 cores, with deviations of 10 and 8.
    is_high = values[:, 0] > (70.0 if name == "burst" else np.inf)
    steps = np.arange(number)
    values[:, 1] -= np.polynomial.Polynomial.fit(steps, values[:, 1], 1)(steps)
    for state in np.unique(is_high):
        chosen = values[is_high == state]
        assert np.abs(np.corrcoef(chosen.T)[np.triu_indices(3, 1)]).max() < 5 / np.sqrt(len(chosen))


def test_growth_raises_memory_by_half_at_least():
    series = drawn(num_containers=40, noise=0.0)
    grown = 0
    for rows in series.segments():
        memory = series.values[rows, 1][series.phase[rows] == 4]
        if len(memory) > 1:
            before = memory[0] - (memory[1] - memory[0])
            assert 1.5 - 1e-9 <= memory[-1] / before <= 3.0 + 1e-9
            grown += 1
    assert grown > 5


@pytest.mark.parametrize("knob", [{"missing": 0.2}, {"jitter": 0.3}])
def test_lost_or_shifted_samples_make_time_stamps_irregular(knob):
    series = drawn(num_containers=10, **knob)
    assert series.interval_s is None
    assert np.unique(np.round(np.diff(series.time_s[series.rows(0)]), 6)).size > 1


def test_drift_scales_memory():
    plain, moved = drawn(num_containers=20), drawn(num_containers=20, drift=0.5)
    assert moved.values[:, 1].mean() / plain.values[:, 1].mean() == pytest.approx(np.exp(0.5), rel=0.01)


def test_network_is_a_third_resource_and_changes_nothing_else():
    two, three = drawn(num_containers=4), drawn(num_containers=4, has_network=True)
    assert three.names == ("cpu", "memory", "network")
    assert np.array_equal(two.values, three.values[:, :2])


@pytest.mark.parametrize(("spread", "sizes"), [(0.0, 1), (0.5, 6)])
def test_networks_differ_between_containers_by_the_spread_of_sizes(spread, sizes):
    series = drawn(num_containers=6, has_network=True, noise=0.0, size_spread=spread)
    assert len({float(series.values[rows, 2].max()) for rows in series.segments()}) == sizes


@pytest.mark.parametrize(
    "wrong",
    [
        {"num_containers": 0},
        {"interval_s": 0},
        {"interval_s": 1e-320},
        {"interval_s": 1e308},
        {"noise": 1e308},
        {"size_spread": 1e308},
        {"noise": -1},
        {"missing": 1.0},
        {"jitter": 0.5},
        {"drift": 4.0},
    ],
)
def test_options_out_of_range_are_refused_by_name(wrong):
    with pytest.raises(InvalidOptionError, match=next(iter(wrong))):
        replace(ContainerOptions(), **wrong)


@given(st.booleans(), st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=30))
def test_a_chain_of_two_states_is_a_walk_step_by_step(is_high, draws):
    walked, state = [], is_high
    for draw in draws:
        walked.append(state)
        state = draw >= 0.45 if state else draw < 0.35
    assert two_state_chain(is_high, np.array(draws), rise=0.35, fall=0.45).tolist() == walked


@pytest.mark.parametrize(
    ("sizes", "text"),
    [
        (
            {"num_containers": 10**6},
            "num_containers: at most 100000 are generated, got 1000000; generate fewer, or raise .*--limit count=N",
        ),
        ({"phase_length": 1e100}, "samples of num_containers of this phase_length: at most 500000000 are generated"),
        ({"idle_share": 0.9999999}, "samples of num_containers of this phase_length: at most 500000000 are generated"),
    ],
)
def test_refuses_to_draw_more_than_a_reader_takes_before_anything_is_made(sizes, text):
    with pytest.raises(InvalidOptionError, match=text):
        drawn(**sizes)
