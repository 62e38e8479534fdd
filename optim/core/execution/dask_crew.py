"""A crew of Dask workers: shards stay with a worker as long as it is there."""

import pickle
from collections.abc import Mapping
from typing import Any

from distributed import Client, KilledWorker

from optim.core.errors import EngineError
from optim.core.execution.crews import AbstractPost
from optim.core.execution.dask_session import DaskSession
from optim.core.execution.dask_worker import answer_shards


class DaskCrew:
    """Workers of a Dask cluster that hold a post.

    Parameters
    ----------
    client
        The cluster.
    post
        What is asked; each worker receives it once.
    """

    def __init__(self, client: Client, post: AbstractPost) -> None:
        self._session, self._post = DaskSession(client), post
        self._home: dict[int, str] = {}

    def __enter__(self) -> "DaskCrew":
        self._session.open()
        return self

    def __exit__(self, *exception: object) -> None:
        self._session.close()

    def ask(self, question: Any, own: Mapping[int, Any]) -> dict[int, Any]:
        """Return the answer of each shard in `own`, by shard.

        Raises
        ------
        EngineError
            If the scheduler or all workers are lost.
        """
        session = self._session
        part = session.packer.pack(self._post, "what workers hold")
        futures = [
            session.submit(answer_shards, pickle.dumps((part, question, asked)), part.needs, worker, "shards")
            for worker, asked in self._by_worker(own).items()
        ]
        answers: dict[int, Any] = {}
        for future in futures:
            try:
                answers |= pickle.loads(future.result())
            except KilledWorker as error:
                raise EngineError(
                    "worker after worker was lost while it held a large instance; give workers more memory"
                ) from error
            except Exception:
                session.check(future)
                raise
        return {shard: answers[shard] for shard in own}

    def _by_worker(self, own: Mapping[int, Any]) -> dict[str, dict[int, Any]]:
        """Return what each worker is asked; shards of workers that are gone move to those with the fewest."""
        workers = sorted(self._session.threads())
        if not workers:
            raise EngineError("the Dask cluster has no worker; start one with 'dask worker ADDRESS'")
        for shard in sorted(own):
            if self._home.get(shard) not in workers:
                held = list(self._home.values())
                self._home[shard] = min(workers, key=held.count)
        asked: dict[str, dict[int, Any]] = {}
        for shard, what in own.items():
            asked.setdefault(self._home[shard], {})[shard] = what
        return asked
