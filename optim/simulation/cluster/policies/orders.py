"""Policies that are a plain order: first come, shortest, least attained service, random."""

from dataclasses import dataclass

from optim.core.errors import InvalidOptionError
from optim.models.cluster.workload import US, Workload
from optim.simulation.cluster.index.policy import IndexPolicy, Key, Preempts


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


@dataclass(frozen=True, slots=True, kw_only=True)
class LasOptions:
    """Options.

    Parameters
    ----------
    quantum_s
        Distance of the ticks at which running jobs may lose their GPUs.
    by_time
        Whether service is time alone, not time x GPUs.

    Raises
    ------
    InvalidOptionError
        If the quantum is outside its range.
    """

    quantum_s: float = 300.0
    by_time: bool = False

    def __post_init__(self) -> None:
        """Check the range."""
        if not 0.001 <= self.quantum_s <= 1e7:
            raise InvalidOptionError(f"quantum_s must lie in 0.001..1e7, got {self.quantum_s}")


def las(options: LasOptions, jobs: Workload) -> IndexPolicy:
    """Return the policy: at each tick the jobs that have had least run."""
    del jobs
    return IndexPolicy(
        name="las",
        source="Gu et al., Tiresias, NSDI 2019 (2D-LAS); Nuyens and Wierman 2008",
        key=Key.ATTAINED_TIME if options.by_time else Key.ATTAINED_SERVICE,
        preempts=Preempts.AT_TICKS,
        quantum_us=round(options.quantum_s * US),
    )


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
