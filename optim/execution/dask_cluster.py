"""The Dask executor: local clusters, sessions, functions that run on workers, and crews (workers with a `ShardWorker`).

The driver submits batches of pieces that take about a quarter of a second, because the scheduler costs about a
millisecond per task. A batch whose worker is lost runs on another worker. A piece is given up if several workers died
while they ran only this piece. Shared data are results of separate Dask tasks, so that a worker fetches them once, also
from other workers, and Dask recomputes them if a worker is lost.
"""

import logging
import pickle
import queue
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Generic

import dask
from distributed import Client, Future, KilledWorker, LocalCluster, Status, WorkerPlugin, get_worker
from distributed.security import Security
from tornado.ioloop import PeriodicCallback

from optim.core.errors import EngineError
from optim.core.progress import Progress, SilentProgress
from optim.core.provenance import code_digest, package_versions
from optim.core.stopping import Interruption
from optim.execution.processes import POLL_S, sigint_blocked
from optim.execution.tasks import (
    AbstractTask,
    Broadcast,
    PackedTask,
    Packer,
    Piece,
    Result,
    ShardWorker,
    Unpacker,
    attempt,
)

LOOK_S = 2.0
"""Seconds between checks for nannies that have given up (`OwnCluster`)."""


class OwnCluster(LocalCluster):  # type: ignore[misc]  # mypy skips Dask
    """A local cluster that replaces each nanny (Dask's process that restarts a worker) that has given up.

    A nanny gives up if its worker dies before the worker reports that it runs, for example if a piece kills each worker.
    Without replacement, a cluster that has lost all nannies would wait for ever.
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


@dataclass(frozen=True, slots=True)
class TaskPart(Broadcast):
    """The pickled part that all pieces share: the task."""

    task: AbstractTask[Any, Any]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a piece, or the exception that it raised."""

    position: int
    result: Any = None
    error: Exception | None = None


def identity() -> dict[str, str]:
    """Return the versions of packages and the code's digest, which must be equal on driver and workers."""
    return {**package_versions(), "code": code_digest()}


class RunStatePlugin(WorkerPlugin):  # type: ignore[misc]  # mypy skips Dask
    """State of a worker during a run: cached shared objects, and whether it was asked to stop."""

    def __init__(self, expected: Mapping[str, str]) -> None:
        self.expected = dict(expected)
        self.unpacker: Unpacker
        self.stop = Interruption()

    def setup(self, worker: Any) -> None:
        """Raise if the worker's versions differ from the driver's."""
        self.unpacker = Unpacker()
        own = identity()
        wrong = [
            f"{name} {own[name]} instead of {version}"
            for name, version in self.expected.items()
            if own[name] != version
        ]
        if wrong:
            raise EngineError(
                f"worker {worker.address} has other versions: {'; '.join(wrong)}; install the same versions"
            )


def ask_to_stop(token: str, dask_worker: Any) -> None:
    """Stop the pieces that run on a worker."""
    if token in dask_worker.plugins:
        dask_worker.plugins[token].stop.request()


def hold(blob: bytes) -> bytes:
    """Return the argument. As the result of a Dask task, it is stored on workers, and recomputed if they are lost."""
    return blob


def do_batch(token: str, batch: bytes, parts: Mapping[str, bytes]) -> tuple[bytes, float, int]:
    """Run pieces; return their pickled outcomes, their total seconds, and the number of bytes new to this worker."""
    desk: RunStatePlugin = get_worker().plugins[token]
    begun = time.perf_counter()
    task: PackedTask
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
    desk: RunStatePlugin = get_worker().plugins[token]
    part, question, own = pickle.loads(content)
    post, _ = desk.unpacker.unpack(part, parts)
    return pickle.dumps(
        {shard: post.answer(shard, question, what) for shard, what in own.items()}, pickle.HIGHEST_PROTOCOL
    )


CENSUS_S = 1.0
"""Seconds between the driver's queries for the number of workers."""

MAX_TRIES, RETRY_S = 20, 0.2
"""Maximum attempts to register a run while workers are lost, and seconds between attempts, so that the scheduler notices."""


