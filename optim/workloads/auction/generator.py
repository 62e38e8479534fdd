"""Generator of auctions: a cluster, partly allocated under leases, and apps of tuning trials that bid for the rest."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from optim.core.errors import InvalidOptionError, check_choices, check_in
from optim.core.limits import check_drawn
from optim.models.auction.bids import bid_table
from optim.models.auction.codec import BidsDocument, MachineDocument, bids_document, cluster_from_documents, join_bids
from optim.models.auction.data import (
    COMPUTE_BOUND,
    NETWORK_BOUND,
    Apps,
    Cluster,
    EmptyValue,
    Horizon,
    Locality,
    Slowdown,
    as_floats,
    as_ints,
)
from optim.models.auction.fairness import AppProfile, Trial, ideal_minutes
from optim.models.auction.instance import AuctionInstance

GANGS = {"mixed": (1, 2, 4, 8), "elastic": (1,), "any": (1, 2, 3, 4, 5, 6, 7, 8)}
"""Gang sizes by the name of the mix; each app draws one of them uniformly."""

PROFILED_SIZES = {"num_apps": 16, "num_gpus": 64, "num_machines": 16}
"""Default sizes of auctions whose apps follow measured profiles."""

MIXED_SIZES = "gangs"
DIVIDING_SIZES = "dividing"
CLASS_BIDS = "classes"
NAMED_BIDS = "named"

TRIALS = ((0.2, 1, 5), (0.35, 6, 20), (0.5, 21, 80), (1.0, 81, 100))
"""Distribution of an app's number of trials: cumulative share of the apps, and the range's minimum and maximum."""

MEDIAN_WORK_MIN, WORK_SIGMA, MAX_WORK_MIN = 250.0 * 60, 0.7, 730.0 * 60
"""Serial GPU-minutes of an app's work, log-normal with the paper's median and maximum."""

SMALL_CLUSTER = 16
"""Clusters up to this many machines have `RACK_OF_SMALL` machines per rack, others `RACK`."""
RACK, RACK_OF_SMALL = 8, 4

MAX_DRAW = 32
"""Demands are log-uniform from one gang to this many GPUs, then scaled to the requested contention."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorOptions:
    """Sizes and distributions of a generated auction.

    Parameters
    ----------
    num_apps, num_gpus, num_machines
        Numbers of apps, GPUs and machines; GPUs are spread over the machines as evenly as possible.
    slots_per_machine
        Groups of fast links per machine.
    allocated_share
        Share of the GPUs allocated under leases, sampled GPU by GPU.
    contention
        Minimum total demand of the apps, as a multiple of the GPUs on offer.
    gangs
        Gang sizes: `mixed` (1, 2, 4, 8), `elastic` (1) or `any` (1 to 8; hardest to pack).
    sizes
        `gangs`: bids for all multiples of the gang; `dividing`: for powers of two only.
    widest
        Widest locality that apps bid for: `cluster`, `rack`, `machine` or `slot`; bundles within one machine are
        hardest to pack.
    bids
        `classes`: bids for a number of GPUs and a locality; `named`: each bid names one machine, at the app's speed on
        it.
    network_share
        Share of the apps whose training is bound by the network instead of computation.
    new_share
        Share of newly submitted apps, which have finished no work.
    horizon, empty_value, lease_min
        See `AuctionInstance`.

    Raises
    ------
    InvalidOptionError
        If an option is out of its range.

    Notes
    -----
    Trials per app and work follow the shape of the paper's workload (20 % of apps with at most 5 trials, half with at
    most 80; median work 250 GPU-hours). With named bids, an app's speed on a machine is uniform on 0.3 to 1; on a sixth
    of the machines it is 1.

    References
    ----------
    Mahajan et al., "Themis: Fair and Efficient GPU Cluster Scheduling", NSDI 2020, figures 2-4.
    """

    num_apps: int = 64
    num_gpus: int = 256
    num_machines: int = 32
    slots_per_machine: int = 1
    allocated_share: float = 0.0
    contention: float = 3.0
    gangs: str = "mixed"
    sizes: str = MIXED_SIZES
    widest: str = Locality.CLUSTER.name.lower()
    bids: str = CLASS_BIDS
    network_share: float = 0.4
    new_share: float = 0.25
    horizon: str = Horizon.HOLD.value
    empty_value: str = EmptyValue.POSITIVE.value
    lease_min: float = 20.0

    def __post_init__(self) -> None:
        check_in("[0, inf)", self, "num_apps")
        check_in("[0, 1e6]", self, "contention")
        check_in("[1, inf)", self, "num_gpus", "num_machines", "slots_per_machine")
        check_in("[0, 1]", self, "allocated_share", "network_share", "new_share")
        check_in("(0, inf)", self, "lease_min")
        if self.num_gpus < self.num_machines * self.slots_per_machine:
            raise InvalidOptionError(
                f"num_gpus must be at least one per slot ({self.num_machines * self.slots_per_machine}), got {self.num_gpus}"
            )
        known = {
            "gangs": tuple(GANGS),
            "sizes": (MIXED_SIZES, DIVIDING_SIZES),
            "widest": tuple(level.name.lower() for level in list(Locality)[:4]),
            "bids": (CLASS_BIDS, NAMED_BIDS),
            "horizon": tuple(h.value for h in Horizon),
            "empty_value": tuple(e.value for e in EmptyValue),
        }
        check_choices(self, known)


