"""AgileML's three stages of reliability, and what decides between them.

The stage says which machines serve the parameters and which compute. With few transient machines everything is served
where it is safe; with more, the few reliable network cards become the bottleneck, and transient machines serve while
reliable ones keep a backup; with very many, even the reliable machines' own workers lag behind. Their iteration
times: docs/mathematics/kernels.md, (K.6).

References
----------
Harlap, Tumanov, Chung, Ganger, Gibbons (2017), Proteus: agile ML elasticity through tiered reliability in dynamic
resource markets, EuroSys, doi 10.1145/3064176.3064182.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Protocol

from optim.core.errors import InvalidOptionError
from optim.core.ranges import check_in


class Stage(StrEnum):
    """Where parameters are served and where workers run."""

    RELIABLE = "reliable"
    """Stage 1: served on reliable machines, workers on all."""
    BACKED_UP = "backed-up"
    """Stage 2: served on transient machines, backed up on reliable ones, workers on all."""
    TRANSIENT = "transient"
    """Stage 3: as stage 2, but the reliable machines run no workers."""
    TRADITIONAL = "traditional"
    """No tiers: servers and workers on all machines, checkpoints the only safety. The baseline."""
    SEPARATE = "separate"
    """Servers on reliable machines, workers on transient ones only: the cluster that schedulers of both speak of."""


class StagePolicy(Protocol):
    """Choose the stage from the numbers of machines."""

    def stage(self, reliable: int, transient: int) -> Stage:
        """Return the stage for that many machines."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """The stage by the ratio of transient to reliable machines.

    Parameters
    ----------
    second
        Largest ratio at which parameters are still served on reliable machines.
    third
        Largest ratio at which reliable machines still run workers.

    Notes
    -----
    The defaults, 1 and 15, are those known of the paper's cluster; `ThroughputModel` derives others.
    """

    second: float = 1.0
    third: float = 15.0

    def __post_init__(self) -> None:
        if not 0 <= self.second <= self.third:
            raise InvalidOptionError(
                f"thresholds must satisfy 0 <= second <= third, got {self.second} and {self.third}"
            )

    def stage(self, reliable: int, transient: int) -> Stage:
        """Return the stage; without reliable machines there are no tiers to speak of."""
        if reliable == 0:
            return Stage.TRADITIONAL
        ratio = transient / reliable
        if ratio <= self.second:
            return Stage.RELIABLE
        return Stage.BACKED_UP if ratio <= self.third else Stage.TRANSIENT


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """The stage by the ratio of transient to reliable machines, in any order of stages.

    Parameters
    ----------
    steps
        Ratios and stages: a stage holds up to its ratio, that one included; ratios rise, and the last stage holds beyond its own.
    """

    steps: tuple[tuple[float, Stage], ...]

    def __post_init__(self) -> None:
        ratios = [ratio for ratio, _ in self.steps]
        if not ratios or not all(first < second for first, second in pairwise(ratios)):
            raise InvalidOptionError(f"ratios of intervals must rise, and there must be one, got {ratios}")

    def stage(self, reliable: int, transient: int) -> Stage:
        """Return the stage; without reliable machines there are no tiers to speak of."""
        if reliable == 0:
            return Stage.TRADITIONAL
        ratio = transient / reliable
        return next((stage for most, stage in self.steps if ratio <= most), self.steps[-1][1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """One stage whatever the numbers, as far as there are machines for it."""

    fixed: Stage

    def stage(self, reliable: int, transient: int) -> Stage:
        """Return the fixed stage, or the nearest one that the machines allow."""
        if reliable == 0:
            return Stage.TRADITIONAL
        if transient == 0 and self.fixed is not Stage.TRADITIONAL:
            return Stage.RELIABLE
        return self.fixed


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputModel:
    """Seconds of an iteration in each stage: computing, serving and backing up overlap, and the slowest decides.

    With R reliable and T transient machines, n of them working and a serving on transient ones::

        stage 1      n = R + T   max(D / (n s), n U / (R B))
        stage 2      n = R + T   max(D / (n s), n U / (a B), U / B + M / (R B k))
        stage 3      n = T       max(D / (n s), n U / (a B), M / (R B k))
        traditional  n = R + T   max(D / (n s), U / B)

    A reliable machine that works and keeps a backup has both streams on one network card: the sum in stage 2.

    Parameters
    ----------
    work_s
        D s: seconds that one machine would compute an iteration.
    worker_mb
        U: megabytes a worker reads and writes an iteration.
    model_mb
        M: megabytes that a backup takes.
    bandwidth_mb_per_s
        B: of one machine's network card.
    sync_every
        k: iterations between two backups.
    max_actives
        Most transient machines that serve; None for all, so a = min(T, max_actives).

    Notes
    -----
    With a = T, d = D / (R s) B / U and m = M / (R k U), stage 2 begins at the ratio ``max(1, m, sqrt(d) - 1)`` and stage
    3 at ``min(d - 1, d / (1 + m))``. So the third threshold is at most ``(second + 1)^2 - 1``: the paper's 1 and 15 do
    not both follow from this model; from 15 it derives at least 3 for the second.
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
        """Return the tiered stage of the shortest iteration, the lower one of equals."""
        if reliable == 0:
            return Stage.TRADITIONAL
        stages = (Stage.RELIABLE, Stage.BACKED_UP, Stage.TRANSIENT)
        return min(stages, key=lambda stage: self.iteration_s(stage, reliable, transient))

    def thresholds(self, reliable: int, most: int = 4096) -> Thresholds:
        """Return the largest ratios at which the first two stages are still chosen, up to `most` transient machines.

        Raises
        ------
        InvalidOptionError
            If a lower stage is chosen again after a higher one, so that no two thresholds say it: `intervals` do.
        """
        steps = self.intervals(reliable, most).steps
        order = [list(Stage).index(stage) for _, stage in steps]
        if order != sorted(order):
            told = ", ".join(f"{stage} up to {ratio:g}" for ratio, stage in steps)
            raise InvalidOptionError(f"the stages of this model aren't in order ({told}); use intervals")
        ends = {stage: ratio for ratio, stage in steps}
        second = ends[Stage.RELIABLE]  # without transient machines nothing else is possible
        return Thresholds(second=second, third=ends.get(Stage.BACKED_UP, second))

    def intervals(self, reliable: int, most: int = 4096) -> Intervals:
        """Return the ratios between which each stage is chosen, up to `most` transient machines.

        Their stages are those of `stage` for this number of reliable machines.
        """
        chosen = [self.stage(reliable, transient) for transient in range(most + 1)]
        ends = [count for count, pair in enumerate(pairwise(chosen)) if pair[0] is not pair[1]]
        return Intervals(steps=tuple((count / reliable, chosen[count]) for count in [*ends, most]))

    def work_rate(self, reliable: int, transient: int) -> float:
        """Return iterations a second in the best stage: the curve of scalability that a bidder needs."""
        return 1.0 / self.iteration_s(self.stage(reliable, transient), reliable, transient)

    def scaling_s(self, transient: int, input_mb: float) -> float:
        """Return the seconds lost by growing or shrinking on purpose: data and shards are copied at the same time."""
        actives = transient if self.max_actives is None else min(transient, self.max_actives)
        share = input_mb / max(1, transient)
        return max(self._transfer(share), self._transfer(self.model_mb / max(1, actives)))

    def eviction_s(self, reliable: int, transient: int, *, is_warned: bool, lag: int = 1) -> float:
        """Return the seconds lost by an eviction: the drain of one backup, or `lag` iterations done again and a read.

        Parameters
        ----------
        reliable, transient
            Machines before it.
        is_warned
            Whether there is time to drain.
        lag
            Clocks by which the backups are behind, and the staleness.
        """
        drain = self._transfer(self.model_mb / max(1, reliable))
        if is_warned:
            return drain
        return lag * self.iteration_s(self.stage(reliable, transient), reliable, transient) + drain

    def _transfer(self, megabytes: float) -> float:
        return megabytes / self.bandwidth_mb_per_s
