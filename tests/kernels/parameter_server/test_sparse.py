"""Sparse pushes: repeated rows add up before a nonlinear rule is applied, and other rows don't change."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from jaxtyping import TypeCheckError

from optim.core.errors import InvalidOptionError
from optim.kernels.parameter_server import (
    Adagrad,
    Adam,
    Momentum,
    RowLayout,
    Rows,
    Sgd,
    apply_pushes,
    initial_rows,
    pull_rows,
    push_sparse,
    sparse,
)

ROWS, WIDTH, COUNT = 6, 3, 12

RULES = (Sgd(learning_rate=0.5), Adagrad(learning_rate=0.5), Momentum(learning_rate=0.5), Adam(learning_rate=0.5))
LAYOUTS = tuple(RowLayout(optimiser=rule, width=WIDTH, method=method) for rule in RULES for method in ("loop", "sort"))

row_lists = hnp.arrays(np.int32, (COUNT,), elements=st.integers(0, ROWS - 1))
wild_rows = hnp.arrays(np.int32, (COUNT,), elements=st.integers(-3, ROWS + 3))
whole_values = hnp.arrays(np.float32, (COUNT, WIDTH), elements=st.integers(-50, 50).map(np.float32))


QUICK = (LAYOUTS[0], LAYOUTS[2], LAYOUTS[7])
"""A rule without slots, one with and the one with most, by both methods: all layouts are compared with the dense update."""


def layouts(chosen=LAYOUTS, quick=QUICK):
    """Parametrise a test by layouts; the slow ones are run by `make prove` only."""
    given = [layout if layout in quick else pytest.param(layout, marks=pytest.mark.prove) for layout in chosen]
    return pytest.mark.parametrize(
        "layout", given, ids=lambda layout: f"{type(layout.optimiser).__name__}-{layout.method}"
    )


@cache
def used(layout):
    """Return the arrays of a table whose slots are no longer empty."""
    table = initial_rows(jnp.arange(ROWS * WIDTH, dtype=jnp.float32).reshape(ROWS, WIDTH), layout)
    everything = jnp.asarray(np.arange(COUNT, dtype=np.int32) % ROWS)
    table = push_sparse(table, everything, jnp.full((COUNT, WIDTH), np.float32(0.5)), jnp.int32(0), layout=layout)
    return [np.asarray(array) for array in (table.parameters, *table.slots)]


def table_of(layout):
    """Return a used table with separate memory."""
    parameters, *slots = map(jnp.array, used(layout))
    return Rows(parameters, tuple(slots))


def arrays(table):
    """Return parameters and slots, one below the other."""
    return np.stack([np.asarray(array) for array in (table.parameters, *table.slots)])


def push(table, rows, values, layout, version=1):
    pushed = push_sparse(table, jnp.asarray(rows), jnp.asarray(values), jnp.int32(version), layout=layout)
    return arrays(pushed)


@partial(jax.jit, static_argnums=2)
def coalesced_rows(rows, values, num_rows=ROWS):
    return sparse._coalesced(rows, values, num_rows)


def padded(rows, values):
    """Return a message of fewer rows as one of `COUNT`, so that all messages share a compilation."""
    missing = COUNT - len(rows)
    return np.append(rows, np.full(missing, ROWS, np.int32)), np.append(
        values, np.ones((missing, WIDTH), np.float32), 0
    )


def scattered(rows, values):
    """Return the dense gradient of a sparse push."""
    dense = np.zeros((ROWS, WIDTH), np.float32)
    for row, value in zip(rows, values, strict=True):
        if 0 <= row < ROWS:
            dense[row] += value
    return dense


@layouts(quick=LAYOUTS)
@given(rows=wild_rows, values=whole_values)
def test_equals_the_dense_update_by_the_scattered_matrix(layout, rows, values):
    table = table_of(layout)
    before = arrays(table)
    found = push(table, rows, values, layout)
    dense = jnp.asarray(scattered(rows, values).reshape(-1))
    slots = tuple(jnp.asarray(slot.reshape(-1)) for slot in before[1:])
    parameters, new_slots = apply_pushes(
        jnp.asarray(before[0].reshape(-1)), slots, [dense], jnp.ones(1), jnp.int32(1), optimiser=layout.optimiser
    )
    wanted = np.stack([np.asarray(array).reshape(ROWS, WIDTH) for array in (parameters, *new_slots)])
    is_pushed = np.isin(np.arange(ROWS), rows)
    wanted[:, ~is_pushed] = before[:, ~is_pushed]
    assert found == pytest.approx(wanted, rel=1e-5, abs=1e-5)


@layouts()
@given(rows=row_lists, values=whole_values)
def test_rows_that_are_not_pushed_keep_every_bit(layout, rows, values):
    table = table_of(layout)
    before = arrays(table)
    rest = ~np.isin(np.arange(ROWS), rows)
    assert np.array_equal(push(table, rows, values, layout)[:, rest], before[:, rest])


@layouts(LAYOUTS[2:])
@given(rows=row_lists, values=whole_values, order=st.permutations(range(COUNT)))
def test_order_of_rows_changes_nothing(layout, rows, values, order):
    straight = push(table_of(layout), rows, values, layout)
    turned = push(table_of(layout), rows[list(order)], values[list(order)], layout)
    assert np.array_equal(straight, turned)


@layouts()
@given(rows=row_lists, values=whole_values)
def test_a_push_may_be_coalesced_before(layout, rows, values):
    unique, sums = coalesced_rows(rows, values)
    coalesced = push(table_of(layout), unique, sums, layout)
    # Stochastic gradient descent rounds after each repeated row, the others after the sum.
    assert coalesced == pytest.approx(push(table_of(layout), rows, values, layout), rel=1e-6, abs=1e-5)


@layouts()
@given(rows=row_lists, values=whole_values)
def test_a_push_may_be_split_into_halves_and_repeated_rows(layout, rows, values):
    few, own = rows[: COUNT // 2], values[: COUNT // 2]
    split = push(table_of(layout), np.tile(few, 2), np.tile(own / 2, (2, 1)), layout)
    assert split == pytest.approx(push(table_of(layout), *padded(few, own), layout), rel=1e-6, abs=1e-5)


def test_the_square_of_a_sum_is_not_the_sum_of_squares():
    for layout in LAYOUTS[2:4]:
        start = initial_rows(jnp.zeros((ROWS, WIDTH)), layout)
        together = push(start, *padded(np.array([2, 2], np.int32), np.full((2, WIDTH), 3.0, np.float32)), layout)
        assert together[1][2].tolist() == [36.0] * WIDTH


@given(rows=row_lists, values=whole_values)
def test_both_methods_give_the_same_rows(rows, values):
    for loop, by_sorting in zip(LAYOUTS[2::2], LAYOUTS[3::2], strict=True):
        found = push(table_of(loop), rows, values, loop)
        assert found == pytest.approx(push(table_of(by_sorting), rows, values, by_sorting), rel=1e-6, abs=1e-6)


@layouts()
def test_a_gradient_of_zero_is_a_push_too(layout):
    """Momenta decay where a zero is pushed, and only there."""
    table = table_of(layout)
    before = arrays(table)
    found = push(table, np.full(COUNT, 4, np.int32), np.zeros((COUNT, WIDTH), np.float32), layout)
    changes = isinstance(layout.optimiser, Momentum | Adam)
    assert np.array_equal(found[:, 4], before[:, 4]) is not changes


@layouts()
def test_padding_and_negative_rows_are_dropped(layout):
    table = table_of(layout)
    before = arrays(table)
    rows = np.array([ROWS, -1, ROWS + 5, -ROWS] * 3, np.int32)
    assert np.array_equal(push(table, rows, np.full((COUNT, WIDTH), np.nan, np.float32), layout), before)


@layouts()
def test_an_empty_push_changes_nothing(layout):
    table = table_of(layout)
    before = arrays(table)
    assert np.array_equal(push(table, np.zeros(0, np.int32), np.zeros((0, WIDTH), np.float32), layout), before)


@layouts()
def test_half_precision_values_are_added_in_single_precision(layout):
    rows = np.array([1, 1, 5, 1] * 3, np.int32)
    halves = jnp.asarray(np.random.default_rng(0).normal(size=(COUNT, WIDTH)), jnp.bfloat16)
    widened = np.asarray(halves.astype(jnp.float32))
    assert np.array_equal(push(table_of(layout), rows, halves, layout), push(table_of(layout), rows, widened, layout))


@given(rows=wild_rows, values=whole_values)
def test_coalesced_rows_rise_and_hold_the_sums(rows, values):
    unique, sums = map(np.asarray, coalesced_rows(rows, values))
    inside = sorted({int(row) for row in rows if 0 <= row < ROWS})
    assert unique.tolist() == inside + [ROWS] * (COUNT - len(inside))
    assert np.array_equal(scattered(unique, sums), scattered(rows, values))
    assert not sums[len(inside) :].any()


@layouts()
def test_pull_returns_parameters_and_zeros_for_rows_that_do_not_exist(layout):
    table = table_of(layout)
    asked = np.array([4, -1, 0, ROWS, 4], np.int32)
    found = np.asarray(pull_rows(table, jnp.asarray(asked)))
    parameters = arrays(table)[0]
    assert np.array_equal(
        found, np.stack([parameters[4], np.zeros(WIDTH), parameters[0], np.zeros(WIDTH), parameters[4]])
    )


@layouts(LAYOUTS[::2])
def test_tables_are_updated_where_they_lie(layout):
    table = initial_rows(jnp.zeros((ROWS, WIDTH)), layout)
    places = [leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves(table)]
    done = push_sparse(table, jnp.zeros(COUNT, jnp.int32), jnp.ones((COUNT, WIDTH)), jnp.int32(0), layout=layout)
    assert [leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves(done)] == places


@layouts(LAYOUTS[::2])
def test_memory_of_a_push_does_not_grow_with_the_width_of_the_whole_table(layout):
    """A loop that carries more than one array copies them in every step, and needs memory for the copies."""

    def extra(num_rows):
        one = initial_rows(jnp.zeros((1, WIDTH)), layout)
        table = jax.tree.map(lambda array: jax.ShapeDtypeStruct((num_rows, WIDTH), array.dtype), one)
        rows, version = jax.ShapeDtypeStruct((COUNT,), jnp.int32), jax.ShapeDtypeStruct((), jnp.int32)
        values = jax.ShapeDtypeStruct((COUNT, WIDTH), jnp.float32)
        compiled = sparse._push_rows.lower(table, rows, values, version, layout=layout).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    places = 4 * 90_000
    assert extra(100_000) - extra(10_000) <= places + 256


@pytest.mark.parametrize(("width", "method"), [(0, "loop"), (3, "hash")])
def test_refuses_layouts_that_cannot_be(width, method):
    with pytest.raises((InvalidOptionError, TypeCheckError)):  # the second if beartype is active, since it checks first
        RowLayout(optimiser=RULES[0], width=width, method=method)


@pytest.mark.parametrize("shape", [(4,), (4, 2), (0, 3)])
def test_refuses_parameters_of_another_shape(shape):
    with pytest.raises(InvalidOptionError, match="must have shape"):
        initial_rows(jnp.zeros(shape), LAYOUTS[0])


@pytest.mark.parametrize(
    ("rows", "values", "cause"),
    [
        (np.zeros(2, np.float32), np.ones((2, WIDTH), np.float32), "vector of integers"),
        (np.zeros((2, 1), np.int32), np.ones((2, WIDTH), np.float32), "vector of integers"),
        (np.zeros(2, np.int32), np.ones((2, WIDTH + 1), np.float32), "values must have shape"),
        (np.zeros(2, np.int32), np.ones((1, WIDTH), np.float32), "values must have shape"),
    ],
)
def test_refuses_messages_that_do_not_fit_the_table(rows, values, cause):
    with pytest.raises(InvalidOptionError, match=cause):
        push(table_of(LAYOUTS[0]), rows, values, LAYOUTS[0])


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@layouts(LAYOUTS[:4])
def test_a_push_is_the_same_where_the_librarys_integers_have_64_bits(layout, dtype):
    rows, values = padded(np.array([1, 1, 3], np.int32), np.ones((3, WIDTH), np.float32))
    expected = push(table_of(layout), rows, values, layout)
    with jax.enable_x64(True):
        found = push(table_of(layout), rows.astype(dtype), values, layout)
    assert found.dtype == np.float32
    assert np.array_equal(found, expected)


@layouts(LAYOUTS[::3])
@pytest.mark.parametrize("beyond", [2**31, 2**32, 2**32 + 1, 2**40 + 2, -(2**32) + 1, 2**63 - 1])
def test_rows_beyond_32_bits_are_padding_and_no_rows_of_the_table(layout, beyond):
    """Without 64-bit mode JAX keeps the lower 32 bits of a row number, which may be a valid number."""
    rows = np.array([1, beyond, 2, beyond] * (COUNT // 4), np.int64)
    values = np.ones((COUNT, WIDTH), np.float32)
    small = np.where(rows == beyond, -1, rows).astype(np.int32)
    tables = [table_of(layout) for _ in range(2)]
    given, wanted = (
        push_sparse(table, own, values, jnp.int32(1), layout=layout)
        for table, own in zip(tables, (rows, small), strict=True)
    )
    assert np.array_equal(arrays(given), arrays(wanted))
    pulled = np.asarray(pull_rows(given, rows))
    assert not pulled[1::2].any()


def by_chunks(table, rows, values, rule, version=1):
    """Return a table's arrays after a hand-written kernel has processed a message, step by step on any device."""
    number = table[0].shape[0]
    wanted = np.where((rows >= 0) & (rows < number), rows, number)
    order = np.argsort(wanted, kind="stable").astype(np.int32)

    def update(old, gradient, step):
        new, slots = rule.update(old[0], old[1:], gradient, step)
        return new, *slots

    @jax.jit
    def run(arrays, ordered, order, values):
        return sparse.push_sorted(arrays, ordered, order, values, jnp.int32(version + 1), update, interpret=True)

    return [np.asarray(array) for array in run(table, wanted[order].astype(np.int32), order, values)]


