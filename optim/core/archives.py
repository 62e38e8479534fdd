"""Archives of plain arrays (.npz): atomic writes, bounded reads, no pickles."""

import io
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optim.core.errors import InvalidProblemError
from optim.core.files import read_bytes, write_bytes
from optim.core.limits import check_limit

Arrays = dict[str, NDArray[Any]]

LARGEST = 1e100
"""Largest number in an archive; squares of larger numbers may overflow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """Requirements on an array of an archive.

    Attributes
    ----------
    shape
        Length of each axis: a number, or a name that stands for the same length in all fields.
    least, most
        Smallest and largest allowed number.
    is_whole
        Whether the numbers must be integers.
    may_lack
        Whether NaN, which stands for a missing value, is allowed.
    """

    shape: tuple[int | str, ...]
    least: float = -LARGEST
    most: float = LARGEST
    is_whole: bool = False
    may_lack: bool = False


def write_arrays(path: str | Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays under their names."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    write_bytes(path, buffer.getvalue())


def read_arrays(path: str | Path, what: str, remedy: str) -> Arrays:
    """Read all arrays of an archive.

    Raises
    ------
    InvalidProblemError
        If the file is not an archive of plain arrays, or too large. The message contains `what`, a description
        of the expected file, and `remedy`.
    """
    content = read_bytes(path)
    # NumPy takes files of other formats for pickles, and its error recommends loading them unsafely.
    if not zipfile.is_zipfile(io.BytesIO(content)):
        cause = "no archive" if content else "the file is empty"
        raise InvalidProblemError(f"{path}: not {what} ({cause}); {remedy}")
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as packed:
            unpacked = sum(entry.file_size for entry in packed.infolist())
        check_limit("document_bytes", unpacked, f"{path}: bytes unpacked")
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
            _require_arrays(archive.files, arrays)
            return arrays
    except InvalidProblemError:
        raise
    except Exception as error:  # parsers, zip and NumPy raise exceptions of many types
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InvalidProblemError(f"{path}: not {what} ({reason}); {remedy}") from error


def check_fields(arrays: Mapping[str, NDArray[Any]], fields: Mapping[str, Field], **sizes: int) -> None:
    """Check that arrays meet their requirements.

    Parameters
    ----------
    arrays
        Arrays by name.
    fields
        Requirements by name; all arrays must be present, and no others.
    sizes
        Known sizes, by their names in the fields' shapes.

    Raises
    ------
    ValueError
        If an array is missing or unknown, or has a wrong shape, dtype or number; the message names it.
    """
    for name in (*fields, *arrays):
        if name not in arrays or name not in fields:
            raise ValueError(f"{name!r} {'is missing' if name in fields else 'is not a field of this format'}")
    known: dict[int | str, int] = {}
    known.update(sizes)
    for name, field in fields.items():
        array = arrays[name]
        if array.ndim == len(field.shape):
            for size, length in zip(field.shape, array.shape, strict=True):
                known.setdefault(size, size if isinstance(size, int) else length)
        expected = tuple(known.get(size, -1) for size in field.shape)
        if array.shape != expected:
            raise ValueError(f"{name!r} must have shape {expected}, got {array.shape}")
        if array.dtype.kind not in ("iu" if field.is_whole else "f"):
            raise ValueError(f"{name!r} must hold {'whole ' * field.is_whole}numbers, got {array.dtype}")
        numbers = np.asarray(array, dtype=np.float64)
        is_wrong = ~((numbers >= field.least) & (numbers <= field.most) | (np.isnan(numbers) & field.may_lack))
        if is_wrong.any():
            value = numbers[is_wrong].flat[0]
            raise ValueError(f"{name!r} must be from {field.least:g} to {field.most:g}, got {value:g}")


def _require_arrays(names: Sequence[str], arrays: Mapping[str, Any]) -> None:
    """Raise ValueError for an entry that is not an array, and for a name that occurs twice: readers keep only the last."""
    wrong = [name for name in names if names.count(name) > 1 or not isinstance(arrays[name], np.ndarray)]
    if wrong:
        raise ValueError(f"its entry {wrong[0][:40]!r} occurs twice, or is not an array")
