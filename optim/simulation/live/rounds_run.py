"""Rounds of leases with real processes: what was foreseen from the beginning beside what it came to."""

from collections.abc import Callable, Sequence
from pathlib import Path

from optim.core.errors import UnsupportedProblemError
from optim.models.auction.fairness import AppProfile
from optim.models.auction.instance import AuctionInstance
from optim.models.auction.plan import AuctionPlan
from optim.simulation.live.auction_run import AppLease
from optim.simulation.live.job_plan import PlanOptions
from optim.simulation.live.lease_rounds import foreseen, run_rounds
from optim.simulation.live.lease_turn import LeasedApp, LeaseTurn, play_turns
from optim.simulation.live.round_rows import AppRow, RoundOptions, RoundRow, Turnout


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
    """Play rounds of leases with real processes, and return a row for each lease and one for each app.

    Parameters
    ----------
    instance, plan
        The auction and its decision: the first round's.
    options, rounds
        How leases are played, a slot being one, and how many there are.
    folder
        Where the apps' checkpoints go, each app's in a folder of its own.
    is_stopped, on_slot
        As in `run_plan`; told each round that begins.

    Raises
    ------
    UnsupportedProblemError
        If the instance knows bids alone, or a round has more workers and servers than allowed.
    """
    _, expected = run_rounds(instance, plan, rounds, foreseen(instance.lease_min), seed=options.seed)
    apps: dict[int, LeasedApp] = {}

    def play(number: int, leases: Sequence[AppLease]) -> list[Turnout]:
        if is_stopped():
            return [Turnout(done_min=0.0)] * len(leases)
        on_slot(number)
        return _played(leases, apps, instance, options, folder, is_stopped)

    rows, states = run_rounds(instance, plan, rounds, play, seed=options.seed)
    found = []
    for app, state in states.items():
        foresight = expected[app]
        found.append(
            AppRow(
                app=instance.apps.ids[app],
                planned_leases=foresight.leases,
                realised_leases=state.leases,
                planned_min=(1.0 - foresight.left) * foresight.work_min,
                realised_min=(1.0 - state.left) * state.work_min,
                planned_finish_min=foresight.finish_min,
                realised_finish_min=state.finish_min,
                planned_rho=foresight.rho(instance.cluster),
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
) -> list[Turnout]:
    """Play a round's leases with real processes."""
    workers = sum(lease.gpus for lease in leases)
    if workers + len(leases) > options.max_processes:
        raise UnsupportedProblemError(
            f"a round has {workers + len(leases)} workers and servers, more than max_processes {options.max_processes}; raise it"
        )
    turns = []
    for lease in leases:
        if lease.app not in apps:
            own = instance.profiles[lease.app]
            assert isinstance(own, AppProfile), "instances are read so"
            apps[lease.app] = LeasedApp(
                app=lease.app,
                profile=own,
                options=options,
                lease_min=instance.lease_min,
                most_gpus=instance.cluster.num_gpus,
                folder=folder / f"app-{lease.app}",
            )
        turns.append(LeaseTurn(apps[lease.app], lease, min(1.0, options.cores / max(1, workers))))
    if turns:
        play_turns(turns, is_stopped)
    turnouts = []
    for turn in turns:
        is_done = turn.job.done == turn.job.clocks
        minutes = turn.spent_s / options.slot_s * instance.lease_min
        turnouts.append(
            Turnout(
                done_min=turn.clocks / turn.job.clocks * turn.job.profile.work_min,
                finished_min=minutes if is_done else None,
                clocks=turn.clocks,
                start_s=turn.start_s,
            )
        )
    return turnouts
