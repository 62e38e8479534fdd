"""App schedulers of simulated apps: which trials go on, which wait for others, which are killed, and what each still costs.

They see what a tuner sees: how far each trial is, and the losses it has reported. Progress is a share of a trial's whole work.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from optim.models.auction.tuning import TrialClass, classify_trials, expected_trial_work, rung_sizes
from optim.models.cluster.world import FloatArray

Losses = Callable[[int], FloatArray]
"""Losses that a job has reported so far, at equal steps of its work, the first before any."""

LEAST_LOSSES = 4
"""Losses of a trial, the first before any work, from which its curve is fitted."""

LEAST_SHARE = 1e-3
"""Share of its work that a live trial is expected to do at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a tuner says of an app's live trials.

    Parameters
    ----------
    killed, paused
        Trials that are given up, and those that wait until others have come as far.
    expected
        By live trial the share of its whole work that it is expected to do from now on.
    """

    killed: frozenset[int]
    paused: frozenset[int]
    expected: Mapping[int, float]


class AppTuner(ABC):
    """The scheduler of one app's trials."""

    @abstractmethod
    def review(self, progress: Mapping[int, float], losses: Losses) -> Verdict:
        """Look at the live trials, by their progress, and decide."""


class Halving(AppTuner):
    """Successive halving: all trials of a rung train up to its share of the work, the best of them go on.

    Parameters
    ----------
    trials
        All of the app's trials.
    eta
        One in so many goes on.
    points
        Losses that a whole trial reports.

    References
    ----------
    Li et al., "Hyperband", JMLR 18 (2018), algorithm 1 (one bracket, trials resume).
    """

    def __init__(self, trials: Sequence[int], eta: int, points: int) -> None:
        self._number, self._eta, self._points = len(trials), eta, points
        self._sizes = rung_sizes(len(trials), eta)
        self._rung = 0

    def _limit(self, rung: int) -> float:
        """Return the share of the work up to which a rung trains."""
        return float(self._eta) ** (rung + 1 - len(self._sizes))

    def review(self, progress: Mapping[int, float], losses: Losses) -> Verdict:
        """Close rungs that all live trials have come through."""
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
        return Verdict(
            killed=frozenset(killed),
            paused=frozenset(job for job, share in live.items() if not is_last and share >= limit),
            expected={job: max(LEAST_SHARE, whole - (min(share, limit) - before)) for job, share in live.items()},
        )


class Hyperband(AppTuner):
    """Hyperband: brackets of successive halving with more and more trials that start on less and less work.

    Completed here: the app's trials are dealt to the brackets in the proportions of the algorithm.
    """

    def __init__(self, trials: Sequence[int], eta: int, points: int) -> None:
        last = len(rung_sizes(len(trials), eta)) - 1
        weights = [-(-(last + 1) * eta**s // (s + 1)) for s in range(last, -1, -1)]
        cuts = np.rint(np.cumsum(weights) / sum(weights) * len(trials)).astype(int).tolist()
        parts = [tuple(trials[a:b]) for a, b in zip([0, *cuts], cuts, strict=False) if b > a]
        self._brackets = [(frozenset(part), Halving(part, eta, points)) for part in parts]

    def review(self, progress: Mapping[int, float], losses: Losses) -> Verdict:
        """Review each bracket by itself."""
        killed: frozenset[int] = frozenset()
        paused: frozenset[int] = frozenset()
        expected: dict[int, float] = {}
        for trials, bracket in self._brackets:
            found = bracket.review({job: share for job, share in progress.items() if job in trials}, losses)
            killed, paused = killed | found.killed, paused | found.paused
            expected |= found.expected
        return Verdict(killed=killed, paused=paused, expected=expected)


@dataclass
class Curves(AppTuner):
    """Early stopping by the curves of the losses: poor trials are killed, promising ones expected to do half of their work.

    Parameters
    ----------
    points
        Losses that a whole trial reports.
    """

    points: int

    def review(self, progress: Mapping[int, float], losses: Losses) -> Verdict:
        """Classify the trials that have reported enough."""
        curves = {job: losses(job)[1:] for job in progress}
        judged = [job for job, curve in curves.items() if len(curve) >= LEAST_LOSSES - 1]
        classes = dict.fromkeys(progress, TrialClass.GOOD)
        found = classify_trials([curves[job].tolist() for job in judged], self.points - 1)
        classes |= dict(zip(judged, found, strict=True))
        live = {job: share for job, share in progress.items() if classes[job] is not TrialClass.POOR}
        return Verdict(
            killed=frozenset(set(progress) - set(live)),
            paused=frozenset(),
            expected={job: max(LEAST_SHARE, (1.0 - share) * classes[job].share) for job, share in live.items()},
        )


TUNERS: Mapping[str, Callable[[Sequence[int], int, int], AppTuner]] = {
    "halving": Halving,
    "hyperband": Hyperband,
    "curves": lambda trials, eta, points: Curves(points),
}
"""By name, from an app's trials, eta and the number of losses."""
