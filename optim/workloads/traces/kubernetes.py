"""A Kubernetes cluster's current pods and Kueue workloads, as `kubectl get -o json` prints them."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import msgspec
import numpy as np

from optim.core.documents import decode
from optim.core.errors import InvalidProblemError
from optim.core.files import read_bytes
from optim.workloads.csv_columns import utc_dates
from optim.workloads.traces.job_table import EPOCH, NO_GPU
from optim.workloads.traces.queue_state import HELD, NO_START, OTHER_STATE, QueuedJob, QueueState, given_now

COMMAND = "kubectl get pods,workloads,resourceflavors -A -o json"
RESOURCE = "nvidia.com/gpu"
PRODUCTS = ("nvidia.com/gpu.product", "cloud.google.com/gke-accelerator", "karpenter.k8s.aws/instance-gpu-name")
"""Node labels that name a GPU type, of NVIDIA's GPU feature discovery, of GKE, and of Karpenter on AWS."""
QUEUE = "kueue.x-k8s.io/queue-name"
GANGS = (
    "kueue.x-k8s.io/pod-group-name",
    "pod-group.scheduling.sigs.k8s.io",
    "scheduling.x-k8s.io/pod-group",
    "volcano.sh/job-name",
    "training.kubeflow.org/job-name",
    "batch.kubernetes.io/job-name",
    "job-name",
)
"""Labels that the pods of one gang share; if a pod has several of them, the first in this order counts."""
USERS = ("user", "app.kubernetes.io/created-by")
OF_WORKLOADS = "pods of a listed workload"


class _Resources(msgspec.Struct):
    requests: dict[str, str | int] = {}
    limits: dict[str, str | int] = {}


class _Container(msgspec.Struct):
    resources: _Resources = msgspec.field(default_factory=_Resources)


class _PodSpec(msgspec.Struct):
    containers: list[_Container] = []
    nodeName: str = ""  # noqa: N815  as the document has it
    nodeSelector: dict[str, str] = {}  # noqa: N815
    priority: int = 0
    activeDeadlineSeconds: int | None = None  # noqa: N815


class _Template(msgspec.Struct):
    spec: _PodSpec = msgspec.field(default_factory=_PodSpec)


class _PodSet(msgspec.Struct):
    count: int = 1
    template: _Template = msgspec.field(default_factory=_Template)


class _Spec(_PodSpec):
    nodeLabels: dict[str, str] = {}  # noqa: N815
    queueName: str = ""  # noqa: N815
    podSets: list[_PodSet] = []  # noqa: N815
    active: bool = True
    maximumExecutionTimeSeconds: int | None = None  # noqa: N815


class _Condition(msgspec.Struct):
    type: str
    status: str
    lastTransitionTime: str | None = None  # noqa: N815


class _Assignment(msgspec.Struct):
    flavors: dict[str, str] = {}


class _Admission(msgspec.Struct):
    podSetAssignments: list[_Assignment] = []  # noqa: N815


class _Status(msgspec.Struct):
    admission: _Admission | None = None
    phase: str = ""
    startTime: str | None = None  # noqa: N815
    conditions: list[_Condition] = []


class _Owner(msgspec.Struct):
    name: str


class _Metadata(msgspec.Struct):
    name: str
    namespace: str = "default"
    creationTimestamp: str | None = None  # noqa: N815
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    ownerReferences: list[_Owner] = []  # noqa: N815


class _Item(msgspec.Struct):
    kind: str
    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class _List(msgspec.Struct):
    kind: str
    items: list[_Item]


