"""Availability from JSON, a zone and a recording in each file, and from folders of files.

A file is ``{"metadata": {"gap_seconds": 600, ...}, "data": [0, 1, ...], "prices": [...]}``, with prices or without. Two
readings of `data` are in use: the recordings of SkyPilot's authors count the machines that could be had
(https://github.com/skypilot-org/spot-traces); simulators that read them, and benchmarks made of those, write 1 where
there were none. The files don't tell which they are, so that the reader has to be told: `Polarity`.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, TypeVar

import numpy as np
from msgspec import Meta, Struct

from optim.core.arrays import BoolArray, IntArray
from optim.core.documents import decode
from optim.core.errors import InvalidOptionError, InvalidProblemError, check_choices
from optim.core.files import naming, read_bytes
from optim.core.limits import check_limit
from optim.models.bidding.market.lifetimes import AvailabilityTrace
from optim.models.bidding.market.prices import MICRO
from optim.workloads.csv_columns import utc_dates

LOG = logging.getLogger(__name__)

Read = TypeVar("Read")

ENDINGS = (".json", ".json.gz", ".csv", ".csv.gz")
"""Of the files of a folder that are taken for traces."""


class Polarity(StrEnum):
    """What a 1 in `data` says of a tick."""

    AVAILABLE = "available"
    UNAVAILABLE = "unavailable"

    @property
    def text(self) -> str:
        """What is said of it, in a phrase."""
        return "1 = available" if self is Polarity.AVAILABLE else "1 = not available"


def polarity_named(name: str | None) -> Polarity | None:
    """Return the polarity of that name, None for none.

    Raises
    ------
    InvalidOptionError
        If there is no such polarity.
    """
    if name is None:
        return None
    check_choices({"--polarity": name}, {"--polarity": [each.value for each in Polarity]})
    return Polarity(name)


class _Metadata(Struct):
    gap_seconds: Annotated[float, Meta(ge=1, le=1e6)]
    start_time: str | float | None = None


class _Document(Struct):
    metadata: _Metadata
    data: list[Annotated[int, Meta(ge=0, le=1_000_000)]]
    prices: list[Annotated[float, Meta(ge=1 / MICRO, le=1e6)]] | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Recording:
    """What a file of JSON holds.

    Parameters
    ----------
    zone
        The file's name without its ending.
    time_s
        Shape (ticks + 1,): begins of the ticks, seconds since 1970, and the end of the last.
    is_available
        Shape (ticks,).
    price_micro
        Shape (ticks,): spot prices, micro-dollars an hour; None where the file has none.
    """

    zone: str
    time_s: IntArray
    is_available: BoolArray
    price_micro: IntArray | None

    def trace(self, *, on_demand_micro: int, spot_micro: int) -> AvailabilityTrace:
        """Return the trace, at these prices in micro-dollars an hour; the file's own spot prices come before `spot_micro`."""
        return AvailabilityTrace(
            zone=self.zone,
            resource="",
            time_s=self.time_s[:-1],
            is_available=self.is_available,
            price_micro=np.full(len(self.time_s) - 1, spot_micro) if self.price_micro is None else self.price_micro,
            on_demand_micro=on_demand_micro,
            end_s=int(self.time_s[-1]),
        )


