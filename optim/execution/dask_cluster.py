"""The Dask executor: a local cluster, sessions, the workers' side, and crews.

The driver packs pieces and hands out batches of them, so many that a batch takes a quarter of a second: a scheduler costs about a
millisecond a task. A batch whose worker is lost runs elsewhere; a piece that takes several workers with it while no other runs is
given up. What all pieces need is a task of its own, so that a worker fetches it once from another, and it outlives each of them.
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


@dataclass(frozen=True, slots=True)
class TaskPart(Broadcast):
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


class RunStatePlugin(WorkerPlugin):  # type: ignore[misc]  # Dask is not typed for us
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
"""How often the driver asks how many workers there are."""

MAX_TRIES, RETRY_S = 20, 0.2
"""How often workers are told of a run of which one was lost while they were told, and how long the scheduler has to notice."""


class DaskSession:
    """The time in which workers keep a desk for one run.

    Attributes
    ----------
    client
        Dask's own.
    token
        Name of the desk on the workers.
    packer
        Packs what is sent.
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self.token = f"optim-{uuid.uuid4().hex}"
        self.packer = Packer()
        self._parts: dict[str, Future] = {}
        self._threads: Mapping[str, int] = {}
        self._counted_at = float("-inf")

    def open(self) -> None:
        """Have all workers, those that come later too, expect work; refuse those with other versions."""
        for _ in range(MAX_TRIES):
            try:
                self.client.register_plugin(RunStatePlugin(identity()), name=self.token)
            except EngineError:
                raise
            except OSError as error:
                # The scheduler was lost, or a worker was while all were told: others may not have heard.
                self.check()
                lost = error
                time.sleep(RETRY_S)
            except Exception as error:  # a worker may lack anything
                raise self._unfit(error) from error
            else:
                return
        raise self._unfit(lost) from lost

    def close(self, unfinished: Iterable[Future] = ()) -> None:
        """Take back what isn't done, and leave nothing on the workers."""
        with suppress(Exception):  # the scheduler may be gone, and nothing is left to be freed then
            self.client.cancel(list(unfinished), force=True)
            self.client.unregister_worker_plugin(self.token)

    def threads(self) -> Mapping[str, int]:
        """Return how many threads each worker has, by its address; asked anew about once a second."""
        if time.monotonic() - self._counted_at > CENSUS_S:
            self._threads = self.call(self.client.nthreads)
            self._counted_at = time.monotonic()
        return self._threads

    def submit(
        self, function: Callable[..., Any], content: bytes, needs: Iterable[str], worker: str, name: str
    ) -> Future:
        """Have a worker do something that needs packed parts; another one does it if that worker is lost.

        Dask would rather queue work where its parts are than send these on, so it is told who does it.
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
        """Ask what runs to stop; what runs on a worker that is lost meanwhile does."""
        self.call(self.client.run, ask_to_stop, self.token, on_error="ignore")

    def check(self, future: Future | None = None) -> None:
        """Raise if the scheduler is gone.

        Raises
        ------
        EngineError
            Then, or where work was cancelled, which nobody else does.
        """
        if self.client.status != "running" or (future is not None and future.cancelled()):
            raise self._lost()

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call Dask; a scheduler that is gone is one line."""
        try:
            return function(*args, **kwargs)
        except OSError as error:
            raise self._lost() from error

    def _unfit(self, error: Exception) -> EngineError:
        what = " ".join(f"{type(error).__name__}: {error}".split())
        return EngineError(f"a worker can't take part ({what}); install this package and its extras there")

    def _lost(self) -> EngineError:
        address = self.client.scheduler.address if self.client.scheduler else ""
        return EngineError(
            f"the connection to the Dask scheduler {address} is lost; what is finished is kept: start the scheduler anew "
            "and give the same command again"
        )


class DaskCrew:
    """Workers of a Dask cluster that hold a post.

    Parameters
    ----------
    client
        The cluster.
    post
        What is asked; each worker receives it once.
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


LOGGER = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"

CONNECT_S = 8.0
"""How long a scheduler may take to answer."""

BATCH_S = 0.25
"""How long a batch of pieces should take."""

MAX_PIECES = 256
"""Of a batch."""

BATCHES_AHEAD = 2
"""How many batches of short pieces a worker's thread has, the running one included."""

