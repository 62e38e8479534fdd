"""Machines as processes, monitored by heartbeats.

Each machine is one process at the end of a pipe. One thread per pipe receives its machine's messages, so that controller
and machine never wait for each other with full pipes. The storage is in the controller's process. Gradients and
parameters are in shared memory: an anonymous file, which the operating system deletes when the last process that has
opened it ends, even by a crash. Every machine has separate rows; unwritten pages take no memory.

A machine that joins a run computes a gradient before it is ready, so that no clock waits for its compilation. The machines
share compiled functions in JAX's persistent cache: the user's cache, or a folder that is removed when the controller ends.
"""

import contextlib
import mmap
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing import Pipe, forkserver, get_all_start_methods, get_context, parent_process, util
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import DupFd
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from optim.core.errors import InvalidOptionError, NotAllowedError
from optim.execution.processes import sigint_blocked
from optim.training.application import Application, is_on_device
from optim.training.arrays import to_host
from optim.training.machine import Machine
from optim.training.messages import Applied, Compute, Copy, Message, Push, Pushed, Ready, Vector
from optim.training.stages import STORAGE, shard_bounds
from optim.training.transport import Lost

if TYPE_CHECKING:
    from optim.training.stages import ClusterOptions


FLOAT_BYTES, COUNT_BYTES, LINE_BYTES = 4, 8, 64


