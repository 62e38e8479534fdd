"""The study of kills: drawn values obey their limits, rules allocate equally, and counters of kills are informative."""

import numpy as np
import pytest
from optim_studies.oom_kills import MARGIN, RULES, KillOptions, draw_killed, requests_of, vpa_requests
from optim_studies.recommendation import drawn_block

from optim.benchmarks.suite import SUITES, BenchRequest
from optim.core.progress import SilentProgress
from optim.core.stopping import Never

TINY = KillOptions(draws=2, containers=24, hours=3)


def test_killed_containers_are_down_and_count(tmp_path):
    drawn = draw_killed(TINY, 5)
    series, memory = drawn.series, drawn_block(0, 24, 240 * 4, 5).values[:, 1].reshape(24, -1)
    known = memory[:, :720]
    assert drawn.need.tolist() == memory[:, 720:].max(axis=1).tolist()
    for row in range(24):
        limit = series.limit[row, 1]
        used, kills = series.values[series.rows(row), 1], series.kills[series.rows(row), 1]
        bound, expected, down = np.inf if np.isnan(limit) else limit, np.zeros(180), -1
        for time, need in enumerate(known[row]):
            if time > down and need > bound:
                expected[time // 4], down = expected[time // 4] + 1, time + 3
        assert kills.tolist() == expected.tolist()
        assert (used <= bound).all()
        assert (used <= known[row, ::4]).all()


def test_rules_allocate_alike_and_known_kills_are_asked_for_more():
    drawn = draw_killed(TINY, 1)
    budget = MARGIN * vpa_requests(drawn.series).sum()
    requests = {rule: requests_of(rule, drawn, budget, 1) for rule in RULES}
    assert [request.sum() for request in requests.values()] == [pytest.approx(budget)] * 3
    peak = np.maximum.reduceat(drawn.series.values[:, 1], drawn.series.starts)
    limit = drawn.series.limit[:, 1]
    is_killed = np.add.reduceat(drawn.series.kills[:, 1], drawn.series.starts) > 0
    assert is_killed.any()
    expected = np.where(is_killed, np.maximum(1.2 * limit, limit + 100 / 1024), peak)
    np.testing.assert_allclose(requests["vpa"], MARGIN * expected)
    assert (requests["told"][is_killed] > 1.2 * limit[is_killed] * (1 - 1e-9)).all()


def test_study_reports_paired_differences():
    (work,) = SUITES.get("oom-kills").build(BenchRequest(options={"containers": 24, "hours": 3}))
    found = work.run(Never(), SilentProgress()).findings
    assert found["draws"] == 2
    for rule in ("untold", "vpa"):
        difference = found[f"told_less_{rule}"]
        assert difference == pytest.approx(found["told_killed"] - found[f"{rule}_killed"])
        assert found[f"told_less_{rule}_low"] <= difference <= found[f"told_less_{rule}_high"]
