"""Packing of recurring jobs with requests by phase on equal servers, by an admission solver, and replay of their true series.

A run is a maximal sequence of samples in one phase; its level is the mean of these samples. A job's previous execution
gives its sequence of runs. Other containers give quantiles of the ratio of a sample to the level of its run; q_z is the
(1 - risk)-quantile in phase z. The request for a run in phase z at level v is v q_z, so that a share `risk` of the
run's samples exceeds the request.
"""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum

import numpy as np

from optim.core.arrays import FloatArray, IntArray
from optim.core.errors import InvalidProblemError, check_in
from optim.core.progress import Progress
from optim.core.stopping import Interruption, StoppingCriterion
from optim.execution import AbstractTask, Engine, run_in_order
from optim.models.admission.data import MICRO, ConstantUtility, Jobs, ServerClasses
from optim.models.admission.decision import JOB, SERVER, SLOT, AdmissionPlan
from optim.models.admission.instance import AdmissionInstance
from optim.models.containers.series import ContainerSeries
from optim.phases.clustering import group_moments
from optim.phases.description import at_level
from optim.phases.sequences import run_numbers
from optim.rightsizing.engine import UNDER_SHARE
from optim.rightsizing.phase_policies import TINY
from optim.rightsizing.world import PhaseLabels
from optim.solvers.solve import solve

FIT_TOL = 1e-9
"""Relative tolerance of capacities, for rounding errors of sums."""


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
    """Return an instance in which each job is one container that needs one server for each slot of its work.

    The value of a job is its number of slots of work, so the objective is the packed work. Parameter servers use
    no resources and have a separate host.

    Parameters
    ----------
    name
        Name of the instance.
    demands
        Demand of each job in each slot of its work, shape (slots, R).
    arrival
        Shape (jobs,): slot of arrival.
    capacity
        Shape (R,): capacity of each server.
    num_servers
        Number of equal servers.
    horizon, slot_s
        Number of slots, and seconds per slot.
    resources
        Names of the R resources.

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
    """Return the slots at which the demand changes, and the demand from each of them on, in millionths, rounded up."""
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
    """Distribution of samples relative to the mean level of their run.

    Attributes
    ----------
    quantiles
        Shape (K + 1, R, 1001): quantiles of the ratio of demand to level, for K phases and R resources. The last row is
        for samples without a phase.
    """

    quantiles: FloatArray

    def factor(self, risk: float) -> FloatArray:
        """Return the factors from levels to requests at a risk, shape (K + 1, R)."""
        check_in("[0, 1)", {"risk": risk})
        return at_level(self.quantiles, 1.0 - risk)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Profile:
    """The N runs of phases in a job's previous execution.

    Attributes
    ----------
    phase
        Shape (N,): phase of each run.
    dwell
        Shape (N,): length of each run in samples, not necessarily an integer.
    level
        Shape (N, R): mean demand of each run for R resources.
    """

    phase: IntArray
    dwell: FloatArray
    level: FloatArray


def phase_spread(series: ContainerSeries, labels: IntArray, num_phases: int) -> PhaseSpread:
    """Return the distribution of samples relative to the level of their run, by phase.

    Where a phase, or the samples without a phase, have no data, the quantiles are those of all samples.
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
    """Return the number of samples of the rarest phase; from so few, `phase_spread` learns this phase's distribution."""
    counts = np.bincount(np.where(labels >= 0, labels, num_phases), minlength=num_phases + 1)
    return int(counts[counts > 0].min())


def profile_of(values: FloatArray, labels: IntArray, num_phases: int) -> Profile:
    """Return the profile of a job from one execution.

    Parameters
    ----------
    values
        Shape (samples, R): demand.
    labels
        Shape (samples,): phase of each sample; samples without a phase (-1) count as an additional phase K.
    num_phases
        Number of phases K.
    """
    known = np.where(labels >= 0, labels, num_phases)
    run = run_numbers(known, np.zeros(len(known), dtype=np.int64))
    number = int(run[-1]) + 1
    first = np.searchsorted(run, np.arange(number))
    level, _ = group_moments(values, run, number)
    dwell = np.bincount(run, minlength=number).astype(np.float64)
    return Profile(phase=known[first], dwell=dwell, level=level)


