"""The heuristic: feasible, bounded, never worse for more moves."""

import pytest
from hypothesis import given

from optim.core.errors import InvalidOptionError
from optim.models.files import verify
from optim.solvers.auction.greedy import GreedyOptions
from optim.solvers.solve import solve
from optim.workloads.auction.generator import GeneratorOptions, generate
from tests.solvers.auction.test_exact import TOL
from tests.support.auction.builders import auction
from tests.support.auction.enumeration import optimum
from tests.support.auction.strategies import auctions, named_auctions


@given(auctions())
def test_lies_between_nothing_and_the_optimum(instance):
    solution = solve(instance, "greedy", options={"moves": 20})
    assert verify(instance, solution).is_ok
    assert 0.0 <= solution.objective <= optimum(instance) + TOL <= solution.bound + 2 * TOL


@given(named_auctions())
def test_places_bids_that_name_their_machines(instance):
    solution = solve(instance, "greedy", options={"moves": 20})
    assert verify(instance, solution).is_ok


def test_exchange_only_improves():
    instance = generate(GeneratorOptions(num_apps=16, num_gpus=64, num_machines=8, gangs="any"), 1)
    values = [solve(instance, "greedy", options={"moves": moves}).objective for moves in (0, 100, 1000)]
    assert values == sorted(values)
    assert values[0] < values[-1]


def test_exchange_takes_a_bundle_back_that_blocks_two_better_ones():
    instance = auction([4], [(3, "slot", 4.0)], [(2, "slot", 2.5)], [(2, "slot", 2.5)])
    assert solve(instance, "greedy", options={"moves": 0}).decision.row.tolist() == [0, -1, -1]
    assert solve(instance, "greedy", options={"moves": 100}).decision.row.tolist() == [-1, 1, 2]


def test_refuses_options_out_of_range():
    with pytest.raises(InvalidOptionError, match="moves must be at least 0"):
        GreedyOptions(moves=-1)
    with pytest.raises(InvalidOptionError, match="rule must be one of"):
        GreedyOptions(rule="round")