_ELSEWHERE: Vector = np.empty(0, dtype=np.float32)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """Layout of the rows of shared memory.

    Parameters
    ----------
    ranges
        Start and stop of each shard in a row; a row is a vector of all n parameters.
    num_partitions
        Number of gradients per clock.
    depth
        Maximum number of clocks in progress at a time, plus one.
    max_machines
        Maximum number of machines at a time.
    """

    ranges: tuple[tuple[int, int], ...]
    num_partitions: int
    depth: int
    max_machines: int

    @property
    def num_parameters(self) -> int:
        """Length n of a row."""
        return self.ranges[-1][1]

    @property
    def num_rows(self) -> int:
        """Number of rows of the parameters and of all machines' gradients."""
        return self.depth * (1 + self.max_machines * self.num_partitions)

    @property
    def num_bytes(self) -> int:
        """Length of the memory: one heartbeat counter per machine, then the rows."""
        return self.rows_at + self.num_rows * self.num_parameters * FLOAT_BYTES

    @property
    def rows_at(self) -> int:
        """Offset of the first row, aligned to a cache line."""
        return -(-self.max_machines * COUNT_BYTES // LINE_BYTES) * LINE_BYTES

    def published(self, clock: int) -> int:
        """Return the row of the parameters after a clock: servers write their shards, workers read the full row."""
        return clock % self.depth

    def gradient(self, place: int, partition: int, clock: int) -> int:
        """Return the row to which the machine with number `place` writes a partition's gradient."""
        return self.depth * (1 + place * self.num_partitions) + (clock % self.depth) * self.num_partitions + partition


class WireMessage(NamedTuple):
    """A message in transit; its long vector, if any, is in shared memory at `places`, positions in the sequence of all rows."""

    message: Message
    places: slice | None = None


_VECTORS = {Compute: "parameters", Applied: "parameters", Push: "gradient", Pushed: "gradient"}
"""Field with the long vector, which may be in shared memory, by type of message."""


class SharedMemory:
    """Rows in shared memory that contain the long vectors of messages in transit.

    A server writes parameters into a row once, and workers read them from the row. Values of entire shards (copies, moves)
    and replayed pushes are sent through the pipe: they are rare, and must not change while they are stored.

    Parameters
    ----------
    plan
        Layout of the rows.
    descriptor
        Descriptor of the file of shared memory that another process created; by default a new file is created.

    Attributes
    ----------
    beats
        Shape (max_machines,): heartbeat counter of the machine with each number.

    Raises
    ------
    InvalidOptionError
        If the system can't provide that much shared memory.
    """

    def __init__(self, plan: MemoryPlan, descriptor: Any = None) -> None:
        self.plan = plan
        self.descriptor = -1
        try:
            self.descriptor = os.memfd_create("optim-training") if descriptor is None else descriptor.detach()
            if descriptor is None:
                os.ftruncate(self.descriptor, plan.num_bytes)
            shared = mmap.mmap(self.descriptor, plan.num_bytes)
        except (OSError, OverflowError, ValueError) as error:
            if self.descriptor >= 0:
                os.close(self.descriptor)
            raise InvalidOptionError(
                f"no shared memory of {plan.num_bytes} bytes: {error}; ask for fewer machines or parameters, or a smaller staleness"
            ) from error
        self.beats: NDArray[np.int64] = np.frombuffer(shared, dtype=np.int64, count=plan.max_machines)
        self._rows: Vector = np.frombuffer(shared, dtype=np.float32, offset=plan.rows_at)

    def __reduce__(self) -> tuple[type["SharedMemory"], tuple[MemoryPlan, Any]]:
        """Pickle the plan and the file descriptor for a new process, which maps the same memory."""
        return SharedMemory, (self.plan, DupFd(self.descriptor))

    def to_machine(self, message: Message) -> WireMessage:
        """Return a message of the controller in wire format: its long vector is replaced by positions in shared memory."""
        if isinstance(message, Compute):
            return self._placed(message, self.plan.published(message.read_clock), 0, self.plan.num_parameters)
        if isinstance(message, Push):
            # The gradient is a part of the worker's row, or a replayed copy outside of shared memory.
            start = (message.gradient.ctypes.data - self._rows.ctypes.data) // FLOAT_BYTES
            if 0 <= start < len(self._rows):
                return self._placed(message, 0, start, len(message.gradient))
        return WireMessage(message)

    def from_machine(self, message: Message, place: int) -> WireMessage:
        """Return a machine's message in wire format, after copying its long vector into its row of the shared memory."""
        if isinstance(message, Pushed):
            row = self.plan.gradient(place, message.partition, message.clock)
            travelling, vector = self._placed(message, row, 0, len(message.gradient)), message.gradient
        elif isinstance(message, Applied):
            row, (start, stop) = self.plan.published(message.clock), self.plan.ranges[message.shard]
            travelling, vector = self._placed(message, row, start, stop - start), message.parameters
        elif isinstance(message, Copy):
            parameters, slots = to_host((message.values.parameters, message.values.slots))
            return WireMessage(replace(message, values=message.values._replace(parameters=parameters, slots=slots)))
        else:
            return WireMessage(message)
        self._rows[travelling.places] = to_host(vector)
        return travelling

    def arrived(self, travelling: WireMessage) -> Message:
        """Return a received message in its original form: its long vector is a view of a row in shared memory."""
        message, places = travelling
        return message if places is None else replace(message, **{_VECTORS[type(message)]: self._rows[places]})

    def _placed(self, message: Message, row: int, start: int, length: int) -> WireMessage:
        start += row * self.plan.num_parameters
        return WireMessage(replace(message, **{_VECTORS[type(message)]: _ELSEWHERE}), slice(start, start + length))

    def close(self) -> None:
        """Release the memory once no view of it remains."""
        del self._rows, self.beats
        os.close(self.descriptor)


HEARTBEAT_S = 0.5
"""Seconds between two heartbeats."""


@dataclass(slots=True, kw_only=True)
class Pulse:
    """Heartbeats of a machine, as seen by the monitoring thread.

    Attributes
    ----------
    is_ready
        Whether the machine's first message has arrived. Until then the counter is that of the previous machine of its number.
    count
        Last value of the counter, -1 until the machine is ready.
    silent_s
        Seconds without a heartbeat, or since the machine began to start. The time between two checks always counts as
        one monitoring period, so that a controller that was suspended doesn't consider all machines dead.
    """

    is_ready: bool = False
    count: int = -1
    silent_s: float = 0.0

    def look(self, count: int, period_s: float) -> None:
        """Compare the machine's counter with that of the last check."""
        if self.is_ready and count != self.count:
            self.count, self.silent_s = count, 0.0
        else:
            self.silent_s += period_s


_PRELOADED = ["optim.training.preloaded"]


FOLDER = "OPTIM_FORK_SERVER_FOLDER"
"""Environment variable with the folder of a fork server's socket."""


_READ_AT_IMPORT = (
    "CUDA_", "JAX_", "KMP_", "LD_", "MKL_", "NPY_", "NUMBA_", "NUMPY_", "OMP_", "OPENBLAS_", "PYTHON", "TF_", "XLA_",
)  # fmt: skip
"""Prefixes of environment variables that libraries read at import; a forked process retains their values."""


_BEGUN: dict[int, dict[str, str]] = {}
"""Process numbers of the fork servers that this process started, each with the environment variables that its libraries
read."""


def context_of() -> "SpawnContext | ForkServerContext":
    """Return the context that starts a process: a fork server if its processes equal spawned ones, otherwise spawning.

    The fork server ends with this interpreter. It isn't used if other code started it, or if its libraries were loaded
    with other environment variables. It can't start if the path of the temporary folder is too long for a socket.
    """
    if "forkserver" not in get_all_start_methods() or not _has_server():
        return get_context("spawn")
    return get_context("forkserver")


def _has_server() -> bool:
    """Return whether the fork server can be used; start one in this process's environment if there is none."""
    settings = {name: value for name, value in os.environ.items() if name.startswith(_READ_AT_IMPORT)}
    before = _server_id()
    if before is not None and before not in _BEGUN:
        return False
    forkserver.set_forkserver_preload(_PRELOADED)
    try:
        os.environ[FOLDER] = util.get_temp_dir()
        forkserver.ensure_running()
    except OSError:
        return False
    finally:
        os.environ.pop(FOLDER, None)
    now = _server_id()
    if now is None:
        return False
    if now != before:
        _BEGUN[now] = settings
    return _BEGUN[now] == settings


def _server_id() -> int | None:
    """Return the process id of the interpreter's fork server; None if there is none or it is unknown."""
    return getattr(forkserver._forkserver, "_forkserver_pid", None)


class Environment(dict[str, str]):
    """Environment variables that a process adopts when it unpickles this object, before it unpickles the objects after it."""

    def __reduce__(self) -> tuple[Callable[[dict[str, str]], None], tuple[dict[str, str]]]:
        """Pickle as a call of `_adopt`."""
        return _adopt, (dict(self),)


def _adopt(environment: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)


SHUTDOWN_GRACE_S = 5.0
"""Total time in seconds in which stopped processes may end by themselves; then they are killed."""


_PINNED_VARIABLES = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "JAX_PLATFORMS": "cpu",
}
"""Environment variables of all machines: one thread, since results must be bit-identical for any number of cores; no
GPU, since each server's JAX would take most of its memory."""