def read_kubernetes(path: str | Path, now: str | None = None) -> QueueState:
    """Read running and pending jobs from a list of pods, of Kueue's workloads, or of both.

    A pod's GPUs are its containers' requests (or limits) of ``nvidia.com/gpu``, and its GPU type is the node selector
    for a label of `PRODUCTS`. A pod's queue is Kueue's (``namespace/name``), else the namespace. Pods that share one of
    the labels `GANGS` are one gang, which runs once all of them run. A workload is named after its owner and has the
    GPUs of its pod sets. A workload runs since the time of its condition `Admitted`; its GPU type comes from the node
    labels of its flavor. Where workloads are listed, pods with a queue's label are counted with their workload only.
    The current time is the latest time in the file.

    Raises
    ------
    InvalidProblemError
        If the file isn't a list of these objects, has another kind of object, no job is running or pending, or a number or date is invalid.
    InvalidOptionError
        If `now` isn't a date.
    """
    try:
        listed = decode(read_bytes(path), _List)
    except InvalidProblemError as error:
        raise InvalidProblemError(f"{path}: not the output of {COMMAND}: {error}") from error
    kinds = sorted({item.kind for item in listed.items} - {"Pod", "Workload", "ResourceFlavor"})
    if kinds:
        raise InvalidProblemError(
            f"{path}: kind {kinds[0][:40]!r} is neither Pod, Workload nor ResourceFlavor; save the output of {COMMAND}"
        )
    times = _times(path, listed.items)
    flavors = {item.metadata.name: item.spec.nodeLabels for item in listed.items if item.kind == "ResourceFlavor"}
    names = _names_of([item for item in listed.items if item.kind == "Workload"])
    dropped = dict.fromkeys((OTHER_STATE, HELD, NO_GPU, OF_WORKLOADS, NO_START), 0)
    jobs: list[QueuedJob] = []
    gangs: dict[str, list[_Item]] = {}
    for item in listed.items:
        if item.kind == "ResourceFlavor":
            continue
        if item.kind == "Workload":
            found = _of_workload(path, item, names[item.metadata.namespace, item.metadata.name], times, flavors)
            if isinstance(found, QueuedJob):
                jobs.append(found)
            else:
                dropped[found] += 1
        elif item.status.phase not in ("Running", "Pending"):
            dropped[OTHER_STATE] += 1
        elif names and QUEUE in item.metadata.labels:
            dropped[OF_WORKLOADS] += 1
        elif not _gpus_of(path, item.metadata.name, item.spec):
            dropped[NO_GPU] += 1
        else:
            labels = item.metadata.labels
            own = next((labels[name] for name in GANGS if labels.get(name)), item.metadata.name)
            gangs.setdefault(f"{item.metadata.namespace}/{own}", []).append(item)
    for name, pods in gangs.items():
        jobs.append(_of_pods(path, name, pods, times))
    latest = max(times.values(), default=0.0)
    notes = (
        ()
        if now is not None
        else ("Kubernetes lists have no time of printing: the latest time in the list counts as now",)
    )
    return QueueState.of(path, jobs, given_now(now, latest), dropped, notes, has_partitions=False)


def _names_of(workloads: list[_Item]) -> dict[tuple[str, str], str]:
    """Return the jobs' names: a workload's owner, such as a Job, if it owns no other workload, else the workload's name."""
    metadata = [item.metadata for item in workloads]
    owners = [each.ownerReferences[0].name if each.ownerReferences else each.name for each in metadata]
    count = Counter((each.namespace, owner) for each, owner in zip(metadata, owners, strict=True))
    return {
        (each.namespace, each.name): f"{each.namespace}/{owner if count[each.namespace, owner] == 1 else each.name}"
        for each, owner in zip(metadata, owners, strict=True)
    }


def _type_of(labels: Mapping[str, str]) -> str:
    """Return the GPU type in node labels, "" if there is none."""
    return next((labels[key] for key in PRODUCTS if labels.get(key)), "")