class DaskSession:
    """One run on the workers of a Dask cluster.

    Attributes
    ----------
    client
        Dask's client.
    token
        Name of the run's plug-in on the workers.
    packer
        Pickles the pieces.
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self.token = f"optim-{uuid.uuid4().hex}"
        self.packer = Packer()
        self._parts: dict[str, Future] = {}
        self._threads: Mapping[str, int] = {}
        self._counted_at = float("-inf")

    def open(self) -> None:
        """Register the run on all current and future workers; raise if a worker has other versions than the driver."""
        for _ in range(MAX_TRIES):
            try:
                self.client.register_plugin(RunStatePlugin(identity()), name=self.token)
            except EngineError:
                raise
            except OSError as error:
                # The scheduler or a worker was lost, and the run may not be registered on other workers.
                self.check()
                lost = error
                time.sleep(RETRY_S)
            except Exception as error:  # a worker's environment may be incomplete
                raise self._unfit(error) from error
            else:
                return
        raise self._unfit(lost) from lost

    def close(self, unfinished: Iterable[Future] = ()) -> None:
        """Cancel unfinished work, and remove the run from the workers."""
        with suppress(Exception):  # if the scheduler is gone, there is nothing to free
            self.client.cancel(list(unfinished), force=True)
            self.client.unregister_worker_plugin(self.token)

    def threads(self) -> Mapping[str, int]:
        """Return the number of threads of each worker by address, updated about once per second."""
        if time.monotonic() - self._counted_at > CENSUS_S:
            self._threads = self.call(self.client.nthreads)
            self._counted_at = time.monotonic()
        return self._threads

    def submit(
        self, function: Callable[..., Any], content: bytes, needs: Iterable[str], worker: str, name: str
    ) -> Future:
        """Submit work that needs pickled parts to a worker; another worker runs it if that worker is lost.

        The worker is given explicitly, since Dask would rather queue work on workers that already have the parts.
        """
        for digest in needs:
            if digest not in self._parts:
                blob, key = self.packer.parts[digest], f"{self.token}-{digest}"
                self._parts[digest] = self.call(self.client.submit, hold, blob, key=key, pure=False)
        parts = {digest: self._parts[digest] for digest in needs}
        return self.call(
            self.client.submit, function, self.token, content, parts, workers=[worker], allow_other_workers=True,
            key=f"{self.token}-{name}-{uuid.uuid4().hex[:8]}", pure=False,
        )  # fmt: skip

    def stop(self) -> None:
        """Ask running pieces to stop; workers lost meanwhile are ignored."""
        self.call(self.client.run, ask_to_stop, self.token, on_error="ignore")

    def check(self, future: Future | None = None) -> None:
        """Raise if the scheduler is gone.

        Raises
        ------
        EngineError
            If the scheduler is gone, or `future` was cancelled, which happens only if the scheduler is gone.
        """
        if self.client.status != "running" or (future is not None and future.cancelled()):
            raise self._lost()

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call Dask, and raise an EngineError if the scheduler is gone."""
        try:
            return function(*args, **kwargs)
        except OSError as error:
            raise self._lost() from error

    def _unfit(self, error: Exception) -> EngineError:
        what = " ".join(f"{type(error).__name__}: {error}".split())
        return EngineError(f"a worker cannot join ({what}); install this package and its extras for the workers")

    def _lost(self) -> EngineError:
        address = self.client.scheduler.address if self.client.scheduler else ""
        return EngineError(
            f"the connection to the Dask scheduler {address} is lost; finished results are kept: restart the scheduler "
            "and repeat the same command"
        )


class DaskCrew:
    """Workers of a Dask cluster that hold a `ShardWorker`.

    Parameters
    ----------
    client
        Client of the cluster.
    post
        Object that answers questions for the shards; each worker receives it once.
    """

    def __init__(self, client: Client, post: ShardWorker) -> None:
        self._session, self._post = DaskSession(client), post
        self._home: dict[int, str] = {}

    def __enter__(self) -> "DaskCrew":
        self._session.open()
        return self

    def __exit__(self, *exception: object) -> None:
        self._session.close()

    def ask(self, question: Any, own: Mapping[int, Any]) -> dict[int, Any]:
        """Return the answer of each shard in `own` to a question, by shard.

        Raises
        ------
        EngineError
            If the scheduler or all workers are lost.
        """
        session = self._session
        part = session.packer.pack(self._post, "the workers' state")
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
                    "several workers died, probably because the instance is large; give workers more memory"
                ) from error
            except Exception:
                session.check(future)
                raise
        return {shard: answers[shard] for shard in own}

    def _by_worker(self, own: Mapping[int, Any]) -> dict[str, dict[int, Any]]:
        """Return the data of the shards by worker; shards of lost workers move to the workers with the fewest shards."""
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


LOGGER = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"

CONNECT_S = 8.0
"""Seconds that a scheduler may take to answer."""

BATCH_S = 0.25
"""Target duration of a batch of pieces in seconds."""

