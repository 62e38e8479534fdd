"""Small markets over zones, drawn or by hand, and the least cost of a job by trying everything."""

from functools import cache

import numpy as np

from optim.models.bidding.zones.market import HOUR_S, ZoneJob, ZoneMarket


def zone_market(*zones, spot=None, on_demand=None, tick_s=3600, regions=None) -> ZoneMarket:
    """Return a market of zones given as texts, a letter a tick: `x` where spot machines can be had.

    Prices are dollars an hour: one a zone, or one a zone and tick.
    """
    ticks = len(zones[0])
    prices = np.array(spot or [1.0] * len(zones), dtype=float)
    prices = np.broadcast_to(prices[:, None], (len(zones), ticks)) if prices.ndim == 1 else prices
    return ZoneMarket(
        zones=tuple(f"z{k}" for k in range(len(zones))),
        regions=tuple(regions or (f"r{k}" for k in range(len(zones)))),
        time_s=tick_s * np.arange(ticks, dtype=np.int64),
        tick_s=tick_s,
        is_available=np.array([[letter == "x" for letter in zone] for zone in zones]).T,
        spot_micro=np.rint(prices.T * 1e6).astype(np.int64),
        on_demand_micro=np.rint(np.array(on_demand or [3.0] * len(zones)) * 1e6).astype(np.int64),
    )


def zone_job(market, work, deadline, setup=1, move=0.0, **more) -> ZoneJob:
    """Return a job with one set-up, longer by `move` dollars' worth between zones."""
    size = market.num_zones
    setups = np.full((size + 1, size), setup, dtype=np.int64) if np.isscalar(setup) else np.array(setup)
    moves = np.full((size + 1, size), round(move * 1e6), dtype=np.int64)
    moves[0] = 0
    moves[1:][np.eye(size, dtype=bool)] = 0
    return ZoneJob(work=work, deadline=deadline, setup=setups, move_micro=moves, **more)


def drawn(seed: int, ticks: int = 9, least_slack: int = 0) -> tuple[ZoneMarket, ZoneJob]:
    """Draw zones whose machines come and go, and a job that can just, or easily, be done in time."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(1, 4))
    stay = rng.uniform(0.3, 0.95, (2, size))
    is_there = np.empty((ticks, size), dtype=bool)
    is_there[0] = rng.random(size) < 0.6
    for t in range(1, ticks):
        is_there[t] = np.where(
            rng.random(size) < stay[is_there[t - 1].astype(int), range(size)], is_there[t - 1], ~is_there[t - 1]
        )
    market = ZoneMarket(
        zones=tuple(f"z{k}" for k in range(size)),
        regions=tuple(f"r{k}" for k in range(size)),
        time_s=600 * np.arange(ticks, dtype=np.int64),
        tick_s=600,
        is_available=is_there,
        spot_micro=rng.integers(1, 12, (ticks, size)) * 100_000,
        on_demand_micro=rng.integers(8, 20, size) * 100_000,
    )
    setup = rng.integers(0, 4, (size + 1, size))
    setup[1:][np.eye(size, dtype=bool)] = start = setup[0] = int(rng.integers(0, 3))
    setup[1:] = np.maximum(setup[1:], start)
    work = int(rng.integers(1, max(2, ticks // 2)))
    least = work + start + least_slack
    deadline = min(ticks, least + int(rng.integers(0, 4)))
    job = ZoneJob(
        work=work,
        deadline=max(deadline, work + start),
        setup=setup,
        move_micro=rng.integers(0, 3, (size + 1, size)) * 50_000 * (setup > start),
        machines=int(rng.integers(1, 3)),
    )
    return market, job


def cheapest_by_trying(market: ZoneMarket, job: ZoneJob, first: int = 0) -> int:
    """Return the least units of any way to hold machines tick by tick, by the engine's rules."""
    far = 2**60

    @cache
    def rest(t: int, held: tuple[int, bool] | None, age: int, setup: int, state: int, work: int) -> int:
        if work == job.work:
            return 0
        if t == job.deadline:
            return far
        best = rest(t + 1, None, 0, 0, state, work)
        for zone in range(market.num_zones):
            for is_spot in (True, False):
                if is_spot and not market.is_available[first + t, zone]:
                    continue
                price = market.spot_micro[first + t, zone] if is_spot else market.on_demand_micro[zone]
                paid = int(price) * market.tick_s * job.machines
                if held == (zone, is_spot):
                    now, needed = age + 1, setup
                else:
                    now, needed = 1, int(job.setup[state, zone])
                    paid += HOUR_S * int(job.move_micro[state, zone])
                moved = 1 + zone if now >= needed else state
                best = min(best, paid + rest(t + 1, (zone, is_spot), now, needed, moved, work + (now > needed)))
        return best

    return rest(0, None, 0, 0, 0, 0)