def generate(options: GeneratorOptions, seed: int, *, slowdowns: Sequence[Slowdown] | None = None) -> AuctionInstance:
    """Generate an auction.

    Parameters
    ----------
    options
        Sizes and distributions.
    seed
        Equal options and seeds give equal instances.
    slowdowns
        App types by their slowdowns, with equal probability; by default the options' two types.

    Raises
    ------
    InvalidOptionError
        If the size exceeds the limits on input files (`ReadLimits`).

    Examples
    --------
    >>> generate(GeneratorOptions(num_apps=6, num_gpus=16, num_machines=4), seed=3).name
    'generated-6-16-4-3'
    """
    check_drawn("count", options.num_apps, "num_apps")
    check_drawn("count", options.num_gpus, "num_gpus")
    check_drawn("cells", options.num_apps * options.num_gpus, "num_apps times num_gpus")
    cluster_rng, app_rng, speed_rng = map(np.random.default_rng, np.random.SeedSequence(seed).spawn(3))
    cluster = draw_cluster(options, cluster_rng)
    profiles = draw_profiles(options, cluster, app_rng)
    if slowdowns is not None:
        kinds = app_rng.integers(len(slowdowns), size=len(profiles)).tolist()
        profiles = [replace(app, slowdown=slowdowns[kind]) for app, kind in zip(profiles, kinds, strict=True)]
    horizon = Horizon(options.horizon)
    largest = cluster.num_free.bit_length()
    sizes = tuple(2**power for power in range(largest)) if options.sizes == DIVIDING_SIZES else None
    if options.bids == NAMED_BIDS:
        tables = [_named_table(profile, cluster, options.lease_min, sizes, speed_rng) for profile in profiles]
    else:
        tables = [
            bids_document(
                bid_table(
                    profile,
                    cluster,
                    lease_min=options.lease_min,
                    horizon=horizon,
                    sizes=sizes,
                    widest=Locality[options.widest.upper()],
                )
            )
            for profile in profiles
        ]
    return AuctionInstance(
        name=f"generated-{options.num_apps}-{options.num_gpus}-{options.num_machines}-{seed}",
        cluster=cluster,
        apps=_apps(profiles, tables, cluster),
        bids=join_bids(tables),
        lease_min=options.lease_min,
        horizon=horizon,
        empty_value=EmptyValue(options.empty_value),
        profiles=tuple(profiles),
    )


