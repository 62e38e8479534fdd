"""Placement of an app's jobs on its granted GPUs, and the tuners that schedule its trials.

Tuners see the progress of each trial and its reported losses. Progress is the fraction of a trial's total work.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment

from optim.core.arrays import FloatArray, IntArray
from optim.models.auction.tuning import TrialClass, classify_trials, expected_trial_work, rung_sizes
from optim.simulation.cluster.planning.free_gpus import Gpus

Losses = Callable[[int], FloatArray]
"""Function that returns a job's losses so far: the first before any work, the others after equal steps of its work."""

MIN_LOSSES = 4
"""Minimum number of losses with which a trial's curve is fitted, the loss before any work included."""

MIN_SHARE = 1e-3
"""Minimum fraction of its work that a live trial is expected to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TunerDecision:
    """A tuner's decision on an app's live trials.

    Parameters
    ----------
    killed, paused
        Trials to kill, and trials that must wait until other trials have made the same progress.
    expected
        For each live trial, the fraction of its total work that it is expected to do from now on.
    """

    killed: frozenset[int]
    paused: frozenset[int]
    expected: Mapping[int, float]


class AppTuner(ABC):
    """The scheduler of one app's trials."""

    @abstractmethod
    def review(self, progress: Mapping[int, float], losses: Losses) -> TunerDecision:
        """Return the decision on the live trials, given their progress."""


class Halving(AppTuner):
    """Successive halving in steps (rungs): all trials train up to the rung's fraction of their work, then the best continue.

    Parameters
    ----------
    trials
        All of the app's trials.
    eta
        One of `eta` trials continues after each rung.
    points
        Number of losses that a complete trial reports.

    References
    ----------
    Li et al., "Hyperband", JMLR 18 (2018), algorithm 1 (one bracket, trials resume).
    """

    def __init__(self, trials: Sequence[int], eta: int, points: int) -> None:
        self._number, self._eta, self._points = len(trials), eta, points
        self._sizes = rung_sizes(len(trials), eta)
        self._rung = 0

    def _limit(self, rung: int) -> float:
        """Return the fraction of the work up to which a rung trains."""
        return float(self._eta) ** (rung + 1 - len(self._sizes))

    def review(self, progress: Mapping[int, float], losses: Losses) -> TunerDecision:
        """Kill the worst trials of each rung that all live trials have completed, and go on to the next rung."""
        live, killed = dict(progress), set()
        while live and self._rung < len(self._sizes) - 1 and min(live.values()) >= self._limit(self._rung):
            at = int(self._limit(self._rung) * (self._points - 1))
            ranked = sorted(live, key=lambda job: (float(losses(job)[at]), job))
            self._rung += 1
            for job in ranked[self._sizes[self._rung] :]:
                killed.add(job)
                del live[job]
        is_last = self._rung == len(self._sizes) - 1
        limit = self._limit(self._rung)
        whole = expected_trial_work(self._number, self._eta, self._limit(0), self._rung)
        before = self._limit(self._rung - 1) if self._rung else 0.0
        return TunerDecision(
            killed=frozenset(killed),
            paused=frozenset(job for job, share in live.items() if not is_last and share >= limit),
            expected={job: max(MIN_SHARE, whole - (min(share, limit) - before)) for job, share in live.items()},
        )


