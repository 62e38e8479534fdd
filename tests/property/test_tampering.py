"""Thousands of tampered solutions: the checker agrees with a second opinion about every one of them."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import optim
from optim.models.admission.check import check
from optim.models.admission.decision import AdmissionPlan, PriceProof
from optim.models.admission.instance import AdmissionInstance
from tests.models.admission.check.test_cuts import random_cut
from tests.support.admission.count_cuts import random_count_cut
from tests.support.admission.enumeration import Enumerator, Market, Schedule, best_gain, random_market
from tests.support.admission.plans import (
    Rows,
    families,
    greedy_plan,
    proven_by,
    raw_plan,
    solution_of,
    tampered_rows,
    violated_rows,
)
from tests.support.admission.slot_cuts import random_slot_cut
from tests.support.admission.tiny import BY_HAND, tiny_instances

SEEDS = st.integers(0, 2**32 - 1)
REFERENCES = ("tiny-0", "tiny-1", "tiny-2", "small-0", "small-1", "small-2")
SUBJECTS = (*BY_HAND, *REFERENCES)
SMALL = (*BY_HAND, *REFERENCES[:3])
"""Instances whose schedules can be listed."""


def seeds(number: int) -> list[Any]:
    """Return seeds: the first for every run, the others for `make prove`."""
    return [0, *(pytest.param(seed, marks=pytest.mark.prove) for seed in range(1, number))]


@cache
def subject(name: str) -> tuple[AdmissionInstance, AdmissionPlan, float]:
    """Return an instance with a sound plan and its objective."""
    instance = BY_HAND[name] if name in BY_HAND else optim.reference_instance(name)
    plan = greedy_plan(instance)
    return instance, plan, plan.objective(instance)


@cache
def schedules(name: str) -> list[list[Schedule | None]]:
    """Return every schedule of every job, and the choice to reject it."""
    instance = subject(name)[0]
    enumerator = Enumerator(instance)
    return [[None, *enumerator.schedules(job)] for job in range(instance.num_jobs)]


def rows_of(plan: AdmissionPlan) -> tuple[Rows, Rows]:
    """Return a plan's rows as tuples."""
    workers, ps = ([tuple(row) for row in array.tolist()] for array in (plan.workers, plan.ps))
    return workers, ps


def worth_of(instance: AdmissionInstance, workers: Rows) -> float:
    """Return the value of a plan: each job's value in the last slot in which it has workers."""
    last: dict[int, int] = {}
    for job, slot, server, count in workers:
        inside = slot < instance.horizon and server < instance.worker_servers.num_servers
        if inside and count > 0:
            last[job] = max(last.get(job, -1), slot)
    return float(sum(instance.value[job, slot] for job, slot in last.items()))


def assert_same_opinion(instance: AdmissionInstance, workers: Rows, ps: Rows, objective: float, what: str) -> bool:
    """Compare the violated rows with the second opinion's; return whether the plan is sound."""
    expected = violated_rows(instance, workers, ps)
    if abs(worth_of(instance, workers) - objective) > 1e-9 * objective:
        expected.add("objective")
    found = check(instance, solution_of(instance, raw_plan(workers, ps), objective=objective))
    assert families(found.violations) == expected, what
    assert found.is_ok == (not expected)
    return found.is_ok


@pytest.mark.parametrize("name", SUBJECTS)
@pytest.mark.parametrize("seed", seeds(3))
def test_agrees_on_every_plan_with_one_row_changed(name: str, seed: int) -> None:
    """Some 28 changes each: most are rejected, the valid ones (another server, one PS more) accepted."""
    instance, plan, objective = subject(name)
    workers, ps = rows_of(plan)
    assert assert_same_opinion(instance, workers, ps, objective, "untouched")
    rng = np.random.default_rng(seed)
    refused = sum(
        not assert_same_opinion(instance, *mutated, objective, what)
        for what, *mutated in tampered_rows(rng, instance, workers, ps)
    )
    assert refused > 0


@given(tiny_instances(max_jobs=3), SEEDS)
def test_agrees_on_changed_plans_of_any_instance(instance: AdmissionInstance, seed: int) -> None:
    """Three changes on top of each other, so that several rows fail at once."""
    rng = np.random.default_rng(seed)
    plan = greedy_plan(instance)
    objective = plan.objective(instance)
    workers, ps = rows_of(plan)
    for _ in range(3):
        changes = list(tampered_rows(rng, instance, workers, ps))
        if not changes:
            return
        what, workers, ps = changes[int(rng.integers(len(changes)))]
        assert_same_opinion(instance, workers, ps, objective, what)


@pytest.mark.parametrize("name", SUBJECTS)
@pytest.mark.parametrize("seed", seeds(4))
def test_refuses_every_other_objective(name: str, seed: int) -> None:
    instance, plan, objective = subject(name)
    rng = np.random.default_rng(seed)
    for factor in 1 + np.concatenate([10.0 ** rng.uniform(-8, 1, 5), -(10.0 ** rng.uniform(-8, 0, 5))]):
        found = check(instance, solution_of(instance, plan, objective=objective * float(factor)))
        assert families(found.violations) == {"objective"}


