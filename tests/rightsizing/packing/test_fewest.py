"""Fewest servers against enumeration of all placements; bounds that any weights prove."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optim.core.errors import InvalidProblemError
from optim.rightsizing.packing import bin_packing
from optim.rightsizing.packing.bin_packing import (
    Placement,
    ServerProblem,
    _model,
    best_weights,
    first_fit,
    is_feasible,
    loads,
    min_servers,
    min_servers_by_model,
    proven_bound,
)


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
        most_shift=int(rng.integers(0, 3)),
    )


def fewest_by_enumeration(problem):
    """The least number of servers of all placements, tried one by one."""
    number = len(problem.requests)
    best = number
    for server in itertools.product(range(number), repeat=number):
        if len(set(server)) >= best:
            continue
        for shift in itertools.product(range(problem.most_shift + 1), repeat=number):
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
    honest = bin_packing.solve_with_highs
    monkeypatch.setattr(bin_packing, "solve_with_highs", lambda *a, **k: replace(honest(*a, **k), bound=highs_bound))
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
    # Without shifts the best weights lie on the fullest slot.
    fixed = replace(problem, most_shift=0)
    load = np.zeros((fixed.num_slots, 2))
    for own, arrival in zip(fixed.requests, fixed.arrival, strict=True):
        load[arrival : arrival + len(own)] += own
    assert proven_bound(fixed, best_weights(fixed)) == pytest.approx(load.max())


def test_a_late_start_puts_jobs_side_by_side():
    asked = (np.array([[1.0], [0.25]]), np.array([[0.75], [0.5]]))
    at_once = ServerProblem(requests=asked, arrival=np.zeros(2, dtype=int), capacity=np.ones(1))
    later = replace(at_once, most_shift=1)
    assert first_fit(at_once).num_servers == min_servers(at_once) == 2
    assert first_fit(later).num_servers == min_servers(later) == 1
    assert first_fit(later).start.tolist() == [0, 1]


@pytest.mark.parametrize("wrong", [{"start": [0, 0]}, {"start": [0, 2]}, {"start": [-1, 1]}])
def test_overfull_servers_and_starts_at_other_times_are_not_feasible(wrong):
    asked = (np.array([[1.0], [0.25]]), np.array([[0.75], [0.5]]))
    problem = ServerProblem(requests=asked, arrival=np.zeros(2, dtype=int), capacity=np.ones(1), most_shift=1)
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
    with pytest.raises(InvalidProblemError, match="job 0 asks for more"):
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
    model = _model(problem, 2)
    together = (0, 0, 0), (1, 0, 1)
    for key in model.x:
        model.x[key].value = float(key in together)
    for server in model.u:
        model.u[server].value = float(server == 0)
    exceeded = [key for key, row in model.fits.items() if row.body() > row.upper() + 1e-9]
    assert exceeded == [(0, problem.num_slots - 1, 0)]
