"""A cluster on this machine checks its owners at the stated interval."""

import asyncio

import pytest

distributed = pytest.importorskip("distributed")

from optim.execution import dask_cluster
from optim.execution.dask_cluster import LOOK_S, OwnCluster


def test_keepers_that_have_given_up_are_looked_for_every_so_many_seconds(monkeypatch):
    """Tornado's intervals are in milliseconds; starting a cluster twice adds no second callback."""
    started = []

    class Callback:
        def __init__(self, call, interval_ms):
            self.what = call.__name__, interval_ms

        def start(self):
            started.append(self.what)

    async def nothing(self):
        pass

    monkeypatch.setattr(dask_cluster, "PeriodicCallback", Callback)
    monkeypatch.setattr(distributed.LocalCluster, "_start", nothing)
    cluster = object.__new__(OwnCluster)  # without workers
    cluster.periodic_callbacks = {}
    for _ in range(2):
        asyncio.run(cluster._start())
    cluster.periodic_callbacks.clear()
    assert started == [("_replace", 1000 * LOOK_S)]