class Hyperband(AppTuner):
    """Hyperband: brackets of successive halving, from many trials that begin with little work to few that begin with much.

    Assumption: the app's trials are assigned to the brackets in the proportions of the algorithm.
    """

    def __init__(self, trials: Sequence[int], eta: int, points: int) -> None:
        last = len(rung_sizes(len(trials), eta)) - 1
        weights = [-(-(last + 1) * eta**s // (s + 1)) for s in range(last, -1, -1)]
        cuts = np.rint(np.cumsum(weights) / sum(weights) * len(trials)).astype(int).tolist()
        parts = [tuple(trials[a:b]) for a, b in zip([0, *cuts], cuts, strict=False) if b > a]
        self._brackets = [(frozenset(part), Halving(part, eta, points)) for part in parts]

    def review(self, progress: Mapping[int, float], losses: Losses) -> TunerDecision:
        """Review each bracket separately."""
        killed: frozenset[int] = frozenset()
        paused: frozenset[int] = frozenset()
        expected: dict[int, float] = {}
        for trials, bracket in self._brackets:
            found = bracket.review({job: share for job, share in progress.items() if job in trials}, losses)
            killed, paused = killed | found.killed, paused | found.paused
            expected |= found.expected
        return TunerDecision(killed=killed, paused=paused, expected=expected)


@dataclass
class Curves(AppTuner):
    """Early stopping by loss curves: kill poor trials; promising trials are expected to do half of their remaining work.

    Parameters
    ----------
    points
        Number of losses that a complete trial reports.
    """

    points: int

    def review(self, progress: Mapping[int, float], losses: Losses) -> TunerDecision:
        """Classify the trials that have reported at least `MIN_LOSSES` losses, and kill the poor ones."""
        curves = {job: losses(job)[1:] for job in progress}
        judged = [job for job, curve in curves.items() if len(curve) >= MIN_LOSSES - 1]
        classes = dict.fromkeys(progress, TrialClass.GOOD)
        found = classify_trials([curves[job].tolist() for job in judged], self.points - 1)
        classes |= dict(zip(judged, found, strict=True))
        live = {job: share for job, share in progress.items() if classes[job] is not TrialClass.POOR}
        return TunerDecision(
            killed=frozenset(set(progress) - set(live)),
            paused=frozenset(),
            expected={job: max(MIN_SHARE, (1.0 - share) * classes[job].share) for job, share in live.items()},
        )


TUNERS: Mapping[str, Callable[[Sequence[int], int, int], AppTuner]] = {
    "halving": Halving,
    "hyperband": Hyperband,
    "curves": lambda trials, eta, points: Curves(points),
}
"""Tuner factories by name; their arguments are an app's trials, eta and the number of losses of a complete trial."""

Entries = tuple[tuple[int, int], ...]
"""Grant of GPUs as (machine, number of GPUs) entries."""


def minimise_migrations(
    rack_of: IntArray,
    there: IntArray,
    grants: Mapping[int, Entries],
    before: Mapping[int, Sequence[int]],
    machine_of: Sequence[int],
) -> dict[int, Entries]:
    """Exchange equal machines between grants so that apps retain as many of their previous GPUs as possible.

    All GPUs must be on offer, so that machines of equal size in a rack, and racks with equal machines, are
    interchangeable.

    Parameters
    ----------
    rack_of, there
        Rack of each machine, and number of GPUs of each machine, 0 while it is down.
    grants
        Grant of each app.
    before
        Previous GPUs of each app.
    machine_of
        Machine of each GPU.
    """
    apps = sorted(set(grants) & set(before))
    if not apps:
        return dict(grants)
    granted, held = (np.zeros((len(apps), len(there)), np.int64) for _ in range(2))
    for row, app in enumerate(apps):
        for machine, count in grants[app]:
            granted[row, machine] += count
        np.add.at(held[row], [machine_of[gpu] for gpu in before[app]], 1)
    kept = np.minimum(granted[:, :, None], held[:, None, :]).sum(
        axis=0
    )  # GPUs retained if machine n replaces machine m in all grants
    members = [np.flatnonzero(rack_of == rack) for rack in np.unique(rack_of)]
    makeup = [tuple(np.sort(there[inside]).tolist()) for inside in members]
    worth = np.full((len(members), len(members)), -1.0)
    moves: dict[tuple[int, int], IntArray] = {}
    for a, old in enumerate(members):
        for b, new in enumerate(members):
            if makeup[a] == makeup[b]:
                same = there[old][:, None] == there[new][None, :]
                block = np.where(same, kept[np.ix_(old, new)], -(10**9))
                rows, columns = linear_sum_assignment(-block)
                worth[a, b], moves[a, b] = block[rows, columns].sum(), new[columns]
    target = np.arange(len(there))
    rows, columns = linear_sum_assignment(-np.where(worth < 0, -(10**12), worth))
    for a, b in zip(rows.tolist(), columns.tolist(), strict=True):
        target[members[a]] = moves[a, b]
    return {app: tuple((int(target[machine]), count) for machine, count in entries) for app, entries in grants.items()}


def chosen_gpus(entries: Entries, free: Mapping[int, Sequence[int]], wished: Iterable[int]) -> list[int]:
    """Return free GPUs of the machines of a grant, preferably those in `wished`.

    Parameters
    ----------
    entries
        The grant.
    free
        Free GPUs of each machine, ascending.
    wished
        GPUs that the app prefers.
    """
    liked = set(wished)
    found: list[int] = []
    for machine, count in entries:
        found += sorted(free[machine], key=lambda gpu: (gpu not in liked, gpu))[:count]
    return found


def split(
    gpus: Iterable[int],
    running: Mapping[int, Gpus],
    waiting: Sequence[tuple[int, int]],
    machine_of: Sequence[int],
    rack_of: Sequence[int],
) -> dict[int, Gpus]:
    """Return the placement of an app's jobs: running jobs stay if possible, then the other jobs are placed in order.

    A job takes the fullest machine on which it fits, otherwise GPUs of one rack, otherwise any GPUs. In a rack or among all
    GPUs, machines with most free GPUs come first.

    Parameters
    ----------
    gpus
        GPUs of the app.
    running
        Running jobs and their GPUs.
    waiting
        The other jobs as (job, gang) pairs, the most urgent first.
    machine_of, rack_of
        Machine of each GPU, and rack of each machine.
    """
    left = set(gpus)
    found: dict[int, Gpus] = {}
    for job, held in running.items():
        if left.issuperset(held):
            found[job] = held
            left.difference_update(held)
    free: dict[int, list[int]] = {}
    for gpu in sorted(left):
        free.setdefault(machine_of[gpu], []).append(gpu)
    room = len(left)
    for job, gang in waiting:
        if job in found or gang > room:
            continue
        taken = _taken(free, gang, rack_of)
        found[job] = tuple(sorted(gpu for machine, count in taken for gpu in free[machine][:count]))
        for machine, count in taken:
            del free[machine][:count]
        room -= gang
    return found


def _taken(free: Mapping[int, Sequence[int]], gang: int, rack_of: Sequence[int]) -> list[tuple[int, int]]:
    """Return (machine, GPUs) entries for a gang; the caller ensures that enough GPUs are free."""
    fitting = [(len(gpus), machine) for machine, gpus in free.items() if len(gpus) >= gang]
    if fitting:
        return [(min(fitting)[1], gang)]
    racks: dict[int, int] = {}
    for machine, gpus in free.items():
        racks[rack_of[machine]] = racks.get(rack_of[machine], 0) + len(gpus)
    inside = [(count, rack) for rack, count in racks.items() if count >= gang]
    rack = min(inside)[1] if inside else None
    taken: list[tuple[int, int]] = []
    for machine in sorted(free, key=lambda m: (-len(free[m]), m)):
        if gang and free[machine] and (rack is None or rack_of[machine] == rack):
            count = min(gang, len(free[machine]))
            taken.append((machine, count))
            gang -= count
    return taken
