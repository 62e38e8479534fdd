"""Runs over zones, their bills, rows and facts come out as they were kept."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from optim.simulation.spot.backtest import ZoneStarts, run_over_zones
from optim.simulation.spot.zones import Offer, ZonePolicy, facts_of, run_zones
from tests.support.kept import assert_kept, short
from tests.support.spot.zones import drawn

KEPT = Path(__file__).parent / "kept"

NAMES = (
    "uniform-progress",
    "uniform-progress-zones",
    "adaptive-zones",
    "skynomad",
    "cheapest-zone",
    "greedy-spot",
    "on-demand",
)


class Wanderer(ZonePolicy):
    """Wants what a seed says, whatever it sees; keeps what it saw."""

    name = "wanderer"

    def __init__(self, facts, seed):
        super().__init__(facts)
        self.rng, self.zones, self.views = np.random.default_rng(seed), len(facts.zones), []

    def decide(self, view):
        self.views.append(view)
        wanted = [Offer(int(self.rng.integers(self.zones)), bool(self.rng.integers(2))) for _ in range(3)]
        return wanted[: int(self.rng.integers(4))]


def test_whatever_a_policy_wants_it_is_shown_and_charged_what_it_was():
    found = {}
    for seed in range(30):
        market, job = drawn(seed, ticks=26)
        policy = Wanderer(facts_of(market, job), seed)
        run = run_zones(market, job, policy, seed % 4, probe_s=30 * (seed % 5))
        held = [run.held_s(is_spot=is_spot) for is_spot in (False, True)]
        found[str(seed)] = [run, held, run.cost_usd, facts_of(market, job), policy.views]
    assert_kept(KEPT / "wanderer.json", found)


def test_rows_over_zones_come_out_as_before():
    found = {}
    for seed in (1, 4, 7):
        market, job = drawn(seed, ticks=40)
        world = ZoneStarts(market=market, job=replace(job, machines=2))
        names = (*NAMES, "optimum")
        rows = [row for entry in run_over_zones(world, names, starts=3, seed=seed) for row in entry.rows]
        found |= {f"{seed} {number}": short(row) for number, row in enumerate(rows)}
    assert_kept(KEPT / "rows.json", found)
