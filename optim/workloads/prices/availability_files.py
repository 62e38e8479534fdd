"""Availability of zones and lifetimes of machines from files."""

import math
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optim.core.arrays import IntArray
from optim.core.errors import InvalidOptionError, InvalidProblemError, check_in, unknown_name
from optim.core.files import is_json
from optim.core.limits import check_limit
from optim.models.bidding.market.lifetimes import AvailabilityTrace, Lifetimes
from optim.models.bidding.market.prices import HOUR_S, MICRO
from optim.models.bidding.market.spells import SpellHazards, decision_s, fit_traces, prior_hazards
from optim.models.bidding.market.zones import ZoneJob, ZoneMarket
from optim.workloads.csv_columns import groups, header_of, joined, read_columns, refuse, require_columns, require_order
from optim.workloads.prices.price_files import parse_times
from optim.workloads.prices.trace_files import (
    Polarity,
    Recording,
    files_of,
    need_polarity,
    read_each,
    read_recording,
    stem_of,
)


def read_spells(path: str | Path) -> Lifetimes:
    """Read lifetimes from preemption series: a rise is a launch of machines, a fall a loss of the oldest machines.

    The file has the columns `kind`, `campaign`, `zone`, `resource`, `gap_seconds`, `tick` and `value`, as the SkyPilot
    traces do; rows of other kinds are ignored.

    Parameters
    ----------
    path
        The file, plain or gzip. The kinds of the lifetimes are ``campaign/zone/resource``; the clock of each campaign
        begins at midnight.

    Raises
    ------
    InvalidProblemError
        If the file is invalid, out of order, has no preemption series, or more machines at once than the limits allow.
    """
    numbers = ("gap_seconds", "tick", "value")
    columns = read_columns(path, numbers, ("kind", "campaign", "zone", "resource"))
    require_columns(path, columns, *numbers, least=0.0)
    is_series = columns["kind"] == "preemption"
    if not is_series.any():
        raise InvalidProblemError(f"{path}: no row has kind 'preemption'; give a file with preemption series")
    numbered = np.flatnonzero(is_series)
    columns = {name: values[is_series] for name, values in columns.items()}
    check_limit("count", int(columns["value"].max()), f"{path}: machines at once")
    keys = joined(*(columns[name] for name in ("campaign", "zone", "resource")), by="/")
    rows_of = groups(keys)
    kind, start, length, lost = [], [], [], []
    for number, (key, rows) in enumerate(rows_of.items()):
        times = columns["tick"][rows] * columns["gap_seconds"][rows]
        require_order(path, key, numbered[rows], np.rint(times).astype(np.int64), by="tick", is_strict=True)
        end = float(times[-1] + columns["gap_seconds"][rows[0]])
        for begin, until, is_lost in _spells(times.tolist(), columns["value"][rows].tolist(), end):
            kind.append(number)
            start.append(begin)
            length.append(until - begin)
            lost.append(is_lost)
    return Lifetimes(
        kinds=tuple(rows_of),
        kind=np.array(kind, dtype=np.int64),
        start_s=np.array(start),
        length_s=np.array(length),
        is_lost=np.array(lost),
    )


def _spells(times: list[float], values: list[float], end: float) -> list[tuple[float, float, bool]]:
    """Return (begin, end, whether it was lost) of each machine of a series; the first machines begin at the first tick."""
    up: deque[float] = deque()
    found = []
    for time, value in zip(times, values, strict=True):
        while len(up) > value:
            found.append((up.popleft(), time, True))
        while len(up) < int(value):
            up.append(time)
    return found + [(begin, end, False) for begin in up if end > begin]


LIST_PRICES: Mapping[str, int] = MappingProxyType(
    {
        "p2.xlarge": 900_000,
        "p2.8xlarge": 7_200_000,
        "p2.16xlarge": 14_400_000,
        "p3.2xlarge": 3_060_000,
        "p3.8xlarge": 12_240_000,
        "p3.16xlarge": 24_480_000,
        "k80_1": 900_000,
        "v100_1": 3_060_000,
        "v100_8": 24_480_000,
    }
)
"""On-demand micro-dollars per hour in us-east-1 by type; traces without prices call p2.xlarge k80_1, p3.2xlarge v100_1 and
p3.16xlarge v100_8."""

