"""The study of online rules: verified rows, chains of files, and a report of impossible bounds."""

import pytest
from optim_studies.online import OnlineOptions, contradictions

from optim.benchmarks.suite import BenchRequest, choose_suites
from optim.core.errors import InvalidOptionError
from optim.core.progress import SilentProgress
from optim.core.stopping import Never

TINY = {"job_hours": 2.0, "deadline_hours": 3.0, "traces": 4}


def build(**options):
    (suite,) = choose_suites(("bidding",), ("online",))
    (work,) = suite.build(BenchRequest(options={**TINY, **options}))
    return work.run(Never(), SilentProgress())


def test_a_row_has_the_bound_beside_policies_and_the_least_cost():
    record = build()
    assert record.verified
    found = record.findings
    assert found["bound_ratio"] == pytest.approx(found["bound_usd"] / found["optimum_usd"])
    assert found["on_demand_usd"] == pytest.approx(2.0 * 3.06 + 2 * 195 / 3600 * 3.06, abs=0.2)


def test_a_chain_is_fitted_on_a_file(tmp_path):
    path = tmp_path / "a.csv"
    rows = [f"{k},2023-02-15 {k // 60:02}:{k % 60:02}:00,z,{int(k % 10 < 7)},1.5" for k in range(200)]
    path.write_text("\n".join(["tick,timestamp_local,zone,available,price_usd_per_hour", *rows]) + "\n")
    found = build(availability=str(path), zone="z").findings
    assert (found["stays"], found["comes"]) == (pytest.approx(6 / 7, abs=0.01), pytest.approx(1 / 3, abs=0.02))
    with pytest.raises(InvalidOptionError, match="require each other"):
        OnlineOptions(availability="x.csv")


def test_means_on_the_wrong_side_of_the_bound_are_told():
    assert contradictions(10.0, {"optimum": [8.0, 9.0], "greedy-spot": [11.0, 12.0]}) == []
    assert contradictions(0.0, {"optimum": [0.0, 0.0], "greedy-spot": [0.0, 0.0]}) == [], (
        "an algorithm without cost is at it"
    )
    (problem,) = contradictions(10.0, {"optimum": [8.0, 9.0], "greedy-spot": [5.0, 5.001]})
    assert "greedy-spot has a mean of 5" in problem
    (problem,) = contradictions(10.0, {"optimum": [18.0, 18.001]})
    assert "optimum" in problem
