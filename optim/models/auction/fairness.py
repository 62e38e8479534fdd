"""Finish-time fairness: how long an app takes in the shared cluster over its ideal time.

Both readings of the ideal time stand in docs/mathematics/auction.md, (C.1) and (C.2).

References
----------
Mahajan et al., "Themis: Fair and Efficient GPU Cluster Scheduling", NSDI 2020, arXiv 1907.01484, section 4 (rho).
"""

import math
from dataclasses import dataclass, field
from enum import StrEnum

from optim.core.errors import InvalidProblemError
from optim.models.auction.instance import Horizon
from optim.models.auction.slowdown import Slowdown


class Combine(StrEnum):
    """When an app of several trials ends: with its last surviving trial, or with its predicted winner."""

    ALL = "all"
    BEST = "best"


class IdealTime(StrEnum):
    """Reading of the ideal time: the whole cluster for 1/N of the time, or 1/N of the cluster all the time."""

    TIME_SHARE = "time-share"
    SPACE_SHARE = "space-share"


class Estimator(StrEnum):
    """How an app's time follows from its trials: one aggregate, or the best split of the GPUs over them."""

    AGGREGATE = "aggregate"
    SPLIT = "split"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One training job of an app.

    Parameters
    ----------
    work_min
        Serial GPU minutes left until its predicted stop; 0 once killed.
    total_work_min
        Serial GPU minutes from its start.
    max_gpus
        Most GPUs it can use.
    """

    work_min: float
    total_work_min: float
    max_gpus: int

    def __post_init__(self) -> None:
        if not 0 <= self.work_min < math.inf or not 0 <= self.total_work_min < math.inf:
            raise InvalidProblemError(
                f"trial: work_min and total_work_min must be at least 0, got {self.work_min} and {self.total_work_min}"
            )
        if self.max_gpus < 1:
            raise InvalidProblemError(f"trial: max_gpus must be at least 1, got {self.max_gpus}")


@dataclass(frozen=True, slots=True, kw_only=True)
class AppProfile:
    """What an app knows of itself; its bids follow from it.

    Parameters
    ----------
    elapsed_min
        Minutes since submission, queueing included.
    active_apps
        N_avg, the time average of the number of active apps over the app's life so far.
    trials
        Its jobs, at least one of them with work left.
    slowdown
        S by locality.
    gang
        Bids are multiples of it.
    combine, ideal, estimator
        How trials make up the app's time.
    held_gpus, held_locality
        GPUs held under leases that go on, and the smallest subtree that holds them.
    held_places
        (slot, GPUs) of those held; empty where unknown. A bundle works with them as one: its slowdown is that of
        the smallest subtree that holds both (`bid_table`).
    """

    elapsed_min: float
    active_apps: float
    trials: tuple[Trial, ...]
    slowdown: Slowdown = field(default_factory=Slowdown)
    gang: int = 1
    combine: Combine = Combine.ALL
    ideal: IdealTime = IdealTime.TIME_SHARE
    estimator: Estimator = Estimator.AGGREGATE
    held_gpus: int = 0
    held_locality: int = 0
    held_places: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.elapsed_min < math.inf:
            raise InvalidProblemError(f"elapsed_min must be at least 0, got {self.elapsed_min}")
        if not 1 <= self.active_apps < math.inf:
            raise InvalidProblemError(f"active_apps must be at least 1 (the app itself), got {self.active_apps}")
        if self.gang < 1:
            raise InvalidProblemError(f"gang must be at least 1, got {self.gang}")
        if not any(trial.work_min > 0 for trial in self.trials):
            raise InvalidProblemError("trials: at least one must have work left; leave finished apps out")
        if self.held_gpus < 0 or self.held_locality not in range(4):
            raise InvalidProblemError(f"held GPUs must be at least 0, in a locality, got {self.held_gpus}")
        if self.held_places and sum(count for _, count in self.held_places) != self.held_gpus:
            raise InvalidProblemError(f"held: the places must add up to the {self.held_gpus} GPUs held")

    @property
    def live(self) -> tuple[Trial, ...]:
        """Trials with work left."""
        return tuple(trial for trial in self.trials if trial.work_min > 0)

    @property
    def demand(self) -> int:
        """D: most GPUs that all live trials can use."""
        return sum(trial.max_gpus for trial in self.live)

    @property
    def work_min(self) -> float:
        """W: serial GPU minutes left in all live trials, or in the winner's where the best one counts."""
        left = [trial.work_min for trial in self.live]
        return min(left) if self.combine is Combine.BEST else math.fsum(left)


