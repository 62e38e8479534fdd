"""The study of the value of phases: savings in rows contradict no bound, and bad requests are rejected."""

import pytest

from optim.benchmarks.compare import Change, Selection, compare, read_golden
from optim.benchmarks.suite import SUITES, BenchRequest
from optim.core.errors import InvalidOptionError
from optim.core.progress import SilentProgress
from optim.core.stopping import Never


def works(**request):
    return list(SUITES.get("phases").build(BenchRequest(**request)))


def test_true_phases_save_less_than_the_bound_and_agree_with_themselves():
    (work,) = works(solvers=("truth",), options={"containers": 40, "resamples": 10})
    record = work.run(Never(), SilentProgress())
    assert record.error is None
    assert record.verified
    figures = record.findings
    assert figures["ari"] == 1.0
    assert figures["price"] <= figures["most"] < 1
    assert figures["price_low"] <= figures["price_high"]


def test_the_small_size_leaves_out_what_must_be_trained():
    assert [work.solver for work in works(seeds=(0, 1))] == ["truth", "window-statistics", "raw-window"] * 2
    assert {"crbm", "hmm"} < {work.solver for work in works(size="full")}


def test_golden_results_of_true_phases_come_out_again():
    golden = [record for record in read_golden("phases") if record.seed == 1]
    (work,) = works(solvers=("truth",), seeds=(1,))
    found = compare([work.run(Never(), SilentProgress())], golden, Selection(suites=("phases",), seeds=(1,)))
    assert [difference.change for difference in found] == [Change.SAME]


@pytest.mark.parametrize("request_", [{"solvers": ("simplex",)}, {"options": {"tol": 1}}, {"options": {"kills": 2.0}}])
def test_refuses_other_encoders_and_options(request_):
    with pytest.raises(InvalidOptionError):
        works(**request_)
