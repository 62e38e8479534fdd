"""Bounded reads and atomic writes of files, with gzip."""

import fcntl
import glob
import gzip
import io
import os
import stat
import tempfile
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

from optim.core.errors import InvalidProblemError
from optim.core.limits import MIB, current_limits, remedy

GZIP_MAGIC = b"\x1f\x8b"
UNSUSPECTED_BYTES = 16 * MIB
"""Uncompressed bytes up to which the expansion of a gzip file is not limited."""
PART = ".part"
"""Suffix of temporary files."""
LINE_BYTES = 2**12
"""Bytes per read when looking for the end of the first line."""
ANYBODY_WRITES = 0o222
"""Write bits of a file's mode; without them a file is read-only, even for root, who could write to it."""
PATIENCE_S = 5.0
"""Seconds to wait for a writer of a named pipe."""


@contextmanager
def naming(path: str | Path) -> Iterator[None]:
    """Prefix errors inside the block with a file's name.

    Raises
    ------
    InvalidProblemError
        For every InvalidProblemError, and for OverflowError, MemoryError and RecursionError.
    """
    try:
        yield
    except InvalidProblemError as error:
        text = str(error)
        raise InvalidProblemError(text if text.startswith(f"{path}:") else f"{path}: {text}") from error
    except (OverflowError, MemoryError, RecursionError) as error:
        raise InvalidProblemError(
            f"{path}: a number is too large, or lists are nested too deeply ({error}); correct the file"
        ) from error


def read_bytes(path: str | Path) -> bytes:
    """Read a file; decompress it if its first bytes are those of gzip.

    Raises
    ------
    InvalidProblemError
        If the file cannot be read, exceeds the limits, or is a truncated or damaged gzip file.
    """
    try:
        with Source(path, "document_bytes") as source:
            return source.readall()
    except OSError as error:
        raise cant_be_read(path, error) from error


def is_json(path: str | Path) -> bool:
    """Return whether a file's name ends in ``.json`` or ``.json.gz``."""
    return Path(path).name.endswith((".json", ".json.gz"))


def cant_be_read(path: str | Path, error: OSError) -> InvalidProblemError:
    """Return the error for a file that the operating system cannot read."""
    return InvalidProblemError(f"{path}: can't be read: {error.strerror or error}; check the path")


class Source(io.RawIOBase):
    """The uncompressed bytes of a file, up to the limits.

    Parameters
    ----------
    path
        The file. A pipe or device is read completely when it is opened.
    limit
        Name of the limit on its size, a field of `ReadLimits`.
    max_line_bytes
        Limit of a line's length, for text.

    Raises
    ------
    OSError
        If the file cannot be opened or read.
    InvalidProblemError
        If a limit is exceeded, or gzip data are damaged.
    """

    _file: BinaryIO | None = None
    """None until the file is open; the garbage collector also closes objects whose opening failed."""

    def __init__(self, path: str | Path, limit: str, max_line_bytes: int | None = None) -> None:
        self._path, self._limit, self._max_line_bytes = path, limit, max_line_bytes
        self._max_bytes: int = getattr(current_limits(), limit)
        self._file = file = self._open()
        head = file.read(2)
        file.seek(0)
        self._is_packed = head == GZIP_MAGIC
        self._unpacked = cast("BinaryIO", gzip.GzipFile(fileobj=file)) if self._is_packed else file
        self._num_bytes = self._line_bytes = 0
        self._ahead = b""

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read bytes into a buffer and return their number, 0 at the end of the file."""
        if self._ahead:
            content, self._ahead = self._ahead[: len(buffer)], self._ahead[len(buffer) :]
        else:
            content = self._next(len(buffer))
        buffer[: len(content)] = content
        return len(content)

    def peek_line(self) -> bytes:
        """Return the first line without its line feed, without consuming it."""
        while b"\n" not in self._ahead and (part := self._next(LINE_BYTES)):
            self._ahead += part
        return self._ahead.split(b"\n", 1)[0]

    def readall(self) -> bytes:
        """Read to the end."""
        content = bytearray()
        while part := self.read(MIB):
            content += part
        return bytes(content)

    def close(self) -> None:
        """Close the file."""
        if not self.closed and self._file is not None:
            self._file.close()
        super().close()

    def _open(self) -> BinaryIO:
        descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode):
            return open(descriptor, "rb")
        self._limit, self._max_bytes = min(
            (self._limit, self._max_bytes), ("pipe_bytes", current_limits().pipe_bytes), key=lambda entry: entry[1]
        )
        try:
            return io.BytesIO(self._drain(descriptor, stat.S_ISFIFO(status.st_mode)))
        finally:
            os.close(descriptor)

    def _drain(self, descriptor: int, is_pipe: bool) -> bytes:
        """Read a pipe or device, at most one byte above the limit; wait up to `PATIENCE_S` for a pipe's writer."""
        content = bytearray()
        begun = time.monotonic()
        while len(content) <= self._max_bytes:
            try:
                part = os.read(descriptor, min(MIB, self._max_bytes + 1 - len(content)))
            except BlockingIOError:  # a writer has opened the pipe
                os.set_blocking(descriptor, True)
                continue
            content += part
            if not part and is_pipe and not content and time.monotonic() - begun < PATIENCE_S:
                time.sleep(0.02)
            elif not part:
                break
        return bytes(content)

    def _next(self, most: int) -> bytes:
        """Return the next bytes, at most `most`."""
        try:
            content = self._unpacked.read(min(most, self._max_bytes + 1 - self._num_bytes))
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise InvalidProblemError(
                f"{self._path}: gzip data are damaged or truncated ({error}); fetch the file again"
            ) from error
        self._count(content)
        return content

    def _count(self, content: bytes) -> None:
        self._num_bytes += len(content)
        if self._num_bytes > self._max_bytes:
            raise self._too_much(f"the file has more than {self._max_bytes} bytes", self._limit)
        if self._is_packed and self._file is not None and self._num_bytes > UNSUSPECTED_BYTES:
            packed = max(1, self._file.tell())
            if self._num_bytes > current_limits().expansion * packed:
                raise self._too_much(f"{packed} bytes of gzip data expand to {self._num_bytes} or more", "expansion")
        if self._max_line_bytes is not None:
            most, begun, end = self._max_line_bytes, content.find(b"\n"), content.rfind(b"\n")
            first = self._line_bytes + (begun if begun >= 0 else len(content))
            # Lines within the block can exceed the limit only if the block does.
            if first > most or (len(content) > most and max(map(len, content.split(b"\n"))) > most):
                raise self._too_much(f"the file has a line of more than {most} bytes", "line_bytes")
            self._line_bytes = len(content) - end - 1 if end >= 0 else first

    def _too_much(self, what: str, limit: str) -> InvalidProblemError:
        return InvalidProblemError(f"{self._path}: {what}; {remedy(limit)}")