SPOT_PERCENT = 30
"""Spot price in traces without prices, in per cent of on-demand; a usual value for these machines."""

OnDemand = int | Mapping[str, int] | None
"""On-demand micro-dollars per machine-hour: one price for all machines, or a price by type; None to use the file's prices."""


class ZoneTraces(Mapping[str, AvailabilityTrace]):
    """Traces by zone, each built on first access, so that only requested zones need an on-demand price.

    `num_ticks` is the total number of ticks of all traces.
    """

    def __init__(self, builders: Mapping[str, Callable[[], AvailabilityTrace]], num_ticks: int = 0) -> None:
        self._builders, self.num_ticks = dict(builders), num_ticks

    def __getitem__(self, zone: str) -> AvailabilityTrace:
        return self._builders[zone]()

    def __contains__(self, zone: object) -> bool:
        return zone in self._builders

    def __iter__(self) -> Iterator[str]:
        return iter(self._builders)

    def __len__(self) -> int:
        return len(self._builders)

    def builder(self, zone: str) -> Callable[[], AvailabilityTrace]:
        """Return the function that builds a zone's trace."""
        return self._builders[zone]


def read_availability(
    path: str | Path,
    *,
    on_demand_micro: OnDemand = None,
    spot_micro: int | None = None,
    polarity: Polarity | None = None,
    skip_bad: bool = False,
) -> ZoneTraces:
    """Read availability by zone: a table, a JSON recording, or a folder of both.

    The header distinguishes two forms of tables. A table with prices has `tick`, `timestamp_local`, `zone`, `available`
    (0 or 1), `price_usd_per_hour`, and optionally `instance_type` and `on_demand_usd_per_hour`, constant within a zone.
    A table without prices has `kind`, `nodes`, `campaign`, `zone`, `resource`, `gap_seconds`, `tick`, `value` (number
    of instances that were running or obtainable); a tick counts as available if all `nodes` are. In tables 1 means
    "available"; in JSON (`read_recording`), recognised by its suffix, `polarity` gives the meaning. In a folder, all
    such files are read, but not those in its subfolders.

    Parameters
    ----------
    path
        The file, plain or gzip, or the folder.
    on_demand_micro
        On-demand price of a machine in micro-dollars per hour, for all machines or by type (`instance_type` or
        `resource`; for JSON a type in the file's path). By default the file's column is used, or else `LIST_PRICES`.
    spot_micro
        Spot price of all nodes together, for files without prices; by default `SPOT_PERCENT` of the on-demand price.
    polarity
        Meaning of a 1 in JSON recordings.
    skip_bad
        Whether to skip unreadable files of a folder, with a warning each.

    Returns
    -------
    ZoneTraces
        Traces by zone, or by ``campaign/zone/resource/kind`` in files of many campaigns. Access to a zone without a known
        on-demand price raises InvalidProblemError.

    Raises
    ------
    InvalidOptionError
        If a recording is JSON and there is no polarity, or there are only tables and the polarity is `UNAVAILABLE`.
    InvalidProblemError
        If a file is invalid, out of order, or a value is out of range; or two files of a folder have the same zone.
    """
    if Path(path).is_dir():
        files = files_of(path)
        _check_polarity(path, files, polarity)

        def read(file: Path) -> ZoneTraces:
            told = polarity if is_json(file) else None
            return read_availability(file, on_demand_micro=on_demand_micro, spot_micro=spot_micro, polarity=told)

        ticks: list[int] = []

        def read_within(file: Path) -> ZoneTraces:
            traces = read(file)
            ticks.append(traces.num_ticks)
            check_limit("cells", sum(ticks), f"{path}: ticks of all files")
            return traces

        found: dict[str, Callable[[], AvailabilityTrace]] = {}
        for traces in read_each(files, read_within, root=path, skip_bad=skip_bad):
            for zone in traces:
                if zone in found:
                    raise InvalidProblemError(f"{path}: two files have a zone {zone!r}; rename one, or leave one out")
                found[zone] = traces.builder(zone)
        return ZoneTraces(found, sum(ticks))
    _check_polarity(path, (path,), polarity)
    if is_json(path):
        return _recorded(path, read_recording(path, polarity), on_demand_micro, spot_micro)
    header = header_of(path)
    if "available" in header:
        return _with_prices(path, header, on_demand_micro)
    return _without_prices(path, on_demand_micro, spot_micro)


