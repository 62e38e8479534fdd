"""The study `servers`: placements against the model and bounds, earlier runs against plain slices, and counts against a walk."""

import itertools
from dataclasses import replace
from functools import cache, partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optim_studies import servers
from optim_studies.servers import (
    TUNING_SEED,
    Placement,
    RequestSizing,
    ServerOptions,
    ServerProblem,
    best_weights,
    count_servers,
    draw_set,
    earlier_runs,
    first_fit,
    is_feasible,
    loads,
    min_servers,
    min_servers_by_model,
    proven_bound,
    requests,
)

from optim.benchmarks.suite import SUITES, BenchRequest
from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.core.progress import SilentProgress
from optim.core.stopping import Never


@st.composite
def problems(draw):
    """A few jobs of a few slots, of which two often fill a server."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    number = int(rng.integers(1, 5))
    asked = tuple(rng.integers(1, 9, size=(int(rng.integers(1, 5)), 2)) / 8.0 for _ in range(number))
    return ServerProblem(
        requests=asked,
        arrival=np.sort(rng.integers(0, 4, size=number)),
        capacity=np.ones(2),
        max_shift=int(rng.integers(0, 3)),
    )


def fewest_by_enumeration(problem):
    """The least number of servers over all placements, by enumeration."""
    number = len(problem.requests)
    best = number
    for server in itertools.product(range(number), repeat=number):
        if len(set(server)) >= best:
            continue
        for shift in itertools.product(range(problem.max_shift + 1), repeat=number):
            load = {}
            for job, own in enumerate(problem.requests):
                for slot, row in enumerate(own):
                    key = server[job], problem.arrival[job] + shift[job] + slot
                    load[key] = load.get(key, 0) + row
            if all((total <= 1 + 1e-9).all() for total in load.values()):
                best = len(set(server))
                break
    return best


@settings(max_examples=12)
@given(problem=problems())
def test_the_model_finds_the_fewest_and_no_bound_is_above_them(problem):
    best = fewest_by_enumeration(problem)
    assert min_servers(problem) <= best
    found, bound, claimed = min_servers_by_model(problem, time_limit_s=20.0)
    assert is_feasible(problem, found)
    assert found.num_servers == claimed == best
    assert bound == min_servers(problem)


@pytest.mark.parametrize(("highs_bound", "claimed"), [(0.0, 2), (2.0, 2), (3.0, 3), (3.1, 2), (100.0, 2), (None, 2)])
def test_a_wrong_bound_of_highs_is_never_proven_and_not_claimed_where_a_placement_refutes_it(
    monkeypatch, highs_bound, claimed
):
    """Three jobs of 0.6: no two fit together, and the linear programme proves two servers."""
    problem = ServerProblem(requests=(np.full((1, 1), 0.6),) * 3, arrival=np.zeros(3, dtype=int), capacity=np.ones(1))
    honest = servers.solve_with_highs
    monkeypatch.setattr(servers, "solve_with_highs", lambda *a, **k: replace(honest(*a, **k), bound=highs_bound))
    found, bound, told = min_servers_by_model(problem, time_limit_s=20.0)
    assert (found.num_servers, bound, told) == (3, 2, claimed)


@given(problem=problems(), seed=st.integers(0, 2**32 - 1))
def test_first_fit_is_feasible_and_no_weights_prove_more_than_the_best_ones(problem, seed):
    placement = first_fit(problem)
    assert is_feasible(problem, placement)
    best = best_weights(problem)
    assert best.shape == (problem.num_slots, 2)
    proven = proven_bound(problem, best)
    assert proven <= placement.num_servers + 1e-9
    assert proven_bound(problem, np.random.default_rng(seed).random(best.shape)) <= proven + 1e-6
    # Without shifts, the best weights are on the fullest slot.
    fixed = replace(problem, max_shift=0)
    load = np.zeros((fixed.num_slots, 2))
    for own, arrival in zip(fixed.requests, fixed.arrival, strict=True):
        load[arrival : arrival + len(own)] += own
    assert proven_bound(fixed, best_weights(fixed)) == pytest.approx(load.max())


def test_a_late_start_puts_jobs_side_by_side():
    asked = (np.array([[1.0], [0.25]]), np.array([[0.75], [0.5]]))
    at_once = ServerProblem(requests=asked, arrival=np.zeros(2, dtype=int), capacity=np.ones(1))
    later = replace(at_once, max_shift=1)
    assert first_fit(at_once).num_servers == min_servers(at_once) == 2
    assert first_fit(later).num_servers == min_servers(later) == 1
    assert first_fit(later).start.tolist() == [0, 1]


@pytest.mark.parametrize("wrong", [{"start": [0, 0]}, {"start": [0, 2]}, {"start": [-1, 1]}])
def test_overfull_servers_and_starts_at_other_times_are_not_feasible(wrong):
    asked = (np.array([[1.0], [0.25]]), np.array([[0.75], [0.5]]))
    problem = ServerProblem(requests=asked, arrival=np.zeros(2, dtype=int), capacity=np.ones(1), max_shift=1)
    good = Placement(server=np.zeros(2, dtype=int), start=np.array([0, 1]))
    assert is_feasible(problem, good)
    assert not is_feasible(problem, replace(good, start=np.array(wrong["start"])))


def test_requests_fill_a_server_though_their_sum_is_rounded_up():
    assert 0.1 + 0.2 > 0.3
    asked = tuple(np.full((1, 1), one) for one in (0.1, 0.2))
    problem = ServerProblem(requests=asked, arrival=np.zeros(2, dtype=int), capacity=np.array([0.3]))
    placement = first_fit(problem)
    assert placement.num_servers == 1
    assert is_feasible(problem, placement)
    assert not is_feasible(replace(problem, capacity=np.array([0.299])), placement)


def test_jobs_that_no_server_holds_are_refused():
    with pytest.raises(InvalidProblemError, match="job 0 requests more"):
        ServerProblem(requests=(np.full((2, 1), 1.1),), arrival=np.zeros(1, dtype=int), capacity=np.ones(1))


def test_true_series_add_up_from_their_starts():
    series = [np.arange(5.0)[:, None], np.full((3, 1), 10.0), np.ones((4, 1))]
    placement = Placement(server=np.array([0, 0, 2]), start=np.array([1, 2, 0]))
    first, second = loads(series, placement, slot_samples=2)
    assert first[:, 0].tolist() == [0, 0, 0, 1, 12, 13, 14]
    assert second[:, 0].tolist() == [1, 1, 1, 1]


def test_the_programme_keeps_the_last_slot_within_the_servers():
    """Two jobs meet in their last slot only: without that slot one server would seem to hold both."""
    asked = (np.array([[0.25], [0.75]]), np.array([[0.75]]))
    problem = ServerProblem(requests=asked, arrival=np.array([0, 1]), capacity=np.ones(1))
    model = servers._model(problem, 2)
    together = (0, 0, 0), (1, 0, 1)
    for key in model.x:
        model.x[key].value = float(key in together)
    for server in model.u:
        model.u[server].value = float(server == 0)
    exceeded = [key for key, row in model.fits.items() if row.body() > row.upper() + 1e-9]
    assert exceeded == [(0, problem.num_slots - 1, 0)]


RNG = np.random.default_rng(4)
VALUES = RNG.random((23, 2))


def test_without_an_error_earlier_runs_are_the_run_itself():
    for run in earlier_runs(VALUES, 3, 0.0, RNG):
        assert run.tolist() == VALUES.tolist()


def test_runs_differ_by_one_factor_in_length_and_one_a_resource_in_level():
    (run,) = earlier_runs(VALUES, 1, 0.2, np.random.default_rng(1))
    rng = np.random.default_rng(1)
    length = round(23 * np.exp(0.2 * rng.normal()))
    factors = np.exp(0.2 * rng.normal(size=2))
    assert len(run) == length != 23
    for place in range(length):
        assert run[place] == pytest.approx(VALUES[place * 23 // length] * factors)


def test_requests_are_peaks_quantiles_and_quantiles_near_the_slot():
    runs = [VALUES, 2 * VALUES[:9]]
    whole = np.concatenate(runs)
    assert requests(runs, RequestSizing.PEAK, 5).tolist() == [whole.max(axis=0).tolist()] * 5
    assert requests(runs, RequestSizing.FLAT, 5) == pytest.approx(np.tile(np.quantile(whole, 0.95, axis=0), (5, 1)))
    found = requests(runs, RequestSizing.SLOT, 5)
    for slot, (begin, end) in enumerate([(0, 10), (0, 15), (5, 20), (10, 23), (15, 23)]):
        near = np.concatenate([VALUES[begin:end], 2 * VALUES[:9][begin:end]])
        assert found[slot] == pytest.approx(np.quantile(near, 0.95, axis=0))


OPTIONS = ServerOptions(jobs=30, seeds=3, kills=0.05, max_shift=1)


@pytest.fixture(scope="module")
def rows():
    """Return the measured rows for each `RequestSizing`."""
    return {asking: count_servers(OPTIONS, 0, asking) for asking in RequestSizing}


fresh = cache(partial(draw_set, OPTIONS))
"""Return the jobs of a seed, drawn once for all values of `RequestSizing`."""


def harm(asking, row, seeds):
    """Return kills per job, the share of samples short of CPU, servers, and the lower bound, sample by sample."""
    kills = jobs = short = busy = servers = least = 0
    for seed in seeds:
        own = fresh(seed)
        problem = own.problem(asking, row.multiplier, OPTIONS.max_shift)
        placement = first_fit(problem)
        servers, least = servers + placement.num_servers, least + min_servers(problem)
        jobs += len(own.series)
        for load in loads(own.series, placement, 20):
            over = load > own.capacity * (1 + 1e-9)
            kills += sum(bool(over[k : k + 20, 1].any()) for k in range(0, len(load), 20))
            short += int(over[:, 0].sum())
            busy += int(load.any(axis=1).sum())
    return kills / jobs, short / busy, servers / len(seeds), least / len(seeds)


def test_figures_are_those_of_a_walk_along_fresh_sets_and_what_is_tuned_holds_on_its_own(rows):
    for asking, row in rows.items():
        assert harm(asking, row, [0, 1, 2]) == pytest.approx((row.kills, row.throttled, row.servers.mean(), row.least))
        kills, short, *_ = harm(asking, row, [TUNING_SEED, TUNING_SEED + 1, TUNING_SEED + 2])
        assert row.is_reached
        assert kills <= OPTIONS.kills
        assert short <= OPTIONS.throttled


def test_what_no_multiplier_keeps_is_not_called_reached():
    options = ServerOptions(jobs=30, seeds=2, runs=1, kills=0.01, error=1.0)
    found = {asking: count_servers(options, 1, asking) for asking in RequestSizing}
    sets = [draw_set(options, TUNING_SEED + seed) for seed in (1, 2)]
    for asking, row in found.items():
        kills = jobs = short = busy = 0
        for own in sets:
            placement = first_fit(own.problem(asking, row.multiplier, 0))
            jobs += len(own.series)
            for load in loads(own.series, placement, own.slot_samples):
                over = load > own.capacity * (1 + 1e-9)
                slots = range(0, len(load), own.slot_samples)
                kills += sum(bool(over[k : k + own.slot_samples, 1].any()) for k in slots)
                short += int(over[:, 0].sum())
                busy += int(load.any(axis=1).sum())
        assert row.is_reached == (kills <= options.kills * jobs and short <= 0.02 * busy)
    assert not all(row.is_reached for row in found.values())


def test_the_study_compares_each_way_with_flat_requests():
    options = {"jobs": 30, "seeds": 3, "kills": 0.05, "max_shift": 1}
    works = SUITES.get("servers").build(BenchRequest(options=options))
    found = {work.solver: work.run(Never(), SilentProgress()).findings for work in works}
    flat = found["flat"]["servers"]
    assert {name: row["saved"] for name, row in found.items()} == pytest.approx(
        {name: 1 - row["servers"] / flat for name, row in found.items()}
    )
    assert any(row["saved"] for row in found.values())


def test_no_count_is_below_its_bound(rows):
    assert all(row.least <= row.servers.mean() for row in rows.values())
    assert rows[RequestSizing.PEAK].servers.mean() >= rows[RequestSizing.SLOT].servers.mean()


@pytest.mark.prove
def test_the_model_lies_between_first_fit_and_the_bound():
    options = ServerOptions(jobs=10, seeds=2, kills=0.2, max_shift=1, model_s=5.0)
    row = count_servers(options, 3, RequestSizing.FLAT)
    assert row.least <= row.claimed <= row.by_model.mean() <= row.servers.mean()


def test_the_same_seed_gives_the_same_sets():
    one, two = draw_set(OPTIONS, 5), draw_set(OPTIONS, 5)
    assert np.array_equal(one.arrival, two.arrival)
    assert all(np.array_equal(a, b) for k in RequestSizing for a, b in zip(one.asked[k], two.asked[k], strict=True))


@pytest.mark.parametrize("wrong", [{"jobs": 0}, {"seeds": 1}, {"kills": 0.0}, {"error": 2.0}])
def test_options_out_of_range_are_refused(wrong):
    with pytest.raises(InvalidOptionError, match=f"{next(iter(wrong))} must be"):
        ServerOptions(**wrong)
