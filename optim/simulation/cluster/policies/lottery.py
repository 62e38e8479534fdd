"""Jobs in an order drawn once."""

from dataclasses import dataclass

from optim.models.cluster.workload import Workload
from optim.simulation.cluster.index_policy import IndexPolicy, Key


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomOptions:
    """Options.

    Parameters
    ----------
    backfill
        Whether jobs behind one that finds no room may start.
    """

    backfill: bool = True


def random_order(options: RandomOptions, jobs: Workload) -> IndexPolicy:
    """Return the policy: each job draws its place in the order at its submission, from the run's seed."""
    del jobs
    return IndexPolicy(name="random", source="a yardstick", key=Key.DRAWN, backfill=options.backfill)
