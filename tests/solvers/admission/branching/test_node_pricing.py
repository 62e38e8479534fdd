"""Pricing under branches against the list of all schedules, filtered by the branches."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optim_studies.packing_programme import Schedule

from optim.models.admission.decision import Branch, BranchKind
from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.branching.node_pricing import BranchRestrictions, NodePricer
from optim.solvers.admission.pricing.classes import JobTables
from tests.solvers.admission.pricing.test_class_pricing import COST_TOL, cost, counts, random_prices, schedules_by_job
from tests.support.admission.tiny import BY_HAND, tiny_instances

Side = tuple[Branch, bool]
"""A branch, and whether its high child is meant."""


def random_branches(instance: AdmissionInstance, rng: np.random.Generator) -> list[Side]:
    """Draw a few branches of any type."""
    branches = []
    for _ in range(int(rng.integers(1, 6))):
        kind = list(BranchKind)[rng.integers(len(BranchKind))]
        servers = instance.ps_servers if kind is BranchKind.PS else instance.worker_servers
        is_count = kind in (BranchKind.WORKERS, BranchKind.PS)
        branch = Branch(
            kind=kind,
            job=int(rng.integers(instance.num_jobs)),
            value=int(rng.integers(3)),
            server_class=int(rng.integers(servers.num_classes)) if is_count else -1,
            slot=int(rng.integers(instance.horizon)) if is_count else -1,
        )
        branches.append((branch, bool(rng.integers(2))))
    return branches


def meets(schedule: Schedule, branch: Branch, *, is_high: bool) -> bool:
    """Return whether a listed schedule of the branch's job belongs to the child."""
    if branch.kind is BranchKind.ADMITTED:
        return is_high
    if branch.kind is BranchKind.COMPLETION:
        return (schedule.completion > branch.value) == is_high
    units = schedule.workers if branch.kind is BranchKind.WORKERS else schedule.ps
    count = sum(n for slot, place, n in units if (slot, place) == (branch.slot, branch.server_class))
    return (count > branch.value) == is_high


def must_run(branch: Branch, *, is_high: bool) -> bool:
    """Return whether the child admits the branch's job."""
    return is_high and branch.kind is not BranchKind.COMPLETION


def limits_of(tables: JobTables, branches: list[Side]) -> BranchRestrictions:
    """Follow the branches from the root."""
    limits = BranchRestrictions.free(tables)
    for branch, is_high in branches:
        limits = limits.narrowed(tables, branch, is_high=is_high)
    return limits


def check_node(instance: AdmissionInstance, seed: int) -> None:
    """Compare each job's payoff under random branches with the best of the listed schedules that meet them."""
    rng = np.random.default_rng(seed)
    prices, branches = random_prices(instance, rng, has_extras=True, at_nodes=True), random_branches(instance, rng)
    tables = JobTables.build(instance)
    pricer, limits = NodePricer.of(tables), limits_of(tables, branches)
    priced = pricer.price(prices, limits)
    found = priced.select(np.flatnonzero(priced.completion >= 0))
    assert limits.allows(tables, found).all(), "a schedule that the node forbids"
    for i, listed in enumerate(schedules_by_job(instance)):
        own = [(branch, is_high) for branch, is_high in branches if branch.job == i]
        left = [s for s in listed if all(meets(s, branch, is_high=is_high) for branch, is_high in own)]
        floor = -math.inf if any(must_run(branch, is_high=is_high) for branch, is_high in own) else 0.0
        best = max((s.value - cost(instance, s, prices) for s in left), default=-math.inf)
        expected = max(best, floor)
        assert priced.payoff[i] == expected or abs(priced.payoff[i] - expected) <= COST_TOL
        assert pricer.has_schedule(i, limits) == bool(left) or floor == 0.0
        if priced.completion[i] >= 0:
            same = [
                s
                for s in left
                if (counts(s, priced.workers[i].shape, of_ps=False) == priced.workers[i]).all()
                and (counts(s, priced.ps[i].shape, of_ps=True) == priced.ps[i]).all()
            ]
            assert [s.completion for s in same] == [priced.completion[i]]


@given(tiny_instances(), st.integers(0, 2**32 - 1))
def test_finds_the_best_schedule_that_the_branches_leave(instance: AdmissionInstance, seed: int) -> None:
    check_node(instance, seed)


def test_prices_every_trait_under_branches() -> None:
    for name in sorted(BY_HAND):
        for seed in range(20):
            check_node(BY_HAND[name], seed)


def check_slots(instance: AdmissionInstance, seed: int) -> int:
    """Compare payoffs by completion slot with those of the listed schedules; return how many slots have a schedule."""
    rng = np.random.default_rng(seed)
    prices, branches = random_prices(instance, rng, has_extras=True, at_nodes=True), random_branches(instance, rng)
    tables = JobTables.build(instance)
    by_slot = NodePricer.of(tables).by_slot(prices, limits_of(tables, branches))
    assert by_slot.shape == (instance.num_jobs, instance.horizon)
    for i, listed in enumerate(schedules_by_job(instance)):
        best = np.full(instance.horizon, -math.inf)
        for schedule in listed:
            own = [(branch, is_high) for branch, is_high in branches if branch.job == i]
            if all(meets(schedule, branch, is_high=is_high) for branch, is_high in own):
                slot = schedule.completion
                best[slot] = max(best[slot], schedule.value - cost(instance, schedule, prices))
        assert np.array_equal(np.isfinite(by_slot[i]), np.isfinite(best))
        assert by_slot[i] == pytest.approx(best, abs=COST_TOL)
    return int(np.isfinite(by_slot).sum())


@given(tiny_instances(), st.integers(0, 2**32 - 1))
def test_every_slot_has_the_payoff_of_its_best_schedule(instance: AdmissionInstance, seed: int) -> None:
    check_slots(instance, seed)


@pytest.mark.parametrize("name", sorted(BY_HAND))
def test_prices_every_slot_of_every_trait(name: str) -> None:
    assert sum(check_slots(BY_HAND[name], seed) for seed in range(20)) >= 20


@given(tiny_instances(), st.integers(0, 2**32 - 1))
def test_every_schedule_goes_to_one_child(instance: AdmissionInstance, seed: int) -> None:
    rng = np.random.default_rng(seed)
    tables = JobTables.build(instance)
    branch, _ = random_branches(instance, rng)[0]
    priced = NodePricer.of(tables).price(
        random_prices(instance, rng, has_extras=False), BranchRestrictions.free(tables)
    )
    found = priced.select(np.flatnonzero(priced.completion >= 0))
    low, high = (limits_of(tables, [(branch, is_high)]).allows(tables, found) for is_high in (False, True))
    assert (low != high)[found.jobs == branch.job].all()
    assert (low & high)[found.jobs != branch.job].all()
