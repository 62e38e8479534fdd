"""Search for instances on which an online rule does worst against the offline optimum.

From random sketches, one change at a time: a change stays if the ratio of optimum to online doesn't
fall. All schedules are listed and HiGHS packs them, equal jobs as one group. Each ratio is reached by a plan that exists; that no
plan is better is HiGHS' word.
"""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType

import numpy as np
from scipy.sparse import csr_array

from optim.benchmarks.studies.sketch import Sketch, SketchRanges, draw_sketch, neighbour
from optim.core.errors import InvalidOptionError, UnsupportedProblemError
from optim.core.stopping import SolveState, StoppingCriterion
from optim.models.admission.instance import AdmissionInstance, FloatArray, IntArray
from optim.models.admission.plan import AdmissionPlan
from optim.models.admission.schedules import Row, Schedule, enumerate_schedules
from optim.solvers.admission.online import BoundSource, OnlineOptions, PriceKind, make_bounds, make_function
from optim.solvers.admission.packing.highs_programme import whole_programme
from optim.solvers.admission.posted_prices.online_run import OnlineRun, run_online
from optim.solvers.admission.posted_prices.theorems import amplification, ratio_claim
from optim.solvers.lp.highs_run import no_answer, run_highs

MOST_SCHEDULES = 1_500
"""Sketches with more schedules than this are passed over: their optimum takes too long."""

TIE_TOL = 1e-9
"""Ratios that differ by less count as equal: the search then walks sideways."""

RULES: Mapping[str, OnlineOptions] = MappingProxyType(
    {
        "zero-start": OnlineOptions(price=PriceKind.ZERO_START),
        "exponential": OnlineOptions(price=PriceKind.EXPONENTIAL),
        "paper": OnlineOptions(price=PriceKind.EXPONENTIAL, bounds=BoundSource.PAPER),
        "zero-start-strict": OnlineOptions(price=PriceKind.ZERO_START, strict=True),
        "exponential-strict": OnlineOptions(price=PriceKind.EXPONENTIAL, strict=True),
    }
)
"""The price functions that are attacked. The strict ones reach U at (1 - eps) of the capacity."""

RANGES: Mapping[str, SketchRanges] = MappingProxyType(
    {
        "coarse": SketchRanges(waves=5, demand=60),
        "small": SketchRanges(waves=4, copies=12, work=2, demand=10, horizon=2, servers=1),
    }
)
"""Kinds of jobs: up to 60 % of a server each, or at most 10 %, in waves of up to twelve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdversaryOptions:
    """How long an adversary searches.

    Parameters
    ----------
    restarts
        Random sketches to start from.
    moves
        Changes tried from each.

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
class Finding:
    """An instance, what the rule made of it, and what was possible.

    Parameters
    ----------
    sketch, rule
        What was tried on which rule.
    objective, optimum
        Value of the online plan and of the best plan.
    name
        Name of its instance.
    evaluations
        How many sketches the search looked at.
    """

    sketch: Sketch
    rule: str
    objective: float
    optimum: float
    name: str = "sketch"
    evaluations: int = 1

    @property
    def ratio(self) -> float:
        """Optimum over objective, 1 where nothing can be earned."""
        if self.optimum <= 0:
            return 1.0
        return self.optimum / self.objective if self.objective > 0 else math.inf

    @cached_property
    def instance(self) -> AdmissionInstance:
        """The instance."""
        return self.sketch.instance(self.name)

    @cached_property
    def run(self) -> OnlineRun:
        """The rule's run on it."""
        return run_rule(self.instance, self.rule)

    @cached_property
    def offline_plan(self) -> AdmissionPlan:
        """A best plan."""
        return best_plan(self.sketch)[1]

    @cached_property
    def promise(self) -> tuple[float, bool]:
        """The ratio that the rule's theorem promises here, and whether its conditions hold.

        Where prices reach U at the capacity only, it is the theorem's limit for ever smaller jobs, which
        coarse instances may exceed.
        """
        options = RULES[self.rule]
        bounds = make_bounds(self.instance, options, np.random.default_rng(0))
        function = make_function(self.instance, options)
        claim = ratio_claim(self.instance, bounds, function)
        if options.strict:
            return claim.ratio, claim.holds
        limit = max(amplification(side, 0.0, function) for side in (bounds.worker, bounds.ps))
        is_zero_start = options.price is PriceKind.ZERO_START
        return (limit + max(1.0, limit) if is_zero_start else 2 * max(1.0, limit)), False


