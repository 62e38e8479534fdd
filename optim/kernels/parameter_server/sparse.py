"""Sparse push and pull of rows of a table.

Gradients of a row that is pushed several times in one message add up *before* the optimiser sees them: the square of a
sum isn't the sum of squares. On a CPU no sort is needed. A first loop records the position of each row's first push in
the message, and a second loop adds every push to the sum at that position. Then one loop per array of the table updates
each pushed row once, in place; a loop over two arrays would copy them. On an accelerator a loop over rows is slow, so
equal rows are found by sorting. A Pallas kernel then reads the sorted message once, and adds, updates and writes (see
`push_sorted`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from optim.core.errors import InvalidOptionError, check_choices, check_in
from optim.kernels import gpu
from optim.kernels.parameter_server.optimisers import (
    AbstractOptimiser,
    Arrays,
    OptState,
    after,
    compiled_for_rule,
    has_traced_rate,
)

Method = Literal["loop", "sort"]
Messages = tuple[jax.Array, jax.Array, jax.Array]
"""Row numbers, whether to update each row, and gradients, for all pushes or for one push."""

Update = Callable[[Arrays, jax.Array, jax.Array], Arrays]
"""Function that returns a row's new arrays, given its old arrays, the sum of its pushes and the number of the update."""

TURN, COLUMNS = 8, 64
"""Number of sorted pushes per turn of a warp, and number of columns per warp. All reads of a turn run at once."""

TURNS, LATER_TURNS = 2, 16
"""Number of turns per warp for the message itself, and for messages of partial sums, whose entries are mostly empty."""


class Rows(NamedTuple):
    """A table: parameters and the optimiser's state arrays (slots), each of shape (rows, width)."""

    parameters: jax.Array
    slots: OptState


@dataclass(frozen=True, kw_only=True)
class RowLayout:
    """Width and update rule of a table's rows.

    Parameters
    ----------
    optimiser
        The update rule. Adam is lazy: moments of rows that are not pushed stay unchanged.
    width
        Number of parameters per row.
    method
        "loop" for CPUs, "sort" for accelerators; the default depends on the current platform.
    """

    optimiser: AbstractOptimiser
    width: int
    method: Method = field(default_factory=lambda: "loop" if jax.default_backend() == "cpu" else "sort")

    def __post_init__(self) -> None:
        check_in("[1, inf)", self, "width")
        check_choices(self, {"method": ("loop", "sort")})


def initial_rows(parameters: jax.Array, layout: RowLayout) -> Rows:
    """Return a table with the given parameters and the slots before the first push; it shares no memory with them.

    Raises
    ------
    InvalidOptionError
        If `parameters` doesn't have shape (rows, layout.width), has no rows, or has 16 bits, which lose small steps.
    """
    if parameters.dtype.itemsize < 4 and jnp.issubdtype(parameters.dtype, jnp.floating):
        raise InvalidOptionError(
            f"parameters must be float32, got {parameters.dtype}; pass parameters.astype('float32') (gradients may be bfloat16)"
        )
    if parameters.ndim != 2 or parameters.shape[0] == 0 or parameters.shape[1] != layout.width:
        raise InvalidOptionError(f"parameters must have shape (rows, {layout.width}), got {parameters.shape}")
    copied = jnp.array(parameters, dtype=jnp.float32, copy=True)
    return Rows(copied, layout.optimiser.initial_slots(copied))


