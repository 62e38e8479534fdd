"""Batched min-plus recursions in JAX: the best completion of many jobs at once.

For each job the recursion ``C_t[d] = min over Y of C_{t-1}[d - Y] + table_t[Y]`` runs over slots; all jobs
advance together, padded to the largest. On a CPU a loop over jobs that stops early is faster (see the
benchmark suite `pricing`); on an accelerator the batch fills the machine.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax


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

    Notes
    -----
    O(jobs x slots x width x Y) operations, in O(slots) sequential steps.
    """
    num_jobs, _, num_counts = tables.shape
    start = jnp.full((num_jobs, width + 1), jnp.inf, tables.dtype).at[:, 0].set(0.0)
    padding = jnp.full((num_jobs, num_counts - 1), jnp.inf, tables.dtype)

    def slot(carry, inputs):  # type: ignore[no-untyped-def]
        state, best, completion, t = carry
        table, worth = inputs

        def count(y, after):  # type: ignore[no-untyped-def]
            shifted = lax.dynamic_slice_in_dim(
                jnp.concatenate([padding, state], axis=1), num_counts - 1 - y, width + 1, axis=1
            )
            return jnp.minimum(after, shifted + lax.dynamic_slice_in_dim(table, y, 1, axis=1))

        after = lax.fori_loop(0, num_counts, count, jnp.full_like(state, jnp.inf))
        done = jnp.take_along_axis(after, target[:, None], axis=1)[:, 0]
        payoff = worth - done
        is_better = payoff > best
        return (
            after,
            jnp.where(is_better, payoff, best),
            jnp.where(is_better, t, completion),
            t + 1,
        ), None

    initial = (start, jnp.zeros(num_jobs, tables.dtype), jnp.full(num_jobs, -1), 0)
    (_, best, completion, _), _ = lax.scan(slot, initial, (jnp.swapaxes(tables, 0, 1), value.T))
    return best, completion
