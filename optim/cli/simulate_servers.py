"""`optim simulate servers`: how many servers recurring jobs need at equal kills, by how they ask."""

from typing import TYPE_CHECKING, Annotated

from optim.cli.border import note
from optim.cli.engine import EngineChoice
from optim.cli.exit_code import ExitCode
from optim.cli.interruption import listening
from optim.cli.output import OutputFormat, print_rows
from optim.cli.parameters import FormatOption, SeedOption, grouped, option
from optim.cli.progress import terminal_progress

if TYPE_CHECKING:
    from optim.simulation.packing.servers_study import ServerRow

HEADER = (
    *("asking", "multiplier", "servers", "saved", "saved_low", "saved_high"),
    *("by_model", "least", "claimed_bound", "kills", "throttled"),
)


@grouped
def servers(
    *,
    jobs: Annotated[int, option("--jobs", "Jobs of a set.", "N", min=1)] = 100,
    seeds: Annotated[int, option("--seeds", "Sets to count on; as many are tuned on.", "N", min=2, max=10_000)] = 20,
    runs: Annotated[int, option("--runs", "Earlier runs of each job.", "N", min=1, max=1000)] = 3,
    error: Annotated[float, option("--error", "How far each run is off, in length and levels.", "E")] = 0.05,
    kills: Annotated[float, option("--kills", "Jobs that may be killed.", "SHARE")] = 0.02,
    throttled: Annotated[float, option("--throttled", "Samples that may be short of CPU.", "SHARE")] = 0.02,
    most_shift: Annotated[
        int, option("--most-shift", "Slots of five minutes a job may start late.", "N", min=0, max=10_000)
    ] = 0,
    model_s: Annotated[float, option("--model-s", "Seconds a set for the mixed-integer programme.", "S")] = 0.0,
    where: EngineChoice,
    seed: SeedOption = 0,
    output: FormatOption = OutputFormat.TABLE,
) -> ExitCode:
    """Count the servers that recurring jobs need: a row a way of asking, tuned to equal kills on other sets of jobs."""
    from optim.simulation.containers.requirement import num_needed
    from optim.simulation.packing.servers_study import ServerStudyOptions, compare_asking

    options = ServerStudyOptions(
        jobs=jobs,
        seeds=seeds,
        runs=runs,
        error=error,
        kills=kills,
        throttled=throttled,
        most_shift=most_shift,
        model_s=model_s,
    )
    note(f"{seeds} sets of {jobs} jobs, tuned on {seeds} others; saved: against flat; least: proven for these requests")
    if seeds * jobs < num_needed(kills):
        note(
            f"warning: {100 * kills:.3g} % of jobs killed can't be kept by tuning on {seeds * jobs} jobs, {seeds} sets of {jobs}: "
            f"that needs {num_needed(kills)}; give more --seeds or --jobs, or allow more --kills"
        )
    found: list[ServerRow] = []
    with (
        terminal_progress() as progress,
        listening("the rows so far are printed") as interruption,
        where.opened() as engine,
    ):
        for row in compare_asking(options, seed, engine=engine, stop=interruption, progress=progress):
            found.append(row)
            if not row.is_reached:
                note(
                    f"warning: no multiplier up to {row.multiplier:g} keeps what is held equal of requests by {row.asking}; "
                    "figures are those of the largest"
                )
            if output is OutputFormat.JSON:
                print_rows([row], output)
    if output is OutputFormat.TABLE:
        print_rows(found, output, HEADER, title="saved: mean and 95 % interval (Student's t, paired) over sets")
    return ExitCode.INTERRUPTED if interruption.is_requested else ExitCode.DONE