def _check_polarity(path: str | Path, files: Sequence[str | Path], polarity: Polarity | None) -> None:
    """Raise InvalidOptionError if JSON has no polarity, or if `UNAVAILABLE` is given for tables only."""
    if any(map(is_json, files)):
        need_polarity(path, polarity)
    elif polarity is Polarity.UNAVAILABLE:
        raise InvalidOptionError(
            f"{path}: in a table a 1 always means that machines are available; leave --polarity out"
        )


def _recorded(path: str | Path, recording: Recording, given: OnDemand, spot_micro: int | None) -> ZoneTraces:
    """Return the trace of a recording; its path may name the machine type, as in ``us-west-2a_v100_1/7.json``."""
    types = sorted({*LIST_PRICES, *(given if isinstance(given, Mapping) else ())}, key=len)
    kind = next((kind for part in reversed(Path(path).parts) for kind in reversed(types) if kind in part), "")

    def build() -> AvailabilityTrace:
        on_demand = _on_demand(path, recording.zone, kind, given, None)
        spot = on_demand * SPOT_PERCENT // 100 if spot_micro is None else spot_micro
        return recording.trace(on_demand_micro=on_demand, spot_micro=spot)

    return ZoneTraces({recording.zone: build}, len(recording.is_available))


def read_windows(
    folder: str | Path,
    zones: Sequence[str] = (),
    *,
    least_s: int = 0,
    tick_s: int | None = None,
    skip_bad: bool = False,
    **told: Any,
) -> list[tuple[str, ZoneMarket]]:
    """Read every recording below a folder as a separate market, in order of their paths.

    Parameters
    ----------
    folder
        The folder; files may be in its subfolders.
    zones
        If empty, each file is a recording of one zone. Otherwise each folder with a file per zone is one recording.
    least_s
        Minimum length of a recording in seconds.
    tick_s, skip_bad
        See `market_of` and `read_availability`.
    told
        Further arguments of `read_availability`: prices and polarity.

    Returns
    -------
    list
        Path of each recording within the folder, and its market.

    Raises
    ------
    InvalidOptionError, InvalidProblemError
        As `read_availability`; the message names every unusable recording.
    """
    files = files_of(folder, is_deep=True)
    _check_polarity(folder, files, told.get("polarity"))
    paths = files
    if zones:
        held = {path.parent: {stem_of(each) for each in files if each.parent == path.parent} for path in files}
        paths = tuple(parent for parent, names in sorted(held.items()) if names & set(zones))
        if not paths:
            raise InvalidOptionError(f"{folder}: no subfolder has a file of {', '.join(zones)}; check --zone")

    cells: list[int] = []

    def read(path: Path) -> tuple[str, ZoneMarket]:
        given = told | ({} if path.is_dir() or is_json(path) else {"polarity": None})
        traces = read_availability(path, **given)
        if not zones and len(traces) != 1:
            raise InvalidProblemError(f"{path}: has {len(traces)} zones, but each file must have one; split it by zone")
        market = market_of(traces, zones or tuple(traces), tick_s)
        if len(market) * market.tick_s < least_s:
            raise InvalidProblemError(
                f"{path}: {len(market)} ticks of {market.tick_s} s are shorter than the deadline of {least_s / HOUR_S:.4g} h; "
                "give a longer recording"
            )
        cells.append(market.is_available.size)
        check_limit("cells", sum(cells), f"{folder}: ticks of all zones")
        return path.relative_to(folder).as_posix(), market

    return read_each(paths, read, root=folder, skip_bad=skip_bad)


def zone_named(traces: Mapping[str, AvailabilityTrace], zone: str) -> AvailabilityTrace:
    """Return a zone's trace.

    Raises
    ------
    InvalidOptionError
        If there is no such zone; the message lists the zones.
    """
    if zone not in traces:
        raise unknown_name("zone", zone, traces)
    return traces[zone]


