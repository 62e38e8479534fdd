"""How many servers recurring jobs need at equal kills, by how they ask; tuned on some sets of jobs, counted on others."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from optim.core.arrays import FloatArray
from optim.core.errors import check_in
from optim.core.limits import check_drawn
from optim.core.progress import Progress
from optim.core.stopping import Interruption, SolveState, StoppingCriterion
from optim.execution import AbstractTask, Engine, run_in_order
from optim.rightsizing.packing.bin_packing import (
    Placement,
    ServerProblem,
    fewest_by_model,
    first_fit,
    loads,
    min_servers,
)
from optim.rightsizing.packing.recurring_jobs import RequestSizing, earlier_runs, requests
from optim.statistics import Interval
from optim.workloads.containers import ContainerOptions, generate_containers

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
        asked = tuple(np.minimum(multiplier * own, self.capacity) for own in self.asked[asking])
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
        for own in fresh:
            problem = own.problem(piece, multiplier, options.most_shift)
            placed.append(first_fit(problem))
            counts.append((placed[-1].num_servers, *_by_model(problem, options.model_s, placed[-1])))
            progress.update(HALVINGS + len(placed))
            if stop(SolveState(elapsed_s=0.0)) is not None:
                return None
        progress.finish()
        is_reached = multiplier < MULTIPLIERS[1] or _is_met(tuning, piece, multiplier, options)
        servers, by_model, least, claimed = np.array(counts, dtype=np.float64).T
        kills, throttled = _harm(fresh, placed)
        return _Counted(
            asking=piece,
            multiplier=multiplier,
            is_reached=is_reached,
            servers=servers,
            by_model=by_model if options.model_s > 0 else None,
            least=float(least.mean()),
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
    """Yield a row a way of asking, first that of `flat`, which the others are against.

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
    for found in run_in_order(task, pieces, engine, stop, progress):
        if found is not None and found.asking is RequestSizing.FLAT:
            reference = found.servers
        if found is not None and reference is not None:
            yield _row(found, reference)


def _row(found: _Counted, reference: FloatArray) -> ServerRow:
    saved = Interval.of((reference - found.servers) / reference.mean())
    return ServerRow(
        asking=str(found.asking),
        multiplier=found.multiplier,
        is_reached=found.is_reached,
        servers=float(found.servers.mean()),
        saved=saved.mean,
        saved_low=saved.low,
        saved_high=saved.high,
        by_model=None if found.by_model is None else float(found.by_model.mean()),
        least=found.least,
        claimed_bound=found.claimed,
        kills=found.kills,
        throttled=found.throttled,
    )


def _by_model(problem: ServerProblem, model_s: float, placed: Placement) -> tuple[int, int, int]:
    """Return the number of servers by the model, where it has time, a proven bound and a claimed one."""
    if model_s <= 0:
        bound = min_servers(problem)
        return placed.num_servers, bound, bound
    placement, bound, claimed = fewest_by_model(problem, model_s)
    return placement.num_servers, bound, claimed


def draw_set(options: ServerStudyOptions, seed: int) -> JobSet:
    """Draw jobs, their arrivals and their earlier runs."""
    drawn = generate_containers(ContainerOptions(num_containers=options.jobs), seed)
    rng = np.random.default_rng([seed, options.jobs])
    series = [drawn.values[rows] for rows in drawn.segments()]
    slot_samples = max(1, round(options.slot_s / (drawn.interval_s or options.slot_s)))
    runs = [earlier_runs(own, options.runs, options.error, rng) for own in series]
    capacity = options.jobs_per_server * np.mean([own.max(axis=0) for own in series], axis=0)
    return JobSet(
        series=series,
        arrival=np.sort(rng.integers(0, options.horizon_slots, size=options.jobs)),
        capacity=np.maximum(capacity, np.max([own.max(axis=0) for own in series], axis=0)),
        slot_samples=slot_samples,
        asked={asking: [requests(own, asking, slot_samples) for own in runs] for asking in RequestSizing},
    )


def _halvings(sets: Sequence[JobSet], asking: RequestSizing, options: ServerStudyOptions) -> Iterator[float]:
    """Yield multipliers, the last one the smallest found that keeps kills and throttling of all sets together, or the largest tried."""
    low, high = MULTIPLIERS
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if _is_met(sets, asking, middle, options) else (middle, high)
        yield high


def _is_met(sets: Sequence[JobSet], asking: RequestSizing, multiplier: float, options: ServerStudyOptions) -> bool:
    """Tell whether a multiplier keeps kills and throttling of all sets together."""
    placed = [first_fit(own.problem(asking, multiplier, options.most_shift)) for own in sets]
    kills, throttled = _harm(sets, placed)
    return kills <= options.kills and throttled <= options.throttled


def _harm(sets: Sequence[JobSet], placed: Sequence[Placement]) -> tuple[float, float]:
    """Return the share of jobs killed, and of busy servers' samples short of CPU.

    A server that runs out of memory kills one job a slot; its series goes on, so that the next slot may kill another.
    """
    kills = jobs = samples = short = 0
    for own, placement in zip(sets, placed, strict=True):
        slot_samples = own.slot_samples
        for load in loads(own.series, placement, slot_samples):
            over = load > own.capacity * (1 + 1e-9)
            slots = -(-len(load) // slot_samples) * slot_samples
            by_slot = np.zeros(slots, dtype=bool)
            by_slot[: len(load)] = over[:, 1]
            kills += int(by_slot.reshape(-1, slot_samples).any(axis=1).sum())
            busy = load.any(axis=1)
            samples += int(busy.sum())
            short += int(over[:, 0].sum())
        jobs += len(own.series)
    return kills / max(jobs, 1), short / max(samples, 1)
