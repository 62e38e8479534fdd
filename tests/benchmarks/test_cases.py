"""Cases of suites, and whom they leave out."""

import pytest

from optim.benchmarks import cases
from optim.benchmarks.suite import BenchRequest
from optim.solvers.solve import solver_named
from optim.workloads.bidding.generator import GeneratorOptions


@pytest.mark.prove
@pytest.mark.parametrize(
    ("asked", "found"),
    [(None, ["exchange"]), (("exchange", "frontier"), ["exchange", "frontier"]), (("frontier",), ["frontier"])],
)
def test_a_solver_is_left_out_unless_asked_for(monkeypatch, asked, found):
    both = [solver_named("bidding", name) for name in ("exchange", "frontier")]
    monkeypatch.setattr(cases, "solvers_of", lambda problem: both)
    slow = cases.generated_case("bidding", GeneratorOptions(), "slow", 7.0, left_out=frozenset({"frontier"}))
    built = cases.solve_cases("bidding", [slow], BenchRequest(solvers=asked))
    assert [work.solver for work in built] == found
