"""The study `peers`: the exact solvers and `search` compared with HiGHS, SCIP and CP-SAT on drawn families of instances.

*Instances.* A family is a size: 16 jobs x 12 slots x 6 servers, 30 x 18 x 8 or 50 x 24 x 10, half of the servers for
workers. It is combined with a load: `light` jobs have at most 3 workers, `medium` jobs as many as the generator chooses for
this number of servers, `heavy` jobs about twice as many. If the seed is a multiple of three, workers and PSs share all
servers. Seeds 0 to 9 are for development, seeds 100 to 109 (`REPORTED_SEEDS`) for reports: no solver was developed on these.

*Limits.* Each limit is a separate run, so every objective is that of a checked plan. A limit counts wall-clock seconds.
With the option ``clock=processor`` it counts processor seconds of all threads, to compare solvers on a shared machine.
Building the peers' programme is not counted.

*Claims.* `proven` is an optimum whose certificate the independent checker accepts; `claimed` is a peer's claim of optimality for
a plan that the checker accepts. Both count as finished runs in the summary, in separate columns.

``optim bench admission --study peers`` runs it, and ``python -m optim_studies.peers FILE ...`` prints the summary of its
results files as tables in Markdown.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from optim.benchmarks.measuring import Meter
from optim.benchmarks.records import Record, outcome, provenance, read_records
from optim.benchmarks.report import colours_of, draw_factors
from optim.benchmarks.suite import FULL, SMALL, AbstractWork, BenchRequest, BenchSpec, Skipped, Subject, register_suite
from optim.benchmarks.summary import SECONDS_SHIFT, performance_profile, shifted_geometric_mean
from optim.core.errors import InvalidOptionError
from optim.core.options import build_options, options_as_dict
from optim.core.progress import Progress
from optim.core.provenance import package_versions
from optim.core.solution import PointStatus, Sense, Solution, Stats, Termination
from optim.core.stopping import AnyOf, StoppingCriterion, TimeLimit
from optim.models.admission.instance import AdmissionInstance
from optim.models.files import verify
from optim.report.plots import Figure, FigureList
from optim.solvers.solve import solve, solver_named, solver_names
from optim.workloads.admission.generator import GeneratorOptions, generate
from optim_studies.peer_solvers import PEERS, PeerAnswer, ProcessorLimit, solve_by_peer, why_missing

OURS = ("branch-and-price", "exact", "search")
"""Solvers of this package that take part; one that isn't registered is left out."""

SOLVERS = (*OURS, *PEERS)

SIZES: Mapping[str, tuple[int, int, int]] = MappingProxyType({"16": (16, 12, 3), "30": (30, 18, 4), "50": (50, 24, 5)})
"""Families by their number of jobs: jobs, slots, and servers per side."""

LOADS = ("light", "medium", "heavy")

CLOCKS = ("wall", "processor")

REPORTED_SEEDS = range(100, 110)

REFERENCES = tuple(f"{load}-{number}" for load in ("small", *LOADS) for number in range(3))
"""Additional reference instances for the comparison: ``--instance light-0,...``."""

LEAST_S = 1e-2
"""Minimum seconds in profiles; shorter times are clock noise."""

VALUE_TOL = 1e-6
"""Relative tolerance for equal objectives: the gap at which peers stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerOptions:
    """Options of the study; lists are separated by commas.

    Parameters
    ----------
    families
        Families by their numbers of jobs.
    loads
        Loads of the families.
    limits
        Seconds of each run's limit, unless ``--time-limit`` states one.
    clock
        Seconds that a limit counts: ``wall`` or ``processor``.
    threads
        Threads of each peer; SCIP runs on one.
    """

    families: str = "16,30,50"
    loads: str = "light,medium,heavy"
    limits: str = "10,60,300"
    clock: str = "wall"
    threads: int = 2

    def __post_init__(self) -> None:
        _listed("families", self.families, tuple(SIZES))
        _listed("loads", self.loads, LOADS)
        if not self.seconds or not all(0 < limit < float("inf") for limit in self.seconds):
            raise InvalidOptionError(f"limits must be positive seconds, separated by commas, got {self.limits!r}")
        if self.clock not in CLOCKS or not 1 <= self.threads <= 64:
            raise InvalidOptionError(
                f"clock must be wall or processor and threads 1 to 64, got {self.clock!r} and {self.threads}"
            )

    @property
    def seconds(self) -> tuple[float, ...]:
        """The limits as numbers; empty if one of them isn't a number."""
        try:
            return tuple(float(text) for text in self.limits.split(","))
        except ValueError:
            return ()


