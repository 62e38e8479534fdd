"""Rounds of leases with real processes: planned compared with realised work.

The first round runs the auction's solution. When its leases end, all GPUs that apps leased or held are on offer again, and
unfinished apps bid by their remaining work. Realised leases run on real processes; planned leases are computed from the apps'
profiles.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from optim.core.errors import UnsupportedProblemError, check_in
from optim.models.auction.bids import with_allocation
from optim.models.auction.data import Cluster
from optim.models.auction.decision import AuctionPlan
from optim.models.auction.fairness import AppProfile, ideal_minutes
from optim.models.auction.instance import AuctionInstance
from optim.simulation.emulation.auction_run import AppLease, LeasedApp, LeaseRun, lease_of, read_leases, run_together
from optim.simulation.emulation.job_run import PlanOptions
from optim.solvers.auction.mechanism import Arbiter, ArbiterOptions, ProfileAgent


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundOptions:
    """Options of the rounds and their auctions.

    Parameters
    ----------
    rounds
        Maximum number of rounds; the rounds end earlier if all apps are done.
    fairness
        f of the arbiter: after the first round, only the fraction 1 - f of the apps, those with the worst rho, may bid. With 0
        all apps may bid.
    """

    rounds: int = 2
    fairness: float = 0.8

    def __post_init__(self) -> None:
        check_in("[1, inf)", self, "rounds")
        check_in("[0, 1]", self, "fairness")


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseOutcome:
    """Outcome of a lease.

    Parameters
    ----------
    done_min
        Serial GPU minutes of completed work.
    finished_min
        Minutes from the lease's beginning until the app was done; None if the lease did not complete the app.
    clocks, start_s
        Number of training clocks, and start-up time of the processes in seconds.
    """

    done_min: float
    finished_min: float | None = None
    clocks: int = 0
    start_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRow:
    """Planned and realised results of an app's lease in a round.

    Attributes
    ----------
    round, app, gpus, placement
        Round, app, number of GPUs, and the smallest subtree that contains them.
    left_min
        Remaining serial GPU minutes at the lease's beginning, counted from the app's last checkpoint.
    planned_min, realised_min, error
        Serial GPU minutes of work that the app's profile plans, and that were realised; `error` is realised over
        planned work, minus 1.
    clocks, start_s
        See `LeaseOutcome`.
    """

    round: int
    app: str
    gpus: int
    placement: str
    left_min: float
    planned_min: float
    realised_min: float
    error: float
    clocks: int
    start_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AppRow:
    """Planned and realised results of an app over all rounds; the plan is made before the first round.

    Attributes
    ----------
    app
        Name of the app.
    planned_leases, realised_leases
        Number of rounds in which the app has GPUs, in the plan and in the run.
    planned_min, realised_min
        Serial GPU minutes of completed work, in the plan and in the run.
    planned_finish_min, realised_finish_min
        Minutes from the first lease until the app was done; None if it was not completed.
    planned_rho, realised_rho
        Finish-time fairness in the plan and in the run; None if the app was not done.
    is_exact
        Whether the training over all leases equals the training of an uninterrupted run, bit for bit.
    """

    app: str
    planned_leases: int
    realised_leases: int
    planned_min: float
    realised_min: float
    planned_finish_min: float | None
    realised_finish_min: float | None
    planned_rho: float | None
    realised_rho: float | None
    is_exact: bool | None = None


def total_error(rows: Sequence[RoundRow]) -> float | None:
    """Return the relative error of the realised work in all leases; None without planned work."""
    planned = math.fsum(row.planned_min for row in rows)
    return math.fsum(row.realised_min for row in rows) / planned - 1.0 if planned else None


MIN_LEFT = 1e-9
"""Remaining fraction of an app's work below which the app counts as done."""


