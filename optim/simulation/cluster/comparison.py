"""Comparison of policies on the same jobs, one row per policy, with lower bounds over all schedules."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from optim.core.errors import InvalidOptionError, InvalidProblemError, unknown_name
from optim.core.options import build_options
from optim.core.progress import Progress
from optim.core.stopping import Interruption, SolveState, StoppingCriterion
from optim.core.user_code import user_code_digest
from optim.execution import AbstractTask, Engine, in_order
from optim.models.cluster.check import is_bounded, max_by_prices, min_makespan, min_mean_completion, min_slowdown
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.log import Run
from optim.models.cluster.metrics import Metrics, measure
from optim.models.cluster.policy_names import name_error
from optim.models.cluster.present import Present
from optim.models.cluster.rules import Rules
from optim.models.cluster.run_file import LENGTH, LoggedRun, digest_of
from optim.models.cluster.workload import US, Workload
from optim.simulation.cluster.catalogue import label, make_policy, options_of, own_file
from optim.simulation.cluster.engine import Policy, check_support, simulate
from optim.simulation.cluster.index.policy import IndexPolicy
from optim.simulation.cluster.options import EngineOptions, Preempted
from optim.simulation.cluster.planning.index_adapter import IndexPolicyAdapter
from optim.simulation.cluster.planning.policy import PlanningPolicy
from optim.solvers.cluster.load_bounds import bound_makespan, bound_slowdown
from optim.solvers.cluster.price_bound import PriceBoundOptions, bound_mean_completion

HOUR_S = 3600.0
TURNS = {"quantum_s": US, "round_s": US, "lease_min": 60 * US}
"""Options that set how long a job keeps its GPUs before other jobs may take them, with the unit of each in microseconds."""

FIGURES = [each.name for each in (*fields(Metrics), *fields(Rules))]
"""Fields of a row; stored rows with other fields are simulated again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRequest:
    """A user's request for a policy: its name, and its options as text."""

    name: str
    options: tuple[tuple[str, Any], ...] = ()

    def build(self, jobs: Workload) -> Policy:
        """Return the policy.

        Raises
        ------
        InvalidOptionError
            If the policy or one of its options is unknown.
        """
        return make_policy(self.name, jobs, dict(self.options))


@dataclass(frozen=True, kw_only=True)
class Row:
    """Results of one policy.

    Parameters
    ----------
    policy, seed
        Name of the policy, and random seed.
    oracle_inputs
        Information about jobs that the policy uses and a real scheduler lacks; empty if none.
    queue
        "strict" if a job without enough free GPUs blocks all later jobs, "backfill" if later jobs may pass it; None for
        policies that don't serve jobs in an order.
    metrics
        Metrics of the run.
    ratio_to_bound
        Mean completion time divided by its lower bound. None without a bound, if the bound does not apply to the
        policy, or if a job was unfinished: the bound covers all jobs.
    makespan_ratio_to_bound
        Makespan divided by its lower bound; None in the cases in which `ratio_to_bound` is None.
    own
        Counters that the policy reports, by name: conflicts, rejections, rounds.
    halted
        Reason why the engine ended the run with unfinished jobs; empty if all jobs ended.
    """

    policy: str
    seed: int
    oracle_inputs: str
    queue: str | None
    metrics: Metrics
    ratio_to_bound: float | None
    makespan_ratio_to_bound: float | None = None
    own: Mapping[str, float] = field(default_factory=dict)
    halted: str = ""

    def flat(self) -> dict[str, Any]:
        """Return all fields at one level, for tables and JSON."""
        head = {
            "policy": self.policy,
            "seed": self.seed,
            "ratio_to_bound": self.ratio_to_bound,
            "makespan_ratio_to_bound": self.makespan_ratio_to_bound,
            "oracle_inputs": self.oracle_inputs,
        }
        head["queue"] = self.queue
        if self.halted:
            head["halted"] = self.halted
        return {**head, **asdict(self.metrics), **{f"{self.policy}.{name}": value for name, value in self.own.items()}}


@dataclass(frozen=True, kw_only=True, eq=False)
class SimulationResult:
    """A policy's row and event log."""

    row: Row
    logged: LoggedRun