def _of_workload(
    path: str | Path, item: _Item, name: str, times: Mapping[str, float], flavors: Mapping[str, Mapping[str, str]]
) -> "QueuedJob | str":
    """Return a workload's job, or the reason for dropping it."""
    conditions = {each.type: each for each in item.status.conditions if each.status == "True"}
    if "Finished" in conditions:
        return OTHER_STATE
    if not item.spec.active:
        return HELD
    gpus = sum(_whole(path, name, each.count) * _gpus_of(path, name, each.template.spec) for each in item.spec.podSets)
    if not gpus:
        return NO_GPU
    admitted = conditions.get("Admitted") or conditions.get("QuotaReserved")
    start = None if admitted is None else times.get(admitted.lastTransitionTime or "")
    if admitted is not None and start is None:
        return NO_START
    first = item.spec.podSets[0].template.spec
    assigned = [] if item.status.admission is None else item.status.admission.podSetAssignments
    chosen = next((each.flavors[RESOURCE] for each in assigned if RESOURCE in each.flavors), "")
    return QueuedJob(
        name=name,
        gpus=gpus,
        submit_s=times.get(item.metadata.creationTimestamp or "", 0.0),
        start_s=start,
        limit_s=_limit(item.spec.maximumExecutionTimeSeconds),
        user=_user(item.metadata),
        account=item.metadata.namespace,
        partition=_queue(item.metadata.namespace, item.spec.queueName),
        gpu_type=_type_of(first.nodeSelector) or _type_of(flavors.get(chosen, {})),
        priority=item.spec.priority,
    )


def _of_pods(path: str | Path, name: str, pods: list[_Item], times: Mapping[str, float]) -> QueuedJob:
    """Return the job of a gang's pods."""
    first, spec = pods[0].metadata, pods[0].spec
    counts = [_gpus_of(path, pod.metadata.name, pod.spec) for pod in pods]
    is_running = all(pod.status.phase == "Running" for pod in pods)
    starts = [times[pod.status.startTime or ""] for pod in pods if pod.status.startTime in times]
    submit = min(times.get(pod.metadata.creationTimestamp or "", 0.0) for pod in pods)
    nodes: dict[str, int] = {}
    for pod, gpus in zip(pods, counts, strict=True):
        if pod.spec.nodeName:
            nodes[pod.spec.nodeName] = nodes.get(pod.spec.nodeName, 0) + gpus
    return QueuedJob(
        name=name,
        gpus=sum(counts),
        submit_s=submit,
        start_s=max(starts, default=submit) if is_running else None,
        limit_s=_limit(spec.activeDeadlineSeconds),
        user=_user(first),
        account=first.namespace,
        partition=_queue(first.namespace, first.labels.get(QUEUE, "")),
        gpu_type=_type_of(spec.nodeSelector),
        priority=spec.priority,
        nodes=tuple(nodes.items()) if is_running and sum(nodes.values()) == sum(counts) else (),
    )


def _queue(namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if name else namespace


def _user(metadata: _Metadata) -> str:
    return next((metadata.labels[name] for name in USERS if name in metadata.labels), metadata.namespace)


def _limit(seconds: int | None) -> float | None:
    return None if seconds is None else float(seconds)


def _gpus_of(path: str | Path, name: str, spec: _PodSpec) -> int:
    """Return the GPUs of a pod."""
    return sum(
        _whole(path, name, each.resources.requests.get(RESOURCE, each.resources.limits.get(RESOURCE, 0)))
        for each in spec.containers
    )


def _whole(path: str | Path, name: str, value: str | int) -> int:
    text = str(value)
    if not (text.isascii() and text.isdecimal() and len(text) <= 6):
        raise InvalidProblemError(
            f"{path}: {name[:60]!r} must request an integer number of {RESOURCE}, got {text[:20]!r}"
        )
    return int(text)


def _times(path: str | Path, items: list[_Item]) -> dict[str, float]:
    """Return a mapping from all times of a list, as texts, to seconds since 1970."""
    texts = {item.metadata.creationTimestamp for item in items} | {item.status.startTime for item in items}
    texts |= {each.lastTransitionTime for item in items for each in item.status.conditions}
    told = sorted(text for text in texts if text)
    if not told:
        return {}
    seconds = ((utc_dates(told) - np.datetime64(EPOCH)) / np.timedelta64(1, "s")).to_numpy(dtype=np.float64)
    wrong = [text for text, second in zip(told, seconds.tolist(), strict=True) if np.isnan(second)]
    if wrong:
        raise InvalidProblemError(f"{path}: {wrong[0][:40]!r} isn't a time such as 2026-11-02T08:03:54Z; correct it")
    return dict(zip(told, seconds.tolist(), strict=True))
