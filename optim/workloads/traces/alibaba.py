"""Alibaba's trace of 2023: pods with fractions of GPUs, and the nodes that host them."""

from pathlib import Path

import numpy as np

from optim.core.errors import InvalidOptionError
from optim.workloads.csv_columns import header_of, read_columns, require_columns, require_whole
from optim.workloads.traces.job_table import NO_GPU, NO_WORK, JobTable, NodeTable, ReadOptions, leave_out, sibling_file

NODE_NAMES = ("openb_node_list_all_node.csv.gz", "openb_node_list_all_node.csv")
"""Where the node list is looked for, beside the pods."""

MILLI = 1000.0
MIB_PER_GB = 1024.0
"""Memory is in MiB; a GB of the instance is 1024 of them, as in the other traces' server sizes."""

DEMANDS = ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
TIMES, PHASE = ("creation_time", "deletion_time", "scheduled_time"), ("pod_phase",)
GPU_TYPE = "gpu_spec"
"""Types that a pod may run on, with bars between, "" for any."""

NEVER_RAN = "never scheduled"
RUNNING = "Running"


def read_alibaba(path: str | Path, options: ReadOptions) -> JobTable:
    """Read the pod list and the node list.

    A pod with g whole GPUs becomes a job that ran g workers of one GPU, a pod with a part of one GPU
    (`gpu_milli` thousandths) a job of one worker with that part; a worker takes its share of the pod's CPUs
    and memory. Run times are from `scheduled_time` to `deletion_time`, submissions are `creation_time`.
    Pending pods have no times and pods without GPU are no training: both are left out and counted. Pods that
    were still running when the trace was taken have run times that are lower bounds: the notes say how many
    there are. The GPUs of a node are one pool, so that parts of GPUs on different cards may add up.

    Raises
    ------
    InvalidOptionError
        If a virtual cluster is asked for: the trace has none.
    InvalidProblemError
        If a column is missing (some of the published lists have no times: `ReadOptions.run_s`), a field is no number or negative,
        or a file can't be read.

    References
    ----------
    Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient
    Descent", USENIX ATC 2023.
    """
    if options.virtual_cluster is not None:
        raise InvalidOptionError("virtual_cluster must be None for alibaba, whose trace has none; leave it out")
    header = header_of(path)
    has_times = options.run_s is None or TIMES[0] in header
    texts = ("name", *(PHASE if has_times else ()), *((GPU_TYPE,) if GPU_TYPE in header else ()))
    columns = read_columns(path, (*DEMANDS, *(TIMES if has_times else ())), texts)
    require_columns(path, columns, *DEMANDS, least=0.0)
    gpus = require_whole(path, "num_gpu", columns["num_gpu"])
    if has_times:
        require_columns(path, columns, *TIMES[:-1], least=0.0)
        require_columns(path, columns, TIMES[-1], least=0.0, may_lack=True)
        submit, duration = columns["creation_time"], columns["deletion_time"] - columns["scheduled_time"]
        waited = columns["scheduled_time"] - submit
        status = columns["pod_phase"]
    else:
        submit, duration = np.arange(float(len(gpus))), np.full(len(gpus), options.run_s, dtype=np.float64)
        waited = np.full(len(gpus), np.nan)
        status = np.full(len(gpus), "", dtype=object)
    kept, dropped = leave_out(
        {
            NEVER_RAN: np.isnan(duration),
            NO_GPU: (gpus <= 0) | (columns["gpu_milli"] <= 0),
            NO_WORK: duration <= 0,
        }
    )
    number = gpus[kept]
    demand = np.stack(
        [
            columns["gpu_milli"][kept] / MILLI,
            columns["cpu_milli"][kept] / MILLI / number,
            columns["memory_mib"][kept] / MIB_PER_GB / number,
        ],
        axis=1,
    )
    censored = int((status[kept] == RUNNING).sum())
    notes = [f"{censored} of {len(kept)} pods were still running: their run times are lower bounds"]
    if not has_times:
        notes = [f"the list tells no times: pods come a second apart and run {options.run_s:g} s"]
    return JobTable(
        ids=tuple(str(columns["name"][row]) for row in kept.tolist()),
        submit_s=submit[kept],
        workers=number,
        duration_s=duration[kept],
        demand=demand,
        clock=np.zeros(len(kept), dtype=np.int64),
        status=status[kept],
        gpu_type=columns[GPU_TYPE][kept] if GPU_TYPE in columns else None,
        rows_read=len(gpus),
        dropped=dropped,
        notes=tuple(notes),
        waited_s=waited[kept],
        nodes=read_nodes(options.nodes or sibling_file(path, NODE_NAMES, what="node list", option="nodes")),
    )


def read_nodes(path: str | Path) -> NodeTable:
    """Read the list of nodes.

    Raises
    ------
    InvalidProblemError
        If a column is missing, or a field is no number or negative.
    """
    columns = read_columns(path, ("cpu_milli", "memory_mib", "gpu"), ("model",))
    require_columns(path, columns, "cpu_milli", "memory_mib", "gpu", least=0.0)
    kinds = zip(columns["model"].tolist(), columns["gpu"].tolist(), strict=True)
    return NodeTable(
        kind=tuple(f"{model or 'CPU'} x {gpu:g}" if gpu else "CPU" for model, gpu in kinds),
        capacity=np.stack([columns["gpu"], columns["cpu_milli"] / MILLI, columns["memory_mib"] / MIB_PER_GB], axis=1),
    )