MAX_PIECES = 256
"""Maximum number of pieces per batch."""

BATCHES_AHEAD = 2
"""Number of batches of short pieces per worker thread, including the running batch."""

MEMORY_TOPIC = "worker-restart-memory"
"""Dask topic of the nannies' events about workers that exceeded their memory."""


def own_security() -> Security | None:
    """Return new certificates, which deny access to other users of this machine; None without the required package."""
    try:
        return Security.temporary()
    except ImportError:
        LOGGER.warning(
            "other users of this machine can use this Dask cluster, because certificates need the package cryptography; "
            "pip install 'mlcluster-optim[dask]'"
        )
        return None


@contextmanager
def dask_cluster(scheduler: str | None = None, num_processes: int = 1) -> Iterator["DaskExecutor"]:
    """Yield an engine on an existing Dask cluster, or on a local cluster that ends with the block.

    Parameters
    ----------
    scheduler
        Address of the cluster's scheduler. None starts a local cluster, which listens only on the loopback address and uses
        temporary certificates, because anyone with access to a scheduler can run arbitrary code on its workers.
    num_processes
        Number of single-threaded workers of a local cluster.

    Raises
    ------
    EngineError
        If no scheduler answers.
    """
    quiet = {"distributed.admin.large-graph-warning-threshold": "1TB"}
    if scheduler is None:
        with (
            dask.config.set(quiet),
            sigint_blocked(),
            OwnCluster(
                n_workers=num_processes, threads_per_worker=1, host=LOOPBACK, dashboard_address=f"{LOOPBACK}:0",
                worker_dashboard_address=f"{LOOPBACK}:0", security=own_security(), silence_logs=logging.CRITICAL,
            ) as cluster,
            Client(cluster) as client,
        ):  # fmt: skip
            yield DaskExecutor(client)
        return
    try:
        client = Client(scheduler, timeout=CONNECT_S, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        raise EngineError(
            f"no Dask scheduler answers at {scheduler!r} ({type(error).__name__}); start one with 'dask scheduler', or "
            "correct --scheduler"
        ) from error
    with client, dask.config.set(quiet):
        yield DaskExecutor(client)


@dataclass(slots=True)
class DaskExecutor:
    """Run pieces on the workers of a Dask cluster."""

    client: Client
    sent_bytes: int = 0
    """Bytes of tasks and shared objects that workers received, over all runs."""

    @property
    def page(self) -> str:
        """Address of Dask's dashboard, if there is one."""
        return str(self.client.dashboard_link)

    def crew(self, post: ShardWorker) -> DaskCrew:
        """Return a crew of the cluster's workers that holds a `ShardWorker`."""
        return DaskCrew(self.client, post)

    def run(
        self, task: AbstractTask[Piece, Result], pieces: Sequence[Piece], stop: Interruption, progress: Progress
    ) -> Iterator[tuple[int, Result]]:
        """Yield each piece's position and result as it finishes.

        Raises
        ------
        EngineError
            If a worker has other versions than this process, or the scheduler is lost.
        """
        progress.start(f"{task.title}, Dask", len(pieces))
        run = _Run(self.client, task, pieces)
        try:
            run.open()
            yield from run.results(stop, progress)
        finally:
            run.close()
            self.sent_bytes += run.sent_bytes
            progress.finish()


@dataclass(slots=True)
class _Batch:
    """Pieces that are submitted together, by position."""

    positions: tuple[int, ...]
    future: Future
    worker: str
    """Worker to which the batch was submitted first."""
    num_outgrown: int | None = None
    """Number of out-of-memory restarts before the batch if it runs alone on the cluster, else None."""


class _Run(Generic[Piece, Result]):
    """One task's pieces on the cluster."""

    def __init__(self, client: Client, task: AbstractTask[Piece, Result], pieces: Sequence[Piece]) -> None:
        self._session, self._task, self._pieces = DaskSession(client), task, pieces
        self._task_part = TaskPart(task)
        self._waiting = deque(range(len(pieces)))
        self._suspects: deque[int] = deque()
        self._batches: dict[str, _Batch] = {}
        self._ended: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._seconds_a_piece: float | None = None
        self._has_stopped = False
        self.sent_bytes = 0

    def open(self) -> None:
        """Register the run on all workers."""
        self._session.open()

    def close(self) -> None:
        """Cancel unfinished work."""
        self._session.close(batch.future for batch in self._batches.values())

    def results(self, stop: Interruption, progress: Progress) -> Iterator[tuple[int, Result]]:
        """Submit batches, and yield positions and results of their pieces."""
        num_done = num_failed = 0
        while True:
            if stop.is_requested and not self._has_stopped:
                self._stop()
            self._hand_out()
            if not self._batches and not (self._waiting or self._suspects):
                return
            for outcome in self._next_outcomes():
                if outcome.error is not None:
                    raise outcome.error
                num_done += 1
                num_failed += self._task.is_failure(outcome.result)
                yield outcome.position, outcome.result
            running = sum(len(batch.positions) for batch in self._batches.values())
            workers = len(self._session.threads())
            progress.update(num_done, {"running": running, "failed": num_failed or None, "workers": workers})

    def _stop(self) -> None:
        """Drop waiting pieces, and ask running pieces to stop."""
        self._has_stopped = True
        self._waiting.clear()
        self._suspects.clear()
        self._session.stop()

    def _hand_out(self) -> None:
        """Submit batches until all threads of all workers have enough work."""
        room = {worker: self._ahead() * threads for worker, threads in self._session.threads().items()}
        for batch in self._batches.values():
            if batch.worker in room:
                room[batch.worker] -= 1
        while self._waiting and room and max(room.values()) > 0:
            worker = max(room, key=room.__getitem__)
            room[worker] -= 1
            self._submit([self._waiting.popleft() for _ in range(self._batch_size())], worker)
        if self._suspects and room and not self._batches:
            self._submit([self._suspects.popleft()], next(iter(room)), is_alone=True)

    def _ahead(self) -> int:
        """Return the number of batches per thread: 1 for long pieces, so that none waits while other threads are idle."""
        return BATCHES_AHEAD if self._seconds_a_piece is not None and self._seconds_a_piece < BATCH_S else 1

    def _batch_size(self) -> int:
        """Return the number of pieces in the next batch; fewer near the end, so that workers finish at about the same time."""
        if self._seconds_a_piece is None:
            return 1
        wanted = int(BATCH_S / max(self._seconds_a_piece, 1e-6))
        fair = -(-len(self._waiting) // (2 * sum(self._session.threads().values())))
        return max(1, min(wanted, fair, MAX_PIECES, len(self._waiting)))

    def _submit(self, positions: Sequence[int], worker: str, *, is_alone: bool = False) -> None:
        """Submit a batch."""
        pack = self._session.packer.pack
        outgrown = self._num_outgrown() if is_alone else None
        task = pack(self._task_part, f"the task {self._task.title!r}")
        parcels = [pack(self._pieces[p], self._task.name(self._pieces[p])) for p in positions]
        needs = dict.fromkeys(digest for parcel in (task, *parcels) for digest in parcel.needs)
        content = pickle.dumps((task, positions, parcels))
        future = self._session.submit(do_batch, content, needs, worker, str(positions[0]))
        self._batches[future.key] = _Batch(tuple(positions), future, worker, outgrown)
        future.add_done_callback(lambda ended: self._ended.put(ended.key))

    def _next_outcomes(self) -> list[Outcome]:
        """Return the outcomes of the next batch that ends, or an empty list if none ends within `POLL_S`."""
        try:
            batch = self._batches.pop(self._ended.get(timeout=POLL_S))
        except queue.Empty:
            self._session.check()
            return []
        try:
            packed, seconds, new_bytes = batch.future.result()
        except KilledWorker:
            return self._give_up(batch)
        except Exception:
            self._session.check(batch.future)
            raise
        self.sent_bytes += new_bytes
        own = seconds / len(batch.positions)
        self._seconds_a_piece = own if self._seconds_a_piece is None else 0.5 * (own + self._seconds_a_piece)
        outcomes: list[Outcome] = pickle.loads(packed)
        return outcomes

    def _give_up(self, batch: _Batch) -> list[Outcome]:
        """Queue the pieces of a batch during which several workers died as suspects; give up a piece that ran alone.

        Dask counts the death of a worker against all its tasks. Therefore each suspect runs alone, at the end.
        """
        if batch.num_outgrown is None:
            self._suspects.extend(() if self._has_stopped else batch.positions)
            return []
        has_outgrown = self._num_outgrown() > batch.num_outgrown
        reason = "it ran out of memory" if has_outgrown else "out of memory, or killed by another process"
        text = f"each worker that ran it died ({reason}); give workers more memory, or omit this piece"
        (position,) = batch.positions
        return [Outcome(position, self._task.lost(self._pieces[position], text))]

    def _num_outgrown(self) -> int:
        """Return the number of restarts of workers that exceeded their memory."""
        return len(self._session.call(self._session.client.get_events, MEMORY_TOPIC) or ())