def _listed(name: str, text: str, known: Sequence[str]) -> tuple[str, ...]:
    """Return the names of a list that is separated by commas; each must be in `known`."""
    names = tuple(part.strip() for part in text.split(","))
    for part in names:
        if part not in known:
            raise InvalidOptionError(f"{name} must be among {', '.join(known)}, got {part!r}")
    return names


def family_options(family: str, load: str, seed: int) -> GeneratorOptions:
    """Return the generator's options of a family at a load, with shared servers if the seed is a multiple of three."""
    jobs, slots, side = SIZES[family]
    chunks = {"light": (1, 3), "medium": (side, side**2), "heavy": (2 * side, 2 * side**2)}[load]
    return GeneratorOptions(
        num_jobs=jobs,
        num_slots=slots,
        num_worker_servers=side,
        num_ps_servers=side,
        chunks=chunks,
        shared_servers=seed % 3 == 0,
    )


def family_instance(family: str, load: str, seed: int) -> AdmissionInstance:
    """Draw an instance of a family."""
    return replace(generate(family_options(family, load, seed), seed), name=f"{family}-{load}-{seed}")


@dataclass(frozen=True, kw_only=True)
class PeerWork(AbstractWork):
    """Solve an instance within a limit by a solver of this package or by a peer, and verify the plan."""

    subject: Subject

    def resolved_options(self) -> dict[str, Any]:
        """Return the options that a run depends on: the type of clock, and a peer's threads."""
        return dict(self.options)

    def run(self, stop: StoppingCriterion, progress: Progress) -> Record:
        """Solve and verify."""
        begin = self._by_peer if self.solver in PEERS else self._by_ours
        solution, costs, measures = begin(stop, progress)
        verification = verify(self.subject.instance, solution)
        return Record(
            **self.identity(),
            **outcome(solution, verification, 0.0),
            **provenance(),
            **costs,
            measures={**measures, "end": self._end(solution, bool(measures.get("claims_optimal")), verification.is_ok)},
        )

    def _end(self, solution: Solution, claims_optimal: bool, is_ok: bool) -> str:
        """Return the outcome of the run, as one word."""
        if not is_ok:
            return "refused"
        if solution.termination is Termination.OPTIMAL:
            return "proven"
        return "claimed" if claims_optimal else "open"

    def _limit(self) -> StoppingCriterion:
        """Return the stopping rule of the limit, which starts now."""
        limit_s = float(self.time_limit_s or 0.0)
        return ProcessorLimit.of(limit_s) if self.options["clock"] == "processor" else TimeLimit(limit_s)

    def _by_ours(self, stop: StoppingCriterion, progress: Progress) -> tuple[Solution, dict[str, Any], dict[str, Any]]:
        instance = self.subject.instance
        solver: Any = solver_named(self.subject.topic, self.solver)
        solver.warm_up(instance, build_options(solver.options_type, None))
        with Meter() as meter:
            solution = solve(instance, self.solver, stop=AnyOf(stop, self._limit()), seed=self.seed, progress=progress)
        return solution, meter.figures, {}

    def _by_peer(self, stop: StoppingCriterion, progress: Progress) -> tuple[Solution, dict[str, Any], dict[str, Any]]:
        del progress
        instance = self.subject.instance
        with Meter() as meter:
            answer = solve_by_peer(
                self.solver,
                instance,
                lambda: AnyOf(stop, self._limit()),
                threads=int(self.options["threads"]),
                seed=self.seed,
            )
        costs = {**meter.figures, "processor_s": answer.processor_s, "wall_s": answer.wall_s}
        measures = {
            "claims_optimal": answer.claims_optimal,
            "claimed_bound": answer.claimed_bound,
            "variables": answer.num_variables,
            "on_classes": answer.on_classes,
            "peer": answer.version,
        }
        return self._solution(answer), costs, measures

    def _solution(self, answer: PeerAnswer) -> Solution:
        """Return a solution that claims only a peer's plan and the plan's value, which the checker computes again."""
        return Solution(
            problem=self.subject.topic,
            instance=self.subject.name,
            solver=self.solver,
            sense=Sense.MAXIMISE,
            termination=answer.termination,
            primal=PointStatus.FEASIBLE,
            decision=answer.plan,
            objective=answer.plan.objective(self.subject.instance),
            seed=self.seed,
            versions=package_versions(),
            stats=Stats(seconds={"build": answer.build_s, "solve": answer.wall_s}, iterations=0),
        )


