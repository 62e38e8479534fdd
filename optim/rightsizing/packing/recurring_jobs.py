"""What a recurring job will ask for, from its earlier runs, and admission instances of such jobs.

Of a job that ran before, the sequence of phases is known, with their lengths and levels. How far samples stray from the
level of their run is learned by phase on other containers. A run of phase z at level v is given

    v q_z,   q_z the (1 - risk)-quantile of demand over the run's level in phase z,

so that a share `risk` of a phase's samples lies above what is given.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from optim.core.arrays import FloatArray, IntArray
from optim.core.errors import InvalidProblemError, check_in
from optim.models.admission.data import MICRO, ConstantUtility, Jobs, ServerClasses
from optim.models.admission.instance import AdmissionInstance
from optim.models.containers.series import ContainerSeries
from optim.phases.clustering import group_moments
from optim.phases.description import at_level
from optim.phases.sequences import run_numbers
from optim.rightsizing.phase_policies import TINY


def admission_instance(
    name: str,
    demands: Sequence[FloatArray],
    arrival: IntArray,
    capacity: FloatArray,
    num_servers: int,
    horizon: int,
    slot_s: float,
    resources: tuple[str, ...],
) -> AdmissionInstance:
    """Return an instance in which each job is one container that needs one slot of one server for each slot of work.

    A completed job earns its slots of work, so that the objective is the work that is packed. Parameter servers take
    nothing and have a host of their own.

    Parameters
    ----------
    name
        Of the instance.
    demands
        Of each job the demand in each slot of its work, shape (slots, R).
    arrival
        Shape (jobs,): slot of arrival.
    capacity
        Shape (R,): of each server.
    num_servers
        Number of equal servers.
    horizon, slot_s
        Number of slots, and their seconds.
    resources
        R names.

    Raises
    ------
    InvalidProblemError
        If there is no job.
    """
    if not demands:
        raise InvalidProblemError("an instance needs at least one job")
    segments = [_segments(demand) for demand in demands]
    number = len(demands)
    ones = np.ones(number, dtype=np.int64)
    worker = np.concatenate([demand for _, demand in segments])
    return AdmissionInstance(
        name=name,
        horizon=horizon,
        slot_micro_s=round(slot_s * MICRO),
        resources=resources,
        jobs=Jobs(
            ids=tuple(f"job-{k}" for k in range(number)),
            arrival=arrival,
            epochs=np.array([len(demand) for demand in demands], dtype=np.int64),
            chunks=ones,
            minibatches=ones,
            minibatch_micro_s=ones * round(slot_s * MICRO),
            gradient_micro_mb=0 * ones,
            worker_micro_mbps=ones * MICRO,
            ps_micro_mbps=ones * MICRO,
            segment_offset=np.concatenate([[0], np.cumsum([len(start) for start, _ in segments])]).astype(np.int64),
            segment_start=np.concatenate([start for start, _ in segments]),
            worker_demand=worker,
            ps_demand=np.zeros_like(worker),
            utilities=tuple(ConstantUtility(value=float(len(demand))) for demand in demands),
            min_utility=np.full(number, np.nan),
        ),
        worker_servers=_servers("server", capacity, num_servers, horizon),
        ps_servers=_servers("host", np.ones(len(resources)), 1, horizon),
    )


def _segments(demand: FloatArray) -> tuple[IntArray, IntArray]:
    """Return where demands change, and the demands in millionths, rounded up."""
    micro = np.ceil(demand * MICRO - 1e-6).astype(np.int64)
    start = np.flatnonzero(np.concatenate([[True], (np.diff(micro, axis=0) != 0).any(axis=1)]))
    return start, micro[start]


def _servers(name: str, capacity: FloatArray, number: int, horizon: int) -> ServerClasses:
    micro = np.round(capacity * MICRO).astype(np.int64)
    return ServerClasses(
        types=(name,),
        capacity=np.broadcast_to(micro, (1, horizon, len(capacity))).copy(),
        count=np.array([number], dtype=np.int64),
    )


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
        of_phase = ratio[labels == phase]
        quantiles[phase] = np.quantile(of_phase if len(of_phase) else ratio, LEVELS, axis=0).T
    return PhaseSpread(quantiles=quantiles)


def min_phase_samples(labels: IntArray, num_phases: int) -> int:
    """Return of how many samples the rarest phase's spread is learned, see `phase_spread`."""
    counts = np.bincount(np.where(labels >= 0, labels, num_phases), minlength=num_phases + 1)
    return int(counts[counts > 0].min())


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


def perturbed(profile: Profile, error: float, rng: np.random.Generator) -> Profile:
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


FLAT_LEVEL = 0.95
"""Level of the quantiles of `flat` and `slot`."""


class RequestSizing(StrEnum):
    """How requests follow from earlier runs."""

    PEAK = "peak"
    """The most of any run, for the whole life."""
    FLAT = "flat"
    """The 95 % quantile of all samples, for the whole life."""
    SLOT = "slot"
    """The 95 % quantile of the samples in the slot and its two neighbours."""


def earlier_runs(values: FloatArray, number: int, error: float, rng: np.random.Generator) -> list[FloatArray]:
    """Return runs like a job's own that differ in lengths and levels by factors exp(error N(0, 1)).

    Parameters
    ----------
    values
        Shape (samples, R): the run to come, which nobody knows.
    number, error
        Of runs, and how far each is off.
    rng
        Source of randomness.
    """
    runs = []
    for _ in range(number):
        length = max(1, round(len(values) * float(np.exp(error * rng.normal()))))
        place = np.minimum((np.arange(length) * len(values) / length).astype(np.int64), len(values) - 1)
        runs.append(values[place] * np.exp(error * rng.normal(size=(1, values.shape[1]))))
    return runs


def requests(
    runs: Sequence[FloatArray], sizing: RequestSizing, slot_samples: int, level: float = FLAT_LEVEL
) -> FloatArray:
    """Return a job's request in each slot of its work, shape (slots, R), as many slots as its longest run has.

    `level` is that of the quantiles of `flat` and `slot`.
    """
    slots = max(-(-len(run) // slot_samples) for run in runs)
    if sizing is not RequestSizing.SLOT:
        level = 1.0 if sizing is RequestSizing.PEAK else level
        return np.tile(np.quantile(np.concatenate(runs), level, axis=0), (slots, 1))
    windows = []
    for slot in range(slots):
        begin, end = max(0, slot - 1) * slot_samples, (slot + 2) * slot_samples
        windows.append(np.concatenate([run[begin:end] for run in runs if len(run) > begin]))
    return np.array([np.quantile(values, level, axis=0) for values in windows])
