"""Several zones from files: availability on one grid of ticks, and what it costs to move a job's state between them."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.core.ranges import check_in
from optim.models.bidding.availability import AvailabilityTrace
from optim.models.bidding.price_history import HOUR_S, MICRO
from optim.models.bidding.zones.market import ZoneJob, ZoneMarket
from optim.workloads.bidding.availability_files import zone_named
from optim.workloads.csv_columns import header_of, read_columns, require

JITTER = 0.02
"""Tick lengths of two zones that differ by less, relatively, are the same."""

ZONE = re.compile(r"(.*\d)-?[a-z]")
"""A zone's name: its region and a letter, as Amazon and Google write them."""

ROUNDING_S = 1e-6
"""Set-ups are rounded up to whole seconds, but for what floating point adds."""


@dataclass(frozen=True, slots=True)
class Link:
    """From one zone or region to another: dollars a GB, and GB a second."""

    usd_per_gb: float
    gb_per_s: float = math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneOptions:
    """What a job is that may run in several zones.

    Parameters
    ----------
    job_hours, deadline_hours
        Work, and time for it; to the second.
    changeover_hours
        Between a launch and the first work, without a transfer; to the second, of any length.
    state_gb
        Size of the state that moves with the job.
    machines
        Launched, lost and paid together.
    probe_s
        Seconds that a probe is charged where it finds machines.
    """

    job_hours: float
    deadline_hours: float
    changeover_hours: float = 0.1
    state_gb: float = 0.0
    machines: int = 1
    probe_s: int = 60

    def __post_init__(self) -> None:
        check_in("(0, 1e6]", self, "job_hours", "deadline_hours")
        check_in("[0, 1e6]", self, "changeover_hours", "state_gb", "probe_s")
        check_in("[1, 1e6]", self, "machines")


@dataclass(frozen=True, kw_only=True)
class Egress:
    """What moving costs, by pairs of zones or regions.

    Parameters
    ----------
    path
        Where it was read, for error texts.
    links
        By (from, to). A pair of zones counts before that of their regions; within a region what isn't named is free and
        takes no time.
    """

    path: str = ""
    links: Mapping[tuple[str, str], Link] = field(default_factory=dict)

    def link(self, market: ZoneMarket, source: int, target: int) -> Link:
        """Return the link from one zone to another.

        Raises
        ------
        InvalidProblemError
            If a policy may need it and nobody says what it costs.
        """
        zones, regions = market.zones, market.regions
        for pair in ((zones[source], zones[target]), (regions[source], regions[target])):
            if pair in self.links:
                return self.links[pair]
        if regions[source] == regions[target]:
            return Link(usd_per_gb=0.0)
        where = f"{self.path}: no row" if self.path else "nobody says what it costs to move"
        raise InvalidProblemError(
            f"{where} from {regions[source]} to {regions[target]}; add one to the file of --egress, or leave a zone out"
        )


def read_egress(path: str | Path) -> Egress:
    """Read what moving costs: columns `from`, `to` (zones or regions), `usd_per_gb`, and `gb_per_s` if it takes time.

    Raises
    ------
    InvalidProblemError
        If the file is bad, or a number is out of its range.
    """
    has_speed = "gb_per_s" in header_of(path)
    columns = read_columns(path, ("usd_per_gb", *["gb_per_s"] * has_speed), ("from", "to"))
    require(path, columns, "usd_per_gb", least=0.0)
    size = len(columns["from"])
    speed = np.full(size, np.inf)
    if has_speed:
        require(path, columns, "gb_per_s", least=1e-6, may_lack=True)
        speed = np.where(np.isnan(columns["gb_per_s"]), np.inf, columns["gb_per_s"])
    rows = zip(columns["from"], columns["to"], columns["usd_per_gb"].tolist(), speed.tolist(), strict=True)
    return Egress(path=str(path), links={(str(a), str(b)): Link(usd, rate) for a, b, usd, rate in rows})


def region_of(zone: str) -> str:
    """Return a zone's region: its name without the letter; of a campaign's series that of its zone."""
    parts = zone.split("/")
    name = parts[1] if len(parts) > 1 else zone
    found = ZONE.fullmatch(name)
    return found.group(1) if found else name


def market_of(traces: Mapping[str, AvailabilityTrace], zones: Sequence[str]) -> ZoneMarket:
    """Put zones on one grid of ticks: that of the first, over the time that all of them cover.

    Raises
    ------
    InvalidOptionError
        If a zone is unknown (the text lists those there are) or named twice, ticks differ in length, or no time is common.
    """
    chosen = [zone_named(traces, zone) for zone in zones]
    if len(set(zones)) < len(zones):
        raise InvalidOptionError(f"zones are named twice: {', '.join(zones)}; name each once")
    lengths = [float(np.median(np.diff(np.append(trace.time_s, trace.end_s)))) for trace in chosen]
    for zone, length in zip(zones, lengths, strict=True):
        if abs(length - lengths[0]) > JITTER * lengths[0]:
            raise InvalidOptionError(
                f"ticks differ in length: {lengths[0]:g} s in {zones[0]}, {length:g} s in {zone}; choose zones of one campaign"
            )
    begin, end = max(int(trace.time_s[0]) for trace in chosen), min(trace.end_s for trace in chosen)
    grid = chosen[0].time_s[(chosen[0].time_s >= begin) & (chosen[0].time_s < end)]
    if not len(grid):
        raise InvalidOptionError(f"{', '.join(zones)} have no time in common; choose zones of one campaign")
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
    """Return a job on a market: work, launches and transfers take whole seconds, of any number.

    Raises
    ------
    InvalidOptionError
        If the deadline can't be met even on demand; the text says what is the least.
    InvalidProblemError
        If nobody says what a move costs that a policy may make.
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
            f"{math.ceil(least / HOUR_S * 1e4) / 1e4:g} h; give that much at least"
        )
    return ZoneJob(work_s=work, deadline_s=deadline, setup_s=setup, move_micro=move, machines=options.machines)
