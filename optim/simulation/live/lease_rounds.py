"""Rounds of leases: each round's award comes from the arbiter, which sees what was really done before.

The first round plays the auction's own solution. When its leases end, all GPUs that apps leased or held are on offer again, and apps
that aren't done bid by what is left of their work. Leases may be played by real processes, or as the apps' profiles say.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from optim.core.errors import UnsupportedProblemError
from optim.models.auction.bid_table import with_held
from optim.models.auction.fairness import AppProfile, ideal_minutes
from optim.models.auction.instance import AuctionInstance, Cluster
from optim.models.auction.plan import AuctionPlan
from optim.simulation.live.auction_run import AppLease, lease_of, read_leases
from optim.simulation.live.round_rows import RoundOptions, RoundRow, Turnout
from optim.solvers.auction.agent import ProfileAgent
from optim.solvers.auction.arbiter import Arbiter, ArbiterOptions

LEAST_LEFT = 1e-9
"""Share of an app's work below which nothing is left of it."""


@dataclass
class AppState:
    """Where an app stands between rounds.

    Attributes
    ----------
    profile
        What it knew of itself before the first round.
    left
        The share of its work then that is still left.
    minutes, apps_minutes
        Since then, until it was done, and the integral over them of the number of active apps.
    leases, finish_min
        Rounds with GPUs, and when it was done.
    """

    profile: AppProfile
    left: float = 1.0
    minutes: float = 0.0
    apps_minutes: float = 0.0
    leases: int = 0
    finish_min: float | None = None

    @property
    def work_min(self) -> float:
        """Serial GPU minutes before the first round."""
        return self.profile.work_min

    def present(self, cluster: Cluster) -> AppProfile:
        """Return what it knows of itself now: older, with less to do, and without GPUs."""
        own = self.profile
        elapsed = own.elapsed_min + self.minutes
        active = (own.active_apps * own.elapsed_min + self.apps_minutes) / elapsed if elapsed else own.active_apps
        trials = tuple(replace(trial, work_min=trial.work_min * self.left) for trial in own.trials)
        free = with_held(own, cluster, ())
        return replace(free, elapsed_min=elapsed, active_apps=max(1.0, active), trials=trials)

    def rho(self, cluster: Cluster) -> float | None:
        """Return the finish-time fairness of an app that is done."""
        if self.finish_min is None:
            return None
        aged = replace(self, left=1.0).present(cluster)
        return aged.elapsed_min / ideal_minutes(aged, cluster.num_gpus)


Play = Callable[[int, Sequence[AppLease]], Sequence[Turnout]]
"""What plays a round's leases: its number and the leases in, what came of each out."""


def foreseen(lease_min: float) -> Play:
    """Return what plays leases by the apps' own speeds."""

    def play(number: int, leases: Sequence[AppLease]) -> list[Turnout]:
        del number
        return [
            Turnout(
                done_min=lease.work_min(lease_min), finished_min=lease.left_min if lease.left_min <= lease_min else None
            )
            for lease in leases
        ]

    return play


def run_rounds(
    instance: AuctionInstance, plan: AuctionPlan, options: RoundOptions, play: Play, *, seed: int = 0
) -> tuple[list[RoundRow], dict[int, AppState]]:
    """Hold round after round, each from where the one before has left the apps.

    Parameters
    ----------
    instance, plan
        The auction and its decision: the first round's.
    options
        How many, and how later auctions are held.
    play
        What plays a round's leases.
    seed
        Of lots and leftovers.

    Raises
    ------
    UnsupportedProblemError
        If an app's work isn't that of trials.
    """
    states = {}
    for app, profile in enumerate(instance.profiles):
        assert isinstance(profile, AppProfile), "instances are read so"
        if profile.needs is not None:
            raise UnsupportedProblemError(f"app {instance.apps.ids[app]} has needs without trials; give its trials")
        states[app] = AppState(profile=profile)
    lease_min, rows = instance.lease_min, []
    for number in range(options.rounds):
        live = [app for app, state in states.items() if state.finish_min is None]
        if not live:
            break
        leases = _first(instance, plan) if number == 0 else _awarded(instance, states, live, options, seed, number)
        for lease, turnout in zip(leases, play(number, leases), strict=True):
            state = states[lease.app]
            left_min = state.left * state.work_min
            rows.append(_row(number, lease, turnout, left_min, lease_min))
            state.leases += 1
            state.left = max(0.0, left_min - turnout.done_min) / state.work_min
            if turnout.finished_min is not None or state.left <= LEAST_LEFT:
                spent = lease_min if turnout.finished_min is None else min(lease_min, turnout.finished_min)
                state.finish_min = state.minutes + spent
        for app in live:
            state = states[app]
            passed = lease_min if state.finish_min is None else state.finish_min - state.minutes
            state.minutes += passed
            state.apps_minutes += passed * len(live)
    return rows, states


def _first(instance: AuctionInstance, plan: AuctionPlan) -> list[AppLease]:
    """Return the first round's leases: what was granted, and what apps that were granted nothing hold."""
    leases = {lease.app: lease for lease in read_leases(instance, plan)}
    for app, profile in enumerate(instance.profiles):
        if app not in leases and isinstance(profile, AppProfile) and profile.held_gpus:
            leases[app] = lease_of(instance, app, profile, ())
    return [leases[app] for app in sorted(leases)]


def _awarded(
    instance: AuctionInstance,
    states: Mapping[int, AppState],
    live: Sequence[int],
    options: RoundOptions,
    seed: int,
    number: int,
) -> list[AppLease]:
    """Return the leases that the arbiter grants of all GPUs that apps had, to the apps that aren't done."""
    cluster = freed(instance)
    profiles = {app: states[app].present(cluster) for app in live}
    agents = [ProfileAgent(instance.apps.ids[app], profiles[app]) for app in live]
    arbiter = Arbiter(
        ArbiterOptions(
            fairness=options.fairness,
            lease_min=instance.lease_min,
            horizon=instance.horizon,
            empty_value=instance.empty_value,
        )
    )
    name = f"{instance.name}-round-{number}"
    grants = arbiter.hold(cluster, agents, seed=seed, round_number=number, name=name).grants
    entries: dict[str, list[tuple[int, int]]] = {}
    for grant in grants:
        entries.setdefault(grant.app, []).extend(grant.entries)
    return [
        lease_of(instance, app, profiles[app], entries[instance.apps.ids[app]])
        for app in live
        if instance.apps.ids[app] in entries
    ]


def freed(instance: AuctionInstance) -> Cluster:
    """Return the cluster when the first leases have ended: what apps held before them is on offer too."""
    free = instance.cluster.slot_free.copy()
    for profile in instance.profiles:
        assert isinstance(profile, AppProfile), "instances are read so"
        for slot, count in profile.held_places:
            free[slot] += count
    return replace(instance.cluster, slot_free=np.minimum(free, instance.cluster.slot_gpus))


def _row(number: int, lease: AppLease, turnout: Turnout, left_min: float, lease_min: float) -> RoundRow:
    planned = lease.work_min(lease_min)
    return RoundRow(
        round=number,
        app=lease.name,
        gpus=lease.gpus,
        placement=lease.placement,
        left_min=left_min,
        planned_min=planned,
        realised_min=turnout.done_min,
        error=turnout.done_min / planned - 1.0,
        clocks=turnout.clocks,
        start_s=turnout.start_s,
    )
