"""Alibaba's traces of GPU clusters: tasks (2020), pods with parts of GPUs (2023), services (2025), spot jobs (2026).

`read_alibaba` recognises each trace by its columns, as alibaba/clusterdata publishes them.
"""

from pathlib import Path

import numpy as np

from optim.core.arrays import FloatArray, TextArray
from optim.core.errors import InvalidOptionError
from optim.models.cluster.cluster import UNSTATED
from optim.models.cluster.workload import UNFINISHED
from optim.workloads.csv_columns import header_of, read_columns, require_columns, require_whole, width_of
from optim.workloads.traces.job_table import (
    NO_GPU,
    NO_WORK,
    JobTable,
    NodeTable,
    ReadOptions,
    gpu_hours_of,
    leave_out,
    sibling_file,
)

NODE_NAMES = ("openb_node_list_all_node.csv.gz", "openb_node_list_all_node.csv")
"""Names of the node list, in the folder of the pod list."""

MILLI = 1000.0
MIB_PER_GB = 1024.0
"""The trace's memory is in MiB; a GB of an admission instance is 1024 MiB, as in the server sizes of the other traces."""

DEMANDS = ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
TIMES, PHASE = ("creation_time", "deletion_time", "scheduled_time"), ("pod_phase",)
GPU_TYPE = "gpu_spec"
"""Column of the GPU types that a pod may run on, separated by bars; "" for any."""

NEVER_RAN = "pods never scheduled"
RUNNING = "Running"

PAI = (
    "job_name",
    "task_name",
    "inst_num",
    "status",
    "start_time",
    "end_time",
    "plan_cpu",
    "plan_mem",
    "plan_gpu",
    "gpu_type",
)
"""Columns of the task table of 2020, published without a header."""

PAI_JOBS = ("job_name", "inst_id", "user", "status", "start_time", "end_time")
"""Columns of the job table of 2020, published without a header."""

JOB_NAMES = ("pai_job_table.csv", "pai_job_table.csv.gz")
"""Names of the job table, in the folder of the task table."""

PER_CENT = 100.0

OVER = "Terminated"
"""State of successful tasks of 2020; `Failed` tasks have ended as well."""

SERVICE = ("instance_sn", "role", "gpu_request", "creation_time", "scheduled_time", "deletion_time")
"""Columns that identify the instances of 2025."""

BEFORE = "jobs that ran before the trace began"

HIGH = "HP"
"""Type of the high-priority jobs of 2026, which preempt spot jobs."""

SPOT_NODES = frozenset({"node_name", "gpu_model", "gpu_capacity_num", "cpu_num"})
"""Columns of the node list of 2026."""


def read_alibaba(path: str | Path, options: ReadOptions) -> JobTable:
    """Read the jobs of one of the traces, recognised by its columns.

    Raises
    ------
    InvalidOptionError
        If a virtual cluster is requested: the traces have none.
    InvalidProblemError
        If a column is missing, a field isn't a number or is negative, or a file can't be read.
    """
    if options.virtual_cluster is not None:
        raise InvalidOptionError("virtual_cluster must be None for alibaba, whose traces have none; leave it out")
    header = header_of(path)
    if "plan_gpu" in header or (width_of(path) == len(PAI) and not {"name", "job_name"} & set(header)):
        return _read_tasks(path, is_headerless="plan_gpu" not in header)
    if set(SERVICE) <= set(header):
        return _read_services(path)
    if {"worker_num", "gpu_model"} <= set(header):
        return _read_spot_jobs(path)
    return _read_pods(path, options, header)