def perturbed(profile: Profile, error: float, rng: np.random.Generator) -> Profile:
    """Return a profile whose lengths and levels differ by random factors exp(error N(0, 1)), as between two executions."""
    dwell = profile.dwell * np.exp(error * rng.normal(size=profile.dwell.shape))
    level = profile.level * np.exp(error * rng.normal(size=(1, profile.level.shape[1])))
    return Profile(phase=profile.phase, dwell=dwell, level=level)


def demand_by_slot(profile: Profile, factor: FloatArray, num_slots: int, slot_samples: int) -> FloatArray:
    """Return a job's request in each slot of its work: the largest request of the runs that overlap the slot.

    Parameters
    ----------
    profile
        Profile of the job; its last run extends to the end of the last slot.
    factor
        Shape (K + 1, R): factors from levels to requests by phase, see `PhaseSpread.factor`.
    num_slots, slot_samples
        Number of slots of work, and samples per slot.

    Returns
    -------
    numpy.ndarray
        Request in each slot, shape (num_slots, R).
    """
    end = np.cumsum(profile.dwell)
    begin = end - profile.dwell
    end[-1] = np.inf
    demand = profile.level * factor[profile.phase]
    slot = np.arange(num_slots)[:, None] * slot_samples
    touches = (begin < slot + slot_samples) & (end > slot)
    touches[~touches.any(axis=1), -1] = True
    return np.asarray(np.where(touches[:, :, None], demand, 0.0).max(axis=1))


