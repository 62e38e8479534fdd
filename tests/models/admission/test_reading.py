"""Reading and writing documents of admission instances, and the causes of invalid ones."""

import json
from typing import Any

import numpy as np
import pytest

from optim.core.errors import InvalidProblemError
from optim.core.limits import read_limits
from optim.models.admission.problem import PROBLEM
from tests.support.admission.tiny import BY_HAND, SEGMENTS, day_and_night, job_document, tiny_instance

UTILITIES = [
    {"kind": "sigmoid", "theta1": 10.0, "theta2": 0.5, "theta3": 2.0},
    {"kind": "constant", "value": 3.0},
    {"kind": "step", "value": 3.0, "deadline": 1, "late_value": 1.0},
    {"kind": "table", "table": [5.0, 2.0]},
]
WORTHS = [
    [10 / (1 + np.exp(0.5 * (d - 2))) for d in range(4)],
    [3.0] * 4,
    [3.0, 3.0, 1.0, 1.0],
    [5.0, 2.0, 0.0, 0.0],
]


@pytest.mark.parametrize("trait", BY_HAND)
def test_what_is_read_back_is_the_same(trait: str) -> None:
    written = PROBLEM.write_instance(BY_HAND[trait])
    again = PROBLEM.read_instance(written)
    assert PROBLEM.write_instance(again) == written
    for name in ("work", "target", "value", "deadline", "workers_per_server", "ps_per_server"):
        np.testing.assert_array_equal(getattr(again, name), getattr(BY_HAND[trait], name))
    assert again.has_shared_servers == BY_HAND[trait].has_shared_servers


def test_a_document_holds_what_was_given() -> None:
    jobs = [job_document("a", min_utility=2.0, minibatch_s=2.5), job_document("b", segments=SEGMENTS)]
    given = tiny_instance(
        *jobs,
        worker_servers=[{"type": "gpus", "capacity": day_and_night(3, 1), "count": 2}],
        max_share_per_server=0.5,
        min_utility=0.125,
        chunk_integral=True,
    )
    document = json.loads(PROBLEM.write_instance(given))
    assert document["jobs"] == [{**jobs[0], "utility": {"kind": "table", "table": [16.0, 8.0, 4.0, 2.0, 1.0]}}, {
        **jobs[1], "utility": {"kind": "table", "table": [16.0, 8.0, 4.0, 2.0, 1.0]}
    }]  # fmt: skip
    assert document["worker_servers"] == [{"type": "gpus", "capacity": day_and_night(3, 1), "count": 2}]
    assert document["ps_servers"] == [{"type": "cpus", "capacity": [0, 2], "count": 1}]
    assert (document["max_share_per_server"], document["min_utility"], document["chunk_integral"]) == (0.5, 0.125, True)
    assert (document["horizon"], document["slot_s"], document["resources"]) == (4, 10, ["gpu", "cpu"])


@pytest.mark.parametrize(
    ("utility", "worth"), list(zip(UTILITIES, WORTHS, strict=True)), ids=lambda each: str(each)[:20]
)
def test_every_kind_of_utility_is_worth_what_it_says(utility: dict[str, Any], worth: list[float]) -> None:
    given = tiny_instance(job_document("a", utility=utility, min_utility=0.0))
    assert given.value[0].tolist() == pytest.approx(worth)
    assert json.loads(PROBLEM.write_instance(given))["jobs"][0]["utility"] == utility


JOB = {
    "a missing demand": ({"worker": None}, r"jobs\[0\] needs worker and ps demands"),
    "a demand too many": ({"worker": [1, 0, 0]}, r"jobs\[0\].worker must list 2 resources, got 3"),
    "a demand below 0": ({"ps": [0, -0.5]}, r"jobs\[0\].ps\[1\] must not be negative"),
    "seven digits": ({"worker": [0.0000001, 0]}, "at most 6 digits"),
    "a huge demand": ({"worker": [2e9, 0]}, "at most 1000000000"),
    "no epochs": ({"epochs": 0}, "epochs"),
    "no chunks": ({"chunks": 0}, "chunks"),
    "no minibatches": ({"minibatches": 0}, "minibatches"),
    "arrival at the horizon": ({"arrival": 4}, r"jobs\[0\].arrival must be before the horizon of 4"),
    "arrival before it": ({"arrival": -1}, "arrival"),
    "no bandwidth": ({"worker_mbps": 0}, r"jobs\[0\].worker_mbps must be positive"),
    "workers faster than servers": ({"worker_mbps": 3}, r"jobs\[0\].worker_mbps .* must not exceed ps_mbps"),
    "an hour below 0": ({"minibatch_s": -1}, r"jobs\[0\].minibatch_s must be at least 0"),
    "a minimum below 0": ({"min_utility": -1.0}, r"jobs\[0\].min_utility must be at least 0"),
    "a utility that rises": ({"utility": {"kind": "table", "table": [1, 2]}}, "must not increase with the delay"),
    "a utility below 0": ({"utility": {"kind": "constant", "value": -1}}, "must not be negative"),
    "segments that start late": ({"segments": [SEGMENTS[1]], "worker": None, "ps": None}, "must start at 0"),
    "segments twice": ({"segments": [SEGMENTS[0]] * 2, "worker": None, "ps": None}, "rise strictly"),
    "segments and demands": ({"segments": SEGMENTS}, r"jobs\[0\].segments excludes worker and ps"),
}  # fmt: skip


