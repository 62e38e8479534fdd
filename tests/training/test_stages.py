"""Stages by thresholds and by the model of throughput; partitions and layouts."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from optim.core.errors import InvalidOptionError
from optim.training.stages import (
    STORAGE,
    Fixed,
    Stage,
    Thresholds,
    ThroughputModel,
    assign_balanced,
    assign_roles,
)


@pytest.mark.parametrize(
    ("reliable", "transient", "stage"),
    [
        (4, 0, Stage.RELIABLE),
        (4, 4, Stage.RELIABLE),
        (4, 5, Stage.BACKED_UP),
        (4, 60, Stage.BACKED_UP),
        (4, 61, Stage.TRANSIENT),
        (1, 63, Stage.TRANSIENT),
        (0, 9, Stage.TRADITIONAL),
    ],
)
def test_default_thresholds_are_one_and_fifteen(reliable, transient, stage):
    assert Thresholds().stage(reliable, transient) is stage


def test_thresholds_out_of_order_are_refused():
    with pytest.raises(InvalidOptionError, match="0 <= second <= third, got 3 and 2"):
        Thresholds(second=3, third=2)


def of_shape(work, copying, reliable=16):
    """A model by its two free numbers: D / (R u) and m / u, where u = U / B and m = M / (R B)."""
    return ThroughputModel(work_s=work * reliable, worker_mb=1.0, model_mb=copying * reliable, bandwidth_mb_per_s=1.0)


@given(st.floats(1, 30), st.floats(0.01, 2))
def test_the_derived_thresholds_have_a_closed_form(work, copying):
    """Stage 2 pays from (1 + x)^2 = D / (R u) on, stage 3 from D / (x R) = the time of stage 2 on."""
    reliable = 16
    thresholds = of_shape(work, copying).thresholds(reliable, max_transient=600)
    third = min(work - 1, work / (1 + copying))
    second = max(1.0, copying, math.sqrt(work) - 1)
    if third > second + 2 / reliable:
        assert thresholds.second == pytest.approx(second, abs=1.01 / reliable)
        assert thresholds.third == pytest.approx(third, abs=1.01 / reliable)


positive = st.floats(0.01, 100)


@given(positive, positive, positive, st.integers(1, 9), st.integers(1, 12), st.none() | st.integers(1, 40))
@example(23.0, 0.05, 1.0, 1, 5, 3)
def test_thresholds_are_the_models_own_choice_where_stages_are_in_order(work, traffic, size, every, reliable, actives):
    model = ThroughputModel(
        work_s=work, worker_mb=traffic, model_mb=size, bandwidth_mb_per_s=1.0, sync_every=every, max_actives=actives
    )
    chosen = [model.stage(reliable, transient) for transient in range(201)]
    order = ["reliable", "backed-up", "transient"]
    if [order.index(stage) for stage in chosen] == sorted(order.index(stage) for stage in chosen):
        simple = model.thresholds(reliable, max_transient=200)
        assert [simple.stage(reliable, transient) for transient in range(201)] == chosen
    else:
        with pytest.raises(InvalidOptionError, match="a lower stage becomes the fastest again; give the model itself"):
            model.thresholds(reliable, max_transient=200)


def test_a_stage_that_never_ends_counts_up_to_the_most_machines_looked_at():
    """In closed form stage 2 pays from 4.5 transient machines for each of 16, stage 3 from 20."""
    model = of_shape(30.0, 0.5)
    assert model.thresholds(16, max_transient=50) == Thresholds(second=50 / 16, third=50 / 16)
    between = model.thresholds(16, max_transient=100)
    assert (between.second, between.third) == (pytest.approx(4.5, abs=1 / 16), 100 / 16)


@given(st.floats(1, 40), st.floats(0.01, 2))
def test_one_to_one_and_fifteen_to_one_never_follow_together(work, copying):
    """At most (second + 1)^2 - 1 is the third: from 1 follows at most 3, and 15 needs at least 3."""
    thresholds = of_shape(work, copying).thresholds(16, max_transient=800)
    if thresholds.third > thresholds.second:
        assert thresholds.third <= (thresholds.second + 1 + 1 / 16) ** 2 - 1 + 1 / 16


def test_serving_sixty_from_four_machines_costs_most_of_the_speed():
    model = ThroughputModel(work_s=52.0, worker_mb=50.0, model_mb=200.0, bandwidth_mb_per_s=120.0)
    traditional = model.iteration_s(Stage.TRADITIONAL, 4, 60)
    assert model.iteration_s(Stage.RELIABLE, 4, 60) > 5 * traditional
    assert model.iteration_s(model.stage(4, 60), 4, 60) < 1.2 * traditional


@given(st.floats(0.1, 1e3), st.floats(0.1, 1e3), st.floats(0.1, 1e3), st.integers(1, 8), st.integers(0, 64))
def test_the_chosen_stage_is_never_slower_than_another(work, traffic, size, reliable, transient):
    model = ThroughputModel(work_s=work, worker_mb=traffic, model_mb=size, bandwidth_mb_per_s=100.0)
    chosen = model.iteration_s(model.stage(reliable, transient), reliable, transient)
    for stage in (Stage.RELIABLE, Stage.BACKED_UP, Stage.TRANSIENT):
        assert chosen <= model.iteration_s(stage, reliable, transient)


SIX_MACHINES = {
    Stage.RELIABLE: (10.0, 0.9),
    Stage.BACKED_UP: (10.0, 0.9),
    Stage.TRANSIENT: (15.0, 0.6),
    Stage.TRADITIONAL: (10.0, 0.3),
    Stage.SEPARATE: (15.0, 0.6),
}
"""Seconds of an iteration of two reliable and four transient machines, by computing and by carrying."""


@pytest.mark.parametrize("stage", SIX_MACHINES)
def test_the_slowest_of_computing_serving_and_backing_up_decides(stage):
    rest = {"worker_mb": 30.0, "model_mb": 240.0, "bandwidth_mb_per_s": 100.0, "sync_every": 2, "max_actives": 3}
    computing, carrying = SIX_MACHINES[stage]
    assert ThroughputModel(work_s=60.0, **rest).iteration_s(stage, 2, 4) == pytest.approx(computing)
    model = ThroughputModel(work_s=0.06, **rest)
    assert model.iteration_s(stage, 2, 4) == pytest.approx(carrying)
    few = ThroughputModel(**{**rest, "max_actives": 1}, work_s=0.06).iteration_s(stage, 2, 4)
    served_by_one = {Stage.BACKED_UP: 1.8, Stage.TRANSIENT: 1.2}
    assert few == pytest.approx(served_by_one.get(stage, carrying))


def test_a_stage_that_is_never_left_counts_up_to_the_most_machines():
    computing = ThroughputModel(work_s=1e9, worker_mb=1.0, model_mb=1.0, bandwidth_mb_per_s=1.0)
    assert computing.thresholds(2, max_transient=10) == Thresholds(second=5.0, third=5.0)


def test_a_stage_without_its_machines_takes_for_ever():
    model = ThroughputModel(work_s=1.0, worker_mb=1.0, model_mb=1.0, bandwidth_mb_per_s=1.0)
    impossible = [(Stage.RELIABLE, 0, 3), (Stage.BACKED_UP, 2, 0), (Stage.TRANSIENT, 0, 3), (Stage.TRADITIONAL, 0, 0)]
    assert all(model.iteration_s(*case) == math.inf for case in impossible)
    assert model.iteration_s(Stage.RELIABLE, 2, 0) == pytest.approx(1.0)


def test_a_model_without_bandwidth_is_refused():
    with pytest.raises(InvalidOptionError, match="bandwidth_mb_per_s must be positive"):
        ThroughputModel(work_s=1, worker_mb=1, model_mb=1, bandwidth_mb_per_s=0)


def test_nobody_to_deal_to_is_an_error():
    with pytest.raises(InvalidOptionError, match="at least one machine"):
        assign_balanced(3, [])


@pytest.mark.parametrize(
    ("stage", "servers", "backups", "workers"),
    [
        (Stage.RELIABLE, {"r0", "r1"}, {STORAGE}, {"r0", "r1", "t0", "t1", "t2"}),
        (Stage.BACKED_UP, {"t0", "t1", "t2"}, {"r0", "r1"}, {"r0", "r1", "t0", "t1", "t2"}),
        (Stage.TRANSIENT, {"t0", "t1", "t2"}, {"r0", "r1"}, {"t0", "t1", "t2"}),
        (Stage.TRADITIONAL, {"r0", "r1", "t0", "t1", "t2"}, {STORAGE}, {"r0", "r1", "t0", "t1", "t2"}),
        (Stage.SEPARATE, {"r0", "r1"}, {STORAGE}, {"t0", "t1", "t2"}),
    ],
)
def test_each_stage_has_its_layout(stage, servers, backups, workers):
    roles = assign_roles(stage, ["r0", "r1"], ["t0", "t1", "t2"], 6)
    assert (set(roles.servers), set(roles.backups), set(roles.workers)) == (servers, backups, workers)


def test_a_limit_on_actives_holds():
    roles = assign_roles(Stage.BACKED_UP, ["r0"], ["t0", "t1", "t2"], 6, max_actives=2)
    assert len(set(roles.servers)) == 2


def test_shards_stay_where_they_are_when_machines_join():
    before = assign_roles(Stage.BACKED_UP, ["r0"], ["t0", "t1"], 4)
    after = assign_roles(Stage.BACKED_UP, ["r0"], ["t9", "t0", "t1"], 4, previous=before)
    assert sum(map(str.__ne__, before.servers, after.servers)) == 1


def test_a_fixed_stage_needs_its_machines():
    assert Fixed(fixed=Stage.TRANSIENT).stage(2, 0) is Stage.RELIABLE
    assert Fixed(fixed=Stage.TRANSIENT).stage(0, 2) is Stage.TRADITIONAL
    assert Fixed(fixed=Stage.TRADITIONAL).stage(2, 2) is Stage.TRADITIONAL
