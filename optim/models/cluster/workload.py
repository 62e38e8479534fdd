"""Jobs that a cluster runs, as arrays."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from optim.core.errors import InvalidProblemError
from optim.models.cluster.world import Cluster, IntArray

TextArray = NDArray[np.object_]

US = 1_000_000
"""Microseconds in a second: time is whole microseconds, so that no order hangs on a rounded number."""

PPM = 1_000_000
"""A slowdown of 1 in parts per million."""

LATEST_US = 2**50
"""Latest time: exact in 64 bits and in doubles (35 years)."""

LEVELS = ("machine", "rack", "cluster")
"""Localities: the smallest part of the cluster that holds all of a job's GPUs."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Workload:
    """Jobs in the order of their submission, one row a job.

    Parameters
    ----------
    submit_us
        Submission in microseconds after the first; not decreasing; shape (jobs,).
    gpus
        Gang: GPUs that the job holds together, at least 1; shape (jobs,).
    duration_us
        Exclusive run time on its gang in one machine, positive; shape (jobs,).
    slowdown_ppm
        How much longer work takes by locality (`LEVELS`), in parts per million, at least 1,000,000; shape (jobs, 3).
    app
        Number of each job's app; jobs without one are apps of their own; shape (jobs,).
    group
        Number of each job's virtual cluster, into `groups`; shape (jobs,).
    groups
        Names of the virtual clusters.
    ids
        Names of the jobs.
    dropped
        How many rows of a source were left out, by reason.

    Raises
    ------
    InvalidProblemError
        If arrays differ in length, times aren't sorted, or a number is outside its range.
    """

    submit_us: IntArray
    gpus: IntArray
    duration_us: IntArray
    slowdown_ppm: IntArray = field(default_factory=lambda: np.zeros((0, 3), np.int64))
    app: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    group: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    groups: tuple[str, ...] = ("",)
    ids: tuple[str, ...] = ()
    dropped: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Fill what was left out, and check the rest."""
        count = len(self.submit_us)
        if not count:
            raise InvalidProblemError("there is no job; a workload has at least one")
        filled = {
            "submit_us": self.submit_us,
            "gpus": self.gpus,
            "duration_us": self.duration_us,
            "slowdown_ppm": self.slowdown_ppm if len(self.slowdown_ppm) else np.full((count, 3), PPM),
            "app": self.app if len(self.app) else np.arange(count),
            "group": self.group if len(self.group) else np.zeros(count),
        }
        for name, values in filled.items():
            if len(values) != count:
                raise InvalidProblemError(f"{name} has {len(values)} entries for {count} jobs; give one a job")
            object.__setattr__(self, name, np.array(values, np.int64, order="C"))  # own and writable: one compiled type
        if self.submit_us[0] < 0 or (np.diff(self.submit_us) < 0).any():
            raise InvalidProblemError("jobs must be sorted by submission, from 0 on; sort them first")
        limits = {"gpus": (1, 2**20), "duration_us": (1, LATEST_US), "slowdown_ppm": (PPM, 1_000 * PPM)}
        for name, (least, most) in limits.items():
            values = getattr(self, name)
            if values.min() < least or values.max() > most:
                raise InvalidProblemError(f"{name} must lie in {least}..{most}, got {values.min()}..{values.max()}")
        if (self.gpus.astype(float) * self.duration_us * self.slowdown_ppm.max(1) / PPM).max() >= 2.0**62:
            raise InvalidProblemError("a job's GPUs x duration must stay below 2**62 microseconds; check the units")
        if not self.ids:
            object.__setattr__(self, "ids", tuple(f"j{row}" for row in range(count)))

    def __len__(self) -> int:
        """Return the number of jobs."""
        return len(self.submit_us)

    @property
    def gpu_hours(self) -> float:
        """Work of all jobs."""
        return float(self.gpus.astype(float) @ self.duration_us) / US / 3600

    def check_fits(self, cluster: Cluster) -> None:
        """Check that every gang fits into the cluster.

        Raises
        ------
        InvalidProblemError
            If one doesn't; it names the first.
        """
        too_large = np.flatnonzero(self.gpus > cluster.num_gpus)
        if len(too_large):
            row = int(too_large[0])
            raise InvalidProblemError(
                f"job {self.ids[row][:40]} asks for {self.gpus[row]} GPUs of a cluster of {cluster.num_gpus}; "
                f"enlarge the cluster, or leave such jobs out with --option oversized=drop"
            )
