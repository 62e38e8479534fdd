"""The study of misreports: it agrees with the exact solver, and no misreport is profitable with the lottery."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optim_studies.misreport import SPEC, MisreportOptions, disagreements, divide, draw, study, value_tables

from optim.benchmarks.runner import plan_work
from optim.benchmarks.suite import BenchRequest
from optim.core.errors import InvalidOptionError
from optim.core.progress import SilentProgress
from optim.core.stopping import Never
from optim.models.auction.decision import PaymentRule
from optim.models.auction.payment import grant_size
from tests.support.auction.builders import auction

OPTIONS = MisreportOptions(instances=6, misreports=40)


@pytest.mark.parametrize("rule", [PaymentRule.FLOOR, PaymentRule.LOTTERY])
def test_enumeration_and_exact_solver_agree_on_payments(rule):
    assert [text for seed in range(20) for text in disagreements(draw(OPTIONS, seed), rule, OPTIONS)] == []


def test_two_equal_apps_share_by_hand():
    table = np.array([[[0.0, 1.0, 2.0, 3.0, 4.0]] * 2])
    found = divide(table, is_zero=True)
    assert found.bundle.tolist() == [[2, 2]]
    assert found.share[0] == pytest.approx([0.5, 0.5])


@given(st.integers(0, 10_000), st.lists(st.floats(0.05, 20.0), min_size=6, max_size=6))
def test_under_the_lottery_no_lie_pays(seed, factors):
    """Also if an app is left out: then c is 0 for any report."""
    truth = value_tables(draw(OPTIONS, seed), OPTIONS.gpus)
    truth = truth - truth[:, :1]
    both = np.stack([truth, truth])
    both[1, 0, 1:] = np.maximum.accumulate(both[1, 0, 1:] * np.array(factors))
    found = divide(both, is_zero=True)
    worth = found.share[:, 0] * truth[0][found.bundle[:, 0]]
    assert worth[1] <= worth[0] * (1 + 1e-9)


def test_without_payment_lies_pay_more_often_than_under_any_rule():
    instances = [draw(OPTIONS, seed) for seed in range(40)]
    found = {rule: study(instances, rule, OPTIONS, np.random.default_rng(0)) for rule in PaymentRule}
    assert found[PaymentRule.LOTTERY].profitable == 0.0
    for rule in (PaymentRule.FLOOR, PaymentRule.NEAREST, PaymentRule.CEIL):
        assert 0 < found[rule].profitable < found[PaymentRule.NONE].profitable
    assert found[PaymentRule.FLOOR].leftover > found[PaymentRule.NEAREST].leftover > found[PaymentRule.CEIL].leftover


def test_what_is_left_over_is_what_the_truth_leaves_whatever_lies_are_told():
    # Of six GPUs two are granted, unless the first app reports that it can use more.
    content = auction([OPTIONS.gpus], *[[(1, "cluster", 2.0)]] * 2)
    instances, left = [content, *(draw(OPTIONS, seed) for seed in range(6))], []
    for instance in instances:
        found = divide(value_tables(instance, OPTIONS.gpus)[None], is_zero=False)
        kept = [grant_size(PaymentRule.FLOOR, c, b) for c, b in zip(found.share[0], found.bundle[0], strict=True)]
        left.append(1 - sum(kept) / found.bundle[0].sum())
    for seed in range(3):
        assert study(instances, PaymentRule.FLOOR, OPTIONS, np.random.default_rng(seed)).leftover == pytest.approx(
            np.mean(left)
        )


def test_every_rule_has_a_verified_record():
    work = plan_work([SPEC], BenchRequest(options={"instances": 3, "misreports": 10})).work
    records = [piece.run(Never(), SilentProgress()) for piece in work]
    assert {record.labels["rule"] for record in records} == {rule.value for rule in PaymentRule}
    assert all(record.verified and record.error is None for record in records)


def test_refuses_sizes_that_can_not_be_enumerated():
    with pytest.raises(InvalidOptionError, match="gpus must be in"):
        MisreportOptions(gpus=100)