def build(request: BenchRequest) -> Iterator[AbstractWork | Skipped]:
    """Yield each instance at each limit with each solver, for each seed; a missing solver is skipped with the reason.

    Raises
    ------
    InvalidOptionError
        If a solver or an option is unknown or out of range.
    """
    usual = PeerOptions(families="16", loads="light", limits="2") if request.size == SMALL else PeerOptions()
    options = build_options(PeerOptions, {**options_as_dict(usual), **request.options})
    known = set(solver_names("admission"))
    for name in request.solvers or ():
        if name not in PEERS and name not in known:
            raise InvalidOptionError(f"suite 'peers' doesn't know {name!r}; there are: {', '.join(SOLVERS)}")
    limits = options.seconds if request.time_limit_s is None else (request.time_limit_s,)
    for seed in request.seeds:
        for subject, labels in _subjects(request, options, seed):
            for limit_s in limits:
                for name in request.solvers or SOLVERS:
                    reason = why_missing(name) if name in PEERS else None
                    if name not in PEERS and name not in known:
                        reason = "no solver of this name is registered"
                    if reason is not None:
                        yield Skipped(suite="peers", instance=subject.name, solver=name, reason=reason)
                        continue
                    threads = {"threads": options.threads} if name in PEERS else {}
                    yield PeerWork(
                        suite="peers",
                        subject=subject,
                        solver=name,
                        seed=seed,
                        time_limit_s=limit_s,
                        options={"clock": options.clock, **threads},
                        labels={**labels, "limit": limit_s},
                    )


def _subjects(request: BenchRequest, options: PeerOptions, seed: int) -> Iterator[tuple[Subject, Mapping[str, Any]]]:
    """Yield instances with their labels: the requested instances, or by default those of the families."""
    if request.sources is not None:
        for source in request.sources:
            subject = Subject(source.load(seed))
            yield subject, {"family": subject.name, "load": ""}
        return
    for family in _listed("families", options.families, tuple(SIZES)):
        for load in _listed("loads", options.loads, LOADS):
            yield Subject(family_instance(family, load, seed)), {"family": family, "load": load}


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Summary of a solver's runs on the instances of a family at a load within a limit.

    Parameters
    ----------
    family, load, limit_s, solver
        Family, load, limit in seconds, and name of the solver.
    instances
        Number of runs.
    proven, claimed
        Shares of the runs that ended with a certificate, and with only a peer's claim of optimality.
    seconds
        Shifted geometric mean of processor seconds; a run that didn't finish counts as the limit.
    to_best
        Mean ratio of the objective to the best objective of all solvers at any limit; a run without a plan counts as 0.
    behind
        Number of instances on which another solver's plan at the same limit is better.
    """

    family: str
    load: str
    limit_s: float
    solver: str
    instances: int
    proven: float
    claimed: float
    seconds: float
    to_best: float
    behind: int


def has_ended(record: Record) -> bool:
    """Return whether a run finished, with a proof or a claim of optimality."""
    return record.measures.get("end") in ("proven", "claimed")


def objective_of(record: Record) -> float:
    """Return the value of a checked plan; without a plan 0, the value of rejecting all jobs."""
    return record.objective if record.verified and record.objective is not None else 0.0


def standings(records: Iterable[Record]) -> list[Standing]:
    """Summarise the study's records by family, load, limit and solver."""
    mine = [record for record in records if record.suite == "peers"]
    best: dict[str, float] = {}
    best_at: dict[tuple[str, float], float] = {}
    cells: dict[tuple[str, str, float, str], list[Record]] = {}
    for record in mine:
        value, limit_s = objective_of(record), float(record.labels["limit"])
        best[record.instance] = max(value, best.get(record.instance, 0.0))
        best_at[record.instance, limit_s] = max(value, best_at.get((record.instance, limit_s), 0.0))
        cell = str(record.labels["family"]), str(record.labels["load"]), limit_s, record.solver
        cells.setdefault(cell, []).append(record)
    rows = []
    for (family, load, limit_s, solver), runs in cells.items():
        ratios = [objective_of(run) / best[run.instance] if best[run.instance] > 0 else 1.0 for run in runs]
        rows.append(
            Standing(
                family=family,
                load=load,
                limit_s=limit_s,
                solver=solver,
                instances=len(runs),
                proven=sum(run.measures.get("end") == "proven" for run in runs) / len(runs),
                claimed=sum(run.measures.get("end") == "claimed" for run in runs) / len(runs),
                seconds=shifted_geometric_mean(
                    [float(run.processor_s or 0.0) if has_ended(run) else limit_s for run in runs], SECONDS_SHIFT
                ),
                to_best=sum(ratios) / len(runs),
                behind=sum(objective_of(run) < (1.0 - VALUE_TOL) * best_at[run.instance, limit_s] for run in runs),
            )
        )
    order = {name: place for place, name in enumerate((*LOADS, *SOLVERS))}
    return sorted(rows, key=lambda row: (row.limit_s, row.family, order.get(row.load, 0), order.get(row.solver, 99)))


