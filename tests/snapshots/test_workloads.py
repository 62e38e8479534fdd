"""Seeds give constant draws; readers' messages for small tables with a changed cell, a missing column, or another order."""

import json
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from optim.models.admission.problem import PROBLEM as ADMISSION
from optim.models.auction.problem import PROBLEM as AUCTION
from optim.models.bidding.problem import PROBLEM as BIDDING
from optim.workloads.admission import generator as admission
from optim.workloads.admission.traces import TraceOptions, read_trace
from optim.workloads.auction import generator as auction
from optim.workloads.bidding import generator as bidding
from optim.workloads.cluster.generator import PhillyOptions, draw_jobs
from optim.workloads.cluster.themis_apps import ThemisOptions, draw_apps
from optim.workloads.containers import ContainerOptions, generate_containers
from optim.workloads.prices.availability_files import read_availability, read_egress, read_spells
from optim.workloads.prices.price_files import read_on_demand, read_prices, read_rates
from optim.workloads.prices.price_generator import PriceOptions, generate_prices
from optim.workloads.profiles import profiled_instance, published_profiles
from optim.workloads.traces.formats import read_jobs
from optim.workloads.traces.job_table import ReadOptions
from optim.workloads.traces.summaries import (
    read_quotas,
    read_samples,
)
from tests.support.snapshots import answer, assert_snapshot, line
from tests.support.trace_files import GAVEL, MERGED, PODS, POLLUX, alibaba_file, gavel_file, philly_file, pod

Figures = tuple[int, float, float]


