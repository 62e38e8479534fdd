"""Pricing of all jobs in one jitted JAX call: payoffs and completion slots, without schedules.

Use it on accelerators; on a CPU the compiled loop of `classes.price` is faster. The jobs' tables move to the device at the
first call and stay there; each call transfers prices to the device and payoffs back.
"""

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from optim.core.arrays import FloatArray, IntArray
from optim.core.errors import UnsupportedProblemError
from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.pricing.classes import JobTables, Prices

if TYPE_CHECKING:
    from optim.kernels.min_plus import PricedJobs

_HELD: "WeakKeyDictionary[JobTables, dict[bool, tuple[IntArray, PricedJobs]]]" = WeakKeyDictionary()
"""Schedulable jobs and their pricing data on the device, by tables and by `is_double`."""


def check_supported(instance: AdmissionInstance) -> None:
    """Raise for instances that batched pricing doesn't support.

    Raises
    ------
    UnsupportedProblemError
        For demand segments, integral chunks per slot, speed-ups, or shared servers: the batch has one cost table per slot.
    """
    if instance.has_segments or instance.has_steps or instance.has_shared_servers:
        raise UnsupportedProblemError(
            "batched pricing needs one demand per job, worker-slots as progress, and separate servers; use `classes.price`"
        )


def price_batched(tables: JobTables, prices: Prices, *, is_double: bool = True) -> tuple[FloatArray, IntArray]:
    """Return each job's best payoff and completion slot at the given prices (-1 if no payoff is positive).

    Parameters
    ----------
    is_double
        Whether to compute in 64 bits; 32 bits are faster on an accelerator, but certify no bound.

    Raises
    ------
    UnsupportedProblemError
        If `check_supported` raises it, or if prices depend on the number of units.
    """
    import jax

    from optim.kernels.min_plus import payoffs_at_prices

    check_supported(tables.instance)
    if prices.worker_curves is not None or prices.ps_curves is not None:
        raise UnsupportedProblemError(
            "batched pricing needs one price per unit, but these prices depend on the number of units; use `classes.price`"
        )
    payoff, completion = np.zeros(tables.num_jobs), np.full(tables.num_jobs, -1, dtype=np.int64)
    with jax.enable_x64(is_double):
        on_device = _HELD.setdefault(tables, {})
        if is_double not in on_device:
            on_device[is_double] = _on_device(tables, is_double)
        live, jobs = on_device[is_double]
        if len(live) == 0:
            return payoff, completion
        precision = np.float64 if is_double else np.float32
        price_arrays = (prices.worker, prices.ps, prices.worker_extra, prices.ps_extra)
        worker, ps, *extra = (None if array is None else array.astype(precision) for array in price_arrays)
        more = (None if array is None else array[live] for array in extra)
        result = payoffs_at_prices(jobs, worker, ps, *more, width=int(tables.target[live].max()))
        payoff[live], completion[live] = jax.device_get(result)
    return payoff, completion


def _on_device(tables: JobTables, is_double: bool) -> "tuple[IntArray, PricedJobs]":
    """Return the schedulable jobs, and copy their pricing data to the device."""
    import jax

    from optim.kernels.min_plus import PricedJobs

    span = tables.deadline - tables.arrival + 1
    live = np.flatnonzero((tables.deadline >= 0) & (tables.target <= span * tables.most))
    needed = np.full((len(live), int(tables.most[live].max(initial=0)) + 1), -1, dtype=np.int32)
    for k, i in enumerate(live.tolist()):
        needed[k, : tables.most[i] + 1] = tables.ps_needed[tables.table_offset[i] : tables.table_offset[i + 1]]
    # Before its arrival a job can't run workers, so its limits are 0.
    is_open = np.arange(tables.value.shape[1])[None, :] >= tables.arrival[live][:, None]
    precision = np.float64 if is_double else np.float32
    jobs = PricedJobs(
        worker_demand=tables.worker_demand[live].astype(precision),
        ps_demand=tables.ps_demand[live].astype(precision),
        worker_limit=(np.swapaxes(tables.worker_limit[live], 1, 2) * is_open[:, :, None]).astype(np.int32),
        ps_limit=np.swapaxes(tables.ps_limit[live], 1, 2).astype(np.int32),
        ps_needed=needed,
        value=tables.value[live].astype(precision),
        target=tables.target[live].astype(np.int32),
    )
    return live, jax.device_put(jobs)