def _with_prices(path: str | Path, header: tuple[str, ...], given: OnDemand) -> ZoneTraces:
    has_type, has_price = "instance_type" in header, "on_demand_usd_per_hour" in header
    numbers = ("tick", "available", "price_usd_per_hour", *["on_demand_usd_per_hour"] * has_price)
    columns = read_columns(path, numbers, ("timestamp_local", "zone", *["instance_type"] * has_type))
    require_columns(path, columns, *numbers[2:], least=1.0 / MICRO)
    available = columns["available"]
    refuse(path, "available", (available != 0) & (available != 1), "must be 0 or 1", available)
    times = parse_times(path, "timestamp_local", columns["timestamp_local"])
    price = _micro(columns["price_usd_per_hour"])
    zones = groups(columns["zone"])
    for zone, rows in zones.items():
        for name in ("instance_type",) * has_type + ("on_demand_usd_per_hour",) * has_price:
            _require_one(path, zone, name, columns[name][rows])
        require_order(path, zone, rows, times[rows], by="tick", is_strict=True)

    def build(zone: str, rows: IntArray) -> AvailabilityTrace:
        kind = str(columns["instance_type"][rows[0]]) if has_type else ""
        listed = int(_micro(columns["on_demand_usd_per_hour"][rows[0]])) if has_price else None
        return AvailabilityTrace(
            zone=zone,
            resource=kind,
            time_s=times[rows],
            is_available=available[rows] == 1,
            price_micro=price[rows],
            on_demand_micro=_on_demand(path, zone, kind, given, listed),
            end_s=int(times[rows][-1] + np.median(np.diff(times[rows]))) if len(rows) > 1 else int(times[rows][-1]) + 1,
        )

    return ZoneTraces({zone: partial(build, zone, rows) for zone, rows in zones.items()}, len(times))


def _without_prices(path: str | Path, given: OnDemand, spot_micro: int | None) -> ZoneTraces:
    numbers = ("nodes", "gap_seconds", "tick", "value")
    columns = read_columns(path, numbers, ("kind", "campaign", "zone", "resource"))
    require_columns(path, columns, *numbers, least=0.0)
    keys = joined(*(columns[name] for name in ("campaign", "zone", "resource", "kind")), by="/")
    times = np.rint(columns["tick"] * columns["gap_seconds"]).astype(np.int64)
    zones = groups(keys)
    for key, rows in zones.items():
        require_order(path, key, rows, times[rows], by="tick", is_strict=True)

    def build(key: str, rows: IntArray) -> AvailabilityTrace:
        first = rows[0]
        resource = str(columns["resource"][first])
        on_demand = _on_demand(path, key, resource, given, None) * int(columns["nodes"][first])
        spot = on_demand * SPOT_PERCENT // 100 if spot_micro is None else spot_micro
        return AvailabilityTrace(
            zone=key,
            resource=resource,
            time_s=times[rows],
            is_available=columns["value"][rows] >= columns["nodes"][rows],
            price_micro=np.full(len(rows), spot, dtype=np.int64),
            on_demand_micro=on_demand,
            end_s=int(times[rows[-1]] + columns["gap_seconds"][first]),
        )

    return ZoneTraces({zone: partial(build, zone, rows) for zone, rows in zones.items()}, len(times))


def _on_demand(path: str | Path, zone: str, kind: str, given: OnDemand, listed: int | None) -> int:
    """Return a machine's on-demand price: the given one, else the file's, else the list price."""
    if isinstance(given, int):
        return given
    for price in ((given or {}).get(kind), listed, LIST_PRICES.get(kind)):
        if price is not None:
            return price
    cause = f"machines of type {kind!r} have" if kind else "the file names no type, and has"
    raise InvalidProblemError(
        f"{path}: {zone}: {cause} no on-demand price; give --on-demand with dollars per hour, a type with a list price "
        "(such as p3.2xlarge) or a file of types, or add the column on_demand_usd_per_hour"
    )


def _require_one(path: str | Path, zone: str, name: str, values: NDArray[Any]) -> None:
    """Raise InvalidProblemError if a value differs between a zone's rows."""
    other = np.flatnonzero(values != values[0])
    if len(other):
        raise InvalidProblemError(
            f"{path}: zone {zone} has more than one {name} ({values[0]} and {values[other[0]]}); "
            "give a separate file or zone for each"
        )


