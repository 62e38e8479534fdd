"""What an instance works out from its document: work, parameter servers needed, values by slot."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from optim.models.admission.data import MICRO, WORK_CAP, Jobs, ServerClasses, StepUtility, as_int_array
from optim.models.admission.instance import AdmissionInstance


def one_job(**changes):
    """One job of 2 epochs of 6 chunks of 10 mini-batches of 30 s, 20 MB of gradient at 100 Mb/s; slots of 15 minutes."""
    servers = ServerClasses(types=("a",), capacity=np.full((1, 4, 1), 8 * MICRO), count=as_int_array([1]))
    fields = {
        "ids": ("job",),
        "arrival": as_int_array([1]),
        "epochs": as_int_array([2]),
        "chunks": as_int_array([6]),
        "minibatches": as_int_array([10]),
        "minibatch_micro_s": as_int_array([30 * MICRO]),
        "gradient_micro_mb": as_int_array([20 * MICRO]),
        "worker_micro_mbps": as_int_array([100 * MICRO]),
        "ps_micro_mbps": as_int_array([250 * MICRO]),
        "segment_offset": as_int_array([0, 1]),
        "segment_start": as_int_array([0]),
        "worker_demand": np.full((1, 1), 2 * MICRO),
        "ps_demand": np.full((1, 1), MICRO),
        "utilities": (StepUtility(value=10.0, max_delay=1, late_value=4.0),),
        "min_utility": np.array([np.nan]),
        **changes,
    }
    return AdmissionInstance(
        name="one",
        horizon=4,
        slot_micro_s=900 * MICRO,
        resources=("gpu",),
        jobs=Jobs(**fields),
        worker_servers=servers,
        ps_servers=replace(servers),
        min_utility_share=Fraction(1, 100),
    )


def test_work_is_epochs_times_chunks_times_the_slots_of_a_chunk_rounded_up():
    # A mini-batch takes 30 s + 16 * 20 / 100 s = 33.2 s, a chunk 332 s = 332/900 slots; 12 chunks 4.43 slots.
    instance = one_job()
    assert instance.chunk_slots == (Fraction(332, 900),)
    assert instance.work.tolist() == instance.target.tolist() == [5]
    assert instance.max_workers.tolist() == [5]


def test_parameter_servers_carry_the_workers_bandwidth_rounded_up():
    assert one_job().ps_needed[0].tolist() == [0, 1, 1, 2, 2, 2]


def test_values_are_0_before_arrival_and_follow_the_delay():
    assert one_job().value.tolist() == [[0.0, 10.0, 10.0, 4.0]]


def test_whole_chunks_count_what_a_worker_completes_in_a_slot():
    instance = replace(one_job(), chunk_integral=True)
    assert instance.target.tolist() == [12]
    assert instance.max_workers.tolist() == [6]
    # Y workers make Y * 900 / 332 = 2.71 Y chunks, rounded down.
    assert instance.progress[0].tolist() == [0, 2, 5, 8, 10, 13, 16]


@pytest.mark.parametrize("chunk_integral", [False, True])
def test_work_beyond_64_bits_is_cut_to_what_no_horizon_holds(chunk_integral):
    huge = 10**9
    instance = one_job(
        epochs=as_int_array([10**12]),
        chunks=as_int_array([10**9 if not chunk_integral else 10**8]),
        minibatches=as_int_array([huge]),
    )
    instance = replace(instance, chunk_integral=chunk_integral)
    assert instance.target.tolist() == [WORK_CAP]
