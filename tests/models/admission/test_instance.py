"""Derived data of an instance, unions of several days, and arguments of a wrong type."""

import math
from dataclasses import dataclass, fields, replace
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

import optim
from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.models.admission.data import (
    MAX_SPEEDUP,
    MICRO,
    TWENTIETHS,
    WORK_CAP,
    Jobs,
    ServerClasses,
    StepUtility,
    as_int_array,
)
from optim.models.admission.instance import AdmissionInstance, merge_days, take_jobs
from tests.support.admission.tiny import SEGMENTS, job_document, tiny_instance


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


FIRST = tiny_instance(job_document("a", segments=SEGMENTS), job_document("b", arrival=2))
SECOND = tiny_instance(job_document("a", arrival=1), job_document("late", arrival=5), horizon=6)


def test_jobs_of_all_days_stand_side_by_side_and_late_ones_are_left_out() -> None:
    union = merge_days([FIRST.jobs, SECOND.jobs], FIRST)
    assert union.jobs.ids == ("0:a", "0:b", "1:a")
    np.testing.assert_array_equal(union.jobs.arrival, [0, 2, 1])
    np.testing.assert_array_equal(union.jobs.segment_offset, [0, 2, 3, 4])
    np.testing.assert_array_equal(union.value[:2], FIRST.value)
    np.testing.assert_array_equal(union.value[2], SECOND.value[0, :4])
    np.testing.assert_array_equal(union.workers_per_server[:3], FIRST.workers_per_server)


def test_no_days_are_a_cluster_without_jobs() -> None:
    assert merge_days([], FIRST).num_jobs == 0


def test_jobs_are_taken_in_the_order_asked_for() -> None:
    taken = take_jobs(FIRST.jobs, np.array([1, 0]))
    assert taken.ids == ("b", "a")
    np.testing.assert_array_equal(taken.segment_offset, [0, 1, 3])
    np.testing.assert_array_equal(taken.worker_demand[1:], FIRST.jobs.worker_demand[:2])


def test_speeds_of_several_workers_go_with_their_jobs() -> None:
    fast = tiny_instance(job_document("fast", speedup=[1, 1.5]), job_document("plain"))
    union = merge_days([SECOND.jobs, fast.jobs], FIRST)
    assert union.jobs.speedup == ((), fast.jobs.speedup[0], ())
    np.testing.assert_array_equal(union.target[1:], fast.target)
    assert take_jobs(fast.jobs, np.array([1, 0])).speedup == fast.jobs.speedup[::-1]


@dataclass(frozen=True, kw_only=True, eq=False)
class WeightedJobs(Jobs):
    """Jobs with two fields more, as a later version may have them."""

    weight: np.ndarray
    tags: tuple[str, ...]


def weighted(jobs: Jobs, weight: list[float]) -> WeightedJobs:
    given = {field.name: getattr(jobs, field.name) for field in fields(jobs)}
    return WeightedJobs(**given, weight=np.array(weight), tags=tuple(f"tag of {name}" for name in jobs.ids))


def test_a_field_that_nobody_listed_goes_with_its_jobs() -> None:
    cluster = replace(FIRST, jobs=weighted(FIRST.jobs, [9.0, 9.0]))
    days = [weighted(FIRST.jobs, [1.0, 2.0]), weighted(SECOND.jobs, [3.0, 4.0])]
    taken = take_jobs(days[0], np.array([1, 0]))
    assert (taken.weight.tolist(), taken.tags) == ([2.0, 1.0], ("tag of b", "tag of a"))
    joined = merge_days(days, cluster).jobs
    assert (joined.weight.tolist(), joined.tags) == ([1.0, 2.0, 3.0], ("tag of a", "tag of b", "tag of a"))
    assert merge_days([], cluster).jobs.weight.tolist() == []


def test_every_field_of_jobs_is_joined_and_taken() -> None:
    nobody = merge_days([], FIRST).jobs
    for field in fields(FIRST.jobs):
        whole, column = getattr(FIRST.jobs, field.name), getattr(nobody, field.name)
        again = getattr(take_jobs(FIRST.jobs, np.arange(2)), field.name)
        assert np.array_equal(again, whole, equal_nan=field.name == "min_utility"), field.name
        assert len(column) == (1 if field.name == "segment_offset" else 0), field.name


