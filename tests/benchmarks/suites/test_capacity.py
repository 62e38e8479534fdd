"""The study of footprints that keep enough: verified rows beside played hours, and contradictions told."""

import pytest
from optim_studies.capacity import StudyOptions, contradictions

from optim.benchmarks.suite import BenchRequest, choose_suites
from optim.core.errors import InvalidOptionError
from optim.core.progress import SilentProgress
from optim.core.stopping import Never

TINY = {"zone_types": 8, "num_zones": 4, "num_regions": 2, "windows": 4, "least_gpus": 12, "hours": 300}


def test_a_row_has_what_lasts_stated_and_played_beside_what_it_costs():
    (suite,) = choose_suites(("bidding",), ("capacity",))
    (work,) = suite.build(BenchRequest(options={**TINY, "least_probability": 0.7}, seeds=(2,)))
    record = work.run(Never(), SilentProgress())
    assert record.verified
    found = record.findings
    assert found["gap"] <= 1e-4
    assert found["kept"] >= 0.7
    assert abs(found["kept"] - found["played"]) <= 5 * found["standard_error"]
    assert found["usd_per_work"] >= found["usd_per_work_without"] * (1 - 1e-4)


def test_played_hours_far_off_are_told():
    assert contradictions({"kept": 0.8, "played": 0.81, "standard_error": 0.01}) == []
    (problem,) = contradictions({"kept": 0.8, "played": 0.9, "standard_error": 0.01})
    assert "0.9000 of the played hours, stated is 0.8000" in problem


def test_options_are_checked():
    with pytest.raises(InvalidOptionError, match="least_gpus"):
        StudyOptions(least_gpus=0)
