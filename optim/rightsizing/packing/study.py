"""Studies of recurring jobs: work packed on equal servers by sizing, and servers needed at equal kills by sizing.

`pack` gives the same jobs and servers requests sized by peaks, quantiles or phases, and replays the true series.
`compare_asking` tunes each sizing on some sets of jobs to the same kills and throttling, and counts servers on others.
"""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from functools import cached_property

import numpy as np

from optim.core.arrays import FloatArray, IntArray
from optim.core.errors import InvalidProblemError, check_in
from optim.core.limits import check_drawn
from optim.core.progress import Progress
from optim.core.stopping import Interruption, SolveState, StoppingCriterion
from optim.execution import AbstractTask, Engine, run_in_order
from optim.models.admission.decision import JOB, SERVER, SLOT, AdmissionPlan
from optim.models.containers.series import ContainerSeries
from optim.rightsizing.engine import UNDER_SHARE
from optim.rightsizing.packing.bin_packing import (
    FIT_TOL,
    Placement,
    ServerProblem,
    first_fit,
    joint_demand,
    joint_peak,
    loads,
    min_servers,
    min_servers_by_model,
    pair_jobs,
    share_saved,
)
from optim.rightsizing.packing.recurring_jobs import (
    RequestSizing,
    admission_instance,
    demand_by_slot,
    earlier_runs,
    perturbed,
    phase_spread,
    profile_of,
    requests,
)
from optim.rightsizing.world import PhaseLabels
from optim.solvers.solve import solve
from optim.statistics import Interval
from optim.workloads.containers import ContainerOptions, generate_containers


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
        allocated = demands[job][done[job]]
        under += (allocated < UNDER_SHARE * part).sum(axis=0)
        samples += len(part)
        done[job] += 1
        place = load.setdefault((row[SLOT], row[SERVER]), np.zeros((slot_samples, width)))
        place[: len(part)] += part
    total = np.stack(list(load.values())) if load else np.zeros((0, slot_samples, width))
    over = np.maximum(total - capacity, 0.0)
    # Sums of many floats that just fill a server are no overload.
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
    """Yield one row per sizing, peaks first.

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
        peaks = [values.max(axis=0) for values in self._series]
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
        solution = solve(instance, options.solver, time_limit_s=options.time_limit_s, seed=self._seed)
        if solution.decision is None:
            raise InvalidProblemError(
                f"solver {options.solver!r} found no plan for requests by {piece} ({solution.termination}); "
                "choose one that finds plans, or give it more time"
            )
        happened = replay(
            *(solution.decision, self._series, demands, self._capacity, options.num_servers, self._slot_samples)
        )
        saving, pair_overload = _pairs(self._series, demands)
        measured = {**asdict(happened), "pair_saving": saving, "pair_overload": pair_overload}
        return PackingRow(
            sizing=str(piece),
            jobs=len(self._series),
            admitted=len(solution.decision.admitted),
            work=float(solution.objective or 0.0),
            gain=0.0,
            bound=solution.bound,
            **{name: dict(zip(jobs.names, values.tolist(), strict=True)) for name, values in measured.items()},
        )

    def _demands(self, sizing: Sizing) -> list[FloatArray]:
        """Return each job's demand by slot of work."""
        series, options, phases = self._series, self._options, self._phases
        if sizing != Sizing.PHASE:
            level = 1.0 - options.risk
            return [requests([values], RequestSizing(sizing), self._slot_samples, level) for values in series]
        known: IntArray = np.where(phases.training >= 0, phases.training, phases.num_phases)
        factor = phase_spread(self._training, known, phases.num_phases).factor(options.risk)
        rng, demands = copy.deepcopy(self._rng), []
        for rows, values in zip(self._jobs.segments(), series, strict=True):
            profile = perturbed(profile_of(values, phases.labels[rows], phases.num_phases), options.profile_error, rng)
            demands.append(demand_by_slot(profile, factor, -(-len(values) // self._slot_samples), self._slot_samples))
        return demands


def _pairs(series: list[FloatArray], demands: list[FloatArray]) -> tuple[FloatArray, FloatArray]:
    """Pair jobs, and return what that saves of their true peaks, and the share of samples in which true pairs need more, shape (R,) both."""
    pairing = pair_jobs(demands)
    over, samples = np.zeros(series[0].shape[1]), 0
    apart = np.zeros_like(over)
    for first, second in pairing.pairs:
        apart += series[first].max(axis=0) + series[second].max(axis=0)
        set_aside = joint_peak(demands[first], demands[second])
        total = joint_demand(series[first], series[second])
        over += (total > set_aside * (1 + FIT_TOL)).sum(axis=0)
        samples += len(total)
    return share_saved(pairing.joint.sum(axis=0), apart), np.asarray(over / max(samples, 1))


HALVINGS = 9
MULTIPLIERS = (0.5, 3.0)
TUNING_SEED = 10_000
"""Seeds of the sets that multipliers are tuned on begin here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerStudyOptions:
    """Jobs, servers and what is held equal.

    Attributes
    ----------
    jobs, seeds
        Jobs of a set, and sets to count on; as many others are tuned on.
    runs, error
        Earlier runs of each job, and how far each is off in length and levels (deviation of logarithms).
    kills
        Share of jobs that may be killed, of all sets that are tuned on together.
    throttled
        Share of a busy server's samples that may be short of CPU.
    most_shift
        Slots that a job may start late.
    jobs_per_server
        A server has so many times the mean peak of a job.
    slot_s, horizon_slots
        Length of a slot; jobs arrive in so many.
    model_s
        Seconds for the mixed-integer programme on each set that is counted on; 0 leaves it out.
    """

    jobs: int = 40
    seeds: int = 20
    runs: int = 3
    error: float = 0.05
    kills: float = 0.02
    throttled: float = 0.02
    most_shift: int = 0
    jobs_per_server: float = 4.0
    slot_s: float = 300.0
    horizon_slots: int = 12
    model_s: float = 0.0

    def __post_init__(self) -> None:
        """Check ranges."""
        check_in("[1, inf)", self, "jobs", "runs", "horizon_slots")
        check_in(f"[2, {TUNING_SEED}]", self, "seeds")  # with more, a set would be both tuned and counted on
        check_drawn("count", self.jobs * self.seeds, "jobs of all sets")
        check_in("[0, 1]", self, "error")
        check_in("(0, 1)", self, "kills", "throttled")
        check_in("[0, inf)", self, "most_shift", "model_s")
        check_in("(0, inf)", self, "jobs_per_server", "slot_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRow:
    """Figures of a way of asking, means over the sets that were counted on.

    Attributes
    ----------
    asking, multiplier
        How, and the factor on requests that meets what is held equal.
    is_reached
        Whether any factor up to 3 meets it; if none, figures are those of 3.
    servers
        By first-fit.
    saved, saved_low, saved_high
        Share of the servers of `flat` that are saved, with the 95 % interval over sets (Student's t, paired).
    by_model
        By the mixed-integer programme, where it is given time.
    least
        Bound on the servers for these requests, and so on the gap, proven by weights.
    claimed_bound
        The larger of it and HiGHS' own bound, which nobody can check, where the programme is given time.
    kills, throttled
        What came out.
    """

    asking: str
    multiplier: float
    is_reached: bool
    servers: float
    saved: float
    saved_low: float
    saved_high: float
    by_model: float | None
    least: float
    claimed_bound: float | None
    kills: float
    throttled: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JobSet:
    """Jobs of a set: true series (CPU, memory), arrivals, capacity of the servers, samples of a slot, requests by way of asking."""

    series: list[FloatArray]
    arrival: np.ndarray
    capacity: FloatArray
    slot_samples: int
    asked: dict[RequestSizing, list[FloatArray]]

    def problem(self, asking: RequestSizing, multiplier: float, most_shift: int) -> ServerProblem:
        """Return the problem of requests times a multiplier, none above what a server has."""
        asked = tuple(np.minimum(multiplier * request, self.capacity) for request in self.asked[asking])
        return ServerProblem(requests=asked, arrival=self.arrival, capacity=self.capacity, most_shift=most_shift)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Counted:
    """What came of a way of asking; `servers` and `by_model` (or None) have shape (sets,)."""

    asking: RequestSizing
    multiplier: float
    is_reached: bool
    servers: FloatArray
    by_model: FloatArray | None
    least: float
    claimed: float | None
    kills: float
    throttled: float


@dataclass(frozen=True, kw_only=True)
class _Counting(AbstractTask[RequestSizing, _Counted | None]):
    """Tune a way of asking on some sets and count servers on others."""

    options: ServerStudyOptions
    seed: int

    @property
    def title(self) -> str:
        """What progress shows."""
        return "ways of asking"

    @cached_property
    def _sets(self) -> tuple[list[JobSet], list[JobSet]]:
        """Sets to tune on and to count on: drawn where they are needed, once a process, and never sent."""
        numbers = range(self.seed, self.seed + self.options.seeds)
        return [draw_set(self.options, TUNING_SEED + k) for k in numbers], [draw_set(self.options, k) for k in numbers]

    def do(self, piece: RequestSizing, stop: StoppingCriterion, progress: Progress) -> _Counted | None:
        """Tune and count; None where it is told to stop."""
        options, (tuning, fresh) = self.options, self._sets
        progress.start(f"{piece}: halvings and sets", HALVINGS + len(fresh))
        multiplier, placed, counts = MULTIPLIERS[1], [], []
        for number, min_so_far in enumerate(_halvings(tuning, piece, options), start=1):
            multiplier = min_so_far
            progress.update(number)
            if stop(SolveState(elapsed_s=0.0)) is not None:
                return None
        for job_set in fresh:
            problem = job_set.problem(piece, multiplier, options.most_shift)
            placed.append(first_fit(problem))
            counts.append((placed[-1].num_servers, *_by_model(problem, options.model_s, placed[-1])))
            progress.update(HALVINGS + len(placed))
            if stop(SolveState(elapsed_s=0.0)) is not None:
                return None
        progress.finish()
        is_reached = multiplier < MULTIPLIERS[1] or _is_met(tuning, piece, multiplier, options)
        servers, by_model, bounds, claimed = np.array(counts, dtype=np.float64).T
        kills, throttled = _violations(fresh, placed)
        return _Counted(
            asking=piece,
            multiplier=multiplier,
            is_reached=is_reached,
            servers=servers,
            by_model=by_model if options.model_s > 0 else None,
            least=float(bounds.mean()),
            claimed=float(claimed.mean()) if options.model_s > 0 else None,
            kills=kills,
            throttled=throttled,
        )


def compare_asking(
    options: ServerStudyOptions,
    seed: int,
    *,
    engine: Engine | None = None,
    stop: Interruption | None = None,
    progress: Progress | None = None,
) -> Iterator[ServerRow]:
    """Yield one row per way of asking, first that of `flat`, which the others are against.

    Parameters
    ----------
    options
        What jobs and servers are like, and what is held equal.
    seed
        Sets `seed`, `seed` + 1, ... are counted on; those from 10,000 + `seed` on are tuned on.
    engine
        Where ways are tuned and counted, in this process by default; the answer is the same for any.
    stop, progress
        Ends the comparison early, without the ways that aren't finished; hears how many are done.
    """
    task = _Counting(options=options, seed=seed)
    pieces = sorted(RequestSizing, key=lambda asking: asking is not RequestSizing.FLAT)
    reference = None
    for counted in run_in_order(task, pieces, engine, stop, progress):
        if counted is not None and counted.asking is RequestSizing.FLAT:
            reference = counted.servers
        if counted is not None and reference is not None:
            yield _row(counted, reference)


def _row(counted: _Counted, reference: FloatArray) -> ServerRow:
    saved = Interval.of((reference - counted.servers) / reference.mean())
    return ServerRow(
        asking=str(counted.asking),
        multiplier=counted.multiplier,
        is_reached=counted.is_reached,
        servers=float(counted.servers.mean()),
        saved=saved.mean,
        saved_low=saved.low,
        saved_high=saved.high,
        by_model=None if counted.by_model is None else float(counted.by_model.mean()),
        least=counted.least,
        claimed_bound=counted.claimed,
        kills=counted.kills,
        throttled=counted.throttled,
    )


def _by_model(problem: ServerProblem, model_s: float, placed: Placement) -> tuple[int, int, int]:
    """Return the number of servers by the model, where it has time, a proven bound and a claimed one."""
    if model_s <= 0:
        bound = min_servers(problem)
        return placed.num_servers, bound, bound
    placement, bound, claimed = min_servers_by_model(problem, model_s)
    return placement.num_servers, bound, claimed


def draw_set(options: ServerStudyOptions, seed: int) -> JobSet:
    """Draw jobs, their arrivals and their earlier runs."""
    containers = generate_containers(ContainerOptions(num_containers=options.jobs), seed)
    rng = np.random.default_rng([seed, options.jobs])
    series = [containers.values[rows] for rows in containers.segments()]
    slot_samples = max(1, round(options.slot_s / (containers.interval_s or options.slot_s)))
    runs = [earlier_runs(values, options.runs, options.error, rng) for values in series]
    capacity = options.jobs_per_server * np.mean([values.max(axis=0) for values in series], axis=0)
    return JobSet(
        series=series,
        arrival=np.sort(rng.integers(0, options.horizon_slots, size=options.jobs)),
        capacity=np.maximum(capacity, np.max([values.max(axis=0) for values in series], axis=0)),
        slot_samples=slot_samples,
        asked={asking: [requests(job_runs, asking, slot_samples) for job_runs in runs] for asking in RequestSizing},
    )


def _halvings(sets: Sequence[JobSet], asking: RequestSizing, options: ServerStudyOptions) -> Iterator[float]:
    """Yield multipliers, the last one the smallest found that keeps kills and throttling of all sets together, or the largest tried."""
    low, high = MULTIPLIERS
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if _is_met(sets, asking, middle, options) else (middle, high)
        yield high


def _is_met(sets: Sequence[JobSet], asking: RequestSizing, multiplier: float, options: ServerStudyOptions) -> bool:
    """Return whether a multiplier keeps kills and throttling of all sets together."""
    placed = [first_fit(job_set.problem(asking, multiplier, options.most_shift)) for job_set in sets]
    kills, throttled = _violations(sets, placed)
    return kills <= options.kills and throttled <= options.throttled


def _violations(sets: Sequence[JobSet], placed: Sequence[Placement]) -> tuple[float, float]:
    """Return the share of jobs killed, and of busy servers' samples short of CPU.

    A server that runs out of memory kills one job a slot; its series goes on, so that the next slot may kill another.
    """
    kills = jobs = samples = short = 0
    for job_set, placement in zip(sets, placed, strict=True):
        slot_samples = job_set.slot_samples
        for load in loads(job_set.series, placement, slot_samples):
            over = load > job_set.capacity * (1 + FIT_TOL)
            slots = -(-len(load) // slot_samples) * slot_samples
            by_slot = np.zeros(slots, dtype=bool)
            by_slot[: len(load)] = over[:, 1]
            kills += int(by_slot.reshape(-1, slot_samples).any(axis=1).sum())
            busy = load.any(axis=1)
            samples += int(busy.sum())
            short += int(over[:, 0].sum())
        jobs += len(job_set.series)
    return kills / max(jobs, 1), short / max(samples, 1)
