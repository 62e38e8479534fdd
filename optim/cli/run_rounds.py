"""`optim run AUCTION SOLUTION --rounds N`: round after round of leases, planned beside realised."""

import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from optim.cli.border import fail, note
from optim.cli.exit_code import ExitCode
from optim.cli.output import OutputFormat, print_json, print_rows
from optim.cli.parameters import MOST_THINGS, option

if TYPE_CHECKING:
    from optim.simulation.live.job_plan import PlanOptions


@dataclass(frozen=True, kw_only=True)
class RoundChoice:
    """How many rounds of an auction's leases are played."""

    rounds: Annotated[
        int, option("--rounds", "Of leases: the auction's own, then the arbiter's.", min=1, max=MOST_THINGS)
    ] = 1
    fairness: Annotated[
        float, option("--fairness", "f: in later rounds the 1 - f of the apps that are worst off bid.", "F")
    ] = 0.8


def tell_rounds(
    instance: Any,
    decision: Any,
    options: "PlanOptions",
    choice: RoundChoice,
    asked: Mapping[str, Any],
    output: OutputFormat,
) -> ExitCode:
    """Play rounds of leases, and print a row for each lease and one for each app."""
    from optim.simulation.live.round_rows import RoundOptions, total_error
    from optim.simulation.live.rounds_run import play_rounds

    rounds = RoundOptions(rounds=choice.rounds, fairness=choice.fairness)
    with tempfile.TemporaryDirectory(prefix="optim-leases-") as folder:
        rows, apps = play_rounds(instance, decision, options, rounds, Path(folder), **asked)
    if output is OutputFormat.JSON:
        for fields in (*map(asdict, rows), *map(asdict, apps)):
            print_json({"instance": instance.name, "seed": options.seed, **fields})
    else:
        print_rows([asdict(row) for row in rows], output, title="serial GPU minutes done in each lease")
        print_rows([asdict(row) for row in apps], output, title="all rounds, foreseen from the first and as they went")
    own_s = 60.0 * instance.lease_min
    note(
        f"scale of time: a lease of {own_s:g} s lasts {options.slot_s:g} s here, {options.slot_s / own_s:.3g} of it; between leases, "
        f"while processes start, the clock stands still ({max((row.start_s for row in rows), default=0.0):.1f} s at most)"
    )
    for number in sorted({row.round for row in rows}):
        own = [row for row in rows if row.round == number]
        note(f"round {number}: {_work(own)} by {len(own)} apps, {sum(row.gpus for row in own)} GPUs")
    if (error := total_error(rows)) is not None:
        note(f"all leases: {_work(rows)}, error {error:+.1%}")
    done = [row for row in apps if row.realised_rho is not None]
    if done:
        planned = [row.planned_rho for row in done if row.planned_rho is not None]
        note(
            f"{len(done)} of {len(apps)} apps done, {sum(row.planned_rho is not None for row in apps)} foreseen; largest rho of those "
            f"done {max(row.realised_rho for row in done if row.realised_rho is not None):.4g}"
            + (f", foreseen {max(planned):.4g}" if planned else "")
        )
    if asked["is_stopped"]():
        return ExitCode.INTERRUPTED
    if any(row.is_exact is False for row in apps):
        return fail("an app's result differs from that of an undisturbed run", ExitCode.REFUSED)
    return ExitCode.DONE


def _work(rows: Any) -> str:
    planned, realised = (sum(getattr(row, name) for row in rows) for name in ("planned_min", "realised_min"))
    return f"{planned:.6g} serial GPU minutes planned, {realised:.6g} realised"
