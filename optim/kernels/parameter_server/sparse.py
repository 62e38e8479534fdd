"""Sparse push and pull of rows of a table.

Rows pushed several times in one message add up *before* the optimiser sees them: the square of a sum isn't the sum of
squares. On a CPU this is done without sorting. Every row of the table holds, side by side, its parameters, the
optimiser's slots and a place for pending sums; one loop adds the pushed rows into that place, a second one visits them
again, applies what is pending and clears it, so that a repeated row finds nothing the second time. On an accelerator,
where a loop over rows would starve, equal rows are found by sorting.
"""

from dataclasses import dataclass
from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
from jax import lax

from optim.core.errors import InvalidOptionError
from optim.kernels.parameter_server.optimisers import AbstractOptimiser, Slots

Method = Literal["loop", "sort"]


@dataclass(frozen=True, kw_only=True)
class RowLayout:
    """How the rows of a table are laid out.

    Parameters
    ----------
    optimiser
        The rule; for Adam it is the lazy form: moments of rows that aren't pushed rest.
    width
        Parameters a row.
    method
        "loop" for CPUs, "sort" for accelerators; a table belongs to one of them.
    """

    optimiser: AbstractOptimiser
    width: int
    method: Method = "loop"

    def __post_init__(self) -> None:
        if self.width < 1:
            raise InvalidOptionError(f"width must be at least 1, got {self.width}")
        if self.method not in ("loop", "sort"):
            raise InvalidOptionError(f"method must be 'loop' or 'sort', got {self.method!r}")

    @property
    def applies_at_once(self) -> bool:
        """Whether repeated rows may be applied one by one, the update being linear in the gradient."""
        return self.optimiser.num_slots == 0

    @property
    def has_pending(self) -> bool:
        """Whether rows have a place for pending sums."""
        return self.method == "loop" and not self.applies_at_once

    @property
    def has_mark(self) -> bool:
        """Whether a column says that a sum is pending: needed where a gradient of zero changes something."""
        return self.has_pending and not self.optimiser.zero_is_identity

    @property
    def live_columns(self) -> int:
        """Columns of parameters and slots."""
        return self.width * (1 + self.optimiser.num_slots)

    @property
    def columns(self) -> int:
        """Columns of the table."""
        return self.live_columns + (self.width if self.has_pending else 0) + int(self.has_mark)

    def split(self, rows: jax.Array) -> tuple[jax.Array, Slots]:
        """Return parameters and slots of whole rows, each of shape (..., width)."""
        parts = [
            rows[..., index * self.width : (index + 1) * self.width] for index in range(1 + self.optimiser.num_slots)
        ]
        return parts[0], tuple(parts[1:])


def initial_rows(parameters: jax.Array, layout: RowLayout) -> jax.Array:
    """Return a table of shape (rows, layout.columns) with the given parameters and empty slots.

    Raises
    ------
    InvalidOptionError
        If `parameters` isn't of shape (rows, layout.width).
    """
    if parameters.ndim != 2 or parameters.shape[1] != layout.width:
        raise InvalidOptionError(f"parameters must have shape (rows, {layout.width}), got {parameters.shape}")
    empty = jnp.zeros((parameters.shape[0], layout.columns - layout.width), jnp.float32)
    return jnp.concatenate([parameters.astype(jnp.float32), empty], axis=1)


@partial(jax.jit, donate_argnums=0, static_argnames="layout")
def push_sparse(
    table: jax.Array, rows: jax.Array, values: jax.Array, version: jax.Array, *, layout: RowLayout
) -> jax.Array:
    """Apply pushed rows to a table; repeated rows add up first. `table` is donated.

    Parameters
    ----------
    table
        Shape (R, layout.columns).
    rows
        Shape (N,), int32. Rows of number R and more are padding and change nothing; so do negative ones.
    values
        Shape (N, layout.width): gradients, float32 or bfloat16.
    version
        Scalar int32: pushes applied to the table before this one.
    layout
        Optimiser, width and method.

    Notes
    -----
    O(N) row visits in the order given for "loop"; O(N log N) for "sort", where equal rows add up in the order given.
    """
    step = version + 1
    kept = values.astype(jnp.float32)
    if layout.method == "sort":
        return _push_by_sorting(table, rows, kept, step, layout)
    if layout.applies_at_once:
        return _push_at_once(table, rows, kept, step, layout)
    return _apply_pending(_add_pending(table, rows, kept, layout), rows, step, layout)


