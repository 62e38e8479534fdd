"""The study of a public deadline benchmark: its rules, score and windows, and a plain engine compared with ours."""

import math
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from optim_studies.deadline_windows import cut_windows, draw_windows, main, write_windows
from optim_studies.deadlines import (
    CHANGEOVERS_H,
    COLUMNS,
    DEADLINES_H,
    DeadlineOptions,
    Guaranteed,
    Window,
    board_job,
    hazards_of,
    market_at,
    mixes_of,
    place_of,
    run_window,
    score,
    windows_of,
)

from optim.benchmarks.suite import BenchRequest, choose_suites
from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.core.progress import SilentProgress
from optim.core.stopping import Never
from optim.models.bidding.market.billing import Billing
from optim.models.bidding.market.lifetimes import AvailabilityTrace
from optim.models.bidding.market.spells import fit_spells
from optim.simulation.spot.zones import Offer, ZonePolicy, facts_of, run_zones
from optim.workloads.prices.availability_files import read_availability, read_windows
from optim.workloads.prices.trace_files import Polarity
from tests.support.public_traces import spot_file


def window(flags, zone="z"):
    return Window(zone=zone, file=f"{zone}/0", changeover_h=None, market=market_at(zone, np.asarray(flags, dtype=bool)))


def rows(**options):
    (suite,) = choose_suites(("bidding",), ("deadlines",))
    return {work.solver: work.run(Never(), SilentProgress()) for work in suite.build(BenchRequest(options=options))}


def by_hand(flags, deadline_h, changeover_h, wanted):
    """Return the dollars of a rule under the benchmark's rules as coded, tick by tick in seconds, and whether it is late.

    `wanted` maps (spot availability, allocation) to the request of the rule.
    """
    tick, work, setup = 600.0, 48 * 3600.0, round(changeover_h * 3600.0)
    held, pending, done, usd, t = "none", 0.0, 0.0, 0.0, 0
    while done < work - 1e-6:
        there = flags[t]
        if held == "spot" and not there:
            held = "none"
        ask = wanted(there, held)
        left = deadline_h * 6 - t
        if left <= math.ceil((work - done + setup) / tick - 1e-9) and held != "spot":
            ask = "demand"
        if ask != held:
            held, pending = ask, (setup if ask != "none" else 0.0)
        if held != "none":
            usd += (3.06 if held == "demand" else 0.9731) / 6
            lost = min(pending, tick)
            pending -= lost
            done += tick - lost
        t += 1
    return usd, t > deadline_h * 6


def greedy(there, held):
    del held
    return "spot" if there else "none"


class Greedy(ZonePolicy):
    """Spot whenever available, without a guard."""

    def decide(self, view):
        del view
        return (Offer(0, True),)


@example(seed=579002, share=0.34375, deadline_h=70.0, changeover_h=0.2)  # lost while set up as the time runs out
@given(
    seed=st.integers(0, 10**6),
    share=st.floats(0.02, 0.98),
    deadline_h=st.sampled_from(DEADLINES_H),
    changeover_h=st.sampled_from(CHANGEOVERS_H),
)
def test_the_engine_and_the_guarantee_bill_what_a_simulation_by_hand_does(seed, share, deadline_h, changeover_h):
    (_, _, flags) = next(iter(draw_windows(1, count=1, hours=72, tick_s=600, seed=seed)))
    flags = flags ^ (np.random.default_rng(seed).random(len(flags)) > share)
    market = market_at("z", flags)
    job = board_job(market, deadline_h, changeover_h)
    facts = facts_of(market, job, Billing.WHOLE_TICKS)
    run = run_zones(market, job, Guaranteed(facts, Greedy(facts)), 0, billing=Billing.WHOLE_TICKS)
    usd, is_late = by_hand(flags, deadline_h, changeover_h, greedy)
    assert run.cost_usd == pytest.approx(usd, rel=1e-9)
    assert (not run.deadline_met) == is_late
    guarded, forced = run_window(window(flags), "greedy-spot", job, [])
    # The policy's own guard requires all that the guarantee requires, and more while a set-up of spot machines is in
    # progress.
    assert (forced, guarded.is_late) == (0, False)


def test_the_score_is_0_on_demand_and_100_on_spot_alone():
    assert score(48 * 3.06, 0.9731) == 0.0
    assert score(48 * 0.9731, 0.9731) == pytest.approx(100.0)
    assert score(48 * (3.06 + 0.9731) / 2, 0.9731) == pytest.approx(50.0)
    assert (score(500.0, 0.9731), score(0.0, 0.9731)) == (0.0, 100.0)


def test_a_window_with_machines_throughout_costs_289_or_290_ticks_of_spot():
    for changeover_h, ticks in ((0.05, 289), (0.2, 290)):
        every = window(np.ones(420))
        for name in ("greedy-spot", "optimum"):
            problems = []
            outcome, _ = run_window(every, name, board_job(every.market, 52.0, changeover_h), problems)
            assert outcome.usd == pytest.approx(ticks * 0.9731 / 6)
            assert outcome.written_usd == pytest.approx(ticks * 0.9701 / 6)
            assert problems == []


