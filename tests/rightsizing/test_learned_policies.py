"""Learning policies: neighbours against a plain search, known quantiles, and their savings."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.core.errors import InvalidOptionError
from optim.rightsizing import CalibrationTestSplit, Slo, compare_policies, make_plan
from optim.rightsizing.features import examples_of, view_features
from optim.rightsizing.learned_policies import KnnQuantiles, quantiles
from optim.rightsizing.policy import need_phases, views
from optim.rightsizing.world import WorldOptions, prepare_split
from optim.workloads.containers import ContainerOptions, generate_containers
from tests.support.containers.worlds import world_of

RNG = np.random.default_rng(11)

OWN = """
from optim.rightsizing.policy import AbstractPolicy, Estimate

class Steady(AbstractPolicy):
    def estimate(self, view):
        peak = view.previous.max(axis=1)
        return Estimate(base=0 * peak, spread=peak)

class Phased(Steady):
    needs_phases = True

class Burnt(Steady):
    has_feedback = True
    def estimate(self, view):
        last = view.allocation
        return Estimate(base=0 * last, spread=last)

class Other:
    pass
"""


def test_neighbours_are_those_of_a_plain_search():
    training = [RNG.lognormal(size=(int(n), 2)) for n in RNG.integers(60, 120, size=12)]
    world = world_of([RNG.lognormal(size=(22, 2)) for _ in range(3)], training=training)
    lessons = examples_of(world, has_phases=False)
    known = lessons.features.values
    deviation = np.where(known.std(axis=0) > 0, known.std(axis=0), 1.0)
    policy = KnnQuantiles(world)
    for view in views(world, np.zeros((*world.samples.shape, 2))):
        moments, answer = view_features(view, world, has_phases=False), policy.estimate(view)
        for place in range(len(view.past)):
            distance = (((known - moments.values[place]) / deviation) ** 2).sum(axis=1)
            near = np.argsort(distance)[:200]
            assert len(near) > 100
            peaks = np.sort(np.exp(lessons.peak[near, 1]) * moments.level[place, 1])
            assert answer.need[place, 1, 24] == pytest.approx(np.exp(np.quantile(np.log(peaks), 25 / 101)))
            share, samples = lessons.share[:, 1], lessons.is_there.sum(axis=1)
            usual = (share * samples).sum() / samples.sum()
            own = (share * samples)[near].sum() / samples[near].sum()
            assert answer.weight[place, 1] == pytest.approx(own / usual)
            near = near[:50]
            after = np.exp(lessons.after[near, :, 0][lessons.is_there[near]]) * moments.level[place, 0]
            assert answer.need[place, 0, 9] == pytest.approx(np.exp(np.quantile(np.log(after), 10 / 101)))


@given(st.lists(st.lists(st.floats(-9, 9), min_size=1, max_size=6), min_size=1, max_size=4))
def test_quantiles_leave_out_what_is_not_there(rows):
    values = np.full((len(rows), 6), np.nan)
    for row, own in zip(values, rows, strict=True):
        row[6 - len(own) :] = own
    levels = np.linspace(0, 1, 9)
    expected = [np.quantile(own, levels) for own in rows]
    assert quantiles(values, levels) == pytest.approx(np.array(expected), abs=1e-9)


def test_what_always_doubles_gets_twice_as_much():
    double = 2.0 ** (np.arange(24) // 4)
    world = world_of([3 * double], training=[double, 5 * double, 0.3 * double])
    given_to = make_plan(world, "knn").allocate(np.full(2, 30.0))[0, 1:5]
    # Limited to the observed range, except for the part of the tail that a high price reaches.
    assert (given_to >= 0.999 * np.outer(6 * 2.0 ** np.arange(4), [1, 1])).all()
    assert (given_to <= 1.2 * np.outer(6 * 2.0 ** np.arange(4), [1, 1])).all()


def test_neighbours_save_more_than_looking_back_and_less_than_the_bound():
    series = generate_containers(ContainerOptions(num_containers=120), seed=7)
    trial = prepare_split(series, WorldOptions(encoder="truth"), 0)
    wanted = Slo(kills=0.05, throttled=0.05)
    names = ("prev-step-max", "knn", "knn-phases", "clairvoyant")
    rows = {r.policy: r for rows in compare_policies(trial, names, wanted, num_resamples=1, seed=0) for r in rows}
    assert rows["knn"].is_reached
    assert rows["clairvoyant"].most > rows["knn"].reduction > rows["prev-step-max"].reduction


def test_a_policy_of_ones_own_is_compared_as_all_others(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(OWN)
    world = world_of([RNG.random((20, 2)) for _ in range(4)])
    trial = CalibrationTestSplit(calibration=world, test=world)
    wanted = Slo(kills=0.3, throttled=0.3)
    names = (f"{path}:Steady", "prev-step-max")
    own, known = compare_policies(trial, names, wanted, num_resamples=3, seed=0)
    assert [replace(row, policy="prev-step-max") for row in own] == list(known)
    fed = make_plan(world, f"{path}:Burnt").allocate(np.full(2, 2.0))
    assert fed[0, 1] == pytest.approx(2 * world.first)
    assert fed[0, 2] == pytest.approx(4 * world.first)
    assert need_phases([f"{path}:Phased"])
    assert not need_phases([f"{path}:Steady", "vpa"])
    with pytest.raises(InvalidOptionError, match="derive the class from"):
        compare_policies(trial, [f"{path}:Other"], wanted, num_resamples=1, seed=0)
    with pytest.raises(InvalidOptionError, match="there is no file"):
        make_plan(world, "./absent.py:Steady")
