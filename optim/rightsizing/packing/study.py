"""The same jobs and servers with requests sized by peaks and by phases, replayed on the true series."""

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
from optim.models.admission.decision import JOB, SERVER, SLOT, AdmissionPlan
from optim.models.containers.series import ContainerSeries
from optim.rightsizing.engine import UNDER_SHARE
from optim.rightsizing.packing.bin_packing import joint_demand, joint_peak, pair_jobs, share_saved
from optim.rightsizing.packing.recurring_jobs import (
    admission_instance,
    demand_by_slot,
    perturbed,
    phase_spread,
    profile_of,
)
from optim.rightsizing.world import PhaseLabels
from optim.solvers.solve import solve


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Replay:
    """Figures of a replay, shape (R,) all.

    Attributes
    ----------
    overload
        Share of a busy server's samples in which its containers ask for more than it has.
    excess
        What is lacking then, over all that is asked for.
    under_time
        Share of all containers' samples with less than 95 % of demand given.
    used
        Demand over what all servers have in the slots that any of them is busy in.
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
    """Let each admitted job's true series go on in the slots that it runs in.

    Parameters
    ----------
    plan
        Of an instance made by `admission_instance`.
    series
        True demand of each job, shape (samples, R).
    demands
        What each job was given, see `admission_instance`.
    capacity, num_servers, slot_samples
        As there.
    """
    width = len(capacity)
    load: dict[tuple[int, int], FloatArray] = {}
    under, samples = np.zeros(width), 0
    done = dict.fromkeys(range(len(series)), 0)
    for row in plan.workers[np.lexsort((plan.workers[:, SLOT], plan.workers[:, JOB]))].tolist():
        job = row[JOB]
        begin = done[job] * slot_samples
        part = series[job][begin : begin + slot_samples]
        given = demands[job][done[job]]
        under += (given < UNDER_SHARE * part).sum(axis=0)
        samples += len(part)
        done[job] += 1
        place = load.setdefault((row[SLOT], row[SERVER]), np.zeros((slot_samples, width)))
        place[: len(part)] += part
    total = np.stack(list(load.values())) if load else np.zeros((0, slot_samples, width))
    over = np.maximum(total - capacity, 0.0)
    # Sums of many floats that just fill a server are no overload.
    is_over = over > 1e-9 * capacity
    slots = len({slot for slot, _ in load})
    asked = total.sum(axis=(0, 1))
    return Replay(
        overload=_share(is_over.sum(axis=(0, 1)), total.shape[0] * slot_samples),
        excess=np.asarray(over.sum(axis=(0, 1)) / np.where(asked > 0, asked, 1.0)),
        under_time=_share(under, samples),
        used=asked / np.maximum(capacity * num_servers * slots * slot_samples, 1e-300),
    )


def _share(part: FloatArray, whole: int) -> FloatArray:
    return np.asarray(part / max(whole, 1))


TYPICAL_LEVEL = 0.5

"""Servers are sized by the median of peaks."""


class Sizing(StrEnum):
    """How requests are sized."""

    PEAK = "peak"
    """The job's own largest sample, for its whole life: nothing is ever lacking."""
    FLAT = "flat"
    """The job's own (1 - risk)-quantile, for its whole life."""
    PHASE = "phase"
    """By phase, see `optim.rightsizing.packing.recurring_jobs`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackingOptions:
    """Jobs, servers and sizing.

    Attributes
    ----------
    risk
        Share of samples above what is given, in each phase.
    profile_error
        How far levels and lengths of a job's last run are off, as a standard deviation of logarithms.
    num_servers
        Equal servers.
    jobs_per_server
        A server has so many times the median peak of each resource.
    slot_s
        Length of a slot.
    horizon_hours
        Jobs arrive in the first half of it.
    solver
        Solver of the admission problem.
    time_limit_s
        Limit of each solve.
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
    """Figures of a sizing.

    Attributes
    ----------
    sizing
        How requests are sized.
    jobs, admitted
        Jobs that ask, and that are admitted.
    work, gain
        Slots of work packed, and how much more than with peak requests.
    bound
        Proven bound on the work with these requests; None where the solver proves none.
    overload, excess, under_time, used
        Of the replay, by resource; see `Replay`.
    pair_saving
        Capacity that pairs by phase save against the true peaks of both jobs of each pair, by resource; negative if more is
        set aside than both would ever need, 0 where there is no pair, or both need nothing.
    pair_overload
        Share of samples in which a pair's true series exceed what was set aside for it, by resource.
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
    pair_saving: dict[str, float]
    pair_overload: dict[str, float]


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
    """Yield a row a sizing, peaks first.

    Parameters
    ----------
    training
        Containers that spreads are learned from.
    jobs
        Jobs to be packed, each a container on the grid; their series are what is replayed.
    phases
        Phases of both.
    options
        What jobs, servers and sizing are like.
    seed
        Of arrivals and of errors of profiles.
    engine
        Where sizings are packed and replayed, in this process by default; the answer is the same for any.
    stop, progress
        Ends the comparison early, after the sizings that are running; hears how many are done.

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
            raise InvalidProblemError(f"jobs must lie on a grid of at most slot_s {options.slot_s:g}, got {interval_s}")
        self._training, self._jobs, self._phases, self._options, self._seed = training, jobs, phases, options, seed
        self._slot_samples = round(options.slot_s / interval_s)
        self._series = [jobs.values[rows] for rows in jobs.segments()]
        self._rng = np.random.default_rng(seed)
        self._horizon = max(2, round(options.horizon_hours * 3600 / options.slot_s))
        self._arrival = np.sort(self._rng.integers(0, self._horizon // 2, size=len(self._series)))
        peaks = [own.max(axis=0) for own in self._series]
        self._capacity = options.jobs_per_server * np.quantile(peaks, TYPICAL_LEVEL, axis=0)

    @property
    def title(self) -> str:
        """What progress shows."""
        return "sizings"

    def do(self, piece: Sizing, stop: StoppingCriterion, progress: Progress) -> PackingRow:
        """Pack and replay; the gain is left at 0."""
        del stop, progress
        options, jobs = self._options, self._jobs
        demands = self._demands(piece)
        instance = admission_instance(
            *(piece, demands, self._arrival, self._capacity, options.num_servers, self._horizon),
            *(options.slot_s, jobs.names),
        )
        found = solve(instance, options.solver, time_limit_s=options.time_limit_s, seed=self._seed)
        if found.decision is None:
            raise InvalidProblemError(
                f"solver {options.solver!r} found no plan for requests by {piece} ({found.termination}); "
                "choose one that finds plans, or give it more time"
            )
        happened = replay(
            *(found.decision, self._series, demands, self._capacity, options.num_servers, self._slot_samples)
        )
        saving, pair_overload = _pairs(self._series, demands)
        figures = {**asdict(happened), "pair_saving": saving, "pair_overload": pair_overload}
        return PackingRow(
            sizing=str(piece),
            jobs=len(self._series),
            admitted=len(found.decision.admitted),
            work=float(found.objective or 0.0),
            gain=0.0,
            bound=found.bound,
            **{name: dict(zip(jobs.names, values.tolist(), strict=True)) for name, values in figures.items()},
        )

    def _demands(self, sizing: Sizing) -> list[FloatArray]:
        """Return each job's demand by slot of work."""
        series, options, phases = self._series, self._options, self._phases
        slots = [-(-len(own) // self._slot_samples) for own in series]
        if sizing != Sizing.PHASE:
            level = 1.0 if sizing == Sizing.PEAK else 1.0 - options.risk
            return [np.tile(np.quantile(own, level, axis=0), (n, 1)) for own, n in zip(series, slots, strict=True)]
        known: IntArray = np.where(phases.training >= 0, phases.training, phases.num_phases)
        factor = phase_spread(self._training, known, phases.num_phases).factor(options.risk)
        rng, found = copy.deepcopy(self._rng), []
        for rows, own, n in zip(self._jobs.segments(), series, slots, strict=True):
            profile = profile_of(own, phases.labels[rows], phases.num_phases)
            profile = perturbed(profile, options.profile_error, rng)
            found.append(demand_by_slot(profile, factor, n, self._slot_samples))
        return found


def _pairs(series: list[FloatArray], demands: list[FloatArray]) -> tuple[FloatArray, FloatArray]:
    """Pair jobs, and return what that saves of their true peaks, and the share of samples in which true pairs need more, shape (R,) both."""
    pairing = pair_jobs(demands)
    over, samples = np.zeros(series[0].shape[1]), 0
    apart = np.zeros_like(over)
    for first, second in pairing.pairs:
        apart += series[first].max(axis=0) + series[second].max(axis=0)
        given = joint_peak(demands[first], demands[second])
        total = joint_demand(series[first], series[second])
        over += (total > given * (1 + 1e-9)).sum(axis=0)
        samples += len(total)
    return share_saved(pairing.joint.sum(axis=0), apart), np.asarray(over / max(samples, 1))
