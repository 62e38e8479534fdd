"""Sparse push and pull of rows of a table.

Rows pushed several times in one message add up *before* the optimiser sees them: the square of a sum isn't the sum of
squares. On a CPU this is done without sorting: a first loop notes where each row is pushed first, a second one adds
every push to the sum at that place, and then every array of the table is visited in a loop of its own, in which a row
changes only at its first place. One array a loop, each updated in place: a loop that carries two would copy them. On an
accelerator, where a loop over rows would starve, equal rows are found by sorting.

Rows are far apart in memory, and going there is what a push costs. So an optimiser with one slot has parameters and
slot in one array, as real and imaginary parts: there each pushed row is visited once.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial, wraps
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from optim.core.errors import InvalidOptionError, check_choices, check_in
from optim.kernels.parameter_server.optimisers import AbstractOptimiser, OptState, compiled_for_rule
from optim.kernels.parameter_server.shapes import check_rows, check_wide

Vector = NDArray[Any]
Method = Literal["loop", "sort"]
Messages = tuple[jax.Array, jax.Array, jax.Array]
"""Rows, whether their update is due, and their gradients; of all messages or of one."""


class Rows(NamedTuple):
    """A table as it lies in memory; `row_parameters` and `row_slots` tell its contents.

    Attributes
    ----------
    arrays
        Shape (rows, width) each: parameters and slots, or one of complex numbers that holds both.
    """

    arrays: tuple[jax.Array, ...]


@dataclass(frozen=True, kw_only=True)
class RowLayout:
    """How the rows of a table are kept and updated.

    Parameters
    ----------
    optimiser
        The rule; for Adam it is the lazy form: moments of rows that aren't pushed rest.
    width
        Parameters a row.
    method
        "loop" for CPUs, "sort" for accelerators; by default that of the platform at hand.
    """

    optimiser: AbstractOptimiser
    width: int
    method: Method = field(default_factory=lambda: "loop" if jax.default_backend() == "cpu" else "sort")

    def __post_init__(self) -> None:
        check_in("[1, inf)", self, "width")
        check_choices(self, {"method": ("loop", "sort")})

    @property
    def is_paired(self) -> bool:
        """Whether parameters and slot are real and imaginary parts of one array."""
        return self.method == "loop" and self.optimiser.num_slots == 1


def initial_rows(parameters: jax.Array, layout: RowLayout, slots: OptState | None = None) -> Rows:
    """Return a table with the given parameters and slots, empty ones if not given; it shares no memory with them.

    Raises
    ------
    InvalidOptionError
        If `parameters` isn't of shape (rows, layout.width), has no rows, or is in 16 bits.
    """
    check_wide(parameters)
    if parameters.ndim != 2 or parameters.shape[0] == 0 or parameters.shape[1] != layout.width:
        raise InvalidOptionError(f"parameters must have shape (rows, {layout.width}), got {parameters.shape}")
    own = jnp.array(parameters, dtype=jnp.float32, copy=True)
    if slots is None:
        slots = layout.optimiser.initial_slots(own)
    else:
        slots = tuple(jnp.array(slot, dtype=jnp.float32, copy=True) for slot in slots)
    return Rows((lax.complex(own, slots[0]),) if layout.is_paired else (own, *slots))


def row_parameters(table: Rows, layout: RowLayout) -> jax.Array:
    """Return the parameters of all rows, shape (rows, width)."""
    return lax.real(table.arrays[0]) if layout.is_paired else table.arrays[0]


def row_slots(table: Rows, layout: RowLayout) -> OptState:
    """Return the optimiser's slots of all rows."""
    return (lax.imag(table.arrays[0]),) if layout.is_paired else table.arrays[1:]


def _held_rows(rows: Any) -> Any:
    """Return row numbers that 32 bits hold; those of NumPy beyond them become -1, where JAX would wrap them to valid ones."""
    if not isinstance(rows, np.ndarray) or rows.dtype.itemsize <= 4 or rows.dtype.kind not in "iu":
        return rows
    is_held = (rows >= 0) & (rows <= np.iinfo(np.int32).max)
    return np.where(is_held, rows, -1).astype(np.int32)


def _of_held_rows(kernel: Any, place: int) -> Any:
    """Return a compiled function that takes row numbers of any width at a place; its ways to be looked at stay."""

    @wraps(kernel)
    def call(*words: Any, **named: Any) -> Any:
        held = [_held_rows(word) if at == place else word for at, word in enumerate(words)]
        return kernel(*held, **{name: _held_rows(word) if name == "rows" else word for name, word in named.items()})

    call.lower = kernel.lower  # type: ignore[attr-defined]  # of a compiled function
    return call


