"""Who does what: the layout of a stage on given machines."""

from collections.abc import Sequence
from dataclasses import dataclass

from optim.training.partitions import deal
from optim.training.stages import Stage

STORAGE = "storage"
"""Name of the stable storage that checkpoints go to; it never fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Roles:
    """A layout.

    Attributes
    ----------
    stage
        The stage that it is a layout of.
    workers
        Machines that compute.
    servers
        For each shard the machine that serves it.
    backups
        For each shard who keeps its copies: a reliable machine, or `STORAGE`.
    """

    stage: Stage
    workers: tuple[str, ...]
    servers: tuple[str, ...]
    backups: tuple[str, ...]

    def has_same_shards(self, other: "Roles") -> bool:
        """Tell whether no shard and no copy would have to move between the two."""
        return self.servers == other.servers and self.backups == other.backups


def lay_out(
    stage: Stage,
    reliable: Sequence[str],
    transient: Sequence[str],
    num_shards: int,
    *,
    max_actives: int | None = None,
    previous: Roles | None = None,
) -> Roles:
    """Return the layout of a stage, moving few shards from the previous one.

    Parameters
    ----------
    stage
        Where servers aren't transient alone, `STORAGE` keeps the copies, which are checkpoints then.
    reliable, transient
        Names of the machines of each tier.
    num_shards
        Fixed for the whole run.
    max_actives
        Most transient machines that serve.
    previous
        The layout so far.

    Raises
    ------
    InvalidOptionError
        If the stage needs machines of a tier that has none.
    """
    machines = (*reliable, *transient)
    old_servers, old_backups = (previous.servers, previous.backups) if previous is not None else ((), ())
    if stage not in (Stage.BACKED_UP, Stage.TRANSIENT):
        hosts = machines if stage is Stage.TRADITIONAL else tuple(reliable)
        servers = deal(num_shards, _most(hosts, num_shards, old_servers), old_servers)
        workers = tuple(transient) if stage is Stage.SEPARATE else machines
        return Roles(stage=stage, workers=workers, servers=servers, backups=(STORAGE,) * num_shards)
    actives = min(num_shards, len(transient) if max_actives is None else max_actives)
    return Roles(
        stage=stage,
        workers=machines if stage is Stage.BACKED_UP else tuple(transient),
        servers=deal(num_shards, _most(transient, actives, old_servers), old_servers),
        backups=deal(num_shards, _most(reliable, num_shards, old_backups), old_backups),
    )


def _most(machines: Sequence[str], count: int, before: Sequence[str]) -> tuple[str, ...]:
    """Return up to `count` machines, those with a shard already first."""
    known = set(before)
    return tuple(sorted(machines, key=lambda name: name not in known)[:count])