@pytest.mark.parametrize(
    "rule", [RULES[1], *(pytest.param(rule, marks=pytest.mark.prove) for rule in (RULES[0], RULES[3]))]
)
@pytest.mark.parametrize(
    ("count", "number", "width", "often"),
    [
        *(pytest.param(*each, marks=pytest.mark.prove) for each in ((1, 3, 3, 0), (17, 5, 4, 0), (90, 60, 70, 0))),
        (700, 30, 5, 0.7),
    ],
)
def test_the_kernel_by_hand_adds_updates_and_writes_each_row_once(rule, count, number, width, often):
    """Runs within one chunk, across its end, and over many chunks; against sums in double precision."""
    rng = np.random.default_rng(count)
    rows = rng.integers(-1, number + 2, count)
    rows[rng.random(count) < often] = 2
    values = rng.normal(size=(count, width)).astype(np.float32)
    table = [np.abs(rng.normal(size=(number, width))).astype(np.float32) for _ in range(1 + rule.num_slots)]
    found = by_chunks(tuple(map(jnp.asarray, table)), rows, jnp.asarray(values), rule)
    sums, is_in = np.zeros((number, width)), (rows >= 0) & (rows < number)
    np.add.at(sums, rows[is_in], values[is_in].astype(np.float64))
    new, slots = rule.update(
        *(jnp.asarray(table[0]), tuple(map(jnp.asarray, table[1:])), jnp.asarray(sums), jnp.int32(2))
    )
    is_pushed = np.isin(np.arange(number), rows)
    for got, wanted, old in zip(found, (new, *slots), table, strict=True):
        np.testing.assert_allclose(got[is_pushed], np.asarray(wanted)[is_pushed], rtol=1e-4, atol=1e-5)
        assert np.array_equal(got[~is_pushed], old[~is_pushed])


def test_the_kernel_by_hand_leaves_what_is_wrong_in_its_row():
    rows, values = np.repeat([0, 1, 2], 30), np.ones((90, WIDTH), np.float32)
    values[40] = np.nan
    (found,) = by_chunks((jnp.zeros((ROWS, WIDTH)),), rows, jnp.asarray(values), Sgd(learning_rate=0.5))
    assert np.isnan(found[1]).all()
    assert found[[0, 2, 3]].tolist() == [[-15.0] * WIDTH, [-15.0] * WIDTH, [0.0] * WIDTH]
