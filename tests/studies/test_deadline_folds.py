"""The study on held-out recordings: its folds, starts, costs and comparisons."""

import numpy as np
import pytest
from optim_studies.deadline_folds import (
    KINDS,
    SETTINGS,
    SPEC,
    FoldOptions,
    Recording,
    folds_of,
    hazards_for,
    kept_costs,
    recordings_of,
    room_won,
    run_starts,
    starts_of,
)
from optim_studies.deadlines import TICK_S, WAYS, board_job, market_at

from optim.benchmarks.suite import BenchRequest
from optim.core.errors import InvalidProblemError
from optim.core.progress import SilentProgress
from optim.core.stopping import Never
from optim.models.bidding.market.billing import Billing
from optim.models.bidding.market.spells import fit_spells
from optim.simulation.spot.policies import policy_class
from optim.simulation.spot.zones import facts_of, run_zones
from tests.support.public_traces import spot_file

SMALL = {"every": 72, "drawn_hours": 80.0}


def recording(campaign, series, seed):
    flags = np.cumsum(np.random.default_rng(seed).random(500) < 0.1) % 2 == 0
    return Recording(campaign=campaign, series=f"{campaign}/{series}/availability", begin_s=0, flags=flags)


RECORDINGS = (
    recording("one", "a/v100_1", 1),
    recording("one", "a/k80_1", 2),
    recording("one", "b/v100_1", 3),
    recording("two", "a/v100_1", 4),
    recording("two", "c/v100_1", 5),
)


@pytest.mark.parametrize(
    ("fold", "tested", "learned"),
    [("one-other-zones", 0, [2]), ("one-other-zones", 2, [0, 1]), ("one-from-two", 0, [3, 4]), ("two-from-one", 3, [0, 1, 2])],
)  # fmt: skip
def test_nothing_is_learned_of_the_zone_or_the_campaign_that_is_played(fold, tested, learned):
    chosen = folds_of(FoldOptions(campaigns="one,two"))[fold]
    found = hazards_for(chosen, RECORDINGS[tested], RECORDINGS)
    assert found == fit_spells([RECORDINGS[k].flags for k in learned], TICK_S, source=fold)


def test_wrong_hazards_are_the_right_ones_changed():
    fold = folds_of(FoldOptions(campaigns="one,two"))["one-from-two"]
    right, high, low, turned, prior, own = (hazards_for(fold, RECORDINGS[0], RECORDINGS, kind) for kind in KINDS)
    assert np.array_equal(high.hazard, np.minimum(1.0, 10 * right.hazard))
    assert np.allclose(low.hazard, 0.1 * right.hazard)
    assert np.array_equal(turned.hazard, right.hazard[:, ::-1])
    assert prior is None
    assert np.array_equal(own.hazard, fit_spells([RECORDINGS[0].flags], TICK_S).hazard)


@pytest.mark.parametrize("name", WAYS)
def test_costs_are_those_of_the_engine_from_every_start(name):
    market, setting = market_at("z", RECORDINGS[0].flags), (52.0, 0.2)
    assert list(starts_of(market, 52.0, 60)) == [0, 60, 120, 180]  # of 500 ticks 312 are the deadline's
    costs, problems = run_starts(name, market, setting, None, 60)
    assert not problems
    assert len(costs) == 4
    if name == "optimum":
        everything = [run_starts(other, market, setting, None, 60)[0] for other in WAYS]
        assert (costs <= np.min(everything, axis=0)).all()
        return
    job = board_job(market, *setting)
    for first, cost in zip((0, 60, 120, 180), costs, strict=True):
        policy = policy_class(name, "zones")(facts_of(market, job, Billing.WHOLE_TICKS))
        assert run_zones(market, job, policy, first, billing=Billing.WHOLE_TICKS).cost_usd == cost


def test_costs_that_were_kept_are_not_run_again_and_belong_to_what_they_were_run_for(tmp_path):
    options = FoldOptions(every=90, keep=str(tmp_path / "kept"))
    costs, _ = kept_costs(options, "greedy-spot", RECORDINGS[0], SETTINGS[3], None)
    (path,) = (tmp_path / "kept").iterdir()
    np.save(path, costs + 1.0)
    again, _ = kept_costs(options, "greedy-spot", RECORDINGS[0], SETTINGS[3], None)
    assert np.array_equal(again, costs + 1.0)
    kept_costs(options, "greedy-spot", RECORDINGS[1], SETTINGS[3], None)
    kept_costs(options, "greedy-spot", RECORDINGS[0], SETTINGS[2], None)
    for hazards in (fit_spells([RECORDINGS[1].flags], TICK_S), fit_spells([RECORDINGS[2].flags], TICK_S)):
        kept_costs(options, "deadline-dp", RECORDINGS[0], SETTINGS[3], hazards)
    assert len(list((tmp_path / "kept").iterdir())) == 5


def test_the_room_is_between_the_cheaper_rival_and_the_optimum():
    assert room_won({"uniform-progress": 12.0, "skynomad": 11.0, "deadline-dp": 10.0, "optimum": 9.0}) == 0.5
    assert room_won({"uniform-progress": 10.0, "skynomad": 11.0, "deadline-dp": 10.5, "optimum": 9.0}) == -0.5


def test_every_policy_of_every_fold_is_compared_with_the_programme():
    works = tuple(SPEC.build(BenchRequest(options=SMALL | {"campaigns": "one,two"})))
    assert len({work.subject.digest for work in works}) == 4
    rows = {
        work.solver: work.run(Never(), SilentProgress()) for work in works if work.subject.name == "one-other-zones"
    }
    assert list(rows) == list(WAYS)
    base = rows["deadline-dp"].findings
    for row in rows.values():
        assert row.verified, row.violations
        for column in ("70h 0.2", "52h 0.05"):
            assert row.findings[column] - base[column] == pytest.approx(
                row.findings.get(f"{column} more", 0.0), abs=0.011
            )
    usd = {name: row.findings["52h 0.2"] for name, row in rows.items()}
    assert rows["optimum"].findings["52h 0.2 room"] == pytest.approx(100 * room_won(usd), abs=0.5)


def test_a_campaign_of_one_zone_is_refused(tmp_path):
    path = tmp_path / "table.csv"
    rows = "".join(f"availability,1,{c},{z},v100_1,600,{t},1\n" for c, z in (("a", "x"), ("b", "y")) for t in range(9))
    path.write_text(f"kind,nodes,campaign,zone,resource,gap_seconds,tick,value\n{rows}")
    with pytest.raises(InvalidProblemError, match="campaign 'a' has fewer than two zones; choose another campaign"):
        recordings_of(FoldOptions(recordings=str(path), campaigns="a,b"), 0)


def test_recordings_are_read_by_campaign_with_their_dates():
    options = FoldOptions(recordings=str(spot_file("skypilot_spot_traces_2022-2023.csv.gz")))
    found = recordings_of(options, 0)
    assert [len({each.series for each in found if each.campaign == name}) for name in options.campaigns.split(",")] == [
        8,
        9,
    ]
