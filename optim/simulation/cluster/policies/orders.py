"""Policies that are a plain order: first come, shortest, least attained service, random."""

from dataclasses import dataclass

from optim.core.errors import InvalidOptionError
from optim.core.policies import policy
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


@policy(
    "fifo",
    world="cluster",
    options=FifoOptions,
    summary="Gangs in the order of their submission, to their end; strict, or with backfill.",
    source="any batch system's default",
    is_default=True,
)
def fifo(options: FifoOptions, jobs: Workload) -> IndexPolicy:
    """Return the policy: gangs in the order of their submission, to their end."""
    del jobs
    return IndexPolicy(name="fifo", key=Key.SUBMISSION, backfill=options.backfill)


CLAIRVOYANT = "clairvoyant yardstick, as in Gu et al., Tiresias, NSDI 2019"

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
            key=key,
            preempts=Preempts.AT_EVENTS if self.preempt else Preempts.NEVER,
            backfill=self.backfill,
            needs=NEEDS,
        )


@policy(
    "srtf",
    world="cluster",
    options=ShortestOptions,
    summary="Shortest remaining time first; preempts at every event.",
    source=CLAIRVOYANT,
    is_default=True,
)
def srtf(options: ShortestOptions, jobs: Workload) -> IndexPolicy:
    """Return shortest remaining time first."""
    del jobs
    return options.policy("srtf", Key.REMAINING_TIME)


@policy(
    "srsf",
    world="cluster",
    options=ShortestOptions,
    summary="Shortest remaining service (time x GPUs) first; preempts at every event.",
    source=CLAIRVOYANT,
    is_default=True,
)
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


@policy(
    "las",
    world="cluster",
    options=LasOptions,
    summary="Least attained service (time x GPUs, or time) first; preempts at ticks.",
    source="Gu et al., Tiresias, NSDI 2019 (2D-LAS); Nuyens and Wierman 2008",
    is_default=True,
)
def las(options: LasOptions, jobs: Workload) -> IndexPolicy:
    """Return the policy: at each tick the jobs that have had least run."""
    del jobs
    return IndexPolicy(
        name="las",
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


@policy(
    "random",
    world="cluster",
    options=RandomOptions,
    summary="Each job draws its place in the order at its submission.",
    source="a yardstick",
    is_default=True,
)
def random_order(options: RandomOptions, jobs: Workload) -> IndexPolicy:
    """Return the policy: each job draws its place in the order at its submission, from the run's seed."""
    del jobs
    return IndexPolicy(name="random", key=Key.DRAWN, backfill=options.backfill)
