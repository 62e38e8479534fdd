"""`optim simulate packing`: pack recurring jobs by requests per phase."""

from typing import TYPE_CHECKING, Annotated

from optim.cli.border import listening
from optim.cli.commands import complete_solver
from optim.cli.inputs import PHASES, EncoderOption, NumPhasesOption
from optim.cli.messages import ExitCode, info
from optim.cli.output import OutputFormat, print_json, print_table, terminal_progress
from optim.cli.parameters import MAX_THINGS, EngineChoice, FormatOption, SeedOption, TimeLimitOption, grouped, option

if TYPE_CHECKING:
    from optim.rightsizing.packing import PackingRow

JOBS = "Jobs and servers"

FIGURES = ("overload", "under_time", "used")


@grouped
def packing(
    *,
    risk: Annotated[
        float, option("--risk", "Allowed share of a phase's samples above the request for this phase.", "SHARE")
    ] = 0.05,
    jobs: Annotated[int, option("--jobs", "Number of jobs to pack.", panel=JOBS, min=2)] = 40,
    learned: Annotated[int, option("--learned", "Number of training containers.", panel=JOBS, min=2)] = 200,
    servers: Annotated[
        int, option("--servers", "Number of equal servers.", panel=JOBS, min=1, max=MAX_THINGS // 10)
    ] = 2,
    solver: Annotated[
        str, option("--solver", "Admission solver.", "NAME", JOBS, autocompletion=complete_solver)
    ] = "online",
    profile_error: Annotated[
        float,
        option("--profile-error", "Relative error of a job's profile, which comes from its last run.", "E", PHASES),
    ] = 0.05,
    encoder: EncoderOption = None,
    num_phases: NumPhasesOption = None,
    time_limit: TimeLimitOption = None,
    where: EngineChoice,
    seed: SeedOption = 0,
    output: FormatOption = OutputFormat.TABLE,
) -> ExitCode:
    """Pack generated jobs by peak and by phase requests, replay their true series, and print one row per sizing."""
    import numpy as np

    from optim.phases.model import DEFAULT_ENCODER
    from optim.rightsizing.packing import PackingOptions, min_phase_samples, pack
    from optim.rightsizing.world import WorldOptions, find_phases
    from optim.solvers.solve import solver_named
    from optim.workloads.containers import ContainerOptions, generate_containers

    options = PackingOptions(
        risk=risk, num_servers=servers, solver=solver, profile_error=profile_error, time_limit_s=time_limit
    )
    solver_named("admission", solver)
    world = WorldOptions(encoder=encoder or DEFAULT_ENCODER, num_phases=num_phases)
    drawn = generate_containers(ContainerOptions(num_containers=learned + jobs), seed)
    training, asking = drawn.select(np.arange(learned)), drawn.select(np.arange(learned, learned + jobs))
    rows: list[PackingRow] = []
    with (
        terminal_progress() as progress,
        listening("finished rows will be printed") as interruption,
        where.opened() as engine,
    ):
        (phases,) = find_phases(training, (asking,), world, seed)
        info(
            f"{jobs} jobs on {servers} servers; {phases.num_phases} phases by {world.encoder} from {learned} training containers"
        )
        _warn_of_risk(risk, min_phase_samples(phases.training, phases.num_phases))
        for row in pack(
            *(training, asking, phases, options, seed), engine=engine, stop=interruption, progress=progress
        ):
            rows.append(row)
            if output is OutputFormat.JSON:
                print_json(row)
    if output is OutputFormat.TABLE:
        header = ("sizing", "admitted", "work", "gain", *FIGURES)
        print_table(
            header, [_cells(row) for row in rows], title=f"{jobs} jobs; values per resource: {', '.join(drawn.names)}"
        )
    return ExitCode.INTERRUPTED if interruption.is_requested else ExitCode.DONE


def _warn_of_risk(risk: float, fewest: int) -> None:
    """Warn if the rarest phase has too few samples (`fewest`) to guarantee the risk."""
    from optim.rightsizing.tuning import num_needed

    if risk > 0 and fewest >= num_needed(risk):
        return
    needed = f"{num_needed(risk)} samples, or a larger --risk" if risk > 0 else "a --risk above 0"
    info(
        f"warning: requests per phase cannot guarantee a risk of {100 * risk:.3g} %: the rarest phase has {fewest} samples, and "
        f"the risk needs {needed}; requests are about the maximum seen"
    )


def _cells(row: "PackingRow") -> list[object]:
    figures = [" / ".join(f"{value:.4f}" for value in getattr(row, name).values()) for name in FIGURES]
    return [row.sizing, row.admitted, row.work, row.gain, *figures]
