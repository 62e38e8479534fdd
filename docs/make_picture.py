"""Draw the README's picture, docs/schedulers.png.

``python docs/make_picture.py`` draws it from the table docs/schedulers.csv. With Pollux' list of jobs,
``python docs/make_picture.py pollux_philly_82k.csv.gz`` simulates the policies again and rewrites the table.
"""

import csv
import json
import subprocess
import sys
from pathlib import Path

import matplotlib.pyplot as plt

HERE = Path(__file__).parent
TABLE = HERE / "schedulers.csv"

WITH_RUN_TIMES, WITHOUT = "#0072b2", "#d55e00"
"""Blue and orange of Okabe and Ito's palette for colour-blind readers."""

Table = list[dict[str, str]]
"""Rows of the table: ``policy`` (or ``bound``), ``backfill``, ``label``, ``reads_run_times``, ``mean_h`` (mean completion, hours)."""


def read_table() -> Table:
    """Return the table's rows."""
    with TABLE.open(newline="") as file:
        return list(csv.DictReader(file))


def write_table(rows: Table) -> None:
    """Replace the table."""
    with TABLE.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def simulated(rows: Table, trace: str) -> Table:
    """Return the rows with means of a simulation on 60 machines of 8 GPUs."""
    means: dict[tuple[str, str], float] = {}
    for backfill in ("no", "yes"):
        policies = [row["policy"] for row in rows if row["backfill"] == backfill]
        command = [
            *(sys.executable, "-m", "optim", "simulate", "cluster", "--trace", trace, "--trace-format", "pollux"),
            *("--gpus", "60x8", "--policy", ",".join(policies), "--format", "json"),
            *(["--option", "fifo.backfill=true"] if backfill == "yes" else []),
        ]
        lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
        for row in map(json.loads, lines):
            if row.get("ratio_to_bound"):
                means[row["policy"], backfill] = row["jct_mean_h"]
                means["bound", ""] = row["jct_mean_h"] / row["ratio_to_bound"]
    return [{**row, "mean_h": f"{means[row['policy'], row['backfill']]:.4g}"} for row in rows]


def draw_schedulers(rows: Table) -> plt.Figure:
    """Draw the mean completion time of each policy and the bound that none can undercut."""
    bound, *policies = rows
    least = float(bound["mean_h"])
    figure, axes = plt.subplots(figsize=(8.6, 3.4), layout="constrained")
    for place, row in enumerate(policies):
        mean, colour = float(row["mean_h"]), WITH_RUN_TIMES if row["reads_run_times"] == "yes" else WITHOUT
        axes.plot([least, mean], [place, place], color=colour, linewidth=2)
        axes.plot(mean, place, "o", color=colour, markersize=8)
        axes.annotate(
            f"{mean:.4g} h = {mean / least:.3g} x bound",
            (mean, place), xytext=(9, 0), textcoords="offset points", va="center",
        )  # fmt: skip
    axes.axvspan(0.7, least, color="#cccccc", zorder=0)
    axes.axvline(least, color="#333333", linewidth=2)
    axes.text(
        (0.7 * least) ** 0.5,
        (len(policies) - 1) / 2,
        f"impossible:\nbelow the\nproven bound\nof {least:.3g} h",
        ha="center",
        va="center",
    )
    axes.set(xscale="log", xlim=(0.7, 6000), xlabel="mean completion time (hours, logarithmic)")
    axes.set_xticks([1, 3, 10, 30, 100, 300], ["1", "3", "10", "30", "100", "300"])
    axes.minorticks_off()
    axes.set_yticks(range(len(policies)), [row["label"] for row in policies])
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)
    for colour, text in ((WITH_RUN_TIMES, "knows run times in advance"), (WITHOUT, "does not know run times")):
        axes.plot([], [], "o-", color=colour, linewidth=2, label=text)
    axes.legend(loc="upper right", bbox_to_anchor=(1, 1.0), frameon=False)
    return figure


def main() -> None:
    """Draw the picture in the folder of this script."""
    rows = read_table()
    if len(sys.argv) > 1:
        rows = simulated(rows, sys.argv[1])
        write_table(rows)
    draw_schedulers(rows).savefig(HERE / "schedulers.png", dpi=150)


if __name__ == "__main__":
    main()
