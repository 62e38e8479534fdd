"""Availability as JSON, and folders of it: the meaning of 1, rejected files, and ticks of another length."""

import gzip
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.core.limits import read_limits
from optim.models.bidding.market.lifetimes import AvailabilityTrace
from optim.workloads.prices.availability_files import market_of, read_availability, read_windows, resample
from optim.workloads.prices.trace_files import Polarity, files_of, read_recording

TABLE = (
    "tick,timestamp_local,zone,available,price_usd_per_hour\n0,2023-02-15,east,1,0.9\n1,2023-02-15T00:10,east,0,0.9\n"
)


def write(path, data, gap_seconds=600, prices=None, **metadata):
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {"metadata": {"gap_seconds": gap_seconds, **metadata}, "data": data}
    path.write_text(json.dumps(document if prices is None else {**document, "prices": prices}))
    return path


@pytest.mark.parametrize(
    ("polarity", "data", "there"),
    [
        ("unavailable", [0, 1, 1, 0], [True, False, False, True]),
        ("available", [0, 1, 1, 0], [False, True, True, False]),
        ("available", [0, 3, 4, 4], [False, False, True, True]),  # four nodes were requested
        ("available", [0, 0], [False, False]),
    ],
)
def test_a_1_means_what_is_said(tmp_path, polarity, data, there):
    found = read_recording(write(tmp_path / "us-west-2a.json", data), Polarity(polarity))
    assert found.zone == "us-west-2a"
    assert found.is_available.tolist() == there
    assert np.diff(found.time_s).tolist() == [600] * len(data)


def test_nobody_guesses_what_a_1_means(tmp_path):
    path = write(tmp_path / "a.json", [0, 1])
    for read in (
        lambda: read_recording(path, None),
        lambda: read_availability(tmp_path),
        lambda: read_windows(tmp_path),
    ):
        with pytest.raises(InvalidOptionError, match=r"meaning of a 1 .*--polarity available.*unavailable"):
            read()
    table = tmp_path / "t.csv"
    table.write_text(TABLE)
    path.unlink()
    for read, place in ((read_availability, table), (read_availability, tmp_path), (read_windows, tmp_path)):
        with pytest.raises(InvalidOptionError, match="in a table a 1 always means that machines are available"):
            read(place, polarity=Polarity.UNAVAILABLE)


def test_prices_come_from_the_file_else_from_what_is_told_else_from_the_type_that_the_path_names(tmp_path):
    told = {"polarity": Polarity.UNAVAILABLE}
    priced = write(tmp_path / "a.json", [0, 0], prices=[0.5, 0.25], start_time="2022-10-26T00:00:00Z")
    (trace,) = read_availability(priced, on_demand_micro=3_060_000, **told).values()
    assert (trace.price_micro.tolist(), trace.on_demand_micro) == ([500_000, 250_000], 3_060_000)
    assert trace.time_s.tolist() == [1_666_742_400, 1_666_743_000]
    bare = write(tmp_path / "us-west-2a_k80_1" / "7.json", [0, 0], start_time="no date")
    (trace,) = read_availability(bare, **told).values()
    assert (trace.zone, trace.on_demand_micro, trace.price_micro[0], trace.time_s[0]) == ("7", 900_000, 270_000, 0)
    (trace,) = read_availability(bare, on_demand_micro={"k80_1": 5}, spot_micro=3, **told).values()
    assert (trace.on_demand_micro, trace.price_micro[0]) == (5, 3)
    with pytest.raises(InvalidProblemError, match="no on-demand price"):
        read_availability(write(tmp_path / "b.json", [0]), **told)["b"]


