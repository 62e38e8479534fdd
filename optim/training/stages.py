"""AgileML's three stages of reliability, the roles of machines, data partitions, and a job's options.

Data is cut once into P partitions, and the parameters once into shards. When machines join or leave, partitions and
shards are only reassigned. A clock's gradients are always added in partition order, so that the results of a run do not
depend on the number of machines, bit for bit.

The stage determines which machines serve the parameters and which compute. With few transient machines, reliable
machines serve all parameters (stage 1). With more transient machines, the network cards of the reliable machines become
the bottleneck; then transient machines serve, and reliable machines keep a backup (stage 2). With very many, workers on
reliable machines would lag behind, so that only transient machines compute (stage 3). The iteration times of the stages
are given by (K.6) of docs/mathematics/kernels.md.

References
----------
Harlap, Tumanov, Chung, Ganger, Gibbons (2017), Proteus: agile ML elasticity through tiered reliability in dynamic
resource markets, EuroSys, doi 10.1145/3064176.3064182.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from optim.core.errors import InvalidOptionError, check_choices, check_in
from optim.training.application import Application, HasRows
from optim.training.messages import NonFinite, Pushes


def assign_balanced(count: int, holders: Sequence[str], previous: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the holder of each of `count` items: numbers of items per holder differ by at most one, and few items move.

    Parameters
    ----------
    count
        Number of items.
    holders
        Candidates. Where items can't be divided equally, holders with the most previous items get one more; in a tie, the first.
    previous
        Previous holder of each item; empty if there was none. It may contain holders that have left.

    Raises
    ------
    InvalidOptionError
        If there is no holder.
    """
    if not holders:
        raise InvalidOptionError(f"no machine can hold the {count} partitions; add at least one machine")
    before = list(previous) if previous else [""] * count
    of_holder = {holder: [index for index in range(count) if before[index] == holder] for holder in holders}
    share, extra = divmod(count, len(holders))
    # Holders with the most items get one more than others, so that no item moves unnecessarily.
    ranked = sorted(range(len(holders)), key=lambda rank: (-len(of_holder[holders[rank]]), rank))
    quota = {holders[rank]: share + (place < extra) for place, rank in enumerate(ranked)}
    result = [""] * count
    for holder in holders:
        for index in of_holder[holder][: quota[holder]]:
            result[index] = holder
    free = iter([index for index in range(count) if not result[index]])
    for holder in holders:
        for _ in range(quota[holder] - min(len(of_holder[holder]), quota[holder])):
            result[next(free)] = holder
    return tuple(result)


def bounds(size: int, count: int, index: int) -> tuple[int, int]:
    """Return start and stop of the `index`-th of `count` contiguous parts of ``range(size)``."""
    return index * size // count, (index + 1) * size // count


def row_width(application: Application, num_shards: int) -> int:
    """Return the width of the rows in which gradients may be pushed; 1 if the application has no rows or too few."""
    if not isinstance(application, HasRows) or application.num_parameters // application.row_width < num_shards:
        return 1
    return application.row_width


def shard_bounds(application: Application, num_shards: int) -> tuple[tuple[int, int], ...]:
    """Return start and stop of each shard of an application's parameters; shards consist of full rows if there are rows."""
    width = row_width(application, num_shards)
    rows = application.num_parameters // width
    cuts = [bounds(rows, num_shards, shard) for shard in range(num_shards)]
    return tuple((start * width, stop * width) for start, stop in cuts)


class Stage(StrEnum):
    """Stage of reliability: which machines serve the parameters, and which machines compute."""

    RELIABLE = "reliable"
    """Stage 1: reliable machines serve the parameters, and all machines compute."""
    BACKED_UP = "backed-up"
    """Stage 2: transient machines serve the parameters, reliable machines keep backups, and all machines compute."""
    TRANSIENT = "transient"
    """Stage 3: as stage 2, but reliable machines don't compute."""
    TRADITIONAL = "traditional"
    """Baseline without tiers: all machines serve and compute, and there are no backups except checkpoints."""
    SEPARATE = "separate"
    """Only reliable machines serve, and only transient machines compute, as in clusters with separate parameter servers."""


