"""The pricing suite: both implementations prove the same bound, and bad requests are rejected."""

import pytest
from optim_studies.stress import STRESS_INSTANCES

from optim.benchmarks.suite import SUITES, BenchRequest, Skipped
from optim.core.errors import InvalidOptionError
from optim.core.progress import SilentProgress
from optim.core.stopping import Never
from optim.workloads.instances import NamedSource


def works(**request):
    return list(SUITES.get("pricing").build(BenchRequest(**request)))


def test_both_ways_prove_the_same_bound():
    loop, batched = (
        work.run(Never(), SilentProgress())
        for work in works(sources=(NamedSource("tiny-0"), NamedSource("tiny-0"))[:1])
    )
    assert loop.verified
    assert batched.verified
    assert batched.bound == pytest.approx(loop.bound, rel=1e-9)
    assert loop.measures["ms"] > 0


def test_says_which_instances_the_kernel_can_not_price():
    class Shared:
        def load(self, seed):
            return STRESS_INSTANCES["shared-pair"]()

    loop, skipped = works(sources=(Shared(),))
    assert loop.solver == "loop"
    assert isinstance(skipped, Skipped)
    assert "separate servers" in skipped.reason


@pytest.mark.parametrize("request_", [{"solvers": ("simplex",)}, {"options": {"tol": 1}}])
def test_refuses_other_ways_and_options(request_):
    with pytest.raises(InvalidOptionError):
        works(**request_)