def prepare_folder(path: str | Path) -> None:
    """Create the folder of `path` if necessary, and check that the path is writable.

    Raises
    ------
    InvalidProblemError
        If the folder cannot be created or written to.
    """
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _cant_be_written(path, f"{error.strerror or error}; check the folder") from error
    check_folder(path)


def check_folder(path: str | Path) -> None:
    """Check that `path` is writable, before a long computation.

    Raises
    ------
    InvalidProblemError
        If its folder is missing or not writable, or `path` is a folder, a read-only file, a block device or a socket.
    """
    folder = Path(os.path.realpath(path)).parent
    if Path(path).is_dir():
        raise _cant_be_written(path, "it is a folder; choose another path")
    if _is_written_through(path):
        return
    if not folder.is_dir():
        raise _cant_be_written(path, f"there is no folder {Path(path).parent}; choose another path")
    if not os.access(folder, os.W_OK):
        raise _cant_be_written(path, f"the folder {Path(path).parent} is not writable; choose another path")
    _check_not_read_only(path)


def write_bytes(path: str | Path, data: bytes) -> None:
    """Write a file atomically, under a temporary name that is then renamed.

    A file whose name ends in ``.gz`` is compressed without time stamp, so that equal data give equal files. For a
    symbolic link, its target is replaced. An existing file keeps its permissions. Data for a pipe or character device
    are written directly.

    Raises
    ------
    InvalidProblemError
        If the folder is missing or not writable, or the path is a folder, a read-only file, a block device or a socket.
    """
    path = Path(path)
    if path.suffix == ".gz":
        data = gzip.compress(data, mtime=0)
    if _is_written_through(path):
        _write_through(path, data)
        return
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise _cant_be_written(path, "it is a folder; choose another path")
    _check_not_read_only(path)
    _sweep(target)
    try:
        descriptor, temporary = _new_part(target)
    except OSError as error:
        raise _cant_be_written(path, f"{error.strerror or error}; check the folder") from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            os.chmod(temporary, _permissions(target))
            os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)


def _new_part(target: Path) -> tuple[int, str]:
    """Create a temporary file with a lock, which distinguishes it from files of killed processes."""
    while True:
        descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=PART)
        with suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink:
            return descriptor, temporary
        os.close(descriptor)  # another process removed the file before the lock


def _sweep(target: Path) -> None:
    """Remove temporary files of processes that were killed while writing."""
    for part_file in target.parent.glob(f"{glob.escape(f'.{target.name}.')}*{PART}"):
        with suppress(OSError):
            descriptor = os.open(part_file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                part_file.unlink()
            finally:
                os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    """Flush the folder to disk, so that a new name survives a power loss, if the file system supports it."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _check_not_read_only(path: str | Path) -> None:
    """Raise if a file is read-only; a rename would replace it regardless."""
    target = Path(path)
    if target.exists() and not (os.access(target, os.W_OK) and target.stat().st_mode & ANYBODY_WRITES):
        raise _cant_be_written(path, "it is read-only; choose another path, or allow writing to it")


def _permissions(path: Path) -> int:
    """Return the permissions of an existing file, otherwise those that the process gives to new files."""
    try:
        return stat.S_IMODE(os.stat(path).st_mode) & 0o777
    except FileNotFoundError:
        umask = os.umask(0)
        os.umask(umask)
        return 0o666 & ~umask


def _is_written_through(path: str | Path) -> bool:
    """Return whether a path is a pipe or character device; raise for a block device or socket."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    if stat.S_ISBLK(mode) or stat.S_ISSOCK(mode):
        raise _cant_be_written(path, "it is a block device or a socket; choose another path")
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)


def _write_through(path: Path, data: bytes) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:  # mostly a pipe without reader
        raise _cant_be_written(
            path, f"{error.strerror or error}; start the program that reads the pipe first, or choose a file"
        ) from error
    os.set_blocking(descriptor, True)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


def _cant_be_written(path: str | Path, cause: str) -> InvalidProblemError:
    return InvalidProblemError(f"{path}: can't be written: {cause}")
