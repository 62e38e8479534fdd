"""Pricing of all jobs in one jitted JAX call: payoffs and completion slots, without schedules.

The CPU loop of `pricing` is faster on a CPU; on an accelerator this one is the way.
"""

import numpy as np

from optim.core.arrays import FloatArray, IntArray
from optim.core.errors import UnsupportedProblemError
from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.pricing.classes import JobTables, Prices, unit_costs


def check_supported(instance: AdmissionInstance) -> None:
    """Refuse instances that the batch can't price.

    Raises
    ------
    UnsupportedProblemError
        For demand segments, whole chunks a slot, speed-ups, or shared servers: the batch has one cost table a slot.
    """
    if instance.has_segments or instance.has_steps or instance.has_shared_servers:
        raise UnsupportedProblemError(
            "batched pricing needs one demand a job, worker-slots as progress, and separate servers; use price"
        )


def price_batched(tables: JobTables, prices: Prices, *, is_double: bool = True) -> tuple[FloatArray, IntArray]:
    """Return each job's best payoff and completion slot at the given prices (-1 where no payoff is positive).

    Parameters
    ----------
    is_double
        Whether to compute in 64 bits; 32 are faster on an accelerator and no longer certify.

    Raises
    ------
    UnsupportedProblemError
        For demand segments, whole chunks a slot, or shared servers: the batch has one cost table a slot.
    """
    import jax
    import jax.numpy as jnp

    from optim.kernels.min_plus import best_payoffs, slot_tables

    check_supported(tables.instance)
    span = tables.deadline - tables.arrival + 1
    live = np.flatnonzero((tables.deadline >= 0) & (tables.target <= span * tables.most))
    payoff, completion = np.zeros(tables.num_jobs), np.full(tables.num_jobs, -1, dtype=np.int64)
    if len(live) == 0:
        return payoff, completion
    worker_cost, ps_cost = unit_costs(tables, prices)
    largest = int(tables.most[live].max())
    needed = np.full((len(live), largest + 1), -1, dtype=np.int32)
    for k, i in enumerate(live.tolist()):
        needed[k, : tables.most[i] + 1] = tables.ps_needed[tables.table_offset[i] : tables.table_offset[i + 1]]
    # Before its arrival a job may hold no worker: limits of zero there.
    slots = np.arange(tables.value.shape[1])
    is_open = slots[None, :] >= tables.arrival[live][:, None]
    worker_limit = np.swapaxes(tables.worker_limit[live], 1, 2) * is_open[:, :, None]
    precision = jnp.float64 if is_double else jnp.float32
    with jax.enable_x64(is_double):
        costs = slot_tables(
            jnp.asarray(np.swapaxes(worker_cost[live], 1, 2), precision),
            jnp.asarray(worker_limit),
            jnp.asarray(np.swapaxes(ps_cost[live], 1, 2), precision),
            jnp.asarray(np.swapaxes(tables.ps_limit[live], 1, 2)),
            jnp.asarray(needed),
        )
        best, slot = best_payoffs(
            costs,
            jnp.asarray(tables.value[live], precision),
            jnp.asarray(tables.target[live]),
            int(tables.target[live].max()),
        )
        payoff[live], completion[live] = np.asarray(best), np.asarray(slot)
    return payoff, completion
