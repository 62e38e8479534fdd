"""Files in and out: reads that end however a file is made, writes that leave a file whole or absent, gzip either way."""

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
"""So many bytes may come out of a gzip file whatever went in."""
PART = ".part"
"""End of the name of a file that is being written."""
LINE_BYTES = 2**12
"""Read at once to find the end of a first line."""
ANYBODY_WRITES = 0o222
"""Bits of a file's mode: an administrator could write without them."""
PATIENCE_S = 5.0
"""How long a named pipe is waited for that nobody has opened for writing."""


@contextmanager
def naming(path: str | Path) -> Iterator[None]:
    """Put a file's name before what is wrong with it; numbers too large for any array are wrong too.

    Raises
    ------
    InvalidProblemError
        In place of one that doesn't name the file, and of what numbers too large or lists too deep end in.
    """
    try:
        yield
    except InvalidProblemError as error:
        text = str(error)
        raise InvalidProblemError(text if text.startswith(f"{path}:") else f"{path}: {text}") from error
    except (OverflowError, MemoryError, RecursionError) as error:
        raise InvalidProblemError(
            f"{path}: a number in it is too large, or lists are nested too deeply ({error}); correct it"
        ) from error


def read_bytes(path: str | Path) -> bytes:
    """Read a file, unpacking it if it is gzip by its first bytes.

    Raises
    ------
    InvalidProblemError
        If the file can't be read, is larger than the limits allow, or is a truncated or damaged gzip file.
    """
    try:
        with Source(path, "document_bytes") as source:
            return source.readall()
    except OSError as error:
        raise cant_be_read(path, error) from error


def is_json(path: str | Path) -> bool:
    """Tell whether a file is JSON by its ending."""
    return Path(path).name.endswith((".json", ".json.gz"))


def cant_be_read(path: str | Path, error: OSError) -> InvalidProblemError:
    """Return what is raised where the system refuses to read."""
    return InvalidProblemError(f"{path}: can't be read: {error.strerror or error}; check the path")


class Source(io.RawIOBase):
    """The bytes of a file, unpacked and counted: more than the limits allow is an error.

    Parameters
    ----------
    path
        The file. A pipe or a device is read whole at once, as far as its limit goes.
    limit
        Name of the limit of its bytes.
    max_line_bytes
        Limit of a line, in text.

    Raises
    ------
    OSError
        If it can't be opened or read.
    InvalidProblemError
        When too much is read, or gzip data is damaged.
    """

    _file: BinaryIO | None = None
    """None until it is open: what the collector closes may never have been."""

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
        """Tell that this can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read some bytes into a buffer; 0 at the end."""
        if self._ahead:
            content, self._ahead = self._ahead[: len(buffer)], self._ahead[len(buffer) :]
        else:
            content = self._next(len(buffer))
        buffer[: len(content)] = content
        return len(content)

    def peek_line(self) -> bytes:
        """Return the first line without its end; it is read again."""
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
        """Return all that comes, up to the limit and one byte; a pipe without a writer is waited for, not for ever."""
        content = bytearray()
        begun = time.monotonic()
        while len(content) <= self._max_bytes:
            try:
                part = os.read(descriptor, min(MIB, self._max_bytes + 1 - len(content)))
            except BlockingIOError:  # somebody has it open and will write
                os.set_blocking(descriptor, True)
                continue
            content += part
            if not part and is_pipe and not content and time.monotonic() - begun < PATIENCE_S:
                time.sleep(0.02)
            elif not part:
                break
        return bytes(content)

    def _next(self, most: int) -> bytes:
        """Return some bytes that nobody has read yet."""
        try:
            content = self._unpacked.read(min(most, self._max_bytes + 1 - self._num_bytes))
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise InvalidProblemError(
                f"{self._path}: gzip data is damaged or truncated ({error}); fetch it again"
            ) from error
        self._count(content)
        return content

    def _count(self, content: bytes) -> None:
        self._num_bytes += len(content)
        if self._num_bytes > self._max_bytes:
            raise self._too_much(f"it has more than {self._max_bytes} bytes", self._limit)
        if self._is_packed and self._file is not None and self._num_bytes > UNSUSPECTED_BYTES:
            packed = max(1, self._file.tell())
            if self._num_bytes > current_limits().expansion * packed:
                raise self._too_much(f"{packed} bytes of gzip data become {self._num_bytes} and more", "expansion")
        if self._max_line_bytes is not None:
            most, begun, end = self._max_line_bytes, content.find(b"\n"), content.rfind(b"\n")
            first = self._line_bytes + (begun if begun >= 0 else len(content))
            # Lines within few bytes can't be too long: their lengths are counted where there are more alone.
            if first > most or (len(content) > most and max(map(len, content.split(b"\n"))) > most):
                raise self._too_much(f"it has a line of more than {most} bytes", "line_bytes")
            self._line_bytes = len(content) - end - 1 if end >= 0 else first

    def _too_much(self, what: str, limit: str) -> InvalidProblemError:
        return InvalidProblemError(f"{self._path}: {what}; {remedy(limit)}")


