"""Crews: workers that keep what they were given, a large instance say, and answer question after question about their shards."""

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from optim.core.execution.parcels import SentOnce


class AbstractPost(SentOnce, ABC):
    """What every worker of a crew holds. Shards are told by number; any worker can answer for any shard.

    The same question has the same answer wherever and however often it is asked, so that a worker that is lost costs time alone.
    """

    @abstractmethod
    def answer(self, shard: int, question: Any, own: Any) -> Any:
        """Return a shard's answer to a question that all are asked, with what it alone is told."""


class Crew(Protocol):
    """Workers that hold a post."""

    def ask(self, question: Any, own: Mapping[int, Any]) -> dict[int, Any]:
        """Return the answer of each shard in `own`, by shard."""
        ...


class ThreadCrew:
    """Threads of this process share one post; they help as far as its work releases the interpreter's lock.

    Parameters
    ----------
    post
        What is asked; shards are asked at the same time.
    num_threads
        How many, as many as cores may be used by default.
    """

    def __init__(self, post: AbstractPost, num_threads: int | None = None) -> None:
        self._post = post
        self._threads = ThreadPoolExecutor(num_threads or len(os.sched_getaffinity(0)))

    def __enter__(self) -> "ThreadCrew":
        return self

    def __exit__(self, *exception: object) -> None:
        self._threads.shutdown()

    def ask(self, question: Any, own: Mapping[int, Any]) -> dict[int, Any]:
        """Return the answer of each shard in `own`, by shard."""
        answers = self._threads.map(lambda shard: self._post.answer(shard, question, own[shard]), own)
        return dict(zip(own, answers, strict=True))