def test_the_largest_speed_up_is_taken_and_no_larger_one():
    instance = tiny_instance(job_document(speedup=[1, MAX_SPEEDUP]))
    assert instance.jobs.speedup == ((TWENTIETHS, MAX_SPEEDUP * TWENTIETHS),)
    with pytest.raises(InvalidProblemError, match=rf"speedup must be at most {MAX_SPEEDUP}, got"):
        tiny_instance(job_document(speedup=[1, MAX_SPEEDUP + 1]))


JOB = {"id": "a", "work": 4, "max_workers": 2, "worker": {"gpu": 1}, "value": 3, "deadline": 2}
SERVERS = [{"capacity": {"gpu": 4}}]


def build(job=None, **given):
    return optim.AdmissionInstance.from_jobs(
        [{**JOB, **(job or {})}], **{"horizon": 4, "worker_servers": SERVERS, **given}
    )


@pytest.mark.parametrize("progress", [1, "yes", 0, [], object()])
def test_progress_is_a_truth_or_an_object_that_listens(progress):
    with pytest.raises(
        InvalidOptionError, match=r"progress must be True, False or an object with start, update and finish"
    ):
        optim.solve(optim.reference_instance("tiny-0"), "fifo", progress=progress)


@pytest.mark.parametrize("slot_s", ["600", None, True, math.nan, math.inf, 0])
def test_a_slots_length_is_a_number(slot_s):
    with pytest.raises(InvalidProblemError, match=r"slot_s must be a positive number of seconds, got"):
        build(slot_s=slot_s)


@pytest.mark.parametrize("name", ["work", "max_workers"])
@pytest.mark.parametrize("value", [math.nan, math.inf, "4", 0, 1.5])
def test_work_is_a_whole_number(name, value):
    with pytest.raises(InvalidProblemError, match=rf"jobs\[0\]\.{name} must be a whole number of at least 1, got"):
        build({name: value})


@pytest.mark.parametrize("value", [math.nan, math.inf, "2", -1, 1.5, [2]])
def test_a_deadline_is_a_slot(value):
    with pytest.raises(InvalidProblemError, match=r"jobs\[0\]\.deadline must be a slot from the arrival 0 on, got"):
        build({"deadline": value})


@pytest.mark.parametrize("value", [math.nan, "2", [2]])
def test_an_arrival_is_a_slot(value):
    with pytest.raises(InvalidProblemError, match=r"jobs\[0\]\.arrival must be a slot, got"):
        build({"arrival": value})


def test_a_frame_with_a_gap_in_work_is_told_of_work():
    frame = pd.DataFrame({"id": ["a", "b"], "work": [4, None], "worker.gpu": [1, 1], "value": [1.0, 2.0]})
    with pytest.raises(InvalidProblemError, match=r"jobs\[1\] lacks work; give it in worker-slots, or give epochs"):
        optim.AdmissionInstance.from_jobs(frame, horizon=4, worker_servers=SERVERS)


@pytest.mark.parametrize("servers", [[], None, ()])
def test_a_cluster_without_servers_is_told_of_them(servers):
    with pytest.raises(InvalidProblemError, match=r"worker_servers must hold at least one class of servers, got"):
        build(worker_servers=servers)


def test_a_capacity_without_names_is_told_of_the_resources():
    with pytest.raises(
        InvalidProblemError,
        match=r"resources must be given if a capacity is a list, got worker_servers\[0\].capacity \[4\]",
    ):
        build(worker_servers=[{"capacity": [4]}])
    assert build({"worker": [1]}, worker_servers=[{"capacity": [4]}], resources=["gpu"]).resources == ("gpu",)


def test_a_number_as_id_is_refused_with_a_remedy():
    with pytest.raises(InvalidProblemError, match=r"jobs\[0\]\.id must be a string, got 7; write '7'"):
        build({"id": 7})


@pytest.mark.parametrize("history", [("tiny-0", "tiny-1"), ["tiny-0"], {"a": 1}, object()])
def test_a_list_is_no_text(history):
    with pytest.raises(InvalidOptionError, match=r"option 'history' must be a text, got"):
        optim.solve(optim.reference_instance("tiny-0"), "online", options={"bounds": "history", "history": history})
