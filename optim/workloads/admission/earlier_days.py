"""Days drawn for a cluster that has no history: the generator's jobs on its own servers."""

from dataclasses import replace
from itertools import count, islice

import numpy as np

from optim.core.errors import InvalidOptionError
from optim.models.admission.instance import MICRO, AdmissionInstance
from optim.models.admission.jobs import Jobs
from optim.workloads.admission.generator import GeneratorOptions, generate
from optim.workloads.admission.server_types import RESOURCES

SEED_STEP = 1000
"""Up to so many days of different seeds share none of theirs."""


def drawn_days(instance: AdmissionInstance, num_days: int, seed: int) -> tuple[AdmissionInstance, ...]:
    """Draw days with as many of the generator's jobs as an instance has, on the instance's servers.

    Parameters
    ----------
    instance
        Servers, slots and rules. Its jobs aren't looked at, but for their number, and that no day is the instance itself.
    num_days, seed
        How many; same seed, same days.

    Raises
    ------
    InvalidOptionError
        If the instance's resources aren't the generator's.
    """
    if instance.resources != RESOURCES:
        raise InvalidOptionError(
            f"--histories draws jobs that need {', '.join(RESOURCES)}; instance {instance.name!r} has "
            f"{', '.join(instance.resources)}: give --history FILE instead"
        )
    options = GeneratorOptions(
        num_jobs=max(1, instance.num_jobs),
        num_slots=instance.horizon,
        slot_s=instance.slot_micro_s / MICRO,
        num_worker_servers=instance.worker_servers.num_servers,
        num_ps_servers=instance.ps_servers.num_servers,
    )
    drawn = (generate(options, SEED_STEP * (seed + 1) + day).jobs for day in count())
    others = (jobs for jobs in drawn if not _are_same(jobs, instance.jobs))
    return tuple(
        replace(instance, name=f"{instance.name}-drawn{day}-{seed}", jobs=jobs)
        for day, jobs in enumerate(islice(others, num_days), start=1)
    )


def _are_same(jobs: Jobs, others: Jobs) -> bool:
    """Tell whether jobs are others by what they arrive with: the generator drew them by the same seed."""
    return all(
        np.array_equal(getattr(jobs, name), getattr(others, name))
        for name in ("arrival", "epochs", "chunks", "minibatches", "gradient_micro_mb", "worker_demand")
    )