@dataclass
class AppState:
    """State of an app between rounds.

    Attributes
    ----------
    profile
        Profile before the first round.
    left
        Remaining fraction of the work that the profile states.
    minutes, apps_minutes
        Minutes from the first round to now, or until the app was done; and the integral of the number of active apps
        over this time.
    leases, finish_min
        Number of rounds in which the app had GPUs, and minutes until the app was done, None before.
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
        """Return the current profile, with updated age and remaining work, and without GPUs."""
        return with_allocation(self.profile, cluster, ()).aged(self.minutes, self.apps_minutes, self.left)

    def rho(self, cluster: Cluster) -> float | None:
        """Return the finish-time fairness of an app that is done, None for other apps."""
        if self.finish_min is None:
            return None
        aged = replace(self, left=1.0).present(cluster)
        return aged.elapsed_min / ideal_minutes(aged, cluster.num_gpus)


Play = Callable[[int, Sequence[AppLease]], Sequence[LeaseOutcome]]
"""Function that runs a round's leases: it takes the round's number and leases, and returns the outcome of each lease."""


def profile_model(lease_min: float) -> Play:
    """Return a function that computes the outcomes of leases from the apps' profiles."""

    def play(number: int, leases: Sequence[AppLease]) -> list[LeaseOutcome]:
        del number
        return [
            LeaseOutcome(
                done_min=lease.work_min(lease_min), finished_min=lease.left_min if lease.left_min <= lease_min else None
            )
            for lease in leases
        ]

    return play


def run_rounds(
    instance: AuctionInstance, plan: AuctionPlan, options: RoundOptions, play: Play, *, seed: int = 0
) -> tuple[list[RoundRow], dict[int, AppState]]:
    """Run rounds in sequence, each from the apps' state after the previous one.

    Parameters
    ----------
    instance, plan
        Auction of the first round, and its solution.
    options
        Number of rounds, and options of later auctions.
    play
        Function that runs a round's leases.
    seed
        Seed of random priorities and of leftover GPUs.

    Raises
    ------
    UnsupportedProblemError
        If an app has needs without trials.
    """
    states = {}
    for app, profile in enumerate(instance.profiles):
        assert isinstance(profile, AppProfile), "codec reads profiles as AppProfile"
        if profile.needs is not None:
            raise UnsupportedProblemError(f"app {instance.apps.ids[app]} has needs without trials; give its trials")
        states[app] = AppState(profile=profile)
    lease_min, rows = instance.lease_min, []
    for number in range(options.rounds):
        live = [app for app, state in states.items() if state.finish_min is None]
        if not live:
            break
        leases = _first(instance, plan) if number == 0 else _awarded(instance, states, live, options, seed, number)
        for lease, outcome in zip(leases, play(number, leases), strict=True):
            state = states[lease.app]
            left_min = state.left * state.work_min
            rows.append(_row(number, lease, outcome, left_min, lease_min))
            state.leases += 1
            state.left = max(0.0, left_min - outcome.done_min) / state.work_min
            if outcome.finished_min is not None or state.left <= MIN_LEFT:
                spent = lease_min if outcome.finished_min is None else min(lease_min, outcome.finished_min)
                state.finish_min = state.minutes + spent
        for app in live:
            state = states[app]
            passed = lease_min if state.finish_min is None else state.finish_min - state.minutes
            state.minutes += passed
            state.apps_minutes += passed * len(live)
    return rows, states


def _first(instance: AuctionInstance, plan: AuctionPlan) -> list[AppLease]:
    """Return the first round's leases: granted GPUs, and GPUs that apps without a grant hold."""
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
    """Return the leases that the arbiter grants to unfinished apps in an auction of all GPUs that apps had before."""
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
    """Return the cluster after the first leases have ended, when the GPUs held before them are on offer as well."""
    free = instance.cluster.slot_free.copy()
    for profile in instance.profiles:
        assert isinstance(profile, AppProfile), "codec reads profiles as AppProfile"
        for slot, count in profile.held_places:
            free[slot] += count
    return replace(instance.cluster, slot_free=np.minimum(free, instance.cluster.slot_gpus))


