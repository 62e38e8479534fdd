"""The study `adversary`: for each price function the worst instance of a search, with the proven ratio.

The search starts from random sketches and makes one change at a time; a change stays if the ratio of optimum to online
value doesn't fall. All schedules are enumerated and HiGHS packs them, equal jobs as one group. Each ratio is attained
by an actual plan; that no plan is better is an unproven claim of HiGHS.

A row has the online plan's value and the optimum of the worst instance found, and `worst_ratio`, their ratio.
`promised` is the competitive ratio of the rule's theorem on that instance. With `proven` the theorem's conditions are met;
otherwise it is the theorem's limit for small jobs, which larger jobs may exceed. Both plans are verified.

The reference instances ``adversary-*`` are the worst ones of this study at size ``full`` with seed 0.
"""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from optim.benchmarks.records import Record
from optim.benchmarks.study import AbstractStudy, Finding, register_study
from optim.benchmarks.suite import FULL, SMALL, Subject
from optim.core.arrays import FloatArray, IntArray
from optim.core.driver import PhaseClock
from optim.core.errors import InvalidOptionError, UnsupportedProblemError
from optim.core.options import options_as_dict
from optim.core.progress import Progress
from optim.core.solution import PointStatus, Sense, Solution, Termination
from optim.core.stopping import SolveState, StoppingCriterion
from optim.models.admission.data import MICRO, Jobs, ServerClasses, StepUtility, as_int_array
from optim.models.admission.decision import AdmissionPlan
from optim.models.admission.instance import AdmissionInstance
from optim.models.files import verify
from optim.report.plots import INK, PALETTE, Figure, FigureList, name_rows
from optim.solvers.admission.online import BoundSource, OnlineOptions, PriceKind, make_bounds, make_function
from optim.solvers.admission.posted_prices.online_run import OnlineRun, run_online
from optim.solvers.admission.posted_prices.theorems import amplification, log_spread, ratio_claim
from optim.solvers.admission.warm_up import compile_online
from optim.solvers.lp.highs import add_rows, no_answer, run_highs, silent_highs
from optim_studies.packing_programme import Row, Schedule, enumerate_schedules

PER_CENT = MICRO // 100
"""One per cent of a server; demands are integer multiples of it."""

PS_PER_CENT = 5
"""Demand of a PS, in per cent of a PS host: PSs are no bottleneck, but the hosts' capacity has prices."""

