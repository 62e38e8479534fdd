"""Files that are whole or absent: atomic writes, transparent gzip."""

import gzip
import os
import tempfile
import zlib
from pathlib import Path

from optim.core.errors import InvalidProblemError


def read_bytes(path: str | Path) -> bytes:
    """Read a file, unpacking it if it is gzip by its first bytes.

    Raises
    ------
    InvalidProblemError
        If the file can't be read, or is a truncated or damaged gzip file.
    """
    path = Path(path)
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise InvalidProblemError(f"{path}: can't be read: {error.strerror or error}; check the path") from error
    if raw[:2] != b"\x1f\x8b":
        return raw
    try:
        return gzip.decompress(raw)
    except (EOFError, OSError, zlib.error) as error:
        raise InvalidProblemError(f"{path}: gzip data is damaged or truncated ({error}); fetch it again") from error


def prepare_folder(path: str | Path) -> None:
    """Make the folder of `path` if there is none, and check that files can be made in it.

    Raises
    ------
    InvalidProblemError
        If the folder can't be made or written to.
    """
    folder = Path(path).parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidProblemError(f"{path}: can't be written: {error.strerror or error}; check the folder") from error
    check_folder(path)


def check_folder(path: str | Path) -> None:
    """Check that `path` can be written to, before long work is done for it.

    Raises
    ------
    InvalidProblemError
        If its folder doesn't exist or isn't writable, or it is a folder itself.
    """
    folder = Path(path).parent
    cause = None
    if not folder.is_dir():
        cause = f"there is no folder {folder}"
    elif not os.access(folder, os.W_OK):
        cause = f"the folder {folder} isn't writable"
    elif Path(path).is_dir():
        cause = "it is a folder"
    if cause is not None:
        raise InvalidProblemError(f"{path}: can't be written: {cause}; choose another place")


def write_bytes(path: str | Path, data: bytes) -> None:
    """Write a file under a temporary name and rename it, so that nobody ever sees half of it.

    A name that ends in ``.gz`` is compressed (with no time stamp, so equal data gives equal files).

    Raises
    ------
    InvalidProblemError
        If the folder doesn't exist or isn't writable.
    """
    path = Path(path)
    if path.suffix == ".gz":
        data = gzip.compress(data, mtime=0)
    try:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise InvalidProblemError(f"{path}: can't be written: {error.strerror or error}; check the folder") from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