def split_settings(
    settings: Mapping[str, Any], names: Sequence[str]
) -> tuple[EngineOptions, tuple[PolicyRequest, ...]]:
    """Split ``NAME=VALUE`` and ``POLICY.NAME=VALUE`` into engine options and policy requests.

    For a user's file, POLICY is the class name. A NAME that is not an engine option applies to all policies that have
    an option of this name; a setting for a single policy takes precedence.

    Raises
    ------
    InvalidOptionError
        If an option is unknown, an option names a policy outside the comparison, or a policy is named twice.
    """
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InvalidOptionError(f"policy {twice[0][:40]!r} is named twice; name it once")

    known = {each.name for each in fields(EngineOptions)}
    own: dict[str, dict[str, Any]] = {label(name): {} for name in names}
    engine: dict[str, Any] = {}
    for key, value in sorted(settings.items(), key=lambda pair: "." not in pair[0]):
        policy, dot, name = key.partition(".")
        if not dot:
            if key in known:
                engine[key] = value
                continue
            having = [each for each in names if key in {field.name for field in fields(options_of(each))}]
            if not having:
                of_policies = {field.name for each in names for field in fields(options_of(each))}
                engine_and_policies = " (of the engine and of these policies; `optim solvers cluster` lists them)"
                raise unknown_name("option", key, sorted(known | of_policies), engine_and_policies)
            for each in having:
                own[label(each)].setdefault(key, value)
        elif policy in own:
            own[policy][name] = value
        elif any(policy in each.split("+")[:-1] for each in names):
            for each in names:
                own[label(each)].update({key: value} if policy in each.split("+")[:-1] else {})
        else:
            raise InvalidOptionError(
                f"option {key[:60]!r} names a policy that is not simulated; simulated: {', '.join(names)}"
            )
    requests = tuple(PolicyRequest(name=name, options=tuple(sorted(own[label(name)].items()))) for name in names)
    return build_options(EngineOptions, engine), requests


def queue_of(policy: Policy) -> str | None:
    """Return "strict" or "backfill" for a policy (see `Row.queue`); None for policies that don't serve jobs in an order."""
    inner = policy
    while not isinstance(inner, IndexPolicy) and hasattr(inner, "inner"):
        inner = inner.inner
    if isinstance(inner, IndexPolicyAdapter):
        inner = inner.policy
    passes = getattr(inner, "backfill", getattr(getattr(inner, "options", None), "backfill", None))
    return None if passes is None else "backfill" if passes else "strict"


def bound(
    jobs: Workload, cluster: Cluster, steps: int, stop: Interruption | None = None, progress: Progress | None = None
) -> dict[str, Any]:
    """Return lower bounds over all schedules of these jobs, with their proofs, as fields of a record."""
    found = bound_mean_completion(jobs, cluster, PriceBoundOptions(steps=steps), stop, progress)
    load, interval = bound_makespan(jobs, cluster), bound_slowdown(jobs, cluster)
    values = {
        "jct_mean_h": min_mean_completion(jobs, cluster, found.proof) / HOUR_S,
        "makespan_h": min_makespan(jobs, cluster, load) / HOUR_S,
        "slowdown_max": min_slowdown(jobs, cluster, interval),
    }
    claims = {"bounds": values, "prices": found.proof, "load": load, "interval": interval}
    try:
        limit = {
            "price_bound_limit_h": max_by_prices(jobs, cluster, found.schedule) / HOUR_S,
            "divisible": found.schedule,
        }
    except InvalidProblemError:  # the proof is too large for the checker's limits: report no bounds
        limit = {}
    return claims | limit


def _content(value: Any) -> Any:
    """Return a digest of the file that a value names, or the value itself if it names no file."""
    if not isinstance(value, str | Path):
        return value
    try:
        with Path(value).open("rb") as file:
            return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
    except (OSError, ValueError):
        return str(value)