def _read_pods(path: str | Path, options: ReadOptions, header: tuple[str, ...]) -> JobTable:
    """Read the pod list and the node list of 2023.

    A pod with g full GPUs becomes a job that ran g workers of one GPU. A pod with part of one GPU
    (`gpu_milli` thousandths) becomes a job of one worker with this part. The pod's CPUs and memory are split equally
    over its workers. A pod is submitted at `creation_time` and runs from `scheduled_time` to `deletion_time`. Pending
    pods, which have no times, and pods without a GPU, which don't train, are dropped and counted. The run times of pods
    that were still running when the trace was taken are lower bounds; the notes count these pods. The GPUs of a node
    are one pool, so that parts of GPUs on different cards may add up.

    Raises
    ------
    InvalidProblemError
        If a column is missing (some of the published lists have no times: `ReadOptions.run_s`), a field isn't a number or is negative,
        or a file can't be read.

    References
    ----------
    Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient
    Descent", USENIX ATC 2023.
    """
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
        notes = [f"the list has no times: pods come one second apart and run {options.run_s:g} s"]
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
    """Read the node list of 2023 or 2026; the list of 2026 has no memory, so that memory is unlimited.

    Raises
    ------
    InvalidProblemError
        If a column is missing, or a field isn't a number or is negative.
    """
    if set(header_of(path)) >= SPOT_NODES:
        columns = read_columns(path, ("gpu_capacity_num", "cpu_num"), ("gpu_model",))
        require_columns(path, columns, "gpu_capacity_num", "cpu_num", least=0.0)
        gpus = columns["gpu_capacity_num"]
        return NodeTable(
            kind=tuple(
                f"{model} x {number:g}"
                for model, number in zip(columns["gpu_model"].tolist(), gpus.tolist(), strict=True)
            ),
            capacity=np.stack([gpus, columns["cpu_num"], np.full(len(gpus), UNSTATED)], axis=1),
        )
    columns = read_columns(path, ("cpu_milli", "memory_mib", "gpu"), ("model",))
    require_columns(path, columns, "cpu_milli", "memory_mib", "gpu", least=0.0)
    kinds = zip(columns["model"].tolist(), columns["gpu"].tolist(), strict=True)
    return NodeTable(
        kind=tuple(f"{model or 'CPU'} x {gpu:g}" if gpu else "CPU" for model, gpu in kinds),
        capacity=np.stack([columns["gpu"], columns["cpu_milli"] / MILLI, columns["memory_mib"] / MIB_PER_GB], axis=1),
    )


def _read_tasks(path: str | Path, *, is_headerless: bool) -> JobTable:
    """Read the task table of 2020. The tasks of one job are one gang; tasks without GPUs add only vCPUs and memory.

    `plan_gpu` and `plan_cpu` are in per cent of a GPU and a vCPU, `plan_mem` is in GB, for each of a task's `inst_num` instances.
    An instance with at most one GPU is one worker with this part of a GPU; an instance with more has as many workers, rounded up.
    A job runs from the start of its first task to the end of its last. It was submitted at `start_time` of the job table, or, without
    this table, at the start of its first task.

    References
    ----------
    Weng et al., "MLaaS in the Wild: Workload Analysis and Scheduling in Large-Scale Heterogeneous GPU Clusters", NSDI 2022; columns:
    alibaba/clusterdata, cluster-trace-gpu-v2020/README.md.
    """
    numbers = ("inst_num", "start_time", "end_time", "plan_cpu", "plan_mem", "plan_gpu")
    names = PAI if is_headerless else ()
    tasks = read_columns(path, numbers, ("job_name", "status", "gpu_type"), names=names)
    require_columns(path, tasks, *numbers, least=0.0, may_lack=True)
    ids, first, job = np.unique(tasks["job_name"].astype(str), return_index=True, return_inverse=True)
    count, (instances, cpu, memory, gpu) = (
        len(ids),
        (np.nan_to_num(tasks[name]) for name in ("inst_num", "plan_cpu", "plan_mem", "plan_gpu")),
    )
    workers = instances * np.maximum(1.0, np.ceil(gpu / PER_CENT - 1e-9)) * (gpu > 0)
    held, whole = np.bincount(job, instances * gpu / PER_CENT, count), np.bincount(job, workers, count)
    totals = [np.bincount(job, instances * each, count) for each in (cpu / PER_CENT, memory)]
    begin, end = np.full(count, np.inf), np.full(count, -np.inf)
    np.fmin.at(begin, job, tasks["start_time"])
    np.fmax.at(end, job, tasks["end_time"])
    is_open = np.bincount(job, ~np.isin(tasks["status"].astype(str), (OVER, "Failed")), count) > 0
    submit, user, remark = _submissions(path, ids, begin)
    # A job's type is that of its first task with GPUs. MISC stands for several older types.
    gpu_type, of_first = np.full(count, "", dtype=object), np.flatnonzero(gpu > 0)[::-1]
    gpu_type[job[of_first]] = tasks["gpu_type"][of_first]
    kept, dropped = leave_out(
        {UNFINISHED: is_open | ~np.isfinite(begin) | ~np.isfinite(end), NO_GPU: whole < 1, NO_WORK: ~(end > begin)}
    )
    kept = kept[np.argsort(first[kept], kind="stable")]
    number = whole[kept]
    return JobTable(
        ids=tuple(ids[kept].tolist()),
        submit_s=submit[kept],
        workers=number.astype(np.int64),
        duration_s=(end - begin)[kept],
        demand=np.stack([held[kept] / number, *(total[kept] / number for total in totals)], axis=1),
        clock=np.zeros(len(kept), dtype=np.int64),
        user=None if user is None else user[kept],
        status=tasks["status"][first[kept]],
        gpu_type=gpu_type[kept],
        rows_read=len(job),
        dropped=dropped,
        notes=(f"{len(job)} tasks are {count} jobs", remark),
        waited_s=None if user is None else (begin - submit)[kept],
    )


