"""Chaos test: kill active servers at random moments of a run, and compare the losses with those of an undisturbed run."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from optim.core.errors import check_in
from optim.training.application import Application
from optim.training.processes import Processes
from optim.training.stages import NEVER, ClusterOptions
from optim.training.trainer import Action, ClockRow, Event, Trainer

if TYPE_CHECKING:
    from optim.kernels.parameter_server import AbstractOptimiser


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillOptions:
    """Options of the chaos test.

    Parameters
    ----------
    kills
        Number of active servers to kill, one after the other.
    clocks_between
        Number of clocks from one kill to the next.
    max_messages
        Maximum of the random number of messages between a clock boundary and the kill.
    transient
        Number of transient machines; killed machines are replaced.
    seed
        Seed of the choice of victims and moments.
    """

    kills: int = 50
    clocks_between: int = 4
    max_messages: int = 12
    transient: int = 3
    seed: int = 0

    def __post_init__(self) -> None:
        check_in("[1, inf)", self, "kills", "clocks_between")
        check_in("[0, inf)", self, "max_messages")
        check_in("[2, inf)", self, "transient")


@dataclass(frozen=True, slots=True, kw_only=True)
class KillRow:
    """One kill of a server, and its effect on the run.

    Attributes
    ----------
    machine, process_id
        Name and process number of the killed machine.
    from_clock, to_clock, replayed_to
        Completed clocks at the kill, the clock to which the run was rolled back, and the clock reached by replaying pushes.
    clocks_compared, is_equal
        Number of clocks completed from `to_clock` until the next kill, and whether their losses equal those of the
        undisturbed run in every bit.
    """

    machine: str
    process_id: int
    from_clock: int
    to_clock: int
    replayed_to: int
    clocks_compared: int
    is_equal: bool


def kill_servers(
    application: Application, optimiser: "AbstractOptimiser", cluster: ClusterOptions, options: DrillOptions
) -> Iterator[KillRow]:
    """Kill active servers, one at a time, and yield one row per kill before the next kill.

    One reliable machine keeps the backups, so the job is in stage 2 with servers on transient machines.
    """
    rng = np.random.default_rng(options.seed)
    start = [
        Event(clock=0, action=Action.ADD_RELIABLE, machines=("reliable-0",)),
        Event(clock=0, action=Action.ADD_TRANSIENT, machines=tuple(f"spot-{k}" for k in range(options.transient))),
    ]
    undisturbed, begin = Trainer(application, optimiser, cluster), start
    with Processes(application, cluster) as transport:
        trainer = Trainer(application, optimiser, cluster, transport)
        trainer.run(options.clocks_between, start)
        for kill in range(options.kills):
            victim, process_id = _kill_one(trainer, transport, rng, options)
            spare = (f"spot-{options.transient + kill}",)
            seen, undone = len(trainer.rows), len(trainer.controller.rollbacks)
            trainer.apply(Event(clock=0, action=Action.ADD_TRANSIENT, machines=spare))
            trainer.run(trainer.controller.flow.boundary + options.clocks_between)
            expected, begin = undisturbed.run(trainer.clock, begin).losses, []
            back = trainer.controller.rollbacks[undone]
            rows = [row for row in trainer.rows[seen:] if row.clock > back.to_clock]
            yield KillRow(
                machine=victim,
                process_id=process_id,
                from_clock=back.from_clock,
                to_clock=back.to_clock,
                replayed_to=back.replayed_to,
                clocks_compared=len(rows),
                is_equal=_is_equal(rows, expected) and trainer.controller.flow.losses == list(expected),
            )


def _kill_one(
    trainer: Trainer, transport: Processes, rng: np.random.Generator, options: DrillOptions
) -> tuple[str, int]:
    """Kill a server's process in the middle of a clock; return the machine's name and the process number."""
    trainer.controller.resume(NEVER)
    for _ in range(int(rng.integers(options.max_messages + 1))):
        trainer.step()
    servers = sorted(set(trainer.controller.roles.servers))
    victim = servers[int(rng.integers(len(servers)))]
    process_id = transport.process_ids[victim]
    transport.kill(victim)
    return victim, process_id


def _is_equal(rows: Sequence[ClockRow], expected: Sequence[float]) -> bool:
    return all(row.loss == expected[row.clock - 1] for row in rows)
