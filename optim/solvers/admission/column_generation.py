"""The LP optimum of the packing form by column generation: an upper bound with its proof, no plan."""

from dataclasses import dataclass

from optim.core.clock import PhaseClock, peak_memory_mb
from optim.core.errors import InvalidOptionError
from optim.core.options import options_as_dict
from optim.core.progress import Progress
from optim.core.registry import SUPPORTED, Support, register
from optim.core.solution import Solution, Stats
from optim.core.status import PointStatus, Sense
from optim.core.stopping import StoppingCriterion
from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.online import compile_online, default_plan
from optim.solvers.admission.packing.packing_lp import PackingLP, PackingResult
from optim.solvers.admission.packing.price_search import Walk
from optim.solvers.admission.pricing.capacity_rows import CapacityRows, plan_schedules
from optim.solvers.admission.pricing.dual_points import bound_certificate
from optim.solvers.admission.pricing.job_tables import JobTables
from optim.solvers.admission.warm_up import compile_loops


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnGenerationOptions:
    """Options of `column-generation`.

    Parameters
    ----------
    tol
        Relative gap (bound - master) / master at which the LP counts as solved.
    first_steps
        Polyak steps before the first master; every fourth gives columns.
    steps_between
        Polyak steps after each master.
    warm_start
        Whether ``central`` begins with the schedules of an `online` run.
    method
        ``central`` (interior-point master, walks between) or ``plain`` (simplex master, cold start, one
        pricing a round at its vertex duals): the textbook method, for comparison.
    """

    tol: float = 1e-6
    first_steps: int = 150
    steps_between: int = 10
    warm_start: bool = True
    method: str = "central"

    def __post_init__(self) -> None:
        if not 0 < self.tol < 1:
            raise InvalidOptionError(f"tol must be in (0, 1), got {self.tol}")
        if self.first_steps < 1:
            raise InvalidOptionError(f"first_steps must be at least 1, got {self.first_steps}")
        if self.steps_between < 0:
            raise InvalidOptionError(f"steps_between must be at least 0, got {self.steps_between}")
        if self.method not in ("central", "plain"):
            raise InvalidOptionError(f"method must be 'central' or 'plain', got {self.method!r}")


@register("column-generation", problem="admission")
class ColumnGeneration:
    """Bound the optimum by the packing LP over server classes, whose pricing problem is the best schedule."""

    name: str
    problem: str
    summary = "LP optimum of the packing form: a bound with its proof, no plan"
    options_type = ColumnGenerationOptions

    def supports(self, instance: AdmissionInstance) -> Support:
        """Every admission instance is supported."""
        return SUPPORTED

    def solve(
        self,
        instance: AdmissionInstance,
        *,
        options: ColumnGenerationOptions,
        stop: StoppingCriterion,
        seed: int,
        progress: Progress,
    ) -> Solution:
        """Solve the LP; the solution has a bound and no objective: a fractional value is never one."""
        clock = PhaseClock()
        with clock.phase("compile"):
            compile_loops()
            if options.warm_start and options.method == "central":
                compile_online(is_shared=instance.has_shared_servers)
        with clock.phase("build"):
            tables = JobTables.build(instance)
            rows = CapacityRows.of(tables)
        with clock.phase("solve"):
            result = solve_packing_lp(tables, rows, clock, options, stop, progress)
        return Solution(
            problem=self.problem,
            instance=instance.name,
            solver=self.name,
            sense=Sense.MAXIMISE,
            termination=result.termination,
            primal=PointStatus.NONE,
            dual=PointStatus.FEASIBLE,
            bound=result.point.bound,
            certificate=bound_certificate(rows, result.point),
            seed=seed,
            options=options_as_dict(options),
            stats=Stats(
                seconds=clock.seconds,
                iterations=result.rounds,
                memory_mb=peak_memory_mb(),
                counts={
                    "master": result.master,
                    "lp_gap": result.gap,
                    "columns": len(result.pool),
                    "newton_steps": result.newton_steps,
                    **result.load(),
                },
            ),
        )


def solve_packing_lp(
    tables: JobTables,
    rows: CapacityRows,
    clock: PhaseClock,
    options: ColumnGenerationOptions,
    stop: StoppingCriterion,
    progress: Progress,
) -> PackingResult:
    """Run the method that the options name."""
    if options.method == "plain":
        from optim.solvers.admission.packing.plain_column_generation import solve_plain

        return solve_plain(tables, rows, clock, tol=options.tol, stop=stop, progress=progress)
    programme = PackingLP(tables, rows, clock)
    if options.warm_start:
        with clock.phase("online"):
            programme.add_schedules(plan_schedules(tables, default_plan(tables.instance, stop, clock)))
    return programme.run(
        tol=options.tol,
        first=Walk(num_steps=options.first_steps, add_every=4),
        between=Walk(num_steps=options.steps_between),
        stop=stop,
        progress=progress,
    )