@partial(jax.jit, static_argnames="layout")
def pull_rows(table: jax.Array, rows: jax.Array, *, layout: RowLayout) -> jax.Array:
    """Return the parameters of the rows asked for, shape (N, layout.width); zeros for rows out of range."""
    return table[:, : layout.width].at[_out_of_range_last(rows, table)].get(mode="fill", fill_value=0.0)


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
    wanted = jnp.where((rows >= 0) & (rows < num_rows), rows, num_rows)
    order = jnp.argsort(wanted, stable=True)
    ordered = wanted[order]
    is_first = jnp.concatenate([jnp.ones((1,), bool), ordered[1:] != ordered[:-1]])
    segment = jnp.cumsum(is_first) - 1
    sums = jax.ops.segment_sum(values[order], segment, num_segments=count, indices_are_sorted=True)
    unique = jnp.full((count,), num_rows, rows.dtype).at[segment].set(ordered, indices_are_sorted=True)
    return unique, jnp.where((unique < num_rows)[:, None], sums, 0.0)


def _out_of_range_last(rows: jax.Array, table: jax.Array) -> jax.Array:
    """Return the rows with negative ones moved beyond the end, where JAX drops them; it would count from the end."""
    return jnp.where(rows < 0, table.shape[0], rows)


def _push_by_sorting(
    table: jax.Array, rows: jax.Array, values: jax.Array, step: jax.Array, layout: RowLayout
) -> jax.Array:
    """Sum equal rows after sorting, then gather, update and scatter each once."""
    unique, sums = coalesce_rows(rows, values, num_rows=table.shape[0])
    old = table.at[unique].get(mode="fill", fill_value=0.0, indices_are_sorted=True)
    parameters, slots = layout.split(old)
    new, new_slots = layout.optimiser.update(parameters, slots, sums, step)
    updated = jnp.concatenate([new, *new_slots], axis=1)
    # Padding repeats the row beyond the end, so uniqueness is promised to nobody.
    return table.at[unique].set(updated, mode="drop", indices_are_sorted=True)


def _push_at_once(
    table: jax.Array, rows: jax.Array, values: jax.Array, step: jax.Array, layout: RowLayout
) -> jax.Array:
    """Apply row after row; a single carried table, or the loop would copy it."""
    num_rows, width = table.shape

    def visit(carried: jax.Array, message: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        row, value = message
        old = lax.dynamic_slice(carried, (row, 0), (1, width))
        new, _ = layout.optimiser.update(old, (), value[None], step)
        kept = jnp.where(_is_in(row, num_rows), new, old)
        return lax.dynamic_update_slice(carried, kept, (row, 0)), None

    return lax.scan(visit, table, (rows, values))[0]


def _add_pending(table: jax.Array, rows: jax.Array, values: jax.Array, layout: RowLayout) -> jax.Array:
    """Add the pushed rows into their places for pending sums, in the order given."""
    num_rows, start = table.shape[0], layout.live_columns
    width = layout.columns - start

    def visit(carried: jax.Array, message: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        row, value = message
        old = lax.dynamic_slice(carried, (row, start), (1, width))
        pushed = jnp.append(value, 1.0) if layout.has_mark else value
        new = old + jnp.where(_is_in(row, num_rows), pushed, 0.0)[None]
        return lax.dynamic_update_slice(carried, new, (row, start)), None

    return lax.scan(visit, table, (rows, values))[0]


def _apply_pending(table: jax.Array, rows: jax.Array, step: jax.Array, layout: RowLayout) -> jax.Array:
    """Apply and clear what is pending in the rows pushed; where nothing is, the row stays as it is."""
    live, width = layout.live_columns, layout.width

    def visit(carried: jax.Array, row: jax.Array) -> tuple[jax.Array, None]:
        old = lax.dynamic_slice(carried, (row, 0), (1, layout.columns))
        parameters, slots = layout.split(old)
        new, new_slots = layout.optimiser.update(parameters, slots, old[:, live : live + width], step)
        updated = jnp.concatenate([new, *new_slots, jnp.zeros((1, layout.columns - live), table.dtype)], axis=1)
        if layout.has_mark:
            updated = jnp.where(old[:, -1:] > 0, updated, old)
        return lax.dynamic_update_slice(carried, updated, (row, 0)), None

    return lax.scan(visit, table, rows)[0]


def _is_in(row: jax.Array, num_rows: int) -> jax.Array:
    return (row >= 0) & (row < num_rows)