def test_reads_gzip_and_reals_that_are_whole(tmp_path):
    path = tmp_path / "z.json.gz"
    path.write_bytes(
        gzip.compress(b'\xef\xbb\xbf{"metadata": {"gap_seconds": 195.5, "x": [1]}, "data": [1, 0], "more": {}}')
    )
    found = read_recording(path, Polarity.AVAILABLE)
    assert (found.zone, found.time_s.tolist()) == ("z", [0, 196, 391])


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("", "the file is empty"),
        ("[]", "object"),
        ('{"data": [0]}', "metadata"),
        ('{"metadata": {}, "data": [0]}', "gap_seconds"),
        ('{"metadata": {"gap_seconds": 0}, "data": [0]}', "gap_seconds"),
        ('{"metadata": {"gap_seconds": 1e300}, "data": [0]}', "gap_seconds"),
        ('{"metadata": {"gap_seconds": 600}, "data": []}', "has no ticks"),
        (
            '{"metadata": {"gap_seconds": 600}, "data": [0, 2]}',
            r"data\[1\]: is 2, but 1 means that there are no machines",
        ),
        ('{"metadata": {"gap_seconds": 600}, "data": [0, -1]}', r"data\[1\]|data"),
        ('{"metadata": {"gap_seconds": 600}, "data": [0, 0.5]}', "data"),
        ('{"metadata": {"gap_seconds": 600}, "data": [0, null]}', "data"),
        ('{"metadata": {"gap_seconds": 600}, "data": "01"}', "data"),
        ('{"metadata": {"gap_seconds": 600}, "data": [0, NaN]}', "NaN|JSON"),
        ('{"metadata": {"gap_seconds": 600}, "data": [0, 1], "prices": [1]}', "prices: has 1 entries, and data 2"),
        ('{"metadata": {"gap_seconds": 600}, "data": [0], "prices": [0]}', "prices"),
        ('{"metadata": {"gap_seconds": 600}, "data": [0', "JSON|truncated|ends"),
        ('{"metadata": ' + "[" * 5000, "expected `object`, got `array`"),
    ],
)
def test_a_bad_file_is_named_with_its_cause(tmp_path, text, cause):
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(InvalidProblemError, match=cause) as caught:
        read_recording(path, Polarity.UNAVAILABLE)
    assert str(caught.value).startswith(f"{path}:")
    assert "\n" not in str(caught.value)


def test_sizes_are_limited(tmp_path):
    path = write(tmp_path / "a.json", [0] * 50)
    with read_limits(cells=49), pytest.raises(InvalidProblemError, match="ticks: at most 49 are read, got 50"):
        read_recording(path, Polarity.UNAVAILABLE)
    write(tmp_path / "b.json", [0])
    with read_limits(count=1), pytest.raises(InvalidProblemError, match="files: at most 1 are read, got 2"):
        read_availability(tmp_path, polarity=Polarity.UNAVAILABLE)
    (trace,) = read_availability(path, polarity=Polarity.UNAVAILABLE, on_demand_micro=1_000_000).values()
    with read_limits(cells=100), pytest.raises(InvalidProblemError, match="at most 100 are read, got 30000"):
        resample(trace, 1)


def test_sizes_of_all_recordings_together_are_limited(tmp_path):
    for name in "abc":
        write(tmp_path / f"{name}.json", [0] * 50)
    told = {"polarity": Polarity.UNAVAILABLE, "on_demand_micro": 1_000_000}
    with read_limits(cells=150):
        assert len(read_windows(tmp_path, **told)) == 3
    with read_limits(cells=149), pytest.raises(InvalidProblemError, match="ticks of all zones: at most 149 are read"):
        read_windows(tmp_path, **told)
    with read_limits(cells=150):
        assert len(read_availability(tmp_path, **told)) == 3
    with read_limits(cells=149), pytest.raises(InvalidProblemError, match="ticks of all files: at most 149 are read"):
        read_availability(tmp_path, **told)
    told_by_table = tmp_path / "tables"
    told_by_table.mkdir()
    for name in "ab":
        rows = "".join(f"availability,1,c,{name},v100_1,600,{tick},1\n" for tick in range(30))
        (told_by_table / f"{name}.csv").write_text(f"kind,nodes,campaign,zone,resource,gap_seconds,tick,value\n{rows}")
    with (
        read_limits(cells=59),
        pytest.raises(InvalidProblemError, match="ticks of all files: at most 59 are read, got 60"),
    ):
        read_availability(told_by_table)


def test_zones_of_a_folder_are_put_on_one_grid_and_other_files_are_left_alone(tmp_path):
    write(tmp_path / "west.json", [0, 1, 0], start_time="2023-02-15T00:00:00Z")
    (tmp_path / "east.csv").write_text(TABLE)
    for name in ("README.md", ".hidden.json"):
        (tmp_path / name).write_text("no trace")
    write(tmp_path / "deeper" / "north.json", [0, 0])
    found = read_availability(tmp_path, polarity=Polarity.UNAVAILABLE, on_demand_micro=1_000_000)
    assert list(found) == ["east", "west"]
    market = market_of(found, ["west", "east"])
    assert market.is_available.tolist() == [[True, True], [False, False]]
    write(tmp_path / "east.json", [0])
    with pytest.raises(InvalidProblemError, match="two files have a zone 'east'; rename one"):
        read_availability(tmp_path, polarity=Polarity.UNAVAILABLE, on_demand_micro=1)


