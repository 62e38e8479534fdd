"""The least mean cost under a deadline if spells end by age: enumeration in plain Python with exact fractions."""

from fractions import Fraction
from functools import cache
from math import inf

from optim.models.bidding.market.billing import Billing


def least_mean(job, hazard, is_available, unit_s, first=None):
    """Return the least mean dollars from the start, of a spell whose age is 1, or whose hazards are `first`, by expectimin.

    A state is the time, the remaining work, the allocation and its launch, in seconds. The bills are per lease, by the
    rules of Billing for lost or returned machines.
    """
    setup_s = -(-job.setup_s // unit_s) * unit_s
    tick_s = job.tick_s
    rate = {"spot": Fraction(job.spot_usd) / 3600, "on-demand": Fraction(job.on_demand_usd) / 3600}
    ages = len(hazard[0])

    def bill(kind, held_s, is_lost):
        if job.billing is Billing.WHOLE_TICKS:
            return rate[kind] * -(-held_s // tick_s) * tick_s
        if job.billing is Billing.AWS_2009:
            return rate[kind] * 3600 * (held_s // 3600 if is_lost else -(-held_s // 3600))
        if job.billing is Billing.AWS_2017:
            return Fraction(0) if is_lost and held_s < 3600 else rate[kind] * max(60, held_s)
        return rate[kind] * held_s

    @cache
    def rest(t, left_s, held, age, there):
        """Least mean remaining bill; leases are billed when they end.

        `held` is (type of machine, seconds since its start).
        """
        if held is not None and held[0] == "spot" and not there:
            return bill(*held, True) + rest(t, left_s, None, age, there)
        found = []
        for kind in (None, "spot", "on-demand"):
            if kind == "spot" and not there:
                continue
            is_forced = job.keeps_tick and job.deadline_s - (t + 1) * tick_s < left_s + setup_s
            if is_forced and kind != "on-demand" and (held is None or held[0] != "spot"):
                continue
            is_kept = held is not None and kind == held[0]
            paid = Fraction(0) if is_kept or held is None else bill(*held, False)
            if kind is None:
                found.append(paid + later(t + 1, left_s, None, age, there))
                continue
            held_s = held[1] if is_kept else 0
            idle_s = min(tick_s, max(0, setup_s - held_s))
            if idle_s + left_s <= tick_s:
                if t * tick_s + idle_s + left_s <= job.deadline_s:
                    found.append(paid + bill(kind, held_s + idle_s + left_s, False))
                continue
            found.append(paid + later(t + 1, left_s - (tick_s - idle_s), (kind, held_s + tick_s), age, there))
        return min(found, default=inf)

    def later(t, left_s, held, age, there):
        """Infinite if any path misses the deadline, however unlikely it is."""
        if t * tick_s >= job.deadline_s:
            return inf
        chance = first[t - 1][int(there)] if age is None else hazard[int(there)][min(age, ages) - 1]
        chance = Fraction(chance)
        older = None if age is None else min(age + 1, ages)
        stays = rest(t, left_s, held, older, there)
        changes = rest(t, left_s, held, 1, not there)
        if inf in (stays, changes):
            return inf
        return (1 - chance) * stays + chance * changes

    return rest(0, job.work_s, None, None if first is not None else 1, is_available)
