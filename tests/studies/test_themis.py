"""Studies of Themis' rounds: their statistics, lies that change nothing, and the progress of the simulations."""

from dataclasses import astuple, replace

import numpy as np
import pytest
from optim_studies import themis_lies
from optim_studies.themis import SPEC, WorldOptions, measured, run_policy
from optim_studies.themis_lies import CASES, LieOptions, LyingThemis, summed_up, world_of
from optim_studies.themis_lies import LIES as LIE_NAMES
from optim_studies.themis_lies import SPEC as LIES

from optim.benchmarks.runner import plan_work
from optim.benchmarks.suite import BenchRequest
from optim.core.errors import InvalidOptionError
from optim.core.progress import SilentProgress
from optim.core.stopping import Never
from optim.simulation.cluster.engine import simulate
from optim.simulation.cluster.options import EngineOptions
from optim.simulation.cluster.policies.themis.leases import Themis, ThemisOptions
from optim.statistics import Interval, wilson
from tests.support.sample_tasks import RecordedProgress

TINY = WorldOptions(apps=3, machines=2, gpus=2, draws=2, shrink=600.0)


def test_only_lies_that_surely_save_time_pay():
    gains = [
        Interval(mean=0.2, half=0.1),
        Interval(mean=0.2, half=0.3),
        Interval(mean=5e-4, half=0.0),
        Interval(mean=-0.2, half=0.1),
    ]
    found = summed_up([gains[:2], gains[2:]])
    assert (found.profitable, found.harmful, found.best_gain, found.lies) == (0.25, 0.25, 0.2, 4)
    assert (found.paid_gain, found.paid_half) == (0.2, 0.0)
    two = summed_up([[Interval(mean=0.2, half=0.1)], [Interval(mean=0.4, half=0.1)]])
    assert (two.paid_gain, two.paid_half) == pytest.approx((0.3, 0.1 * 12.706204736432095))


def test_lies_of_one_world_are_one_observation_of_it():
    """Repeated ten times, the same misreports are no stronger evidence."""
    pays, costs = Interval(mean=0.3, half=0.1), Interval(mean=-0.1, half=0.05)
    worlds = [[pays, pays], [pays, costs], [pays, costs], [costs, costs]]
    found, often = summed_up(worlds), summed_up([10 * world for world in worlds])
    gains = Interval.of([0.3, 0.1, 0.1, -0.1])
    shares = Interval.of([1.0, 0.5, 0.5, 0.0])
    assert (found.gain, found.gain_half) == pytest.approx((gains.mean, gains.half))
    assert (found.profitable, found.low, found.high) == pytest.approx((0.5, 0.0, min(1.0, 0.5 + shares.half)))
    assert (found.paid_gain, found.paid_half, found.best_gain) == pytest.approx((0.3, 0.0, 0.3))
    assert (found.lies, often.lies) == (8, 80)
    assert astuple(replace(often, lies=8)) == pytest.approx(astuple(found))


def test_where_worlds_agree_the_interval_is_wilsons():
    pays, costs = Interval(mean=0.3, half=0.05), Interval(mean=-0.1, half=0.05)
    some = summed_up([[pays, costs]] * 4)
    assert (some.profitable, some.low, some.high) == (0.5, *wilson(0.5, 8))
    for share, lie in ((0.0, costs), (1.0, pays)):
        found = summed_up([[lie] * 10] * 8)
        low, high = wilson(share, 8)
        assert (found.profitable, found.low, found.high) == (share, low, high)


def test_intervals_over_worlds_hold_what_they_promise():
    """Worlds differ more than the misreports within one: about 95 of 100 intervals contain the mean, 0."""
    rng, held = np.random.default_rng(0), 0
    for _ in range(400):
        worlds = rng.normal(0.0, 0.1, 8)
        found = summed_up([[Interval(mean=w + e, half=0.01) for e in rng.normal(0.0, 0.03, 10)] for w in worlds])
        held += abs(found.gain) <= found.gain_half
    assert 0.92 <= held / 400 <= 0.98


