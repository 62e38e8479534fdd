"""Shortest remaining time, and shortest remaining service (time x GPUs), first."""

from dataclasses import dataclass

from optim.models.cluster.workload import Workload
from optim.simulation.cluster.index_policy import IndexPolicy, Key, Preempts

NEEDS = "the jobs' exclusive run times, which no scheduler knows"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortestOptions:
    """Options.

    Parameters
    ----------
    preempt
        Whether running jobs make room for shorter ones, at every event.
    backfill
        Whether jobs behind one that finds no room may start.
    """

    preempt: bool = True
    backfill: bool = True

    def policy(self, name: str, key: Key) -> IndexPolicy:
        """Return the policy of a key."""
        return IndexPolicy(
            name=name,
            source="clairvoyant yardstick, as in Gu et al., Tiresias, NSDI 2019",
            key=key,
            preempts=Preempts.AT_EVENTS if self.preempt else Preempts.NEVER,
            backfill=self.backfill,
            needs=NEEDS,
        )


def srtf(options: ShortestOptions, jobs: Workload) -> IndexPolicy:
    """Return shortest remaining time first."""
    del jobs
    return options.policy("srtf", Key.REMAINING_TIME)


def srsf(options: ShortestOptions, jobs: Workload) -> IndexPolicy:
    """Return shortest remaining service first."""
    del jobs
    return options.policy("srsf", Key.REMAINING_SERVICE)