def markdown(rows: Sequence[Standing]) -> str:
    """Return a table of standings."""
    lines = [
        "| limit, s | family | load | solver | n | proven | claimed | seconds | objective / best | behind |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row.limit_s:g} | {row.family} | {row.load} | `{row.solver}` | {row.instances} | {row.proven:.0%} | {row.claimed:.0%} "
        f"| {row.seconds:.2f} | {row.to_best:.4f} | {row.behind} |"
        for row in rows
    ]
    return "\n".join(lines)


def ahead_of_ours(records: Iterable[Record]) -> list[str]:
    """Return a line per instance and limit at which a peer's plan is better than each of ours."""
    values: dict[tuple[str, float], dict[str, float]] = {}
    for record in records:
        if record.suite == "peers":
            values.setdefault((record.instance, float(record.labels["limit"])), {})[record.solver] = objective_of(
                record
            )
    lines = []
    for (instance, limit_s), by_solver in sorted(values.items()):
        ours = max((value for name, value in by_solver.items() if name not in PEERS), default=0.0)
        ahead = {name: value for name, value in by_solver.items() if name in PEERS and ours < (1.0 - VALUE_TOL) * value}
        if ahead:
            told = ", ".join(f"{name} {value:.6g}" for name, value in sorted(ahead.items()))
            lines.append(f"{instance} at {limit_s:g} s: {told}; ours {ours:.6g}")
    return lines


def draw(records: Sequence[Record]) -> list[Figure]:
    """Draw for each limit the share of instances that a solver finishes, by processor seconds relative to the fastest."""
    gallery = FigureList()
    limits = sorted({float(record.labels["limit"]) for record in records})
    colours = colours_of(records)
    profiles = [
        (limit_s, _profile([each for each in records if each.labels["limit"] == limit_s])) for limit_s in limits
    ]
    drawn = [(limit_s, profile) for limit_s, profile in profiles if profile]
    if not drawn:
        return gallery
    caption = (
        "Percentage of instances that a solver finished, by processor seconds relative to the fastest solver. An instance counts "
        "if any solver finished it within the limit, with a proof or a peer's claim."
    )
    with gallery.picture(
        "peers", "Processor seconds to the end", caption, 4.2 * len(drawn) + 1, 3.4, 1, len(drawn)
    ) as panels:
        for panel, (limit_s, profile) in zip(panels, drawn, strict=True):
            draw_factors(panel, profile, colours)
            panel.set(ylim=(0, 104), title=f"{limit_s:g} s")
            panel.set_xlabel("seconds / least seconds, at most", fontsize=9)
        panels[0].set_ylabel("per cent of instances")
        panels[-1].legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    return gallery


def _profile(records: Sequence[Record]) -> Mapping[str, Any]:
    """Return the performance profile of processor seconds over the instances that any solver finished."""
    costs: dict[str, dict[tuple[str, int], float]] = {record.solver: {} for record in records}
    for record in records:
        if has_ended(record):
            costs[record.solver][record.instance, record.seed] = max(LEAST_S, float(record.processor_s or 0.0))
    cases = sorted({case for mine in costs.values() for case in mine})
    if not cases:
        return {}
    return performance_profile({name: [costs[name].get(case) for case in cases] for name in sorted(costs)})


SPEC = register_suite(
    BenchSpec(
        name="peers",
        problem="admission",
        summary="exact solvers and search compared with HiGHS, SCIP and CP-SAT on families of instances",
        build=build,
        sizes=(SMALL, FULL),
        takes_instances=True,
        columns=("family", "load", "limit", "end"),
        figures=draw,
    )
)


if __name__ == "__main__":
    found = [record for name in sys.argv[1:] for record in read_records(Path(name))]
    sys.stdout.write(markdown(standings(found)) + "\n\n")
    sys.stdout.write("Peers ahead of ours:\n" + ("\n".join(ahead_of_ours(found)) or "none") + "\n")
