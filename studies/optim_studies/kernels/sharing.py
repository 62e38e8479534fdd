"""Divisible goods shared among users with concave values: a jitted interior-point method, batched over absent users.

    max  sum_i f_i(u_i),  u_i = sum_m a_im x_im <= d_i,  sum_i x_im <= R_m,  x >= 0
    f_i(u) = log u - log(E_i u + W_i)

Elimination reduces Newton's system to one equation per good, so a step costs O(users x goods^2). Any prices
give a dual bound and any shares a primal value. The method stops when the gap is within a tolerance, not when a
gradient is small. Run in 64 bits.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

BOUNDARY = 0.99
"""Maximum step, as a fraction of the distance to the boundary."""

CENTRING = 0.1
"""Target complementarity of the next step, as a fraction of the current one."""


class Market(NamedTuple):
    """The data: a (users, goods), R (goods,), d, E, W (users,)."""

    speed: jax.Array
    supply: jax.Array
    cap: jax.Array
    elapsed: jax.Array
    work: jax.Array


class Point(NamedTuple):
    """Shares x and their multipliers s (users, goods), prices p (goods,), multipliers eta of the caps (users,)."""

    share: jax.Array
    slack: jax.Array
    price: jax.Array
    cap_price: jax.Array


class Solved(NamedTuple):
    """A point with the value of its shares, the bound of its prices, and the steps taken."""

    point: Point
    value: jax.Array
    bound: jax.Array
    steps: jax.Array


def values(market: Market, speed: jax.Array) -> jax.Array:
    """Return f_i(u_i) of each user."""
    return jnp.log(speed) - jnp.log(market.elapsed * speed + market.work)


def primal_value(market: Market, present: jax.Array, share: jax.Array) -> jax.Array:
    """Return the value of shares, summed over the users present."""
    speed = (market.speed * share).sum(axis=1)
    return jnp.where(present, values(market, jnp.where(present, speed, 1.0)), 0.0).sum()


def dual_bound(market: Market, present: jax.Array, price: jax.Array) -> jax.Array:
    """Return the dual bound at prices: the value of the supply, plus each user's maximum gain at its lowest price of speed.

    ``max over u <= d of f(u) - q u`` is attained at ``u = (2 / q) / (1 + sqrt(1 + 4 E / (W q)))`` or at d.
    """
    ratio = jnp.where(market.speed > 0, price[None, :] / market.speed, jnp.inf)
    q = jnp.maximum(ratio.min(axis=1), 1e-300)
    u = (2.0 / q) / (1.0 + jnp.sqrt(1.0 + 4.0 * market.elapsed / (market.work * q)))
    u = jnp.minimum(u, market.cap)
    gain = values(market, u) - q * u
    return (price * market.supply).sum() + jnp.where(present, gain, 0.0).sum()


def cold_start(market: Market, present: jax.Array) -> Point:
    """Return equal shares well inside all limits, with matching multipliers."""
    users = market.speed.shape[0]
    equal = jnp.broadcast_to(market.supply / (users + 1), market.speed.shape)
    return _with_multipliers(market, present, equal, None, 1e-1)


def warm_start(market: Market, present: jax.Array, point: Point, complementarity: float | jax.Array) -> Point:
    """Return a start from another point after users have left: their shares are distributed over the others."""
    present_share = jnp.where(present[:, None], point.share, 0.0)
    total = point.share.sum(axis=0)
    grown = present_share * (total / jnp.maximum(present_share.sum(axis=0), 1e-12))[None, :]
    grown = jnp.where(present[:, None], grown + 1e-6 * market.supply[None, :], 1.0)
    return _with_multipliers(market, present, grown, point.price, complementarity)


def _with_multipliers(
    market: Market, present: jax.Array, share: jax.Array, price: jax.Array | None, complementarity: float | jax.Array
) -> Point:
    used = jnp.where(present[:, None], share, 0.0).sum(axis=0)
    share = share * jnp.where(present[:, None], jnp.minimum(1.0, 0.999 * market.supply / used)[None, :], 1.0)
    speed = (market.speed * share).sum(axis=1)
    share = share * jnp.minimum(1.0, 0.95 * market.cap / speed)[:, None]
    speed = (market.speed * share).sum(axis=1)
    rest = market.supply - jnp.where(present[:, None], share, 0.0).sum(axis=0)
    if price is None:
        marginal = market.work / (speed * (market.elapsed * speed + market.work))
        price = jnp.where(present[:, None], market.speed * marginal[:, None], 0.0).mean(axis=0) + 1e-3
    price = jnp.maximum(price, complementarity / rest)
    return Point(
        share=share,
        slack=complementarity / share,
        price=price,
        cap_price=complementarity / (market.cap - speed),
    )


def _step(market: Market, present: jax.Array, point: Point) -> Point:
    """Take one Newton step towards a smaller complementarity."""
    a, here = market.speed, present[:, None]
    x, s, p, eta = point
    u = jnp.where(present, (a * x).sum(axis=1), 0.5 * market.cap)
    t = market.cap - u
    w = market.supply - jnp.where(here, x, 0.0).sum(axis=0)
    products = jnp.where(here, s * x, 0.0).sum() + jnp.where(present, eta * t, 0.0).sum() + (p * w).sum()
    count = present.sum() * (a.shape[1] + 1) + a.shape[1]
    mu = CENTRING * products / count
    below = market.elapsed * u + market.work
    slope = market.work / (u * below)
    bend = 1.0 / u**2 - (market.elapsed / below) ** 2
    kappa = bend + eta / t
    inverse = jnp.where(here, x / s, 0.0)
    rho = slope[:, None] * a - p[None, :] + mu / x - a * (mu / t)[:, None]
    ad = a * inverse
    share_of = kappa / (1.0 + kappa * (a * ad).sum(axis=1))
    matrix = -jnp.einsum("im,ik,i->mk", ad, ad, share_of) + jnp.diag(w / p + inverse.sum(axis=0))
    right = (inverse * rho).sum(axis=0) - ((share_of * (ad * rho).sum(axis=1))[:, None] * ad).sum(axis=0) + mu / p - w
    dp = jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(matrix), right)
    rest = rho - dp[None, :]
    du = (ad * rest).sum(axis=1) / (1.0 + kappa * (a * ad).sum(axis=1))
    dx = inverse * (rest - a * (kappa * du)[:, None])
    ds = mu / x - s - (s / x) * dx
    deta = (mu - eta * t + eta * du) / t
    dw = -dx.sum(axis=0)
    length = BOUNDARY / jnp.maximum(
        jnp.stack(
            [
                jnp.where(here, -dx / x, 0.0).max(),
                jnp.where(here, -ds / s, 0.0).max(),
                jnp.where(present, du / t, 0.0).max(),
                jnp.where(present, -deta / eta, 0.0).max(),
                (-dp / p).max(),
                (-dw / w).max(),
                jnp.where(present, -du / u, 0.0).max(),
            ]
        ).max(),
        BOUNDARY,
    )
    return Point(
        share=jnp.where(here, x + length * dx, x),
        slack=jnp.where(here, s + length * ds, s),
        price=p + length * dp,
        cap_price=jnp.where(present, eta + length * deta, eta),
    )


def solve_from(market: Market, present: jax.Array, start: Point, tol: jax.Array, most_steps: int | jax.Array) -> Solved:
    """Step until value and bound are within `tol`, or for `most_steps`; return the best value and bound."""

    def gap_is_open(state: Solved) -> jax.Array:
        return (state.bound - state.value > tol) & (state.steps < most_steps)

    def advance(state: Solved) -> Solved:
        point = _step(market, present, state.point)
        return Solved(
            point=point,
            value=primal_value(market, present, point.share),
            bound=jnp.minimum(state.bound, dual_bound(market, present, point.price)),
            steps=state.steps + 1,
        )

    first = Solved(
        point=start,
        value=primal_value(market, present, start.share),
        bound=dual_bound(market, present, start.price),
        steps=jnp.asarray(0),
    )
    solved: Solved = lax.while_loop(gap_is_open, advance, first)
    return solved


@partial(jax.jit)
def solve_all_present(market: Market, tol: jax.Array, most_steps: int | jax.Array = 100) -> Solved:
    """Solve with all users."""
    present = jnp.ones(market.speed.shape[0], dtype=bool)
    return solve_from(market, present, cold_start(market, present), tol, most_steps)


@partial(jax.jit)
def solve_each_absent(
    market: Market, point: Point, absent: jax.Array, complementarity: jax.Array, tol: jax.Array, most_steps: int = 100
) -> Solved:
    """Solve without each of the users in `absent`, all problems at once, warm from a point with all users."""

    def one(user: jax.Array) -> Solved:
        present = jnp.arange(market.speed.shape[0]) != user
        start = warm_start(market, present, point, complementarity)
        return solve_from(market, present, start, tol, most_steps)

    solved: Solved = jax.vmap(one)(absent)
    return solved
