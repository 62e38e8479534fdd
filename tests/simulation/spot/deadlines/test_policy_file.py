"""Spells by hand, and a policy's file: written values are read back, and implausible ones are rejected."""

import json
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.deadlines import (
    AvailabilityTrace,
    DeadlinePolicy,
    DeadlineView,
    Machines,
    SpellHazards,
    fit_traces,
    prior_hazards,
)
from optim.models.bidding.market.billing import Billing
from optim.models.bidding.market.spells import count_spells, fit_spells
from optim.simulation.spot.deadline_policy import CHOICES
from optim.solvers.bidding.deadline_table import check_table

JOB = {"work_s": 36_000, "deadline_s": 45_000, "setup_s": 720, "spot_usd": 1.0, "on_demand_usd": 3.0}


def trace(letters, tick_s=600, zone="z"):
    return AvailabilityTrace(
        zone=zone,
        resource="",
        time_s=tick_s * np.arange(len(letters)),
        is_available=np.array([letter == "x" for letter in letters]),
        price_micro=np.ones(len(letters), dtype=np.int64),
        on_demand_micro=3,
        end_s=tick_s * len(letters),
    )


def test_spells_are_counted_by_age_without_the_first_and_the_last_as_long_as_it_was_seen():
    flags = np.array([letter == "x" for letter in "--xxx-xx--x"])
    risk, ended = count_spells(flags, 2)
    # Of machines: three ticks and two ended, one cut off; of absence: one tick, and two; the first is of unknown age.
    assert risk.tolist() == [[2, 1], [2, 3]]
    assert ended.tolist() == [[1, 1], [0, 2]]


def test_hazards_of_many_spells_are_those_they_were_drawn_by():
    true = SpellHazards(tick_s=600, hazard=np.array([[0.4] + [0.1] * 23, [0.3] + [0.05] * 23]))
    found = fit_spells([true.draw(20_000, np.random.default_rng(seed)) for seed in range(3)], 600)
    assert found.hazard == pytest.approx(true.hazard, abs=0.02)
    assert found.share == pytest.approx(true.share, abs=0.03)


def test_without_ends_the_prior_is_left_and_other_ticks_are_sampled():
    assert fit_traces([trace("xxxxxxxx")], 600).source == ""
    assert prior_hazards(600).hazard[0, :2] == pytest.approx([0.3, 0.3 / 2**0.75])
    fine, coarse = fit_traces([trace("xx----xx--xx" * 9, 300)], 600), fit_traces([trace("x--x-x" * 9)], 600)
    assert fine.hazard == pytest.approx(coarse.hazard)
    twice = prior_hazards(600).every(300)
    assert (1 - twice.hazard[1, 0]) * (1 - twice.hazard[1, 1]) == pytest.approx(0.7)


def test_a_spell_met_in_the_long_run_ends_as_renewal_theory_says():
    hazards = SpellHazards(tick_s=600, hazard=np.array([[1.0, 1.0, 1.0], [1 / 3, 0.5, 1.0]]))
    # Equally many spells of lengths 1, 2 and 3: of six ticks three are the last of their spell, two the last but one,
    # one the one before.
    assert hazards.first_hazard(3)[:, 1] == pytest.approx([1 / 2, 2 / 3, 1.0])
    assert hazards.mean_ticks.tolist() == pytest.approx([1.0, 2.0])


def test_a_policy_is_read_as_it_was_written(tmp_path):
    policy = DeadlinePolicy.fit([trace("xxx--x----xx" * 20)], **JOB, spare_s=600)
    policy.save(tmp_path / "policy.npz")
    assert DeadlinePolicy.load(tmp_path / "policy.npz") == policy


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hazard": np.full((2, 24), 1.5)}, "hazards must be probabilities"),
        ({"entries": np.zeros((3, 50), np.uint8)}, "entries must be integers of shape"),
        ({"mean_usd": np.array([-1.0, 2.0])}, "mean costs"),
        ({"mean_usd": np.array([np.inf, 2.0])}, "mean costs"),
        ({"mean_usd": np.array(["1", "2"])}, "mean_usd has type <U1"),
        ({"low": np.zeros(75, np.complex128)}, "low has type complex128"),
        ({"begin": np.zeros(76)}, "begin has type float64"),
        ({"head": np.array(json.dumps({"format": "other"}))}, "not a policy file of this version"),
        ({"begin": np.zeros(4, np.int64)}, "the rows don't match the job"),
    ],
)
def test_a_file_that_cannot_be_trusted_is_refused(tmp_path, change, message):
    path = tmp_path / "policy.npz"
    DeadlinePolicy.fit([], **JOB).save(path)
    with np.load(path) as file:
        parts = dict(file)
    np.savez(path, **(parts | change))
    with pytest.raises(InvalidProblemError, match=message):
        DeadlinePolicy.load(path)


