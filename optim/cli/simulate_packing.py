"""`optim simulate packing`: recurring jobs with requests by phase."""

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
    risk: Annotated[float, option("--risk", "Share of a phase's samples above its request.", "SHARE")] = 0.05,
    jobs: Annotated[int, option("--jobs", "Jobs that ask.", panel=JOBS, min=2)] = 40,
    learned: Annotated[int, option("--learned", "Other containers to learn from.", panel=JOBS, min=2)] = 200,
    servers: Annotated[int, option("--servers", "Equal servers.", panel=JOBS, min=1, max=MAX_THINGS // 10)] = 2,
    solver: Annotated[
        str, option("--solver", "Solver of admission.", "NAME", JOBS, autocompletion=complete_solver)
    ] = "online",
    profile_error: Annotated[float, option("--profile-error", "How far a job's last run is off.", "E", PHASES)] = 0.05,
    encoder: EncoderOption = None,
    num_phases: NumPhasesOption = None,
    time_limit: TimeLimitOption = None,
    where: EngineChoice,
    seed: SeedOption = 0,
    output: FormatOption = OutputFormat.TABLE,
) -> ExitCode:
    """Pack generated jobs by their peaks and by their phases, then replay their true series: a row a sizing."""
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
        listening("the rows so far are printed") as interruption,
        where.opened() as engine,
    ):
        (phases,) = find_phases(training, (asking,), world, seed)
        info(f"{jobs} jobs on {servers} servers; {phases.num_phases} phases by {world.encoder} from {learned} others")
        _tell_risk(risk, min_phase_samples(phases.training, phases.num_phases))
        for row in pack(
            *(training, asking, phases, options, seed), engine=engine, stop=interruption, progress=progress
        ):
            rows.append(row)
            if output is OutputFormat.JSON:
                print_json(row)
    if output is OutputFormat.TABLE:
        header = ("sizing", "admitted", "work", "gain", *FIGURES)
        print_table(header, [_cells(row) for row in rows], title=f"{jobs} jobs; figures by {', '.join(drawn.names)}")
    return ExitCode.INTERRUPTED if interruption.is_requested else ExitCode.DONE


def _tell_risk(risk: float, fewest: int) -> None:
    """Say where the samples of the rarest phase are too few to tell of a risk."""
    from optim.rightsizing.tuning import num_needed

    if risk > 0 and fewest >= num_needed(risk):
        return
    needed = f"{num_needed(risk)} or a larger --risk" if risk > 0 else "more than there ever are; give a --risk above 0"
    info(
        f"warning: requests by phase can't keep a risk of {100 * risk:.3g} %: the rarest phase is known by {fewest} samples, and "
        f"that needs {needed}; they are about the largest seen"
    )


def _cells(row: "PackingRow") -> list[object]:
    figures = [" / ".join(f"{value:.4f}" for value in getattr(row, name).values()) for name in FIGURES]
    return [row.sizing, row.admitted, row.work, row.gain, *figures]
