"""The checker's tables against the instance's: two derivations of the same numbers."""

from dataclasses import is_dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import optim
from optim.models.admission import data
from optim.models.admission.check.exact_instance import (
    IMPOSSIBLE,
    ExactInstance,
    max_in_class,
    max_ps_beside,
    read_exact_instance,
    value_by_delay,
)
from optim.models.admission.data import ConstantUtility, SigmoidUtility, StepUtility, TableUtility, Utility
from optim.models.admission.decision import Side
from optim.models.admission.instance import AdmissionInstance
from tests.support.admission.enumeration import Enumerator
from tests.support.admission.tiny import BY_HAND, job_document, tiny_instance, tiny_instances

REFERENCES = [
    "tiny-0",
    "small-1",
    "heavy-0",
    *(pytest.param(name, marks=pytest.mark.prove) for name in ("medium-2", "light-1")),
]


def assert_same_tables(instance: AdmissionInstance) -> None:
    """Compare every derived table."""
    exact = read_exact_instance(instance)
    assert exact.is_shared == instance.has_shared_servers
    for i, job in enumerate(exact.jobs):
        assert job.target == instance.target[i]
        assert job.max_workers == instance.max_workers[i]
        assert job.deadline == instance.deadline[i]
        np.testing.assert_array_equal(np.array(job.value), instance.value[i])
        workers = range(job.max_workers + 1)
        progress = np.array([min(job.progress(y), job.target) for y in workers])
        np.testing.assert_array_equal(progress, np.minimum(instance.progress[i], job.target))
        np.testing.assert_array_equal([job.ps_needed(y) for y in workers], instance.ps_needed[i])
        assert_same_room(exact, instance, i)


def assert_same_room(exact: ExactInstance, instance: AdmissionInstance, i: int) -> None:
    """Compare the units of one job that a class of servers holds in every segment and slot."""
    job = exact.jobs[i]
    slots = range(instance.horizon)
    for number, demand in enumerate(job.demands):
        segment = int(instance.jobs.segment_offset[i]) + number
        for side, one, servers, most in (
            (Side.WORKER, instance.workers_per_server, instance.worker_servers, job.max_workers),
            (Side.PS, instance.ps_per_server, instance.ps_servers, job.ps_needed(job.max_workers)),
        ):
            expected = np.minimum(one[segment] * servers.count[:, None], most)
            np.testing.assert_array_equal(max_in_class(exact, job, demand, side, slots), expected)


@pytest.mark.parametrize("name", REFERENCES)
def test_agrees_with_the_tables_of_a_reference_instance(name: str) -> None:
    assert_same_tables(optim.reference_instance(name))


@pytest.mark.parametrize("trait", BY_HAND)
def test_agrees_with_the_tables_of_every_trait(trait: str) -> None:
    assert_same_tables(BY_HAND[trait])


@given(tiny_instances())
def test_agrees_with_the_tables_of_any_instance(instance: AdmissionInstance) -> None:
    assert_same_tables(instance)


@given(tiny_instances(max_jobs=1, horizon=2))
def test_agrees_with_an_enumeration_of_the_pairs_on_shared_servers(instance: AdmissionInstance) -> None:
    servers = instance.worker_servers
    exact, enumerator = read_exact_instance(instance), Enumerator(instance)
    most = int(instance.jobs.chunks[0])
    for number, demand in enumerate(exact.jobs[0].demands):
        for c in range(servers.num_classes):
            pairs = enumerator.pairs(number, enumerator.places[0][c], 0, most, "both")
            room = exact.worker_servers.capacity_at(c, 0)
            beside = max_ps_beside(demand, room, exact.share, int(servers.count[c]), (most, most))
            expected = [max((z for y, z in pairs if y == workers), default=IMPOSSIBLE) for workers in range(most + 1)]
            assert beside.tolist() == expected


UTILITIES = [
    SigmoidUtility(theta1=50.0, theta2=0.3, theta3=7.0),
    SigmoidUtility(theta1=50.0, theta2=6.0, theta3=2.0),
    SigmoidUtility(theta1=50.0, theta2=0.0, theta3=2.0),
    ConstantUtility(value=3.5),
    StepUtility(value=9.0, max_delay=4, late_value=0.1),
    TableUtility(table=(5.0, 4.0, 0.5)),
]


def test_no_kind_that_ships_is_taken_at_its_word(monkeypatch: pytest.MonkeyPatch) -> None:
    shipped = {kind for kind in vars(data).values() if is_dataclass(kind) and hasattr(kind, "values")}
    assert {type(utility) for utility in UTILITIES} == shipped
    for kind in shipped:
        monkeypatch.setattr(kind, "values", None)
    for utility in UTILITIES:
        assert value_by_delay(utility, 300, minimum=0.0, share=0.01)[0][0] > 0


@pytest.mark.parametrize("utility", UTILITIES)
def test_agrees_with_the_values_of_every_kind_of_utility(utility: Utility) -> None:
    worth, error = value_by_delay(utility, 300, minimum=0.0, share=0.01)
    np.testing.assert_allclose(worth, utility.values(300), rtol=max(error, 1e-15), atol=1e-300)


def test_takes_a_foreign_utility_at_its_word() -> None:
    class Halving:
        def values(self, num_delays: int) -> np.ndarray:
            return 0.5 ** np.arange(num_delays)

    assert value_by_delay(Halving(), 3, minimum=np.nan, share=0.4) == ((1.0, 0.5, 0.0), 0.0)


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.integers(1, 20))
def test_rounds_bandwidth_and_work_up_exactly(rate: int, more: int, gradient: int) -> None:
    document = job_document(
        "a", worker_mbps=rate / 10**6, ps_mbps=(rate + more) / 10**6, gradient_mb=gradient / 10**6, chunks=5
    )
    assert_same_tables(tiny_instance(document))
