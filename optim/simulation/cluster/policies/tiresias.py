"""Tiresias: queues by attained service, first start first within a queue.

Completed here: a job is looked at again whenever it reaches a queue's limit, a submission or an end; promotion of
starved jobs is off, as in the paper's experiments with an infinite knob.
"""

from dataclasses import dataclass
from itertools import pairwise

from optim.core.errors import InvalidOptionError
from optim.models.cluster.workload import US, Workload
from optim.simulation.cluster.index_policy import IndexPolicy, Key, Preempts, Tie


@dataclass(frozen=True, slots=True, kw_only=True)
class TiresiasOptions:
    """Options.

    Parameters
    ----------
    limits_gpu_s
        Attained service in GPU-seconds at which a job falls into the next queue, increasing, with colons between; the
        defaults are those of the authors' simulator.

    Raises
    ------
    InvalidOptionError
        If they aren't increasing positive numbers.
    """

    limits_gpu_s: str = "3250:7200:18000"

    def __post_init__(self) -> None:
        """Check the limits."""
        try:
            values = [float(part) for part in self.limits_gpu_s.split(":")]
        except ValueError:
            values = []
        if not values or not values[0] >= 0.001 or any(a >= b for a, b in pairwise(values)):
            raise InvalidOptionError(
                f"limits_gpu_s must be increasing numbers such as 3250:7200, got {self.limits_gpu_s[:40]!r}"
            )

    @property
    def limits_us(self) -> tuple[int, ...]:
        """Limits in GPU-microseconds."""
        return tuple(round(float(part) * US) for part in self.limits_gpu_s.split(":"))


def tiresias(options: TiresiasOptions, jobs: Workload) -> IndexPolicy:
    """Return the policy without a distribution of sizes (2D-LAS in queues)."""
    del jobs
    limits = options.limits_us
    return IndexPolicy(
        name="tiresias",
        source="Gu et al., Tiresias, NSDI 2019",
        key=Key.TABLE,
        tie=Tie.FIRST_START,
        preempts=Preempts.AT_EVENTS,
        thresholds=limits,
        ranks=tuple(range(len(limits) + 1)),
        crossings=limits,
    )