def numbers_of(value: Any) -> Iterable[float]:
    """Return all numbers in a value read from JSON, in order."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from numbers_of(one)
    elif isinstance(value, int | float):
        yield float(value)


def figures_of_document(data: bytes) -> Figures:
    """Return the figures of all numbers in a JSON document."""
    return figures_of(np.array(list(numbers_of(json.loads(data)))))


def figures_of(*arrays: Any) -> Figures:
    """Return how many numbers there are, their mean, and their mean weighted by place: 1, 2, ... modulo 97."""
    values = np.concatenate([np.ravel(np.asarray(array, dtype=np.float64)) for array in arrays])
    values = np.where(np.isfinite(values), values, -7.0)
    return len(values), float(values.mean()), float((values * (1 + np.arange(len(values)) % 97)).mean())


def jobs(seed: int, **options: Any) -> Figures:
    sizes: dict[str, Any] = {"num_jobs": 30, "num_slots": 24, "num_worker_servers": 6, "num_ps_servers": 5}
    drawn = admission.generate(admission.GeneratorOptions(**sizes, **options), seed)
    return figures_of_document(ADMISSION.write_instance(drawn))


def apps(seed: int, **options: Any) -> Figures:
    sizes = {"num_apps": 20, "num_gpus": 90, "num_machines": 18}
    drawn = auction.generate(auction.GeneratorOptions(**{**sizes, **options}), seed)
    return figures_of_document(AUCTION.write_instance(drawn))


def bids(seed: int, **options: Any) -> Figures:
    drawn = bidding.generate(bidding.GeneratorOptions(num_types=2, num_zones=2, days=4, **options), seed)
    return figures_of_document(BIDDING.write_instance(drawn))


def prices(seed: int, **options: Any) -> Figures:
    history = generate_prices(PriceOptions(days=4, **options), seed)
    return figures_of(*(array for path in history.paths for array in (path.time_s - 1.42e9, path.price_micro)))


def series(seed: int, **options: Any) -> Figures:
    drawn = generate_containers(ContainerOptions(num_containers=5, **options), seed)
    return figures_of(drawn.values, drawn.lengths, drawn.time_s, drawn.phase, drawn.limit)


def cluster_jobs(jobs: int, seed: int) -> Figures:
    drawn = draw_jobs(PhillyOptions(jobs=jobs), seed)
    return figures_of(drawn.submit_s, drawn.duration_s, drawn.workers)


def cluster_apps(apps: int, seed: int) -> Figures:
    drawn = draw_apps(ThemisOptions(apps=apps), seed)
    return figures_of(drawn.submit_us / 1e6, drawn.duration_us / 1e6, drawn.gpus, drawn.app)


def profiled(problem: str, options: Any, seed: int) -> Figures:
    drawn = profiled_instance(problem, published_profiles(), options, seed)
    written = {"admission": ADMISSION, "auction": AUCTION, "bidding": BIDDING}[problem].write_instance(drawn)
    return figures_of_document(written)


def sampled(kind: str, **options: Any) -> Figures:
    """Sample a made-up list of jobs whose sizes, times and demands all differ."""
    rng = np.random.default_rng(5)
    with tempfile.TemporaryDirectory() as folder:
        if kind == "philly":
            rows = [
                (i, int(rng.integers(90_000)), int(rng.integers(1, 9)), int(rng.integers(1, 30_000)), "")
                for i in range(80)
            ]
            path = philly_file(Path(folder), rows)
        else:
            times = rng.integers(0, 40_000, (60, 3)).cumsum(axis=1).tolist()
            pods = [
                pod(f"p{i}", int(rng.integers(1, 4)), 1000 if i % 3 else 300, (times[i][0], times[i][2], times[i][1]))
                for i in range(60)
            ]
            nodes = [
                (f"n{i}", 1000 * c, 4096 * c, g, "G2" if g > 3 else "T4")
                for i, (c, g) in enumerate(
                    [(96, 8), (64, 2), (48, 4), (32, 1), (96, 8), (64, 2), (20, 1)] * 2
                    + [(32, 0), (1, 0), (48, 0), (8, 0)] * 3
                )
            ]
            path = alibaba_file(Path(folder), pods, nodes)
        instance, summary = read_trace(path, kind, TraceOptions(num_jobs=40, **options), 3)
    counts = (summary.window_submissions, summary.schedulable_jobs, summary.gpu_slots, summary.cluster_gpu_slots)
    size, mean, weighted = figures_of_document(ADMISSION.write_instance(instance))
    return size, mean + sum(counts), weighted


SMALL_JOBS = admission.GeneratorOptions(num_jobs=15, num_slots=24, num_worker_servers=6, num_ps_servers=6)
SMALL_APPS = auction.GeneratorOptions(num_apps=8, num_gpus=32, num_machines=8)
SMALL_BIDS = bidding.GeneratorOptions(num_types=1, num_zones=2, days=3)

DRAWN: dict[str, Callable[[], Figures]] = {
    "jobs": lambda: jobs(1),
    "jobs on shared servers": lambda: jobs(
        3, shared_servers=True, arrival_burstiness=0.0, chunks=(2, 9), min_utility=0.2
    ),
    "apps": lambda: apps(1, allocated_share=0.3),
    "apps of any gang": lambda: apps(2, gangs="any", sizes="dividing", widest="machine", slots_per_machine=2),
    "apps with named bids": lambda: apps(3, bids="named", num_machines=9, contention=0.5, horizon="lease"),
    "bids": lambda: bids(1),
    "bids by scenarios": lambda: bids(2, windows=7, slots=12, one_bid_per_market=True),
    "prices": lambda: prices(1),
    "prices of few markets": lambda: prices(2, num_types=2, num_zones=1, spikes_per_day=20.0, correlation=0.6),
    "series": lambda: series(1),
    "irregular series": lambda: series(2, jitter=0.3, missing=0.1, drift=0.4, has_network=True),
    "profiled jobs": lambda: profiled("admission", SMALL_JOBS, 4),
    "profiled apps": lambda: profiled("auction", SMALL_APPS, 4),
    "profiled bids": lambda: profiled("bidding", SMALL_BIDS, 4),
    "jobs like Philly's": lambda: cluster_jobs(30, 3),
    "apps like Themis'": lambda: cluster_apps(8, 3),
    "philly": lambda: sampled("philly"),
    "philly in a window": lambda: sampled("philly", window_start_s=20_000.0, num_slots=40, max_duration_s=9000.0),
    "alibaba": lambda: sampled("alibaba", num_slots=48),
    "alibaba on given servers": lambda: sampled("alibaba", num_slots=48, num_worker_servers=5, num_ps_servers=3),
}


def test_draws() -> None:
    lines = [line(name, *draw(), width=34) for name, draw in DRAWN.items()]
    assert_snapshot("workloads", "drawn: numbers, mean, mean weighted by place", lines)


NUMBERS = range(8)
HOURS = [f"2015-03-11T{hour:02}:{minute}:00Z" for hour in range(6) for minute in (15, 45)]
ZONE = ["kind", "nodes", "campaign", "zone", "resource", "gap_seconds", "tick", "value"]
JOBS: dict[str, list[Any]] = {
    "philly": [MERGED, *([f"application_{n}", 500 * n, 1 + n % 4, 2000 + 400 * n, f"vc{n % 2}"] for n in NUMBERS)],
    "pollux": [POLLUX, *([f"2017-10-03 00:{n}0:00", 3000 + 100 * n, 1 + n % 4, 1, "philly"] for n in range(6))],
    "gavel": [GAVEL, *([f"vc{n % 2}", n, ("A", "B (batch size 2)")[n % 3 == 2], 4000 + 100 * n, 300 * n, (1, 4, 2)[n % 3]] for n in NUMBERS)],
    "alibaba": [PODS, *(pod(f"p{n}", n % 3, 1000 if n % 2 else 500, (200 * n, 200 * n + 5000, 200 * n + 60), ("Running", "Failed", "Succeeded")[n % 3]) for n in NUMBERS)],
    "csv": [
        ("id", "submit", "gpus", "duration", "vc", "user", "model", "status", "app", "priority", "min_gpus", "max_gpus", "cpus", "memory_gb", "gpu_util"),
        *((f"j{n}", 60 * n, 1 + n % 4, 500 + n, "v", f"u{n % 2}", "m", "COMPLETED", f"a{n // 2}", n, 1, 4, 2.5, 16, 50) for n in NUMBERS),
    ],
    "sacct": [
        ("JobID", "User", "Partition", "Submit", "ElapsedRaw", "AllocTRES", "State"),
        *((f"{n}", "ada", "gpu", f"2024-01-02T00:0{n}:00", 60 + n, f"cpu=4;mem=16G;gres/gpu={1 + n}".replace(";", ","), ("COMPLETED", "FAILED", "RUNNING")[n % 3]) for n in range(6)),
    ],
}  # fmt: skip
PRICES = [
    ["timestamp", "zone", "instance_type", "price_usd_per_hour"],
    *([time, "us-east-1a", ("c3.xlarge", "c3.2xlarge")[n % 2], 0.02 + 0.01 * n] for n, time in enumerate(HOURS)),
]
DEMAND = [["instance_type", "on_demand_usd_per_hour", "rate"], ["c3.xlarge", 0.209, 1.0], ["c3.2xlarge", 0.419, 2.5]]
OTHERS: dict[str, tuple[Callable[[Path], Any], list[Any]]] = {
    "prices": (lambda path: read_prices(path, {"c3.xlarge": 209_000, "c3.2xlarge": 419_000}).paths, PRICES),
    "on demand": (read_on_demand, DEMAND),
    "rates": (read_rates, DEMAND),
    "availability": (
        lambda path: list(read_availability(path, on_demand_micro=3_000_000).values()),
        [["tick", "timestamp_local", "zone", "available", "price_usd_per_hour"], *([n, f"2023-02-15T00:{n}0:00", "us-west-2a", n % 3 and 1, 0.9] for n in range(5))],
    ),
    "spells": (read_spells, [ZONE, *(["preemption", 4, "c1", "us-west-2a", "v100_1", 600, n, (4, 4, 2, 3, 0)[n]] for n in range(5))]),
    "egress": (read_egress, [["from", "to", "usd_per_gb", "gb_per_s"], ["us-west-2a", "us-west-2b", 0.01, 1.5], ["us-west-2", "us-east-1", 0.02, ""]]),
    "quotas": (read_quotas, [("vc", "node num"), ("a", 64), ("b", 8)]),
    "samples": (read_samples, [("duration_s", "num_gpus"), (5, 2), (7, 1)]),
}  # fmt: skip


def changed_tables(rows: list[Any]) -> Iterable[tuple[str, list[Any]]]:
    """Yield a table as it is, with one cell of its second row changed, with a column left out, without rows, and turned."""
    yield "as it is", rows
    for column, name in enumerate(rows[0]):
        for cell in ("", "7.5"):
            row = [cell if place == column else old for place, old in enumerate(rows[1])]
            yield f"{name}={cell}", [rows[0], row, *rows[2:]]
        yield f"no {name}", [[old for place, old in enumerate(row) if place != column] for row in rows]
    yield "no rows", rows[:1]
    yield "turned", [rows[0], *rows[:0:-1]]


def said_of_tables(path: Path, read: Callable[[Path], Any], rows: list[Any], separator: str) -> list[str]:
    """Return one line per changed table: the numbers of rows read and of GPU-seconds, or the error."""
    lines = []
    for what, table in changed_tables(rows):
        path.write_text("\n".join(separator.join(map(str, row)) for row in table) + "\n")
        found = answer(read, path)
        if isinstance(found, str):
            lines.append(line(what, found.replace(f"{path.parent}/", "")))
        elif hasattr(found, "workers"):
            seconds, dropped = float(found.workers @ found.duration_s), dict(found.dropped)
            lines.append(line(what, f"{len(found.workers)} jobs", f"{seconds:.6g} GPU-s", f"dropped {dropped}"))
        else:
            lines.append(line(what, f"{len(found)} read" if hasattr(found, "__len__") else type(found).__name__))
    return lines


@pytest.mark.parametrize("form", JOBS)
def test_job_tables(form: str, tmp_path: Path) -> None:
    gavel_file(tmp_path, [])
    alibaba_file(tmp_path, [])
    said = said_of_tables(
        tmp_path / "jobs.csv",
        lambda path: read_jobs(path, form, ReadOptions()),
        JOBS[form],
        "|" if form == "sacct" else ",",
    )
    assert_snapshot("readers", form, said)


@pytest.mark.parametrize("name", OTHERS)
def test_other_tables(name: str, tmp_path: Path) -> None:
    assert_snapshot("readers", name, said_of_tables(tmp_path / "table.csv", *OTHERS[name], ","))