def ideal_minutes(profile: AppProfile, cluster_gpus: int) -> float:
    """Return T_id, the time that the app would take with a fair share of the cluster.

    ``N_avg * T(R_C)`` in the paper's reading, ``T(R_C / N_avg)`` in the other, T being the time of all its work on
    so many GPUs, never less than the longest trial.
    """
    trials = profile.trials
    share = profile.active_apps
    gpus = float(cluster_gpus) if profile.ideal is IdealTime.TIME_SHARE else cluster_gpus / share
    total, demand = math.fsum(t.total_work_min for t in trials), sum(t.max_gpus for t in trials)
    alone = [t.total_work_min / min(gpus, t.max_gpus) for t in trials if t.total_work_min > 0]
    whole = min(alone) if profile.combine is Combine.BEST else max(total / min(gpus, demand), *alone)
    return whole * (share if profile.ideal is IdealTime.TIME_SHARE else 1.0)


def remaining_minutes(profile: AppProfile, gpus: float, slowdown: float) -> float:
    """Return the minutes that the work left takes on so many GPUs, infinity on none."""
    if gpus <= 0:
        return math.inf
    live = profile.live
    if profile.combine is Combine.BEST:
        return min(t.work_min * slowdown / min(gpus, t.max_gpus) for t in live)
    if profile.estimator is Estimator.SPLIT:
        return _best_split(profile, int(gpus), slowdown)
    longest = max(t.work_min / t.max_gpus for t in live)
    return max(profile.work_min * slowdown / min(gpus, profile.demand), longest)


def _best_split(profile: AppProfile, gpus: int, slowdown: float) -> float:
    """Return the least possible time of the slowest trial, trials without GPUs following the others.

    While there are fewer GPUs than trials they share them in turn, as the aggregate does; each further GPU
    goes to the slowest trial that can use it, which minimises the maximum.
    """
    live = profile.live
    if gpus < len(live):
        return math.fsum(t.work_min for t in live) * slowdown / gpus
    given = [1] * len(live)
    for _ in range(gpus - len(live)):
        times = [(t.work_min / g, -k) for k, (t, g) in enumerate(zip(live, given, strict=True))]
        slowest = -max(times)[1]
        if given[slowest] == live[slowest].max_gpus:
            break
        given[slowest] += 1
    return max(t.work_min / g for t, g in zip(live, given, strict=True)) * slowdown


def shared_minutes(
    profile: AppProfile, gpus: int, locality: int, *, horizon: Horizon, lease_min: float, cluster_gpus: int
) -> float:
    """Return T_sh, the app's whole time if it is granted so many GPUs beside those it holds.

    `locality` is that of the smallest subtree that holds them all, old and new together.

    `hold`: it keeps them for ever. `lease`: for this lease, then it goes on at its fair share
    ``max(1, min(R_C / N_avg, D))`` in the best placement.
    """
    left = remaining_minutes(profile, gpus + profile.held_gpus, profile.slowdown.within(locality))
    if horizon is Horizon.HOLD:
        return profile.elapsed_min + left
    share = max(1.0, min(cluster_gpus / profile.active_apps, float(profile.demand)))
    later = remaining_minutes(profile, share, profile.slowdown.best)
    if left <= lease_min:
        return profile.elapsed_min + left
    # What the lease leaves to do takes a part of the time that all of it would take at the fair share.
    rest = 1.0 - (lease_min / left if math.isfinite(left) else 0.0)
    return profile.elapsed_min + lease_min + rest * later