def test_every_bad_file_is_named_and_the_others_are_used_only_if_asked_for(tmp_path, caplog):
    told = {"polarity": Polarity.UNAVAILABLE, "on_demand_micro": 1_000_000}
    for name in ("a", "c", "e"):
        write(tmp_path / f"{name}.json", [0, 1])
    write(tmp_path / "b.json", [5])
    (tmp_path / "d.csv").write_text("nothing")
    with pytest.raises(
        InvalidProblemError, match=r"2 of 5 traces can't be used \(--skip-bad leaves them out\): .*b\.json: .*d\.csv"
    ):
        read_availability(tmp_path, **told)
    assert list(read_availability(tmp_path, skip_bad=True, **told)) == ["a", "c", "e"]
    assert [record.getMessage().split(":")[0] for record in caplog.records] == ["left out", "left out"]
    for name in ("a", "c", "e"):
        (tmp_path / f"{name}.json").unlink()
    with pytest.raises(InvalidProblemError, match=r"2 of 2 traces can't be used \(none is left\)"):
        read_availability(tmp_path, skip_bad=True, **told)


def test_a_folder_without_traces_is_refused(tmp_path):
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(InvalidProblemError, match=r"has no traces|can't be read"):
            files_of(folder)


def test_every_recording_is_a_market_of_its_own(tmp_path):
    told = {"polarity": Polarity.UNAVAILABLE, "on_demand_micro": 1_000_000}
    for window in ("1", "0"):
        for zone, data in (("a", [0, 1, 0]), ("b", [1, 1, 0])):
            write(tmp_path / window / f"{zone}.json", data)
    single = read_windows(tmp_path, **told)
    assert [name for name, _ in single] == ["0/a.json", "0/b.json", "1/a.json", "1/b.json"]
    assert [market.num_zones for _, market in single] == [1] * 4
    paired = read_windows(tmp_path, ("b", "a"), **told)
    assert [(name, market.zones) for name, market in paired] == [("0", ("b", "a")), ("1", ("b", "a"))]
    assert paired[0][1].is_available.tolist() == [[False, True], [False, False], [True, True]]
    (tmp_path / "1" / "a.json").unlink()
    with pytest.raises(InvalidProblemError, match=r"1 of 2 traces can't be used.*/1: unknown zone 'a'"):
        read_windows(tmp_path, ("b", "a"), **told)
    assert [name for name, _ in read_windows(tmp_path, ("b", "a"), skip_bad=True, **told)] == ["0"]
    with pytest.raises(InvalidProblemError, match="3 ticks of 600 s are shorter than the deadline of 1 h"):
        read_windows(tmp_path, least_s=3600, **told)
    with pytest.raises(InvalidOptionError, match="no subfolder has a file of x"):
        read_windows(tmp_path, ("x",), **told)
    (tmp_path / "two.csv").write_text(TABLE + TABLE.split("\n", 1)[1].replace("east", "west"))
    with pytest.raises(InvalidProblemError, match=r"two\.csv: has 2 zones, but each file must have one"):
        read_windows(tmp_path, **told)


def of_seconds(trace, tick_s):
    """Return a trace's ticks of another length, second by second."""
    begin = int(trace.time_s[0])
    at = [int(np.searchsorted(trace.time_s, second, side="right")) - 1 for second in range(begin, trace.end_s)]
    there, price = trace.is_available[at], trace.price_micro[at]
    ticks = (trace.end_s - begin) // tick_s
    return [
        (bool(there[k * tick_s : (k + 1) * tick_s].all()), int(price[k * tick_s]), begin + k * tick_s)
        for k in range(ticks)
    ]


@given(
    gaps=st.lists(st.integers(1, 30), min_size=1, max_size=20),
    flags=st.lists(st.booleans(), min_size=20, max_size=20),
    tick_s=st.integers(1, 40),
    begin=st.integers(0, 1000),
)
def test_ticks_of_another_length_are_what_every_second_says(gaps, flags, tick_s, begin):
    time_s = begin + np.concatenate([[0], np.cumsum(gaps)])
    trace = AvailabilityTrace(
        zone="z",
        resource="",
        time_s=time_s[:-1],
        is_available=np.array(flags[: len(gaps)]),
        price_micro=1 + np.arange(len(gaps)),
        on_demand_micro=9,
        end_s=int(time_s[-1]),
    )
    if sum(gaps) < tick_s:
        with pytest.raises(InvalidOptionError, match="is shorter than a tick"):
            resample(trace, tick_s)
        return
    found = resample(trace, tick_s)
    rows = zip(found.is_available.tolist(), found.price_micro.tolist(), found.time_s.tolist(), strict=True)
    assert list(rows) == of_seconds(trace, tick_s)
    assert found.end_s == found.time_s[-1] + tick_s