@partial(_of_held_rows, place=1)
@compiled_for_rule(donate_argnums=0, static_argnames="layout")
def push_sparse(table: Rows, rows: jax.Array, values: jax.Array, version: jax.Array, *, layout: RowLayout) -> Rows:
    """Apply pushed rows to a table; repeated rows add up first, or one by one where that is the same but for rounding. `table` is donated.

    Parameters
    ----------
    table
        R rows.
    rows
        Shape (N,), integers of any width. Rows of number R and more are padding and change nothing; so do negative ones.
    values
        Shape (N, layout.width): gradients, float32 or bfloat16.
    version
        Scalar int32: pushes applied to the table before this one.
    layout
        Optimiser, width and method.

    Raises
    ------
    InvalidOptionError
        If rows aren't integers, or don't have a gradient of the table's width each.

    Notes
    -----
    Equal rows add up in the order given, on an accelerator as a tree that is the same in every run. O(N + R / width) for "loop", O(N log N) for "sort".
    """
    check_rows(rows, values, layout.width)
    if rows.shape[0] == 0:
        return table
    num_rows, step = table.arrays[0].shape[0], version + 1
    pushed = values.astype(jnp.float32)
    if layout.method == "sort":
        return _push_by_sorting(table, rows, pushed, step, layout.optimiser)
    if layout.optimiser.num_slots == 0:
        # Linear in the gradient: repeated rows may be applied one by one.
        is_in = (rows >= 0) & (rows < num_rows)
        return _visit_rows(table, (rows, is_in, pushed), step, layout)
    is_first, sums = _sum_at_first(rows, pushed, num_rows)
    return _visit_rows(table, (rows, is_first, sums), step, layout)


@partial(_of_held_rows, place=1)
@compiled_for_rule(static_argnames="layout")
def pull_rows(table: Rows, rows: jax.Array, *, layout: RowLayout) -> jax.Array:
    """Return the parameters of the rows asked for, shape (N, layout.width); zeros for rows out of range."""
    read = _read_rows(table.arrays[0], rows)
    return lax.real(read) if layout.is_paired else read


def pull_rows_to_host(table: Rows, rows: Vector, *, layout: RowLayout, out: Vector | None = None) -> Vector:
    """Return what `pull_rows` does as a NumPy array, for workers that read it from memory.

    On a CPU the table is looked at where it lies, and rows are copied once by NumPy: XLA's gather goes through them element
    by element. The look ends with the call, so the next push may still have the table's memory.

    Parameters
    ----------
    table, layout
        As in `pull_rows`.
    rows
        Shape (N,), whole numbers.
    out
        Shape (N, layout.width), float32: where to; a new array if not given.
    """
    if jax.default_backend() != "cpu":
        read = np.asarray(pull_rows(table, np.asarray(rows), layout=layout))
        if out is None:
            return read
        np.copyto(out, read)
        return out
    wanted, held = np.asarray(rows), np.asarray(table.arrays[0])
    parameters = held.real if layout.is_paired else held
    read = np.take(parameters, wanted, axis=0, out=out, mode="clip")
    is_out = (wanted < 0) | (wanted >= len(parameters))
    if is_out.any():
        read[is_out] = 0.0
    return read


@partial(_of_held_rows, place=0)
@partial(jax.jit, static_argnames="num_rows")
def coalesce_rows(rows: jax.Array, values: jax.Array, *, num_rows: int) -> tuple[jax.Array, jax.Array]:
    """Return each pushed row once, in rising order, with the sum of its values; padded with row `num_rows`.

    Parameters
    ----------
    rows
        Shape (N,); numbers outside ``0..num_rows - 1`` are dropped.
    values
        Shape (N, width).
    """
    count = rows.shape[0]
    if count == 0:
        return rows, values
    wanted = jnp.where((rows >= 0) & (rows < num_rows), rows, num_rows)
    order = jnp.argsort(wanted, stable=True)
    ordered = wanted[order]
    is_first = jnp.concatenate([jnp.ones((1,), bool), ordered[1:] != ordered[:-1]])
    segment = jnp.cumsum(is_first) - 1
    sums = lax.platform_dependent(is_first, segment, values[order], cpu=_sum_in_order, default=sum_runs)
    unique = jnp.full((count,), num_rows, rows.dtype).at[segment].set(ordered, indices_are_sorted=True)
    return unique, jnp.where((unique < num_rows)[:, None], sums, 0.0)


def _sum_in_order(is_first: jax.Array, segment: jax.Array, ordered: jax.Array) -> jax.Array:
    """Return the sum of each run, one after the other: what a CPU does with an indexed addition."""
    del is_first
    return jax.ops.segment_sum(ordered, segment, num_segments=len(ordered), indices_are_sorted=True)


