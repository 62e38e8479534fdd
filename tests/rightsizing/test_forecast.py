"""The effect of a price on violations, against all choices, and tails from which any safety can be reached."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.rightsizing.learned_policies import TAIL, Forecast, with_tail

RISK = np.array([0.75, 0.5, 0.25, 0.1, 0.02])


@given(seed=st.integers(0, 2**32 - 1), multiplier=st.floats(0, 50), is_weighted=st.booleans())
def test_no_other_quantile_costs_less_at_the_price(seed, multiplier, is_weighted):
    rng = np.random.default_rng(seed)
    need = np.sort(rng.lognormal(size=(4, 2, 5)), axis=2)
    scale = rng.lognormal(size=2)
    weight = rng.lognormal(size=(4, 2)) if is_weighted else np.ones((4, 2))
    asked = Forecast(need=need, risk=RISK, scale=scale, weight=weight if is_weighted else None)
    found = asked.allocation(np.full(2, multiplier), np.ones(2), np.full(2, 1e9))
    for place in range(4):
        for column in range(2):
            costs = need[place, column] + multiplier**2 * scale[column] * weight[place, column] * RISK
            chosen = np.flatnonzero(need[place, column] == found[place, column])[-1]
            assert costs[chosen] == pytest.approx(costs.min())


def test_limits_hold_and_what_is_unknown_gets_what_all_get_at_first():
    need = np.stack([np.arange(1.0, 6.0), np.full(5, np.nan)])[:, None]
    own = Forecast(need=need, risk=RISK, scale=np.ones(1))
    assert own.allocation(np.array([1e3]), np.array([7.0]), np.full((2, 1), 9.0))[:, 0].tolist() == [5.0, 7.0]
    assert own.allocation(np.array([1e3]), np.array([7.0]), np.full((2, 1), 3.0))[:, 0].tolist() == [3.0, 3.0]


def test_a_tail_goes_on_from_the_last_quantile_and_its_risk_falls_as_a_power():
    log_need = np.log(np.array([[1.0, 2.0, 4.0, 8.0, 16.0]]))
    need, risk = with_tail(log_need, RISK)
    assert need[0, :5] == pytest.approx([1, 2, 4, 8, 16])
    assert risk[:5].tolist() == RISK.tolist()
    assert len(risk) == need.shape[1] == 5 + TAIL
    assert (np.diff(need[0]) > 0).all()
    mean = 0.05 * np.log(16 / 2)
    away = np.log(need[0, 5:] / 16) / mean
    assert away[[0, 1, -1]] == pytest.approx([0.25, 0.325, 0.25 * 1.3 ** (TAIL - 1)])
    assert risk[5:] == pytest.approx(0.02 / (1 + away / 4) ** 4)
    flat, _ = with_tail(np.zeros((1, 5)), RISK)
    assert (np.diff(flat[0, 4:]) > 0).all()
