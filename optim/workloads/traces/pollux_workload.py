"""Workloads of the Pollux experiments: jobs of six applications, with measured step times and training curves."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from optim.core.arrays import FloatArray, IntArray
from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.workloads.csv_columns import read_columns, refuse, require_columns, require_whole
from optim.workloads.traces.job_table import JobTable, ReadOptions

FOLDERS = ("../traces", "traces")
"""Folders of the measurements, relative to that of the jobs; each has one folder per application."""
GPUS_A_NODE = 4
"""GPUs per machine of Pollux."""
LOSS_POINTS = 33
"""Number of points of a loss curve, at equal parts of the work, including both ends."""


@dataclass(frozen=True, kw_only=True, eq=False)
class StepTimes:
    """Measured seconds per step of one application.

    Parameters
    ----------
    nodes, replicas, local_batch, step_s
        Numbers of nodes and of replicas (GPUs), batch size per replica, and seconds per step, one entry per
        measurement.
    """

    nodes: IntArray
    replicas: IntArray
    local_batch: FloatArray
    step_s: FloatArray

    def at(self, nodes: int, replicas: int, local_batch: float) -> float:
        """Return the step time of the nearest measured placement, interpolated over the local batch.

        The nearest placement matches the number of replicas first, then the number of nodes.
        """
        distance = np.abs(np.log(self.replicas / replicas)) * 1e3 + np.abs(np.log(self.nodes / nodes))
        near = np.flatnonzero(distance <= distance.min() + 1e-9)
        sizes, place = np.unique(self.local_batch[near], return_inverse=True)
        means = np.bincount(place, weights=self.step_s[near]) / np.bincount(place)
        if local_batch > sizes[-1]:  # a batch larger than memory is processed in parts
            return float(means[-1] * local_batch / sizes[-1])
        return float(np.interp(local_batch, sizes, means))


def read_step_times(folder: str | Path) -> StepTimes:
    """Read an application's ``placements.csv.gz`` and ``scalability.csv.gz``.

    A placement is written as the GPUs on each node, one digit per node: ``22`` is two nodes with two each.

    Raises
    ------
    InvalidProblemError
        If a file is missing or invalid.

    References
    ----------
    Qiao et al., "Pollux: Co-adaptive Cluster Scheduling for Goodput-Optimized Deep Learning", OSDI 2021.
    """
    places = Path(folder) / "placements.csv.gz"
    first = read_columns(places, ("local_bsz", "step_time"), ("placement",))
    texts = first["placement"]
    refuse(
        places, "placement", np.array([not t.isdigit() or "0" in t for t in texts.tolist()]), "expected digits", texts
    )
    scaling = Path(folder) / "scalability.csv.gz"
    second = read_columns(scaling, ("num_nodes", "num_replicas", "local_bsz", "step_time"))
    require_columns(scaling, second, "num_nodes", "num_replicas", least=1.0)
    for path, columns in ((places, first), (scaling, second)):
        require_columns(path, columns, "local_bsz", "step_time", least=1e-9)
    return StepTimes(
        nodes=np.concatenate([[len(t) for t in texts.tolist()], second["num_nodes"]]).astype(np.int64),
        replicas=np.concatenate([[sum(map(int, t)) for t in texts.tolist()], second["num_replicas"]]).astype(np.int64),
        local_batch=np.concatenate([first["local_bsz"], second["local_bsz"]]),
        step_s=np.concatenate([first["step_time"], second["step_time"]]),
    )


def read_curve(folder: str | Path, batch_size: int) -> tuple[float, FloatArray]:
    """Read ``validation-BATCH.csv.gz``: the number of iterations, and the metric's distance from its final best value.

    The distance has `LOSS_POINTS` values at equal parts of the iterations; it falls from 1 to 0 and never rises.

    Raises
    ------
    InvalidProblemError
        If the file is missing or invalid.
    """
    path = Path(folder) / f"validation-{batch_size}.csv.gz"
    columns = read_columns(path, ("iteration", "metric"))
    require_columns(path, columns, "iteration", least=1.0)
    iteration, metric = columns["iteration"], columns["metric"]
    refuse(path, "metric", np.isnan(metric), "expected a number", metric)
    rises = metric[-1] >= metric[0]
    best = np.maximum.accumulate(metric) if rises else np.minimum.accumulate(metric)
    begin = (
        0.0 if rises else float(metric[0])
    )  # before the first epoch, an accuracy is 0, and a loss is at least that after the epoch
    left = np.abs(best[-1] - np.concatenate([[begin], best])) / max(abs(float(best[-1]) - begin), 1e-12)
    steps = np.concatenate([[0.0], iteration])
    curve = np.interp(np.linspace(0.0, steps[-1], LOSS_POINTS), steps, np.clip(left, 0.0, 1.0))
    return float(steps[-1]), np.asarray(curve)


def read_workload(path: str | Path, options: ReadOptions) -> JobTable:
    """Read one of Pollux' workloads: ``name, time, application, num_replicas, batch_size``.

    A job runs as many iterations as its application took at this batch size until the end of the measured training. A step
    takes the time measured on the fewest nodes. The slowdowns of spread gangs are ratios to this time: of the time on
    twice as many nodes for a gang spread over one rack, and on one node per GPU for a gang spread over the cluster.

    Raises
    ------
    InvalidOptionError
        If a virtual cluster is requested: a workload has none.
    InvalidProblemError
        If a column or a measurement is missing, or a field isn't a number.
    """
    if options.virtual_cluster is not None:
        raise InvalidOptionError("virtual_cluster must be None for a workload of pollux, which has none; leave it out")
    columns = read_columns(path, ("time", "num_replicas", "batch_size"), ("name", "application"))
    require_columns(path, columns, "time", least=0.0)
    require_columns(path, columns, "num_replicas", "batch_size", least=1.0)
    gpus = require_whole(path, "num_replicas", columns["num_replicas"])
    batch = require_whole(path, "batch_size", columns["batch_size"])
    folder = options.steps or _folder(path)
    rows = list(zip(columns["application"].tolist(), gpus.tolist(), batch.tolist(), strict=True))
    measured = {row: _measured(folder, *row) for row in sorted(set(rows))}
    duration = np.array([measured[row][0] for row in rows])
    return JobTable(
        ids=tuple(columns["name"].tolist()),
        submit_s=columns["time"],
        workers=gpus,
        duration_s=duration,
        clock=np.zeros(len(gpus), dtype=np.int64),
        model=columns["application"],
        slowdown=np.array([measured[row][1] for row in rows]),
        loss=np.array([measured[row][2] for row in rows]),
        rows_read=len(gpus),
    )


def _folder(path: str | Path) -> Path:
    found = [folder for folder in (Path(path).parent / name for name in FOLDERS) if folder.is_dir()]
    if not found:
        raise InvalidProblemError(
            f"{path}: no folder of step times {FOLDERS[0]!r} for the jobs; create it or give its path as steps "
            "(simulate cluster: --option trace.steps=FOLDER)"
        )
    return found[0]


def _measured(folder: Path, application: str, gpus: int, batch: int) -> tuple[float, tuple[float, ...], FloatArray]:
    """Return the run time, the slowdown by locality, and the remaining loss."""
    place = folder / application
    if not application.isidentifier() or not place.is_dir():
        raise InvalidProblemError(f"{folder}: application {application[:40]!r} has no folder of step times; add it")
    times = read_step_times(place)
    iterations, curve = read_curve(place, batch)
    nodes = -(-gpus // GPUS_A_NODE)
    steps = [times.at(n, gpus, batch / gpus) for n in (nodes, min(gpus, 2 * nodes), gpus)]
    return iterations * steps[0], tuple(max(1.0, step / steps[0]) for step in steps), curve
