"""First come, first served."""

from dataclasses import dataclass

from optim.models.cluster.workload import Workload
from optim.simulation.cluster.index_policy import IndexPolicy, Key


@dataclass(frozen=True, slots=True, kw_only=True)
class FifoOptions:
    """Options.

    Parameters
    ----------
    backfill
        Whether jobs behind one that finds no room may start.
    """

    backfill: bool = False


def fifo(options: FifoOptions, jobs: Workload) -> IndexPolicy:
    """Return the policy: gangs in the order of their submission, to their end."""
    del jobs
    return IndexPolicy(name="fifo", source="any batch system's default", key=Key.SUBMISSION, backfill=options.backfill)
