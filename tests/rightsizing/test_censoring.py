"""Kills at a limit, detected from series only, and a container's request after them."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from optim.cli.main import app
from optim.models.containers.series import CPU, MEMORY, ContainerSeries, Resource
from optim.rightsizing.features import uncensor
from tests.support.public_traces import TRACE_DIR

DISK = Resource(name="disk", unit="GiB", is_level=True)


def series_of(*arrays, limit, resources=(CPU, MEMORY)):
    own = {f"c{k}": np.array(values, dtype=float) for k, values in enumerate(arrays)}
    made = ContainerSeries.from_arrays(own, resources, 60.0)
    return type(made)(
        **{name: getattr(made, name) for name in made.__slots__} | {"limit": np.array(limit, dtype=float)}
    )


def test_a_fall_from_the_limit_is_a_kill_and_needs_a_fifth_more():
    values = [[1.0, 0.4], [1.0, 0.96], [1.0, 0.3], [1.0, 0.99], [1.0, 0.6], [1.0, 0.99], [1.0, 0.2], [0.1, 0.99]]
    found = uncensor(series_of(values, limit=[[1.0, 1.0]]))
    # At the fourth sample it falls by less than half, and after the last one its state is unknown.
    assert found.kills.tolist() == [[0, 2]]
    assert found.kills_per_day[0, 1] == pytest.approx(2 / (7 * 60) * 86400)
    assert found.minimum.tolist() == [[0.0, 1.2]]
    assert found.series.values[:, 1].tolist() == [0.4, 1.0, 0.3, 0.99, 0.6, 1.0, 0.2, 0.99]
    assert found.series.kills[:, 1].tolist() == [0, 1, 0, 0, 0, 1, 0, 0]
    # CPU is throttled at its limit, and not killed.
    np.testing.assert_array_equal(found.series.limit, [[1.0, np.nan]])
    np.testing.assert_array_equal(found.limit, [[1.0, 1.0]])


def test_small_limits_of_memory_grow_by_100_mib_at_least_and_those_of_other_resources_do_not():
    values = [[0.25, 0.25], [0.1, 0.1], [0.2, 0.2]]
    found = uncensor(series_of(values, limit=[[0.25, 0.25]], resources=(MEMORY, DISK)))
    assert found.minimum.tolist() == [[pytest.approx(0.25 + 100 / 1024), pytest.approx(0.3)]]


def test_who_only_stands_at_the_limit_needs_at_least_that():
    found = uncensor(
        series_of([[1.0, 0.98]] * 5, [[1.0, 0.9]] * 5, [[1.0, 0.98], [1.0, 0.1]], limit=[[1, 1], [1, 1], [1, np.nan]])
    )
    assert found.kills.tolist() == [[0, 0]] * 3
    assert found.minimum.tolist() == [[0, 1.0], [0, 0.0], [0, 0.0]]
    assert np.isnan(found.series.limit[:, 1]).tolist() == [True, False, True]
    assert not uncensor(ContainerSeries.from_arrays({"a": [[1.0]]}, ("cpu",), 1.0)).kills.any()


def test_a_container_does_not_fall_onto_the_next_one():
    found = uncensor(series_of([[1.0, 0.5], [1.0, 1.0]], [[1.0, 0.1], [1.0, 0.1]], limit=[[1, 1], [1, 1]]))
    assert not found.kills.any()


def recommended(*words):
    result = CliRunner().invoke(app, ["containers", "recommend", *map(str, words)])
    assert result.exit_code == 0, result.output
    return {own["container"]: own["amounts"]["memory"] for own in json.loads(result.stdout)["containers"]}


def check_oom(amounts):
    oom = amounts.pop("oom")
    assert oom["request"] >= 1.2
    assert oom["limit"] >= 1.2
    assert oom["past_kills_per_day"] == pytest.approx(480, rel=0.01)
    assert "killed 199 times at its limit of 1" in oom["reason"]
    assert all(own["past_kills_per_day"] == 0 and own["request"] <= 1.0 for own in amounts.values())


def test_a_container_that_is_killed_at_its_limit_is_asked_for_more(tmp_path):
    path = tmp_path / "metrics.csv"
    lines = ["container,time_s,cpu,memory,memory_limit"]
    for k in range(12):
        lines += [f"ok-{k},{60 * t},0.5,{0.6 + 0.1 * ((t + k) % 7) / 7:.4f},1.0" for t in range(600)]
    lines += [f"oom,{60 * t},0.5,{(0.35, 0.7, 0.999)[t % 3]},1.0" for t in range(600)]
    path.write_text("\n".join(lines) + "\n")
    check_oom(recommended("--input", path, "--interval", 60))


def test_the_reported_case_is_asked_for_more():
    path = TRACE_DIR / "reports" / "18-vpa-oom" / "metrics.csv"
    if not path.is_file():
        pytest.skip("the case is not there; set OPTIM_TRACE_DIR to the folder that has reports/")
    for words in (("--interval", 60), ("--max-gap", 240), ("--interval", 60, "--cycle-minutes", 10)):
        check_oom(recommended("--input", path, *words))


def told_series(values, kills, limit=np.nan):
    made = series_of([[1.0, each] for each in values], limit=[[np.nan, limit]])
    told = np.stack([np.full(len(values), np.nan), np.array(kills, float)], axis=1)
    return type(made)(**{name: getattr(made, name) for name in made.__slots__} | {"kills": told})


def test_kills_that_are_told_count_and_falls_from_the_limit_then_do_not():
    # A spike between two samples killed it: no sample is at the limit. The fall after 0.99 was caused by the program.
    found = uncensor(told_series([0.4, 0.6, 0.2, 0.99, 0.3, 0.5], [0, 2, 0, 0, 0, 0], limit=1.0))
    assert found.kills.tolist() == [[0, 2]]
    assert found.exceeded.tolist() == [[0.0, 1.0]]
    assert found.minimum.tolist() == [[0.0, 1.2]]
    assert found.series.values[:, 1].tolist() == [0.4, 1.0, 0.2, 0.99, 0.3, 0.5]
    assert np.isnan(found.series.limit).all()


def test_without_a_limit_the_peak_so_far_was_not_enough():
    found = uncensor(told_series([0.4, 2.0, 0.5, 1.0, 3.0], [0, 0, 0, 1, 0]))
    assert found.exceeded.tolist() == [[0.0, 2.0]]
    assert found.minimum.tolist() == [[0.0, pytest.approx(2.4)]]
    assert found.series.values[3, 1] == 2.0


def test_where_no_kill_is_told_the_fall_is_one():
    found = uncensor(told_series([0.4, 0.99, 0.2, 0.99, 0.1], [np.nan, np.nan, np.nan, 0, np.nan], limit=1.0))
    assert found.kills.tolist() == [[0, 1]]
