"""The study of pitfalls: both implementations do the same work; no test depends on a time."""

from typing import ClassVar

import numpy as np
import pytest
from optim_studies.kernels.baselines import TrapOptions
from optim_studies.traps import AGREEMENT, GROWTH, NAIVE, NAMES, OURS, TRAPS

from optim.benchmarks.suite import SUITES, BenchRequest
from optim.core.errors import InvalidOptionError
from optim.core.progress import SilentProgress
from optim.core.stopping import Never

SIZES = {
    "parameters": 40_000,
    "workers": 3,
    "leaves": 7,
    "pushed": 30,
    "width": 4,
    "rows": 20,
    "carried_pushes": 8,
    "carried_rows": 16,
}


@pytest.fixture(autouse=True)
def small_cache(monkeypatch):
    """Make buffers small: these tests do not judge times."""
    monkeypatch.setattr("optim_studies.traps.roof_bytes", lambda: 1 << 16)


def works(**request):
    return list(SUITES.get("traps").build(BenchRequest(**request)))


def test_a_row_tells_both_times_and_how_they_grow():
    chosen = [
        work for work in works(options={**SIZES, "rounds": 2}) if work.subject.name in ("two-carries", "donation")
    ]
    records = [work.run(Never(), SilentProgress()) for work in chosen]
    for record in records:
        assert record.error is None
        assert record.verified
        assert record.measures["naive_ms"] > 0
        assert record.measures["times"] == pytest.approx(record.measures["naive_ms"] / record.measures["milliseconds"])
    plain, carried = (record.measures for record in records)
    assert plain["growth"] is None
    assert carried["growth"] == pytest.approx(carried[f"{OURS}_{GROWTH}_ms"] / carried["milliseconds"])
    assert carried["naive_growth"] == pytest.approx(carried[f"{NAIVE}_{GROWTH}_ms"] / carried["naive_ms"])


class Trap:
    """A trap whose two implementations do no work."""

    calls: ClassVar = {OURS: float, NAIVE: float}
    moved: ClassVar = {OURS: 2 * 10**9, NAIVE: 2 * 10**9}

    def __init__(self, *_):
        self.difference = lambda: 0.0


def test_a_row_has_the_medians_of_both_clocks_and_the_wall_seconds_of_all_our_rounds(monkeypatch):
    times = {OURS: [(0.5, 4.0), (2.0, 1.0), (1.0, 3.0)], NAIVE: [(4.0, 6.0), (4.0, 9.0), (5.0, 5.0)]}
    work = works(options={**SIZES, "rounds": 3})[0]
    monkeypatch.setattr("optim_studies.traps.TRAPS", {work.subject.name: Trap})
    monkeypatch.setattr("optim_studies.traps.race", lambda *_, **__: times)
    found = work.measure(Never(), SilentProgress())
    names = ("milliseconds", "naive_ms", "times", "processor_ms", "naive_processor_ms", "processor_times")
    assert [found.measures[name] for name in names] == [1000.0, 4000.0, 4.0, 3000.0, 6000.0, 2.0]
    assert found.measures[f"{OURS}_gigabytes_per_s"] == 2.0
    assert found.seconds["solve"] == 3.5
    assert (found.iterations, found.is_whole) == (3, True)


@pytest.mark.parametrize(("difference", "is_verified"), [(0.0, True), (AGREEMENT, True), (1.01 * AGREEMENT, False)])
def test_ways_that_differ_are_not_verified(difference, is_verified, monkeypatch):
    class Apart(Trap):
        def __init__(self, *_):
            self.difference = lambda: difference

    work = works(options={**SIZES, "rounds": 2})[0]
    monkeypatch.setattr("optim_studies.traps.TRAPS", {work.subject.name: Apart})
    record = work.run(Never(), SilentProgress())
    assert record.verified is is_verified
    assert ("differ by 1.0" in " ".join(record.violations)) is not is_verified


@pytest.mark.parametrize("size", ["small", "full"])
def test_every_trap_has_a_row(size):
    assert [work.subject.name for work in works(size=size)] == list(NAMES) == list(TRAPS)


@pytest.mark.parametrize(
    "request_",
    [{"solvers": ("simplex",)}, {"options": {"tol": 1}}, {"options": {"leaves": 0}}, {"options": {"carried_rows": 3}}],
)
def test_refuses_other_sides_and_options(request_):
    with pytest.raises(InvalidOptionError):
        works(**request_)


@pytest.mark.parametrize("name", TRAPS)
def test_the_ways_agree_round_after_round(name):
    trap = TRAPS[name](TrapOptions(**SIZES), np.random.default_rng(2))
    assert {OURS, NAIVE} <= set(trap.calls)
    for _ in range(3):
        for call in trap.calls.values():
            call()
        assert trap.difference() <= 1e-5


def test_a_side_that_does_other_work_is_found_out():
    trap = TRAPS["row-scatter"](TrapOptions(**SIZES), np.random.default_rng(2))
    trap.calls[OURS]()
    assert trap.difference() > 1e-3
