"""All implementations in a comparison do the same work in every case."""

import numpy as np
import pytest
from optim_studies.kernels.baselines import JAX, KernelComparison, StatefulCall, furthest
from optim_studies.kernels.cases import DenseCase, SparseCase, StreamCase
from optim_studies.kernels.study import STREAMS

DENSE = [
    DenseCase(rule=rule, workers=3, parameters=40_001, is_half=is_half)
    for rule in ("sgd", "momentum", "adagrad", "adam")
    for is_half in (False, True)
]
SPARSE = [SparseCase(rule=rule, pushed=50, width=4, rows=30) for rule in ("sgd", "adagrad", "adam", "pull")]


pytestmark = pytest.mark.usefixtures("server_here")

STREAM = [StreamCase(kernel=kernel, parameters=4001) for kernel in STREAMS]


@pytest.mark.parametrize("case", [*DENSE, *SPARSE, *STREAM], ids=lambda case: f"{case.kernel}")
def test_kernel_and_numpy_agree_round_after_round(case):
    contest = case.contest(np.random.default_rng(1))
    for _ in range(4):
        contest.calls[JAX]()
        contest.calls["numpy"]()
        contest.calls.get("process", lambda: None)()
        assert contest.error() <= 1e-4
    contest.close()


def test_bytes_are_those_that_must_be_moved():
    assert DenseCase(rule="sgd", workers=4, parameters=100).moved == 4 * 100 * 6
    assert DenseCase(rule="adam", workers=4, parameters=100).moved == 4 * 100 * 10
    assert DenseCase(rule="sgd", workers=4, parameters=100, is_half=True).moved == 100 * (2 * 4 + 8)
    assert SparseCase(rule="pull", pushed=10, width=8, rows=50).moved == 8 * 10 * 8
    assert StreamCase(kernel="snapshot", parameters=100).moved == 16 * 100
    one = SparseCase(rule="adagrad", pushed=1, width=8, rows=1000)
    assert one.moved == pytest.approx(4 * 8 + 4 + 16 * 8, abs=1)


def test_an_error_is_the_largest_difference_of_any_side_from_numpys():
    sides = {"kernel": [1.0, 2.0], "numpy": [1.0, 2.25], "process": [1.0, 1.75]}
    shown = {name: (lambda values=values: np.array(values)) for name, values in sides.items()}
    contest = KernelComparison(calls={}, result=shown["kernel"], others=(shown["numpy"], shown["process"]))
    assert contest.error() == 0.5
    assert KernelComparison(calls={}, result=shown["kernel"], others=(shown["numpy"],)).error() == 0.25
    assert contest.checksum() == 1.5
    assert furthest(np.zeros(2), np.array([0.5, -2.0]), np.ones(2)) == 2.0


def test_what_is_held_is_replaced_at_every_call():
    held = StatefulCall(lambda value, step: value + step, 1.0, 0.5)
    held()
    held()
    assert held.state == 2.0


def test_zipfs_rows_are_pushed_again_and_again_and_count_once_each():
    case = SparseCase(rule="sgd", pushed=4000, width=8, rows=500, skew=1.2)
    rows = case.draw(np.random.default_rng(0))
    counts = np.sort(np.bincount(rows, minlength=500))[::-1]
    expected = np.arange(1, 501) ** -1.2
    assert counts[0] == pytest.approx(4000 * expected[0] / expected.sum(), rel=0.15)
    distinct = np.mean([len(np.unique(case.draw(np.random.default_rng(seed)))) for seed in range(40)])
    assert (case.moved - 4 * 4000 * 9) / (8 * 8) == pytest.approx(distinct, rel=0.02)
    assert SparseCase(rule="sgd", pushed=3, width=1, rows=1).draw(np.random.default_rng(0)).tolist() == [0, 0, 0]
    assert SparseCase(rule="sgd", pushed=3, width=1, rows=1).moved == 4 * 3 * 2 + 8


def test_a_sparse_message_sums_alike_in_every_order():
    case = SparseCase(rule="adagrad", pushed=20_000, width=3, rows=40, skew=1.1)
    rng = np.random.default_rng(2)
    rows, values = case.draw(rng), case.draw_values(rng)
    there, back, by_size = (np.zeros((40, 3), np.float32) for _ in range(3))
    np.add.at(there, rows, values)
    np.add.at(back, rows[::-1], values[::-1])
    order = np.argsort(np.abs(values[:, 0]))
    np.add.at(by_size, rows[order], values[order])
    assert there.tobytes() == back.tobytes() == by_size.tobytes()
    assert np.unique(values).size > 1000
