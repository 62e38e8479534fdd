"""The evaluation of the paper, as a suite: what is worth how much to whom, on generated instances.

F1, F2, F3  total utility against the number of jobs, the horizon, and the share of time-critical jobs: sweeps
            through one instance in the middle;
F4          optimum over online on tiny instances, and bound over online on the larger ones of F1;
F5          U and the lower scale of the prices wrong by 2^-3 to 2^3;
F6          completion less target delay, by class of utility (where there are most jobs);
F7          admission rate, utilisation and decision time.

The rivals answer slot by slot and may keep jobs waiting; the online rule decides on arrival, for good.
Sizes: ``--size``, or ``--jobs --slots --worker-servers --ps-servers`` for the middle of every sweep.

References
----------
Bao, Peng, Wu, Li, "Online Job Scheduling in Distributed Machine Learning Clusters", INFOCOM 2018,
DOI 10.1109/INFOCOM.2018.8486422, evaluation section.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from optim.benchmarks.cases import solve_or_skip
from optim.benchmarks.pictures.paper import draw
from optim.benchmarks.record import Record
from optim.benchmarks.registry import register_suite
from optim.benchmarks.solver_options import options_for
from optim.benchmarks.sources import GeneratedSource
from optim.benchmarks.spec import FULL, SMALL, BenchRequest, BenchSpec, Skipped
from optim.benchmarks.work import AbstractWork, SolveWork, Subject
from optim.core.errors import InvalidOptionError
from optim.core.progress import Progress
from optim.core.solution import Solution
from optim.core.stopping import StoppingCriterion
from optim.models.admission.instance import AdmissionInstance
from optim.models.admission.plan import AdmissionPlan
from optim.models.admission.utility import SigmoidUtility
from optim.solvers.solve import solvers_of
from optim.workloads.admission.generator import GeneratorOptions
from optim.workloads.admission.utility_mix import UtilityMix

PROBLEM = "admission"

BOUND = "column-generation"
RIVALS = ("online", "fifo", "drf", "rrh", "dorm", BOUND)
"""Who is compared in F1 to F3, and the solver that bounds them."""

EXACT = ("branch-and-price", "compact-milp")
"""Who tells the optimum of tiny instances: the first that there is."""

BOUND_TOL = 1e-2
"""Relative gap at which the LP counts as solved: finer than a line is thick."""

TINY = GeneratorOptions(num_jobs=10, num_slots=8, num_worker_servers=2, num_ps_servers=2)
"""Instances of F4: small enough to be solved exactly."""

SCALES = tuple(2.0**power for power in range(-3, 4))
"""Factors by which F5 makes the constants of the prices wrong."""

CRITICAL_FROM = 2.0
"""theta2 from which a job counts as time-critical; the paper's classes lie at 0, up to 1, and from 4 on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperSize:
    """How large the evaluation is.

    Parameters
    ----------
    middle
        The instance that every sweep passes through.
    job_factors, slot_factors
        Steps of F1 and F2, as factors of the middle's number of jobs and slots.
    critical_shares
        Steps of F3: per cent of the jobs that are time-critical; a tenth is insensitive.
    num_tiny
        How many tiny instances F4 has for each seed.
    time_limit_s
        Limit of one solve in seconds.
    options
        Options by solver that differ from its own defaults.
    """

    middle: GeneratorOptions
    job_factors: tuple[float, ...]
    slot_factors: tuple[float, ...]
    critical_shares: tuple[int, ...]
    num_tiny: int
    time_limit_s: float
    options: Mapping[str, Mapping[str, Any]]


SIZES: Mapping[str, PaperSize] = MappingProxyType(
    {
        SMALL: PaperSize(
            middle=GeneratorOptions(num_jobs=30, num_slots=24, num_worker_servers=20, num_ps_servers=20),
            job_factors=(0.5, 1.0, 2.0),
            slot_factors=(0.5, 1.0, 2.0),
            critical_shares=(0, 35, 70),
            num_tiny=6,
            time_limit_s=5.0,
            options={BOUND: {"tol": BOUND_TOL}, "dorm": {"relative_gap": 0.1, "most_waiting": 5}},
        ),
        FULL: PaperSize(
            middle=GeneratorOptions(num_jobs=200, num_slots=100, num_worker_servers=50, num_ps_servers=50),
            job_factors=(0.25, 0.5, 0.75, 1.0, 1.25, 1.5),
            slot_factors=(1.0, 1.5, 2.0, 2.5, 3.0),
            critical_shares=(0, 15, 35, 55, 75, 90),
            num_tiny=60,
            time_limit_s=60.0,
            options={BOUND: {"tol": BOUND_TOL}},
        ),
    }
)