def read_recording(path: str | Path, polarity: Polarity | None) -> Recording:
    """Read one file of JSON.

    Parameters
    ----------
    path
        The file, plain or gzip.
    polarity
        What a 1 in `data` says. Where it is ``available``, entries may count machines: a tick then is available if there
        are as many as in the file's fullest tick.

    Raises
    ------
    InvalidOptionError
        If no polarity is given.
    InvalidProblemError
        If the file is bad: no such JSON, empty, too large, an entry above 1 where a 1 says "not available", or another
        number of prices than of entries.
    """
    told = need_polarity(path, polarity)
    with naming(path):
        document = decode(read_bytes(path), _Document)
        data, prices = np.array(document.data, dtype=np.int64), document.prices
        check_limit("cells", len(data), "ticks")
        if not len(data):
            raise InvalidProblemError("data: holds no tick; give a longer recording")
        if told is Polarity.UNAVAILABLE and data.max() > 1:
            tick = int(np.flatnonzero(data > 1)[0])
            raise InvalidProblemError(
                f"data[{tick}]: is {data[tick]}, where 1 says that there are no machines; counts of machines take "
                "--polarity available"
            )
        if prices is not None and len(prices) != len(data):
            raise InvalidProblemError(
                f"prices: has {len(prices)} entries, and data {len(data)}; give a price for every tick"
            )
    begin, gap_s = _start_of(document.metadata.start_time), document.metadata.gap_seconds
    return Recording(
        zone=stem_of(path),
        time_s=begin + np.rint(gap_s * np.arange(len(data) + 1)).astype(np.int64),
        is_available=data == 0 if told is Polarity.UNAVAILABLE else data >= max(1, data.max()),
        price_micro=None if prices is None else np.rint(np.array(prices) * MICRO).astype(np.int64),
    )


def need_polarity(path: str | Path, polarity: Polarity | None) -> Polarity:
    """Return what is given.

    Raises
    ------
    InvalidOptionError
        If nothing is; the text says what is in use.
    """
    if polarity is None:
        raise InvalidOptionError(
            f"{path}: a trace as JSON doesn't say what a 1 means: recordings of SkyPilot's authors count the machines that "
            "are there (--polarity available), simulators and benchmarks write 1 where there are none (--polarity unavailable)"
        )
    return polarity


def stem_of(path: str | Path) -> str:
    """Return a file's name without the ending of a trace."""
    name = Path(path).name
    for ending in ENDINGS:
        if name.endswith(ending):
            return name.removesuffix(ending)
    return name


def _start_of(start: str | float | None) -> int:
    """Return the seconds since 1970 of a recording's start; what is no date leaves the clock at 0, for rows show it and no more."""
    if isinstance(start, str):
        parsed = utc_dates([start])
        return 0 if parsed.isna().to_numpy()[0] else int(parsed.to_numpy(dtype="datetime64[s]").astype(np.int64)[0])
    return int(start) if start is not None and 0 <= start < 2**33 else 0


def files_of(folder: str | Path, *, is_deep: bool = False) -> tuple[Path, ...]:
    """Return the files of a folder that are taken for traces by their endings, sorted; with `is_deep` those of its folders, too.

    Raises
    ------
    InvalidProblemError
        If the folder can't be read, holds none, or more than are read.
    """
    root = Path(folder)
    try:
        found: Iterator[Path] = root.rglob("*") if is_deep else root.iterdir()
        paths = sorted(path for path in found if path.name.endswith(ENDINGS) and not path.name.startswith("."))
    except OSError as error:
        raise InvalidProblemError(f"{folder}: can't be read: {error.strerror or error}; check the path") from error
    if not paths:
        raise InvalidProblemError(f"{folder}: holds no trace ({', '.join(ENDINGS)}); check the path")
    check_limit("count", len(paths), f"{folder}: files")
    return tuple(paths)


def read_each(paths: Iterable[Path], read: Callable[[Path], Read], *, root: str | Path, skip_bad: bool) -> list[Read]:
    """Read files one by one; those that can't be used are all named.

    Parameters
    ----------
    paths, read
        The files, and what reads one.
    root
        The folder that they lie in, for the text.
    skip_bad
        Leave bad files out with a remark each, if one at least can be used.

    Raises
    ------
    InvalidProblemError
        Naming every bad file with its cause; with `skip_bad` only if all are bad.
    """
    good: list[Read] = []
    bad: list[str] = []
    for path in paths:
        try:
            good.append(read(path))
        except (InvalidProblemError, InvalidOptionError) as error:
            text = str(error)
            bad.append(text if text.startswith(f"{path}:") else f"{path}: {text}")
    if bad and not (skip_bad and good):
        size, remedy = len(bad) + len(good), "--skip-bad leaves them out" if good else "none is left"
        raise InvalidProblemError(f"{root}: {len(bad)} of {size} can't be used ({remedy}): {'; '.join(bad)}")
    for text in bad:
        LOG.warning("left out: %s", text)
    return good
