"""Days drawn for a cluster that has no history: the generator's jobs on its own servers."""

from dataclasses import replace

from optim.core.errors import InvalidOptionError
from optim.models.admission.instance import MICRO, AdmissionInstance
from optim.workloads.admission.generator import GeneratorOptions, generate
from optim.workloads.admission.server_types import RESOURCES

SEED_STEP = 1000
"""Days of different seeds share none of theirs."""


def drawn_days(instance: AdmissionInstance, num_days: int, seed: int) -> tuple[AdmissionInstance, ...]:
    """Draw days with as many of the generator's jobs as an instance has, on the instance's servers.

    Parameters
    ----------
    instance
        Servers, slots and rules. Its jobs aren't looked at, but for their number.
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
    drawn = (generate(options, SEED_STEP * (seed + 1) + day) for day in range(num_days))
    return tuple(
        replace(instance, name=f"{instance.name}-drawn{day}-{seed}", jobs=one.jobs)
        for day, one in enumerate(drawn, start=1)
    )
