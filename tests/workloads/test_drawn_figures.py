"""A seed draws what it always drew: figures of instances of every generator, and of samples of made-up traces."""

import tempfile
from collections.abc import Callable
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
from optim.workloads.containers import ContainerOptions, generate_containers
from optim.workloads.prices.price_generator import PriceOptions, generate_prices
from optim.workloads.profiles import profiled_instance, published_profiles
from tests.support.figures import figures_of, figures_of_document
from tests.support.trace_files import alibaba_file, philly_file, pod

Figures = tuple[int, float, float]


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
    "apps": lambda: apps(1, held_share=0.3),
    "apps of any gang": lambda: apps(2, gangs="any", sizes="dividing", widest="machine", slots_per_machine=2),
    "apps with named bids": lambda: apps(3, bids="named", num_machines=9, contention=0.5, horizon="lease"),
    "bids": lambda: bids(1),
    "bids by scenarios": lambda: bids(2, windows=7, slots=12, one_bid_a_market=True),
    "prices": lambda: prices(1),
    "prices of few markets": lambda: prices(2, num_types=2, num_zones=1, spikes_per_day=20.0, correlation=0.6),
    "series": lambda: series(1),
    "irregular series": lambda: series(2, jitter=0.3, missing=0.1, drift=0.4, has_network=True),
    "profiled jobs": lambda: profiled("admission", SMALL_JOBS, 4),
    "profiled apps": lambda: profiled("auction", SMALL_APPS, 4),
    "profiled bids": lambda: profiled("bidding", SMALL_BIDS, 4),
    "philly": lambda: sampled("philly"),
    "philly in a window": lambda: sampled("philly", window_start_s=20_000.0, num_slots=40, max_duration_s=9000.0),
    "alibaba": lambda: sampled("alibaba", num_slots=48),
    "alibaba on given servers": lambda: sampled("alibaba", num_slots=48, num_worker_servers=5, num_ps_servers=3),
}

EXPECTED: dict[str, Figures] = {
    "jobs": (603, 887.4155203449419, 41297.14066684577),
    "jobs on shared servers": (608, 902.5114120476974, 41137.426425649675),
    "apps": (1008, 1685.076362372187, 65462.910326953504),
    "apps of any gang": (477, 2534.107698069797, 121496.63856883983),
    "apps with named bids": (2511, 679.6409212709219, 31167.225678096096),
    "bids": (345, 2.412015790864129, 112.70027071082625),
    "bids by scenarios": (836, 216.21470482456138, 10649.086097727271),
    "prices": (12116, 271925.3113238693, 13613481.998844502),
    "prices of few markets": (2080, 563631.9788461538, 28453925.69326923),
    "series": (3255, 329.02618021481834, 15834.951293810731),
    "irregular series": (4300, 336.8838349279814, 16240.12339315217),
    "profiled jobs": (603, 311.0826541111111, 15821.15863751078),
    "profiled apps": (256, 2248.3585502524284, 102129.66443919559),
    "profiled bids": (187, 4.083953913121717, 282.5634774379603),
    "philly": (699, 7193.923334763948, 15654.426812589414),
    "philly in a window": (563, 5008.4837015985795, 14870.933740674956),
    "alibaba": (711, 2879.938947960619, 15327.830372714487),
    "alibaba on given servers": (703, 2643.156745376956, 15491.282098150781),
}


@pytest.mark.parametrize("name", DRAWN)
def test_a_seed_draws_what_it_always_drew(name: str) -> None:
    assert DRAWN[name]() == pytest.approx(EXPECTED[name], rel=1e-9)
