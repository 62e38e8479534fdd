"""Draw admission instances: the paper's ranges, bursty arrivals, heavy tails that can end in time."""

from collections.abc import Callable
from fractions import Fraction

import numpy as np

from optim.core.errors import InvalidOptionError
from optim.core.limits import check_drawn
from optim.models.admission.instance import MICRO, AdmissionInstance, IntArray, ServerClasses
from optim.models.admission.reach import earliest_completion
from optim.workloads.admission.arrivals import draw_arrivals
from optim.workloads.admission.generator_options import GeneratorOptions
from optim.workloads.admission.job_columns import JobColumns
from optim.workloads.admission.server_types import RESOURCES, draw_servers, is_day, merged

__all__ = ["GeneratorOptions", "generate"]

DrawJobs = Callable[[GeneratorOptions, IntArray, np.random.Generator], JobColumns]

MOST_ROUNDS = 50
"""Rounds of redrawing jobs that can't finish: where one job in five can, 50 rounds leave one in 70,000."""


def generate(options: GeneratorOptions, seed: int, *, draw_jobs: DrawJobs = JobColumns.draw) -> AdmissionInstance:
    """Draw an admission instance.

    Parameters
    ----------
    options
        Sizes and distributions.
    seed
        Same options and seed, same instance.
    draw_jobs
        Draws a job for each arrival, where jobs are to be of another kind than the paper's.

    Returns
    -------
    AdmissionInstance
        All its quantities are decimals of at most six digits after the point.

    Raises
    ------
    InvalidOptionError
        If too few jobs can finish on the servers that were drawn (`GeneratorOptions.min_schedulable`), or more is to be
        drawn than a reader takes (`ReadLimits`).

    Examples
    --------
    >>> options = GeneratorOptions(num_jobs=8, num_slots=6, num_worker_servers=2, num_ps_servers=2)
    >>> generate(options, seed=1).name
    'generated-8-6-2-2-1'
    """
    _check_sizes(options)
    server_rng, arrival_rng, job_rng = map(np.random.default_rng, np.random.SeedSequence(seed).spawn(3))
    sides = _draw_sides(options, server_rng)
    arrival = draw_arrivals(
        options.num_jobs,
        max(1, int(options.arrival_span * options.num_slots)),
        options.slot_s,
        swing=options.arrival_swing,
        burstiness=options.arrival_burstiness,
        rng=arrival_rng,
    )
    columns = draw_jobs(options, arrival, job_rng)
    for _ in range(MOST_ROUNDS):
        instance = _assemble(options, seed, columns, sides)
        stuck = np.flatnonzero(earliest_completion(instance) < 0)
        if len(stuck) <= (1 - options.min_schedulable) * options.num_jobs:
            return instance
        columns = columns.with_rows(stuck, draw_jobs(options, arrival[stuck], job_rng))
    raise InvalidOptionError(
        f"min_schedulable must be at most {1 - len(stuck) / options.num_jobs:.2f} on these servers, got "
        f"{options.min_schedulable}: {len(stuck)} of {options.num_jobs} jobs can't finish even alone; "
        "lower it, add servers, or lower the demands"
    )


def _check_sizes(options: GeneratorOptions) -> None:
    """Raise where an instance would be larger than what a reader takes."""
    for name in ("num_jobs", "num_slots", "num_worker_servers", "num_ps_servers", "segments"):
        check_drawn("count", getattr(options, name), name)
    check_drawn("cells", options.num_slots * options.num_jobs, "num_slots times num_jobs")
    check_drawn("cells", options.segments * options.num_jobs, "segments times num_jobs")


def _draw_sides(options: GeneratorOptions, rng: np.random.Generator) -> tuple[ServerClasses, ServerClasses]:
    """Draw the worker and the PS servers: one object twice where they are shared."""
    day = is_day(options.num_slots, options.slot_s)
    workers, ps = (
        draw_servers(types, number, options.night_only_share, day, rng)
        for types, number in (
            (options.worker_types, options.num_worker_servers),
            (options.ps_types, options.num_ps_servers),
        )
    )
    if options.shared_servers:
        workers = ps = merged(workers, ps)
    return workers, ps


def _assemble(
    options: GeneratorOptions, seed: int, columns: JobColumns, sides: tuple[ServerClasses, ServerClasses]
) -> AdmissionInstance:
    share = options.max_share_per_server
    instance = AdmissionInstance(
        name=f"generated-{options.num_jobs}-{options.num_slots}-{options.num_worker_servers}"
        f"-{options.num_ps_servers}-{seed}",
        horizon=options.num_slots,
        slot_micro_s=round(options.slot_s * MICRO),
        resources=RESOURCES,
        jobs=columns.jobs(),
        worker_servers=sides[0],
        ps_servers=sides[1],
        min_utility_share=_decimal_fraction(options.min_utility),
        max_share_per_server=None if share is None else _decimal_fraction(share),
        chunk_integral=options.chunk_integral,
    )
    return columns.segmented(instance) if options.segments > 1 else instance


def _decimal_fraction(value: float) -> Fraction:
    """Return a number as an exact decimal of six digits."""
    return Fraction(round(value * MICRO), MICRO)