def make_market(name: str, seed: int) -> Market:
    """Return prices at which about half of the jobs gain something, with up to two cuts."""
    instance = subject(name)[0]
    rng = np.random.default_rng(seed)
    density = float(instance.value.max() / instance.work.mean())
    unit = np.maximum(instance.jobs.worker_demand.mean(axis=0), instance.jobs.ps_demand.mean(axis=0)) / 1e6
    drawn = random_market(instance, rng, scale=density / instance.num_resources / 2)
    cuts = tuple(random_cut(instance, rng) for _ in range(int(rng.integers(3)))) if name in BY_HAND else ()
    counts = (random_count_cut(instance, rng),) if name in BY_HAND else ()
    scale = np.where(unit > 0, 1 / np.maximum(unit, 1e-6), 1.0)
    prices = {"worker_price": drawn.worker_price * scale, "ps_price": drawn.ps_price * scale}
    slots = (random_slot_cut(instance, rng),) if name in BY_HAND else ()
    return replace(drawn, **prices, cuts=cuts, count_cuts=counts, slot_cuts=slots)


def assert_same_bound(name: str, proof: PriceProof, stated: float, what: str) -> bool:
    """Compare the checker's opinion of a proof with an enumeration's; return whether it is sound."""
    instance = subject(name)[0]
    market = Market.of(instance, proof)
    needed = np.array([best_gain(market, own) for own in schedules(name)])
    lacks = needed - proof.payoff > 1e-9 * np.maximum(1.0, instance.value.max(axis=1))
    bound = float(np.maximum(needed, proof.payoff).sum()) + market.rents()
    found = check(instance, solution_of(instance, None, **proven_by(proof, stated)))
    expected = {f"(21) payoff [job {instance.jobs.ids[i]}]" for i in np.flatnonzero(lacks)}
    if bound - stated > 1e-9 * abs(bound):
        expected.add("bound")
    assert {violation.row for violation in found.violations} == expected, what
    assert found.bound == pytest.approx(bound, rel=1e-9)
    return found.is_ok


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("seed", seeds(6))
def test_agrees_on_every_proof_with_one_number_changed(name: str, seed: int) -> None:
    market = make_market(name, seed)
    payoff = [best_gain(market, own) for own in schedules(name)]
    proof, bound = market.proof(payoff), sum(payoff) + market.rents()
    assert assert_same_bound(name, proof, bound, "untouched")
    rng = np.random.default_rng(seed)
    refused = [not assert_same_bound(name, *mutated, what) for what, *mutated in tampered_proofs(rng, proof, bound)]
    assert sum(refused) >= 5


def tampered_proofs(rng: np.random.Generator, proof: PriceProof, bound: float) -> list[tuple[Any, ...]]:
    """Return proofs and bounds with one number changed, and a description of the change."""

    def changed(field: str, factor: float, add: float = 0.0) -> PriceProof:
        array = getattr(proof, field).copy()
        positive = np.argwhere(array > 0)
        if len(positive) or add:
            at = tuple(positive[rng.integers(len(positive))]) if len(positive) else (0,) * array.ndim
            if array.size:
                array[at] = array[at] * factor + add
        return replace(proof, **{field: array})

    changes: list[tuple[Any, ...]] = [
        ("bound by a billionth too low", proof, bound * (1 - 1e-7)),
        ("lower bound", proof, bound * float(rng.uniform(0, 1))),
        ("higher bound", proof, bound * float(rng.uniform(1.001, 2))),
    ]
    for field in ("worker_price", "ps_price", "payoff"):
        changes += [
            (f"{field}: 0", changed(field, 0.0), bound),
            (f"{field}: lower", changed(field, float(rng.uniform(0, 1))), bound),
            (f"{field}: higher", changed(field, float(rng.uniform(1, 2))), bound),
            (f"{field}: added", changed(field, 1.0, 0.25), bound),
        ]
    for field in ("cuts", "count_cuts", "slot_cuts"):
        cuts = getattr(proof, field)
        for number, cut in enumerate(cuts):
            for what, cut_fields in (
                ("higher right-hand side", {"right_hand_side": cut.right_hand_side + 1}),
                ("lower multiplier", {"multiplier": cut.multiplier * float(rng.uniform(0, 1))}),
                ("higher multiplier", {"multiplier": cut.multiplier * float(rng.uniform(1, 2))}),
            ):
                others = (*cuts[:number], replace(cut, **cut_fields), *cuts[number + 1 :])
                changes.append((what, replace(proof, **{field: others}), bound))
            others = (*cuts[:number], *cuts[number + 1 :])
            changes.append(("a cut dropped", replace(proof, **{field: others}), bound))
    return changes
