"""A parameter server of one shard in a separate process that receives pushes through shared memory.

It is the baseline for servers in another process, such as Ray's: the same round of writing pushes, one update by the
other process, and a reply. Run as a program, this module is the server, which ends at the end of its input.
"""

import mmap
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

FloatArray = np.ndarray[Any, np.dtype[np.float32]]

UPDATE, SHOW, DONE = b"u", b"s", b"d"
FLOAT_BYTES = 4
LINE = 16
"""Floats per cache line; JAX copies arrays that don't begin on a cache line."""

MEMORY_FOLDER = Path("/dev/shm")
"""Folder of files in memory, on Linux; other systems use a mapped file in the default temporary folder."""


def _num_bytes(count: int, size: int) -> int:
    """Return the length of the memory: a row for each push, and one for parameters, each beginning on a cache line."""
    return (count + 1) * -(-size // LINE) * LINE * FLOAT_BYTES


def _rows(memory: mmap.mmap, count: int, size: int) -> FloatArray:
    """Return the memory as rows, shape (count + 1, size)."""
    rows: FloatArray = np.frombuffer(memory, dtype=np.float32).reshape(count + 1, -1)[:, :size]
    return rows


class ServerProcess:
    """The server's process and its client.

    Parameters
    ----------
    start
        Shape (n,): parameters to begin with.
    pushes
        Push of each worker, shape (n,) each.
    rate
        Learning rate of gradient descent.
    """

    def __init__(self, start: FloatArray, pushes: list[FloatArray], rate: float) -> None:
        count, size = len(pushes), start.size
        folder = MEMORY_FOLDER if MEMORY_FOLDER.is_dir() else None
        with tempfile.TemporaryFile(dir=folder) as file:
            file.truncate(_num_bytes(count, size))
            self._memory = mmap.mmap(file.fileno(), 0)
            self._rows = _rows(self._memory, count, size)
            self._rows[count] = start
            self._pushes = pushes
            words = [sys.executable, "-P", "-m", __name__, *map(str, (file.fileno(), count, size, rate))]
            self._process = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, pass_fds=(file.fileno(),)
            )
            self._reply()  # the server has mapped the memory

    def update(self) -> None:
        """Write all pushes, and wait until they are applied."""
        for row, push in zip(self._rows, self._pushes, strict=False):
            np.copyto(row, push)
        self._ask(UPDATE)

    def parameters(self) -> FloatArray:
        """Return the server's parameters."""
        self._ask(SHOW)
        shown: FloatArray = self._rows[len(self._pushes)].copy()
        return shown

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def _ask(self, word: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(word)
        self._reply()

    def _reply(self) -> None:
        assert self._process.stdout is not None
        if self._process.stdout.read(1) != DONE:
            raise RuntimeError(f"the server's process has ended with exit code {self._process.wait()}")


def serve(descriptor: int, count: int, size: int, rate: float) -> None:
    """Apply pushes at each request, until the input ends."""
    import jax.numpy as jnp

    from optim.kernels.parameter_server import Sgd, apply_pushes

    with mmap.mmap(descriptor, _num_bytes(count, size)) as memory:
        rows = _rows(memory, count, size)
        parameters = jnp.array(rows[count])
        # Views of the memory: a copy of each push would cost as much as the update.
        pushes = [jnp.from_dlpack(rows[number]) for number in range(count)]
        if pushes[0].unsafe_buffer_pointer() != rows[0].ctypes.data:
            raise RuntimeError("pushes were copied: the memory isn't aligned as JAX requires")
        weights, version, rule = jnp.ones(count), jnp.int32(0), Sgd(learning_rate=rate)
        os.write(1, DONE)
        while word := os.read(0, 1):
            if word == UPDATE:
                parameters, _ = apply_pushes(parameters, (), pushes, weights, version, optimiser=rule)
                parameters.block_until_ready()
            else:
                rows[count] = np.asarray(parameters)
            os.write(1, DONE)
        os._exit(0)  # leaving the context would fail: arrays still use the memory


if __name__ == "__main__":
    serve(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
