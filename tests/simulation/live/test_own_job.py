"""An instance's job as a process plays it: the application's numbers, the job's time and size."""

import pickle
import time

import numpy as np
import pytest

from optim.simulation.live.own_job import OwnJob, Pace, hold_share
from tests.support.training.oracle import CountingApplication


def test_it_computes_what_the_application_does_and_pads_it_to_the_jobs_size():
    plain = CountingApplication(2, 5)
    own = OwnJob(application=plain, num_floats=9)
    assert (own.num_partitions, own.num_parameters, own.weight(0)) == (2, 9, 1.0)
    view = own.initial_parameters()
    gradient, loss = own.gradient(view, 1, 0)
    expected, expected_loss = CountingApplication(2, 5).gradient(view[:5], 1, 0)
    assert np.array_equal(gradient, [*expected, 0, 0, 0, 0])
    assert gradient.dtype == np.float32
    assert loss == expected_loss
    assert OwnJob(application=plain, num_floats=2).num_parameters == 5


def test_work_takes_its_processor_seconds_and_no_more_than_its_share():
    begun, spent = time.perf_counter(), time.thread_time()
    hold_share(0.02, 0.25, begun=begun, spent=spent)
    assert 0.02 <= time.thread_time() - spent < 0.03
    assert time.perf_counter() - begun >= 0.08


def test_a_gradient_takes_the_jobs_seconds_times_its_pace():
    pace = Pace()
    try:
        pace.write(2.0)
        own = OwnJob(application=CountingApplication(2, 5), compute_s=0.02, link_s=0.01, share=0.5, pace=pace)
        begun = time.perf_counter()
        own.gradient(own.initial_parameters(), 0, 0)
        assert time.perf_counter() - begun >= 0.06
    finally:
        pace.close()


def test_a_pace_that_is_written_is_read_in_other_processes():
    pace = Pace()
    try:
        there = pickle.loads(pickle.dumps(pace))
        assert there.read() == 1.0
        pace.write(1.25)
        assert there.read() == 1.25
    finally:
        pace.close()
    with pytest.raises(FileNotFoundError):
        pickle.loads(pickle.dumps(pace)).read()
