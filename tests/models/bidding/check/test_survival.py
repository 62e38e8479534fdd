"""Covers by the checker: their rows hold for every feasible footprint, and damaged certificates are rejected."""

from dataclasses import replace

import numpy as np
import pytest

from optim.core.solution import Violation
from optim.models.bidding.check.tree import MAX_SHORT, checked_covers, keep_probability, keeps_enough
from optim.models.bidding.data import SURVIVAL_TOL
from optim.models.bidding.decision import Cover, FootprintPlan
from optim.models.files import verify
from optim.solvers.solve import solve
from optim.workloads.bidding.generator import GeneratorOptions, generate
from tests.support.bidding.small_markets import all_footprints, footprints_that_keep_enough, outcomes, with_survival

SEED = 1


@pytest.fixture(scope="module")
def solved():
    """Eight kinds of which 12 GPUs must survive: an instance whose proof needs covers, and its solution."""
    instance = generate(GeneratorOptions(zone_types=8, windows=4, min_gpus=12, min_probability=0.8), SEED)
    solution = solve(instance, "greedy")  # its bound is the relaxation's, so that every price counts
    assert verify(instance, solution).is_ok
    return instance, solution


def test_every_footprint_that_keeps_enough_fulfils_the_row_of_any_cover():
    rows = tight = 0
    for seed in range(40):
        instance, rng = with_survival(seed), np.random.default_rng(seed)
        table = footprints_that_keep_enough(instance)
        if not len(table):
            continue
        covers = tuple(
            Cover(weight=rng.integers(0, 8, len(instance.markets)), short_of=int(rng.integers(1, 12))) for _ in range(4)
        )
        checked = checked_covers(instance, covers)
        slack = table @ checked.gain.T - checked.need
        assert slack.min() >= 0, seed
        rows += 4
        everything = all_footprints(instance)
        tight += bool((everything @ checked.gain.T < checked.need).any())
    assert rows > 40
    assert tight > 5  # rows without effect would hold as well


def test_rounding_makes_rows_weaker_only():
    """Against sums over all outcomes: a row requires at most the valid amount, and credits each bid with at least its value."""
    for seed in range(8):
        instance, rng = with_survival(seed), np.random.default_rng(seed)
        asked, (lasts, chance) = instance.survival, outcomes(instance.survival.shocks)
        cover = Cover(weight=rng.integers(0, 4, len(instance.markets)), short_of=int(rng.integers(1, 8)))
        checked = checked_covers(instance, (cover,))
        is_short = lasts @ cover.weight < cover.short_of
        need = asked.min_capacity * (chance @ is_short - (1 - (asked.probability - SURVIVAL_TOL)))
        gain = asked.capacity * ((chance * is_short) @ lasts)[instance.bids.market]
        assert need - 1e-10 < checked.need[0] < need, seed
        assert (checked.gain[0] - gain < 1e-10).all(), seed
        assert (checked.gain[0] > gain)[asked.capacity > 0].all(), seed


def test_a_footprint_is_held_to_what_must_last():
    for seed in range(20):
        instance = with_survival(seed)
        kept = {tuple(row) for row in footprints_that_keep_enough(instance).tolist()}
        for row in all_footprints(instance)[::17]:
            assert keeps_enough(instance, row) is (tuple(row.tolist()) in kept), seed


def spoilt(solution, **fields):
    """Return a solution whose proof has other fields."""
    certificate = solution.certificate
    return replace(solution, certificate=replace(certificate, proof=replace(certificate.proof, **fields)))


def test_a_spoilt_cover_is_refused(solved):
    instance, solution = solved
    proof = solution.certificate.proof
    assert proof.covers
    assert any(x.cover.any() for x in proof.multipliers)
    none = tuple(replace(x, cover=np.zeros(0)) for x in proof.multipliers)
    dear = tuple(replace(x, cover=3.0 * x.cover) for x in proof.multipliers)
    first = proof.covers[0]
    for fields in (
        {"multipliers": none},
        {"multipliers": dear},
        {"multipliers": tuple(replace(x, cover=-x.cover) for x in proof.multipliers)},
        {"covers": ()},
        {"covers": tuple(replace(cover, weight=0 * cover.weight) for cover in proof.covers)},
        {"covers": tuple(replace(cover, weight=5 * cover.weight) for cover in proof.covers)},
        {"covers": tuple(replace(cover, short_of=cover.short_of // 4) for cover in proof.covers)},
        {"covers": (replace(first, weight=first.weight[1:]), *proof.covers[1:])},
        {"covers": (replace(first, weight=-first.weight), *proof.covers[1:])},
        {"covers": (replace(first, weight=first.weight + 0.5), *proof.covers[1:])},
        {"covers": (replace(first, short_of=MAX_SHORT + 1), *proof.covers[1:])},
    ):
        assert not verify(instance, spoilt(solution, **fields)).is_ok, fields.keys()


def test_a_harder_condition_refuses_the_footprint_and_an_easier_one_does_not(solved):
    instance, solution = solved
    asked = instance.survival
    harder = replace(instance, survival=replace(asked, probability=min(1.0, solution.stats.counts["kept"] + 1e-6)))
    assert any("survival" in str(each) for each in verify(harder, solution).violations)
    counts = dict(solution.stats.counts) | {"kept": 0.99}
    assert not verify(instance, replace(solution, stats=replace(solution.stats, counts=counts))).is_ok
    nothing = replace(solution, decision=FootprintPlan.of(0 * solution.decision.counts))
    assert not verify(instance, nothing).is_ok


def test_covers_have_no_place_where_nothing_must_last(solved):
    instance, solution = solved
    free = replace(instance, survival=None)
    assert isinstance(checked_covers(free, solution.certificate.proof.covers), Violation)
    assert not verify(free, solution).is_ok


def test_what_keeps_exactly_as_much_as_is_asked_for_keeps_enough(monkeypatch):
    monkeypatch.setattr("optim.models.bidding.check.tree.SURVIVAL_TOL", 0.0)
    instance = with_survival(0)
    counts = instance.bids.max_count
    asked = replace(instance.survival, probability=keep_probability(instance, instance.survival, counts))
    assert keeps_enough(replace(instance, survival=asked), counts)