def test_a_policy_without_a_guard_is_late_only_where_the_guarantee_leaves_it_alone():
    class Nothing(ZonePolicy):
        def decide(self, view):
            del view
            return ()

    market = market_at("z", np.zeros(420, dtype=bool))
    job = board_job(market, 52.0, 0.2)
    facts = facts_of(market, job, Billing.WHOLE_TICKS)
    guaranteed = Guaranteed(facts, Nothing(facts))
    run = run_zones(market, job, guaranteed, 0, billing=Billing.WHOLE_TICKS)
    # 312 ticks; from the tick on at which ceil(48.2 h) are left, 290 of them, on demand to the end.
    assert (run.deadline_met, run.stays[0].begin_s, guaranteed.forced) == (True, 22 * 600, 290)


def test_zones_are_halved_by_how_often_machines_are_there():
    windows = [window(np.arange(420) % 10 < share, zone) for zone, share in (("d", 9), ("a", 1), ("c", 6), ("b", 3))]
    assert mixes_of(windows) == {"scarce": ("a", "b"), "plentiful": ("c", "d"), "mixed": ("a", "b", "c", "d")}


@pytest.mark.parametrize(
    ("file", "place"),
    [
        ("us-west-2a_k80_8/7.json", ("us-west-2a_k80_8", None)),
        ("7.json", ("one zone", None)),
        ("ddl=search+task=48+overhead=0.05/real/us-west-2b_v100_1/traces/random_start/3.json", ("us-west-2b_v100_1", 0.05)),
        ("task=48+overhead=0.20+x/z/3.json", ("z", 0.2)),
    ],
)  # fmt: skip
def test_zone_and_changeover_are_told_by_the_folders(file, place):
    assert place_of(file) == place


def test_windows_that_are_written_are_read_as_they_were_cut(tmp_path):
    flags = np.random.default_rng(1).random(900) < 0.4
    trace = AvailabilityTrace(
        zone="c/us-west-2a/v100_1/availability",
        resource="v100_1",
        time_s=600 * np.arange(900),
        is_available=flags,
        price_micro=np.full(900, 5),
        on_demand_micro=9,
        end_s=540_000,
    )
    cut = list(cut_windows({trace.zone: trace}, count=7, hours=70.0, tick_s=600, seed=3))
    assert write_windows(tmp_path, iter(cut), 600) == 7
    told = {"polarity": Polarity.UNAVAILABLE, "on_demand_micro": 1_000_000}
    read = read_windows(tmp_path, **told)
    assert [name for name, _ in read] == [f"us-west-2a_v100_1/{number:03}.json" for number in range(7)]
    for (_, start, expected), (_, market) in zip(cut, read, strict=True):
        assert market.is_available[:, 0].tolist() == expected.tolist()
        first = int(market.time_s[0]) // 600
        assert start.startswith("1970-01-0")
        assert expected.tolist() == flags[first : first + 420].tolist()
    with pytest.raises(InvalidOptionError, match="has 481 windows of 70 h, but 482 are requested"):
        list(cut_windows({trace.zone: trace}, count=482, hours=70.0, tick_s=600, seed=3))


def test_a_row_has_all_variants_proven_and_nobody_beats_the_optimum():
    found = rows(zones=2, windows=1)
    assert all(record.verified for record in found.values())
    least = found["optimum"].findings
    for record in found.values():
        assert set(COLUMNS) <= set(record.findings)
        assert record.findings["mean"] == pytest.approx(np.mean([record.findings[name] for name in COLUMNS]), abs=0.01)
        assert record.findings["late"] == 0
        assert record.findings["forced"] == 0
        assert all(record.findings[name] <= least[name] for name in COLUMNS)


def test_a_folder_is_scored_and_its_bad_files_are_named(tmp_path):
    drawn = draw_windows(2, count=2, hours=70.0, tick_s=600, seed=5)
    write_windows(tmp_path, drawn, 600)
    (tmp_path / "drawn-0" / "000.json").write_text("{}")
    with pytest.raises(
        InvalidProblemError, match=r"1 of 4 traces can't be used \(--skip-bad leaves them out\): .*000\.json"
    ):
        windows_of(DeadlineOptions(folder=str(tmp_path)), 0)
    kept = windows_of(DeadlineOptions(folder=str(tmp_path), skip_bad=True), 0)
    assert [each.zone for each in kept] == ["drawn-0", "drawn-1", "drawn-1"]
    fewer = windows_of(DeadlineOptions(folder=str(tmp_path), skip_bad=True, max_windows=1), 0)
    assert [each.file for each in fewer] == ["drawn-0/001.json", "drawn-1/000.json"]
    turned = windows_of(DeadlineOptions(folder=str(tmp_path), skip_bad=True, polarity="available"), 0)
    assert (turned[0].market.is_available != kept[0].market.is_available).all()