@dataclass(frozen=True, kw_only=True)
class PaperWork(SolveWork):
    """Solve an instance and note how late each class of jobs was beside its target."""

    def attempt(self, stop: StoppingCriterion, progress: Progress) -> tuple[Solution, Record]:
        """Solve and verify; the record's load tells the lateness, too."""
        solution, record = super().attempt(stop, progress)
        if record.load is None or solution.decision is None:
            return solution, record
        late = lateness(self.subject.instance, solution.decision)
        return solution, replace(record, load={**record.load, "lateness": late})


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One point of a figure: an instance, who solves it, with which options, and the marks that place it."""

    source: GeneratedSource
    seed: int
    solvers: tuple[str, ...]
    labels: Mapping[str, Any]
    options: Mapping[str, Any] = field(default_factory=dict)


def lateness(instance: AdmissionInstance, plan: AdmissionPlan) -> dict[str, list[float]]:
    """Return completion less arrival less target delay of the admitted jobs, in slots, by class of utility."""
    result: dict[str, list[float]] = {"insensitive": [], "sensitive": [], "critical": []}
    for job, completion in zip(plan.admitted.tolist(), plan.completion.tolist(), strict=True):
        utility = instance.jobs.utilities[job]
        if isinstance(utility, SigmoidUtility):
            result[utility_class(utility)].append(completion - int(instance.jobs.arrival[job]) - utility.theta3)
    return result


def utility_class(utility: SigmoidUtility) -> str:
    """Return the paper's class of a utility by its urgency."""
    if utility.theta2 == 0:
        return "insensitive"
    return "critical" if utility.theta2 >= CRITICAL_FROM else "sensitive"


def build(request: BenchRequest) -> Iterator[AbstractWork | Skipped]:
    """Yield the work of all figures.

    Raises
    ------
    InvalidOptionError
        If a solver or an option is unknown, or an instance is given that isn't generated.
    """
    size = _size(request)
    subjects: dict[tuple[GeneratorOptions, int], Subject] = {}
    limit = size.time_limit_s if request.time_limit_s is None else request.time_limit_s
    for point in _points(size, request.seeds):
        names = [name for name in point.solvers if request.solvers is None or name in request.solvers]
        given = options_for(PROBLEM, request.solvers or RIVALS, request.options)
        key = (point.source.options, point.seed)
        if names and key not in subjects:
            subjects[key] = Subject(point.source.load(point.seed))
        for name in names:
            yield solve_or_skip(
                PaperWork,
                suite=SPEC.name,
                subject=subjects[key],
                solver=name,
                seed=point.seed,
                time_limit_s=limit,
                options={**size.options.get(name, {}), **given.get(name, {}), **point.options},
                labels=point.labels,
            )


def _size(request: BenchRequest) -> PaperSize:
    """Return the size asked for, around the user's own generated instance if there is one."""
    size = SIZES[request.size]
    if request.sources is None:
        return size
    if len(request.sources) != 1 or not isinstance(request.sources[0], GeneratedSource):
        raise InvalidOptionError(
            "suite 'paper' varies a generated instance; give its sizes (such as --jobs) instead of files or traces"
        )
    return replace(size, middle=request.sources[0].options)


def _points(size: PaperSize, seeds: tuple[int, ...]) -> Iterator[Point]:
    for seed in seeds:
        yield from _sweeps(size, seed)
        yield from _tiny(size, seed)
        yield from _wrong_constants(size, seed)


def _sweeps(size: PaperSize, seed: int) -> Iterator[Point]:
    """Yield F1, F2 and F3; the instance in the middle belongs to all three and comes once."""
    middle = size.middle
    steps = [replace(middle, num_jobs=max(1, round(factor * middle.num_jobs))) for factor in size.job_factors]
    steps += [replace(middle, num_slots=max(1, round(factor * middle.num_slots))) for factor in size.slot_factors]
    steps += [replace(middle, utilities=_mix(share)) for share in size.critical_shares]
    for options in dict.fromkeys(steps):
        labels = {
            "figure": "sweep",
            "jobs": options.num_jobs,
            "slots": options.num_slots,
            "critical": round(100 * options.utilities.critical / _weight(options.utilities), 3),
        }
        yield Point(source=GeneratedSource(options=options), seed=seed, solvers=RIVALS, labels=labels)


def _mix(critical: int) -> UtilityMix:
    """Return the paper's mix with another share of time-critical jobs, in per cent."""
    return UtilityMix(insensitive=10.0, sensitive=90.0 - critical, critical=float(critical))


def _weight(mix: UtilityMix) -> float:
    return mix.insensitive + mix.sensitive + mix.critical


def _tiny(size: PaperSize, seed: int) -> Iterator[Point]:
    """Yield F4."""
    known = {solver.name for solver in solvers_of(PROBLEM)}
    exact = next(name for name in EXACT if name in known)
    source = GeneratedSource(options=TINY)
    for k in range(size.num_tiny):
        yield Point(source=source, seed=seed * size.num_tiny + k, solvers=("online", exact), labels={"figure": "tiny"})


def _wrong_constants(size: PaperSize, seed: int) -> Iterator[Point]:
    """Yield F5."""
    source = GeneratedSource(options=size.middle)
    for price in ("zero-start", "exponential"):
        for name, constant in (("upper_scale", "U"), ("lower_scale", "lower scale")):
            for scale in SCALES:
                yield Point(
                    source=source,
                    seed=seed,
                    solvers=("online",),
                    labels={"figure": "constants", "price": price, "constant": constant, "factor": scale},
                    options={"price": price, name: scale},
                )


SPEC = register_suite(
    BenchSpec(
        name="paper",
        problem=PROBLEM,
        summary="the paper's evaluation: utility against jobs, slots and urgency, optimum over online, wrong constants",
        build=build,
        sizes=(SMALL, FULL),
        takes_instances=True,
        columns=("figure", "jobs", "slots", "critical", "constant", "factor"),
        figures=draw,
    )
)