def test_an_app_that_lies_by_nothing_is_honest():
    jobs, settings = TINY.jobs(0), ThemisOptions(lease_min=5.0, fairness=0.5)
    honest = simulate(jobs, TINY.cluster, Themis(settings, jobs), EngineOptions(), 0)
    for lie in LIE_NAMES:
        told = simulate(jobs, TINY.cluster, LyingThemis(settings, jobs, 0, lie, 1.0), EngineOptions(), 0)
        assert told.log.rows() == honest.log.rows()
    nobody = simulate(jobs, TINY.cluster, LyingThemis(settings, jobs, len(jobs), "demand", 0.25), EngineOptions(), 0)
    assert nobody.log.rows() == honest.log.rows(), "only the liar lies"


@pytest.mark.prove
def test_every_lie_changes_what_is_granted():
    options = LieOptions()
    jobs, settings = options.jobs(2), ThemisOptions(lease_min=5.0, fairness=0.5)
    honest = simulate(jobs, options.cluster, Themis(settings, jobs), EngineOptions(), 0)
    for lie, factor in (("rho", 4.0), ("table", 4.0), ("demand", 0.25), ("locality", 4.0), ("gang", 4.0)):
        told = simulate(jobs, options.cluster, LyingThemis(settings, jobs, 2, lie, factor), EngineOptions(), 0)
        assert told.log.rows() != honest.log.rows()


def test_worlds_differ_in_what_their_case_names():
    options = LieOptions()
    worlds = {case: world_of(options, case) for case in CASES}
    jobs = {case: world.jobs(0) for case, world in worlds.items()}
    assert worlds["default"] == options
    assert worlds["locality"].cluster.num_gpus == options.cluster.num_gpus
    assert worlds["locality"].cluster.gpus.max() == 2 < options.cluster.gpus.max()
    assert (jobs["locality"].slowdown_ppm[:, 1] == 1_300_000).all()
    assert set(jobs["gangs"].gpus.tolist()) == {4}
    assert len(np.unique(jobs["contention"].app)) == 2 * options.apps
    assert jobs["contention"].submit_us.max() < jobs["default"].submit_us.max()


def test_a_policy_beside_itself_is_as_fair():
    found = measured(TINY, "themis", {}, 0, beside="themis")
    assert found["times_fairer"] == Interval(mean=1.0, half=0.0)
    assert found["gpu_time"] == Interval(mean=1.0, half=0.0)
    run = run_policy(TINY.jobs(0), TINY.cluster, "themis", {}, 0)
    assert run.is_done.all()


def test_records_are_verified_and_come_out_again(monkeypatch):
    monkeypatch.setattr(themis_lies, "LIES", ("rho", "demand"))
    monkeypatch.setattr(themis_lies, "FACTORS", (4.0,))
    sizes = {"apps": 2, "machines": 2, "gpus": 4, "draws": 2, "shrink": 5000.0}
    work = [piece for piece in plan_work([SPEC], BenchRequest(options=sizes)).work if piece.labels["case"] != "f"]
    assert {piece.labels["case"] for piece in work} == {"default", "lease", "rival"}
    lies = plan_work([LIES], BenchRequest(options={**sizes, "repeats": 2})).work
    for piece in (work[0], work[-1], lies[0]):
        one, two = (piece.run(Never(), SilentProgress()) for _ in range(2))
        assert one.verified
        assert one.error is None
        assert one.findings == two.findings


def test_refuses_worlds_that_are_none():
    for name, beyond in (("draws", 1), ("gpus", 0), ("gpus", 65), ("machines", 1), ("shrink", 0.5), ("gang", 65)):
        with pytest.raises(InvalidOptionError, match=name):
            replace(TINY, **{name: beyond})
    with pytest.raises(InvalidOptionError, match="repeats"):
        LieOptions(repeats=1)


def test_each_piece_of_work_is_announced_with_its_setting_and_ends(monkeypatch):
    monkeypatch.setattr("optim_studies.themis.measured", lambda *_, **__: {"rho_max": Interval(mean=1.0, half=0.0)})
    first, second, *_ = SPEC.build(BenchRequest())
    progress = RecordedProgress()
    for work in (first, second):
        work.measure(Never(), progress)
    assert progress.news == ["start themis  None", "finish", "start themis {'fairness': 0.0} None", "finish"]
