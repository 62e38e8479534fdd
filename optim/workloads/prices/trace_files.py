"""Availability from JSON files, each a recording of one zone, and from folders of files.

A file is ``{"metadata": {"gap_seconds": 600, ...}, "data": [0, 1, ...], "prices": [...]}``, where prices are optional. Two
meanings of `data` are in use. The recordings of SkyPilot's authors count the available machines
(https://github.com/skypilot-org/spot-traces); simulators that read them, and derived benchmarks, write 1 where no
machine was available. The files don't state which meaning they use, so that `read_recording` needs a `Polarity`.
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
"""Suffixes of trace files in a folder."""


class Polarity(StrEnum):
    """Meaning of a 1 in `data`."""

    AVAILABLE = "available"
    UNAVAILABLE = "unavailable"

    @property
    def text(self) -> str:
        """The meaning as a phrase."""
        return "1 = available" if self is Polarity.AVAILABLE else "1 = not available"


def polarity_named(name: str | None) -> Polarity | None:
    """Return the polarity with this name, None for None.

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
    """Content of a JSON file.

    Parameters
    ----------
    zone
        The file's name without suffix.
    time_s
        Beginning of each tick, in seconds since 1970, and the end of the last tick; shape (ticks + 1,).
    is_available
        Whether machines were available in each tick; shape (ticks,).
    price_micro
        Spot price in each tick, in micro-dollars per hour, shape (ticks,); None if the file has no prices.
    """

    zone: str
    time_s: IntArray
    is_available: BoolArray
    price_micro: IntArray | None

    def trace(self, *, on_demand_micro: int, spot_micro: int) -> AvailabilityTrace:
        """Return the recording as a trace with prices (micro-dollars per hour); spot prices of the file take precedence."""
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
    """Read one JSON file of a zone: ``{"metadata": {"gap_seconds": 600, "start_time": ...}, "data": [0, 1, ...], "prices": [...]}``.

    Start and prices are optional.

    Parameters
    ----------
    path
        The file, plain or gzip.
    polarity
        Meaning of a 1 in `data`. With ``available``, entries may count machines: a tick is available if its
        count equals the file's maximum.

    Raises
    ------
    InvalidOptionError
        If `polarity` is None.
    InvalidProblemError
        If the file is too large, has no entry or isn't JSON of this form; if an entry is above 1 although 1 means "not
        available"; or if there are not as many prices as entries.
    """
    told = need_polarity(path, polarity)
    with naming(path):
        document = decode(read_bytes(path), _Document)
        data, prices = np.array(document.data, dtype=np.int64), document.prices
        check_limit("cells", len(data), "ticks")
        if not len(data):
            raise InvalidProblemError("data: has no ticks; give a longer recording")
        if told is Polarity.UNAVAILABLE and data.max() > 1:
            tick = int(np.flatnonzero(data > 1)[0])
            raise InvalidProblemError(
                f"data[{tick}]: is {data[tick]}, but 1 means that there are no machines; counts of machines need "
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
    """Return the polarity, which must not be None.

    Raises
    ------
    InvalidOptionError
        If it is None; the message explains both meanings.
    """
    if polarity is None:
        raise InvalidOptionError(
            f"{path}: the meaning of a 1 in a JSON trace must be given: recordings of SkyPilot's authors count available "
            "machines (--polarity available), simulators and benchmarks write 1 where there are none (--polarity unavailable)"
        )
    return polarity


def stem_of(path: str | Path) -> str:
    """Return a file's name without the suffix of a trace."""
    name = Path(path).name
    for ending in ENDINGS:
        if name.endswith(ending):
            return name.removesuffix(ending)
    return name


def _start_of(start: str | float | None) -> int:
    """Return a recording's start in seconds since 1970; 0 if the start is neither a date nor a number of such seconds."""
    if isinstance(start, str):
        parsed = utc_dates([start])
        return 0 if parsed.isna().to_numpy()[0] else int(parsed.to_numpy(dtype="datetime64[s]").astype(np.int64)[0])
    return int(start) if start is not None and 0 <= start < 2**33 else 0


def files_of(folder: str | Path, *, is_deep: bool = False) -> tuple[Path, ...]:
    """Return the trace files of a folder by suffix, sorted; with `is_deep` also those of its subfolders.

    Raises
    ------
    InvalidProblemError
        If the folder can't be read, has no trace files, or has more than the limit `count` of files.
    """
    root = Path(folder)
    try:
        found: Iterator[Path] = root.rglob("*") if is_deep else root.iterdir()
        paths = sorted(path for path in found if path.name.endswith(ENDINGS) and not path.name.startswith("."))
    except OSError as error:
        raise InvalidProblemError(f"{folder}: can't be read: {error.strerror or error}; check the path") from error
    if not paths:
        raise InvalidProblemError(f"{folder}: has no traces ({', '.join(ENDINGS)}); check the path")
    check_limit("count", len(paths), f"{folder}: files")
    return tuple(paths)


def read_each(paths: Iterable[Path], read: Callable[[Path], Read], *, root: str | Path, skip_bad: bool) -> list[Read]:
    """Read files one by one, and list all unusable ones.

    Parameters
    ----------
    paths, read
        The files, and the function that reads one.
    root
        Folder of the files, for the message.
    skip_bad
        Whether to skip unusable files, with a warning each, if at least one file is usable.

    Raises
    ------
    InvalidProblemError
        If a file is unusable; the message gives every such file with its cause. With `skip_bad`, only if all are unusable.
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
        raise InvalidProblemError(f"{root}: {len(bad)} of {size} traces can't be used ({remedy}): {'; '.join(bad)}")
    for text in bad:
        LOG.warning("left out: %s", text)
    return good
