"""Results of every policy in small worlds: clusters, spot markets, zones, containers."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from optim.core.policies import clairvoyant_names
from optim.models.cluster.workload import US
from optim.rightsizing import Slo, compare_policies, make_plan, measure, policy_names
from optim.rightsizing.policy import BOUNDS
from optim.rightsizing.world import TRUTH, WorldOptions, prepare_split
from optim.simulation.cluster.catalogue import make_policy
from optim.simulation.cluster.engine import simulate
from optim.simulation.cluster.options import Placement
from optim.simulation.spot import policies as spot
from optim.simulation.spot.backtest import make_world, run_backtest, summarise_all
from optim.simulation.spot.engine import SpotRun, run_policy
from optim.simulation.spot.oracle import Oracle
from optim.simulation.spot.policy import SpotOptions
from optim.simulation.spot.zones import facts_of, run_zones
from optim.workloads.prices.price_generator import PriceOptions, generate_prices
from tests.support.cluster_worlds import WORLDS
from tests.support.containers.worlds import INTERVAL_S, drawn_series
from tests.support.policies import CLUSTER_POLICIES, COMPILED_POLICIES, SPOT_POLICIES, ZONE_POLICIES
from tests.support.snapshots import answer, assert_snapshot, line
from tests.support.spot.worlds import drawn_world
from tests.support.spot.zones import drawn as zones

HOUR_S = 3600
VARIANTS = {
    "allox": ({"max_jobs": 3},),
    "borg": ({"shares": "0:1:3"},),
    "fifo": ({"backfill": True},),
    "gandiva": ({"packs": False}, {"migrates": False, "quantum_s": 20}, {"grows": False, "switch_s": 9, "move_s": 30}),
    "las": ({"by_time": True, "quantum_s": 120},),
    "hierarchical-quota": ({"half_life_h": 1},),
    "mesos": ({"decide_s": 40, "filter_s": 300, "delay_s": 0}, {"decide_s": 200, "delay_s": 900}),
    "multifactor": (
        {"backfill": True, "fair_tree": False, "half_life_h": 0.5, "weight_job_size": 9000},
        {"favor_small": True, "weight_age": 90000, "max_age_h": 1},
    ),
    "oasis": ({"slot_s": 120, "patience": 0.5, "delay": 0.5},),
    "omega": ({"schedulers": 3, "job_s": 90, "task_s": 20}, {"schedulers": 1, "job_s": 30}),
    "optimus": ({"epoch_s": 120},),
    "random": ({"backfill": False},),
    "slaq": ({"epoch_s": 900},),
    "srsf": ({"preempt": False}, {"backfill": False}),
    "static": ({"backfill": True},),
    "tetris": ({"fairness": 0.8, "remaining": 0}, {"fairness": 0, "remaining": 4}),
    "themis": (
        {"lease_min": 7, "fairness": 0.4, "rule": "ceil"},
        {"aligned": False, "rule": "none", "ideal": "space-share"},
        {"horizon": "lease", "rule": "lottery", "fairness": 0},
    ),
    "themis-greedy": (
        {"aligned": False, "lease_min": 6},
        {"tuner": "halving", "eta": 2, "lease_min": 9},
        {"tuner": "hyperband", "eta": 2, "aligned": False},
        {"tuner": "curves", "lease_min": 5, "ideal": "space-share"},
    ),
    "tiresias": ({"limits_gpu_s": "300:900"},),
    "tiresias-gittins": ({"levels": 3},),
    "yarn-cs": ({"quotas": "2:7:3", "retry_s": 45, "attempts": 2, "preempts_above": 0.5}, {"preempts_above": 0}),
}
SLOW = ("max-min", "oasis", "optimus", "slaq", "themis")
"""Played in few worlds."""

WRAPPERS = {
    "fail-early": {"fail-early.trial_s": 200, "fail-early.share": 0.2},
    "isolate": {"isolate.wide": 2, "isolate.share": 0.4},
    "patience": {"patience.wait_s": 300, "patience.max_slowdown": 1.2},
    "rounds": {"rounds.round_s": 600},
    "stop-at-gain": {"stop-at-gain.min_gain": 0.02, "stop-at-gain.check_s": 900},
}
SPOT = {
    "usual": {},
    "state": {"state_gb": 60.0, "checkpoint_usd_per_gb": 0.002, "restart_min": 2.0},
    "equal": {"linger": True, "reliable": 0, "serial": 0.1},
    "slow": {"startup_min": 11.0, "scale_min": 4.0, "eviction_min": 7.0, "tick_s": 600, "checkpoint_min": 9.0},
}
FIGURES = ("multiplier", "is_reached", "risk", "under_time", "kills", "allocation_over_demand", "reduction")
SMALL = {"job_hours": 3, "baseline": 6, "max_spot": 14}


def played(name, world, options=None, **engine):
    """Return a line: ends of jobs (s), allocated GPU-hours, restarts and moves, and lost GPU-hours."""
    jobs, cluster, rules = WORLDS[world]()
    run = answer(lambda: simulate(jobs, cluster, make_policy(name, jobs, options), replace(rules, **engine), 5))
    what = " ".join([world, *(f"{key}={value}" for key, value in {**(options or {}), **engine}.items())])
    if isinstance(run, str):
        return line(what, run)
    ends = np.rint(run.end_us / US).astype(int).tolist()
    return line(what, f"{run.allocated_gpu_us / 3600 / US:.6g} GPU-h", f"{len(run.log.time_us)} events", ends)


@pytest.mark.prove
@pytest.mark.parametrize("name", sorted(CLUSTER_POLICIES))
def test_cluster_policies(name):
    lines = [played(name, world) for world in WORLDS if name not in SLOW or world in ("plain", "failing", "kinds")]
    for number, options in enumerate(VARIANTS.get(name, ())):
        lines.append(played(name, "kinds" if name == "static" else ("plain", "failing")[number % 2], options))
    assert_snapshot("policies-cluster", name, lines)


@pytest.mark.parametrize("name", sorted(COMPILED_POLICIES))
def test_placements(name):
    lines = [played(name, world, placement=rule) for rule, world in product(Placement, ("plain", "failing"))]
    assert_snapshot("policies-cluster-placements", name, lines)


@pytest.mark.prove
@pytest.mark.parametrize("around", WRAPPERS)
def test_wrappers(around):
    cases = product(("srsf", "yarn-cs"), ("plain", "failing", "shared"), ({}, WRAPPERS[around]))
    lines = [f"{inner} {played(f'{around}+{inner}', world, options)}" for inner, world, options in cases]
    assert_snapshot("policies-cluster-wrappers", around, lines)


@pytest.mark.parametrize("name", sorted(SPOT_POLICIES))
def test_spot_policies(name):
    lines = []
    for label, options in SPOT.items():
        world = drawn_world(3, **SMALL, **options)
        for hours in (1, 61):
            start, seen = world.history.begin_s + hours * HOUR_S, []
            run = run_policy(world, spot.make_policy(name, world), start)
            assert SpotRun(world, spot.make_policy(name, world), start, seen.append).execute() == run, (
                "no job is watched"
            )
            took = f"{(run.end_s - run.start_s) / HOUR_S:.6g} h"
            lines.append(line(f"{label} after {hours} h", f"{run.cost_usd:.6g} USD", took, f"{len(run.ledger)} bills"))
    assert_snapshot("policies-spot", name, lines)


def test_spot_references():
    lines = []
    for label, seed in product(("usual", "equal", "state"), (3, 8)):
        world = drawn_world(seed, **SMALL, **SPOT[label])
        for name in clairvoyant_names("spot"):
            found = Oracle(world).solve(name, world.history.begin_s + 2 * HOUR_S)
            lines.append(line(f"{name} {label} {seed}", found.cost_usd, found.bound_usd, found.hours))
    assert_snapshot("policies-spot", "references: cost, bound (USD), hours", lines)


def test_summary_of_a_back_test():
    prices = generate_prices(PriceOptions(num_types=2, num_zones=2, days=8, spikes_per_day=6), 4)
    kind = prices.markets[0].instance_type
    options = SpotOptions(job_hours=2, baseline=4, max_spot=9, tick_s=300, baseline_type=kind)
    world = make_world(prices, prices.begin_s + 3 * 24 * HOUR_S, options, volatile=3)
    names = ("on-demand", "standard", "proteus", "oracle")
    rows = [row for entry in run_backtest(world, names, starts=3, seed=6) for row in entry.rows]
    lines = [line(f"{row.policy} {number}", row.cost_usd, row.hours) for number, row in enumerate(rows)]
    assert_snapshot("policies-spot", "back-test: cost (USD), hours", lines)
    assert set(summarise_all(rows)) == set(names)


@pytest.mark.parametrize("name", sorted(ZONE_POLICIES))
def test_zone_policies(name):
    lines = []
    for seed in range(12):
        market, job = zones(seed, ticks=30, least_slack=seed % 4)
        run = run_zones(market, job, ZONE_POLICIES[name](facts_of(market, job)), seed % 3, probe_s=60 * (seed % 2))
        held = [
            f"{run.held_s(is_spot=is_spot) / HOUR_S:.6g} h {'spot' if is_spot else 'on-demand'}"
            for is_spot in (True, False)
        ]
        lines.append(line(f"seed {seed}", f"{run.cost_usd:.6g} USD", *held, width=8))
    assert_snapshot("policies-zones", name, lines)


@pytest.fixture(scope="module")
def trial():
    """Containers to tune on and to test on, with their true phases."""
    options = WorldOptions(encoder=TRUTH, test_share=0.4, calibration_share=0.4, cycle_s=6 * INTERVAL_S)
    return prepare_split(drawn_series(1, 26), options, 3)


def test_allocations_to_containers(trial):
    lines = []
    for name in policy_names():
        plan = make_plan(trial.test, name)
        for multiplier in ((1.0, 0.6), (1.7, 3.0)):
            given = plan.allocate(np.array(multiplier))
            summary = measure(trial.test, given).summary()
            risk = [summary[name].tolist() for name in ("under_time", "kills")]
            lines.append(line(f"{name} {multiplier}", *np.nanmean(given, axis=(0, 1)), *risk, width=42))
    assert_snapshot("policies-containers", "by multipliers: mean CPU, mean memory, time under demand, kills", lines)


def test_comparison_of_container_policies(trial):
    wanted = Slo(kills=0.15, throttled=0.2, checkpoint_s=200.0, startup_s=40.0)
    names = ("prev-step-rules", "vpa", "phase-rule", "phase-price", "knn", *BOUNDS)
    lines = []
    for rows in compare_policies(trial, names, wanted, num_resamples=20, seed=4):
        lines += [line(f"{row.policy} {row.resource}", *(getattr(row, name) for name in FIGURES)) for row in rows]
    assert_snapshot("policies-containers", ", ".join(FIGURES), lines)