@pytest.mark.parametrize(
    ("about", "value", "message"),
    [
        ("spare_s", -600, "spare_s must be an integer number of seconds"),
        ("spare_s", float("nan"), "spare_s must be an integer number of seconds"),
        ("unit_s", 0, "units of 0 s"),
        ("unit_s", 10**9, "units of"),
        ("unit_s", 1, "units of 1 s are shorter"),
        ("job", {"work_s": 10**12, "deadline_s": 2 * 10**12}, "too many entries"),
        ("job", {"spot_usd": "1"}, "spot_usd must be dollars"),
    ],
)
def test_a_head_that_cannot_be_trusted_is_refused(tmp_path, about, value, message):
    path = tmp_path / "policy.npz"
    DeadlinePolicy.fit([], **JOB).save(path)
    with np.load(path) as file:
        parts = dict(file)
    head = json.loads(str(parts["head"]))
    head[about] = head[about] | value if isinstance(value, dict) else value
    np.savez(path, **(parts | {"head": np.array(json.dumps(head))}))
    with pytest.raises(InvalidProblemError, match=message):
        DeadlinePolicy.load(path)


def test_bytes_that_were_changed_end_in_one_kind_of_error(tmp_path):
    path, rng = tmp_path / "policy.npz", np.random.default_rng(0)
    DeadlinePolicy.fit([], **JOB).save(path)
    written = path.read_bytes()
    for _ in range(100):
        spoilt = bytearray(written)
        for at in rng.integers(0, len(written), 3):
            spoilt[at] = rng.integers(256)
        path.write_bytes(spoilt)
        with suppress(InvalidProblemError):
            DeadlinePolicy.load(path)


@pytest.mark.parametrize(
    "change", [{"spare_s": -600}, {"spare_s": "1"}, {"deadline_s": None}, {"billing": "x"}, {"spot_usd": "1"}]
)
def test_options_out_of_their_range_are_named(change):
    with pytest.raises(InvalidOptionError, match=f"^{next(iter(change))} must be"):
        DeadlinePolicy.fit([], **(JOB | change))


def test_what_is_no_file_of_a_policy_is_refused(tmp_path):
    (tmp_path / "text.npz").write_text("no")
    with pytest.raises(InvalidProblemError, match="not a policy file"):
        DeadlinePolicy.load(tmp_path / "text.npz")


@pytest.mark.parametrize("value", [0, 1, 3, 255])
def test_entries_that_would_be_late_are_found(value):
    table = DeadlinePolicy.fit([], **JOB).table
    assert check_table(table) == []
    assert check_table(replace(table, entries=np.full_like(table.entries, value))) != []


def test_what_is_decided_is_the_entry_of_the_spells_age():
    policy = DeadlinePolicy.fit([], **JOB)
    columns = np.arange(policy.table.entries.shape[1])
    marked = replace(policy.table, entries=np.broadcast_to(columns % 3, policy.table.entries.shape).astype(np.uint8))
    told = replace(policy, table=marked)
    for is_available in (False, True):
        for age in (*range(24), None):
            column = (24 if age is None else age) + 25 * is_available
            view = DeadlineView(600.0, 36_000.0, is_available, spell_s=None if age is None else 600.0 * age)
            assert CHOICES.index(told.decide(view)) == column % 3


@pytest.mark.parametrize("setup_s", [0, 720])
def test_bills_by_the_started_hour_recur_every_hour(setup_s):
    job = JOB | {"setup_s": setup_s}
    policy = DeadlinePolicy.fit([], **job, billing=Billing.AWS_2009)
    for held in (Machines.SPOT, Machines.ON_DEMAND):
        answers = [
            [
                policy.decide(DeadlineView(tick * 600.0, left_s, True, held, 0.0, held_s, 600.0))
                for tick in range(30, 75)
                for left_s in range(600, 36_000, 600)
            ]
            for held_s in range(3600, 5 * 3600, 600)
        ]
        assert answers[6:] == answers[:-6]
        assert held is Machines.SPOT or answers[0] != answers[5]


def test_a_lease_without_an_age_is_as_young_as_its_set_up_says():
    policy = DeadlinePolicy.fit([], **JOB, billing=Billing.AWS_2009)
    for tick in range(2, 75):
        for left_s in range(600, 36_000, 600):
            view = DeadlineView(tick * 600.0, left_s, True, Machines.ON_DEMAND)
            assert policy.decide(view) == policy.decide(view._replace(held_s=1200.0))
