"""The report of policies on a cluster: a row a policy with every figure, pictures, and the Philly study's tables."""

from collections.abc import Sequence
from dataclasses import asdict, fields
from html import escape
from pathlib import Path

from optim.benchmarks.page import figure_element, page, table
from optim.benchmarks.pictures.cluster import cluster_figures
from optim.core.files import write_bytes
from optim.models.cluster.metrics import Metrics
from optim.models.cluster.run_file import RunRecord
from optim.simulation.cluster.philly_outcomes import StudyTable
from optim.simulation.cluster.philly_study import philly_study


def write_cluster_report(record: RunRecord, path: Path) -> None:
    """Write the page; it is whole or absent."""
    write_bytes(path, render_cluster(record).encode())


def render_cluster(record: RunRecord) -> str:
    """Return the page as HTML."""
    jobs, world = record.jobs, record.cluster
    said = (
        f"{len(jobs)} jobs, {jobs.gpu_hours:,.0f} GPU-hours, on {world.num_gpus} GPUs of {world.num_machines} machines"
    )
    body = ["<h1>Policies on a cluster</h1>", f'<p class="headline">{escape(said)}</p>']
    if jobs.missing:
        body.append(f'<p class="headline">Warning: {escape(jobs.missing)}</p>')
    body.extend(f"<p>{escape(text)}</p>" for text in (*jobs.left_out, *jobs.notes))
    options = ", ".join(f"{name}={value}" for name, value in record.settings.items() if name != "keys")
    if options:
        body.append(f"<p>Options: {escape(options)}</p>")
    body.append(_figures(record))
    body.extend(figure_element(figure) for figure in cluster_figures(record))
    is_drawn = record.settings.get("failures") == "study"
    for run in record.runs:
        body.append(f"<h2>The Philly study under {escape(run.policy)}</h2>")
        body.extend(_study(philly_study(jobs, world, run, is_drawn=is_drawn)))
    return page("cluster", body)


def _figures(record: RunRecord) -> str:
    """Return a table with a row a policy, the bounds first."""
    names = [field.name for field in fields(Metrics)]
    least: list[object] = ["no schedule beats", *(record.bounds.get(name) for name in names)]
    rows = [[run.policy, *asdict(run.metrics).values()] for run in record.runs]
    return table(("policy", *names), [least, *rows])


def _study(tables: Sequence[StudyTable]) -> list[str]:
    parts = []
    for each in tables:
        parts.append(f"<h3>{escape(each.title)}</h3>")
        if each.rows:
            parts.append(table(each.header, each.rows))
        if each.note:
            parts.append(f"<p>{escape(each.note)}</p>")
    return parts
