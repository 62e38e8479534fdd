"""Windows of availability in the format of a public benchmark of deadlines: cut out of recordings, or generated.

A window is a JSON file, ``{"metadata": {"gap_seconds": ...}, "data": [...]}``, where 1 means that no machines are available.
A folder contains the windows of one zone. This package includes neither the benchmark's files nor recordings. This command
cuts windows from a table of recordings, at random ticks as in the benchmark:

    python -m optim_studies.deadline_windows skypilot_spot_traces_2022-2023.csv.gz FOLDER aws-10-26-2022
"""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from optim.core.arrays import BoolArray
from optim.core.documents import encode_line
from optim.core.errors import InvalidOptionError, OptimError
from optim.core.files import prepare_folder, write_bytes
from optim.models.bidding.market.lifetimes import AvailabilityTrace
from optim.simulation.spot.backtest import time_text
from optim.workloads.prices.availability_files import read_availability, resample

ANY_PRICE_MICRO = 1_000_000
"""Arbitrary price, since windows have no prices but traces need them."""

HAZARD_POWER = 0.75
"""Exponent of the decrease of a spell's hazard with age, which makes drawn spells as heavy-tailed as recorded ones."""


def cut_windows(
    traces: Mapping[str, AvailabilityTrace], *, count: int, hours: float, tick_s: int, seed: int
) -> Iterator[tuple[str, str, BoolArray]]:
    """Yield windows of recordings: zone, start, and whether machines are there; shape (ticks,).

    Starts are drawn without replacement from all ticks that leave `hours`; windows of a zone may overlap.

    Parameters
    ----------
    traces
        Recordings by name; the zone of ``campaign/zone/resource/kind`` is called ``zone_resource``.
    count, hours, tick_s
        Number of windows per zone, their length, and the seconds of a tick, to which recordings are resampled.
    seed
        Seed of the starts.

    Raises
    ------
    InvalidOptionError
        If a recording has fewer than `count` starts.
    """
    ticks = -(-round(hours * 3600) // tick_s)
    for zone, trace in traces.items():
        even = resample(trace, tick_s)
        starts = len(even) - ticks + 1
        if starts < count:
            raise InvalidOptionError(
                f"{zone}: has {max(0, starts)} windows of {hours:g} h, but {count} are requested; request fewer"
            )
        parts = zone.split("/")
        name = "_".join(parts[1:3]) if len(parts) > 2 else zone
        rng = np.random.default_rng([seed, *name.encode()])
        for first in sorted(rng.choice(starts, size=count, replace=False).tolist()):
            yield name, time_text(int(even.time_s[first])), even.is_available[first : first + ticks]


def draw_windows(
    zones: int, *, count: int, hours: float, tick_s: int, seed: int
) -> Iterator[tuple[str, str, BoolArray]]:
    """Yield generated windows, in the form of those of `cut_windows`.

    Spells end after k ticks with probability c / k^0.75. Each zone has more available machines than the previous one.
    """
    ticks = -(-round(hours * 3600) // tick_s)
    for zone in range(zones):
        share = (zone + 0.5) / zones
        for number in range(count):
            rng = np.random.default_rng([seed, zone, number])
            flags = np.empty(ticks, dtype=bool)
            tick, is_there = 0, bool(rng.random() < share)
            while tick < ticks:
                hazard = min(1.0, 0.6 * ((1.0 - share) if is_there else share))
                age = 1
                while tick + age < ticks and rng.random() >= hazard / age**HAZARD_POWER:
                    age += 1
                flags[tick : tick + age] = is_there
                tick, is_there = tick + age, not is_there
            yield f"drawn-{zone}", time_text(0), flags


def write_windows(folder: Path, windows: Iterator[tuple[str, str, BoolArray]], tick_s: int) -> int:
    """Write windows as files, with one folder per zone, and return their number.

    Raises
    ------
    InvalidProblemError
        If a file can't be written.
    """
    numbers: dict[str, int] = {}
    for zone, start, is_there in windows:
        number = numbers[zone] = numbers.get(zone, -1) + 1
        target = folder / zone / f"{number:03}.json"
        prepare_folder(target)
        document = {
            "metadata": {"gap_seconds": tick_s, "start_time": start},
            "data": [int(not flag) for flag in is_there.tolist()],
        }
        write_bytes(target, encode_line(document))
    return sum(numbers.values()) + len(numbers)


def main(words: list[str]) -> int:
    """Cut windows out of the availability series of a campaign; return the exit code."""
    if not 2 <= len(words) <= 5:
        sys.stderr.write(
            "usage: python -m optim_studies.deadline_windows RECORDINGS FOLDER [CAMPAIGN [COUNT [SEED]]]\n"
        )
        return 2
    source, folder, campaign, count, seed = (*words, *("", "25", "0")[len(words) - 2 :])
    try:
        found = read_availability(source, on_demand_micro=ANY_PRICE_MICRO)
        chosen = {
            zone: found[zone]
            for zone in found
            if zone.split("/")[0] == (campaign or zone.split("/")[0]) and zone.split("/")[-1] == "availability"
        }
        if not chosen:
            raise InvalidOptionError(f"{source}: has no availability of campaign {campaign!r}; choose another campaign")
        windows = cut_windows(chosen, count=int(count), hours=70.0, tick_s=600, seed=int(seed))
        written = write_windows(Path(folder), windows, 600)
    except (OptimError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(f"{written} windows of {len(chosen)} zones in {folder}: 1 = not available\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