MEMORY_TOPIC = "worker-restart-memory"
"""Where the keepers of workers tell that one outgrew its memory."""


def own_security() -> Security | None:
    """Return new certificates, which no other user of this machine has; None where the package for them is absent."""
    try:
        return Security.temporary()
    except ImportError:
        LOGGER.warning(
            "other users of this machine could use the Dask cluster that is started now, as there are no certificates without "
            "the package cryptography; pip install 'mlcluster-optim[dask]'"
        )
        return None


@contextmanager
def dask_cluster(
    scheduler: str | None = None, num_processes: int = 1, *, has_page: bool = False
) -> Iterator["DaskExecutor"]:
    """Give an engine on an existing Dask cluster, or on one of this machine that ends with the block.

    Parameters
    ----------
    scheduler
        Address of the cluster's scheduler; None starts a cluster here: on the loopback address alone, and with certificates that
        end with it, as whoever reaches a scheduler has its workers run what he likes.
    num_processes
        How many workers of one thread a cluster here has.

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
    """How much of tasks and of what pieces share workers received, over all runs."""

    @property
    def page(self) -> str:
        """Address of Dask's page, where there is one."""
        return str(self.client.dashboard_link)

    def crew(self, post: ShardWorker) -> DaskCrew:
        """Return a crew of the cluster's workers that holds a post."""
        return DaskCrew(self.client, post)

    def run(
        self, task: AbstractTask[Piece, Result], pieces: Sequence[Piece], stop: Interruption, progress: Progress
    ) -> Iterator[tuple[int, Result]]:
        """Yield each piece's position and result as it is finished.

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
    """Pieces that are handed out together, by position."""

    positions: tuple[int, ...]
    future: Future
    worker: str
    """Where it was sent first."""
    num_outgrown: int | None = None
    """How often a worker had outgrown its memory before, where nothing else was on the cluster; None where others were."""


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
        """Have all workers expect the pieces."""
        self._session.open()

    def close(self) -> None:
        """Take back what isn't done."""
        self._session.close(batch.future for batch in self._batches.values())

    def results(self, stop: Interruption, progress: Progress) -> Iterator[tuple[int, Result]]:
        """Hand out batches and yield what comes of their pieces."""
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
        """Hand nothing out any more, take back what no worker has begun, ask what runs to stop."""
        self._has_stopped = True
        self._waiting.clear()
        self._suspects.clear()
        self._session.stop()

    def _hand_out(self) -> None:
        """Keep all threads of all workers busy."""
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
        """Return how many batches a thread has: long pieces don't wait behind one another while others idle."""
        return BATCHES_AHEAD if self._seconds_a_piece is not None and self._seconds_a_piece < BATCH_S else 1

    def _batch_size(self) -> int:
        """Return how many pieces the next batch has; towards the end fewer, so that no worker waits for another's."""
        if self._seconds_a_piece is None:
            return 1
        wanted = int(BATCH_S / max(self._seconds_a_piece, 1e-6))
        fair = -(-len(self._waiting) // (2 * sum(self._session.threads().values())))
        return max(1, min(wanted, fair, MAX_PIECES, len(self._waiting)))

    def _submit(self, positions: Sequence[int], worker: str, *, is_alone: bool = False) -> None:
        """Send a batch on its way."""
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
        """Wait for a batch and return what came of its pieces; nothing where none ends within a moment."""
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
        """Set pieces apart whose batch lost several workers; give one up that did so while nothing else ran.

        Dask blames all that lay on a worker when it was lost. So suspects run at the end, one at a time.
        """
        if batch.num_outgrown is None:
            self._suspects.extend(() if self._has_stopped else batch.positions)
            return []
        has_outgrown = self._num_outgrown() > batch.num_outgrown
        reason = "it ran out of memory" if has_outgrown else "out of memory, or killed by somebody"
        text = f"each worker that ran it was lost ({reason}); give workers more memory, or leave it out"
        (position,) = batch.positions
        return [Outcome(position, self._task.lost(self._pieces[position], text))]

    def _num_outgrown(self) -> int:
        """Return how often the keepers of workers told that one outgrew its memory."""
        return len(self._session.call(self._session.client.get_events, MEMORY_TOPIC) or ())
