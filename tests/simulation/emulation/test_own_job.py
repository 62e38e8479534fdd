"""An instance's job as a process executes it: the application's numbers, the job's time and size."""

import time

import numpy as np
import pytest

from optim.simulation.emulation import job_run
from optim.simulation.emulation.job_run import EmulatedJob, SharedSlowdown, hold_share
from tests.support.training.oracle import CountingApplication


def test_it_computes_what_the_application_does_and_pads_it_to_the_jobs_size():
    plain = CountingApplication(2, 5)
    own = EmulatedJob(application=plain, num_floats=9)
    assert (own.num_partitions, own.num_parameters, own.weight(0)) == (2, 9, 1.0)
    view = own.initial_parameters()
    gradient, loss = own.gradient(view, 1, 0)
    expected, expected_loss = CountingApplication(2, 5).gradient(view[:5], 1, 0)
    assert np.array_equal(gradient, [*expected, 0, 0, 0, 0])
    assert gradient.dtype == np.float32
    assert loss == expected_loss
    assert EmulatedJob(application=plain, num_floats=2).num_parameters == 5


def test_work_takes_its_processor_seconds_and_no_more_than_its_share():
    begun, spent = time.monotonic(), time.thread_time()
    hold_share(0.02, 0.25, begun=begun, spent=spent)
    assert 0.02 <= time.thread_time() - spent < 0.03
    assert time.monotonic() - begun >= 0.08


def test_a_gradient_takes_the_jobs_seconds_times_its_pace():
    slowdown = SharedSlowdown()
    try:
        slowdown.write(2.0)
        own = EmulatedJob(
            application=CountingApplication(2, 5), compute_s=0.02, link_s=0.01, share=0.5, slowdown=slowdown
        )
        begun = time.monotonic()
        own.gradient(own.initial_parameters(), 0, 0)
        assert time.monotonic() - begun >= 0.06
    finally:
        slowdown.close()


class Watched:
    """A timer that never sleeps, but advances by the requested sleep."""

    def __init__(self):
        self.now, self.naps = 5.0, []

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.naps.append(seconds)
        self.now += seconds


def test_shares_are_of_the_timers_seconds(monkeypatch):
    """Each reading of the processor time is 0.4 ms later than the previous one."""
    looks = iter(range(10**6))
    monkeypatch.setattr(job_run.time, "thread_time", lambda: 4e-4 * next(looks))
    timer = Watched()
    hold_share(0.005, 0.25, begun=5.0, spent=0.0, timer=timer)
    assert timer.now - 5.0 == pytest.approx(0.005 / 0.25)
    # It sleeps after each group of three checks, at least a thousandth of a second each, for the time that they were
    # too fast.
    assert len(timer.naps) == pytest.approx(0.005 / 0.0016, abs=2)
    assert max(timer.naps) <= 0.0016 / 0.25 + 1e-9


def test_a_gradient_takes_the_jobs_seconds_of_the_runs_clock():
    clock = Watched()
    own = EmulatedJob(application=CountingApplication(2, 5), compute_s=0.02, link_s=0.03, share=0.5, clock=clock)
    own.gradient(own.initial_parameters(), 0, 0)
    assert clock.now - 5.0 == pytest.approx(0.05)