def _micro(usd: NDArray[np.float64]) -> IntArray:
    """Return dollars as integer micro-dollars."""
    return np.rint(usd * MICRO).astype(np.int64)


JITTER = 0.02
"""Relative difference below which tick lengths of two zones count as equal."""

ZONE = re.compile(r"(.*\d)-?[a-z]")
"""A zone's name as Amazon and Google write it: the region and a letter."""

ROUNDING_S = 1e-6
"""Tolerance for floating-point errors when set-up times are rounded up to integer seconds."""


@dataclass(frozen=True, slots=True)
class Link:
    """Link from one zone or region to another: dollars per GB, and GB per second."""

    usd_per_gb: float
    gb_per_s: float = math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneOptions:
    """Options of a job that may run in several zones.

    Parameters
    ----------
    job_hours, deadline_hours
        Hours of work, and hours available for it; rounded to seconds.
    changeover_hours
        Hours between a launch and the first work, without a transfer of state; rounded up to seconds.
    state_gb
        Size of the state that moves with the job.
    machines
        Number of machines, which are launched, lost and paid together.
    probe_s
        Seconds of machine time charged for a probe that finds machines.
    tick_s
        Tick length in seconds to resample the traces to; by default the traces' tick length.
    """

    job_hours: float
    deadline_hours: float
    changeover_hours: float = 0.1
    state_gb: float = 0.0
    machines: int = 1
    probe_s: int = 60
    tick_s: int | None = None

    def __post_init__(self) -> None:
        check_in("(0, 1e6]", self, "job_hours", "deadline_hours")
        check_in("[1, 86400]", self, "tick_s")
        check_in("[0, 1e6]", self, "changeover_hours", "state_gb", "probe_s")
        check_in("[1, 1e6]", self, "machines")


@dataclass(frozen=True, kw_only=True)
class Egress:
    """Costs of moving a job's state, by pairs of zones or regions.

    Parameters
    ----------
    path
        Source file, for error messages.
    links
        Links by pair (from, to). A pair of zones takes precedence over the pair of their regions; moves within a region
        without a link are free and take no time.
    """

    path: str = ""
    links: Mapping[tuple[str, str], Link] = field(default_factory=dict)

    def link(self, market: ZoneMarket, source: int, target: int) -> Link:
        """Return the link from one zone to another.

        Raises
        ------
        InvalidProblemError
            If a policy may need the link and its cost is unknown.
        """
        zones, regions = market.zones, market.regions
        for pair in ((zones[source], zones[target]), (regions[source], regions[target])):
            if pair in self.links:
                return self.links[pair]
        if regions[source] == regions[target]:
            return Link(usd_per_gb=0.0)
        where = f"{self.path}: no row" if self.path else "no moving cost is known"
        raise InvalidProblemError(
            f"{where} from {regions[source]} to {regions[target]}; add one to the file of --egress, or leave a zone out"
        )


def read_egress(path: str | Path) -> Egress:
    """Read moving costs: columns `from`, `to` (zones or regions), `usd_per_gb`, and optionally `gb_per_s`.

    Raises
    ------
    InvalidProblemError
        If the file is invalid, or a number is out of its range.
    """
    has_speed = "gb_per_s" in header_of(path)
    columns = read_columns(path, ("usd_per_gb", *["gb_per_s"] * has_speed), ("from", "to"))
    require_columns(path, columns, "usd_per_gb", least=0.0)
    size = len(columns["from"])
    speed = np.full(size, np.inf)
    if has_speed:
        require_columns(path, columns, "gb_per_s", least=1e-6, may_lack=True)
        speed = np.where(np.isnan(columns["gb_per_s"]), np.inf, columns["gb_per_s"])
    rows = zip(columns["from"], columns["to"], columns["usd_per_gb"].tolist(), speed.tolist(), strict=True)
    return Egress(path=str(path), links={(str(a), str(b)): Link(usd, rate) for a, b, usd, rate in rows})


def region_of(zone: str) -> str:
    """Return a zone's region, its name without the letter; for ``campaign/zone/...`` the region of the zone."""
    name = series_zone(zone)
    found = ZONE.fullmatch(name)
    return found.group(1) if found else name


