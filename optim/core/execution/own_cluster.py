"""A Dask cluster of this machine that stays complete."""

from distributed import LocalCluster, Status
from tornado.ioloop import PeriodicCallback

LOOK_S = 2.0
"""How often the cluster looks for keepers that have given up."""


class OwnCluster(LocalCluster):  # type: ignore[misc]  # Dask is not typed for us
    """Workers, each with a keeper that starts it anew when it ends; keepers that have given up are replaced.

    A keeper whose worker is lost before it has told that it runs gives up: a piece that ends its worker may be the first thing
    the scheduler gives to the next one. With the last keeper the cluster would be there for ever and do nothing.
    """

    async def _start(self) -> None:
        await super()._start()
        if "replace" not in self.periodic_callbacks:
            self.periodic_callbacks["replace"] = PeriodicCallback(self._replace, 1000 * LOOK_S)
            self.periodic_callbacks["replace"].start()

    def _replace(self) -> None:
        if self.status != Status.running:
            return
        for name, keeper in list(self.workers.items()):
            if keeper.status in (Status.closed, Status.failed):
                del self.workers[name]
        if len(self.workers) < len(self.worker_spec):
            self.scale(len(self.worker_spec))