def draw_cluster(options: GeneratorOptions, rng: np.random.Generator) -> Cluster:
    """Return a cluster with randomly allocated GPUs, whose machines fill the racks in order."""
    machines, rack = options.num_machines, RACK if options.num_machines > SMALL_CLUSTER else RACK_OF_SMALL
    num_slots = machines * options.slots_per_machine
    gpus = np.full(num_slots, options.num_gpus // num_slots)
    gpus[: options.num_gpus % num_slots] += 1
    slot_of_gpu = np.repeat(np.arange(num_slots), gpus)
    held = rng.permutation(slot_of_gpu)[: round(options.allocated_share * options.num_gpus)]
    free = gpus - np.bincount(held, minlength=num_slots)
    by_machine = (gpus.reshape(machines, -1), free.reshape(machines, -1))
    return cluster_from_documents(
        [
            MachineDocument(rack=m // rack, slots=by_machine[0][m].tolist(), free=by_machine[1][m].tolist())
            for m in range(machines)
        ]
    )


def draw_profiles(options: GeneratorOptions, cluster: Cluster, rng: np.random.Generator) -> list[AppProfile]:
    """Draw the apps: demand, trials, finished and remaining work, placement sensitivity."""
    n = options.num_apps
    gang = rng.choice(GANGS[options.gangs], size=n)
    raw = np.exp(rng.uniform(0.0, np.log(MAX_DRAW), size=n))
    demand = _demands(np.maximum(raw, gang), gang, options.contention * cluster.num_free)
    drawn = np.exp(np.log(MEDIAN_WORK_MIN) + WORK_SIGMA * rng.standard_normal(n))
    total = np.minimum(drawn, MAX_WORK_MIN)
    progress = rng.uniform(0.05, 0.9, size=n)
    progress[rng.random(n) < options.new_share] = 0.0
    active = max(1.0, n * 0.85)
    is_network = rng.random(n) < options.network_share
    share = max(1.0, cluster.num_gpus / max(1, n))
    profiles = []
    for i in range(n):
        trials = _trials(int(demand[i]), int(gang[i]), float(total[i]), float(progress[i]), rng)
        done = float(total[i] * progress[i])
        profiles.append(
            AppProfile(
                elapsed_min=round(done / min(share, float(demand[i])) * float(rng.uniform(1.0, 2.0)), 6),
                active_apps=round(max(1.0, active * float(rng.uniform(0.8, 1.2))), 6),
                trials=trials,
                slowdown=NETWORK_BOUND if is_network[i] else COMPUTE_BOUND,
                gang=int(gang[i]),
            )
        )
    return profiles


def _demands(raw: np.ndarray, gang: np.ndarray, wanted: float) -> np.ndarray:
    """Scale demands up so that they add up to at least `wanted`, each a multiple of its gang."""
    factor = max(1.0, wanted / raw.sum()) if len(raw) else 1.0
    demands: np.ndarray = np.ceil(raw * factor / gang).astype(np.int64) * gang
    return demands


def _trials(demand: int, gang: int, total: float, progress: float, rng: np.random.Generator) -> tuple[Trial, ...]:
    """Draw an app's trials; their maximum GPUs and their work add up to the app's."""
    u = rng.random()
    _, least, most = next(entry for entry in TRIALS if u < entry[0])
    number = min(int(rng.integers(least, most + 1)), demand // gang)
    width = np.full(number, demand // gang // number)
    width[: demand // gang % number] += 1
    weight = rng.uniform(0.5, 1.5, size=number) * width
    work = total * weight / weight.sum()
    return tuple(
        Trial(work_min=round(w * (1 - progress), 6), total_work_min=round(w, 6), max_gpus=d * gang)
        for w, d in zip(work.tolist(), width.tolist(), strict=True)
    )


def _named_table(
    profile: AppProfile, cluster: Cluster, lease_min: float, sizes: tuple[int, ...] | None, rng: np.random.Generator
) -> BidsDocument:
    """Return an app's bids, each for GPUs of one machine; the app's speed differs from machine to machine."""
    speed = rng.uniform(0.3, 1.0, size=cluster.num_machines)
    speed[rng.random(cluster.num_machines) < 1 / 6] = 1.0
    ideal, work = ideal_minutes(profile, cluster.num_gpus), profile.work_min
    rows = [
        ([(m, k)], (profile.elapsed_min + work / (k * float(speed[m]))) / ideal)
        for m, free in enumerate(cluster.machine_free.tolist())
        for k in range(profile.gang, min(free, profile.demand) + 1, profile.gang)
        if sizes is None or k in sizes
    ]
    empty = lease_min / ideal + max((rho for _, rho in rows), default=1.0)
    return BidsDocument(empty_rho=empty, named=rows)


def _apps(profiles: list[AppProfile], tables: list[BidsDocument], cluster: Cluster) -> Apps:
    return Apps(
        ids=tuple(f"a{i}" for i in range(len(profiles))),
        empty_rho=as_floats([table.empty_rho for table in tables]),
        gang=as_ints([profile.gang for profile in profiles]),
        elapsed_min=as_floats([profile.elapsed_min for profile in profiles]),
        work_min=as_floats([profile.work_min for profile in profiles]),
        ideal_min=as_floats([ideal_minutes(profile, cluster.num_gpus) for profile in profiles]),
    )