def _row(number: int, lease: AppLease, outcome: LeaseOutcome, left_min: float, lease_min: float) -> RoundRow:
    planned = lease.work_min(lease_min)
    return RoundRow(
        round=number,
        app=lease.name,
        gpus=lease.gpus,
        placement=lease.placement,
        left_min=left_min,
        planned_min=planned,
        realised_min=outcome.done_min,
        error=outcome.done_min / planned - 1.0,
        clocks=outcome.clocks,
        start_s=outcome.start_s,
    )


def play_rounds(
    instance: AuctionInstance,
    plan: AuctionPlan,
    options: PlanOptions,
    rounds: RoundOptions,
    folder: Path,
    *,
    is_stopped: Callable[[], bool] = lambda: False,
    on_slot: Callable[[int], None] = lambda slot: None,
) -> tuple[list[RoundRow], list[AppRow]]:
    """Run rounds of leases with real processes, and return one row per lease and one per app.

    Parameters
    ----------
    instance, plan
        Auction of the first round, and its solution.
    options, rounds
        Options of the runs, in which a slot is a lease, and options of the rounds.
    folder
        Folder of the apps' checkpoints, one subfolder per app.
    is_stopped, on_slot
        As in `run_plan`; `on_slot` is called at the beginning of each round.

    Raises
    ------
    UnsupportedProblemError
        If the instance has bids without profiles, or a round has more workers and servers than allowed.
    """
    _, expected = run_rounds(instance, plan, rounds, profile_model(instance.lease_min), seed=options.seed)
    apps: dict[int, LeasedApp] = {}

    def play(number: int, leases: Sequence[AppLease]) -> list[LeaseOutcome]:
        if is_stopped():
            return [LeaseOutcome(done_min=0.0)] * len(leases)
        on_slot(number)
        return _played(leases, apps, instance, options, folder, is_stopped)

    rows, states = run_rounds(instance, plan, rounds, play, seed=options.seed)
    found = []
    for app, state in states.items():
        planned = expected[app]
        found.append(
            AppRow(
                app=instance.apps.ids[app],
                planned_leases=planned.leases,
                realised_leases=state.leases,
                planned_min=(1.0 - planned.left) * planned.work_min,
                realised_min=(1.0 - state.left) * state.work_min,
                planned_finish_min=planned.finish_min,
                realised_finish_min=state.finish_min,
                planned_rho=planned.rho(instance.cluster),
                realised_rho=state.rho(instance.cluster),
                is_exact=apps[app].is_exact() if app in apps and not is_stopped() else None,
            )
        )
    return rows, found


def _played(
    leases: Sequence[AppLease],
    apps: dict[int, LeasedApp],
    instance: AuctionInstance,
    options: PlanOptions,
    folder: Path,
    is_stopped: Callable[[], bool],
) -> list[LeaseOutcome]:
    """Run a round's leases with real processes."""
    workers = sum(lease.gpus for lease in leases)
    if workers + len(leases) > options.max_processes:
        raise UnsupportedProblemError(
            f"a round has {workers + len(leases)} workers and servers, more than max_processes {options.max_processes}; raise max_processes"
        )
    turns = []
    for lease in leases:
        if lease.app not in apps:
            own = instance.profiles[lease.app]
            assert isinstance(own, AppProfile), "codec reads profiles as AppProfile"
            apps[lease.app] = LeasedApp(
                app=lease.app,
                profile=own,
                options=options,
                lease_min=instance.lease_min,
                max_gpus=instance.cluster.num_gpus,
                folder=folder / f"app-{lease.app}",
            )
        turns.append(LeaseRun(apps[lease.app], lease, min(1.0, options.cores / max(1, workers))))
    if turns:
        run_together(turns, is_stopped)
    outcomes = []
    for turn in turns:
        is_done = turn.job.done == turn.job.clocks
        minutes = turn.spent_s / options.slot_s * instance.lease_min
        outcomes.append(
            LeaseOutcome(
                done_min=turn.clocks / turn.job.clocks * turn.job.profile.work_min,
                finished_min=minutes if is_done else None,
                clocks=turn.clocks,
                start_s=turn.start_s,
            )
        )
    return outcomes
