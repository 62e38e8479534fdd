"""Draw the pictures that end the tutorials, from the runs that the tutorials show.

``python docs/tutorials/draw.py [NAME ...]`` writes docs/tutorials/pictures/NAME.svg, all pictures unless names are given.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import optim

FOLDER = Path(__file__).with_name("pictures")
BLUE, ORANGE, GREEN = "#0072b2", "#d55e00", "#009e73"
"""Three of Okabe and Ito's colours, which colour-blind readers can distinguish."""

STYLE = {
    "svg.fonttype": "none", "svg.hashsalt": "optim", "font.family": "sans-serif", "font.size": 11.0,
    "axes.spines.top": False, "axes.spines.right": False,
}  # fmt: skip


def rows_of(command: str) -> list[dict[str, Any]]:
    """Return the JSON objects that a command of optim prints."""
    words = [sys.executable, "-m", "optim", *command.split(), "--format", "json"]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def panel_of(height: float = 3.2) -> tuple[Figure, Axes]:
    """Return an empty figure and its axes."""
    figure = Figure(figsize=(7.5, height), layout="constrained")
    return figure, figure.subplots()


def bars(names: Sequence[str], values: Sequence[float], bound: tuple[str, float], xlabel: str, title: str) -> Figure:
    """Draw one bar per policy, and a line at the proven bound."""
    figure, panel = panel_of()
    panel.bar_label(panel.barh(range(len(names)), values, color=BLUE), [f"{value:.1f}" for value in values], padding=4)
    panel.axvline(bound[1], color=ORANGE, linestyle="--")
    panel.text(bound[1], -0.75, f" {bound[0]}: {bound[1]:.1f}", color=ORANGE, va="center")
    panel.set_yticks(range(len(names)), names)
    panel.set(xlabel=xlabel, title=title, xlim=(0, 1.12 * max(values)), ylim=(len(names) - 0.5, -1.0))
    return figure


def admission() -> Figure:
    """Draw the workers of each admitted job over time."""
    instance = optim.reference_instance("tiny-0")
    figure = optim.plot.gantt(instance, optim.solve(instance, "exact"))
    figure.axes[0].set(
        xlabel="slot (one hour each)", ylabel="job", title="Workers of each admitted job (tick: arrival)"
    )
    return figure


def spot() -> Figure:
    """Draw the mean cost of each policy."""
    rows = [row for row in rows_of("simulate spot --starts 20 --job-hours 10") if row.get("summary")]
    rows.sort(key=lambda row: float(row["mean"]["cost_usd"]))
    bound = next(row["mean"]["bound_usd"] for row in rows if row["policy"] == "oracle-paid")
    return bars(
        [row["policy"] for row in rows], [row["mean"]["cost_usd"] for row in rows], ("lower bound", bound),
        "mean cost of a 10-hour job, US dollars", "Cost by policy, 20 starts on generated prices",
    )  # fmt: skip


def auction() -> Figure:
    """Draw the GPUs of each machine by app, forfeited ones hatched."""
    instance = optim.reference_instance("auction-tiny-0")
    figure = optim.plot.allocation(instance, optim.solve(instance, "exact"))
    figure.axes[0].set(title="GPUs by app; hatched: forfeited as hidden payment")
    return figure


def cluster() -> Figure:
    """Draw the mean completion time of each policy."""
    rows = rows_of("simulate cluster --generate philly --jobs 200 --gpus 4x8 --policy fifo,easy,srtf")
    bound = next(row["bounds"]["jct_mean_h"] for row in rows if "bounds" in row)
    runs = [row for row in rows if "jct_mean_h" in row]
    return bars(
        [row["policy"] for row in runs], [row["jct_mean_h"] for row in runs], ("lower bound", bound),
        "mean completion time, hours", "200 generated jobs on 32 GPUs",
    )  # fmt: skip


def containers() -> Figure:
    """Draw the CPU use of one container, coloured by phase."""
    from optim.phases import PhaseModel
    from optim.report.phases import draw_series, longest_segments
    from optim.workloads.containers import ContainerOptions, generate_containers

    series = generate_containers(ContainerOptions(num_containers=30), seed=0)
    model = PhaseModel(encoder="window-statistics", num_phases=5).fit(series)
    phased = model.label(series)
    figure, panel = panel_of()
    draw_series(panel, phased, model, longest_segments(phased, 1)[0], 0)
    panel.set(title="CPU use of one container, coloured by phase")
    return figure


def training() -> Figure:
    """Draw the loss of a calm and of a disturbed run."""
    from optim.kernels.parameter_server import Adagrad
    from optim.training.applications import MatrixFactorisation
    from optim.training.trainer import Action, Event, Trainer

    job = MatrixFactorisation(num_partitions=8)
    start = [Event(clock=0, action=Action.ADD_RELIABLE, machines=("r0", "r1"))]
    storm = [
        Event(clock=5, action=Action.ADD_TRANSIENT, machines=tuple(f"t{k}" for k in range(12))),
        Event(clock=12, action=Action.EVICT, machines=("t0", "t1", "t2")),
        Event(clock=18, action=Action.KILL, machines=("t3", "t4"), after_messages=7),
    ]
    figure, panel = panel_of()
    calm = Trainer(job, Adagrad(learning_rate=0.1)).run(40, start).losses
    stormy = Trainer(job, Adagrad(learning_rate=0.1)).run(40, start + storm).losses
    panel.plot(calm, color=BLUE, linewidth=5, alpha=0.4, label="two machines, undisturbed")
    panel.plot(stormy, color="black", linewidth=1.2, label="machines added, evicted and killed")
    for clock, what in ((5, "12 added"), (12, "3 evicted"), (18, "2 killed")):
        panel.axvline(clock, color=ORANGE, linestyle=":")
        panel.text(clock, 0.57, f" {what}", color=ORANGE, va="top")
    panel.set(xlabel="clock (one pass over all partitions)", ylabel="mean loss", title="Both runs have the same losses")
    panel.legend(frameon=False, loc="center right")
    return figure


MEASURED = {"job-0": (1.90, 4.87), "job-1": (5.90, 8.37)}
"""Planned and realised completion in slots, from the run that the tutorial shows."""


def measured_network() -> Figure:
    """Draw planned and realised completion of each job."""
    figure, panel = panel_of(2.6)
    for row, (planned, realised) in enumerate(MEASURED.values()):
        panel.barh(row - 0.2, planned, 0.36, color=BLUE, label="planned" if row == 0 else None)
        panel.barh(
            row + 0.2, realised, 0.36, color=GREEN, hatch="//", edgecolor="white", label=None if row else "realised"
        )
    panel.set_yticks(range(len(MEASURED)), list(MEASURED))
    panel.set(
        xlabel="completion, slots (6 s each)",
        title="Planned and realised completion on two busy cores",
        ylim=(1.6, -0.6),
    )
    panel.legend(frameon=False, loc="upper right")
    return figure


PICTURES: dict[str, Callable[[], Figure]] = {
    "admission": admission, "spot": spot, "auction": auction, "cluster": cluster, "containers": containers,
    "training": training, "measured-network": measured_network,
}  # fmt: skip


def main(names: Sequence[str], folder: Path = FOLDER) -> None:
    """Write the pictures."""
    folder.mkdir(exist_ok=True)
    for name in names or PICTURES:
        with mpl.rc_context(STYLE):
            PICTURES[name]().savefig(folder / f"{name}.svg", metadata={"Date": None})


if __name__ == "__main__":
    main(sys.argv[1:])
