"""Every total utility that the online rule can reach, by trying all ways to break ties.

Schedules are listed, prices worked out from their formula; no search, no cluster state and no order of the package is used.
"""

from functools import cache

import numpy as np

from optim.core.arrays import FloatArray
from optim.models.admission.data import MICRO
from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.posted_prices.price_functions import PriceRanges, SideRanges
from tests.support.admission.enumeration import Enumerator
from tests.support.admission.oracle import Layout

NEARLY = 1e-9
"""Payoffs that differ by less than this share of the value count as equal: more than any rounding."""


def all_totals(instance: AdmissionInstance, bounds: PriceRanges) -> set[float]:
    """Return the values of the rule at zero-start prices under every order of equal jobs and every choice of equal schedules."""
    capacity = Layout(instance=instance).capacity
    enumerator = Enumerator(instance, is_by_class=False)
    schedules = [list(enumerator.schedules(job)) for job in range(instance.num_jobs)]
    log_lower, log_upper = (_by_row(instance, bounds, name) for name in ("log_lower", "log_upper"))
    is_priced = np.isfinite(log_lower) & (capacity > 0)
    lower, upper = np.exp(log_lower[is_priced]), np.exp(log_upper[is_priced])

    def price(used: FloatArray) -> FloatArray:
        result = np.zeros(len(capacity))
        share = used[is_priced] / capacity[is_priced]
        result[is_priced] = lower * ((1.0 + upper / lower) ** share - 1.0)
        return result

    @cache
    def totals(pending: frozenset[int], load: bytes) -> frozenset[float]:
        if not pending:
            return frozenset({0.0})
        used = np.frombuffer(load)
        now = min(int(instance.jobs.arrival[job]) for job in pending)
        at = price(used)
        found: set[float] = set()
        for job in pending:
            if instance.jobs.arrival[job] == now:
                for gain, use in choices(job, used, at):
                    rest = totals(pending - {job}, np.round(used + use, 6).tobytes())
                    found |= {round(gain + total, 7) for total in rest}
        return frozenset(found)

    def choices(job: int, used: FloatArray, at: FloatArray) -> list[tuple[float, FloatArray]]:
        options = []
        for schedule in schedules[job]:
            use = schedule.load / MICRO
            if (used + use <= capacity + 1e-9).all():
                value = float(instance.value[job, schedule.completion])
                options.append((value - float(at @ use), value, use))
        refused = (0.0, np.zeros(len(capacity)))
        best = max((payoff for payoff, _, _ in options), default=0.0)
        worth = max((value for _, value, _ in options), default=1.0)
        taken = [(value, use) for payoff, value, use in options if payoff >= best - NEARLY * worth]
        if best > NEARLY * worth:
            return taken
        return [refused] if best < -NEARLY * worth else [refused, *taken]

    return set(totals(frozenset(range(instance.num_jobs)), np.zeros(len(capacity)).tobytes()))


def _by_row(instance: AdmissionInstance, bounds: PriceRanges, name: str) -> FloatArray:
    """Return bounds by (server, slot, resource), workers' servers first; shared servers have theirs once."""

    def rows(side: SideRanges, of_server: list[int]) -> list[FloatArray]:
        return [getattr(side, name)[c].ravel() for c in of_server]

    parts = rows(bounds.worker, instance.worker_servers.class_of_server.tolist())
    if not instance.has_shared_servers:
        parts += rows(bounds.ps, instance.ps_servers.class_of_server.tolist())
    return np.concatenate(parts)