def sum_runs(is_first: jax.Array, segment: jax.Array, ordered: jax.Array) -> jax.Array:
    """Return the sum of each run of rows, in the order of runs and padded with zeros, without an indexed addition.

    An accelerator adds to one place from many threads in any order, and so with other bits in each run. Here sums are a
    scan that begins anew with each run: always the same tree of additions.

    Parameters
    ----------
    is_first, segment
        Shape (N,): whether a row begins a run, and the number of its run, counted from 0.
    ordered
        Shape (N, width).
    """

    def join(left: tuple[jax.Array, jax.Array], right: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        return left[0] | right[0], jnp.where(right[0], right[1], left[1] + right[1])

    summed = lax.associative_scan(join, (is_first[:, None], ordered))[1]
    is_last = jnp.concatenate([is_first[1:], jnp.ones((1,), bool)])
    place = jnp.where(is_last, segment, len(ordered))
    return jnp.zeros_like(ordered).at[place].set(summed, mode="drop")


def _place(row: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return where a row begins; both numbers are of one type, whatever the width of the library's integers."""
    return row, jnp.zeros_like(row)


def _read_rows(array: jax.Array, rows: jax.Array) -> jax.Array:
    """Gather rows; negative ones are moved beyond the end, since JAX would count them from there."""
    beyond = jnp.where(rows < 0, array.shape[0], rows)
    return array.at[beyond].get(mode="fill", fill_value=0.0)


def _push_by_sorting(
    table: Rows, rows: jax.Array, values: jax.Array, step: jax.Array, optimiser: AbstractOptimiser
) -> Rows:
    """Sum equal rows after sorting, then gather, update and scatter each once."""
    unique, sums = coalesce_rows(rows, values, num_rows=table.arrays[0].shape[0])
    parameters, *slots = (_read_rows(array, unique) for array in table.arrays)
    new, new_slots = optimiser.update(parameters, tuple(slots), sums, step)

    def put(array: jax.Array, updated: jax.Array) -> jax.Array:
        # Padding repeats the row beyond the end, so uniqueness is promised to nobody.
        return array.at[unique].set(updated, mode="drop", indices_are_sorted=True)

    return Rows(tuple(put(array, updated) for array, updated in zip(table.arrays, (new, *new_slots), strict=True)))


def _sum_at_first(rows: jax.Array, values: jax.Array, num_rows: int) -> tuple[jax.Array, jax.Array]:
    """Return where a row of the table is pushed for the first time, and there the sum of all its pushes."""
    count = rows.shape[0]
    is_in = (rows >= 0) & (rows < num_rows)
    safe = jnp.where(is_in, rows, num_rows)
    place = jnp.arange(count, dtype=jnp.int32)

    def note(first: jax.Array, message: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        row, index = message
        return lax.dynamic_update_slice(first, index[None], (row,)), None

    # From the last to the first, so that the first stays; one more place takes the rows that are out of range.
    first = lax.scan(note, jnp.zeros((num_rows + 1,), jnp.int32), (safe, place), reverse=True)[0]
    owner = first[safe]

    def add(sums: jax.Array, message: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        index, value = message
        old = lax.dynamic_slice(sums, _place(index), (1, value.shape[0]))
        return lax.dynamic_update_slice(sums, old + value[None], _place(index)), None

    sums = lax.scan(add, jnp.zeros_like(values), (owner, values))[0]
    return is_in & (owner == place), sums


def _visit_rows(table: Rows, messages: Messages, step: jax.Array, layout: RowLayout) -> Rows:
    """Update rows in the order given where that is due: slot after slot, then the parameters by the new slots."""
    rule, width = layout.optimiser, layout.width

    def read(array: jax.Array, row: jax.Array) -> jax.Array:
        return lax.dynamic_slice(array, _place(row), (1, width))

    def visit_all(array: jax.Array, update: Callable[[jax.Array, jax.Array, jax.Array], jax.Array]) -> jax.Array:
        def visit(carried: jax.Array, message: Messages) -> tuple[jax.Array, None]:
            row, is_due, gradient = message
            old = read(carried, row)
            new = jnp.where(is_due, update(old, gradient[None], row), old)
            return lax.dynamic_update_slice(carried, new, _place(row)), None

        return lax.scan(visit, array, messages)[0]

    def update_pair(old: jax.Array, gradient: jax.Array, row: jax.Array) -> jax.Array:
        del row
        new, (slot,) = rule.update(lax.real(old), (lax.imag(old),), gradient, step)
        return lax.complex(new, slot)

    if layout.is_paired:
        return Rows((visit_all(table.arrays[0], update_pair),))

    def advance(number: int) -> Callable[[jax.Array, jax.Array, jax.Array], jax.Array]:
        # A slot's new value depends on no other slot, so any may stand for them.
        return lambda old, gradient, row: rule.advance((old,) * rule.num_slots, gradient)[number]

    slots = tuple(visit_all(slot, advance(number)) for number, slot in enumerate(table.arrays[1:]))

    def move(old: jax.Array, gradient: jax.Array, row: jax.Array) -> jax.Array:
        return rule.move(old, tuple(read(slot, row) for slot in slots), gradient, step)

    return Rows((visit_all(table.arrays[0], move), *slots))
