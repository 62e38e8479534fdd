"""Policies that sort jobs by one key: submission, remaining time, attained service, or a random number."""

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
        Whether jobs may start ahead of a job that doesn't fit.
    """

    backfill: bool = False


@policy(
    "fifo",
    world="cluster",
    options=FifoOptions,
    summary="Run gangs in order of submission without preemption; strict, or with backfill.",
    source="any batch system's default",
    is_default=True,
)
def fifo(options: FifoOptions, jobs: Workload) -> IndexPolicy:
    """Return the policy that runs gangs in order of submission without preemption."""
    del jobs
    return IndexPolicy(name="fifo", key=Key.SUBMISSION, backfill=options.backfill)


CLAIRVOYANT = "clairvoyant baseline, as in Gu et al., Tiresias, NSDI 2019"

NEEDS = "the jobs' exclusive run times, which no scheduler knows"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortestOptions:
    """Options.

    Parameters
    ----------
    preempt
        Whether shorter jobs preempt running jobs, at every event.
    backfill
        Whether jobs may start ahead of a job that doesn't fit.
    """

    preempt: bool = True
    backfill: bool = True

    def policy(self, name: str, key: Key) -> IndexPolicy:
        """Return the policy that sorts by a key."""
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
    summary="Run the job with the shortest remaining time first; preempt at every event.",
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
    summary="Run the job with the least remaining service (time x GPUs) first; preempt at every event.",
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
        Seconds between the ticks at which running jobs may be preempted.
    by_time
        Whether service is time instead of time x GPUs.

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
    summary="Run the job with the least attained service (time x GPUs, or time) first; preempt at ticks.",
    source="Gu et al., Tiresias, NSDI 2019 (2D-LAS); Nuyens and Wierman 2008",
    is_default=True,
)
def las(options: LasOptions, jobs: Workload) -> IndexPolicy:
    """Return the policy that runs, at each tick, the jobs with the least attained service."""
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
        Whether jobs may start ahead of a job that doesn't fit.
    """

    backfill: bool = True


@policy(
    "random",
    world="cluster",
    options=RandomOptions,
    summary="Run jobs in random order, fixed for each job at its submission.",
    source="a yardstick",
    is_default=True,
)
def random_order(options: RandomOptions, jobs: Workload) -> IndexPolicy:
    """Return the policy that sorts by a random number per job, drawn at its submission from the run's seed."""
    del jobs
    return IndexPolicy(name="random", key=Key.DRAWN, backfill=options.backfill)
