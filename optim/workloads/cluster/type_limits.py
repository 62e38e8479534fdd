"""Which of a cluster's types of GPU the jobs of a trace may run on: what the trace records of types and partitions is kept."""

from collections import Counter

import numpy as np

from optim.core.errors import InvalidProblemError
from optim.models.cluster.world import UNNAMED, Cluster, FloatArray, IntArray
from optim.workloads.traces.job_table import JobTable

EITHER = "|"
"""Between the types that one job may run on."""

NAMES_SHOWN = 5
BOUNDS = "jobs are kept on their types of GPU; the bounds let each run on any, so that they hold, but may be far below what is possible"
REMEDY = "or leave such jobs out with --option oversized=drop"


def run_times_by_type(table: JobTable, cluster: Cluster, order: IntArray, notes: list[str]) -> FloatArray | None:
    """Return run times on the cluster's types of GPU over those told, NaN where a job may not run; None if types make no difference.

    Parameters
    ----------
    table, cluster
        Jobs, and where they are to run.
    order
        Rows that are to be played.
    notes
        Where it is said what isn't kept.

    Raises
    ------
    InvalidProblemError
        If the trace tells run times by type, and none on one of the cluster's.
    """
    if cluster.kinds == UNNAMED:
        _say_lost_types(table, order, notes)
        return None
    ratio = np.ones((len(table), len(cluster.kinds))) if table.type_ratio is None else _told(table, cluster)
    may_run = _by_type(table, cluster) & _by_partition(table, cluster)
    if table.type_ratio is None and may_run[order].all():
        if len(cluster.kinds) > 1 and (table.gpu_type is None or not (table.gpu_type[order] != "").any()):
            notes.append(
                f"no type of GPU is recorded: every job runs on any of {_list(cluster.kinds)}, and as fast on each"
            )
        return None
    unknown = int((table.gpu_type[order] == "").sum()) if table.gpu_type is not None else 0
    if unknown:
        said = "job records no type of GPU: it runs" if unknown == 1 else "jobs record no type of GPU: they run"
        notes.append(f"{unknown} {said} on any")
    notes.append(BOUNDS)
    return np.where(may_run, ratio, np.nan)


def check_types(table: JobTable, cluster: Cluster, rows: IntArray) -> None:
    """Refuse jobs that no GPU of the cluster may run.

    Raises
    ------
    InvalidProblemError
        If there are rows; it names what they ask for, and what there is.
    """
    if not len(rows):
        return
    known = {name.casefold() for name in cluster.names_of_gpus}
    row = int(rows[0])
    asked = "" if table.gpu_type is None else str(table.gpu_type[row])
    if asked and not known & _alternatives(asked):
        raise InvalidProblemError(
            f"{_jobs(table, rows)} GPU type {asked[:40]!r}, and the cluster has {_list(cluster.names_of_gpus)}; name it in the "
            f"topology, {REMEDY}"
        )
    partition = "" if table.virtual_cluster is None else str(table.virtual_cluster[row])
    there = sorted({name for names in cluster.partitions for name in names})
    raise InvalidProblemError(
        f"{_jobs(table, rows)} partition {partition[:40]!r}{f' with GPU type {asked[:40]!r}' if asked else ''}, and the cluster "
        f"has partitions {_list(there)}; add such machines to the topology, {REMEDY}"
    )


def _jobs(table: JobTable, rows: IntArray) -> str:
    more = f" (and {len(rows) - 1} others like it)" if len(rows) > 1 else ""
    return f"job {table.ids[int(rows[0])][:40]}{more} asks for"


def _told(table: JobTable, cluster: Cluster) -> FloatArray:
    """Return the run times that a trace tells by type."""
    missing = [name for name in cluster.names_of_gpus if name not in table.types]
    if missing or table.type_ratio is None:
        raise InvalidProblemError(
            f"GPU type {missing[0][:40]!r} has no throughput in the trace (there are: {', '.join(table.types)}); "
            "name another in the cluster's topology"
        )
    return np.asarray(table.type_ratio[:, [table.types.index(name) for name in cluster.names_of_gpus]])


def _alternatives(text: str) -> set[str]:
    return {part.strip().casefold() for part in text.split(EITHER)}


def _by_type(table: JobTable, cluster: Cluster) -> "np.typing.NDArray[np.bool_]":
    """Tell which types each job may run on by the type of GPU that it records; letters' case makes no difference."""
    may_run = np.ones((len(table), len(cluster.kinds)), np.bool_)
    if table.gpu_type is not None:
        for text in set(table.gpu_type.tolist()) - {""}:
            is_one = np.array([name.casefold() in _alternatives(text) for name in cluster.names_of_gpus])
            may_run[table.gpu_type == text] = is_one
    return may_run


def _by_partition(table: JobTable, cluster: Cluster) -> "np.typing.NDArray[np.bool_]":
    """Tell which types each job may run on by its partition, where the cluster says what is in which."""
    may_run = np.ones((len(table), len(cluster.kinds)), np.bool_)
    if cluster.partitions and table.virtual_cluster is not None:
        for text in set(table.virtual_cluster.tolist()) - {""}:
            may_run[table.virtual_cluster == text] = np.array([text in names for names in cluster.partitions])
    return may_run


def _say_lost_types(table: JobTable, order: IntArray, notes: list[str]) -> None:
    """Say what the trace records of types that a cluster without names can't keep apart."""
    if table.gpu_type is None:
        return
    counts = Counter(table.gpu_type[order].tolist())
    counts.pop("", None)
    if len(counts) > 1:
        said = _list([f"{name} for {count}" for name, count in counts.most_common()])
        notes.append(
            f"GPU types that the trace records ({said}) are not kept: the cluster is given without types, so that every job runs "
            "on any GPU; give a topology that names them (--gpus FILE.json)"
        )


def _list(names: "list[str] | tuple[str, ...]") -> str:
    shown = [name[:30] for name in names[:NAMES_SHOWN]]
    return ", ".join(shown) + (", ..." if len(names) > NAMES_SHOWN else "")
