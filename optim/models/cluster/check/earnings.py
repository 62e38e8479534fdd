"""What a run earned, and what prices prove that no schedule can exceed: recomputed job by job."""

import math
from bisect import bisect_right, insort

from optim.core.limits import check_limit
from optim.core.verification import Violation, violation
from optim.models.cluster.check.replay import Replayed
from optim.models.cluster.utility import Worth
from optim.models.cluster.workload import Workload
from optim.models.cluster.world import Cluster

TOL = 1e-9


def check_worth(jobs: Workload, cluster: Cluster, replayed: Replayed, worth: Worth, policy: str) -> list[Violation]:
    """Return which claims about utility don't hold."""
    if len(worth.theta) != len(jobs):
        return [violation("utility", "isn't told for every job", where=policy)]
    earned = math.fsum(
        _value(theta, (end - submit) / worth.slot_us)
        for theta, submit, end, is_done in zip(
            worth.theta.tolist(), jobs.submit_us.tolist(), replayed.end_us, replayed.is_done, strict=True
        )
        if is_done
    )
    problems = []
    if not abs(worth.utility - earned) <= TOL * max(1.0, abs(earned)):
        problems.append(violation("utility", f"{worth.utility!r} is claimed, {earned!r} was earned", where=policy))
    bound = most_earned(jobs, cluster, worth)
    if not worth.bound >= bound * (1 - TOL):
        problems.append(
            violation("utility", f"no more than {worth.bound!r} is claimed, {bound!r} is proven", where=policy)
        )
    if earned > worth.bound * (1 + TOL):
        problems.append(violation("utility", f"{earned!r} is above what is claimed to be possible", where=policy))
    return problems


def most_earned(jobs: Workload, cluster: Cluster, worth: Worth) -> float:
    """Return what no schedule earns more than: all GPU-slots at their prices, and each job's best utility less the least bill ((D.10)).

    Raises
    ------
    InvalidProblemError
        If a job's run time has more slots than are read.
    """
    check_limit(
        "cells", int(jobs.duration_us.max()) // worth.slot_us, f"slots of {worth.slot_us} us in a job's run time"
    )
    price = worth.price.tolist()
    rows = zip(
        worth.theta.tolist(), jobs.submit_us.tolist(), jobs.gpus.tolist(), jobs.duration_us.tolist(), strict=True
    )
    profit = [
        _best_payoff(theta, submit, gang, duration, worth.slot_us, price) for theta, submit, gang, duration in rows
    ]
    return cluster.num_gpus * math.fsum(price) + math.fsum(profit)


def _value(theta: list[float], delay: float) -> float:
    first, urgency, target = theta
    return first / (1.0 + math.exp(min(700.0, max(-700.0, urgency * (delay - target)))))


def _best_payoff(theta: list[float], submit: int, gang: int, duration: int, slot: int, price: list[float]) -> float:
    """Return at least what a job can gain: an end k to k + 1 slots after the submission uses k + 2 slots at most."""
    first, shortest = submit // slot, duration / slot
    whole, k = duration // slot, duration // slot
    window = sorted((price[first : first + k + 1] + [0.0] * (k + 1))[: k + 1])
    best = 0.0
    while True:
        delay = max(float(k), shortest)
        if _value(theta, delay) <= best:
            return best
        insort(window, price[first + k + 1] if first + k + 1 < len(price) else 0.0)
        rest = (shortest - whole) * window[whole]
        best = max(best, _value(theta, delay) - gang * (math.fsum(window[:whole]) + rest))
        if bisect_right(window, 0.0) > whole:
            return best  # what it needs is free, and later it is worth less
        k += 1
