"""Times the steps of a training loop, whatever framework it is written in.

A loop under `optim profile --command` writes what it measured where that command looks; anywhere else it costs two
readings of a clock a step, and writes a file only if told where.
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
"""Environment variable that names the folder where a profiled script writes."""

SCHEMA = "optim/steps/1"

FIRST_STEPS, WRITE_SHARE = 100, 20
"""Each of the first steps is written; later ones when the loop has run for so many times what writing took."""

NETWORK = Path("/proc/net/dev")


class StepTimer:
    """Times steps; use it as a context around each, or call it at the end of each.

    Parameters
    ----------
    model
        What is trained: a PyTorch module, a pytree, arrays; for the bytes of parameters and gradients.
    samples, batch
        Examples in the data, and in a step of all workers together.
    epochs
        Passes over the data that the job makes; parts of one count.
    path
        File to write; by default one in the folder that `optim profile --command` gives.
    clock
        Seconds.

    Raises
    ------
    InvalidOptionError
        If samples or batch aren't whole numbers from 1, or epochs aren't above 0.

    Examples
    --------
    >>> timer = StepTimer(model=[1.0, 2.0])
    >>> for _ in range(3):
    ...     with timer:
    ...         pass  # a step
    >>> len(timer.seconds)
    3

    Workers that one script runs one after the other, and a cluster at once, each have their time alone; a step then lasts as
    long as the slowest of them and all else that it does:

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
        """End a step; `result`, such as a loss on a device, is waited for."""
        _wait(result)
        now = self._clock()
        step, laps = now - self._last, self._laps
        self.seconds.append(step - sum(laps) + max(laps, default=0.0))
        if laps:
            self.alone_s.append(max(laps))
        if self._path is not None and (len(self.seconds) <= FIRST_STEPS or now >= self._write_after):
            self.write()
            self._write_after = now + WRITE_SHARE * (self._clock() - now)
        self._last, self._laps = self._clock(), []  # writing belongs to no step

    @contextmanager
    def alone(self, result: Callable[[], Any] | None = None) -> Iterator[None]:
        """Time one worker's part of a step; `result` returns what is to be waited for."""
        begun = self._clock()
        yield
        _wait(None if result is None else result())
        self._laps.append(self._clock() - begun)

    def record(self) -> dict[str, Any]:
        """Return what was measured; None stands for what nobody tells."""
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
        """Write what was measured, whole or not at all; a killed script leaves what it had written before."""
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
    """Return a count as Python's own number: those of NumPy and PyTorch are none to JSON."""
    if value is None:
        return None
    try:
        number = operator.index(value)
    except TypeError:
        raise InvalidOptionError(f"{name} must be a whole number, got {value!r}") from None
    check_in("[1, inf)", {name: number})
    return number


def _passes(epochs: Any) -> float | None:
    """Return the passes over the data as Python's own number."""
    if epochs is None:
        return None
    check_in("(0, inf)", {"epochs": float(epochs)})
    return float(epochs)


def _wait(result: Any) -> None:
    """Wait for what a device computes: a result that can be waited for, or PyTorch's queue."""
    for leaf in _leaves(result):
        if hasattr(leaf, "block_until_ready"):
            leaf.block_until_ready()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()


def _leaves(tree: Any) -> Iterator[Any]:
    """Yield what a nest of containers holds."""
    if isinstance(tree, dict):
        tree = tree.values()
    elif not isinstance(tree, list | tuple):
        yield tree
        return
    for part in tree:
        yield from _leaves(part)


def _bytes(model: Any) -> Iterator[int]:
    """Yield the bytes of each array of a model; of plain numbers, those of single precision."""
    parameters: Callable[[], Iterable[Any]] | None = getattr(model, "parameters", None)
    for leaf in _leaves(list(parameters()) if callable(parameters) else model):
        if hasattr(leaf, "nbytes"):
            yield int(leaf.nbytes)
        elif hasattr(leaf, "element_size"):  # PyTorch before it had nbytes
            yield int(leaf.numel() * leaf.element_size())
        elif isinstance(leaf, int | float):
            yield 4


def _device() -> dict[str, Any]:
    """Return the GPUs used, their name, peak memory and the share of time that they work, as far as a loaded framework tells.

    A CPU that JAX computes on is named, and not counted.
    """
    device: dict[str, Any] = {"devices": 0, "device": None, "device_bytes": None, "device_share": None}
    torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        device |= {
            "devices": 1,
            "device": torch.cuda.get_device_name(),
            "device_bytes": int(torch.cuda.max_memory_allocated()),
        }
        with suppress(ImportError, RuntimeError):  # without the driver's own library nobody tells
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
    """Return the bytes sent and received by all links but the machine's own, None where the system doesn't tell."""
    try:
        lines = NETWORK.read_text(encoding="utf-8").splitlines()[2:]
    except OSError:
        return None
    rows = [(name.strip(), rest.split()) for name, _, rest in (line.partition(":") for line in lines)]
    return sum(int(words[0]) + int(words[8]) for name, words in rows if name != "lo" and len(words) > 8)
