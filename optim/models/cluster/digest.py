"""A digest of the jobs and the cluster of a run, with which its key begins."""

import hashlib

from optim.models.cluster.run_columns import JOB_COLUMNS, MACHINE_COLUMNS, MORE_JOB_COLUMNS, MORE_MACHINE_COLUMNS
from optim.models.cluster.workload import Workload
from optim.models.cluster.world import Cluster

LENGTH = 16
"""Hexadecimal digits."""


def digest_of(jobs: Workload, cluster: Cluster) -> str:
    """Return a digest of all columns that a file of runs holds."""
    digest = hashlib.sha256()
    for columns, owner in (
        ((*JOB_COLUMNS, *MORE_JOB_COLUMNS), jobs),
        ((*MACHINE_COLUMNS, *MORE_MACHINE_COLUMNS), cluster),
    ):
        for name in columns:
            digest.update(name.encode() + getattr(owner, name).tobytes())
    return digest.hexdigest()[:LENGTH]
