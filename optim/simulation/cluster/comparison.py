"""Policies on the same jobs under the same rules: a row each, beside what no schedule could beat."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from optim.core.errors import InvalidOptionError
from optim.core.options import build_options
from optim.core.progress import Progress
from optim.core.stopping import Interruption
from optim.models.cluster.check import is_bounded, least_makespan, least_mean_completion, least_slowdown
from optim.models.cluster.metrics import Metrics, measure
from optim.models.cluster.run_file import LoggedRun, RunRecord
from optim.models.cluster.workload import Workload
from optim.models.cluster.world import Cluster
from optim.simulation.cluster.catalogue import label, make_policy
from optim.simulation.cluster.engine import Policy, play
from optim.simulation.cluster.options import EngineOptions
from optim.solvers.cluster.load_bounds import bound_makespan, bound_slowdown
from optim.solvers.cluster.price_bound import PriceBoundOptions, bound_mean_completion

HOUR_S = 3600.0


@dataclass(frozen=True, kw_only=True)
class Row:
    """What one policy came to.

    Parameters
    ----------
    policy, seed
        Who, from which seed.
    sees
        What of a job it sees that a real scheduler wouldn't; empty if nothing.
    metrics
        The figures.
    ratio_to_bound
        Mean completion time over what no schedule could beat; None without a bound, or where it doesn't hold for the policy.
    own
        What the policy says of itself by name: conflicts, refusals, rounds.
    """

    policy: str
    seed: int
    sees: str
    metrics: Metrics
    ratio_to_bound: float | None
    own: Mapping[str, float] = field(default_factory=dict)

    def flat(self) -> dict[str, Any]:
        """Return all fields at one level, for tables and JSON."""
        head = {"policy": self.policy, "seed": self.seed, "ratio_to_bound": self.ratio_to_bound, "sees": self.sees}
        return {**head, **asdict(self.metrics), **{f"{self.policy}.{name}": value for name, value in self.own.items()}}


def split_settings(
    settings: Mapping[str, str], names: Sequence[str], jobs: Workload
) -> tuple[EngineOptions, tuple[Policy, ...]]:
    """Build the engine's options and the policies from ``NAME=VALUE`` and ``POLICY.NAME=VALUE``; of a file POLICY is the class.

    Raises
    ------
    InvalidOptionError
        If a policy or an option is unknown, or an option names a policy that isn't played.
    """
    known = {each.name for each in fields(EngineOptions)}
    own: dict[str, dict[str, str]] = {label(name): {} for name in names}
    engine: dict[str, str] = {}
    for key, value in settings.items():
        policy, dot, name = key.partition(".")
        if not dot:
            if key not in known:
                raise InvalidOptionError(
                    f"unknown option {key[:40]!r}; the engine knows {', '.join(sorted(known))}, "
                    "a policy's own are written POLICY.NAME=VALUE"
                )
            engine[key] = value
        elif policy in own:
            own[policy][name] = value
        else:
            raise InvalidOptionError(f"option {key[:60]!r} is of a policy that isn't played: {', '.join(names)}")
    return build_options(EngineOptions, engine), tuple(make_policy(name, jobs, own[label(name)]) for name in names)


def bound(jobs: Workload, cluster: Cluster, steps: int, stop: Interruption | None = None) -> dict[str, Any]:
    """Return what no schedule of these jobs beats, as fields of a record: values by name, and their proofs."""
    _, prices = bound_mean_completion(jobs, cluster, PriceBoundOptions(steps=steps), stop)
    load, interval = bound_makespan(jobs, cluster), bound_slowdown(jobs, cluster)
    values = {
        "jct_mean_h": least_mean_completion(jobs, cluster, prices) / HOUR_S,
        "makespan_h": least_makespan(jobs, cluster, load) / HOUR_S,
        "slowdown_max": least_slowdown(jobs, cluster, interval),
    }
    return {"bounds": values, "prices": prices, "load": load, "interval": interval}


def compare(
    jobs: Workload,
    cluster: Cluster,
    policies: Sequence[Policy],
    options: EngineOptions,
    seed: int,
    record: RunRecord,
    progress: Progress,
    stop: Interruption,
) -> Iterator[tuple[Row, LoggedRun]]:
    """Play the policies one after the other until `stop` is requested; yield each row with its log as soon as it is there."""
    least = record.bounds.get("jct_mean_h")

    def watch(submitted: int) -> bool:
        progress.update(submitted)
        return stop.is_requested

    for policy in policies:
        progress.start(policy.name, len(jobs))
        run = None if stop.is_requested else play(jobs, cluster, policy, options, seed, watch)
        progress.finish()
        if run is None:
            return
        metrics = measure(jobs, cluster, run)
        ratio = metrics.jct_mean_h / least if least and is_bounded(jobs, run.rules) else None
        row = Row(
            policy=policy.name,
            seed=seed,
            sees=policy.needs,
            metrics=metrics,
            ratio_to_bound=ratio,
            own=run.figures,
        )
        logged = LoggedRun(policy=policy.name, log=run.log, metrics=metrics, rules=run.rules, figures=run.figures)
        yield row, logged