_STARTING = threading.Lock()


@dataclass(slots=True, kw_only=True)
class _Child:
    """A machine's process, the controller's end of its pipe, the thread that reads it, and its number in shared memory."""

    process: BaseProcess
    pipe: Connection
    reader: threading.Thread
    place: int
    pulse: Pulse = field(default_factory=Pulse)
    is_stopping: bool = False
    silence: str = ""
    """Reason for killing the machine, if its heartbeats stopped."""


class Processes:
    """Transport to machines that are processes; a context manager, which ends all processes.

    Parameters
    ----------
    application
        Application that the workers compute.
    options
        Options of the controller that will use the transport.
    max_machines
        Maximum number of simultaneous machines.
    """

    def __init__(self, application: Application, options: "ClusterOptions", *, max_machines: int = 64) -> None:
        self._application = application
        plan = MemoryPlan(
            ranges=shard_bounds(application, options.num_shards),
            num_partitions=application.num_partitions,
            depth=options.staleness + 2,
            max_machines=max_machines,
        )
        self._silence_s, self._start_s = options.silence_s, options.start_s
        self._is_closed = threading.Event()
        self._memory = SharedMemory(plan)
        self.machines = {STORAGE: Machine(STORAGE, application)}
        self._last_order: WireMessage | None = None
        self._incoming: queue.SimpleQueue[tuple[str, WireMessage | None]] = queue.SimpleQueue()
        self._children: dict[str, _Child] = {}
        self._watcher = threading.Thread(target=self._kill_silent, daemon=True, name="watch")
        self._watcher.start()

    # -- transport ----------------------------------------------------------------------------------------------------

    def start(self, machine: str) -> None:
        """Start a process for a machine."""
        taken = {child.place for child in self._children.values()}
        place = next((at for at in range(self._memory.plan.max_machines) if at not in taken), None)
        if place is None:
            raise NotAllowedError(f"{self._memory.plan.max_machines} machines exist already; raise max_machines")
        ours, theirs = Pipe()
        with _pinned_env(), sigint_blocked():
            # The environment comes first: modules of applications may read it, and the fork server's environment may be
            # older.
            job = self._application, self._memory, self._last_order
            arguments = (Environment(os.environ), machine, place, *job, theirs)
            try:
                process: BaseProcess = context_of().Process(target=_serve, args=arguments, name=machine, daemon=True)
                process.start()
            except (EOFError, ConnectionError):  # the fork server has just been killed
                process = get_context("spawn").Process(target=_serve, args=arguments, name=machine, daemon=True)
                process.start()
        theirs.close()
        reader = threading.Thread(target=self._listen, args=(machine, ours), daemon=True, name=f"from {machine}")
        self._children[machine] = _Child(process=process, pipe=ours, reader=reader, place=place)
        reader.start()

    def stop(self, machine: str) -> None:
        """Request that a process ends after its pending messages, without waiting for it."""
        if machine in self._children:
            self._children[machine].is_stopping = True
            self._put(machine, None)

    def kill(self, machine: str) -> None:
        """End a process immediately by SIGKILL."""
        if machine in self._children:
            self._children[machine].process.kill()
            self._children[machine].process.join()

    def send(self, machine: str, message: Message) -> None:
        """Send a message; a message to a removed machine is lost."""
        if machine in self.machines:
            for reply in self.machines[machine].handle(message):
                self._incoming.put((machine, WireMessage(reply)))
        elif machine in self._children:
            travelling = self._memory.to_machine(message)
            if isinstance(message, Compute) and is_on_device(self._application):
                self._last_order = travelling
            self._put(machine, travelling)

    def receive(self, wait_s: float | None = None) -> Message | Lost | None:
        """Wait for the next message or the loss of a machine; None if no machine is left, or after `wait_s`."""
        while True:
            if not self._children and self._incoming.empty():
                return None
            try:
                machine, message = self._incoming.get(timeout=wait_s)
            except queue.Empty:
                return None
            if message is not None:
                if isinstance(message.message, Ready):
                    self._children[machine].pulse.is_ready = True
                return self._memory.arrived(message)
            child = self._children[machine]
            reason = self._exit_reason(child)
            self._remove(machine)
            if not child.is_stopping:
                return Lost(machine, reason)

    def _kill_silent(self) -> None:
        """Kill machines without heartbeats, in a separate thread: the controller may wait for such a machine's full pipe.

        `_listen` notices the loss when the pipe closes.
        """
        period_s = min(HEARTBEAT_S, self._silence_s / 4)
        while not self._is_closed.wait(period_s):
            for child in list(self._children.values()):
                child.pulse.look(int(self._memory.beats[child.place]), period_s)
                allowed_s = self._start_s if child.pulse.count < 0 else self._silence_s
                if child.pulse.silent_s > allowed_s and not child.silence:
                    child.silence = f"without a heartbeat for {allowed_s:g} s"
                    child.process.kill()

    def _exit_reason(self, child: _Child) -> str:
        """Return a phrase on why a process ended, as far as this is known."""
        child.process.join(SHUTDOWN_GRACE_S)
        code = child.process.exitcode
        return child.silence or (f"by signal {-code}" if code is not None and code < 0 else f"with exit code {code}")

    def close(self) -> None:
        """End all processes, by force if they do not end themselves, and release the memory."""
        for machine in self._children:
            self.stop(machine)
        until = time.monotonic() + SHUTDOWN_GRACE_S
        for machine, child in list(self._children.items()):
            child.process.join(max(0.0, until - time.monotonic()))
            child.process.kill()
            child.reader.join(SHUTDOWN_GRACE_S)
            self._remove(machine)
        self._is_closed.set()
        self._watcher.join()
        self._memory.close()

    def __enter__(self) -> "Processes":
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def process_ids(self) -> dict[str, int]:
        """Process id of each machine."""
        ids = {name: child.process.pid for name, child in self._children.items()}
        return {name: process_id for name, process_id in ids.items() if process_id is not None}

    # -- internal -----------------------------------------------------------------------------------------------------

    def _put(self, machine: str, message: WireMessage | None) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the reader notices the closed pipe itself
            self._children[machine].pipe.send(message)

    def _listen(self, machine: str, pipe: Connection) -> None:
        """Forward a machine's messages until its pipe closes."""
        while True:
            try:
                message = pipe.recv()
            except (EOFError, OSError):
                self._incoming.put((machine, None))
                return
            self._incoming.put((machine, message))

    def _remove(self, machine: str) -> None:
        """Free the resources of a lost machine."""
        child = self._children.pop(machine)
        child.process.join()
        child.pipe.close()


