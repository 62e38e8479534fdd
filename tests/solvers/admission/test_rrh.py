"""The risk-reward heuristic: admission by slack, running by rank."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from optim.core.errors import InvalidOptionError
from optim.models.admission.codec import ConstantDocument, StepDocument, TableDocument
from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.fifo import FixedWorkers
from optim.solvers.admission.rrh import RiskAndReward, RrhOptions, RrhPolicy
from tests.support.admission.slot_runs import cluster, job, recorded
from tests.support.admission.strategies import JobSketch, ServerSketch


def workers(instance: AdmissionInstance, number: int = 9, **options: Any) -> list[dict[int, int]]:
    """Return the workers of each job, slot by slot."""
    fixed = FixedWorkers(number, number, np.random.default_rng(0))
    return recorded(instance, RrhPolicy(RrhOptions(**options), fixed))[0].workers()


def test_cost_slack_and_rank_follow_their_formulas() -> None:
    risks = RiskAndReward(
        remaining=np.array([4.0, 2.0, 3.0]),
        present=np.array([8.0, 6.0, 5.0]),
        decay=np.array([0.5, 2.0, 1.0]),
        patience=np.array([9.0, 3.0, 2.0]),
        weight=np.array([0.25, 1.0, 1.0]),
    )
    cost = 0.25 * (2.0 * 3.0 + 1.0 * 2.0)  # the others wait min(4, 3) and min(4, 2) slots
    assert risks.cost(0) == cost
    assert risks.slack(0) == (8.0 - cost) / 0.5
    assert risks.rank(0, 0.75) == (0.75 * 8.0 - 0.25 * cost) / 4.0


def test_a_job_that_can_wait_for_ever_is_worth_its_reward_alone() -> None:
    numbers = {"remaining": np.array([1.0, 1.0]), "patience": np.array([9.0, 9.0]), "weight": np.ones(2)}
    patient = {"decay": np.array([0.0, 2.0]), **numbers}
    assert RiskAndReward(present=np.array([3.0, 1.0]), **patient).slack(0) == np.inf
    assert RiskAndReward(present=np.array([1.0, 1.0]), **patient).slack(0) == -np.inf


URGENT = job(1, 4, utility=StepDocument(value=10.0, max_delay=3))
"""Completes just in time, or loses 10 by any delay: half of a cluster of two costs 5 to others."""


@pytest.mark.parametrize(("value", "is_admitted"), [(3.0, False), (6.0, True)])
def test_admits_what_covers_the_loss_of_those_that_would_wait(value: float, is_admitted: bool) -> None:
    newcomer = job(1, 2, utility=ConstantDocument(value))
    rows = workers(cluster([URGENT, newcomer], ServerSketch(capacity=("2",)), horizon=6))
    assert (1 in rows[0]) is is_admitted
    assert all(0 in row for row in rows[:4])


def test_costs_in_full_where_the_share_is_not_weighed() -> None:
    newcomer = job(1, 2, utility=ConstantDocument(6.0))
    instance = cluster([URGENT, newcomer], ServerSketch(capacity=("2",)), horizon=6)
    assert 1 not in workers(instance, is_cost_shared=False)[0]


@pytest.mark.parametrize(("threshold", "is_admitted"), [(4.9, True), (4.97, False)])
def test_admits_above_the_threshold_of_slack_only(threshold: float, is_admitted: bool) -> None:
    """PV = 10 / 1.01, decay 2: a slack of 4.95 slots."""
    instance = cluster([job(1, utility=TableDocument([10.0, 8.0]))], ServerSketch(capacity=("2",)))
    assert (workers(instance, threshold=threshold, rate=0.01)[0] == {0: 1}) is is_admitted


def test_refuses_a_job_that_can_no_longer_earn() -> None:
    instance = cluster([job(1, 3, utility=StepDocument(value=10.0, max_delay=1))], ServerSketch(capacity=("2",)))
    assert workers(instance) == [{}, {}, {}, {}]


def flat(value: float, **more: Any) -> JobSketch:
    return job(1, utility=ConstantDocument(value), **more)


def test_runs_the_higher_rank_first() -> None:
    assert workers(cluster([flat(1.0), flat(9.0)], ServerSketch(capacity=("1",)))) == [{1: 1}, {0: 1}, {}, {}]


def test_ranks_by_cost_alone_where_the_reward_has_no_weight() -> None:
    """The large job displaces more value, and has equal value per slot: only its share of the cluster is a disadvantage."""
    waiting = job(1, worker=("1",), utility=TableDocument([9.0, 8.0, 7.0, 6.0]))
    wide = job(1, worker=("2",), utility=TableDocument([9.5, 8.5, 7.5, 6.5]))
    instance = cluster([wide, waiting], ServerSketch(capacity=("2",)))
    assert workers(instance, alpha=0.0)[:2] == [{1: 1}, {0: 1}]
    assert workers(instance, alpha=1.0)[:2] == [{0: 1}, {1: 1}]


def test_interrupts_a_job_for_one_of_higher_rank_and_resumes_it() -> None:
    long = job(1, 3, utility=ConstantDocument(3.0))
    instance = cluster([long, flat(9.0, arrival=1)], ServerSketch(capacity=("1",)))
    assert workers(instance) == [{0: 1}, {1: 1}, {0: 1}, {0: 1}]


def test_a_job_whose_number_does_not_fit_pauses_rather_than_shrinks() -> None:
    long = job(2, 2, utility=ConstantDocument(3.0))
    urgent = job(2, arrival=1, utility=ConstantDocument(9.0))
    instance = cluster([long, urgent], ServerSketch(capacity=("3",)))
    assert workers(instance) == [{0: 2}, {1: 2}, {0: 2}, {}]


def test_passes_over_a_job_that_does_not_fit() -> None:
    """The wide job ranks second and must wait; the narrow one after it fits."""
    sketches = [flat(9.0, worker=("2",)), flat(8.0, worker=("2",)), flat(1.0)]
    assert workers(cluster(sketches, ServerSketch(capacity=("3",))))[0] == {0: 1, 2: 1}


def test_gives_up_a_job_once_it_is_worthless() -> None:
    """Both promise completion in slot 1; the job of higher value takes the server, and the other's time is then over."""
    cheap, dear = (job(1, 2, utility=StepDocument(value=value, max_delay=1)) for value in (5.0, 9.0))
    instance = cluster([cheap, dear], ServerSketch(capacity=("1",)))
    assert workers(instance, threshold=-100.0) == [{1: 1}, {1: 1}, {}, {}]


def test_takes_no_more_workers_than_an_empty_cluster_holds() -> None:
    assert workers(cluster([job(5)], ServerSketch(capacity=("3",)))) == [{0: 3}, {0: 2}, {}, {}]


def test_shrinks_where_the_whole_cluster_is_too_small() -> None:
    falling = ServerSketch(capacity=(("3",), ("2",), ("3",), ("3",)))
    assert workers(cluster([job(3, 3)], falling)) == [{0: 3}, {0: 2}, {0: 3}, {0: 1}]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"rate": -0.1}, "rate"),
        ({"alpha": 1.1}, "alpha"),
        ({"threshold": float("nan")}, "threshold"),
        ({"min_workers": 0}, "min_workers"),
    ],
)
def test_refuses_options_out_of_range(given: Mapping[str, Any], text: str) -> None:
    with pytest.raises(InvalidOptionError, match=text):
        RrhOptions(**given)
