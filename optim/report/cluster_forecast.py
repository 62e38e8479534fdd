"""Report of forecasts of the starts of pending jobs."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from optim.core.files import write_bytes
from optim.models.cluster.present import Present
from optim.models.cluster.workload import Workload
from optim.report.page import figure_element, page, table
from optim.report.plots import PALETTE, Figure, FigureList, name_rows

if TYPE_CHECKING:
    from optim.simulation.cluster.forecast import Forecast

MAX_JOBS = 60
"""Maximum number of jobs in a picture; the jobs that start first are drawn."""


def forecast_figure(jobs: Workload, present: Present, begin: datetime, policy: str, made: "Forecast") -> Figure:
    """Return a picture with one bar per pending job, from the 10 % to the 90 % quantile of its start."""
    import matplotlib.dates as mdates

    gallery = FigureList()
    low, middle, high = made.quantiles_us()
    shown = np.argsort(middle, kind="stable")[:MAX_JOBS]
    dates = [
        [mdates.date2num(begin + timedelta(microseconds=float(us))) for us in each[shown]]
        for each in (low, middle, high)
    ]
    caption = "Each bar is the range in which a job starts with probability 80 %; the dot is the median. Times are UTC."
    if len(shown) < len(middle):
        caption += f" The first {len(shown)} of {len(middle)} jobs."
    with gallery.picture(f"starts-{policy}", f"Starts of pending jobs: {policy}", caption, 9, 1 + 0.2 * len(shown)) as (
        panel,
    ):
        rows = np.arange(len(shown))[::-1]
        panel.barh(rows, np.subtract(dates[2], dates[0]), left=dates[0], height=0.6, color=PALETTE[0], alpha=0.5)
        panel.plot(dates[1], rows, "o", color=PALETTE[1], markersize=4)
        panel.axvline(mdates.date2num(begin + timedelta(microseconds=present.now_us)), linewidth=0.8, linestyle=":")
        locator = mdates.AutoDateLocator()
        panel.xaxis.set_major_locator(locator)
        panel.xaxis.set_major_formatter(mdates.ConciseDateFormatter(locator))
        panel.set(xlabel="start")
        name_rows(panel, [f"{jobs.ids[made.rows[row]][:24]} ({jobs.gpus[made.rows[row]]})" for row in shown.tolist()])
    return gallery[0]


def write_forecast_report(
    jobs: Workload,
    present: Present,
    begin: datetime,
    found: "Sequence[tuple[str, Forecast]]",
    told: Sequence[str],
    path: Path,
) -> None:
    """Write the report of all policies' forecasts atomically; `told` has its lines on calibration."""
    now = begin + timedelta(microseconds=present.now_us)
    pending = int(present.is_pending(jobs).sum())
    said = f"{len(present.starts)} running and {pending} pending jobs at {now:%Y-%m-%d %H:%M} UTC"
    body = ["<h1>Starts of pending jobs</h1>", f'<p class="headline">{escape(said)}</p>']
    body.extend(f"<p>{escape(text)}</p>" for text in (*told, jobs.left_out, *jobs.notes) if text)
    for policy, made in found:
        body.append(figure_element(forecast_figure(jobs, present, begin, policy, made)))
        rows = []
        for row, quantiles in zip(made.rows.tolist(), made.quantiles_us().T, strict=True):
            starts = [(begin + timedelta(microseconds=float(us))).strftime("%Y-%m-%d %H:%M") for us in quantiles]
            rows.append(
                [jobs.ids[row], jobs.users[jobs.user[row]], jobs.groups[jobs.group[row]], int(jobs.gpus[row]), *starts]
            )
        header = ("job", "user", "partition", "GPUs", "start, 10 %", "50 %", "90 %")
        body.append(table(header, rows, caption=f"Starts under {policy}"))
    write_bytes(path, page("forecast", body).encode())