def _submissions(path: str | Path, ids: TextArray, begin: FloatArray) -> tuple[FloatArray, TextArray | None, str]:
    """Return submission times and users from the job table, with a note; without this table, the jobs' starts and None."""
    place = next((each for each in (Path(path).parent / name for name in JOB_NAMES) if each.exists()), None)
    if place is None:
        return (
            begin,
            None,
            f"no {JOB_NAMES[0]} in the folder of the tasks: each job is submitted when its first task starts",
        )
    names = () if "job_name" in header_of(place) else PAI_JOBS
    jobs = read_columns(place, ("start_time",), ("job_name", "user"), names=names)
    row = {name: number for number, name in enumerate(jobs["job_name"].tolist())}
    found = np.array([row.get(name, -1) for name in ids.tolist()])
    submit = np.where(found >= 0, jobs["start_time"][found], np.nan)
    # If the job table has a submission after the start of the first task, the tables disagree, and the task table
    # counts.
    is_known = np.isfinite(submit) & (submit <= begin)
    user = np.where(found >= 0, jobs["user"][found], "").astype(object)
    return (
        np.where(is_known, submit, begin),
        user,
        f"submissions of {int(is_known.sum())} of {len(ids)} jobs are from {place.name}",
    )


def _read_services(path: str | Path) -> JobTable:
    """Read the instances of 2025, which belong to long-running services.

    References
    ----------
    Yang et al., "GPU-Disaggregated Serving for Deep Learning Recommendation Models at Scale", NSDI 2025; columns:
    alibaba/clusterdata, cluster-trace-gpu-v2025/README.md.
    """
    times, amounts = SERVICE[3:], ("cpu_request", "gpu_request", "memory_request")
    columns = read_columns(path, (*times, *amounts), ("instance_sn", "app_name"))
    require_columns(path, columns, *amounts, least=0.0)
    require_columns(path, columns, *times, least=0.0, may_lack=True)
    gpus = require_whole(path, "gpu_request", columns["gpu_request"])
    submit, start, end = (columns[name] for name in times)
    kept, dropped = leave_out(
        {
            NO_GPU: gpus < 1,
            BEFORE: np.isnan(submit) | np.isnan(start),
            UNFINISHED: np.isnan(end),
            NO_WORK: ~(end > start),
        }
    )
    number = gpus[kept]
    return JobTable(
        ids=tuple(map(str, columns["instance_sn"][kept].tolist())),
        submit_s=submit[kept],
        workers=number,
        duration_s=(end - start)[kept],
        demand=np.stack(
            [np.ones(len(kept)), columns["cpu_request"][kept] / number, columns["memory_request"][kept] / number],
            axis=1,
        ),
        clock=np.zeros(len(kept), dtype=np.int64),
        user=columns["app_name"][kept],
        rows_read=len(gpus),
        dropped=dropped,
        waited_s=(start - submit)[kept],
    )


def _read_spot_jobs(path: str | Path) -> JobTable:
    """Read the jobs of 2026: `worker_num` workers of `gpu_request` GPUs each; high-priority jobs have priority 1, spot jobs 0.

    References
    ----------
    Duan et al., "GFS: A Preemptive Scheduling Framework for GPU Clusters with Predictive Spot Management", ASPLOS 2026; columns:
    alibaba/clusterdata, cluster-trace-v2026-spot-gpu/README.md.
    """
    numbers = ("cpu_request", "gpu_request", "worker_num", "submit_time", "duration")
    columns = read_columns(path, numbers, ("job_name", "organization", "gpu_model", "job_type"))
    require_columns(path, columns, *numbers, least=0.0)
    each, wide = columns["gpu_request"], columns["worker_num"]
    whole = np.ceil(each - 1e-9)
    out = {NO_GPU: (each <= 0) | (wide < 1), NO_WORK: columns["duration"] <= 0}
    kept, dropped = leave_out(out)
    number = whole[kept]
    return JobTable(
        ids=tuple(map(str, columns["job_name"][kept].tolist())),
        submit_s=columns["submit_time"][kept],
        workers=require_whole(path, "worker_num", wide)[kept] * number.astype(np.int64),
        duration_s=columns["duration"][kept],
        demand=np.stack([each[kept] / number, columns["cpu_request"][kept] / number, np.zeros(len(kept))], axis=1),
        clock=np.zeros(len(kept), dtype=np.int64),
        user=columns["organization"][kept],
        status=columns["job_type"][kept],
        gpu_type=columns["gpu_model"][kept],
        priority=(columns["job_type"][kept] == HIGH).astype(np.int64),
        rows_read=len(each),
        dropped=dropped,
        dropped_gpu_h=gpu_hours_of(out, each * wide * columns["duration"]),
        notes=("high-priority jobs have priority 1, spot jobs 0; users are organisations",),
    )
