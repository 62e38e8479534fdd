"""Arguments of a wrong kind in Python: one sentence with field, value and remedy, never an error from inside."""

import math

import pandas as pd
import pytest

import optim
from optim.core.errors import InvalidOptionError, InvalidProblemError

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
        match=r"resources must be given where no capacity names them, got worker_servers\[0\].capacity \[4\]",
    ):
        build(worker_servers=[{"capacity": [4]}])
    assert build({"worker": [1]}, worker_servers=[{"capacity": [4]}], resources=["gpu"]).resources == ("gpu",)


def test_a_number_as_id_is_refused_with_a_remedy():
    with pytest.raises(InvalidProblemError, match=r"jobs\[0\]\.id must be a text, got 7; write '7'"):
        build({"id": 7})


@pytest.mark.parametrize("history", [("tiny-0", "tiny-1"), ["tiny-0"], {"a": 1}, object()])
def test_a_list_is_no_text(history):
    with pytest.raises(InvalidOptionError, match=r"option 'history' must be a text, got"):
        optim.solve(optim.reference_instance("tiny-0"), "online", options={"bounds": "history", "history": history})
