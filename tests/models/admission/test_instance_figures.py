"""Figures of instances."""

from collections.abc import Callable

import numpy as np
import pytest
from optim_studies import stress
from optim_studies.stress import document, job, servers

from optim.models.admission.instance import AdmissionInstance, instance_from_document
from optim.models.admission.summary import describe
from optim.models.reference import reference_instance


@pytest.mark.parametrize(("name", "number"), [("medium-0", 188), ("heavy-0", 163), ("heavy-1", 146), ("heavy-2", 126)])
def test_as_many_jobs_fit_alone_as_the_reference_instances_state(name: str, number: int) -> None:
    assert describe(reference_instance(name))["schedulable_jobs"] == number


@pytest.mark.parametrize("build", stress.STRESS_INSTANCES.values(), ids=stress.STRESS_INSTANCES.keys())
def test_describes_every_stress_instance(build: Callable[[], AdmissionInstance]) -> None:
    instance = build()
    figures = describe(instance)
    assert figures["jobs"] == instance.num_jobs
    assert figures["best_value"] >= stress.KNOWN_OPTIMA[dict(_names())[build]] - 1e-9


def _names() -> list[tuple[Callable[[], AdmissionInstance], str]]:
    return [(build, name) for name, build in stress.STRESS_INSTANCES.items()]


def test_demand_is_measured_against_the_capacity_of_all_slots() -> None:
    figures = describe(stress.ps_bound())
    # 4 jobs of 2 worker-slots; 2 servers of 3 workers, 2 of 1 PS, 3 slots.
    assert figures["worker_demand"] == {"units": pytest.approx(8 / 18)}
    assert figures["ps_demand"] == {"units": pytest.approx(8 / 6)}


def test_demand_follows_the_segments() -> None:
    # 3 worker-slots at 1 unit, 3 at 3 units; capacity 3 in 4 slots.
    assert describe(stress.growing_demand())["worker_demand"] == {"units": pytest.approx(12 / 12)}


def test_demand_leaves_out_jobs_that_cannot_finish() -> None:
    assert describe(stress.nothing_fits())["worker_demand"] == {"units": 0.0}


def test_the_share_of_a_server_that_one_job_may_use_is_the_largest() -> None:
    assert describe(stress.density_ladder(per_server=4))["max_share_of_server"] == pytest.approx(0.25)
    assert describe(stress.coarse_pair())["max_share_of_server"] == pytest.approx(0.6)
    assert describe(stress.capped_share())["max_share_of_server"] == pytest.approx(0.5)


def test_the_share_of_a_shared_server_counts_workers_and_pss_together() -> None:
    room = [servers(("8",))]
    pair = job("pair", chunks=2, worker=("1",), ps=("3",), rates=("1", "2"))
    instance = instance_from_document(document("pair", [pair], room, None, horizon=1))
    # At most 2 workers and the one PS that they need: 2 + 3 of 8.
    assert describe(instance)["max_share_of_server"] == pytest.approx(5 / 8)


def test_figures_are_plain_values() -> None:
    for value in describe(reference_instance("tiny-0")).values():
        assert not isinstance(value, (np.generic, np.ndarray))
