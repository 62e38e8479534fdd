"""Admission instances from plain Python and frames."""

import math
import re

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import optim
from optim.core.errors import InvalidProblemError
from optim.models.admission.codec import document_from_instance
from optim.models.admission.data import MICRO

pytestmark = pytest.mark.filterwarnings("ignore:.* jobs can never run")

JOB = {"id": "a", "work": 6, "max_workers": 3, "worker": {"gpu": 1}, "value": 10.0, "deadline": 2}
SERVERS = [{"capacity": {"gpu": 4}}]


def build(job=None, **fields):
    return optim.AdmissionInstance.from_jobs(
        [JOB if job is None else job], **{"horizon": 4, "worker_servers": SERVERS} | fields
    )


@pytest.mark.parametrize("name", ["tiny-1", "shared-0", "small-2"])
def test_an_instances_frame_builds_it_again(name):
    instance = optim.reference_instance(name, optim.AdmissionInstance)
    document = document_from_instance(instance)
    servers = {}
    for side in ("worker_servers", "ps_servers", "shared_servers"):
        classes = getattr(document, side)
        if classes:
            servers[side] = [{"type": c.type, "count": c.count, "capacity": c.capacity} for c in classes]
    again = optim.AdmissionInstance.from_jobs(
        instance.to_frame(),
        horizon=instance.horizon,
        slot_s=float(document.slot_s),
        resources=instance.resources,
        name=instance.name,
        **servers,
    )
    assert document_from_instance(again) == document


@given(
    work=st.integers(1, 5000),
    most=st.integers(1, 64),
    slot_s=st.sampled_from([0.3, 1.0, 60.0, 600.0, 3600.0, 777.777777]),
)
def test_work_in_short_is_that_many_worker_slots(work, most, slot_s):
    if work * most >= slot_s * MICRO:
        most = 1
    instance = build({**JOB, "work": work, "max_workers": most}, slot_s=slot_s)
    assert instance.work.tolist() == [work]
    assert instance.max_workers.tolist() == [min(most, work)]
    assert instance.ps_needed[0][1:].tolist() == [1] * min(most, work)


def test_work_that_slots_cannot_be_cut_into_is_refused():
    with pytest.raises(InvalidProblemError, match="too large for slots of 1e-05 s; use longer slots"):
        build({**JOB, "work": 100, "max_workers": 3}, slot_s=1e-5)


def test_the_optimum_of_jobs_in_short_is_the_one_worked_out_by_hand():
    jobs = [JOB, {"id": "b", "work": 4, "max_workers": 2, "worker": {"gpu": 2}, "value": 3.0}]
    instance = optim.AdmissionInstance.from_jobs(jobs, horizon=4, worker_servers=SERVERS)
    solution = optim.solve(instance, "branch-and-price", time_limit_s=60)
    assert solution.raise_unless_optimal().objective == pytest.approx(13.0)  # a in slots 0 and 1, b in 2 and 3
    tight = optim.AdmissionInstance.from_jobs([*jobs, {**JOB, "id": "c"}], horizon=4, worker_servers=SERVERS)
    assert tight.value[2].tolist() == [10.0, 10.0, 10.0, 0.0]
    solution = optim.solve(tight, "branch-and-price", time_limit_s=60)
    assert solution.objective == pytest.approx(20.0)  # a and c take all 12 GPU-slots up to the deadline
    assert optim.verify(tight, solution).is_ok


def test_a_frame_of_jobs_is_as_good_as_mappings():
    frame = pd.DataFrame([{"id": "a", "work": 6, "max_workers": 3, "worker.gpu": 1, "value": 10.0, "deadline": 2}])
    assert document_from_instance(build(None)) == document_from_instance(
        optim.AdmissionInstance.from_jobs(frame, horizon=4, worker_servers=pd.DataFrame([{"capacity.gpu": 4}]))
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"worker": {"gpus": 1}}, r"jobs\[0\].worker names 'gpus', an unknown resource; known resources: gpu"),
        ({"work": 0}, r"jobs\[0\].work must be a whole number of at least 1, got 0"),
        ({"work": 2.5}, r"jobs\[0\].work must be a whole number"),
        ({"epochs": 3}, r"jobs\[0\].work excludes epochs"),
        ({"gradient_mb": 3}, r"jobs\[0\].work excludes gradient_mb"),
        ({"utility": {"kind": "constant", "value": 1.0}}, "value excludes utility"),
        ({"arrival": 3}, "deadline must be a slot from the arrival 3 on, got 2"),
        ({"deadline": 2.5}, "deadline must be a slot from the arrival 0 on, got 2.5"),
        ({"value": None}, "deadline requires value"),
        ({"colour": "red"}, "unknown field `colour`"),
        ({"arrival": 9}, "arrival"),
    ],
)
def test_wrong_jobs_are_refused_by_field(change, said):
    with pytest.raises(InvalidProblemError, match=said):
        build({**JOB, **change})


def test_resources_must_be_known():
    with pytest.raises(InvalidProblemError, match="resources must be given if a capacity is a list"):
        build(worker_servers=[{"capacity": [4]}])
    assert build(worker_servers=[{"capacity": [4]}], resources=["gpu"]).resources == ("gpu",)


@pytest.mark.parametrize(
    ("job", "more", "said"),
    [
        ({"value": math.nan}, {}, "jobs[0].value must be a finite number of at least 0, got nan"),
        ({"value": -1}, {}, "jobs[0].value must be a finite number of at least 0, got -1"),
        ({"value": "3"}, {}, "jobs[0].value must be a finite number of at least 0, got '3'"),
        (
            {"value": None},
            {},
            "jobs[0] lacks value; give the value of its completion in utility units, or give a utility",
        ),
        ({}, {"horizon": 0}, "instance: horizon: expected a whole number of at least 1"),
        ({}, {"horizon": 2.5}, "instance: horizon: expected a whole number, got a number"),
        ({}, {"resources": "gpu"}, "resources must be a list of names, got 'gpu'; write ['gpu']"),
        ({}, {"resources": 5}, "resources must be a list of names, got 5"),
    ],
)
def test_what_is_wrong_is_named_as_it_was_given(job, more, said):
    jobs = [{"work": 2, "worker": {"gpu": 1}, "value": 3, **job}]
    given = {"horizon": 4, "worker_servers": [{"capacity": {"gpu": 4}}], **more}
    with pytest.raises(InvalidProblemError, match=f"^{re.escape(said)}"):
        optim.AdmissionInstance.from_jobs(jobs, **given)


def test_a_job_without_a_name_has_its_number_and_a_deadline_beyond_the_horizon_is_no_limit():
    servers = [{"capacity": {"gpu": 4}}]
    jobs = [{"id": None, "work": 2, "worker": {"gpu": 1}, "value": 3, **late} for late in ({}, {"deadline": 99})]
    instance = optim.AdmissionInstance.from_jobs(jobs, horizon=4, worker_servers=servers)
    assert instance.jobs.ids == ("job-0", "job-1")
    assert instance.deadline.tolist() == [3, 3]