@contextlib.contextmanager
def _pinned_env() -> Iterator[None]:
    """Set the environment so that processes started in this context compute equal results on any machine.

    Only one thread at a time can be in this context.
    """
    with _STARTING:
        settings = dict(_PINNED_VARIABLES)
        if "JAX_COMPILATION_CACHE_DIR" not in os.environ:  # otherwise the user has a cache
            settings["JAX_COMPILATION_CACHE_DIR"] = os.path.join(util.get_temp_dir(), "compiled")
            settings["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        before = {name: os.environ[name] for name in settings if name in os.environ}
        os.environ.update(settings)
        try:
            yield
        finally:
            for name in settings:
                os.environ.pop(name, None)
            os.environ.update(before)


def _beat(memory: SharedMemory, place: int) -> None:
    """Increment the heartbeat while the controller runs; then exit the process, even during an endless computation."""
    controller = parent_process()
    while controller is None or controller.is_alive():
        memory.beats[place] += 1
        time.sleep(HEARTBEAT_S)
    os._exit(1)


def _serve(
    _environment: None,
    name: str,
    place: int,
    application: Application,
    memory: SharedMemory,
    order: WireMessage | None,
    pipe: Connection,
) -> None:
    """Run a machine until it is stopped or the controller is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the controller handles Ctrl-C
    machine = Machine(name, application)
    memory.beats[place] = 0
    threading.Thread(target=_beat, args=(memory, place), daemon=True, name="heartbeat").start()
    if order is not None:  # compile with JAX while the other machines continue; this gradient is discarded
        Machine(name, application).handle(memory.arrived(order))
    try:
        pipe.send(WireMessage(Ready(machine=name)))
        while (message := pipe.recv()) is not None:
            for reply in machine.handle(memory.arrived(message)):
                pipe.send(memory.from_machine(reply, place))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass  # the controller is gone
