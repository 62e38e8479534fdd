"""A results file: one record a line, appended as it is finished, safe against being killed.

A record is written by a single append and synced to the disk, so that a kill loses at most the
record in flight. A last line that was cut short is dropped when the file is opened again, if whole
records stand before it; a file without any is somebody else's, and is left as it is. A line ends with
the SHA-256 digest of the rest of it: what was changed by hand isn't taken for what was measured. A lock
keeps two runs from writing one file.
"""

import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import msgspec

from optim.benchmarks.record import Record, record_from_json
from optim.core.errors import InvalidOptionError, InvalidProblemError, NotAllowedError
from optim.core.files import cant_be_read, check_folder, read_bytes, write_bytes

SEAL_BEGINS, SEAL_ENDS = b',"sha256":"', b'"}'
SEAL_BYTES = len(SEAL_BEGINS) + 64 + len(SEAL_ENDS)
LINE_BEGINS = b'{"'
"""What a line that was cut short begins with, as all others do."""


class Keyed(Protocol):
    """What a results file holds: a line each, found again by its key."""

    @property
    def key(self) -> str:
        """What it is the result of."""
        ...

    def to_json(self) -> bytes:
        """Return it as one line, without its end."""
        ...


Kept = TypeVar("Kept", bound=Keyed)


class ResultsFile(Generic[Kept]):
    """An open, locked results file.

    Attributes
    ----------
    path
        Where it is.
    records
        The records it holds, by key.
    """

    def __init__(self, path: Path, descriptor: int, records: dict[str, Kept]) -> None:
        self.path = path
        self.records = records
        self._descriptor = descriptor

    def append(self, record: Kept) -> None:
        """Write a record as one line and wait until it is on the disk.

        Raises
        ------
        OSError
            If the disk is full; the file is left as it was before.
        """
        line = seal(record.to_json()) + b"\n"
        before = os.fstat(self._descriptor).st_size
        try:
            written = os.write(self._descriptor, line)
            while written < len(line):  # a full disk takes a part first and refuses the rest
                written += os.write(self._descriptor, line[written:])
            os.fsync(self._descriptor)
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._descriptor, before)
            raise
        self.records[record.key] = record


def open_results(
    path: Path, is_wanted: Callable[[Record], bool] = lambda record: True
) -> AbstractContextManager[ResultsFile[Record]]:
    """Open a file of benchmark records (`open_lines`)."""
    return open_lines(path, record_from_json, is_wanted)


@contextmanager
def open_lines(
    path: Path, read: Callable[[bytes], Kept], is_wanted: Callable[[Kept], bool] = lambda record: True
) -> Iterator[ResultsFile[Kept]]:
    """Open a results file for appending, making it and its folder if there is none.

    Parameters
    ----------
    path
        The file.
    read
        How a line is read.
    is_wanted
        Records for which this is false are taken out of the file: they are to be made anew.

    Raises
    ------
    NotAllowedError
        If another run holds the file.
    InvalidProblemError
        If a whole line of it is no record or was changed, or it isn't empty and has none.
    InvalidOptionError
        If it can't be written.
    """
    if path.exists() and not path.is_file():
        raise InvalidOptionError(f"results file {path} is no regular file; choose another with --results")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        check_folder(path)
        descriptor = _open_locked(path)
    except OSError as error:
        cause = error.strerror or error
        raise InvalidOptionError(
            f"results file {path} can't be written: {cause}; choose another folder with --out"
        ) from error
    try:
        lines, whole_size = _parse(path, _packed_bytes(path), read)
        os.ftruncate(descriptor, whole_size)
        kept = {record.key: (line, record) for line, record in lines if is_wanted(record)}
        if len(kept) < len(lines):
            write_bytes(path, b"".join(line + b"\n" for line, _ in kept.values()))
            os.close(descriptor)
            descriptor = _open_locked(path)
        yield ResultsFile(path, descriptor, {key: record for key, (_, record) in kept.items()})
    finally:
        os.close(descriptor)


def read_records(path: Path) -> list[Record]:
    """Read the records of a results file; a last line that was cut short is left out.

    Raises
    ------
    InvalidProblemError
        If the file can't be read, or a whole line of it is no record, or was changed.
    """
    return [record for _, record in _parse(path, read_bytes(path), record_from_json)[0]]


def read_unsealed(path: Path) -> list[Record]:
    """Read records that needn't be as they were measured: those that others are compared with.

    Raises
    ------
    InvalidProblemError
        If the file can't be read, or a whole line of it is no record.
    """
    return [record for _, record in _parse(path, read_bytes(path), record_from_json, is_sealed=False)[0]]


def seal(line: bytes) -> bytes:
    """Return a line of JSON with the digest of all of it as its last field."""
    return line[:-1] + SEAL_BEGINS + hashlib.sha256(line).hexdigest().encode() + SEAL_ENDS


def _check_sealed(line: bytes) -> None:
    """Raise if a line isn't as it was written."""
    if seal(line[:-SEAL_BYTES] + b"}") != line:
        raise msgspec.ValidationError("it was changed since it was measured, or an older release wrote it")


def _open_locked(path: Path) -> int:
    """Open and lock the file; what was renamed away between the two is opened again."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(descriptor).st_ino == path.stat().st_ino:
                return descriptor
        except BlockingIOError as error:
            os.close(descriptor)
            raise NotAllowedError(
                f"results file {path} is in use by another run; wait for it, or choose another with --results"
            ) from error
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _packed_bytes(path: Path) -> bytes:
    """Return a file as it is, whose size counts where it is cut."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise cant_be_read(path, error) from error


def _parse(
    path: Path, data: bytes, read: Callable[[bytes], Kept], *, is_sealed: bool = True
) -> tuple[list[tuple[bytes, Kept]], int]:
    """Return lines with their records, and the size in bytes of all that is whole."""
    whole_size = data.rfind(b"\n") + 1
    records = []
    for number, line in enumerate(data[:whole_size].split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            records.append((line, read(line)))
            if is_sealed:
                _check_sealed(line)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise InvalidProblemError(
                f"{path}: line {number} is no record of such a run ({error}); "
                "name another results file, or move this one away"
            ) from error
    rest = data[whole_size:]
    if rest and not (records and rest.startswith(LINE_BEGINS[: len(rest)])):
        raise InvalidProblemError(
            f"{path}: its last line is no record of such a run, nor the beginning of one after others; "
            "name another results file, or move this one away"
        )
    return records, whole_size