class StagePolicy(Protocol):
    """Rule that chooses the stage from the numbers of reliable and transient machines."""

    def stage(self, reliable: int, transient: int) -> Stage:
        """Return the stage for these numbers of machines."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """Choice of the stage by the ratio of transient to reliable machines.

    Parameters
    ----------
    second
        Largest ratio at which parameters are still served on reliable machines.
    third
        Largest ratio at which reliable machines still run workers.

    Notes
    -----
    The defaults, 1 and 15, are the thresholds of the paper's cluster; `ThroughputModel` derives those of other
    clusters.
    """

    second: float = 1.0
    third: float = 15.0

    def __post_init__(self) -> None:
        if not 0 <= self.second <= self.third:
            raise InvalidOptionError(
                f"thresholds must satisfy 0 <= second <= third, got {self.second} and {self.third}"
            )

    def stage(self, reliable: int, transient: int) -> Stage:
        """Return the stage; without reliable machines, `Stage.TRADITIONAL`."""
        if reliable == 0:
            return Stage.TRADITIONAL
        if transient / reliable <= self.second:
            return Stage.RELIABLE
        return Stage.BACKED_UP if transient / reliable <= self.third else Stage.TRANSIENT


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """A rule that always chooses the same stage, if the machines allow it."""

    fixed: Stage

    def stage(self, reliable: int, transient: int) -> Stage:
        """Return the fixed stage, or the most similar stage that is possible with these machines."""
        if reliable == 0:
            return Stage.TRADITIONAL
        if transient == 0 and self.fixed is not Stage.TRADITIONAL:
            return Stage.RELIABLE
        return self.fixed


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputModel:
    """Seconds per iteration in each stage: computation, serving and backups overlap, and the slowest of them counts.

    With R reliable and T transient machines, of which n are workers, and `a` transient servers::

        stage 1      n = R + T   max(D / (n s), n U / (R B))
        stage 2      n = R + T   max(D / (n s), n U / (a B), U / B + M / (R B k))
        stage 3      n = T       max(D / (n s), n U / (a B), M / (R B k))
        traditional  n = R + T   max(D / (n s), U / B)

    D is the computation of an iteration and s the speed of a machine; the other symbols are described below. In stage 2
    a reliable machine computes and keeps backups, so that both streams share one network card: this gives the sum.

    Parameters
    ----------
    work_s
        D / s: seconds of computation per iteration on one machine.
    worker_mb
        U: megabytes that a worker reads and writes per iteration.
    model_mb
        M: megabytes per backup.
    bandwidth_mb_per_s
        B: bandwidth of one machine's network card.
    sync_every
        k: iterations between two backups.
    max_actives
        Maximum number of transient servers; None for all, so a = min(T, max_actives).

    Notes
    -----
    With a = T, d = D / (R s) B / U and m = M / (R k U), stage 2 begins at the ratio ``max(1, m, sqrt(d) - 1)`` of
    transient to reliable machines and stage 3 at ``min(d - 1, d / (1 + m))``. So the third threshold is at most
    ``(second + 1)^2 - 1``. The paper's thresholds, 1 and 15, can't both follow from this model: if the third is 15, the
    second is at least 3.
    """

    work_s: float
    worker_mb: float
    model_mb: float
    bandwidth_mb_per_s: float
    sync_every: int = 1
    max_actives: int | None = None

    def __post_init__(self) -> None:
        check_in("(0, inf)", self, "work_s", "worker_mb", "model_mb", "bandwidth_mb_per_s")
        check_in("[1, inf)", self, "sync_every", "max_actives")

    def iteration_s(self, stage: Stage, reliable: int, transient: int) -> float:
        """Return the seconds of an iteration, infinity where the stage isn't possible."""
        if stage is Stage.TRADITIONAL:
            machines = reliable + transient
            return max(self.work_s / machines, self._transfer(self.worker_mb)) if machines else math.inf
        if reliable == 0 or (stage is not Stage.RELIABLE and transient == 0):
            return math.inf
        workers = transient if stage in (Stage.TRANSIENT, Stage.SEPARATE) else reliable + transient
        computing = self.work_s / workers
        if stage in (Stage.RELIABLE, Stage.SEPARATE):
            return max(computing, self._transfer(workers * self.worker_mb / reliable))
        actives = transient if self.max_actives is None else min(transient, self.max_actives)
        backing_up = self._transfer(self.model_mb / (reliable * self.sync_every))
        if stage is Stage.BACKED_UP:
            backing_up += self._transfer(self.worker_mb)
        return max(computing, self._transfer(workers * self.worker_mb / actives), backing_up)

    def stage(self, reliable: int, transient: int) -> Stage:
        """Return the stage (1 to 3) with the shortest iteration, the lower in a tie; `Stage.TRADITIONAL` if R = 0."""
        if reliable == 0:
            return Stage.TRADITIONAL
        stages = (Stage.RELIABLE, Stage.BACKED_UP, Stage.TRANSIENT)
        return min(stages, key=lambda stage: self.iteration_s(stage, reliable, transient))

    def thresholds(self, reliable: int, max_transient: int = 4096) -> Thresholds:
        """Return the largest ratios of transient to reliable machines at which stage 1 and stage 2 are still chosen.

        Only numbers of up to `max_transient` transient machines are considered.

        Raises
        ------
        InvalidOptionError
            If the model chooses a lower stage for more transient machines, so that two thresholds can't describe the choice.
        """
        chosen = [self.stage(reliable, transient) for transient in range(max_transient + 1)]
        if chosen != sorted(chosen, key=list(Stage).index):
            raise InvalidOptionError(
                "two thresholds can't describe this model: with more transient machines, a lower stage becomes the fastest again; "
                "give the model itself as the policy"
            )
        ends = {stage: count / reliable for count, stage in enumerate(chosen)}
        second = ends[Stage.RELIABLE]  # the only possible stage without transient machines
        return Thresholds(second=second, third=ends.get(Stage.BACKED_UP, second))

    def _transfer(self, megabytes: float) -> float:
        return megabytes / self.bandwidth_mb_per_s


