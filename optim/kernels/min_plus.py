"""Batched min-plus recursions in JAX: the best completion of many jobs at once.

For each job the recursion ``C_t[d] = min over Y of C_{t-1}[d - Y] + table_t[Y]`` runs over slots; all jobs
advance together, padded to the largest. On a CPU a loop over jobs that stops early is faster (see the
benchmark suite `pricing`); on an accelerator the batch fills the machine.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from optim.core.errors import InvalidOptionError


def slot_tables(
    worker_cost: jax.Array,
    worker_limit: jax.Array,
    ps_cost: jax.Array,
    ps_limit: jax.Array,
    ps_needed: jax.Array,
) -> jax.Array:
    """Return the least cost of Y workers and their PSs for every job and slot, infinity where impossible.

    Parameters
    ----------
    worker_cost, worker_limit
        Shape (jobs, slots, classes): cost of one worker, and most workers, by server class.
    ps_cost, ps_limit
        Likewise for parameter servers.
    ps_needed
        Shape (jobs, largest Y + 1): PSs that Y workers need; negative where Y exceeds the job's workers.

    Returns
    -------
    jax.Array
        Shape (jobs, slots, largest Y + 1).
    """
    largest = ps_needed.shape[1] - 1
    workers = _cumulative_cost(worker_cost, worker_limit, largest)
    servers = _cumulative_cost(ps_cost, ps_limit, largest)
    needed = jnp.clip(ps_needed, 0, largest)[:, None, :]
    total = workers + jnp.take_along_axis(servers, jnp.broadcast_to(needed, workers.shape), axis=2)
    possible = (ps_needed >= 0) & (ps_needed <= jnp.arange(largest + 1)[None])
    return jnp.where(possible[:, None, :], total, jnp.inf)


def _cumulative_cost(cost: jax.Array, limit: jax.Array, largest: int) -> jax.Array:
    """Return the cost of the n cheapest units, n = 0, ..., largest, infinity beyond all limits."""
    order = jnp.argsort(cost, axis=-1, stable=True)
    sorted_cost = jnp.take_along_axis(cost, order, axis=-1)
    ends = jnp.cumsum(jnp.take_along_axis(limit, order, axis=-1), axis=-1)
    unit = jnp.arange(largest)
    unit_of_all = lax.expand_dims(unit, (*range(ends.ndim - 1), ends.ndim))
    place = jnp.sum(unit_of_all >= ends[..., None, :], axis=-1)
    padded = jnp.concatenate([sorted_cost, jnp.full((*cost.shape[:-1], 1), jnp.inf, cost.dtype)], axis=-1)
    units = jnp.take_along_axis(padded, place, axis=-1)
    zero = jnp.zeros((*cost.shape[:-1], 1), cost.dtype)
    return jnp.concatenate([zero, jnp.cumsum(units, axis=-1)], axis=-1)


@partial(jax.jit, static_argnames=("width",))
def best_payoffs(tables: jax.Array, value: jax.Array, target: jax.Array, width: int) -> tuple[jax.Array, jax.Array]:
    """Return each job's best payoff max(0, value - cost) and its completion slot, -1 where it is 0.

    Parameters
    ----------
    tables
        Shape (jobs, slots, largest Y + 1): cost of Y workers in a slot, infinity where impossible.
    value
        Shape (jobs, slots): worth of completing in a slot; not above 0 where a job can't complete.
    target
        Shape (jobs,): worker-slots due, at least 1 and at most `width`.
    width
        Largest target; fixes the state's shape (jobs, width + 1).

    Raises
    ------
    InvalidOptionError
        If there is no slot or no count of workers, or `value` has another shape.

    Notes
    -----
    O(jobs x slots x width x Y) operations, in O(slots) sequential steps: one loop, and in it on an accelerator one reduction
    over all Y at once, so that the launches of a slot don't grow with Y. A CPU goes through Y by Y in less memory.
    """
    if tables.ndim != 3 or 0 in tables.shape[1:] or value.shape != tables.shape[:2]:
        raise InvalidOptionError(
            "tables must have shape (jobs, slots, largest Y + 1) with a slot and a count at least, and value (jobs, slots), "
            f"got {tables.shape} and {value.shape}"
        )
    num_jobs = tables.shape[0]
    start = jnp.full((num_jobs, width + 1), jnp.inf, tables.dtype).at[:, 0].set(0.0)

    def slot(state: jax.Array, table: jax.Array) -> tuple[jax.Array, jax.Array]:
        after = lax.platform_dependent(state, table, cpu=by_count, default=at_once)
        return after, jnp.take_along_axis(after, target[:, None], axis=1)[:, 0]

    _, done = lax.scan(slot, start, jnp.swapaxes(tables, 0, 1))
    payoff = value.T - done
    best = jnp.maximum(jnp.max(payoff, axis=0), 0.0)
    return best, jnp.where(best > 0, jnp.argmax(payoff, axis=0), -1)


def by_count(state: jax.Array, table: jax.Array) -> jax.Array:
    """Return ``min over Y of state[d - Y] + table[Y]`` for every d, one Y after the other.

    Parameters
    ----------
    state
        Shape (jobs, width + 1).
    table
        Shape (jobs, largest Y + 1).
    """
    padded, length, num_counts = _padded(state, table), state.shape[1], table.shape[1]

    def count(y: jax.Array, after: jax.Array) -> jax.Array:
        shifted = lax.dynamic_slice_in_dim(padded, num_counts - 1 - y, length, axis=1)
        return jnp.minimum(after, shifted + lax.dynamic_slice_in_dim(table, y, 1, axis=1))

    return lax.fori_loop(0, num_counts, count, jnp.full_like(state, jnp.inf))


def at_once(state: jax.Array, table: jax.Array) -> jax.Array:
    """Return what `by_count` does, as one reduction over windows of the state."""
    length, num_counts = state.shape[1], table.shape[1]
    place = jnp.arange(length)[:, None] + (num_counts - 1 - jnp.arange(num_counts))[None]
    return jnp.min(_padded(state, table)[:, place] + table[:, None], axis=2)


def _padded(state: jax.Array, table: jax.Array) -> jax.Array:
    """Return the state behind as many impossible ones as Y may reach back."""
    return jnp.pad(state, ((0, 0), (table.shape[1] - 1, 0)), constant_values=jnp.inf)