def resample(trace: AvailabilityTrace, tick_s: int) -> AvailabilityTrace:
    """Return a trace with another tick length; a tick is available if all of it was, at the price of its beginning.

    An incomplete last tick is dropped.

    Parameters
    ----------
    trace
        The trace; its ticks may differ in length.
    tick_s
        Tick length in seconds, at least 1.

    Raises
    ------
    InvalidOptionError
        If the trace is shorter than one tick.
    """
    ticks = (trace.end_s - int(trace.time_s[0])) // tick_s
    if ticks < 1:
        raise InvalidOptionError(
            f"{trace.zone}: is shorter than a tick of {tick_s} s; give a longer trace, or shorter ticks"
        )
    check_limit("cells", ticks, f"{trace.zone}: ticks of {tick_s} s")
    begin = int(trace.time_s[0]) + tick_s * np.arange(ticks, dtype=np.int64)
    first = np.searchsorted(trace.time_s, begin, side="right") - 1
    beyond = np.searchsorted(trace.time_s, begin + tick_s, side="left")
    lacking = np.concatenate([[0], np.cumsum(~trace.is_available)])
    return replace(
        trace,
        time_s=begin,
        is_available=lacking[beyond] == lacking[first],
        price_micro=trace.price_micro[first],
        end_s=int(begin[-1]) + tick_s,
    )


def series_zone(name: str) -> str:
    """Return the zone of a series: its name, or the second part of ``campaign/zone/resource/kind``."""
    parts = name.split("/")
    return parts[1] if len(parts) > 1 else name


class SpellHistory:
    """Availability traces from which to learn how spells end, for jobs on any market.

    Traces of a market's zones count only if they end before the market begins, so that the decisions can't use their own
    future. All traces are sampled at the jobs' decision interval, `decision_s`.

    Parameters
    ----------
    traces
        The traces; their prices are ignored.
    """

    def __init__(self, traces: Sequence[AvailabilityTrace]) -> None:
        self.traces = traces
        self._learned: dict[tuple[int, ...], SpellHazards] = {}

    def of(self, begins: tuple[str, ...]) -> "SpellHistory":
        """Return the traces of zones whose names start with one of these prefixes."""
        return SpellHistory([trace for trace in self.traces if trace.zone.startswith(begins)])

    def learn(self, market: ZoneMarket, file: str = "") -> tuple[SpellHazards, tuple[str, ...]]:
        """Return the hazards (the prior's if no spell ends in the traces), and remarks.

        Parameters
        ----------
        market
            Market of the jobs.
        file
            Path of the market's recording, if it is one of several. Zones whose names occur in the path also count as
            zones of the market.
        """
        begin, zones = int(market.time_s[0]), {series_zone(zone) for zone in market.zones}

        def counts(trace: AvailabilityTrace) -> bool:
            zone = series_zone(trace.zone)
            is_named = re.search(rf"(?<![A-Za-z0-9-]){re.escape(zone)}(?![A-Za-z0-9-])", file) is not None
            return trace.end_s <= begin or not (zone in zones or is_named)

        used = [number for number, trace in enumerate(self.traces) if counts(trace)]
        said = []
        if len(used) < len(self.traces):
            left_out = ", ".join(sorted(trace.zone for trace in self.traces if not counts(trace)))
            said.append(
                f"the history of {left_out} is ignored, because it ends after the first possible start of a job there"
            )
        lengths = {
            round(float(np.median(np.diff(trace.time_s))))
            for trace in (self.traces[number] for number in used)
            if len(trace) > 1
        }
        every_s = decision_s(market.tick_s)
        other = sorted(length for length in lengths if abs(length - every_s) > JITTER * every_s)
        if other:
            said.append(
                f"ticks of {', '.join(map(str, other))} s in the history are sampled every {every_s} s, "
                "the jobs' decision interval"
            )
        key = (every_s, *used)
        if key not in self._learned:
            traces = [self.traces[number] for number in used]
            self._learned[key] = fit_traces(traces, every_s) if traces else prior_hazards(every_s)
        return self._learned[key], tuple(said)