STORAGE = "storage"
"""Name of the stable storage for checkpoints; it never fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Roles:
    """Assignment of roles to machines.

    Attributes
    ----------
    stage
        Stage of the layout.
    workers
        Machines that compute.
    servers
        For each shard the machine that serves it.
    backups
        For each shard the holder of its copies: a reliable machine, or `STORAGE`.
    """

    stage: Stage
    workers: tuple[str, ...]
    servers: tuple[str, ...]
    backups: tuple[str, ...]

    def has_same_shards(self, other: "Roles") -> bool:
        """Return whether no shard or copy has to move between the two layouts."""
        return self.servers == other.servers and self.backups == other.backups


def assign_roles(
    stage: Stage,
    reliable: Sequence[str],
    transient: Sequence[str],
    num_shards: int,
    *,
    max_actives: int | None = None,
    previous: Roles | None = None,
) -> Roles:
    """Return the layout of a stage, with few moves of shards from the previous layout.

    Parameters
    ----------
    stage
        Stage of the layout. Except in stages 2 and 3, `STORAGE` keeps the copies of shards, which are then checkpoints.
    reliable, transient
        Names of the machines of each tier.
    num_shards
        Number of shards, fixed during the run.
    max_actives
        Maximum number of transient servers.
    previous
        Current layout.

    Raises
    ------
    InvalidOptionError
        If the stage needs machines of a tier that has none.
    """
    machines = (*reliable, *transient)
    old_servers, old_backups = (previous.servers, previous.backups) if previous is not None else ((), ())
    if stage not in (Stage.BACKED_UP, Stage.TRANSIENT):
        hosts = machines if stage is Stage.TRADITIONAL else tuple(reliable)
        servers = assign_balanced(num_shards, _preferred(hosts, num_shards, old_servers), old_servers)
        workers = tuple(transient) if stage is Stage.SEPARATE else machines
        return Roles(stage=stage, workers=workers, servers=servers, backups=(STORAGE,) * num_shards)
    actives = min(num_shards, len(transient) if max_actives is None else max_actives)
    return Roles(
        stage=stage,
        workers=machines if stage is Stage.BACKED_UP else tuple(transient),
        servers=assign_balanced(num_shards, _preferred(transient, actives, old_servers), old_servers),
        backups=assign_balanced(num_shards, _preferred(reliable, num_shards, old_backups), old_backups),
    )


def _preferred(machines: Sequence[str], count: int, before: Sequence[str]) -> tuple[str, ...]:
    """Return up to `count` machines; machines that already have a shard come first."""
    known = set(before)
    return tuple(sorted(machines, key=lambda name: name not in known)[:count])


NEVER = 2**62
"""A clock that no run reaches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """Options of training on a cluster.

    Parameters
    ----------
    num_shards
        Number of shards of the parameter vector, fixed during the run. It limits the number of servers.
    staleness
        Number of clocks by which a partition may be ahead of the slowest partition; with 0, training is bulk-synchronous and
        reproducible bit for bit.
    sync_every
        Number of clocks between two updates of the backups.
    checkpoint_every
        Number of clocks between two checkpoints in the storage.
    max_actives
        Maximum number of transient servers.
    policy
        Rule that chooses the stage.
    pushes
        Whether gradients whose rows are mostly zero are pushed by rows. With Momentum and Adam they never are, since
        these optimisers also change parameters with a zero gradient.
    replay_mb
        Maximum size of the controller's log of pushes, in megabytes. After a server's failure the servers replay the
        pushes since the newest complete copies, with the same results bit for bit. Pushes that didn't fit in the log
        are computed again; 0 disables the log.
    non_finite
        Treatment of a gradient that is infinite or not a number.
    silence_s
        Seconds without a heartbeat after which a machine is considered dead and killed. Processes send heartbeats from a
        separate thread, also during computations, unless code holds the interpreter's lock.
    start_s
        Maximum time in seconds until a new machine is ready.
    """

    num_shards: int = 4
    staleness: int = 0
    sync_every: int = 2
    checkpoint_every: int = 10
    max_actives: int | None = None
    policy: StagePolicy = field(default_factory=Thresholds)
    pushes: Pushes = Pushes.AUTO
    replay_mb: float = 0.0
    non_finite: NonFinite = NonFinite.STOP
    silence_s: float = 30.0
    start_s: float = 300.0

    def __post_init__(self) -> None:
        check_in("[1, inf)", self, "num_shards", "sync_every", "checkpoint_every", "max_actives")
        check_in("[0, inf)", self, "staleness", "replay_mb")
        check_in("(0, inf)", self, "silence_s", "start_s")
        choices = {"non_finite": NonFinite, "pushes": Pushes}
        check_choices(self, {name: tuple(choice) for name, choice in choices.items()})
        for name, choice in choices.items():  # convert plain strings
            object.__setattr__(self, name, choice(getattr(self, name)))

    def sync_period(self, backup: str) -> int:
        """Return the number of clocks between two copies to a backup; copies to the storage are checkpoints."""
        return self.checkpoint_every if backup == STORAGE else self.sync_every