VALUE_FACTORS = (0.5, 0.8, 0.95, 1.05, 1.25, 2.0, 10.0)
"""Factors by which a move changes a job's value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wave:
    """`copies` equal jobs that arrive in sequence.

    Parameters
    ----------
    arrival, patience
        Slot of arrival, and the maximum delay with utility `value`; later completions have utility 0.
    work, most
        Required worker-slots, and maximum workers at once.
    demand
        Demand of a worker, in per cent of a server.
    value
        Utility of each job.
    """

    arrival: int = 0
    patience: int = 0
    work: int = 1
    most: int = 1
    demand: int = 10
    value: float = 1.0
    copies: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SketchRanges:
    """Ranges of random instances.

    Parameters
    ----------
    horizon, servers
        Maximum number of slots, and of worker servers; there are as many PS hosts.
    waves, copies
        Maximum number of waves, and of jobs per wave.
    work
        Maximum worker-slots of a job.
    demand
        Maximum demand of a worker in per cent of a server. A job never has more workers on a server
        in a slot than fit into this share, so that it bounds the theorems' epsilon.
    value_spread
        Maximum value of a job; the minimum is 1.
    """

    horizon: int = 3
    servers: int = 2
    waves: int = 4
    copies: int = 1
    work: int = 3
    demand: int = 60
    value_spread: float = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sketch:
    """Waves in their order of arrival, on `servers` equal worker servers and as many PS hosts."""

    horizon: int
    servers: int
    waves: tuple[Wave, ...]
    share: Fraction

    def in_order(self) -> tuple[Wave, ...]:
        """Return the waves by arrival, then as listed: the order of the instance's jobs."""
        return tuple(sorted(self.waves, key=lambda wave: wave.arrival))

    def instance(self, name: str) -> AdmissionInstance:
        """Build the instance: one resource, a slot of one second, one PS for every worker."""
        singles = [wave for wave in sorted(self.waves, key=lambda wave: wave.arrival) for _ in range(wave.copies)]
        num = len(singles)
        ones = as_int_array([1] * num)
        capacity = np.full((1, self.horizon, 1), MICRO, dtype=np.int64)
        capacity.setflags(write=False)
        return AdmissionInstance(
            name=name,
            horizon=self.horizon,
            slot_micro_s=MICRO,
            resources=("share",),
            jobs=Jobs(
                ids=tuple(f"job-{i}" for i in range(num)),
                arrival=as_int_array([wave.arrival for wave in singles]),
                # E N M tau = work, with E = work epochs, N = most chunks, M = 1 mini-batch and tau = 1 / most seconds.
                epochs=as_int_array([wave.work for wave in singles]),
                chunks=as_int_array([wave.most for wave in singles]),
                minibatches=ones,
                minibatch_micro_s=as_int_array([MICRO // wave.most for wave in singles]),
                gradient_micro_mb=as_int_array([0] * num),
                worker_micro_mbps=ones,
                ps_micro_mbps=ones,
                segment_offset=as_int_array(list(range(num + 1))),
                segment_start=as_int_array([0] * num),
                worker_demand=as_int_array([wave.demand * PER_CENT for wave in singles]).reshape(num, 1),
                ps_demand=as_int_array([PS_PER_CENT * PER_CENT] * num).reshape(num, 1),
                utilities=tuple(StepUtility(value=wave.value, max_delay=wave.patience) for wave in singles),
                min_utility=np.full(num, np.nan),
            ),
            worker_servers=ServerClasses(types=("worker",), capacity=capacity, count=as_int_array([self.servers])),
            ps_servers=ServerClasses(types=("ps",), capacity=capacity, count=as_int_array([self.servers])),
            max_share_per_server=self.share,
        )


def draw_sketch(ranges: SketchRanges, rng: np.random.Generator) -> Sketch:
    """Draw a sketch at random."""
    horizon = int(rng.integers(1, ranges.horizon + 1))
    waves = tuple(_draw_wave(ranges, horizon, rng) for _ in range(int(rng.integers(1, ranges.waves + 1))))
    return Sketch(
        horizon=horizon,
        servers=int(rng.integers(1, ranges.servers + 1)),
        waves=waves,
        share=Fraction(ranges.demand, 100),
    )


def neighbour(sketch: Sketch, ranges: SketchRanges, rng: np.random.Generator) -> Sketch:
    """Return a sketch with one change: in a field of a wave, in the order of two waves, or a wave added or removed."""
    waves = list(sketch.waves)
    place = int(rng.integers(len(waves)))
    kind = int(rng.integers(8))
    if kind == 0 and len(waves) < ranges.waves:
        waves.insert(place, _draw_wave(ranges, sketch.horizon, rng))
    elif kind == 1 and len(waves) > 1:
        del waves[place]
    elif kind == 2 and len(waves) > 1:
        other = int(rng.integers(len(waves)))
        waves[place], waves[other] = waves[other], waves[place]
    else:
        waves[place] = _changed(waves[place], ranges, sketch.horizon, rng)
    return replace(sketch, waves=tuple(waves))


def _draw_wave(ranges: SketchRanges, horizon: int, rng: np.random.Generator) -> Wave:
    arrival = int(rng.integers(horizon))
    return Wave(
        arrival=arrival,
        patience=int(rng.integers(horizon - arrival)),
        work=int(rng.integers(1, ranges.work + 1)),
        most=int(rng.choice((1, 2))),
        demand=int(rng.integers(1, ranges.demand + 1)),
        value=_clip(ranges.value_spread ** rng.random(), ranges),
        copies=int(rng.integers(1, ranges.copies + 1)),
    )


def _changed(wave: Wave, ranges: SketchRanges, horizon: int, rng: np.random.Generator) -> Wave:
    """Return a wave with one change: new times or work, a step in demand or copies, or another value."""
    fresh = _draw_wave(ranges, horizon, rng)
    match int(rng.integers(6)):
        case 0:
            return replace(wave, arrival=fresh.arrival, patience=fresh.patience)
        case 1:
            return replace(wave, work=fresh.work, most=fresh.most)
        case 2:
            step = int(rng.choice((-5, -1, 1, 5)))
            return replace(wave, demand=min(ranges.demand, max(1, wave.demand + step)))
        case 3:
            step = int(rng.choice((-2, -1, 1, 2)))
            return replace(wave, copies=min(ranges.copies, max(1, wave.copies + step)))
        case _:
            return replace(wave, value=_clip(wave.value * float(rng.choice(VALUE_FACTORS)), ranges))


def _clip(value: float, ranges: SketchRanges) -> float:
    """Return a value inside the spread, with three significant digits so that instances stay readable."""
    return float(f"{min(ranges.value_spread, max(1.0, value)):.3g}")


MAX_SCHEDULES = 1_500
"""Maximum number of schedules; sketches with more are skipped, since their optimum takes too long."""

TIE_TOL = 1e-9
"""Difference up to which ratios count as equal; the search then makes sideways steps."""

RULES: Mapping[str, OnlineOptions] = MappingProxyType(
    {
        "zero-start": OnlineOptions(price=PriceKind.ZERO_START),
        "exponential": OnlineOptions(price=PriceKind.EXPONENTIAL),
        "paper": OnlineOptions(price=PriceKind.EXPONENTIAL, bounds=BoundSource.PAPER),
        "zero-start-strict": OnlineOptions(price=PriceKind.ZERO_START, strict=True),
        "exponential-strict": OnlineOptions(price=PriceKind.EXPONENTIAL, strict=True),
    }
)
"""The attacked price functions. The strict ones reach U at (1 - eps) of the capacity."""

RANGES: Mapping[str, SketchRanges] = MappingProxyType(
    {
        "coarse": SketchRanges(waves=5, demand=60),
        "small": SketchRanges(waves=4, copies=12, work=2, demand=10, horizon=2, servers=1),
    }
)
"""Ranges by size of the jobs: workers take up to 60 % of a server, or up to 10 % with waves of up to twelve jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdversaryOptions:
    """Extent of an adversary's search.

    Parameters
    ----------
    restarts
        Number of random sketches to start from.
    moves
        Number of changes that the search tries from each of them.

    Raises
    ------
    InvalidOptionError
        If a number is out of range.
    """

    restarts: int = 4
    moves: int = 60

    def __post_init__(self) -> None:
        if self.restarts < 1:
            raise InvalidOptionError(f"restarts must be at least 1, got {self.restarts}")
        if self.moves < 0:
            raise InvalidOptionError(f"moves must be at least 0, got {self.moves}")


@dataclass(frozen=True, kw_only=True)
class WorstCase:
    """An instance, the rule's result, and the optimum.

    Parameters
    ----------
    sketch, rule
        Sketch, and name of the rule.
    objective, optimum
        Value of the online plan and of the best plan.
    name
        Name of the instance.
    evaluations
        Number of sketches evaluated.
    """

    sketch: Sketch
    rule: str
    objective: float
    optimum: float
    name: str = "sketch"
    evaluations: int = 1

    @property
    def ratio(self) -> float:
        """Optimum over objective, 1 if the optimum is 0."""
        if self.optimum <= 0:
            return 1.0
        return self.optimum / self.objective if self.objective > 0 else math.inf

    @cached_property
    def instance(self) -> AdmissionInstance:
        """The instance of the sketch."""
        return self.sketch.instance(self.name)

    @cached_property
    def run(self) -> OnlineRun:
        """The rule's run on the instance."""
        return run_rule(self.instance, self.rule)

    @cached_property
    def offline_plan(self) -> AdmissionPlan:
        """A plan that attains the optimum."""
        return best_plan(self.sketch)[1]

    @cached_property
    def promise(self) -> tuple[float, bool]:
        """The competitive ratio of the rule's theorem, and whether its conditions hold.

        If prices reach U only at the capacity, it is the theorem's limit for small jobs, which instances of
        larger jobs may exceed.
        """
        options = RULES[self.rule]
        bounds = make_bounds(self.instance, options, np.random.default_rng(0))
        function = make_function(self.instance, options)
        claim = ratio_claim(self.instance, bounds, function)
        if options.strict:
            return claim.ratio, claim.holds
        limit = amplification(max(map(log_spread, (bounds.worker, bounds.ps))), 0.0, function)
        is_zero_start = options.price is PriceKind.ZERO_START
        return (limit + max(1.0, limit) if is_zero_start else 2 * max(1.0, limit)), False


def search(
    rule: str,
    kind: str,
    options: AdversaryOptions,
    rng: np.random.Generator,
    stop: StoppingCriterion | None = None,
) -> WorstCase:
    """Return the worst instance found for a rule of `RULES`.

    Parameters
    ----------
    rule, kind
        Names of the rule and of the `RANGES` of instances.
    options
        Extent of the search.
    rng
        Random generator; equal states give equal results.
    stop
        Checked before every change.

    Notes
    -----
    Hill climbing with sideways steps from random starts. A change costs one online run and one packing of all
    schedules; the packing is skipped if all values together can't make the ratio worse.
    """
    ranges = RANGES[kind]
    begun = time.perf_counter()
    worst: WorstCase | None = None
    evaluations = 0

    def should_stop() -> bool:
        state = SolveState(elapsed_s=time.perf_counter() - begun, iterations=evaluations)
        return worst is not None and stop is not None and stop(state) is not None

    for _ in range(options.restarts):
        present: WorstCase | None = None
        for _ in range(options.moves + 1):
            if should_stop():
                break
            sketch = draw_sketch(ranges, rng) if present is None else neighbour(present.sketch, ranges, rng)
            floor = 0.0 if present is None else present.ratio * (1 - TIE_TOL)
            present = evaluate(rule, sketch, floor) or present
            evaluations += 1
            if present is not None and (worst is None or present.ratio > worst.ratio):
                worst = present
    if worst is None:
        raise UnsupportedProblemError(
            f"none of {evaluations} drawn instances had at most {MAX_SCHEDULES} schedules; narrow the ranges"
        )
    return replace(worst, name=found_name(rule, kind), evaluations=evaluations)


def found_name(rule: str, kind: str) -> str:
    """Return the name of the worst instance of a kind for a rule."""
    return f"adversary-{rule}-{kind}"


def evaluate(rule: str, sketch: Sketch, floor: float) -> WorstCase | None:
    """Compare a rule with the optimum on a sketch; None if the ratio is below `floor` or the sketch too large."""
    objective = run_rule(sketch.instance("sketch"), rule).objective
    most = sum(wave.value * wave.copies for wave in sketch.waves)
    if objective > 0 and most / objective < floor:
        return None
    try:
        optimum, _ = best_plan(sketch)
    except UnsupportedProblemError:
        return None
    finding = WorstCase(sketch=sketch, rule=rule, objective=objective, optimum=optimum)
    return finding if finding.ratio >= floor else None


def run_rule(instance: AdmissionInstance, rule: str) -> OnlineRun:
    """Run a rule of `RULES` on an instance."""
    options = RULES[rule]
    bounds = make_bounds(instance, options, np.random.default_rng(0))
    return run_online(instance, bounds=bounds, function=make_function(instance, options))


def best_plan(sketch: Sketch) -> tuple[float, AdmissionPlan]:
    """Return the optimum of a sketch and a plan that attains it.

    Raises
    ------
    UnsupportedProblemError
        If it has more than `MAX_SCHEDULES` schedules, equal jobs counted once.
    """
    waves = sketch.in_order()
    single = replace(sketch, waves=tuple(replace(wave, copies=1) for wave in waves))
    enumerated = enumerate_schedules(single.instance("waves"), limit=MAX_SCHEDULES)
    if not enumerated.schedules:
        return 0.0, AdmissionPlan.from_rows([], [])
    copies = np.array([wave.copies for wave in waves], dtype=np.float64)
    chosen = _pack(enumerated.schedules, enumerated.capacity, copies)
    first = np.concatenate([[0], np.cumsum(copies)]).astype(int)
    workers, ps = [], []
    for schedule, times in zip(enumerated.schedules, chosen.tolist(), strict=True):
        for _ in range(times):
            job = int(first[schedule.job])
            first[schedule.job] += 1
            workers += [(job, *row) for row in schedule.workers]
            ps += [(job, *row) for row in schedule.ps]
    value = float(sum(s.value * times for s, times in zip(enumerated.schedules, chosen.tolist(), strict=True)))
    return value, AdmissionPlan.from_rows(workers, ps)


def _pack(schedules: tuple[Schedule, ...], capacity: Mapping[Row, int], copies: FloatArray) -> IntArray:
    """Return the number of uses of each schedule in a packing of maximum value.

    HiGHS' optimality is unproven. The packing's value is the sum over its schedules, so a missed better packing could only
    understate the ratio.
    """
    position = {row: k for k, row in enumerate(row for row, size in capacity.items() if size > 0)}
    entries = [
        (position[row], l, amount / capacity[row])
        for l, schedule in enumerate(schedules)
        for row, amount in schedule.use.items()
    ]
    entries += [(len(position) + schedule.job, l, 1.0 / copies[schedule.job]) for l, schedule in enumerate(schedules)]
    row, column, amount = (np.array(part) for part in zip(*entries, strict=True))
    shape = (len(position) + len(copies), len(schedules))
    programme = _whole_programme(
        np.array([schedule.value for schedule in schedules]),
        copies[[schedule.job for schedule in schedules]],
        csr_array((amount, (row, column)), shape=shape),
    )
    values = run_highs(programme, options={"mip_rel_gap": 0.0}).values
    if values is None:
        raise no_answer(programme)
    chosen: IntArray = np.rint(values).astype(np.int64)
    return chosen


def _whole_programme(value: FloatArray, upper: FloatArray, matrix: csr_array) -> Any:
    """Return HiGHS with the programme max v'x, A x <= 1 over integers 0 <= x <= `upper`, not yet solved."""
    import highspy

    highs, count = silent_highs(), len(value)
    highs.changeObjectiveSense(highspy.ObjSense.kMaximize)
    highs.addVars(count, np.zeros(count), upper)
    everyone = np.arange(count, dtype=np.int32)
    highs.changeColsCost(count, everyone, value)
    highs.changeColsIntegrality(count, everyone, np.full(count, highspy.HighsVarType.kInteger))
    add_rows(highs, matrix)
    return highs


SOLVER = "online"

SIZES: Mapping[str, AdversaryOptions] = MappingProxyType(
    {SMALL: AdversaryOptions(restarts=2, moves=40), FULL: AdversaryOptions(restarts=12, moves=300)}
)


@dataclass(frozen=True, kw_only=True)
class AdversaryWork(AbstractStudy):
    """Search for an instance on which one rule does badly; the record is about the instance found.

    The subject is the sketch from which the search starts; labels name rule and kind of jobs.
    """

    options_type = AdversaryOptions

    def measure(self, stop: StoppingCriterion, progress: Progress) -> Finding:
        """Search, then verify the online plan and the best one."""
        rule = str(self.labels["rule"])
        clock = PhaseClock()
        with clock.phase("compile"):
            compile_online(is_shared=False)
        progress.start(f"adversary of {rule}", None)
        with clock.phase("solve"):
            worst = search(rule, str(self.labels["jobs"]), self.chosen, np.random.default_rng(self.seed), stop)
        progress.finish()
        plans = ((worst.run.plan, worst.objective), (worst.offline_plan, worst.optimum))
        with clock.phase("verify"):
            claims = [_claim(worst.instance, plan, value) for plan, value in plans]
            problems = [str(violation) for claim in claims for violation in verify(worst.instance, claim).violations]
        promised, is_proven = worst.promise
        subject = Subject(worst.instance)
        return Finding(
            findings={
                "found_digest": subject.digest,
                "online": worst.objective,
                "optimum": worst.optimum,
                "worst_ratio": worst.ratio,
                "promised": promised,
                "proven": is_proven,
            },
            measures={
                "found": subject.parameters,
                "waves": [options_as_dict(wave) for wave in worst.sketch.in_order()],
            },
            seconds=clock.seconds,
            problems=problems,
            iterations=worst.evaluations,
            is_whole=worst.evaluations == self.chosen.restarts * (self.chosen.moves + 1),
        )


def _claim(instance: AdmissionInstance, plan: AdmissionPlan, value: float) -> Solution:
    """Return a solution that claims that a plan is feasible and has this value."""
    return Solution(
        problem="admission",
        instance=instance.name,
        solver=SOLVER,
        sense=Sense.MAXIMISE,
        termination=Termination.COMPLETED,
        primal=PointStatus.FEASIBLE,
        decision=plan,
        objective=value,
    )


def _subjects(options: AdversaryOptions, seed: int) -> Iterator[tuple[Subject, Mapping[str, Any]]]:
    """Yield the sketch from which a search starts, for each kind of jobs and each rule."""
    del options
    for kind, ranges in RANGES.items():
        for rule in RULES:
            sketch = draw_sketch(ranges, np.random.default_rng(seed))
            yield Subject(sketch.instance(found_name(rule, kind))), {"rule": rule, "jobs": kind}


def figures(records: Sequence[Record]) -> list[Figure]:
    """Draw the worst ratios found, compared with the theorems' ratios."""
    shown = [record for record in records if record.findings.get("worst_ratio") is not None]
    if not shown:
        return []
    gallery = FigureList()
    caption = (
        "Bars: worst ratio found. Ticks: ratio that the rule's theorem guarantees for that instance. Bars are blue "
        "if the theorem's conditions hold; otherwise the tick is the limit for infinitely small jobs, without a guarantee."
    )
    title, height = "Worst and guaranteed ratios", 0.9 + 0.34 * len(shown)
    with gallery.picture("adversary", title, caption, 9, height) as (panel,):
        for y, record in enumerate(reversed(shown)):
            findings = record.findings
            panel.barh(y, findings["worst_ratio"], color=PALETTE[0 if findings["proven"] else 1], height=0.62)
            if findings["promised"] is not None:
                panel.plot(findings["promised"], y, "|", color=INK, markersize=14, markeredgewidth=1.8)
        name_rows(panel, [f"{record.labels['rule']}, {record.labels['jobs']} jobs" for record in shown])
        panel.set(xscale="log", xlabel="optimum / online")
        panel.set_xlim(left=0.9)
    return gallery


SPEC = register_study(
    "adversary",
    "admission",
    "worst instances that a search finds for each price function, compared with the theorems' ratios",
    kind=AdversaryWork,
    sizes=SIZES,
    subjects=_subjects,
    ways=(SOLVER,),
    others="the adversary attacks the online rule only",
    columns=("rule", "jobs", "online", "optimum", "worst_ratio", "promised", "proven"),
    figures=figures,
)
