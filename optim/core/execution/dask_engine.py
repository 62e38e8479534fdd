"""Run pieces on the workers of a Dask cluster, of this machine or of many.

The driver packs pieces and hands out batches of them, so many that a batch takes a quarter of a second: a scheduler costs about a
millisecond a task. A batch whose worker is lost runs elsewhere; a piece that takes several workers with it while no other runs is
given up. What all pieces need is a task of its own, so that a worker fetches it once from another, and it outlives each of them.
"""

import logging
import pickle
import queue
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic

import dask
from distributed import Client, Future, KilledWorker
from distributed.security import Security

from optim.core.errors import EngineError
from optim.core.execution.crews import AbstractPost
from optim.core.execution.dask_crew import DaskCrew
from optim.core.execution.dask_session import DaskSession
from optim.core.execution.dask_worker import Outcome, TaskPart, do_batch
from optim.core.execution.own_cluster import OwnCluster
from optim.core.execution.pieces import AbstractTask, Piece, Result
from optim.core.execution.processes import POLL_S, born_deaf_to_ctrl_c
from optim.core.progress import Progress
from optim.core.stopping import Interruption

LOGGER = logging.getLogger(__name__)
LOOPBACK = "127.0.0.1"
CONNECT_S = 8.0
"""How long a scheduler may take to answer."""

BATCH_S = 0.25
"""How long a batch of pieces should take."""

MOST_PIECES = 256
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
def dask_cluster(scheduler: str | None = None, num_processes: int = 1, *, has_page: bool = False) -> Iterator["InDask"]:
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
            born_deaf_to_ctrl_c(),
            OwnCluster(
                n_workers=num_processes, threads_per_worker=1, host=LOOPBACK, dashboard_address=f"{LOOPBACK}:0",
                worker_dashboard_address=f"{LOOPBACK}:0", security=own_security(), silence_logs=logging.CRITICAL,
            ) as cluster,
            Client(cluster) as client,
        ):  # fmt: skip
            yield InDask(client)
        return
    try:
        client = Client(scheduler, timeout=CONNECT_S, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        raise EngineError(
            f"no Dask scheduler answers at {scheduler!r} ({type(error).__name__}); start one with 'dask scheduler', or "
            "correct --scheduler"
        ) from error
    with client, dask.config.set(quiet):
        yield InDask(client)


@dataclass(slots=True)
class InDask:
    """Run pieces on the workers of a Dask cluster."""

    client: Client
    sent_bytes: int = 0
    """How much of tasks and of what pieces share workers received, over all runs."""

    @property
    def page(self) -> str:
        """Address of Dask's page, where there is one."""
        return str(self.client.dashboard_link)

    def crew(self, post: AbstractPost) -> DaskCrew:
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
        return max(1, min(wanted, fair, MOST_PIECES, len(self._waiting)))

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
