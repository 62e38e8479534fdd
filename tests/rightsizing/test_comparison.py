"""Rows of a comparison: equal requirements, intervals that hold, and the savings one can work out by hand."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest

from optim.core.errors import InvalidOptionError
from optim.core.solution import Termination
from optim.rightsizing import (
    CalibrationTestSplit,
    Measure,
    PhaseLabels,
    Slo,
    compare_policies,
    make_plan,
    make_world,
    measure,
)
from optim.rightsizing.comparison import resamples
from optim.rightsizing.tuning import requirement_on
from optim.workloads.containers import ContainerOptions, generate_containers
from tests.support.containers.worlds import world_of

PAPERS = Slo(measure=Measure.UNDER_TIME)
HARM = Slo(kills=0.2)


@pytest.fixture(scope="module")
def drawn():
    """Fifty generated containers whose true phases are known: thirty to learn from, ten to tune on, ten to test on."""
    series = generate_containers(ContainerOptions(num_containers=50), seed=1)
    training = series.select(np.arange(30))
    worlds = []
    for chosen in (np.arange(40, 50), np.arange(30, 40)):
        own = series.select(chosen)
        phases = PhaseLabels(labels=own.phase, training=training.phase, num_phases=5)
        worlds.append(make_world(own, training, phases))
    return CalibrationTestSplit(calibration=worlds[0], test=worlds[1])


def rows_of(trial, *names, wanted=HARM, seed=0):
    found = compare_policies(trial, names, wanted, num_resamples=100, seed=seed)
    return {(row.policy, row.resource): row for rows in found for row in rows}


@pytest.mark.parametrize("wanted", [HARM, PAPERS])
def test_every_policy_meets_the_same_requirement_where_it_is_tuned(drawn, wanted):
    rows = rows_of(drawn, "prev-step-rules", "phase-rule", "phase-price", "vpa", wanted=wanted)
    assert len(rows) == 12
    assert all(row.is_reached for row in rows.values())
    is_met = requirement_on(drawn.calibration, wanted, 0)
    for name in ("prev-step-rules", "phase-rule", "phase-price", "vpa"):
        tuned = np.array([rows[name, resource].multiplier for resource in ("cpu", "memory")])
        plan = make_plan(drawn.calibration, name)
        assert is_met(plan.allocate(tuned)).all()
        assert not is_met(plan.allocate(0.98 * tuned)).all()


def test_rows_say_what_is_required_and_what_tuning_guarantees(drawn):
    """Of ten containers tuned on, 1 / 11 is the least share that can be promised."""
    wanted = Slo(kills=0.2, throttled=0.05)
    rows = rows_of(drawn, "holt", "clairvoyant", wanted=wanted)
    found = {key: (row.required, row.guaranteed, row.num_tuned) for key, row in rows.items()}
    assert found["holt", "cpu"] == (0.05, pytest.approx(1 / 11), 10)
    assert found["holt", "memory"] == (0.2, 0.2, 10)
    assert found["holt", "all"] == (None, None, 10)
    assert found["clairvoyant", "memory"] == (0.2, None, 10)
    for row in rows_of(drawn, "holt", wanted=PAPERS).values():
        assert row.guaranteed is None
        assert row.required == (None if row.resource == "all" else PAPERS.under_time)
    by_time = rows_of(replace(drawn, is_by_time=True), "holt", wanted=wanted)
    assert {row.guaranteed for row in by_time.values()} == {None}
    strict = Slo(kills=1e-6, throttled=1e-6)
    for row in rows_of(drawn, "phase-price", wanted=strict).values():
        assert row.guaranteed == (pytest.approx(1 / 11) if row.is_reached and row.resource != "all" else None)


def test_figures_are_those_of_the_tuned_policy_on_the_test_containers(drawn):
    rows = rows_of(drawn, "holt")
    multiplier = np.array([rows["holt", name].multiplier for name in ("cpu", "memory")])
    world = drawn.test
    outcome = measure(world, make_plan(world, "holt").allocate(multiplier))
    days = world.lengths.sum() * 15 / 86400
    cpu, memory = rows["holt", "cpu"], rows["holt", "memory"]
    assert cpu.per_day == pytest.approx(outcome.violations.throttled[:, 0].sum() / 240 / days)
    assert memory.per_day == pytest.approx(outcome.violations.kills[:, 1].sum() / days)
    assert memory.restart_h_per_day == pytest.approx(outcome.violations.restart_s.sum() / 3600 / days)
    assert (cpu.per_day_unit, memory.per_day_unit) == ("h throttled", "kills")
    whole = outcome.allocation + outcome.violations.charge
    assert memory.total_allocation == pytest.approx(whole[:, 1].sum() * 15 / 3600)
    assert memory.charge_over_demand == pytest.approx(
        outcome.violations.charge[:, 1].sum() / world.values[..., 1].sum()
    )
    telling = world.lengths > world.cycle_samples
    assert memory.risk == pytest.approx(outcome.violations.post_warmup[telling, 1].mean())
    for row in (cpu, memory):
        assert row.risk_low <= row.risk <= row.risk_high
        assert row.per_day_low <= row.per_day <= row.per_day_high


def test_the_papers_measure_charges_no_restarts(drawn):
    rows = rows_of(drawn, "holt", wanted=PAPERS)
    assert rows["holt", "memory"].kills > 0
    assert rows["holt", "memory"].charge_over_demand == 0.0
    assert rows["holt", "memory"].risk == rows["holt", "memory"].under_time


def test_no_policy_saves_more_than_the_bound_at_its_own_harm(drawn):
    rows = rows_of(drawn, "clairvoyant", "oracle-zero-violation", "current-step-max")
    for resource in ("cpu", "memory", "all"):
        best, safe = rows["clairvoyant", resource], rows["oracle-zero-violation", resource]
        assert safe.most <= best.most
        assert best.reduction <= best.most + 1e-9
        assert safe.reduction <= safe.most + 1e-9
        assert rows["current-step-max", resource].reduction <= best.most


def test_reductions_are_against_the_reference(drawn):
    rows = rows_of(drawn, "phase-price", "prev-step-rules")
    for resource in ("cpu", "memory", "all"):
        own, reference = rows["phase-price", resource], rows["prev-step-rules", resource]
        assert own.reduction == pytest.approx(1 - own.total_allocation / reference.total_allocation)
        assert own.reduction_low <= own.reduction <= own.reduction_high
        assert reference.reduction == reference.reduction_low == reference.reduction_high == 0.0


def test_the_same_seed_gives_the_same_rows_whatever_else_is_compared(drawn):
    assert rows_of(drawn, "holt")["holt", "all"] == rows_of(drawn, "vpa", "holt")["holt", "all"]
    assert rows_of(drawn, "holt", seed=1) != rows_of(drawn, "holt")


def test_resamples_hold_as_many_containers_as_there_are(drawn):
    counts = resamples(drawn.test, 50, np.random.default_rng(0))
    assert counts.shape == (50, 10)
    assert (counts.sum(axis=1) == 10).all()


def test_known_savings_on_constant_demand():
    """At demand 2, all policies need 0.95 x 2 = 1.9; the first cycle is the same for all."""
    world = world_of([np.full(40, 2.0)] * 3)
    rows = rows_of(CalibrationTestSplit(calibration=world, test=world), "prev-step-max", "static", wanted=PAPERS)
    for row in rows.values():
        assert row.reduction == pytest.approx(1 - (2 + 9 * 1.9) / (2 + 9 * 2.0))


def test_a_resource_that_nobody_uses_saves_nothing_and_costs_nothing():
    used = np.tile([2.0, 1.0, 3.0], 8)
    world = world_of([np.stack([used, np.zeros(24)], axis=1)] * 3)
    names = ("prev-step-rules", "quantile-95", "level-price", "clairvoyant")
    rows = rows_of(CalibrationTestSplit(calibration=world, test=world), *names)
    for name in names:
        own = rows[name, "memory"]
        assert (own.reduction, own.reduction_low, own.reduction_high) == (0.0, 0.0, 0.0)
        assert own.total_allocation == 0.0
        assert own.allocation_over_demand == 1.0
        cpu = rows[name, "cpu"].allocation_over_demand
        assert rows[name, "all"].total_allocation == pytest.approx((cpu + 1.0) / 2)


def test_an_unknown_policy_is_refused_before_any_work():
    world = world_of([np.ones(8)])
    with pytest.raises(InvalidOptionError, match="unknown policy"):
        compare_policies(CalibrationTestSplit(calibration=world, test=world), ["best"], HARM, num_resamples=1, seed=0)


@dataclass
class Hurried:
    """An engine that requests the stop of a policy, given by name, after a number of checks."""

    name: str
    questions: int

    def run(self, task, pieces, stop, progress):
        """Do the pieces, in order."""
        for position, piece in enumerate(pieces):
            left = [self.questions if piece == self.name else math.inf]

            def rule(state, left=left):
                left[0] -= 1
                return Termination.INTERRUPTED if left[0] < 0 else None

            yield position, task.do(piece, rule, progress)


@pytest.mark.parametrize("questions", [0, 5])
def test_a_policy_that_is_stopped_has_no_rows_and_the_others_keep_theirs(drawn, questions):
    names = ("prev-step-rules", "holt", "static")
    engine = Hurried("holt", questions)
    found = compare_policies(drawn, names, HARM, num_resamples=10, seed=0, engine=engine)
    assert [rows[0].policy for rows in found] == ["prev-step-rules", "static"]


def test_without_the_reference_there_is_nothing_to_compare_with(drawn):
    engine = Hurried("prev-step-rules", 3)
    assert list(compare_policies(drawn, ("static",), HARM, num_resamples=10, seed=0, engine=engine)) == []


def test_a_bound_is_not_begun_once_the_work_is_to_stop(drawn):
    engine = Hurried("clairvoyant", 0)
    found = compare_policies(drawn, ("clairvoyant", "static"), HARM, num_resamples=10, seed=0, engine=engine)
    assert [rows[0].policy for rows in found] == ["static"]
