"""The LP optimum of the packing form by column generation: an upper bound with its proof, no plan."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from optim.core.driver import Monitor, Outcome
from optim.core.errors import InvalidOptionError, check_in
from optim.core.registry import register
from optim.core.solution import Termination
from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.online import default_run
from optim.solvers.admission.packing.capacity_rows import CapacityRows, plan_schedules
from optim.solvers.admission.packing.packing_lp import PackingLP, PackingResult, is_large
from optim.solvers.admission.packing.subgradient import SubgradientOptions
from optim.solvers.admission.pricing.classes import JobTables
from optim.solvers.admission.scaling import ScaledSolver
from optim.solvers.admission.warm_up import compile_columns, compile_first_order, compile_online, has_large_master

if TYPE_CHECKING:
    from optim.execution.tasks import WorkerPool
    from optim.solvers.admission.pricing.sharded_pricing import CrewPricer

WALKS = SubgradientOptions(num_steps=150, add_every=4), SubgradientOptions(num_steps=10)
WALKS_OF_LARGE = SubgradientOptions(num_steps=16, add_every=2), SubgradientOptions(num_steps=0)
"""Subgradient options of small and of large instances: before the first master, and after each master."""

AT_GAP_LIMIT = (
    "the gap between the linear programme's bound and its fractional solution is within the gap limit; there is no plan"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnGenerationOptions:
    """Options of `column-generation`.

    Parameters
    ----------
    tol
        Relative gap (bound - master) / master at which the LP counts as solved.
    first_steps
        Polyak steps before the first master. Default: 150, of which every fourth adds columns. Above 4,096 rows (class,
        slot and resource) masters cost less than pricing, and the default is 16, of which every second adds columns.
    steps_between
        Polyak steps after each master. Default: 10, and 0 above 4,096 rows.
    warm_start
        Whether to start with the schedules of an `online` run.
    engine
        Where to price the jobs: ``auto`` (``threads`` above 4,096 rows, else ``here``), ``here`` (one thread), ``threads``
        (job shards on all cores), ``dask`` (a local Dask cluster of `workers` workers), or the address of a Dask
        scheduler. All give the same bound except ``here``, which rounds sums in another order.
    workers
        Number of workers of the local Dask cluster, at most 1,000.
    """

    tol: float = 1e-6
    first_steps: int | None = None
    steps_between: int | None = None
    warm_start: bool = True
    engine: str = "auto"
    workers: int = 2

    def __post_init__(self) -> None:
        check_in("(0, 1)", self, "tol")
        if self.first_steps is not None:
            check_in("[1, inf)", self, "first_steps")
        if self.steps_between is not None:
            check_in("[0, inf)", self, "steps_between")
        check_in("[1, 1000]", self, "workers")
        if self.engine not in ("auto", "here", "threads", "dask") and "://" not in self.engine:
            raise InvalidOptionError(
                f"engine must be 'auto', 'here', 'threads', 'dask' or a scheduler's address (tcp://HOST:PORT), got {self.engine!r}"
            )


@register("column-generation", problem="admission")
class ColumnGeneration(ScaledSolver[ColumnGenerationOptions]):
    """Bound the optimum by the packing LP over server classes; its pricing problem is the best schedule."""

    summary = "LP optimum of the packing form: a bound with its proof, no plan"
    options_type = ColumnGenerationOptions

    def warm_up(self, instance: AdmissionInstance, options: ColumnGenerationOptions) -> None:
        """Compile pricing and the master, and the online rule if it gives the first columns."""
        compile_columns(is_shared=instance.has_shared_servers)
        if has_large_master(instance):
            compile_first_order()
        if options.warm_start:
            compile_online(is_shared=instance.has_shared_servers)

    def run(
        self, instance: AdmissionInstance, options: ColumnGenerationOptions, monitor: Monitor, seed: int
    ) -> Outcome:
        """Solve the LP; the outcome has a bound and no objective, since a fractional value is not attained."""
        with monitor.clock.phase("build"):
            tables = JobTables.build(instance)
            rows = CapacityRows.of(tables)
        with monitor.clock.phase("solve"), crew_pricer(tables, rows, options) as pricer:
            result = solve_packing_lp(tables, rows, options, monitor, pricer)
        outcome = result.outcome()
        return replace(
            outcome,
            termination=result.termination,
            counts={**outcome.counts, **result.steps(), **result.load()},
            relaxation=result.relaxation(),
            message=AT_GAP_LIMIT if result.termination is Termination.GAP_LIMIT else "",
        )


@contextmanager
def crew_pricer(
    tables: JobTables, rows: CapacityRows, options: ColumnGenerationOptions
) -> "Iterator[CrewPricer | None]":
    """Yield a pricer with the worker pool of `options.engine`; None if this process prices the jobs."""
    is_here = options.engine == "here" or (options.engine == "auto" and not is_large(rows.capacity))
    if is_here:
        yield None
        return
    from optim.execution import load_dask
    from optim.execution.tasks import ThreadCrew
    from optim.solvers.admission.pricing.sharded_pricing import CrewPricer, JobShards

    post = JobShards.of(tables.instance)
    with ExitStack() as opened:
        crew: WorkerPool
        if options.engine in ("auto", "threads"):
            crew = opened.enter_context(ThreadCrew(post.laid_out(tables, rows)))
        else:
            scheduler = None if options.engine == "dask" else options.engine
            engine = opened.enter_context(load_dask().dask_cluster(scheduler, options.workers))
            crew = opened.enter_context(engine.crew(post))
        yield CrewPricer(crew, tables, post.num_shards)


def solve_packing_lp(
    tables: JobTables,
    rows: CapacityRows,
    options: ColumnGenerationOptions,
    monitor: Monitor,
    pricer: "CrewPricer | None" = None,
) -> PackingResult:
    """Solve the packing LP with the options; `pricer` prices the jobs with a worker pool."""
    programme = PackingLP(tables, rows)
    programme.search.pricer = pricer
    if options.warm_start:
        with monitor.clock.phase("online"):
            programme.add_schedules(plan_schedules(tables, default_run(tables, monitor.part()).plan))
    first, between = WALKS_OF_LARGE if is_large(rows.capacity) else WALKS
    if options.first_steps is not None:
        first = replace(first, num_steps=options.first_steps)
    if options.steps_between is not None:
        between = replace(between, num_steps=options.steps_between)
    return programme.run(monitor, tol=options.tol, first=first, between=between)