def search(
    rule: str,
    kind: str,
    options: AdversaryOptions,
    rng: np.random.Generator,
    stop: StoppingCriterion | None = None,
) -> Finding:
    """Return the worst instance found for a rule of `RULES`.

    Parameters
    ----------
    rule, kind
        Names of the rule and of the `RANGES` of instances.
    options
        How long to search.
    rng
        Same state, same answer.
    stop
        Looked at before every change.

    Notes
    -----
    Hill climbing with sideways steps from random starts; a change costs one online run and, unless all
    values together couldn't make it worse, one packing of all schedules.
    """
    ranges = RANGES[kind]
    begun = time.perf_counter()
    worst: Finding | None = None
    evaluations = 0

    def is_over() -> bool:
        state = SolveState(elapsed_s=time.perf_counter() - begun, iterations=evaluations)
        return worst is not None and stop is not None and stop(state) is not None

    for _ in range(options.restarts):
        present: Finding | None = None
        for _ in range(options.moves + 1):
            if is_over():
                break
            sketch = draw_sketch(ranges, rng) if present is None else neighbour(present.sketch, ranges, rng)
            floor = 0.0 if present is None else present.ratio * (1 - TIE_TOL)
            present = evaluate(rule, sketch, floor) or present
            evaluations += 1
            if present is not None and (worst is None or present.ratio > worst.ratio):
                worst = present
    if worst is None:
        raise UnsupportedProblemError(
            f"none of {evaluations} sketches had at most {MOST_SCHEDULES} schedules; narrow the ranges"
        )
    return replace(worst, name=found_name(rule, kind), evaluations=evaluations)


def found_name(rule: str, kind: str) -> str:
    """Return the name of the worst instance of a kind for a rule."""
    return f"adversary-{rule}-{kind}"


def evaluate(rule: str, sketch: Sketch, floor: float) -> Finding | None:
    """Compare a rule with the optimum on a sketch; None if the ratio is below `floor` or the sketch too large."""
    objective = run_rule(sketch.instance("sketch"), rule).objective
    most = sum(wave.value * wave.copies for wave in sketch.waves)
    if objective > 0 and most / objective < floor:
        return None
    try:
        optimum, _ = best_plan(sketch)
    except UnsupportedProblemError:
        return None
    finding = Finding(sketch=sketch, rule=rule, objective=objective, optimum=optimum)
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
        If it has more than `MOST_SCHEDULES` schedules, equal jobs counted once.
    """
    waves = sketch.in_order()
    single = replace(sketch, waves=tuple(replace(wave, copies=1) for wave in waves))
    found = enumerate_schedules(single.instance("waves"), limit=MOST_SCHEDULES)
    if not found.schedules:
        return 0.0, AdmissionPlan.from_rows([], [])
    copies = np.array([wave.copies for wave in waves], dtype=np.float64)
    chosen = _pack(found.schedules, found.capacity, copies)
    first = np.concatenate([[0], np.cumsum(copies)]).astype(int)
    workers, ps = [], []
    for schedule, times in zip(found.schedules, chosen.tolist(), strict=True):
        for _ in range(times):
            job = int(first[schedule.job])
            first[schedule.job] += 1
            workers += [(job, *row) for row in schedule.workers]
            ps += [(job, *row) for row in schedule.ps]
    value = float(sum(s.value * times for s, times in zip(found.schedules, chosen.tolist(), strict=True)))
    return value, AdmissionPlan.from_rows(workers, ps)


def _pack(schedules: tuple[Schedule, ...], capacity: Mapping[Row, int], copies: FloatArray) -> IntArray:
    """Return how often each schedule is followed in a packing of the largest value.

    HiGHS' optimum comes without a proof. The packing's value is added up from its schedules: were a better one missed, the
    ratio to it would be understated.
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
    programme = whole_programme(
        np.array([schedule.value for schedule in schedules]),
        copies[[schedule.job for schedule in schedules]],
        csr_array((amount, (row, column)), shape=shape),
    )
    values = run_highs(programme, options={"mip_rel_gap": 0.0}).values
    if values is None:
        raise no_answer(programme)
    chosen: IntArray = np.rint(values).astype(np.int64)
    return chosen
