"""The interior-point kernel: the derivative behind it, its bounds, and warm starts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from optim_studies.kernels import sharing
from optim_studies.kernels.sharing import CENTRING, Market, _step, solve_all_present, solve_each_absent

# Compiled at once instead of operation by operation.
cold_start, dual_bound, primal_value, values, warm_start = map(
    jax.jit, (sharing.cold_start, sharing.dual_bound, sharing.primal_value, sharing.values, sharing.warm_start)
)
USERS, GOODS = 5, 3


def drawn(seed):
    rng = np.random.default_rng(seed)
    return Market(
        speed=jnp.asarray(rng.uniform(0.1, 1.0, (USERS, GOODS))),
        supply=jnp.asarray(rng.uniform(1.0, 5.0, GOODS)),
        cap=jnp.asarray(rng.uniform(0.5, 4.0, USERS)),
        elapsed=jnp.asarray(rng.uniform(0.0, 2.0, USERS)),
        work=jnp.ones(USERS),
    )


@pytest.fixture(autouse=True)
def double():
    """Compute in 64 bits."""
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize("seed", range(5))
def test_any_prices_bound_any_shares(seed):
    market, rng = drawn(seed), np.random.default_rng(seed + 100)
    present = jnp.ones(USERS, dtype=bool)
    point = cold_start(market, present)
    for _ in range(20):
        price = jnp.asarray(rng.uniform(0.01, 3.0, GOODS))
        assert float(dual_bound(market, present, price)) >= float(primal_value(market, present, point.share))


def test_a_free_good_that_a_user_gets_no_speed_from_is_not_its_cheapest():
    """Zero over zero speed is no price: the bound is that of the goods that the users can use."""
    market, present = drawn(0), jnp.ones(USERS, dtype=bool)
    price = jnp.asarray([0.0, 0.5, 0.7])
    useless = market._replace(speed=market.speed.at[:, 0].set(0.0))
    dear = dual_bound(useless._replace(supply=market.supply.at[0].set(0.0)), present, price.at[0].set(1e9))
    assert float(dual_bound(useless, present, price)) == pytest.approx(float(dear), rel=1e-12)


def test_starts_lie_strictly_inside():
    market = drawn(0)
    present = jnp.arange(USERS) != 2
    first = cold_start(market, jnp.ones(USERS, dtype=bool))
    for point in (first, warm_start(market, present, first, 1e-3)):
        share = np.asarray(point.share)[[0, 1, 3, 4]]
        assert (share > 0).all()
        assert (share.sum(axis=0) < np.asarray(market.supply)).all()
        assert (
            (np.asarray(market.speed)[[0, 1, 3, 4]] * share).sum(axis=1) < np.asarray(market.cap)[[0, 1, 3, 4]]
        ).all()
        assert (np.asarray(point.price) > 0).all()


@pytest.mark.parametrize("seed", range(3))
def test_a_warm_start_spreads_what_those_who_left_had_and_keeps_a_thousandth_free(seed):
    market, gone, complementarity = drawn(seed), 2, 1e-3
    stay = np.array([0, 1, 3, 4])
    first = cold_start(market, jnp.ones(USERS, dtype=bool))
    point = warm_start(market, jnp.arange(USERS) != gone, first, complementarity)
    speed, supply, cap = (np.asarray(one) for one in (market.speed, market.supply, market.cap))
    held = np.asarray(first.share)
    share = held[stay] * held.sum(axis=0) / held[stay].sum(axis=0) + 1e-6 * supply
    share *= np.minimum(1.0, 0.999 * supply / share.sum(axis=0))
    share *= np.minimum(1.0, 0.95 * cap[stay] / (speed[stay] * share).sum(axis=1))[:, None]
    np.testing.assert_allclose(np.asarray(point.share)[stay], share, rtol=1e-9)
    rest = supply - share.sum(axis=0)
    np.testing.assert_allclose(point.price, np.maximum(first.price, complementarity / rest), rtol=1e-9)
    np.testing.assert_allclose(np.asarray(point.slack)[stay], complementarity / share, rtol=1e-9)
    left = cap[stay] - (speed[stay] * share).sum(axis=1)
    np.testing.assert_allclose(np.asarray(point.cap_price)[stay], complementarity / left, rtol=1e-9)


def test_a_warm_start_from_full_goods_leaves_a_thousandth_of_each():
    market, everybody = drawn(1)._replace(cap=jnp.full(USERS, 1e3)), jnp.ones(USERS, dtype=bool)
    first = cold_start(market, everybody)
    held = np.asarray(first.share)
    full = first._replace(share=jnp.asarray(held * (np.asarray(market.supply) / held.sum(axis=0))))
    point = warm_start(market, everybody, full, 1e-3)
    np.testing.assert_allclose(np.asarray(point.share).sum(axis=0), 0.999 * np.asarray(market.supply), rtol=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_every_problem_closes_its_gap(seed):
    market, tol = drawn(seed), 1e-7
    main = solve_all_present(market, jnp.asarray(tol))
    assert 0 <= float(main.bound - main.value) <= tol
    others = solve_each_absent(market, main.point, jnp.arange(USERS), jnp.asarray(1e-3), jnp.asarray(tol))
    assert (np.asarray(others.bound - others.value) <= tol).all()
    own = np.asarray(values(market, (market.speed * main.point.share).sum(axis=1)))
    assert (np.asarray(others.value) >= float(main.value) - own - 1e-6).all()


def test_a_batch_says_the_same_as_one_at_a_time():
    market = drawn(7)
    main = solve_all_present(market, jnp.asarray(1e-6))
    together = solve_each_absent(market, main.point, jnp.arange(USERS), jnp.asarray(1e-3), jnp.asarray(1e-6))
    alone = [
        solve_each_absent(market, main.point, jnp.array([i]), jnp.asarray(1e-3), jnp.asarray(1e-6)) for i in (0, 3)
    ]
    for i, one in zip((0, 3), alone, strict=True):
        assert float(one.value[0]) == pytest.approx(float(together.value[i]), abs=1e-6)


step = jax.jit(_step)


def complementarity(market, point):
    """Return the mean of all products of a limit's multiplier and its slack."""
    used = market.cap - (market.speed * point.share).sum(axis=1)
    rest = market.supply - point.share.sum(axis=0)
    products = (point.share * point.slack, point.cap_price * used, point.price * rest)
    return float(sum(jnp.sum(each) for each in products)) / sum(each.size for each in products)


@pytest.mark.parametrize("seed", [0, 1, 2, 4])
def test_near_the_end_a_step_takes_all_complementarity_down_as_it_aims_to(seed):
    """Full Newton steps change the sum of products, to first order, by their target: each limit counts in it."""
    market, present = drawn(seed), jnp.ones(USERS, dtype=bool)
    point = cold_start(market, present)
    for _ in range(7):
        point = step(market, present, point)
    after = step(market, present, point)
    assert complementarity(market, after) == pytest.approx(CENTRING * complementarity(market, point), rel=0.02)
