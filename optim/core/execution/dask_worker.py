"""The workers' side of the Dask engine: what a worker keeps while a run lasts, and how it does a batch of pieces."""

import pickle
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from distributed import WorkerPlugin, get_worker

from optim.core.errors import EngineError
from optim.core.execution.parcels import Parcel, SentOnce, Unpacker
from optim.core.execution.pieces import AbstractTask, attempt
from optim.core.progress import SilentProgress
from optim.core.provenance import code_digest, package_versions
from optim.core.stopping import Interruption


@dataclass(frozen=True, slots=True)
class TaskPart(SentOnce):
    """The task, which all pieces need."""

    task: AbstractTask[Any, Any]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a piece: a result, or what it raised."""

    position: int
    result: Any = None
    error: Exception | None = None


def identity() -> dict[str, str]:
    """Return what has to be equal on driver and workers for their results to be equal: versions and code."""
    return {**package_versions(), "code": code_digest()}


class Desk(WorkerPlugin):  # type: ignore[misc]  # Dask is not typed for us
    """What a worker keeps while a run lasts: objects sent once, and whether it was asked to stop."""

    def __init__(self, expected: Mapping[str, str]) -> None:
        self.expected = dict(expected)
        self.unpacker: Unpacker
        self.stop = Interruption()

    def setup(self, worker: Any) -> None:
        """Refuse a worker whose versions differ from the driver's."""
        self.unpacker = Unpacker()
        own = identity()
        wrong = [
            f"{name} {own[name]} there, {version} here"
            for name, version in self.expected.items()
            if own[name] != version
        ]
        if wrong:
            raise EngineError(
                f"worker {worker.address} has other versions: {'; '.join(wrong)}; install the same on both sides"
            )


def ask_to_stop(token: str, dask_worker: Any) -> None:
    """Have the pieces that run on a worker stop."""
    if token in dask_worker.plugins:
        dask_worker.plugins[token].stop.request()


def hold(blob: bytes) -> bytes:
    """Return what is given: as a task's result it lies on workers, and is made anew where these are lost."""
    return blob


def do_batch(token: str, batch: bytes, parts: Mapping[str, bytes]) -> tuple[bytes, float, int]:
    """Return the pickled outcomes of pieces, the seconds they took, and how many bytes this worker hadn't known."""
    desk: Desk = get_worker().plugins[token]
    begun = time.perf_counter()
    task: Parcel
    task, positions, parcels = pickle.loads(batch)
    part, new_bytes = desk.unpacker.unpack(task, parts)
    outcomes = []
    for position, parcel in zip(positions, parcels, strict=True):
        piece, more = desk.unpacker.unpack(parcel, parts)
        new_bytes += more
        if desk.stop.is_requested:
            continue
        error, result = attempt(part.task, piece, desk.stop, SilentProgress())
        outcomes.append(Outcome(position, result, error=error))
        if error is not None:
            break
    packed = pickle.dumps(outcomes, protocol=pickle.HIGHEST_PROTOCOL)
    return packed, time.perf_counter() - begun, new_bytes


def answer_shards(token: str, content: bytes, parts: Mapping[str, bytes]) -> bytes:
    """Return the pickled answers of shards to a question, by shard."""
    desk: Desk = get_worker().plugins[token]
    part, question, own = pickle.loads(content)
    post, _ = desk.unpacker.unpack(part, parts)
    return pickle.dumps(
        {shard: post.answer(shard, question, what) for shard, what in own.items()}, pickle.HIGHEST_PROTOCOL
    )
