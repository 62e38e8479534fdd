"""Finish-time fairness: an app's time in the shared cluster divided by its ideal time.

Equations (C.1) and (C.2) in docs/mathematics/auction.md define both variants of the ideal time.

References
----------
Mahajan et al., "Themis: Fair and Efficient GPU Cluster Scheduling", NSDI 2020, arXiv 1907.01484, section 4 (rho).
"""

import math
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np

from optim.core.arrays import FloatArray, IntArray
from optim.core.errors import InvalidProblemError
from optim.models.auction.data import Horizon, Slowdown


class Combine(StrEnum):
    """End of an app with several trials: the end of its last surviving trial, or of its predicted winner."""

    ALL = "all"
    BEST = "best"


class IdealTime(StrEnum):
    """Definition of the ideal time: the entire cluster for 1/N of the time, or 1/N of the cluster all the time."""

    TIME_SHARE = "time-share"
    SPACE_SHARE = "space-share"


class Estimator(StrEnum):
    """Estimator of an app's time from its trials: one aggregate, or the best split of the GPUs over the trials."""

    AGGREGATE = "aggregate"
    SPLIT = "split"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One training job of an app.

    Parameters
    ----------
    work_min
        Remaining serial GPU minutes until its predicted stop; 0 for a killed trial.
    total_work_min
        Total serial GPU minutes from its start.
    max_gpus
        Maximum number of GPUs that it can use.
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
class Needs:
    """Total needs of an app's trials if the trials are not listed; sufficient for the aggregate estimate.

    Parameters
    ----------
    work_min
        Remaining serial GPU minutes of all live trials.
    longest_min
        Remaining minutes of the longest live trial on all GPUs that it can use.
    demand
        Number of GPUs that all live trials together can use.
    total_work_min, total_longest_min, total_demand
        The same three quantities for all trials, live or not, from their start.
    """

    work_min: float
    longest_min: float
    demand: int
    total_work_min: float
    total_longest_min: float
    total_demand: int

    def __post_init__(self) -> None:
        numbers = (self.work_min, self.longest_min, self.total_work_min, self.total_longest_min)
        if not all(0 < value < math.inf for value in numbers) or self.demand < 1 or self.total_demand < self.demand:
            raise InvalidProblemError(
                f"needs: work and demand must be positive, and total_demand at least demand, got {self}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class AppProfile:
    """The data of an app from which its bids are generated.

    Parameters
    ----------
    elapsed_min
        Minutes since submission, queueing included.
    active_apps
        N_avg, the time average of the number of active apps since the app's submission.
    trials
        The app's jobs, at least one with remaining work; empty if `needs` is given.
    needs
        Total needs of the app's jobs. Such an app ends with its last job and uses the aggregate estimate.
    slowdown
        Slowdown S by locality.
    gang
        Gang size: every bid is a multiple of this number of GPUs.
    gangs
        Gang size of each job if the sizes differ. Bids are then sums over subsets of the jobs, and `gang` is
        the greatest common divisor.
    combine, ideal, estimator
        Rules that compute the app's time from its trials.
    held_gpus
        Number of GPUs held under running leases.
    held_locality
        Level of the smallest subtree that contains the held GPUs.
    held_places
        Held GPUs as (slot, GPUs); empty if unknown. The app uses a bundle together with these GPUs, so the slowdown
        is that of the smallest subtree that contains both (`bid_table`).
    other_type_gpus
        Number of held GPUs of other types than the auctioned GPUs. Only with `needs`.
    other_type_speed
        Number of GPUs of the auctioned type that are together as fast as these GPUs. Only with `needs`.
    """

    elapsed_min: float
    active_apps: float
    trials: tuple[Trial, ...] = ()
    needs: Needs | None = None
    slowdown: Slowdown = field(default_factory=Slowdown)
    gang: int = 1
    gangs: tuple[int, ...] = ()
    combine: Combine = Combine.ALL
    ideal: IdealTime = IdealTime.TIME_SHARE
    estimator: Estimator = Estimator.AGGREGATE
    held_gpus: int = 0
    held_locality: int = 0
    held_places: tuple[tuple[int, int], ...] = ()
    other_type_gpus: int = 0
    other_type_speed: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.elapsed_min < math.inf:
            raise InvalidProblemError(f"elapsed_min must be at least 0, got {self.elapsed_min}")
        if not 1 <= self.active_apps < math.inf:
            raise InvalidProblemError(f"active_apps must be at least 1 (the app itself), got {self.active_apps}")
        if self.gang < 1:
            raise InvalidProblemError(f"gang must be at least 1, got {self.gang}")
        if self.gangs and (min(self.gangs) < 1 or math.gcd(*self.gangs) != self.gang):
            raise InvalidProblemError(
                f"gangs must be at least 1, and gang their greatest common divisor, got {list(self.gangs[:5])} and {self.gang}"
            )
        if self.needs is not None and (
            self.trials or self.combine is not Combine.ALL or self.estimator is not Estimator.AGGREGATE
        ):
            raise InvalidProblemError(
                "`needs` excludes trials, combine=best and estimator=split; remove `needs`, or the others"
            )
        if self.needs is None and not any(trial.work_min > 0 for trial in self.trials):
            raise InvalidProblemError("trials: at least one must have work left; leave finished apps out")
        if self.held_gpus < 0 or self.held_locality not in range(4):
            raise InvalidProblemError(
                f"held_gpus must be at least 0 and held_locality 0 to 3, got {self.held_gpus} and {self.held_locality}"
            )
        if (
            not 0 <= self.other_type_speed < math.inf
            or self.other_type_gpus < 0
            or (self.needs is None and self.other_type_gpus)
        ):
            raise InvalidProblemError("other_type_gpus and other_type_speed must be at least 0, and they require needs")
        if self.held_places and sum(count for _, count in self.held_places) != self.held_gpus:
            raise InvalidProblemError(f"held_places must add up to the {self.held_gpus} GPUs of held_gpus")

    @property
    def live(self) -> tuple[Trial, ...]:
        """Trials with remaining work."""
        return tuple(trial for trial in self.trials if trial.work_min > 0)

    @property
    def demand(self) -> int:
        """D: number of GPUs that all live trials together can use."""
        return sum(trial.max_gpus for trial in self.live) if self.needs is None else self.needs.demand

    @property
    def work_min(self) -> float:
        """W: remaining serial GPU minutes of all live trials, or of the predicted winner (`combine`)."""
        if self.needs is not None:
            return self.needs.work_min
        trial_work = [trial.work_min for trial in self.live]
        return min(trial_work) if self.combine is Combine.BEST else math.fsum(trial_work)

    def aged(self, minutes: float, app_minutes: float, work_share: float) -> "AppProfile":
        """Return the profile some minutes later.

        Parameters
        ----------
        minutes
            Elapsed minutes.
        app_minutes
            Integral of the number of active apps (this app included) over these minutes.
        work_share
            Remaining share of each trial's work.
        """
        elapsed = self.elapsed_min + minutes
        active = (self.active_apps * self.elapsed_min + app_minutes) / elapsed if elapsed else self.active_apps
        trials = tuple(replace(trial, work_min=trial.work_min * work_share) for trial in self.trials)
        return replace(self, elapsed_min=elapsed, active_apps=max(1.0, active), trials=trials)


def ideal_minutes(profile: AppProfile, cluster_gpus: int) -> float:
    """Return T_id, the time that the app would take with a fair share of the cluster.

    The value is ``N_avg * T(R_C)`` for `time-share`, the paper's definition, and ``T(R_C / N_avg)`` for
    `space-share`. T(n) is the time of all the app's work on n GPUs, at least the time of the longest trial.
    """
    trials = profile.trials
    share = profile.active_apps
    gpus = float(cluster_gpus) if profile.ideal is IdealTime.TIME_SHARE else cluster_gpus / share
    times = share if profile.ideal is IdealTime.TIME_SHARE else 1.0
    if profile.needs is not None:
        needs = profile.needs
        return times * max(needs.total_work_min / min(gpus, needs.total_demand), needs.total_longest_min)
    total, demand = math.fsum(t.total_work_min for t in trials), sum(t.max_gpus for t in trials)
    alone = [t.total_work_min / min(gpus, t.max_gpus) for t in trials if t.total_work_min > 0]
    alone_min = min(alone) if profile.combine is Combine.BEST else max(total / min(gpus, demand), *alone)
    return alone_min * times


def remaining_minutes(profile: AppProfile, gpus: float, slowdown: float) -> float:
    """Return the minutes that the remaining work takes on `gpus` GPUs and the held GPUs of other types.

    The result is infinite without any GPU.
    """
    if profile.needs is not None and profile.other_type_gpus:
        speed = max(0.0, min(gpus, profile.demand - profile.other_type_gpus)) / slowdown + profile.other_type_speed
        return max(profile.work_min / speed, profile.needs.longest_min)
    if gpus <= 0:
        return math.inf
    if profile.needs is not None:
        return max(profile.work_min * slowdown / min(gpus, profile.demand), profile.needs.longest_min)
    live = profile.live
    if profile.combine is Combine.BEST:
        return min(t.work_min * slowdown / min(gpus, t.max_gpus) for t in live)
    if profile.estimator is Estimator.SPLIT:
        return _best_split(profile, int(gpus), slowdown)
    longest = max(t.work_min / t.max_gpus for t in live)
    return max(profile.work_min * slowdown / min(gpus, profile.demand), longest)


def remaining_minutes_each(profile: AppProfile, gpus: FloatArray, slowdown: FloatArray) -> FloatArray:
    """Return `remaining_minutes` for arrays of positive numbers of GPUs and of slowdowns, both of one shape."""
    if profile.combine is Combine.BEST or profile.estimator is Estimator.SPLIT:
        pairs = zip(gpus.ravel().tolist(), slowdown.ravel().tolist(), strict=True)
        return np.array([remaining_minutes(profile, *pair) for pair in pairs]).reshape(gpus.shape)
    needs = profile.needs
    if needs is not None and profile.other_type_gpus:
        speed = np.minimum(gpus, profile.demand - profile.other_type_gpus) / slowdown + profile.other_type_speed
        return np.asarray(np.maximum(profile.work_min / speed, needs.longest_min))
    longest = max(t.work_min / t.max_gpus for t in profile.live) if needs is None else needs.longest_min
    return np.asarray(np.maximum(profile.work_min * slowdown / np.minimum(gpus, profile.demand), longest))


def _best_split(profile: AppProfile, gpus: int, slowdown: float) -> float:
    """Return the minimum time of the slowest trial; trials without GPUs run after the others.

    If there are fewer GPUs than trials, the trials share them as in the aggregate estimate. Otherwise each trial gets one
    GPU, and each further GPU goes to the slowest trial while it can use more; this greedy rule minimises the maximum.
    """
    live = profile.live
    if gpus < len(live):
        return math.fsum(t.work_min for t in live) * slowdown / gpus
    trial_gpus = [1] * len(live)
    for _ in range(gpus - len(live)):
        times = [(t.work_min / g, -k) for k, (t, g) in enumerate(zip(live, trial_gpus, strict=True))]
        slowest = -max(times)[1]
        if trial_gpus[slowest] == live[slowest].max_gpus:
            break
        trial_gpus[slowest] += 1
    return max(t.work_min / g for t, g in zip(live, trial_gpus, strict=True)) * slowdown


def shared_minutes(
    profile: AppProfile, gpus: float, locality: int, *, horizon: Horizon, lease_min: float, cluster_gpus: int
) -> float:
    """Return T_sh, the app's total time in minutes if it is granted `gpus` GPUs in addition to those it holds.

    `locality` is that of the smallest subtree that contains all its GPUs, held and granted.

    With horizon `hold` the app keeps the GPUs for ever. With `lease` it keeps them for one lease, then
    continues with its fair share ``max(1, min(R_C / N_avg, D))`` in the best placement.
    """
    remaining_min = remaining_minutes(profile, gpus + profile.held_gpus, profile.slowdown.within(locality))
    return float(whole_minutes(profile, np.array(remaining_min), horizon, lease_min, cluster_gpus))


def shared_minutes_each(
    profile: AppProfile, gpus: IntArray, locality: IntArray, *, horizon: Horizon, lease_min: float, cluster_gpus: int
) -> FloatArray:
    """Return `shared_minutes` for many bundles, at least one GPU each, arrays of one shape."""
    within = np.array([profile.slowdown.within(level) for level in range(4)])[locality]
    remaining_min = remaining_minutes_each(profile, (gpus + profile.held_gpus).astype(np.float64), within)
    return whole_minutes(profile, remaining_min, horizon, lease_min, cluster_gpus)


def whole_minutes(
    profile: AppProfile, remaining_min: FloatArray, horizon: Horizon, lease_min: float, cluster_gpus: int
) -> FloatArray:
    """Return T_sh for an array of times (in minutes) that the remaining work takes at the speed of a bundle."""
    if horizon is Horizon.HOLD:
        return np.asarray(profile.elapsed_min + remaining_min)
    share = max(1.0, min(cluster_gpus / profile.active_apps, float(profile.demand)))
    later = remaining_minutes(profile, share, profile.slowdown.best)
    # `later` is the time of all remaining work at the fair share; only the part left after the lease is done at it.
    after = lease_min + (1.0 - lease_min / remaining_min) * later
    return np.asarray(profile.elapsed_min + np.where(remaining_min <= lease_min, remaining_min, after))