def push_sparse(table: Rows, rows: jax.Array, values: jax.Array, version: jax.Array, *, layout: RowLayout) -> Rows:
    """Apply pushed gradients to the rows of a table; `table` is donated.

    The gradients of a repeated row add up before its update. For optimisers without slots they may be applied one by
    one instead, which differs only by rounding.

    Parameters
    ----------
    table
        A table of R rows.
    rows
        Shape (N,): row numbers, integers of any width. Numbers of at least R and negative numbers are padding.
    values
        Shape (N, layout.width): gradients, float32 or bfloat16.
    version
        Scalar int32: number of calls applied to the table before this call.
    layout
        Optimiser, width and method.

    Raises
    ------
    InvalidOptionError
        If rows aren't integers, or the gradients don't have shape (N, layout.width).

    Notes
    -----
    On a CPU, gradients of equal rows add up in the order given; on an accelerator, in a tree of additions that is the
    same every time. The complexity is O(N + R / width) for "loop" and O(N log N) for "sort".
    """
    if rows.ndim != 1 or not jnp.issubdtype(rows.dtype, jnp.integer):
        raise InvalidOptionError(
            f"rows must be a vector of integers, got shape {rows.shape} of {rows.dtype}; pass indices of the table's rows"
        )
    if values.shape != (len(rows), layout.width):
        raise InvalidOptionError(
            f"values must have shape {(len(rows), layout.width)}, got {values.shape}; each pushed row has a gradient as wide as the table"
        )
    if len(rows) == 0:
        return table
    done: Rows = _push_rows(table, _held_rows(rows), values, version, layout=layout)
    return done


def pull_rows(table: Rows, rows: jax.Array) -> jax.Array:
    """Return the parameters of the requested rows, shape (N, width); zeros for rows out of range."""
    return _read_rows(table.parameters, _held_rows(rows))


def _held_rows(rows: Any) -> Any:
    """Convert NumPy row numbers to 32 bits; numbers that don't fit become -1, since JAX would wrap them to valid rows."""
    if not isinstance(rows, np.ndarray) or rows.dtype.itemsize <= 4:
        return rows
    return np.where((rows >= 0) & (rows <= np.iinfo(np.int32).max), rows, -1).astype(np.int32)


@compiled_for_rule(donate_argnums=0, static_argnames="layout")
def _push_rows(table: Rows, rows: jax.Array, values: jax.Array, version: jax.Array, *, layout: RowLayout) -> Rows:
    num_rows, step = table.parameters.shape[0], version + 1
    pushed = values.astype(jnp.float32)
    if layout.method == "sort":
        return _push_by_sorting(table, rows, pushed, step, layout.optimiser)
    if layout.optimiser.num_slots == 0:
        # The update is linear in the gradient, so that repeated rows may be applied one by one.
        is_in = (rows >= 0) & (rows < num_rows)
        return _visit_rows(table, (rows, is_in, pushed), step, layout)
    is_first, sums = _sum_at_first(rows, pushed, num_rows)
    return _visit_rows(table, (rows, is_first, sums), step, layout)


def _coalesced(rows: jax.Array, values: jax.Array, num_rows: int) -> tuple[jax.Array, jax.Array]:
    """Return each pushed row once, in ascending order, with the sum of its values; the padding is row `num_rows`."""
    ordered, order = _sorted_rows(rows, num_rows)
    is_first = jnp.concatenate([jnp.ones((1,), bool), ordered[1:] != ordered[:-1]])
    segment = (jnp.cumsum(is_first) - 1).astype(jnp.int32)
    sums = lax.platform_dependent(is_first, segment, values[order], cpu=_sum_in_order, default=sum_runs)
    unique = jnp.full(rows.shape, num_rows, rows.dtype).at[segment].set(ordered, indices_are_sorted=True)
    return unique, jnp.where((unique < num_rows)[:, None], sums, 0.0)


def _sorted_rows(rows: jax.Array, num_rows: int) -> tuple[jax.Array, jax.Array]:
    """Return row numbers in ascending order (`num_rows` if out of range) and their old positions; the sort is stable."""
    wanted = jnp.where((rows >= 0) & (rows < num_rows), rows, num_rows).astype(rows.dtype)
    place = lax.iota(jnp.int32, rows.shape[0])
    ordered, order = lax.sort((wanted, place), num_keys=1, is_stable=True)
    return ordered, order


def _sum_in_order(is_first: jax.Array, segment: jax.Array, ordered: jax.Array) -> jax.Array:
    """Return the sum of each run of equal rows by indexed additions, which a CPU performs in order."""
    del is_first
    return jax.ops.segment_sum(ordered, segment, num_segments=len(ordered), indices_are_sorted=True)


