"""The study of eviction tables: verified rows, and a report of tables that are off."""

import numpy as np
import pytest
from optim_studies.evictions import FREQUENCY_TOL, EvictionWork, furthest_from_frequency

from optim.benchmarks.suite import BenchRequest, Skipped, choose_suites
from optim.core.errors import InvalidOptionError
from optim.core.progress import SilentProgress
from optim.core.stopping import Never
from optim.models.bidding.market.evictions import fit_evictions
from optim.workloads.bidding.generator import GeneratorOptions, history_for

TINY = {"num_types": 1, "num_zones": 2, "days": 12.0}


def build(**request):
    (suite,) = choose_suites(("bidding",), ("evictions",))
    return list(suite.build(BenchRequest(options=TINY, **request)))


def test_a_table_agrees_with_frequencies_and_says_what_it_is_of():
    (work,) = build()
    assert isinstance(work, EvictionWork)
    record = work.run(Never(), SilentProgress())
    assert record.verified
    assert record.error is None
    assert record.findings["furthest"] <= FREQUENCY_TOL
    assert (record.findings["markets"], record.findings["deltas"]) == (2, 13)
    assert record.seconds["solve"] > 0


def test_a_wrong_table_is_far_from_the_frequencies():
    history = history_for(GeneratorOptions(**TINY), 0)
    table = fit_evictions(history)
    assert furthest_from_frequency(history, table) <= FREQUENCY_TOL
    table.survival[1] = np.minimum(1.0, table.survival[1] + 0.2)
    assert furthest_from_frequency(history, table) > 0.1


def test_other_solvers_are_skipped_and_unknown_options_refused():
    (skipped,) = build(solvers=("greedy",))
    assert isinstance(skipped, Skipped)
    (suite,) = choose_suites(("bidding",), ("evictions",))
    with pytest.raises(InvalidOptionError, match="colour"):
        list(suite.build(BenchRequest(options={"colour": "red"})))