def test_what_has_no_windows_is_said(tmp_path, caplog):
    caplog.set_level("INFO")
    (suite,) = choose_suites(("bidding",), ("deadlines",))

    def built(**options):
        caplog.clear()
        return {work.solver: work for work in suite.build(BenchRequest(options=options))}

    write_windows(tmp_path / "one", draw_windows(1, count=1, hours=70.0, tick_s=600, seed=5), 600)
    work = built(folder=str(tmp_path / "one"))["uniform-progress"]
    assert "scarce: no zone; 0 windows" in caplog.messages
    assert "means are over the 8 variants that have windows, not over all 12" in caplog.messages
    assert "nan" not in caplog.text
    assert len(set(COLUMNS) & set(work.run(Never(), SilentProgress()).findings)) == 8
    write_windows(tmp_path / "two" / "overhead=0.05", draw_windows(2, count=1, hours=70.0, tick_s=600, seed=5), 600)
    built(folder=str(tmp_path / "two"))
    assert "means are over the 6 variants that have windows, not over all 12" in caplog.messages
    built(zones=2, windows=1)
    assert "means are over" not in caplog.text


def test_policies_that_learn_know_other_zones_or_a_file_and_never_their_own(tmp_path):
    write_windows(tmp_path / "w", draw_windows(3, count=4, hours=70.0, tick_s=600, seed=5), 600)
    windows = windows_of(DeadlineOptions(folder=str(tmp_path / "w")), 0)
    assert set(hazards_of(DeadlineOptions(), windows).values()) == {None}
    found = hazards_of(DeadlineOptions(history="other-zones"), windows)
    for window in windows:
        others = [each.market.is_available[:, 0] for each in windows if each.zone != window.zone]
        assert found[window.file] == fit_spells(others, 600, source="other-zones")
    typed = [replace(each, zone=f"us-west-2{'aab'[int(each.zone[-1])]}_v100_{each.zone[-1]}") for each in windows]
    there = [each.market.is_available[:, 0] for each in typed if each.zone.startswith("us-west-2b")]
    learned = hazards_of(DeadlineOptions(history="other-zones"), typed)
    assert learned[typed[0].file] == fit_spells(there, 600, source="other-zones")  # no other types of its zone
    path = tmp_path / "history.csv"
    rows = [
        f"{t},2023-02-15T{t // 6:02}:{t % 6}0:00,{zone},{int(t % 9 > 2)},0.9"
        for zone in ("a", "b", "drawn-1")
        for t in range(120)
    ]
    path.write_text("\n".join(["tick,timestamp_local,zone,available,price_usd_per_hour", *rows, ""]))
    one = hazards_of(DeadlineOptions(history=str(path), history_zones="b"), windows)
    assert {each.source for each in one.values()} == {"1 zone, 20 h"}
    every = hazards_of(DeadlineOptions(history=str(path)), windows)
    sources = {window.zone: every[window.file].source for window in windows}
    assert sources == {"drawn-0": "3 zones, 60 h", "drawn-1": "2 zones, 40 h", "drawn-2": "3 zones, 60 h"}
    more = tmp_path / "more.csv"
    more.write_text(path.read_text().replace(",a,", ",c,").replace(",b,", ",d,"))
    both = hazards_of(DeadlineOptions(history=f"{path},{more}"), windows)
    assert {each.source for each in both.values()} == {"5 zones, 120 h", "4 zones, 80 h"}
    with pytest.raises(InvalidProblemError, match="no zone begins with x; choose another prefix"):
        hazards_of(DeadlineOptions(history=str(path), history_zones="x"), windows)
    seen = []

    class Learner(Greedy):
        def __init__(self, facts):
            super().__init__(facts)
            seen.append(facts.hazards)

    each = windows[0]
    with patch("optim_studies.deadlines.policy_class", lambda name, world: Learner):
        run_window(each, "learner", board_job(each.market, 52.0, 0.2), [], found[each.file])
    assert seen == [found[each.file]]


def test_the_command_that_cuts_windows_says_what_is_wrong(tmp_path, capsys):
    assert main(["only one"]) == 2
    assert main([str(tmp_path / "nowhere.csv"), str(tmp_path)]) == 2
    assert [line for line in capsys.readouterr().err.splitlines() if "can't be read" in line]


REFERENCE = {"greedy-spot": 31.0, "uniform-progress": 41.6, "skynomad": 43.5, "optimum": 52.3}
"""Mean scores on the benchmark's windows, which differ."""


def test_recordings_of_2022_give_scores_near_those_of_the_benchmarks_own_windows(tmp_path):
    source = spot_file("skypilot_spot_traces_2022-2023.csv.gz")
    assert main([str(source), str(tmp_path), "aws-10-26-2022", "3"]) == 0
    assert len(read_availability(tmp_path / "us-west-2a_k80_8", polarity=Polarity.UNAVAILABLE, on_demand_micro=1)) == 3
    found = rows(folder=str(tmp_path))
    means = {name: found[name].findings["mean"] for name in REFERENCE}
    assert sorted(means, key=means.__getitem__) == list(REFERENCE)
    for name, expected in REFERENCE.items():
        assert abs(means[name] - expected) < 12, f"{name}: {means[name]}, {expected} there"