def with_job(changes: dict[str, Any]) -> Any:
    job = {name: value for name, value in (job_document("a") | changes).items() if value is not None}
    document = json.loads(PROBLEM.write_instance(BY_HAND["plain"])) | {"jobs": [job]}
    return PROBLEM.read_instance(json.dumps(document).encode())


def test_the_untouched_job_is_read() -> None:
    assert with_job({}).num_jobs == 1


@pytest.mark.parametrize("name", JOB)
def test_refuses_a_job_with(name: str) -> None:
    changes, says = JOB[name]
    with pytest.raises(InvalidProblemError, match=says) as raised:
        with_job(changes)
    assert "\n" not in str(raised.value)


SERVERS = [{"type": "gpus", "capacity": [2, 0], "count": 2}]
INSTANCE = {
    "no horizon": ({"horizon": 0}, "horizon"),
    "no slot": ({"slot_s": 0}, "slot_s must be positive"),
    "resources twice": ({"resources": ["gpu", "gpu"]}, "distinct names"),
    "a share of nothing": ({"max_share_per_server": 0}, r"max_share_per_server must be in \(0, 1\]"),
    "a share of more": ({"max_share_per_server": 1.5}, r"max_share_per_server must be in \(0, 1\]"),
    "a minimum above 1": ({"min_utility": 1.5}, r"min_utility must be in \[0, 1\]"),
    "jobs twice": ({"jobs": [job_document("a"), job_document("a")]}, "id 'a' is used twice"),
    "shared and separate servers": ({"shared_servers": SERVERS}, "shared_servers excludes"),
    "one side alone": ({"ps_servers": None}, "both required unless shared_servers"),
    "no servers of a class": ({"worker_servers": [SERVERS[0] | {"count": 0}]}, "count"),
    "capacity below 0": ({"worker_servers": [SERVERS[0] | {"capacity": [2, -1]}]}, "must not be negative"),
    "numbers and lists": ({"worker_servers": [SERVERS[0] | {"capacity": [2, [1, 1]]}]}, "mixes numbers and lists"),
    "too few slots": ({"worker_servers": [SERVERS[0] | {"capacity": [[2, 0]] * 3}]}, "each of the 4 slots; got 3"),
    "another schema": ({"schema": "optim/other/1"}, "schema must be 'optim/admission/1'"),
}


@pytest.mark.parametrize("name", INSTANCE)
def test_refuses_an_instance_with(name: str) -> None:
    changes, says = INSTANCE[name]
    document = json.loads(PROBLEM.write_instance(BY_HAND["plain"])) | changes
    document = {field: value for field, value in document.items() if value is not None}
    with pytest.raises(InvalidProblemError, match=says):
        PROBLEM.read_instance(json.dumps(document).encode())


def test_a_slot_may_be_as_short_as_a_microsecond() -> None:
    assert tiny_instance(job_document("a", minibatch_s=0), slot_s=0.000001).slot_micro_s == 1


def test_room_of_all_slots_is_counted_before_it_is_made() -> None:
    document = json.loads(PROBLEM.write_instance(tiny_instance(job_document("a"))))
    cells = document["horizon"] * len(document["resources"])
    with read_limits(cells=cells - 1), pytest.raises(InvalidProblemError, match="classes times slots times resources"):
        PROBLEM.read_instance(json.dumps(document).encode())


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("1e9999999999", "must be at most 1000000000"),
        ("-1e9999999999", "must be at most 1000000000"),
        ("1e-9999999999", "at most 6 digits after the point"),
        ("1.00000000000000000000000000000000000001", "at most 6 digits after the point"),
        ("0.0000005", "at most 6 digits after the point"),
    ],
)
def test_numbers_of_long_exponents_and_many_digits_are_told_as_what_they_are(written: str, says: str) -> None:
    document = PROBLEM.write_instance(tiny_instance(job_document("a", minibatch_s=0.125)))
    assert document.count(b"0.125") == 1
    with pytest.raises(InvalidProblemError, match=says):
        PROBLEM.read_instance(document.replace(b"0.125", written.encode()))
