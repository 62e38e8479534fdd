"""Promises, not plans: what has not run yet is packed anew, as long as every promise is kept.

A move takes one or a few reservations out and finds each job's best schedule again, in random order, half of the time at
prices with noise; it stays if the schedules are worth no less at the posted prices. A job's own old room is open to it, so
every promise can be kept; a move after which one isn't is undone.

Source: Shaw, "Using constraint programming and local search methods to solve vehicle routing problems", 1998,
DOI 10.1007/3-540-49481-2_30; the promises are docs/mathematics/learned-prices.md, section 4.
"""

from collections.abc import Callable

import numpy as np

from optim.models.admission.instance import FloatArray
from optim.solvers.admission.learned.reservations import Reservation, Reservations

LARGEST = 4
"""Most jobs that a move takes out."""

NOISE = 0.5
"""Strongest relative noise on prices of a slot and of a server class."""

KEPT_TOL = 1e-9
"""A move may lose this share of what the moved schedules are worth, through rounding."""


def improve(
    reservations: Reservations,
    num_moves: int,
    rng: np.random.Generator,
    is_over: Callable[[], bool] | None = None,
) -> float:
    """Make moves, unless the run is over before one; return by how much the reservations' worth grew."""
    gained = 0.0
    jobs = np.array(list(reservations.held), dtype=np.int64)
    if len(jobs) == 0:
        return gained
    for _ in range(num_moves):
        if is_over is not None and is_over():
            break
        # Small moves are cheap and often good; the square favours them.
        size = 1 + int(rng.random() ** 2 * min(LARGEST, len(jobs)))
        chosen = rng.choice(jobs, size=size, replace=False)
        noise = _noise(reservations, rng) if rng.random() < 0.5 else None
        gained += _move(reservations, chosen.tolist(), noise)
    return gained


def _move(reservations: Reservations, chosen: list[int], noise: list[FloatArray] | None) -> float:
    """Take jobs out and insert them again in the order given; return the gain, 0 if all stays as it was."""
    before = [reservations.release(job) for job in chosen]
    old = sum(reservations.worth(one) for one in before)
    posted = [side.price for side in reservations.state.sides]
    if noise is not None:
        _post(reservations, [price * factor for price, factor in zip(posted, noise, strict=True)])
    inserted = all(_insert(reservations, job) for job in chosen)
    _post(reservations, posted)
    after = [reservations.held[job] for job in chosen if job in reservations.held]
    new = sum(reservations.worth(one) for one in after)
    if inserted and new >= old - KEPT_TOL * abs(old):
        return new - old
    _undo(reservations, before)
    return 0.0


def _insert(reservations: Reservations, job: int) -> bool:
    found = reservations.find(job, floor=-np.inf)
    if found is None:
        return False
    reservations.hold(found)
    return True


def _undo(reservations: Reservations, before: list[Reservation]) -> None:
    for reservation in before:
        if reservation.schedule.job in reservations.held:
            reservations.release(reservation.schedule.job)
    for reservation in before:
        reservations.put_back(reservation)


def _post(reservations: Reservations, prices: list[FloatArray]) -> None:
    for side, price in zip(reservations.state.sides, prices, strict=True):
        side.price = price


def _noise(reservations: Reservations, rng: np.random.Generator) -> list[FloatArray]:
    """Return factors by slot and class, of a random strength: the same job finds new places."""
    strength = NOISE * rng.random()
    factors = []
    for side in reservations.state.sides:
        slot = 1 + strength * rng.uniform(-1, 1, side.price.shape[0])
        kind = 1 + strength * rng.uniform(-1, 1, side.servers.num_classes)
        factors.append(np.asarray(slot)[:, None, None] * np.asarray(kind)[side.servers.class_of_server])
    return factors
