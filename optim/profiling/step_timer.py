"""Timer for the steps of a training loop in any framework.

A loop under `optim profile --command` writes its measurements to that command's folder. Elsewhere it costs two
clock readings per step, and writes a file only if `path` is given.
"""

import atexit
import json
import operator
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from optim.core.errors import InvalidOptionError, check_in
from optim.core.limits import peak_memory

FOLDER_VARIABLE = "OPTIM_PROFILE_FOLDER"
"""Environment variable that names the folder for a profiled script's measurements."""

SCHEMA = "optim/steps/1"

FIRST_STEPS, WRITE_SHARE = 100, 20
"""The file is written after each of the first FIRST_STEPS steps. Later, writing takes at most 1 / WRITE_SHARE of the time."""

NETWORK = Path("/proc/net/dev")


class StepTimer:
    """Times steps; use it as a context around each step, or call it at the end of each step.

    Parameters
    ----------
    model
        Model that is trained: a PyTorch module, a pytree or arrays. It determines the bytes of parameters and gradients.
    samples, batch
        Number of examples in the data, and number of examples per step (of all workers together).
    epochs
        Number of passes of the job over the data; may be fractional.
    path
        File to write; by default a file in the folder of `optim profile --command`.
    clock
        Clock in seconds.

    Raises
    ------
    InvalidOptionError
        If samples or batch aren't integers of at least 1, or epochs aren't above 0.

    Examples
    --------
    >>> timer = StepTimer(model=[1.0, 2.0])
    >>> for _ in range(3):
    ...     with timer:
    ...         pass  # a step
    >>> len(timer.seconds)
    3

    If one script runs workers in sequence that a cluster would run in parallel, time each of them with `alone`. A step then takes
    the time of the slowest worker and of all other work:

    >>> with timer:
    ...     for part in range(2):
    ...         with timer.alone():
    ...             pass  # one worker's gradient
    """

    def __init__(
        self,
        *,
        model: Any = None,
        samples: int | None = None,
        batch: int | None = None,
        epochs: float | None = None,
        path: str | os.PathLike[str] | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.seconds: list[float] = []
        self.alone_s: list[float] = []
        self._facts = {
            "samples": _whole("samples", samples),
            "batch": _whole("batch", batch),
            "epochs": _passes(epochs),
        }
        self._model, self._clock = model, clock
        folder = os.environ.get(FOLDER_VARIABLE)
        default = None if folder is None else Path(folder, f"{os.getpid()}.json")
        self._path = default if path is None else Path(path).absolute()
        self._begun = self._last = clock()
        self._laps: list[float] = []
        self._write_after, self._num_written = self._begun, 0
        if self._path is not None:
            atexit.register(self._write_rest)
        self._started_at, self._processor_s = time.time(), time.process_time()
        self._network = _network_bytes()

    def __enter__(self) -> Self:
        self._last, self._laps = self._clock(), []
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self()

    def __call__(self, result: Any = None) -> None:
        """End a step, after waiting for `result`, such as a loss on a device."""
        _wait(result)
        now = self._clock()
        step, laps = now - self._last, self._laps
        self.seconds.append(step - sum(laps) + max(laps, default=0.0))
        if laps:
            self.alone_s.append(max(laps))
        if self._path is not None and (len(self.seconds) <= FIRST_STEPS or now >= self._write_after):
            self.write()
            self._write_after = now + WRITE_SHARE * (self._clock() - now)
        self._last, self._laps = self._clock(), []  # no step includes the writing

    @contextmanager
    def alone(self, result: Callable[[], Any] | None = None) -> Iterator[None]:
        """Time one worker's part of a step, including the wait for the value of `result`."""
        begun = self._clock()
        yield
        _wait(None if result is None else result())
        self._laps.append(self._clock() - begun)

    def record(self) -> dict[str, Any]:
        """Return the measurements by name, None where unknown."""
        wall = self._clock() - self._begun
        sent = _network_bytes()
        return {
            "schema": SCHEMA,
            "process": os.getpid(),
            "seconds": self.seconds,
            "alone_s": self.alone_s,
            "started_at": self._started_at,
            "model_bytes": sum(_bytes(self._model)),
            "cpu_share": (time.process_time() - self._processor_s) / wall if wall > 0 else None,
            "network_bytes": None if sent is None or self._network is None else sent - self._network,
            "wall_s": wall,
            "host_bytes": peak_memory(),
            **_device(),
            **self._facts,
        }

    def write(self) -> None:
        """Write the measurements atomically, so that the last version remains if the script is killed."""
        if self._path is None:
            return
        part = self._path.with_suffix(f".{os.getpid()}.part")
        part.write_text(json.dumps(self.record()), encoding="utf-8")
        part.replace(self._path)
        self._num_written = len(self.seconds)

    def _write_rest(self) -> None:
        if self._num_written < len(self.seconds):
            self.write()


def _whole(name: str, value: Any) -> int | None:
    """Return a count as Python's int, since the JSON encoder rejects integers of NumPy and PyTorch."""
    if value is None:
        return None
    try:
        number = operator.index(value)
    except TypeError:
        raise InvalidOptionError(f"{name} must be an integer, got {value!r}") from None
    check_in("[1, inf)", {name: number})
    return number


def _passes(epochs: Any) -> float | None:
    """Return the passes over the data as Python's float."""
    if epochs is None:
        return None
    check_in("(0, inf)", {"epochs": float(epochs)})
    return float(epochs)


def _wait(result: Any) -> None:
    """Wait until a device has computed a JAX result, and until PyTorch's queue is empty."""
    for leaf in _leaves(result):
        if hasattr(leaf, "block_until_ready"):
            leaf.block_until_ready()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()


def _leaves(tree: Any) -> Iterator[Any]:
    """Yield the leaves of nested containers."""
    if isinstance(tree, dict):
        tree = tree.values()
    elif not isinstance(tree, list | tuple):
        yield tree
        return
    for part in tree:
        yield from _leaves(part)


def _bytes(model: Any) -> Iterator[int]:
    """Yield the bytes of each array of a model; plain numbers count as single precision."""
    parameters: Callable[[], Iterable[Any]] | None = getattr(model, "parameters", None)
    for leaf in _leaves(list(parameters()) if callable(parameters) else model):
        if hasattr(leaf, "nbytes"):
            yield int(leaf.nbytes)
        elif hasattr(leaf, "element_size"):  # older versions of PyTorch have no nbytes
            yield int(leaf.numel() * leaf.element_size())
        elif isinstance(leaf, int | float):
            yield 4


def _device() -> dict[str, Any]:
    """Return number and name of the used GPUs, peak memory and utilisation, as far as a loaded framework reports them.

    If JAX computes on a CPU, the name is the CPU's, and the number is 0.
    """
    device: dict[str, Any] = {"devices": 0, "device": None, "device_bytes": None, "device_share": None}
    torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        device |= {
            "devices": 1,
            "device": torch.cuda.get_device_name(),
            "device_bytes": int(torch.cuda.max_memory_allocated()),
        }
        with suppress(ImportError, RuntimeError):  # without the driver's library, utilisation is unknown
            device["device_share"] = torch.cuda.utilization() / 100.0
    elif jax is not None:
        found = jax.local_devices()
        device["device"] = found[0].device_kind
        if jax.default_backend() != "cpu":
            memory = [each.memory_stats() or {} for each in found]
            peaks = [stats["peak_bytes_in_use"] for stats in memory if "peak_bytes_in_use" in stats]
            device |= {"devices": len(memory), "device_bytes": max(peaks, default=None)}
    return device


def _network_bytes() -> int | None:
    """Return the bytes sent and received by all links except loopback, None if the system doesn't report them."""
    try:
        lines = NETWORK.read_text(encoding="utf-8").splitlines()[2:]
    except OSError:
        return None
    rows = [(name.strip(), rest.split()) for name, _, rest in (line.partition(":") for line in lines)]
    return sum(int(words[0]) + int(words[8]) for name, words in rows if name != "lo" and len(words) > 8)
