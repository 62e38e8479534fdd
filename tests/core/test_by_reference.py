"""Named tuples by reference behave as Numba's own tuples: equal values, visible writes, no leaked arrays, reported errors."""

import gc
import sys
from typing import NamedTuple

import numpy as np
import pytest
from numba import TypingError

from optim.compiled import Reference, by_reference, compiled
from optim.core.progress import COMPILING


@pytest.fixture(autouse=True)
def nothing_is_compiling():
    """Clear failed compilations: Numba does not report that it gave up."""
    yield
    while COMPILING.name is not None:
        COMPILING.end(COMPILING.name)


@by_reference
class Part(NamedTuple):
    numbers: np.ndarray
    flag: bool


@by_reference
class Whole(NamedTuple):
    left: Part
    scale: float
    table: np.ndarray
    right: Part
    pair: tuple


class Plain(NamedTuple):
    part: Part
    count: int


def whole() -> Whole:
    table = np.arange(12.0).reshape(3, 4)[:, ::2]  # neither contiguous nor the owner of its memory
    return Whole(Part(np.arange(3), True), 0.5, table, Part(np.arange(4, 6), False), (7, np.array([2.5])))


@compiled
def add_up(part, by):
    total = 0.0
    for each in part.numbers:
        total += by * each if part.flag else -each
    return total


@compiled
def store(whole, value):
    whole.left.numbers[1] = value
    whole.table[2, 1] += whole.left.numbers[1]


@compiled
def walk(whole, value):
    before = whole.left.numbers[1]
    store(whole, value)
    either = whole.right if value > 0 else whole.left
    plain = Plain(either, len(whole.table))
    return (
        add_up(whole.left, whole.scale),
        add_up(plain.part, 1.0),
        before,
        plain.count,
        whole.pair[1][0] + whole.pair[0],
    )


def test_a_loop_reads_writes_and_passes_on_what_python_holds():
    expected, actual = whole(), whole()
    assert isinstance(walk.typeof_pyval(actual), Reference)
    assert walk(actual, 8) == walk.py_func(expected, 8) == ((0 + 8 + 2) * 0.5, -9.0, 1, 3, 9.5)
    assert actual.table.tolist() == expected.table.tolist()
    assert actual.table[2, 1] == 10.0 + 8
    assert actual.left.numbers.tolist() == [0, 8, 2]


@compiled
def read_again(part, others):
    first = part.numbers[0]
    for at in range(len(others)):
        others[at] += 1  # the same memory as part's
        first += part.numbers[0]
    return first


def test_the_optimiser_takes_fields_for_fixed_but_not_what_is_in_arrays():
    numbers = np.zeros(1, np.int64)
    assert read_again(Part(numbers, True), numbers) == 1
    numbers = np.zeros(3, np.int64)
    assert read_again(Part(numbers, True), numbers) == 3


@compiled
def fail(whole, value):
    if add_up(whole.left, whole.scale) < value:
        raise ValueError("too small")
    return whole.scale


def test_calls_leave_no_reference_whether_they_end_or_fail():
    kept = whole()
    arrays = [kept.left.numbers, kept.table, kept.right.numbers, kept.pair[1]]
    fail(kept, 0.0)
    before = [sys.getrefcount(array) for array in arrays]
    for value in (0.0, 1e9) * 50:
        if value:
            with pytest.raises(ValueError, match="too small"):
                fail(kept, value)
        else:
            assert fail(kept, value) == 0.5
    gc.collect()
    assert [sys.getrefcount(array) for array in arrays] == before


def test_arrays_of_other_types_compile_once_more_and_a_field_of_another_name_is_told():
    part = Part(np.array([1.5, 2.0], np.float32), True)
    shapes = len(add_up.overloads)
    assert add_up(part, 2.0) == 7.0
    assert add_up(part._replace(numbers=np.array([1.0])), 2.0) == 2.0
    assert add_up(part._replace(numbers=np.array([2.0], np.float32)), 2.0) == 4.0
    assert len(add_up.overloads) == shapes + 2
    with pytest.raises(TypingError, match="absent"):
        compiled(lambda part: part.absent)(part)


def test_a_loop_cannot_return_what_belongs_to_its_caller():
    with pytest.raises(TypeError, match="cannot convert native reference"):
        compiled(lambda whole: whole.left)(whole())