def sum_runs(is_first: jax.Array, segment: jax.Array, ordered: jax.Array) -> jax.Array:
    """Return the sum of each run of equal rows, padded with zeros, without indexed additions.

    An accelerator performs indexed additions in any order, so that their rounding varies. Here the sums come from a scan
    that restarts with each run of equal rows: always the same tree of additions.

    Parameters
    ----------
    is_first, segment
        Shape (N,): whether a row begins a run, and the number of its run, counted from 0.
    ordered
        Shape (N, width): values in the order of the sorted rows.
    """

    def join(left: tuple[jax.Array, jax.Array], right: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        return left[0] | right[0], jnp.where(right[0], right[1], left[1] + right[1])

    summed = lax.associative_scan(join, (is_first[:, None], ordered))[1]
    is_last = jnp.concatenate([is_first[1:], jnp.ones((1,), bool)])
    place = jnp.where(is_last, segment, len(ordered))
    return jnp.zeros_like(ordered).at[place].set(summed, mode="drop")


def _place(row: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the indices (row, 0) of a row's first element, both of the row number's type."""
    return row, jnp.zeros_like(row)


@partial(jax.jit)
def _read_rows(array: jax.Array, rows: jax.Array) -> jax.Array:
    """Return rows, zeros if out of range. Negative numbers are moved past the end, since JAX would count them from there."""
    beyond = jnp.where(rows < 0, array.shape[0], rows)
    return array.at[beyond].get(mode="fill", fill_value=0.0)


def _push_by_sorting(
    table: Rows, rows: jax.Array, values: jax.Array, step: jax.Array, optimiser: AbstractOptimiser
) -> Rows:
    """Sum the gradients of equal rows after sorting, and update each pushed row once."""

    def by_scatter(arrays: Arrays, rows: jax.Array, values: jax.Array, step: jax.Array) -> Arrays:
        unique, sums = _coalesced(rows, values, arrays[0].shape[0])
        new = optimiser.update_arrays(tuple(_read_rows(array, unique) for array in arrays), sums, step)

        def put(array: jax.Array, updated: jax.Array) -> jax.Array:
            # Padding repeats the row number past the end, so XLA must not assume unique rows.
            return array.at[unique].set(updated, mode="drop", indices_are_sorted=True)

        return tuple(put(array, updated) for array, updated in zip(arrays, new, strict=True))

    def by_chunks(arrays: Arrays, rows: jax.Array, values: jax.Array, step: jax.Array) -> Arrays:
        ordered, order = _sorted_rows(rows, arrays[0].shape[0])
        return push_sorted(arrays, ordered.astype(jnp.int32), order, values, step, optimiser.update_arrays)

    # A Pallas kernel can use only literal numbers and its arguments, so no traced learning rate.
    run = by_scatter if has_traced_rate(optimiser) else partial(gpu.on_cuda, by_chunks, by_scatter)
    parameters, *slots = run((table.parameters, *table.slots), rows, values, step)
    return Rows(parameters, tuple(slots))


def push_sorted(
    arrays: Arrays,
    ordered: jax.Array,
    order: jax.Array,
    values: jax.Array,
    step: jax.Array,
    update: Update,
    *,
    turns: int = TURNS,
    interpret: bool = False,
) -> Arrays:
    """Update the rows of a table in place by the sums of their pushes: on a GPU, in one pass over the message.

    The sorted message is cut into chunks of `TURNS` times `TURN` pushes, and one warp adds up the pushes of its
    chunk in order. If all pushes of a row lie in one chunk, the warp updates the row. Otherwise the chunk leaves a
    partial sum for the row, at most two per chunk. The partial sums form the next, shorter message, which is cut into
    longer chunks, until one chunk holds the message. So the summation tree depends only on the message, and no two warps
    add to the same element.

    Parameters
    ----------
    arrays
        The table's parameters and slots, shape (rows, width) each.
    ordered, order
        Row number of each push in ascending order (`rows` or more for padding), and its index in `values`; shape (N,) each,
        int32.
    values
        Shape (N, width), float32: the pushes.
    step
        Scalar int32: number of the update.
    update
        The elementwise update rule; it may use only its arguments and literal constants.
    turns
        Number of turns per chunk.
    interpret
        See `gpu.call`.
    """
    (num_rows, width), count = arrays[0].shape, ordered.shape[0]
    turns = min(turns, -(-count // TURN))
    num_chunks = -(-count // (turns * TURN))
    missing = num_chunks * turns * TURN - count
    # The additional entries before the first and after the last row are -1, which differs from all row numbers.
    keys = jnp.pad(jnp.minimum(ordered, num_rows), (0, missing), constant_values=num_rows)
    keys, order = jnp.pad(keys, (1, 1), constant_values=-1), jnp.pad(order, (0, missing))
    columns = min(COLUMNS, gpu.power_of_two(width))
    num_arrays = len(arrays)

    def kernel(*references: Any) -> None:
        keys, order, values, step, *rest = references
        tables, written, (partial_rows, partial_sums) = rest[:num_arrays], rest[num_arrays:-2], rest[-2:]
        _go_through_chunk(
            keys, order, values, step[0], tables, written, partial_rows, partial_sums, update, turns, columns
        )

    *updated, partial_rows, partial_sums = gpu.call(
        kernel,
        (keys, order, values, step.astype(jnp.int32)[None], *arrays),
        (
            *(jax.ShapeDtypeStruct(array.shape, array.dtype) for array in arrays),
            jax.ShapeDtypeStruct((2 * num_chunks,), jnp.int32),
            jax.ShapeDtypeStruct((2 * num_chunks, width), values.dtype),
        ),
        grid=(num_chunks, -(-width // columns)),
        warps=1,
        in_place={4 + number: number for number in range(num_arrays)},
        interpret=interpret,
    )
    if num_chunks == 1:
        return tuple(updated)
    place = lax.iota(jnp.int32, 2 * num_chunks)
    return push_sorted(
        *(tuple(updated), partial_rows, place, partial_sums, step, update), turns=LATER_TURNS, interpret=interpret
    )


def _go_through_chunk(
    keys: Any,
    order: Any,
    values: Any,
    step: jax.Array,
    tables: Sequence[Any],
    written: Sequence[Any],
    partial_rows: Any,
    partial_sums: Any,
    update: Update,
    turns: int,
    columns: int,
) -> None:
    """Run one warp's additions, updates and writes for some columns; see `push_sorted`."""
    from jax.experimental import pallas

    parts = gpu.triton()
    (num_rows, width), chunk = tables[0].shape, pallas.program_id(0)
    begin, end = chunk * (turns * TURN), (chunk + 1) * (turns * TURN)
    column = pallas.program_id(1) * columns + lax.iota(jnp.int32, columns)
    is_column = column < width

    def read(reference: Any, number: jax.Array, is_wanted: jax.Array) -> jax.Array:
        return parts.load(reference.at[number, column], mask=is_column & is_wanted, other=0.0)

    def write(reference: Any, number: jax.Array, is_wanted: jax.Array, new: jax.Array) -> None:
        parts.store(reference.at[number, column], new, mask=is_column & is_wanted)

    def turn(number: jax.Array, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        total, has_begun = carry
        first = begin + number * TURN
        before, *row, after = (keys[first + place] for place in range(TURN + 2))
        is_row = [row_number < num_rows for row_number in row]
        begins = [row_number != last for row_number, last in zip(row, [before, *row[:-1]], strict=True)]
        ends = [*begins[1:], row[-1] != after]
        began = []
        for begins_here in begins:
            has_begun = has_begun | begins_here
            began.append(has_begun)
        is_due = [is_row[place] & began[place] & ends[place] for place in range(TURN)]
        # Issue all reads before the first write, so that they don't wait for each other.
        pushed = [read(values, order[first + place], is_row[place]) for place in range(TURN)]
        clipped = [jnp.minimum(one, num_rows - 1) for one in row]
        old = [tuple(read(table, clipped[place], is_due[place]) for table in tables) for place in range(TURN)]
        for place in range(TURN):
            total = jnp.where(begins[place], pushed[place], total + pushed[place])
            for reference, new in zip(written, update(old[place], total, step), strict=True):
                write(reference, clipped[place], is_due[place], new)
            # This writes at most once per chunk: at the end of a run that began in an earlier chunk.
            write(partial_sums, 2 * chunk, is_row[place] & ends[place] & ~began[place], total)
        return total, has_begun

    nothing = jnp.zeros((columns,), values.dtype), jnp.zeros((), bool)
    total, has_begun = turn(jnp.int32(0), nothing) if turns == 1 else lax.fori_loop(0, turns, turn, nothing)
    first, last = keys[begin + 1], keys[end]
    comes, goes_on = (first < num_rows) & (first == keys[begin]), (last < num_rows) & (last == keys[end + 1])
    write(partial_sums, 2 * chunk, goes_on & ~has_begun, total)
    write(partial_sums, 2 * chunk + 1, goes_on, jnp.where(has_begun, total, 0.0))
    partial_rows[2 * chunk] = jnp.where(comes, first, num_rows)
    partial_rows[2 * chunk + 1] = jnp.where(goes_on, last, num_rows)


def _sum_at_first(rows: jax.Array, values: jax.Array, num_rows: int) -> tuple[jax.Array, jax.Array]:
    """Return whether each push is the first of its row, and, for each first push, the sum of all pushes of its row."""
    count = rows.shape[0]
    is_in = (rows >= 0) & (rows < num_rows)
    safe = jnp.where(is_in, rows, num_rows)
    place = jnp.arange(count, dtype=jnp.int32)

    def note(first: jax.Array, message: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        row, index = message
        return lax.dynamic_update_slice(first, index[None], (row,)), None

    # In reverse order, so that the first push of each row is written last; the additional entry is for rows out of
    # range.
    first = lax.scan(note, jnp.zeros((num_rows + 1,), jnp.int32), (safe, place), reverse=True)[0]
    owner = first[safe]

    sums = add_rows(jnp.zeros_like(values), owner, values)
    return is_in & (owner == place), sums


def add_rows(table: jax.Array, rows: jax.Array, values: jax.Array, share: jax.Array | None = None) -> jax.Array:
    """Add values to rows of an array, one row after the other in the order given: fast on a CPU, slow elsewhere.

    Parameters
    ----------
    table
        Shape (rows, width), float32: the array.
    rows
        Shape (N,), integers: the row of each value. A number outside the table is replaced by the nearest row.
    values
        Shape (N, width), float32: values to add.
    share
        Scalar factor on the values, 1 by default. Each product is rounded before it is added.
    """
    if share is not None:
        unknown = (lax.bitcast_convert_type(share, jnp.int32) & 1) >> 1  # a 0 that the compiler can't know

    def add(table: jax.Array, message: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        row, value = message
        if share is not None:
            # Without the 0 that is unknown at compile time, the compiler would contract product and sum, and round only
            # once.
            bits = lax.bitcast_convert_type(share * value, jnp.int32) | unknown
            value = lax.bitcast_convert_type(bits, jnp.float32)
        old = lax.dynamic_slice(table, _place(row), (1, value.shape[0]))
        return lax.dynamic_update_slice(table, old + value[None], _place(row)), None

    return lax.scan(add, table, (rows, values))[0]


def _visit_rows(table: Rows, messages: Messages, step: jax.Array, layout: RowLayout) -> Rows:
    """Update the rows that the messages mark, in the given order: first the parameters, then each slot."""
    arrays = table.parameters, *table.slots
    rows, is_due, gradients = messages
    written: list[jax.Array] = []

    def read(array: jax.Array, row: jax.Array) -> jax.Array:
        return lax.dynamic_slice(array, _place(row), (1, layout.width))

    for number, array in enumerate(arrays):

        def visit(carried: jax.Array, message: Messages, number: int = number) -> tuple[jax.Array, None]:
            row, is_due, gradient = message
            # XLA omits reads of the arrays on which the new value doesn't depend.
            old = tuple(read(carried if at == number else each, row) for at, each in enumerate(arrays))
            new = layout.optimiser.update_arrays(old, gradient[None], step)[number]
            return lax.dynamic_update_slice(carried, jnp.where(is_due, new, old[number]), _place(row)), None

        # Update the parameters first, from the old slots, then each slot.
        places = after(rows, written[-1], jnp.zeros((), rows.dtype)) if written else rows
        written.append(lax.scan(visit, array, (places, is_due, gradients))[0])
    return Rows(written[0], tuple(written[1:]))