def read_history(path: str | Path, *, polarity: Polarity | None = None, skip_bad: bool = False) -> SpellHistory:
    """Read availability traces to learn from: a file, or a folder of files.

    Parameters
    ----------
    path, polarity, skip_bad
        See `read_availability`.

    Raises
    ------
    InvalidOptionError, InvalidProblemError
        As `read_availability`.
    """
    told: dict[str, Any] = {"polarity": polarity, "skip_bad": skip_bad} if Path(path).is_dir() or is_json(path) else {}
    read = read_availability(path, on_demand_micro=MICRO, **told)
    # Preemption series record allocated machines, not whether others were available.
    return SpellHistory([read[name] for name in read if not name.endswith("/preemption")])


def market_of(traces: Mapping[str, AvailabilityTrace], zones: Sequence[str], tick_s: int | None = None) -> ZoneMarket:
    """Return a market of several zones, on the ticks of the first zone, over the time that all traces cover.

    Parameters
    ----------
    traces, zones
        The traces, and the selected zones in order.
    tick_s
        Tick length in seconds, to which the traces are resampled (`resample`); by default the tick length of the
        traces.

    Raises
    ------
    InvalidOptionError
        If a zone is unknown (the message lists all) or named twice, ticks differ in length, or the zones have no time
        in common.
    """
    chosen = [zone_named(traces, zone) for zone in zones]
    if tick_s is not None:
        chosen = [resample(trace, tick_s) for trace in chosen]
    if len(set(zones)) < len(zones):
        raise InvalidOptionError(f"zones are named twice: {', '.join(zones)}; name each once")
    lengths = [float(np.median(np.diff(np.append(trace.time_s, trace.end_s)))) for trace in chosen]
    for zone, length in zip(zones, lengths, strict=True):
        if abs(length - lengths[0]) > JITTER * lengths[0]:
            raise InvalidOptionError(
                f"ticks differ in length: {lengths[0]:g} s in {zones[0]}, {length:g} s in {zone}; "
                "choose zones recorded with the same tick length"
            )
    begin, end = max(int(trace.time_s[0]) for trace in chosen), min(trace.end_s for trace in chosen)
    grid = chosen[0].time_s[(chosen[0].time_s >= begin) & (chosen[0].time_s < end)]
    if not len(grid):
        raise InvalidOptionError(
            f"the traces of {', '.join(zones)} have no time in common; choose zones recorded in the same period"
        )
    rows = [np.searchsorted(trace.time_s, grid, side="right") - 1 for trace in chosen]
    return ZoneMarket(
        zones=tuple(zones),
        regions=tuple(region_of(zone) for zone in zones),
        time_s=grid,
        tick_s=max(1, round(lengths[0])),
        is_available=np.stack([trace.is_available[row] for trace, row in zip(chosen, rows, strict=True)], axis=1),
        spot_micro=np.stack([trace.price_micro[row] for trace, row in zip(chosen, rows, strict=True)], axis=1),
        on_demand_micro=np.array([trace.on_demand_micro for trace in chosen], dtype=np.int64),
    )


def job_of(market: ZoneMarket, options: ZoneOptions, egress: Egress | None = None) -> ZoneJob:
    """Return a job on a market; work, launches and transfers are rounded to integer seconds.

    Raises
    ------
    InvalidOptionError
        If the deadline can't be met even on demand; the message gives the minimum.
    InvalidProblemError
        If the cost of a possible move is unknown.
    """
    size, state = market.num_zones, options.state_gb
    setup_s = np.full((size + 1, size), options.changeover_hours * HOUR_S)
    move = np.zeros((size + 1, size), dtype=np.int64)
    table = egress or Egress()
    for source in range(size) if state else ():
        for target in range(size):
            if source != target:
                link = table.link(market, source, target)
                setup_s[1 + source, target] += state / link.gb_per_s
                move[1 + source, target] = round(state * link.usd_per_gb * MICRO)
    setup = np.ceil(setup_s - ROUNDING_S).astype(np.int64)
    work, deadline = max(1, round(options.job_hours * HOUR_S)), round(options.deadline_hours * HOUR_S)
    least = work + int(setup[0].min())
    if deadline < least:
        raise InvalidOptionError(
            f"a deadline of {options.deadline_hours:g} h can't be met even on demand: launch and work take "
            f"{math.ceil(least / HOUR_S * 1e4) / 1e4:g} h; give at least that"
        )
    return ZoneJob(work_s=work, deadline_s=deadline, setup_s=setup, move_micro=move, machines=options.machines)
