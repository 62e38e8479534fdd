"""The effect of slower workers, larger gradients and narrower links on a profile."""

import msgspec
import numpy as np
import pytest

from optim.profiling.document import MeasuredValue, SpeedFunction
from optim.profiling.fitting import steps_per_second
from optim.profiling.job_profile import rescaled
from optim.workloads.profiles import published_profiles

JOB = published_profiles().jobs[3]


def test_nothing_changes_by_factors_of_one():
    same = rescaled(JOB)
    assert msgspec.structs.replace(same, scaling=JOB.scaling, placement=JOB.placement) == JOB
    assert [p.speedup for p in same.scaling] == pytest.approx([p.speedup for p in JOB.scaling])
    assert same.placement.rack == pytest.approx(JOB.placement.rack)


@pytest.mark.parametrize("factor", [10.0, 1000.0])
def test_all_at_once_is_a_slower_machine_with_the_same_curves(factor):
    slow = rescaled(JOB, tau=factor, bandwidth=1 / factor)
    assert slow.minibatch_s.value == pytest.approx(factor * JOB.minibatch_s.value)
    assert slow.worker_mbps.value == pytest.approx(JOB.worker_mbps.value / factor)
    assert [p.speedup for p in slow.scaling] == pytest.approx([p.speedup for p in JOB.scaling])
    assert slow.placement.cluster == pytest.approx(JOB.placement.cluster)
    assert slow.eviction_min == pytest.approx(factor * JOB.eviction_min)
    assert (slow.epochs, slow.minibatches, slow.samples) == (JOB.epochs, JOB.minibatches, JOB.samples)


def test_larger_gradients_scale_worse_and_slower_workers_better():
    def last(**factors):
        return rescaled(JOB, **factors).scaling[-1].speedup

    assert last(gradient=10.0) < last() < last(tau=10.0)
    assert last(gradient=10.0) == pytest.approx(last(bandwidth=0.1))
    assert (
        rescaled(JOB, gradient=10.0).placement.cluster
        > JOB.placement.cluster
        > rescaled(JOB, tau=10.0).placement.cluster
    )
    assert rescaled(JOB, gradient=10.0).change_min == pytest.approx(10 * JOB.change_min)


def test_a_fitted_functions_terms_are_slowed_down_one_by_one():
    speed = SpeedFunction(
        kind="synchronous",
        coefficients=[MeasuredValue.exactly(v) for v in (1.0, 2, 3, 4, 5)],
        largest_workers=4,
        global_batch=6.0,
    )
    job = msgspec.structs.replace(JOB, speed=speed)
    found = rescaled(job, tau=10.0, gradient=4.0, bandwidth=0.5).speed
    assert [each.value for each in found.coefficients] == [10.0, 2, 24, 4, 5]
    assert 1 / steps_per_second(found, np.array([2.0]), np.array([1.0])) == pytest.approx(30 + 2 + 48 + 8 + 5)
