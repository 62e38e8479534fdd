"""Cases of suites, and whom they leave out."""

import pytest

from optim.benchmarks.cases import generated_case, solve_cases
from optim.benchmarks.spec import BenchRequest
from optim.workloads.bidding.generator import GeneratorOptions


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        (None, {"dinkelbach", "exchange"}),
        (("exchange", "frontier"), {"exchange", "frontier"}),
        (("frontier",), {"frontier"}),
    ],
)
def test_a_solver_is_left_out_unless_asked_for(asked, named):
    slow = generated_case("bidding", GeneratorOptions(), "slow", 7.0, left_out=frozenset({"frontier"}))
    built = list(solve_cases("bidding", [slow], BenchRequest(solvers=asked)))
    found = {work.solver for work in built}
    assert named <= found
    assert ("frontier" in found) == ("frontier" in named)
