"""Small worlds, found by search, in which a scheduler violates a guarantee, each with its measure."""

from dataclasses import dataclass
from itertools import groupby

import numpy as np

from optim.models.cluster.cluster import Cluster
from optim.models.cluster.log import Event, Run
from optim.models.cluster.workload import PPM, US, Workload

MINUTE_US = 60 * US
NETWORK_PPM, COMPUTE_PPM = (PPM, 1_300_000, 1_800_000), (PPM, 1_020_000, 1_100_000)
"""Slowdown by machine, rack and cluster of network-bound jobs, and of compute-bound jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counterexample:
    """A world of machines with two GPUs, one job per app, without overhead; gangs spread if necessary.

    Parameters
    ----------
    policy
        The policy that violates a guarantee.
    racks
        Rack of each machine.
    rows
        (minute of submission, GPUs, minutes, whether the network binds it) of each job.
    rho_max, envy
        Worst finish-time fairness (above 1: no sharing incentive), and how many times faster a job would be on the GPUs of
        another at the same time (above 1: envy).
    """

    policy: str
    racks: tuple[int, ...]
    rows: tuple[tuple[int, int, int, bool], ...]
    rho_max: float
    envy: float

    @property
    def cluster(self) -> Cluster:
        """The machines."""
        return Cluster(gpus=np.full(len(self.racks), 2), rack=np.array(self.racks))

    @property
    def jobs(self) -> Workload:
        """The jobs."""
        submit, gpus, minutes, _ = (np.array(column, np.int64) for column in zip(*self.rows, strict=True))
        return Workload(
            submit_us=submit * MINUTE_US,
            gpus=gpus,
            duration_us=minutes * MINUTE_US,
            slowdown_ppm=np.array([NETWORK_PPM if is_network else COMPUTE_PPM for *_, is_network in self.rows]),
        )


COUNTEREXAMPLES = (
    Counterexample(
        policy="drf",
        racks=(0, 0, 1),
        rows=((0, 2, 40, True), (1, 1, 60, False), (1, 1, 30, False), (1, 1, 40, True), (2, 2, 10, True)),
        rho_max=1.1045,
        envy=1.8,
    ),
    Counterexample(
        policy="las",
        racks=(0, 1, 2),
        rows=((0, 2, 30, True), (0, 1, 10, False), (1, 1, 10, True), (2, 2, 10, True), (2, 1, 10, True)),
        rho_max=1.0289,
        envy=1.8,
    ),
)
"""Dominant resource fairness and least attained service give neither sharing incentive nor freedom from envy once placement counts."""


def placement_envy(jobs: Workload, cluster: Cluster, run: Run) -> float:
    """Return how many times faster a running job would be, at most, on the GPUs of another one that runs at the same time.

    A job could use another job's GPUs if there are at least as many as its gang. Then only the smallest part of the
    cluster that contains them distinguishes them. Waiting jobs envy all others and aren't counted. 1 means that no
    placement is envied.
    """
    levels: dict[int, int] = {}
    worst = 1.0
    for time, group in groupby(run.log.rows(), key=lambda row: row[0]):
        del time
        for _, kind, job, places in group:
            if kind == Event.START:
                machines = {machine for machine, _ in places}
                racks = {int(cluster.rack[machine]) for machine in machines}
                levels[job] = 0 if len(machines) == 1 else 1 if len(racks) == 1 else 2
            else:
                levels.pop(job, None)
        for job, level in levels.items():
            best = min((other for rival, other in levels.items() if jobs.gpus[rival] >= jobs.gpus[job]), default=level)
            worst = max(worst, float(jobs.slowdown_ppm[job, level] / jobs.slowdown_ppm[job, best]))
    return worst
