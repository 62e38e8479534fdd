"""Rounds of a campaign: who is left meets more, until enough is caught; what is known isn't asked again."""

from collections import Counter

import pytest

from tests.mutants.campaign import Campaign
from tests.mutants.faults import faults_of
from tests.mutants.findings import Notebook, caught_share, table
from tests.mutants.lane import ROOT
from tests.mutants.rounds import Round, counted, planned

MODULE = "optim/core/frames.py"
FAULTS = faults_of(MODULE, (ROOT / MODULE).read_bytes())[:10]


class Lanes:
    """One lane without tests: some faults are noticed in the round that is named for them."""

    def __init__(self, noticed):
        self.noticed, self.asked = noticed, []

    def map(self, work, faults):
        for fault in faults:
            work(self, fault)

    def meet(self, fault, tests, how):
        self.asked.append((FAULTS.index(fault), how.name))
        return tests[0] if self.noticed.get(FAULTS.index(fault)) == how.name else ""


def held(folder, noticed, *, is_prove=True, least=0.0, suite="the same"):
    """Hold a campaign's rounds; return it and what was asked."""
    notebook = Notebook(folder / "findings" / "lines.jsonl", suite)
    campaign = Campaign(FAULTS, notebook, counted("all", is_prove), least)
    lanes = Lanes(noticed)
    for how in planned("all", is_prove):
        campaign.hold(how, {fault: ["tests/test_it.py"] for fault in FAULTS}, lanes)
    return campaign, lanes.asked


def test_long_tests_come_after_the_quick_ones_near_by():
    assert [one.name for one in planned("near", is_prove=False)] == ["own file", "own folder", "near"]
    assert [one.name for one in planned("near", is_prove=True)] == [
        "own file", "own folder", "near", "own file, prove", "own folder, prove", "near, prove",
    ]  # fmt: skip
    assert set(planned("all", is_prove=True)) < set(counted("all", is_prove=True))
    assert Round("near").profile == ()
    assert "prove or not prove" in Round("near", is_prove=True).profile


def test_only_who_is_left_meets_the_next_round(tmp_path):
    noticed = {0: "own file", 1: "own folder", 2: "own file, prove", 3: "all, prove"}
    campaign, asked = held(tmp_path, noticed)
    rounds = [one.name for one in planned("all", is_prove=True)]
    for number, fault in enumerate(FAULTS):
        met = [name for one, name in asked if one == number]
        last = noticed.get(number, rounds[-1])
        assert met == rounds[: rounds.index(last) + 1]
        assert campaign.stages[fault] == noticed.get(number, "survived")


@pytest.mark.parametrize(("least", "asked"), [(0.5, 5), (0.6, 6), (0.7, 10 + 1), (0.9, 10 + 4 + 3 * 5)])
def test_ends_once_enough_is_caught_for_certain(tmp_path, least, asked):
    noticed = dict.fromkeys(range(6), "own file") | {6: "own folder"}
    campaign, met = held(tmp_path, noticed, least=least)
    assert len(met) == asked
    assert campaign.is_decided == (least <= 0.7)


def test_what_is_known_is_not_asked_again(tmp_path):
    noticed = {0: "own file", 1: "all, prove"}
    first, _ = held(tmp_path, noticed)
    again, asked = held(tmp_path, noticed)
    assert again.stages == first.stages
    assert asked == []


def test_what_passed_other_tests_is_asked_again_and_what_they_noticed_is_not(tmp_path):
    held(tmp_path, {0: "own file", 1: "all, prove"})
    _, asked = held(tmp_path, {}, suite="another")
    assert {number for number, _ in asked} == set(range(2, 10))


def test_what_only_long_tests_notice_does_not_count_for_quick_ones(tmp_path):
    held(tmp_path, {0: "own file", 1: "all, prove"})
    campaign, asked = held(tmp_path, {}, is_prove=False)
    assert Counter(campaign.stages.values()) == {"own file": 1, "survived": 9}
    assert (1, "all") in asked
    assert (1, "near") not in asked, "it passed these"


def test_the_table_counts_what_is_caught_of_what_can_be():
    stages = dict(zip(FAULTS, ["own file", "own file", "near, prove", "survived", "equivalent"], strict=False))
    text = table(stages, ["own file", "near, prove"])
    assert "| core | 2 | 1 | 1 | 1 | 75% |" in text
    assert caught_share(Counter(stages.values())) == 0.75
