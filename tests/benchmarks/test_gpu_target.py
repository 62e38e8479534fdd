"""`make bench-gpu` requests an existing study, at the size of a GPU."""

import re
from pathlib import Path

import pytest
from optim_studies.roofline import BRIEF, ROWS, SIZES, RooflineOptions

from optim.benchmarks.suite import FULL, choose_suites
from optim.core.errors import InvalidOptionError

MAKEFILE = (Path(__file__).parents[2] / "Makefile").read_text()


def test_the_study_exists_and_its_arrays_are_a_gpus():
    problem, study, size = re.search(r"bench-gpu: .*\n\t\S+ bench (\w+) --study (\w+) --size (\w+)", MAKEFILE).groups()
    assert choose_suites((problem,), (study,))
    assert size == FULL
    assert min(SIZES[size].parameters, SIZES[size].rows * SIZES[size].width) >= 2**28
    assert not SIZES[size].is_brief


def test_the_rows_that_stand_for_all_are_rows():
    assert set(BRIEF) < set(ROWS)


@pytest.mark.parametrize("wrong", [{"parameters": 0}, {"windows": 3}, {"rounds": 0}])
def test_sizes_that_leave_nothing_to_measure_are_rejected(wrong):
    with pytest.raises(InvalidOptionError):
        RooflineOptions(**wrong)


@pytest.mark.parametrize("name", ["dense-sgd-4", "sparse-adagrad-zipf", "pull-even", "k-means", "best-payoffs"])
def test_a_wrong_result_is_seen(name):
    options = RooflineOptions(parameters=512, rows=64, pushed=128, width=4, series=20, jobs=3)
    trial = ROWS[name](options, 0)
    for call in trial.calls.values():
        call()
    assert trial.error() <= trial.tolerance
    ours = trial.calls["kernel"]
    ours.state = _spoilt(ours.state)
    assert trial.error() > trial.tolerance


def _spoilt(state):
    import jax

    return jax.tree.map(lambda leaf: leaf * 1.25 + 1 if leaf.dtype.kind == "f" else leaf, state)