def flat_request(values: FloatArray, level: float, slot_samples: int) -> FloatArray:
    """Return the quantile `level` of a job's samples, repeated for all its slots, shape (slots, R)."""
    return np.tile(np.quantile(values, level, axis=0), (-(-len(values) // slot_samples), 1))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Replay:
    """Results of a replay, each of shape (R,).

    Attributes
    ----------
    overload
        Share of the busy servers' samples in which demand exceeds the capacity.
    excess
        Demand above the capacity, as a share of total demand.
    under_time
        Share of all containers' samples in which the request is less than 95 % of demand.
    used
        Demand as a share of the capacity of all servers, over the slots in which at least one server is busy.
    """

    overload: FloatArray
    excess: FloatArray
    under_time: FloatArray
    used: FloatArray


def replay(
    plan: AdmissionPlan,
    series: Sequence[FloatArray],
    demands: Sequence[FloatArray],
    capacity: FloatArray,
    num_servers: int,
    slot_samples: int,
) -> Replay:
    """Replay the true series of each admitted job in the slots in which it runs.

    Parameters
    ----------
    plan
        Plan of an instance made by `admission_instance`.
    series
        True demand of each job, shape (samples, R).
    demands
        Requests of each job, as for `admission_instance`.
    capacity, num_servers, slot_samples
        Capacity and number of servers, as for `admission_instance`, and samples per slot.
    """
    width = len(capacity)
    load: dict[tuple[int, int], FloatArray] = {}
    under, samples = np.zeros(width), 0
    done = dict.fromkeys(range(len(series)), 0)
    for row in plan.workers[np.lexsort((plan.workers[:, SLOT], plan.workers[:, JOB]))].tolist():
        job = row[JOB]
        begin = done[job] * slot_samples
        part = series[job][begin : begin + slot_samples]
        allocated = demands[job][done[job]]
        under += (allocated < UNDER_SHARE * part).sum(axis=0)
        samples += len(part)
        done[job] += 1
        place = load.setdefault((row[SLOT], row[SERVER]), np.zeros((slot_samples, width)))
        place[: len(part)] += part
    total = np.stack(list(load.values())) if load else np.zeros((0, slot_samples, width))
    over = np.maximum(total - capacity, 0.0)
    # An excess within the rounding errors of sums is no overload.
    is_over = over > FIT_TOL * capacity
    slots = len({slot for slot, _ in load})
    asked = total.sum(axis=(0, 1))
    return Replay(
        overload=_share(is_over.sum(axis=(0, 1)), total.shape[0] * slot_samples),
        excess=np.asarray(over.sum(axis=(0, 1)) / np.where(asked > 0, asked, 1.0)),
        under_time=_share(under, samples),
        used=asked / np.maximum(capacity * num_servers * slots * slot_samples, 1e-300),
    )


def _share(part: FloatArray, total: int) -> FloatArray:
    return np.asarray(part / max(total, 1))


TYPICAL_LEVEL = 0.5
"""Quantile of the jobs' peaks to which server capacities are proportional: the median."""


class Sizing(StrEnum):
    """Rule for sizing requests."""

    PEAK = "peak"
    """In all slots the job's largest sample, which demand never exceeds."""
    FLAT = "flat"
    """In all slots the (1 - risk)-quantile of the job's samples."""
    PHASE = "phase"
    """Request by phase, see `demand_by_slot`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackingOptions:
    """Options of jobs, servers and sizing.

    Attributes
    ----------
    risk
        Share of samples that may exceed the request; with sizing ``phase``, the share in each phase.
    profile_error
        Standard deviation of the logarithms of errors in the profile's levels and lengths.
    num_servers
        Number of equal servers.
    jobs_per_server
        Capacity of a server, as a multiple of the jobs' median peak of each resource.
    slot_s
        Seconds per slot.
    horizon_hours
        Length of the simulation; jobs arrive in its first half.
    solver
        Solver of the admission problem.
    time_limit_s
        Time limit of each solve, in seconds; None for no limit.
    """

    risk: float = 0.05
    profile_error: float = 0.05
    num_servers: int = 2
    jobs_per_server: float = 5.0
    slot_s: float = 300.0
    horizon_hours: float = 3.0
    solver: str = "online"
    time_limit_s: float | None = None

    def __post_init__(self) -> None:
        """Check ranges."""
        check_in("[0, 1)", self, "risk")
        check_in("[0, 1]", self, "profile_error")
        check_in("[1, inf)", self, "num_servers")
        check_in("(0, inf)", self, "jobs_per_server", "slot_s", "horizon_hours")


@dataclass(frozen=True, slots=True, kw_only=True)
class PackingRow:
    """Results of one rule for sizing requests.

    Attributes
    ----------
    sizing
        Rule for sizing requests.
    jobs, admitted
        Numbers of submitted and of admitted jobs.
    work, gain
        Packed work in slots, and its gain relative to sizing by peaks.
    bound
        Proven bound on the work with these requests; None if the solver proves none.
    overload, excess, under_time, used
        Results of the replay by resource, see `Replay`.
    """

    sizing: str
    jobs: int
    admitted: int
    work: float
    gain: float
    bound: float | None
    overload: dict[str, float]
    excess: dict[str, float]
    under_time: dict[str, float]
    used: dict[str, float]


def pack(
    training: ContainerSeries,
    jobs: ContainerSeries,
    phases: PhaseLabels,
    options: PackingOptions,
    seed: int,
    *,
    engine: Engine | None = None,
    stop: Interruption | None = None,
    progress: Progress | None = None,
) -> Iterator[PackingRow]:
    """Yield one row per rule for sizing requests; sizing by peaks is first.

    Parameters
    ----------
    training
        Containers from which the distributions of `PhaseSpread` are learned.
    jobs
        Jobs to be packed, each a container on the grid; the replay uses their series.
    phases
        Phases of the training containers and the jobs.
    options
        Options of jobs, servers and sizing.
    seed
        Seed of the arrivals and of the errors in the profiles.
    engine
        Execution engine, this process by default; the result is the same for every engine.
    stop, progress
        `stop` ends the comparison after the sizings in progress; `progress` receives the number of completed sizings.

    Raises
    ------
    InvalidProblemError
        If a slot is shorter than an interval, or the solver finds no plan.
    """
    task = _Packing(training, jobs, phases, options, seed)
    packed = 0.0
    for row in run_in_order(task, tuple(Sizing), engine, stop, progress):
        packed = row.work if row.sizing == Sizing.PEAK else packed
        yield replace(row, gain=row.work / packed - 1.0 if packed > 0 else 0.0)


class _Packing(AbstractTask[Sizing, PackingRow]):
    """Pack and replay the same jobs with each sizing."""

    def __init__(
        self, training: ContainerSeries, jobs: ContainerSeries, phases: PhaseLabels, options: PackingOptions, seed: int
    ) -> None:
        interval_s = jobs.interval_s
        if interval_s is None or round(options.slot_s / interval_s) < 1:
            raise InvalidProblemError(
                f"jobs must lie on a grid with an interval of at most slot_s {options.slot_s:g}, got {interval_s}"
            )
        self._training, self._jobs, self._phases, self._options, self._seed = training, jobs, phases, options, seed
        self._slot_samples = round(options.slot_s / interval_s)
        self._series = [jobs.values[rows] for rows in jobs.segments()]
        self._rng = np.random.default_rng(seed)
        self._horizon = max(2, round(options.horizon_hours * 3600 / options.slot_s))
        self._arrival = np.sort(self._rng.integers(0, self._horizon // 2, size=len(self._series)))
        peaks = [values.max(axis=0) for values in self._series]
        self._capacity = options.jobs_per_server * np.quantile(peaks, TYPICAL_LEVEL, axis=0)

    @property
    def title(self) -> str:
        """Title of the progress display."""
        return "sizings"

    def do(self, piece: Sizing, stop: StoppingCriterion, progress: Progress) -> PackingRow:
        """Pack and replay the jobs with a sizing; `pack` sets the gain."""
        del stop, progress
        options, jobs = self._options, self._jobs
        demands = self._demands(piece)
        instance = admission_instance(
            *(piece, demands, self._arrival, self._capacity, options.num_servers, self._horizon),
            *(options.slot_s, jobs.names),
        )
        solution = solve(instance, options.solver, time_limit_s=options.time_limit_s, seed=self._seed)
        if solution.decision is None:
            raise InvalidProblemError(
                f"solver {options.solver!r} found no plan for sizing {piece} ({solution.termination}); "
                "choose another solver, or increase the time limit"
            )
        happened = replay(
            *(solution.decision, self._series, demands, self._capacity, options.num_servers, self._slot_samples)
        )
        return PackingRow(
            sizing=str(piece),
            jobs=len(self._series),
            admitted=len(solution.decision.admitted),
            work=float(solution.objective or 0.0),
            gain=0.0,
            bound=solution.bound,
            **{name: dict(zip(jobs.names, values.tolist(), strict=True)) for name, values in asdict(happened).items()},
        )

    def _demands(self, sizing: Sizing) -> list[FloatArray]:
        """Return each job's requests by slot of work."""
        series, options, phases = self._series, self._options, self._phases
        if sizing != Sizing.PHASE:
            level = 1.0 - options.risk
            return [
                flat_request(values, 1.0 if sizing is Sizing.PEAK else level, self._slot_samples) for values in series
            ]
        known: IntArray = np.where(phases.training >= 0, phases.training, phases.num_phases)
        factor = phase_spread(self._training, known, phases.num_phases).factor(options.risk)
        rng, demands = copy.deepcopy(self._rng), []
        for rows, values in zip(self._jobs.segments(), series, strict=True):
            profile = perturbed(profile_of(values, phases.labels[rows], phases.num_phases), options.profile_error, rng)
            demands.append(demand_by_slot(profile, factor, -(-len(values) // self._slot_samples), self._slot_samples))
        return demands
