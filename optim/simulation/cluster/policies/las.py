"""Least attained service first."""

from dataclasses import dataclass

from optim.core.errors import InvalidOptionError
from optim.models.cluster.workload import US, Workload
from optim.simulation.cluster.index_policy import IndexPolicy, Key, Preempts


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