class Comparison(AbstractTask[PolicyRequest, SimulationResult | None]):
    """Simulate policies on one workload; the result is None for an interrupted policy.

    Parameters
    ----------
    jobs, cluster, options, seed
        Workload, cluster, engine options and random seed.
    least_jct_h, least_makespan_h
        Lower bounds on mean completion time and makespan in hours; None without bounds.
    present
        Common initial state of all runs; None for an empty cluster.
    """

    def __init__(
        self,
        jobs: Workload,
        cluster: Cluster,
        options: EngineOptions,
        seed: int,
        least_jct_h: float | None = None,
        present: Present | None = None,
    ) -> None:
        self.jobs, self.cluster, self.options, self.seed = jobs, cluster, options, seed
        self.least_jct_h, self.present = least_jct_h, present
        self.least_makespan_h: float | None = None

    @property
    def title(self) -> str:
        """Label for progress display."""
        return "policies"

    def name(self, piece: PolicyRequest) -> str:
        """Return the policy's name."""
        return piece.name

    def check(self, requests: Sequence[PolicyRequest]) -> None:
        """Check that all policies can be simulated, before the first run.

        Raises
        ------
        InvalidOptionError
            If a policy or an option is unknown, or two user policies share a name.
        UnsupportedProblemError
            If a policy does not support these jobs on this cluster.
        """
        policies = [request.build(self.jobs) for request in requests]
        for policy in policies:
            check_support(policy, self.jobs, self.cluster, self.options)
        if why := name_error([policy.name for policy in policies]):
            raise InvalidOptionError(f"policy {why}; set another `name` in its class")

    def warnings(self, requests: Sequence[PolicyRequest]) -> list[str]:
        """Return warnings about jobs that may never end, because their turns are too short to reach the next checkpoint."""
        min_us = self.options.preempt_checkpoint_us
        said = []
        for request in requests if min_us else ():
            policy = request.build(self.jobs)
            quantum_us = getattr(policy, "quantum_us", 0)
            options = getattr(policy, "options", None)
            for name, unit in TURNS.items():
                quantum_us = quantum_us or round(getattr(options, name, 0) * unit)
            restart_us = self.options.overhead_us
            if isinstance(policy, PlanningPolicy):
                restart_us = policy.rules(self.options).restart_us
            work_us = quantum_us - restart_us
            if quantum_us > 0 and work_us < min_us:
                minutes = quantum_us / US / 60
                if self.options.preempted is Preempted.RESTART:
                    said.append(
                        f"{request.name} gives turns of {minutes:g} min, and stopped jobs lose all their work: longer "
                        f"jobs that take turns may never complete; choose preempted=checkpoint, or longer turns"
                    )
                    continue
                remedy = (
                    f"set checkpoint_min={work_us / US / 60:g} or less, or longer turns"
                    if work_us > 0
                    else "set longer turns"
                )
                said.append(
                    f"{request.name} gives turns of {minutes:g} min, too short to reach the next checkpoint (one "
                    f"every {min_us / US / 60:g} min, after {restart_us / US:g} s of restart): jobs that take turns "
                    f"may never complete; {remedy}"
                )
        return said

    def notes(self, requests: Sequence[PolicyRequest]) -> list[str]:
        """Return the policies' notes on the files that their options name, without repetition."""
        return list(
            dict.fromkeys(line for request in requests for line in getattr(request.build(self.jobs), "notes", ()))
        )

    def do(self, piece: PolicyRequest, stop: StoppingCriterion, progress: Progress) -> SimulationResult | None:
        """Simulate a policy."""
        policy = piece.build(self.jobs)
        progress.start("jobs submitted", len(self.jobs))

        def watch(submitted: int) -> bool:
            progress.update(submitted)
            return stop(SolveState(elapsed_s=0.0)) is not None

        run = simulate(self.jobs, self.cluster, policy, self.options, self.seed, watch, self.present)
        progress.finish()
        return None if run is None else self.measured(policy.needs, run, queue_of(policy))

    def measured(self, oracle_inputs: str, run: Run, queue: str | None = None) -> SimulationResult:
        """Return a run's row and events."""
        metrics = measure(self.jobs, self.cluster, run)
        is_comparable = is_bounded(self.jobs, run)
        row = Row(
            policy=run.policy,
            seed=self.seed,
            oracle_inputs=oracle_inputs,
            queue=queue,
            metrics=metrics,
            ratio_to_bound=metrics.jct_mean_h / self.least_jct_h if self.least_jct_h and is_comparable else None,
            makespan_ratio_to_bound=metrics.makespan_h / self.least_makespan_h
            if self.least_makespan_h and is_comparable
            else None,
            own=run.figures,
            halted=run.halted,
        )
        logged = LoggedRun(
            policy=run.policy, log=run.log, metrics=metrics, rules=run.rules, figures=run.figures, worth=run.worth
        )
        return SimulationResult(row=row, logged=logged)

    def play(
        self, requests: Sequence[PolicyRequest], engine: Engine, stop: Interruption, progress: Progress
    ) -> Iterator[SimulationResult | None]:
        """Yield the result of each policy in order; None if `stop` interrupted it or prevented its start."""
        running = engine.run(self, requests, stop, progress)
        finished = in_order((position, (position, played)) for position, played in running)
        upcoming = next(finished, None)
        for position in range(len(requests)):
            if upcoming is None or upcoming[0] != position:
                yield None
                continue
            yield upcoming[1]
            upcoming = next(finished, None)

    def key(self, request: PolicyRequest) -> str:
        """Return a digest of jobs, cluster and everything else that a policy's run depends on.

        The digest covers the content of files: a user's policy with its imports from the same folder, and files named by
        options.
        """
        names = [getattr(self.jobs, names) for names in ("groups", "reasons")]
        options = [(name, _content(value)) for name, value in request.options]
        own = own_file(request.name)
        said = [
            asdict(self.options),
            self.seed,
            self.least_jct_h,
            request.name,
            options,
            names,
            own and user_code_digest(own),
            FIGURES,
            *([] if self.present is None else [self.present.now_us, str(self.present.starts.rows())]),
        ]
        rest = hashlib.sha256(json.dumps(said).encode()).hexdigest()
        return f"{request.name}:{digest_of(self.jobs, self.cluster)}{rest[:LENGTH]}"
