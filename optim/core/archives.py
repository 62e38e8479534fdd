"""Archives of plain arrays (.npz): whole or absent, no pickles, within the limits of what is read."""

import io
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optim.core.errors import InvalidProblemError
from optim.core.files import read_bytes, write_bytes
from optim.core.limits import check_limit

Arrays = dict[str, NDArray[Any]]


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
        If the file is no archive of plain arrays, or too large; `what` says what was expected,
        `remedy` how to get one.
    """
    content = read_bytes(path)
    # Whatever isn't an archive would be taken for a pickle, and refused with the advice to load it unsafely.
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
    except Exception as error:  # tokenizers, packers and NumPy see the bytes first, and each has errors of its own
        said = " ".join(str(error).split()) or type(error).__name__
        raise InvalidProblemError(f"{path}: not {what} ({said}); {remedy}") from error


def _require_arrays(names: Sequence[str], arrays: Mapping[str, Any]) -> None:
    """Refuse what comes twice, of which readers keep the last and other tools show the first, and what is no array."""
    wrong = [name for name in names if names.count(name) > 1 or not isinstance(arrays[name], np.ndarray)]
    if wrong:
        raise ValueError(f"{wrong[0][:40]!r} in it is given twice, or no array")
