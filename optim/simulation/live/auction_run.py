"""The leases of an auction on real processes: each app trains for one lease with as many workers as it was granted GPUs.

What a lease holds of an app's work follows from the app's own terms: its serial minutes left, its GPUs, and how much their
placement slows it down. Here a GPU is a process, the slowdown is time that a worker waits for its link, and the question is
whether that work is done when the lease ends. What lateness does to the finish-time fairness is what it does to utility.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from functools import partial

import numpy as np

from optim.core.errors import UnsupportedProblemError
from optim.models.auction.bid_table import with_held
from optim.models.auction.fairness import AppProfile, remaining_minutes, whole_minutes
from optim.models.auction.instance import AuctionInstance
from optim.models.auction.plan import APP, COUNT, SLOT, AuctionPlan
from optim.simulation.live.job_plan import JobPlan, PlanOptions
from optim.simulation.live.job_run import JobRow
from optim.simulation.live.plan_run import play_jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRow(JobRow):
    """An app's lease as planned and as it went; a slot is the lease, and utility is 1 / rho.

    Attributes
    ----------
    gpus, placement
        What it trained with, GPUs held before included, and the smallest subtree that holds them.
    planned_min, realised_min
        Serial GPU minutes done within the lease: by the app's own speed, and here; None if it did not end.
    planned_rho, realised_rho
        Finish-time fairness if the app goes on as fast as planned, and as fast as here; None if it did not end.
    """

    gpus: int
    placement: str
    planned_min: float
    realised_min: float | None
    planned_rho: float
    realised_rho: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AppLease:
    """What an app is granted, and what it says that this is worth.

    Attributes
    ----------
    app, name
        Its number and its name.
    profile
        What it knows of itself, with the GPUs granted among those held.
    left_min
        Minutes that all its work takes so.
    """

    app: int
    name: str
    profile: AppProfile
    left_min: float

    @property
    def gpus(self) -> int:
        """GPUs it trains with."""
        return self.profile.held_gpus

    @property
    def placement(self) -> str:
        """The smallest subtree that holds them."""
        return ("slot", "machine", "rack", "cluster")[self.profile.held_locality]

    @property
    def speed(self) -> float:
        """Serial GPU minutes a minute."""
        return self.profile.work_min / self.left_min

    def work_min(self, lease_min: float) -> float:
        """Return the serial GPU minutes that are done within a lease."""
        return min(self.profile.work_min, self.speed * lease_min)

    def rho(self, instance: AuctionInstance, stretch: float = 1.0) -> float:
        """Return the finish-time fairness if everything takes so many times as long."""
        left = np.array(self.left_min * stretch)
        lease, gpus = instance.lease_min, instance.cluster.num_gpus
        whole = float(whole_minutes(self.profile, left, instance.horizon, lease, gpus))
        return whole / float(instance.apps.ideal_min[self.app])

    def job_plan(self, lease_min: float) -> JobPlan:
        """Return the lease as a plan of one slot."""
        profile = self.profile
        slowdown = profile.slowdown.at(profile.held_locality)
        minutes = [remaining_minutes(profile, gpus, slowdown) for gpus in range(1, self.gpus + 1)]
        return JobPlan(
            job=self.app,
            name=self.name,
            machines={0: (self.gpus, 1)},
            work=self.work_min(lease_min) / lease_min,
            speeds=tuple(profile.work_min / each for each in minutes),
            link_share=1.0 - 1.0 / slowdown,
        )


def read_leases(instance: AuctionInstance, plan: AuctionPlan) -> tuple[AppLease, ...]:
    """Return the leases of the apps that were granted something.

    Raises
    ------
    UnsupportedProblemError
        If the instance knows its apps' bids alone.
    """
    if not instance.profiles:
        raise UnsupportedProblemError(
            f"{instance.name} has bids without profiles: nobody knows how much work a lease holds; give its apps profiles"
        )
    leases = []
    for app in np.unique(plan.grants[:, APP]).tolist():
        own = instance.profiles[app]
        assert isinstance(own, AppProfile), "instances are read so"
        granted = plan.grants[plan.grants[:, APP] == app]
        leases.append(lease_of(instance, app, own, granted[:, [SLOT, COUNT]].tolist()))
    return tuple(leases)


def lease_of(instance: AuctionInstance, app: int, profile: AppProfile, entries: Iterable[tuple[int, int]]) -> AppLease:
    """Return the lease of an app that is granted (slot, GPUs) entries beside those it holds.

    Raises
    ------
    UnsupportedProblemError
        If nobody knows where those are.
    """
    if profile.held_gpus and not profile.held_places:
        raise UnsupportedProblemError(f"app {instance.apps.ids[app]} holds GPUs in unknown places; name them in `held`")
    counts = dict(profile.held_places)
    for slot, count in entries:
        counts[slot] = counts.get(slot, 0) + count
    held = with_held(profile, instance.cluster, counts.items())
    left = remaining_minutes(held, held.held_gpus, held.slowdown.at(held.held_locality))
    return AppLease(app=app, name=instance.apps.ids[app], profile=held, left_min=left)


def run_leases(
    instance: AuctionInstance,
    plan: AuctionPlan,
    options: PlanOptions,
    *,
    is_stopped: Callable[[], bool] = lambda: False,
    on_slot: Callable[[int], None] = lambda slot: None,
    on_held: Callable[[float], None] = lambda seconds: None,
) -> tuple[LeaseRow, ...]:
    """Train all apps that were granted GPUs, and return a row for each.

    Parameters
    ----------
    instance, plan
        The auction and its decision.
    options
        How it is played; a slot is the lease.
    is_stopped, on_slot, on_held
        As in `run_plan`.

    Raises
    ------
    UnsupportedProblemError
        If the instance knows bids alone, or the leases have more workers and servers than allowed.
    """
    leases = read_leases(instance, plan)
    scale = options.slot_s / (60.0 * instance.lease_min)
    jobs = [lease.job_plan(instance.lease_min) for lease in leases]
    runs = play_jobs(jobs, options, scale=scale, is_stopped=is_stopped, on_slot=on_slot, on_held=on_held)
    rows = []
    for lease, run in zip(leases, runs, strict=True):
        value = partial(_value, instance, lease, run.plan.planned_slots)
        rows.append(lease_row(instance, lease, run.row(value(run.plan.planned_slots), value)))
    return tuple(rows)


def _value(instance: AuctionInstance, lease: AppLease, planned_slots: float, slots: float) -> float:
    """Return 1 / rho of an app whose work of the lease took so many slots."""
    return 1.0 / lease.rho(instance, slots / planned_slots)


def lease_row(instance: AuctionInstance, lease: AppLease, row: JobRow) -> LeaseRow:
    """Return an app's row with what the lease's time came to."""
    work = lease.work_min(instance.lease_min)
    realised = row.realised_slots
    # The lease ends after one slot; up to there the work went on as evenly as it did on the whole.
    done = None if realised is None else work * min(1.0, 1.0 / realised)
    own = {field.name: getattr(row, field.name) for field in fields(JobRow)}
    return LeaseRow(
        **own,
        gpus=lease.gpus,
        placement=lease.placement,
        planned_min=work,
        realised_min=done,
        planned_rho=1.0 / row.planned_utility,
        realised_rho=None if realised is None else 1.0 / row.realised_utility,
    )


def log_welfare(rows: Sequence[LeaseRow]) -> tuple[float, float] | None:
    """Return the sums of log(1 / rho) over the apps, planned and realised; None if one did not end."""
    if any(row.realised_rho is None for row in rows):
        return None
    planned = -math.fsum(math.log(row.planned_rho) for row in rows)
    return planned, -math.fsum(math.log(row.realised_rho) for row in rows if row.realised_rho is not None)
