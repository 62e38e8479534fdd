"""The best solutions known that ship: each verifies, and small ones are optimal."""

from importlib.resources import files
from pathlib import Path
from typing import get_args

import msgspec
import numpy as np
import pytest

import optim
from optim import AdmissionInstance, AuctionInstance, reference_instance, reference_names
from optim.core.errors import InvalidProblemError
from optim.core.files import read_bytes
from optim.models.reference import (
    SUFFIX,
    AdmissionName,
    AuctionName,
    BiddingName,
    history_names,
    solved_reference_names,
)

SLOW = {name for name in solved_reference_names() if not name.startswith("tiny-")}
"""Trees of hundreds of leaves, and plans of hundreds of jobs."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.prove) if name in SLOW else name for name in solved_reference_names()],
)
def test_verifies(name):
    instance, solution = optim.reference_instance(name), optim.reference_solution(name)
    assert solution.instance == name
    assert solution.objective is not None
    assert solution.bound is not None
    assert optim.verify(instance, solution).is_ok


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.prove if name in ("small-1", "small-2") else ())
        for name in ("tiny-0", "tiny-1", "tiny-2", "small-0", "small-1", "small-2")
    ],
)
def test_is_proven_optimal_where_instances_are_small(name):
    assert optim.reference_solution(name).gap <= 1e-6


class Stated(msgspec.Struct):
    """Fields read from a large solution if neither its plan nor its proof is requested."""

    objective: float


def test_the_largest_plans_known_do_not_get_worse():
    least = {
        "light-0": 7869.51,
        "light-1": 8761.22,
        "light-2": 8064.44,
        "medium-0": 4939.42,
        "medium-1": 7106.51,
        "medium-2": 6893.09,
        "heavy-0": 3384.16,
        "heavy-1": 3070.46,
        "heavy-2": 2010.17,
    }
    folder = Path(str(files("optim.models"))) / "admission" / "solutions"
    for name, objective in least.items():
        stated = msgspec.json.decode(read_bytes(str(folder / f"{name}{SUFFIX}")), type=Stated)
        assert stated.objective >= objective


def test_says_which_there_are_when_there_is_none():
    with pytest.raises(InvalidProblemError, match=r"no solution ships for 'large-0'; there are: .*tiny-0"):
        optim.reference_solution("large-0")


@pytest.mark.parametrize("number", range(3))
def test_shared_instances_are_the_medium_ones_whose_worker_servers_host_all(number):
    shared, medium = (optim.reference_instance(f"{name}-{number}") for name in ("shared", "medium"))
    assert shared.has_shared_servers
    np.testing.assert_array_equal(shared.worker_servers.capacity, medium.worker_servers.capacity)
    np.testing.assert_array_equal(shared.worker_servers.count, medium.worker_servers.count)
    np.testing.assert_array_equal(shared.value, medium.value)
    np.testing.assert_array_equal(shared.jobs.ps_demand, medium.jobs.ps_demand)


def test_the_days_before_a_reference_instance_are_listed_by_its_name():
    assert history_names("medium-0") == tuple(f"medium-0-day{day}" for day in range(1, 9))
    assert history_names("tiny-0") == ()


def test_the_names_that_type_checkers_know_are_those_that_ship():
    for problem, literal in (("admission", AdmissionName), ("auction", AuctionName), ("bidding", BiddingName)):
        assert get_args(literal) == reference_names(problem)


def test_the_kind_asked_for_is_returned_or_refused():
    assert reference_instance("tiny-0", AdmissionInstance).name == "tiny-0"
    with pytest.raises(InvalidProblemError, match="'tiny-0' is of type AdmissionInstance, not AuctionInstance"):
        reference_instance("tiny-0", AuctionInstance)
