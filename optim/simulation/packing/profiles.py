"""What a recurring job will ask for: the phases of its last run, each right-sized at a stated risk.

Of a job that ran before, the sequence of phases is known, with their lengths and levels. How far samples stray from the
level of their run is learned by phase on other containers. A run of phase z at level v is given

    v q_z,   q_z the (1 - risk)-quantile of demand over the run's level in phase z,

so that a share `risk` of a phase's samples lies above what is given.
"""

from dataclasses import dataclass

import numpy as np

from optim.core.ranges import check_in
from optim.models.containers.series import ContainerSeries, FloatArray, IntArray
from optim.phases.groups import group_moments
from optim.phases.runs import run_numbers
from optim.phases.statistics import at_level
from optim.simulation.containers.phase_policies import TINY

LEVELS = np.linspace(0.0, 1.0, 1001)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PhaseSpread:
    """How samples stray from their run's level.

    Attributes
    ----------
    quantiles
        Shape (K, R, 1001): quantiles of demand over the level, of each phase; row K - 1 of samples without a phase.
    """

    quantiles: FloatArray

    def factor(self, risk: float) -> FloatArray:
        """Return what a level is multiplied with at a risk, shape (K, R)."""
        check_in("[0, 1)", {"risk": risk})
        return at_level(self.quantiles, 1.0 - risk)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Profile:
    """A job's runs of phases, as last seen.

    Attributes
    ----------
    phase
        Shape (N,).
    dwell
        Shape (N,): samples of each run, not necessarily whole.
    level
        Shape (N, R): mean demand of each run.
    """

    phase: IntArray
    dwell: FloatArray
    level: FloatArray


def phase_spread(series: ContainerSeries, labels: IntArray, num_phases: int) -> PhaseSpread:
    """Learn how samples stray, by phase.

    A phase without samples gets the quantiles of all samples, as do those without a phase.
    """
    run = run_numbers(labels, series.segment)
    level, _ = group_moments(series.values, run, int(run[-1]) + 1)
    ratio = series.values / np.maximum(level[run], TINY)
    quantiles = np.empty((num_phases + 1, series.values.shape[1], len(LEVELS)))
    for phase in range(num_phases + 1):
        own = ratio[labels == phase]
        quantiles[phase] = np.quantile(own if len(own) else ratio, LEVELS, axis=0).T
    return PhaseSpread(quantiles=quantiles)


def fewest_samples(labels: IntArray, num_phases: int) -> int:
    """Return of how many samples the rarest phase's spread is learned, see `phase_spread`."""
    own = np.bincount(np.where(labels >= 0, labels, num_phases), minlength=num_phases + 1)
    return int(own[own > 0].min())


def profile_of(values: FloatArray, labels: IntArray, num_phases: int) -> Profile:
    """Return the profile of a job that ran once.

    Parameters
    ----------
    values
        Shape (samples, R).
    labels
        Shape (samples,); samples without a phase are a phase of their own, number K.
    num_phases
        K.
    """
    known = np.where(labels >= 0, labels, num_phases)
    run = run_numbers(known, np.zeros(len(known), dtype=np.int64))
    number = int(run[-1]) + 1
    first = np.searchsorted(run, np.arange(number))
    level, _ = group_moments(values, run, number)
    dwell = np.bincount(run, minlength=number).astype(np.float64)
    return Profile(phase=known[first], dwell=dwell, level=level)


def disturbed(profile: Profile, error: float, rng: np.random.Generator) -> Profile:
    """Return a profile whose dwells and levels are off by factors exp(error N(0, 1)): no run is just as the last one."""
    dwell = profile.dwell * np.exp(error * rng.normal(size=profile.dwell.shape))
    level = profile.level * np.exp(error * rng.normal(size=(1, profile.level.shape[1])))
    return Profile(phase=profile.phase, dwell=dwell, level=level)


def demand_by_slot(profile: Profile, factor: FloatArray, num_slots: int, slot_samples: int) -> FloatArray:
    """Return what a job is given in each slot of its work: the most of all runs that touch the slot.

    Parameters
    ----------
    profile
        The job; its last run goes on to the end of the last slot.
    factor
        Shape (K + 1, R), see `PhaseSpread.factor`.
    num_slots, slot_samples
        Slots of work, and samples of each.

    Returns
    -------
    numpy.ndarray
        Shape (num_slots, R).
    """
    end = np.cumsum(profile.dwell)
    begin = end - profile.dwell
    end[-1] = np.inf
    demand = profile.level * factor[profile.phase]
    slot = np.arange(num_slots)[:, None] * slot_samples
    touches = (begin < slot + slot_samples) & (end > slot)
    touches[~touches.any(axis=1), -1] = True
    return np.asarray(np.where(touches[:, :, None], demand, 0.0).max(axis=1))
