"""Small markets over zones, at random or by hand, and the least cost of a job by enumeration."""

from functools import cache

import numpy as np

from optim.models.bidding.market.prices import HOUR_S
from optim.models.bidding.market.zones import ZoneJob, ZoneMarket


def zone_market(*zones, spot=None, on_demand=None, tick_s=3600, regions=None) -> ZoneMarket:
    """Return a market of zones given as texts, a letter a tick: `x` where spot machines can be had.

    Prices are dollars per hour: one per zone, or one per zone and tick.
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
    """Return a job in ticks, of any length, with one set-up; moves between zones cost `move` dollars more."""
    size = market.num_zones
    setups = np.full((size + 1, size), setup, dtype=np.int64) if np.isscalar(setup) else np.array(setup)
    moves = np.full((size + 1, size), round(move * 1e6), dtype=np.int64)
    moves[0] = 0
    moves[1:][np.eye(size, dtype=bool)] = 0
    return job_in_ticks(market.tick_s, work=work, deadline=deadline, setup=setups, move_micro=moves, **more)


def job_in_ticks(tick_s, *, work, deadline, setup, **more) -> ZoneJob:
    """Return a job whose times are given in ticks."""
    return ZoneJob(work_s=work * tick_s, deadline_s=deadline * tick_s, setup_s=setup * tick_s, **more)


def ticks_of(stay, market) -> tuple[int, bool, int, int]:
    """Return a stay as (zone, whether spot, begin, end) in ticks."""
    return stay.zone, stay.is_spot, stay.begin_s // market.tick_s, stay.end_s // market.tick_s


def drawn(seed: int, ticks: int = 9, least_slack: int = 0) -> tuple[ZoneMarket, ZoneJob]:
    """Draw zones with changing availability, and a job that can just, or easily, meet its deadline."""
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
    job = job_in_ticks(
        600,
        work=work,
        deadline=max(deadline, work + start),
        setup=setup,
        move_micro=rng.integers(0, 3, (size + 1, size)) * 50_000 * (setup > start),
        machines=int(rng.integers(1, 3)),
    )
    return market, job


def cheapest_by_trying(market: ZoneMarket, job: ZoneJob, first: int = 0, *, is_whole: bool = False) -> int:
    """Return the least units over all tick-by-tick allocations, billed by the second or by full ticks."""
    far, tick_s = 2**60, market.tick_s

    @cache
    def rest(t: int, held: tuple[int, bool] | None, wait_s: int, state: int, left_s: int) -> int:
        if left_s == 0:
            return 0
        if t * tick_s + left_s > job.deadline_s:
            return far
        best = rest(t + 1, None, 0, state, left_s)
        for zone in range(market.num_zones):
            for is_spot in (True, False):
                if is_spot and not market.is_available[first + t, zone]:
                    continue
                price = int(market.spot_micro[first + t, zone] if is_spot else market.on_demand_micro[zone])
                paid, needed = 0, wait_s
                if held != (zone, is_spot):
                    needed = int(job.setup_s[state, zone])
                    paid = HOUR_S * int(job.move_micro[state, zone])
                ends = needed + left_s <= tick_s
                if ends and t * tick_s + needed + left_s > job.deadline_s:
                    continue
                seconds = needed + left_s if ends and not is_whole else tick_s
                paid += price * seconds * job.machines
                then = max(0, needed - tick_s)
                work = 0 if ends else left_s - max(0, tick_s - needed)
                moved = 1 + zone if needed <= tick_s else state
                best = min(best, paid + rest(t + 1, (zone, is_spot), then, moved, work))
        return best

    return rest(0, None, 0, 0, job.work_s)


def drawn_in_seconds(seed: int, ticks: int = 9) -> tuple[ZoneMarket, ZoneJob]:
    """Draw a market as `drawn` does, and a job whose work, launches and deadline are no multiples of ticks."""
    market, job = drawn(seed, ticks)
    rng = np.random.default_rng([seed, 1])
    setup_s = rng.integers(0, 25, job.setup_s.shape) * 60
    start = int(rng.choice([0, 180, 300, 720, 1140]))
    setup_s[0] = start
    setup_s[1:][np.eye(market.num_zones, dtype=bool)] = start
    setup_s[1:] = np.maximum(setup_s[1:], start)
    work_s = int(rng.integers(1, 600 * ticks // 3))
    deadline_s = min(600 * ticks, work_s + start + int(rng.integers(0, 3000)))
    return market, ZoneJob(
        work_s=min(work_s, deadline_s - start),
        deadline_s=deadline_s,
        setup_s=setup_s,
        move_micro=job.move_micro * (setup_s > start),
        machines=job.machines,
    )
