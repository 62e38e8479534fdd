"""The study of many containers: each gets one recommendation, in any blocks, and errors are shown."""

from dataclasses import replace

import numpy as np
import pytest
from optim_studies.recommendation import LEARNED_BLOCK, drawn_block

from optim.benchmarks.suite import SUITES, BenchRequest
from optim.core.errors import InvalidOptionError
from optim.core.progress import SilentProgress
from optim.core.stopping import Interruption, IterationLimit, Never
from optim.rightsizing.recommendation import Recommender, RecommendOptions

TINY = {"containers": 7, "samples": 300, "block": 3, "learned": 12, "cycle_minutes": 15.0}


def record_of(stop=None, **options):
    (work,) = SUITES.get("recommendation").build(BenchRequest(options=TINY | options))
    return work.run(stop or Never(), SilentProgress())


def test_means_are_those_of_all_containers_at_once():
    record = record_of()
    assert record.verified, record.violations
    recommender = Recommender(drawn_block(LEARNED_BLOCK, 12, 300, 0), RecommendOptions(cycle_s=900.0), 0)
    blocks = [drawn_block(number, 3, 300, 0) for number in range(3)]
    amounts = [own.amounts for block in blocks for own in recommender.recommend(block)][:7]
    assert record.findings["containers"] == 7
    assert record.measures["ms_a_container"] == pytest.approx(1000 * record.seconds["solve"] / 7)
    for name in ("cpu", "memory"):
        assert record.findings[f"{name}_request"] == pytest.approx(np.mean([own[name].request for own in amounts]))
        assert record.findings[f"{name}_saving"] == pytest.approx(np.mean([own[name].saving for own in amounts]))


def test_a_request_above_the_limit_and_a_lost_container_are_found(monkeypatch):
    recommend = Recommender.recommend

    def wrong(self, series):
        first, *others = recommend(self, series)
        high = replace(first.amounts["cpu"], request=100.0)
        return [replace(first, amounts={**first.amounts, "cpu": high}), *others[1:]]

    monkeypatch.setattr(Recommender, "recommend", wrong)
    record = record_of()
    assert not record.verified
    assert any("request 100 of cpu" in told for told in record.violations)
    assert any("not one recommendation per container" in told for told in record.violations)


@pytest.mark.parametrize(("limit_s", "done", "termination"), [(1e-9, 3, "time_limit"), (1e9, 7, "completed")])
def test_a_time_limit_is_heeded_between_blocks(limit_s, done, termination):
    (work,) = SUITES.get("recommendation").build(BenchRequest(options=TINY, time_limit_s=limit_s))
    record = work.run(Never(), SilentProgress())
    assert (record.findings["containers"], record.termination) == (done, termination)


def test_stops_between_blocks():
    assert record_of(IterationLimit(1)).findings["containers"] == 3
    interruption = Interruption()
    interruption.request()
    record = record_of(interruption)
    assert (record.findings["containers"], record.termination) == (3, "interrupted")


def test_containers_have_just_the_length_asked_for_and_blocks_differ():
    one, two = (drawn_block(number, 2, 250, 3) for number in (0, 1))
    assert one.lengths.tolist() == two.lengths.tolist() == [250, 250]
    assert one.containers + two.containers == tuple(f"container-{k}" for k in range(4))
    assert not np.array_equal(one.values, two.values)
    assert (one.values <= np.repeat(one.limit, 250, axis=0)).all()


def test_the_full_size_is_ten_thousand_containers_for_a_week():
    (work,) = SUITES.get("recommendation").build(BenchRequest(size="full"))
    assert (work.chosen.containers, work.chosen.samples * 15.0) == (10_000, 7 * 86_400.0)


@pytest.mark.parametrize("request_", [{"solvers": ("vpa",)}, {"options": {"block": 0}}, {"options": {"learned": 1}}])
def test_refuses_other_ways_and_options(request_):
    with pytest.raises(InvalidOptionError):
        list(SUITES.get("recommendation").build(BenchRequest(**request_)))
