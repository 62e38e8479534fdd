"""Batched min-plus recursions in JAX: the best completion of many jobs at once.

C_t[d] is the least cost of d worker-slots of a job's work by slot t, and table_t[Y] is the cost of Y workers in slot t.
For each job the recursion ``C_t[d] = min over Y of C_{t-1}[d - Y] + table_t[Y]`` runs over the slots; all jobs advance
together, padded to the largest target. On a CPU a loop over jobs that stops early is faster (see the benchmark suite
`pricing`). On an accelerator the batch fills the machine. On an NVIDIA GPU one Pallas kernel visits all slots of all
jobs, and skips entries that a job can't reach.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from optim.core.errors import InvalidOptionError
from optim.kernels import gpu

STRIDE_BYTES, TURN_BYTES, FEW_COUNTS = 4096, 64, 32
"""Settings of the Pallas kernel: bytes of the state per step, bytes of costs per turn of the inner loop, and maximum
number of worker counts for which four warps suffice."""


class PricedJobs(NamedTuple):
    """The jobs' data for pricing, independent of the prices.

    Attributes
    ----------
    worker_demand, ps_demand
        Demand of one worker and of one PS, shape (jobs, resources) each.
    worker_limit, ps_limit, ps_needed
        Limits and numbers of PSs, see `slot_tables`.
    value, target
        Values and work of the jobs, see `best_payoffs`.
    """

    worker_demand: jax.Array
    ps_demand: jax.Array
    worker_limit: jax.Array
    ps_limit: jax.Array
    ps_needed: jax.Array
    value: jax.Array
    target: jax.Array


@partial(jax.jit, static_argnames="width")
def payoffs_at_prices(
    jobs: PricedJobs,
    worker: jax.Array,
    ps: jax.Array,
    worker_extra: jax.Array | None = None,
    ps_extra: jax.Array | None = None,
    *,
    width: int,
) -> tuple[jax.Array, jax.Array]:
    """Return `best_payoffs` of all jobs at given prices, transferring only the prices to the device.

    Parameters
    ----------
    jobs
        The jobs.
    worker, ps
        Prices of a unit of each resource on servers for workers and for PSs, shape (classes, slots, resources) each.
    worker_extra, ps_extra
        Additional cost of one worker and of one PS of a job, shape (jobs, classes, slots) each; None for 0.
    width
        Largest target of all jobs.
    """

    def cost(demand: jax.Array, price: jax.Array, extra: jax.Array | None) -> jax.Array:
        unit_cost = jnp.einsum("jr,csr->jsc", demand, price, precision=lax.Precision.HIGHEST)
        return unit_cost if extra is None else unit_cost + jnp.swapaxes(extra, 1, 2)

    worker_cost, ps_cost = cost(jobs.worker_demand, worker, worker_extra), cost(jobs.ps_demand, ps, ps_extra)
    tables = slot_tables(worker_cost, jobs.worker_limit, ps_cost, jobs.ps_limit, jobs.ps_needed)
    return best_payoffs(tables, jobs.value, jobs.target, width)  # type: ignore[no-any-return]


def slot_tables(
    worker_cost: jax.Array,
    worker_limit: jax.Array,
    ps_cost: jax.Array,
    ps_limit: jax.Array,
    ps_needed: jax.Array,
) -> jax.Array:
    """Return the least cost of Y workers and their PSs for every job, slot and Y; infinity where this is impossible.

    Parameters
    ----------
    worker_cost, worker_limit
        Cost of one worker, and maximum number of workers, by server class; shape (jobs, slots, classes) each.
    ps_cost, ps_limit
        The same for parameter servers (PSs).
    ps_needed
        Shape (jobs, largest Y + 1): number of PSs that Y workers need; negative where Y exceeds the job's maximum.

    Returns
    -------
    jax.Array
        Least costs, shape (jobs, slots, largest Y + 1).
    """
    largest = ps_needed.shape[1] - 1
    workers = _cumulative_cost(worker_cost, worker_limit, jnp.arange(largest + 1)[None, None])
    servers = _cumulative_cost(ps_cost, ps_limit, jnp.clip(ps_needed, 0, largest)[:, None, :])
    possible = (ps_needed >= 0) & (ps_needed <= jnp.arange(largest + 1)[None])
    return jnp.where(possible[:, None, :], workers + servers, jnp.inf)


def _cumulative_cost(cost: jax.Array, limit: jax.Array, count: jax.Array) -> jax.Array:
    """Return the cost of the `count` cheapest units, infinity if all limits together allow fewer.

    `count` has shape (jobs or 1, slots or 1, counts). Classes of equal cost are used in their order. There are few
    classes, so each is compared with all others instead of sorting.
    """
    columns = [(cost[:, :, column], limit[:, :, column]) for column in range(cost.shape[-1])]

    def earlier(column: int) -> jax.Array:
        price, units = columns[column][0], jnp.zeros_like(columns[column][1])
        for other, (its_price, its_most) in enumerate(columns):
            if other != column:
                units = units + jnp.where((its_price <= price) if other < column else (its_price < price), its_most, 0)
        return units

    # Compute this once per slot; without the barrier the compiler repeats it for every count.
    before = lax.optimization_barrier([earlier(column) for column in range(len(columns))])
    total: Any = 0.0
    for (price, most), units in zip(columns, before, strict=True):
        units_used = jnp.clip(count - units[:, :, None], 0, most[:, :, None])
        total = total + jnp.where(units_used > 0, units_used.astype(cost.dtype) * price[:, :, None], 0.0)
    return jnp.where(count <= jnp.sum(limit, axis=-1)[:, :, None], total, jnp.inf)


@partial(jax.jit, static_argnames=("width",))
def best_payoffs(tables: jax.Array, value: jax.Array, target: jax.Array, width: int) -> tuple[jax.Array, jax.Array]:
    """Return each job's best payoff max(0, value - cost) and its completion slot, -1 where the payoff is 0.

    Parameters
    ----------
    tables
        Shape (jobs, slots, largest Y + 1): cost of Y workers in a slot, at least 0, infinity where impossible.
    value
        Shape (jobs, slots): value of completing in a slot; at most 0 where a job cannot complete.
    target
        Shape (jobs,): work to complete, in worker-slots, from 1 to `width`.
    width
        Largest target; it determines the shape (jobs, width + 1) of the recursion's state.

    Raises
    ------
    InvalidOptionError
        If there is no slot or no count of workers, or `value` has another shape.

    Notes
    -----
    The function performs O(jobs x slots x width x Y) operations in one loop of O(slots) sequential steps. On an
    accelerator, each step is one reduction over all Y, so the launches per slot do not grow with Y. A CPU loops over Y,
    which needs less memory.
    """
    if tables.ndim != 3 or 0 in tables.shape[1:] or value.shape != tables.shape[:2]:
        raise InvalidOptionError(
            "tables must have shape (jobs, slots, largest Y + 1) with at least one slot and one Y, and value must have shape (jobs, slots), "
            f"got {tables.shape} and {value.shape}"
        )
    return gpu.on_cuda(  # type: ignore[no-any-return]
        partial(in_one_launch, width=width), partial(_slot_by_slot, width=width), tables, value, target
    )


def _slot_by_slot(tables: jax.Array, value: jax.Array, target: jax.Array, *, width: int) -> tuple[jax.Array, jax.Array]:
    """Compute `best_payoffs` with all jobs together, slot by slot: the reference for `in_one_launch`, and its fallback."""
    num_jobs = tables.shape[0]
    start = jnp.full((num_jobs, width + 1), jnp.inf, tables.dtype).at[:, 0].set(0.0)

    def slot(state: jax.Array, table: jax.Array) -> tuple[jax.Array, jax.Array]:
        after = lax.platform_dependent(state, table, cpu=by_count, default=at_once)
        return after, jnp.take_along_axis(after, target[:, None], axis=1)[:, 0]

    _, done = lax.scan(slot, start, jnp.swapaxes(tables, 0, 1))
    payoff = value.T - done
    best = jnp.maximum(jnp.max(payoff, axis=0), 0.0)
    return best, jnp.where(best > 0, jnp.argmax(payoff, axis=0), -1)


def in_one_launch(
    tables: jax.Array, value: jax.Array, target: jax.Array, *, width: int, interpret: bool = False
) -> tuple[jax.Array, jax.Array]:
    """Compute `best_payoffs` by one launch of one kernel: a block of threads goes through the slots of a job.

    The state of the recursion is in two rows of memory that stay in the cache. In each slot the kernel computes one row
    from the other, several entries at a time, up to the job's target. Each row begins with infinite entries as padding.
    The kernel skips slots in which no work is possible, and slots after the last slot of positive value.

    Parameters
    ----------
    tables, value, target, width
        As for `best_payoffs`.
    interpret
        See `gpu.call`.
    """
    num_jobs, num_slots, num_counts = tables.shape
    dtype = tables.dtype
    stride = min(STRIDE_BYTES // dtype.itemsize, gpu.power_of_two(width + 1))
    unrolled = TURN_BYTES // dtype.itemsize
    back = -(-num_counts // unrolled) * unrolled - 1
    length = back + -(-(width + 1) // stride) * stride
    largest = jnp.max(jnp.where(jnp.isfinite(tables), jnp.arange(num_counts, dtype=jnp.int32)[None, None], -1), axis=2)
    last = jnp.max(jnp.where(value > 0, jnp.arange(1, num_slots + 1, dtype=jnp.int32)[None], 0), axis=1)

    def kernel(*references: Any) -> None:
        from jax.experimental import pallas

        tables, value, target, largest, last, best, slot_of, state = references
        parts, job = gpu.triton(), pallas.program_id(0)
        goal, lane = target[job], lax.iota(jnp.int32, stride)
        nothing = jnp.full((stride,), jnp.inf, dtype)
        for row in range(2):
            for start in range(0, length, stride):
                place = start + lane
                empty = jnp.where(place == back, jnp.zeros_like(nothing), nothing) if row == 0 else nothing
                parts.store(state.at[job, row, place], empty, mask=place < length)
        gpu.wait(interpret)

        def slot(
            time: jax.Array, carry: tuple[jax.Array, jax.Array, jax.Array]
        ) -> tuple[jax.Array, jax.Array, jax.Array]:
            most, old = largest[job, time], carry[0]
            turns = jnp.where((most == 0) & (tables[job, time, 0] == 0), 0, most // unrolled + 1)
            new = jnp.where(turns > 0, 1 - old, old)

            def part(number: jax.Array, _: jax.Array) -> jax.Array:
                place = number * stride + lane + back

                def turn(first: jax.Array, least: jax.Array) -> jax.Array:
                    for y in (first * unrolled + each for each in range(unrolled)):
                        cost = parts.load(tables.at[job, time, y], mask=y < num_counts, other=np.inf)
                        least = jnp.minimum(least, state[job, old, place - y] + cost)
                    return least

                state[job, new, place] = lax.fori_loop(0, turns, turn, nothing)
                return _

            lax.fori_loop(0, jnp.where(turns > 0, goal // stride + 1, 0), part, 0)
            gpu.wait(interpret)
            payoff = value[job, time] - state[job, new, goal + back]
            is_better = payoff > carry[1]
            return new, jnp.where(is_better, payoff, carry[1]), jnp.where(is_better, time, carry[2])

        nobody = jnp.int32(0), jnp.zeros((), dtype), jnp.int32(-1)
        _, best[job], slot_of[job] = lax.fori_loop(0, last[job], slot, nobody)

    payoffs, slot_of, _ = gpu.call(
        kernel,
        (tables, value, target.astype(jnp.int32), largest, last),
        (
            jax.ShapeDtypeStruct((num_jobs,), dtype),
            jax.ShapeDtypeStruct((num_jobs,), jnp.int32),
            jax.ShapeDtypeStruct((num_jobs, 2, length), dtype),
        ),
        grid=(num_jobs,),
        warps=4 if num_counts <= FEW_COUNTS else 2 * dtype.itemsize,
        interpret=interpret,
    )
    return payoffs, slot_of.astype(jax.dtypes.canonicalize_dtype(np.int64))


def by_count(state: jax.Array, table: jax.Array) -> jax.Array:
    """Return ``min over Y of state[d - Y] + table[Y]`` for every d, one Y after the other.

    Parameters
    ----------
    state
        Shape (jobs, width + 1): least costs before the slot.
    table
        Shape (jobs, largest Y + 1): costs of Y workers in the slot.
    """
    padded, length, num_counts = _padded(state, table), state.shape[1], table.shape[1]

    def count(y: jax.Array, after: jax.Array) -> jax.Array:
        shifted = lax.dynamic_slice_in_dim(padded, num_counts - 1 - y, length, axis=1)
        return jnp.minimum(after, shifted + lax.dynamic_slice_in_dim(table, y, 1, axis=1))

    return lax.fori_loop(0, num_counts, count, jnp.full_like(state, jnp.inf))


def at_once(state: jax.Array, table: jax.Array) -> jax.Array:
    """Return the result of `by_count`, computed as one reduction over windows of the state."""
    length, num_counts = state.shape[1], table.shape[1]
    place = jnp.arange(length)[:, None] + (num_counts - 1 - jnp.arange(num_counts))[None]
    return jnp.min(_padded(state, table)[:, place] + table[:, None], axis=2)


def _padded(state: jax.Array, table: jax.Array) -> jax.Array:
    """Return the state with infinite entries in front, so that ``d - Y`` is a valid index for every d and Y."""
    return jnp.pad(state, ((0, 0), (table.shape[1] - 1, 0)), constant_values=jnp.inf)