def prepare_folder(path: str | Path) -> None:
    """Make the folder of `path` if there is none, and check that the path can be written to.

    Raises
    ------
    InvalidProblemError
        If the folder can't be made or written to.
    """
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _cant_be_written(path, f"{error.strerror or error}; check the folder") from error
    check_folder(path)


def check_folder(path: str | Path) -> None:
    """Check that `path` can be written to, before long work is done for it.

    Raises
    ------
    InvalidProblemError
        If its folder doesn't exist or isn't writable, or it is a folder itself, a read-only file, a block device or a socket.
    """
    folder = Path(os.path.realpath(path)).parent
    if Path(path).is_dir():
        raise _cant_be_written(path, "it is a folder; choose another place")
    if _is_written_through(path):
        return
    if not folder.is_dir():
        raise _cant_be_written(path, f"there is no folder {Path(path).parent}; choose another place")
    if not os.access(folder, os.W_OK):
        raise _cant_be_written(path, f"the folder {Path(path).parent} isn't writable; choose another place")
    _check_not_read_only(path)


def write_bytes(path: str | Path, data: bytes) -> None:
    """Write a file under a temporary name and rename it, so that nobody ever sees half of it.

    A name that ends in ``.gz`` is compressed (with no time stamp, so equal data gives equal files). A link keeps
    pointing to what is written, and a file that is there its permissions. A pipe or a character device is written to
    as it is, never replaced by a file.

    Raises
    ------
    InvalidProblemError
        If the folder doesn't exist or isn't writable, or the path is a folder, a read-only file, a block device or a socket.
    """
    path = Path(path)
    if path.suffix == ".gz":
        data = gzip.compress(data, mtime=0)
    if _is_written_through(path):
        _write_through(path, data)
        return
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise _cant_be_written(path, "it is a folder; choose another place")
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
    """Make a temporary file, locked for as long as it is written, so that nobody takes it for one that was left behind."""
    while True:
        descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=PART)
        with suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink:
            return descriptor, temporary
        os.close(descriptor)  # somebody swept it away before it was locked


def _sweep(target: Path) -> None:
    """Remove what was left of a file by processes that were killed while they wrote it."""
    for part_file in target.parent.glob(f"{glob.escape(f'.{target.name}.')}*{PART}"):
        with suppress(OSError):
            descriptor = os.open(part_file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                part_file.unlink()
            finally:
                os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    """Have a new name outlive a loss of power, where the file system can say so."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _check_not_read_only(path: str | Path) -> None:
    """Refuse to replace a file that nobody may write, or not this user: a rename would ask no leave."""
    target = Path(path)
    if target.exists() and not (os.access(target, os.W_OK) and target.stat().st_mode & ANYBODY_WRITES):
        raise _cant_be_written(path, "it is read-only; choose another place, or allow writing to it")


def _permissions(path: Path) -> int:
    """Return who may do what with a file: as it is, or as of any other that is made."""
    try:
        return stat.S_IMODE(os.stat(path).st_mode) & 0o777
    except FileNotFoundError:
        umask = os.umask(0)
        os.umask(umask)
        return 0o666 & ~umask


def _is_written_through(path: str | Path) -> bool:
    """Tell whether a path is a pipe or a character device; other things that aren't files are refused."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    if stat.S_ISBLK(mode) or stat.S_ISSOCK(mode):
        raise _cant_be_written(path, "it is a block device or a socket; choose another place")
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)


def _write_through(path: Path, data: bytes) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:  # a pipe that nobody reads, above all
        raise _cant_be_written(path, f"{error.strerror or error}; start what reads it, or choose a file") from error
    os.set_blocking(descriptor, True)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


def _cant_be_written(path: str | Path, cause: str) -> InvalidProblemError:
    return InvalidProblemError(f"{path}: can't be written: {cause}")
