"""Operators' queue definitions: YAML of Kueue (ClusterQueue, Cohort, ResourceFlavor, LocalQueue) and of KAI Scheduler (Queue).

Only GPUs count: the resource ``gpu``, or one whose name ends in ``/gpu``. A note lists the fields without effect here.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from optim.core.errors import InvalidProblemError
from optim.core.files import naming
from optim.core.limits import check_limit
from optim.core.yaml_documents import read_yaml
from optim.models.cluster.quota_tree import (
    MAX_QUOTA,
    NOT_SET,
    UNLIMITED,
    LocalQueue,
    Queueing,
    QueueRules,
    QuotaTree,
    Reclaim,
    ShareRule,
    WithinQueue,
)
from optim.models.cluster.workload import US
from optim.workloads.cluster.hierarchies import parents_first

MILLI = 1_000
CLUSTER = "(cluster)"
"""Name of the root above KAI's queues, which has the GPUs outside of all quotas."""

GPU_NAME = re.compile(r"(?:.*/)?gpu")
_QUANTITY = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)(m|k|M|G|T|Ki|Mi|Gi|Ti)?")
_SUFFIX = {"": Fraction(1), "m": Fraction(1, 1000)}
_SUFFIX |= {sign: Fraction(1000**power) for power, sign in enumerate("kMGT", start=1)}
_SUFFIX |= {f"{sign}i": Fraction(1024**power) for power, sign in enumerate("KMGT", start=1)}
_DURATION = re.compile(r"(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9}(?:\.\d{1,6})?)s)?")
KUEUE, KAI = "kueue.x-k8s.io/", "scheduling.run.ai/"
KINDS: Mapping[str, str] = {
    "ClusterQueue": KUEUE,
    "Cohort": KUEUE,
    "ResourceFlavor": KUEUE,
    "LocalQueue": KUEUE,
    "Configuration": "config.kueue.x-k8s.io/",
    "Queue": KAI,
}
"""Prefix of the ``apiVersion`` of each supported kind of object."""

ChoiceT = TypeVar("ChoiceT", Queueing, Reclaim, WithinQueue, ShareRule)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFile:
    """Content of a queue file.

    Parameters
    ----------
    path
        Source file.
    kinds
        Objects of the file, by kind and then by name.
    ignored
        Names of fields that have no effect in the simulation.
    is_kai
        Whether the queues are those of KAI Scheduler; otherwise they are those of Kueue.
    """

    path: str
    kinds: Mapping[str, Mapping[str, Mapping[str, Any]]]
    ignored: tuple[str, ...]
    is_kai: bool

    def tree(self, num_gpus: int) -> QuotaTree:
        """Return the tree of queues for a cluster with this many GPUs; KAI's unlimited queues may use all of them.

        Raises
        ------
        InvalidProblemError
            If a field can't be read, cohorts form a cycle, or a queue refers to a missing object.
        """
        with naming(self.path):
            return _kai_tree(self, num_gpus) if self.is_kai else _kueue_tree(self)


class _Object:
    """One object of a file; the field `unread` collects the names of fields that have no effect."""

    def __init__(self, kind: str, name: str, body: Mapping[str, Any], unread: dict[str, None]) -> None:
        self.kind, self.name, self.body, self.unread = kind, name, body, unread

    @property
    def where(self) -> str:
        return f"{self.kind} {self.name[:40]!r}"

    def section(self, holder: Mapping[str, Any], key: str) -> Mapping[str, Any]:
        """Return the mapping at a key of another mapping; empty if absent."""
        value = holder.get(key)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise InvalidProblemError(f"{self.where}: {key} must be a mapping, got {str(value)[:40]!r}")
        return value

    def entries(self, holder: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
        """Return the list of mappings at a key; empty if absent."""
        value = holder.get(key)
        value = [] if value is None else value
        if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
            raise InvalidProblemError(f"{self.where}: {key} must be a list of mappings, got {str(value)[:40]!r}")
        return value

    def text(self, holder: Mapping[str, Any], *keys: str) -> str:
        """Return the text of the first key that is present, "" if none is."""
        for key in keys:
            value = holder.get(key)
            if value is not None:
                if not isinstance(value, str) or not value:
                    raise InvalidProblemError(f"{self.where}: {key} must be a name, got {str(value)[:40]!r}")
                return value
        return ""

    def choice(self, holder: Mapping[str, Any], key: str, default: ChoiceT) -> ChoiceT:
        """Return the enumeration member at a key, the default if absent."""
        value = holder.get(key)
        if value is None:
            return default
        known = [each.value for each in type(default)]
        if value not in known:
            raise InvalidProblemError(f"{self.where}: {key} must be {' or '.join(known)}, got {str(value)[:40]!r}")
        return type(default)(value)

    def whole(self, holder: Mapping[str, Any], key: str, default: int) -> int:
        """Return the 32-bit integer at a key, the default if absent."""
        value = holder.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 2**31:
            raise InvalidProblemError(f"{self.where}: {key} must be a 32-bit integer, got {str(value)[:40]!r}")
        return value

    def quantity(self, value: Any, key: str) -> int:
        """Return an amount of GPUs in thousandths."""
        number = _amount(value)
        if number is None or number * MILLI > MAX_QUOTA:
            raise InvalidProblemError(
                f"{self.where}: {key} must be an amount of GPUs of at most {MAX_QUOTA // MILLI}, got {str(value)[:40]!r}"
            )
        return int(number * MILLI)

    def weight(self, holder: Mapping[str, Any]) -> float:
        """Return ``fairSharing.weight``."""
        value = self.section(holder, "fairSharing").get("weight", 1)
        number = _amount(value)
        if number is None or number > 10**9:
            raise InvalidProblemError(f"{self.where}: weight must be a number of at least 0, got {str(value)[:40]!r}")
        return float(number)

    def remark(self, holder: Mapping[str, Any], known: Sequence[str], prefix: str = "") -> None:
        """Record keys that aren't among the known ones as without effect."""
        for key in holder:
            if key not in known:
                self.unread[f"{self.kind}.{prefix}{str(key)[:40]}"] = None


def _amount(value: Any) -> Fraction | None:
    """Return a Kubernetes quantity (such as "500m") as a fraction, None for other values."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    match = _QUANTITY.fullmatch(str(value))
    return None if match is None else Fraction(match[1]) * _SUFFIX[match[2] or ""]


def _duration_s(value: Any) -> float | None:
    """Return the seconds of a duration such as ``1h30m``, None for other values."""
    match = _DURATION.fullmatch(value) if isinstance(value, str) and value else None
    if match is None or not any(match.groups()):
        return None
    return 3600 * int(match[1] or 0) + 60 * int(match[2] or 0) + float(match[3] or 0)


def read_queues(path: str | Path) -> QueueFile:
    """Read the objects of a file; `QueueFile.tree` computes their quotas.

    Raises
    ------
    InvalidProblemError
        If the file can't be read or isn't YAML, an object has an unknown kind or appears twice, or there is no queue.
    MissingDependencyError
        If PyYAML isn't installed.
    """
    kinds: dict[str, dict[str, dict[str, Any]]] = {kind: {} for kind in KINDS}
    for at, document in enumerate(_objects(read_yaml(path)), start=1):
        kind, name = _kind_and_name(f"{path}: object {at}", document)
        if kind == "LocalQueue":
            name = f"{document['metadata'].get('namespace') or 'default'}/{name}"
        if name in kinds[kind]:
            raise InvalidProblemError(f"{path}: {kind} {name[:40]!r} appears twice; remove one")
        kinds[kind][name] = document
        check_limit("count", sum(map(len, kinds.values())), f"{path}: objects")
    is_kai = bool(kinds["Queue"])
    if is_kai == bool(kinds["ClusterQueue"]):
        both = (
            "both Kueue's ClusterQueues and KAI Scheduler's Queues" if is_kai else "neither a ClusterQueue nor a Queue"
        )
        raise InvalidProblemError(f"{path}: the file has {both}; give queues of one of them")
    unread: dict[str, None] = {}
    with naming(path):
        for kind, objects in kinds.items():
            for name, body in objects.items():
                _remark(_Object(kind, name, body.get("spec") or {}, unread), body)
    file = QueueFile(path=str(path), kinds=kinds, ignored=tuple(unread), is_kai=is_kai)
    file.tree(1)  # raises for unreadable fields
    return file


def _objects(documents: Sequence[Any]) -> Iterator[Any]:
    """Yield the objects of a file's documents, including the items of objects of kind `List`."""
    for document in documents:
        if (
            isinstance(document, dict)
            and str(document.get("kind")) == "List"
            and isinstance(document.get("items"), list)
        ):
            yield from document["items"]
        else:
            yield document


def _kind_and_name(where: str, document: Any) -> tuple[str, str]:
    if not isinstance(document, dict):
        raise InvalidProblemError(f"{where} isn't a mapping; a Kubernetes object has apiVersion, kind and metadata")
    kind, version = str(document.get("kind")), str(document.get("apiVersion"))
    if kind not in KINDS or not version.startswith(KINDS[kind]):
        raise InvalidProblemError(
            f"{where} is of kind {kind[:40]!r} of {version[:40]!r}; supported kinds: {', '.join(KINDS)}; remove the object"
        )
    metadata = document.get("metadata") or {}
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if kind == "Configuration":
        return kind, str(name or "")
    if not isinstance(name, str) or not name:
        raise InvalidProblemError(f"{where} ({kind}) has no metadata.name; name it")
    return kind, name


def _remark(one: _Object, document: Mapping[str, Any]) -> None:
    """Record the fields of an object that have no effect in the simulation."""
    if not isinstance(one.body, dict):
        raise InvalidProblemError(f"{one.where}: spec must be a mapping, got {str(one.body)[:40]!r}")
    if one.kind == "ClusterQueue":
        known = (
            "cohort",
            "cohortName",
            "resourceGroups",
            "queueingStrategy",
            "preemption",
            "fairSharing",
            "stopPolicy",
            "admissionScope",
        )
        one.remark(one.body, known)
        preemption = one.section(one.body, "preemption")
        one.remark(preemption, ("reclaimWithinCohort", "withinClusterQueue", "borrowWithinCohort"), "preemption.")
    elif one.kind == "Cohort":
        one.remark(one.body, ("parent", "parentName", "resourceGroups", "fairSharing"))
    elif one.kind == "ResourceFlavor":
        one.remark(one.body, ("nodeLabels",))
    elif one.kind == "LocalQueue":
        one.remark(one.body, ("clusterQueue", "fairSharing"))
    elif one.kind == "Configuration":
        one.remark(document, ("apiVersion", "kind", "metadata", "fairSharing", "admissionFairSharing"))
    else:
        one.remark(one.body, ("parentQueue", "priority", "resources", "preemptMinRuntime", "reclaimMinRuntime"))
        one.remark(one.section(one.body, "resources"), ("gpu",), "resources.")
    for group in one.entries(one.body, "resourceGroups"):
        for flavor in one.entries(group, "flavors"):
            for resource in one.entries(flavor, "resources"):
                if not GPU_NAME.fullmatch(str(resource.get("name"))):
                    one.unread[f"quota of {str(resource.get('name'))[:40]}"] = None


@dataclass(slots=True)
class _Node:
    """A row of the tree under construction."""

    name: str
    cohort: str
    is_queue: bool
    quotas: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    weight: float = 1.0
    priority: int = 0
    rules: QueueRules = field(default_factory=QueueRules)
    reclaim_after_us: int = NOT_SET
    preempt_after_us: int = NOT_SET


def _kueue_tree(file: QueueFile) -> QuotaTree:
    """Return the tree of Kueue's queues and cohorts."""
    cohorts = {
        name: _cohort(_Object("Cohort", name, body.get("spec") or {}, {}))
        for name, body in file.kinds["Cohort"].items()
    }
    queues = [
        _cluster_queue(_Object("ClusterQueue", name, body.get("spec") or {}, {}))
        for name, body in file.kinds["ClusterQueue"].items()
    ]
    for named in [*cohorts.values(), *queues]:
        if named.cohort and named.cohort not in cohorts:  # a cohort without an object of its own
            cohorts[named.cohort] = _Node(name=named.cohort, cohort="", is_queue=False)
    local = {}
    for name, body in file.kinds["LocalQueue"].items():
        one = _Object("LocalQueue", name, body.get("spec") or {}, {})
        queue = one.text(one.body, "clusterQueue")
        if queue not in file.kinds["ClusterQueue"]:
            raise InvalidProblemError(f"{one.where} names ClusterQueue {queue[:40]!r}, which isn't in the file; add it")
        local[name] = LocalQueue(queue=queue, weight=one.weight(one.body))
    short = [name.partition("/")[2] for name in local]
    local |= {
        name.partition("/")[2]: each for name, each in list(local.items()) if short.count(name.partition("/")[2]) == 1
    }
    labels: dict[str, list[tuple[str, str]]] = {}
    for name, body in file.kinds["ResourceFlavor"].items():
        one = _Object("ResourceFlavor", name, body.get("spec") or {}, {})
        labels[name] = sorted((str(value), str(key)) for key, value in one.section(one.body, "nodeLabels").items())
    used = dict.fromkeys(flavor for node in [*queues, *cohorts.values()] for flavor in node.quotas)
    if not used:
        raise InvalidProblemError("the file has no quota of GPUs (a resource whose name ends in /gpu); add one")
    values = {flavor: tuple(value for value, _ in labels.get(flavor, ())) for flavor in used}
    keys = {flavor: tuple(key for _, key in labels.get(flavor, ())) for flavor in used}
    shares, half_life_h = _configured(file)
    order = parents_first({name: node.cohort for name, node in cohorts.items()}, "cohort")
    ordered = [*(cohorts[name] for name in order), *queues]
    more = {"local_queues": local, "shares": shares, "half_life_h": half_life_h}
    return _tree(ordered, tuple(used), labels=values, label_keys=keys, **more)


def _configured(file: QueueFile) -> tuple[tuple[ShareRule, ...], float]:
    """Return the settings of Kueue's configuration: when shares allow preemption, and the half-life of usage."""
    for name, body in file.kinds["Configuration"].items():
        one = _Object("Configuration", name, body, {})
        fair, decayed = one.section(body, "fairSharing"), one.section(body, "admissionFairSharing")
        given = fair.get("preemptionStrategies") or list(ShareRule)
        shares = tuple(
            one.choice({"preemptionStrategies": each}, "preemptionStrategies", ShareRule.FINAL_SHARE) for each in given
        )
        # Since Kueue 0.15 a section without `enable` turns fair sharing on; older files always have the field.
        is_on = bool(fair) and fair.get("enable", True) is True
        half_life_s = _duration_s(decayed.get("usageHalfLifeTime", "0s"))
        if half_life_s is None:
            raise InvalidProblemError(f"{one.where}: usageHalfLifeTime must be a duration such as 168h")
        return shares if is_on else (), half_life_s / 3600
    return (), 0.0


def _quotas(one: _Object) -> dict[str, tuple[int, int, int]]:
    """Return nominal quota, borrowing limit and lending limit of GPUs by flavor, in the file's order."""
    found: dict[str, tuple[int, int, int]] = {}
    names = set()
    for group in one.entries(one.body, "resourceGroups"):
        for flavor in one.entries(group, "flavors"):
            for resource in one.entries(flavor, "resources"):
                name = one.text(resource, "name")
                if not GPU_NAME.fullmatch(name):
                    continue
                names.add(name)
                if len(names) > 1:
                    said = " and as ".join(sorted(names))[:80]
                    raise InvalidProblemError(f"{one.where} counts GPUs as {said}; only one name is supported")
                if "nominalQuota" not in resource:
                    raise InvalidProblemError(f"{one.where}: resource {name[:40]!r} has no nominalQuota; add it")
                limits = [
                    UNLIMITED if resource.get(key) is None else one.quantity(resource[key], key)
                    for key in ("borrowingLimit", "lendingLimit")
                ]
                key = one.text(flavor, "name")
                if key in found:
                    raise InvalidProblemError(f"{one.where}: flavor {key[:40]!r} has two quotas of GPUs; remove one")
                found[key] = (one.quantity(resource["nominalQuota"], "nominalQuota"), limits[0], limits[1])
    return found


def _cohort(one: _Object) -> _Node:
    parent = one.text(one.body, "parentName", "parent")
    return _Node(name=one.name, cohort=parent, is_queue=False, quotas=_quotas(one), weight=one.weight(one.body))


def _cluster_queue(one: _Object) -> _Node:
    preemption = one.section(one.body, "preemption")
    borrow = one.section(preemption, "borrowWithinCohort")
    policy = one.choice(borrow, "policy", Reclaim.NEVER)
    threshold = borrow.get("maxPriorityThreshold")
    stop = one.body.get("stopPolicy")
    if stop not in (None, "None", "Hold", "HoldAndDrain"):
        raise InvalidProblemError(f"{one.where}: stopPolicy must be None, Hold or HoldAndDrain, got {str(stop)[:40]!r}")
    rules = QueueRules(
        queueing=one.choice(one.body, "queueingStrategy", Queueing.BEST_EFFORT_FIFO),
        reclaim=one.choice(preemption, "reclaimWithinCohort", Reclaim.NEVER),
        within=one.choice(preemption, "withinClusterQueue", WithinQueue.NEVER),
        borrow_within=policy is Reclaim.LOWER_PRIORITY,
        borrow_max_priority=None if threshold is None else one.whole(borrow, "maxPriorityThreshold", 0),
        is_held=stop in ("Hold", "HoldAndDrain"),
        by_usage=one.section(one.body, "admissionScope").get("admissionMode") == "UsageBasedFairSharing",
    )
    cohort = one.text(one.body, "cohortName", "cohort")
    return _Node(
        name=one.name, cohort=cohort, is_queue=True, quotas=_quotas(one), weight=one.weight(one.body), rules=rules
    )


def _tree(nodes: Sequence[_Node], flavors: tuple[str, ...], **more: Any) -> QuotaTree:
    """Build the tree from nodes in an order in which cohorts come before their members."""
    row = {node.name: at for at, node in enumerate(nodes) if not node.is_queue}
    amounts = np.zeros((3, len(nodes), len(flavors)), np.int64)
    amounts[1:] = UNLIMITED
    covers = np.zeros((len(nodes), len(flavors)), np.bool_)
    for at, node in enumerate(nodes):
        for flavor, quota in node.quotas.items():
            amounts[:, at, flavors.index(flavor)] = quota
            covers[at, flavors.index(flavor)] = True
    return QuotaTree(
        names=tuple(node.name for node in nodes),
        parent=np.array([row[node.cohort] if node.cohort else -1 for node in nodes], np.int64),
        is_queue=np.array([node.is_queue for node in nodes]),
        flavors=flavors,
        nominal=amounts[0],
        borrowing=amounts[1],
        lending=amounts[2],
        covers=covers,
        weight=np.array([node.weight for node in nodes]),
        priority=np.array([node.priority for node in nodes], np.int64),
        rules=tuple(node.rules for node in nodes),
        reclaim_after_us=np.array([node.reclaim_after_us for node in nodes], np.int64),
        preempt_after_us=np.array([node.preempt_after_us for node in nodes], np.int64),
        **more,
    )


KAI_RULES = QueueRules(reclaim=Reclaim.ANY, within=WithinQueue.LOWER_PRIORITY)
KAI_PRIORITY = 100
"""Default priority of a queue (``defaultQueuePriority``)."""


def _kai_tree(file: QueueFile, num_gpus: int) -> QuotaTree:
    """Return the tree of KAI's queues; its root `CLUSTER` has the GPUs outside of all quotas."""
    objects = {name: _Object("Queue", name, body.get("spec") or {}, {}) for name, body in file.kinds["Queue"].items()}
    parent = {name: one.text(one.body, "parentQueue") for name, one in objects.items()}
    for name, above in parent.items():
        if above and above not in objects:
            raise InvalidProblemError(
                f"Queue {name[:40]!r} names parentQueue {above[:40]!r}, which isn't in the file; add it"
            )
    parents = {above for above in parent.values() if above}
    order = parents_first(parent, "Queue")
    total = num_gpus * MILLI
    quota = {name: _kai_amount(objects[name], "quota", total) for name in order}
    below = dict.fromkeys(objects, 0)
    for name in reversed(order):
        quota[name] = max(quota[name], below[name])
        if parent[name]:
            below[parent[name]] += quota[name]
    promised = sum(quota[name] for name in order if not parent[name])
    nodes = [
        _Node(name=CLUSTER, cohort="", is_queue=False, quotas={"gpu": (max(0, total - promised), UNLIMITED, UNLIMITED)})
    ]
    for name in order:
        one = objects[name]
        limit = _kai_amount(one, "limit", UNLIMITED)
        if limit < quota[name]:
            raise InvalidProblemError(
                f"{one.where} has a limit below its quota, or below the sum of its children's quotas; raise the limit"
            )
        gpu = one.section(one.section(one.body, "resources"), "gpu")
        weight = _amount(gpu.get("overQuotaWeight", 1))
        if weight is None or weight > 10**9:
            raise InvalidProblemError(f"{one.where}: overQuotaWeight must be a number of at least 0")
        nodes.append(
            _Node(
                name=name,
                cohort=parent[name] or CLUSTER,
                is_queue=name not in parents,
                quotas={
                    "gpu": (
                        quota[name] - below[name],
                        UNLIMITED if limit >= UNLIMITED else limit - quota[name],
                        UNLIMITED,
                    )
                },
                weight=float(weight),
                priority=one.whole(one.body, "priority", KAI_PRIORITY),
                rules=KAI_RULES,
                reclaim_after_us=_min_runtime_us(one, "reclaimMinRuntime"),
                preempt_after_us=_min_runtime_us(one, "preemptMinRuntime"),
            )
        )
    return _tree(nodes, ("gpu",), shares=(ShareRule.FINAL_SHARE,))


def _kai_amount(one: _Object, key: str, unlimited: int) -> int:
    """Return a quota or limit of GPUs. -1 is unlimited, an unset limit equals the quota, and a queue without GPUs has no limit."""
    gpu = one.section(one.section(one.body, "resources"), "gpu")
    value = gpu.get(key)
    if value == -1 or (key == "limit" and not gpu):
        return unlimited
    if value is None or value == 0:
        return 0 if key == "quota" else _kai_amount(one, "quota", unlimited)
    return one.quantity(value, key)


def _min_runtime_us(one: _Object, key: str) -> int:
    value = one.body.get(key)
    if value is None:
        return NOT_SET
    seconds = _duration_s(value)
    if seconds is None or seconds > 1e9:
        raise InvalidProblemError(f"{one.where}: {key} must be a duration such as 30m, got {str(value)[:40]!r}")
    return round(seconds * US)


def write_kueue(tree: QuotaTree) -> tuple[str, tuple[str, ...]]:
    """Return a tree as YAML for Kueue, and the names of its settings that Kueue can't express.

    Reading the text gives the same queues, quotas, limits and rules.
    """
    untranslated = []
    if len(set(tree.priority.tolist())) > 1:
        untranslated.append("priorities of queues: Kueue shares borrowed quota by weight alone")
    if (tree.reclaim_after_us > 0).any() or (tree.preempt_after_us > 0).any():
        untranslated.append("minimum run times before a job is stopped: Kueue stops jobs at any age")
    if tree.half_life_h and not any(rules.by_usage for rules in tree.rules):
        untranslated.append("order of queues by decayed usage: Kueue orders local queues of one ClusterQueue by it")
    documents: list[Any] = []
    for flavor in tree.flavors:
        values, keys = tree.labels.get(flavor, ()), tree.label_keys.get(flavor, ())
        if len(keys) < len(values):
            untranslated.append(f"keys of the node labels of flavor {flavor}: replace label-0 and so on")
            keys = tuple(f"label-{at}" for at in range(len(values)))
        spec = {"nodeLabels": dict(zip(keys, values, strict=True))} if values else {}
        documents.append(_kubernetes("ResourceFlavor", flavor, spec))
    for node, name in enumerate(tree.names):
        spec = _kueue_spec(tree, node)
        documents.append(_kubernetes("ClusterQueue" if tree.is_queue[node] else "Cohort", name, spec))
    for name, local in tree.local_queues.items():
        namespace, slash, short = name.partition("/")
        if slash:
            spec = {"clusterQueue": local.queue} | _fair(local.weight)
            documents.append(_kubernetes("LocalQueue", short, spec, namespace))
    if tree.shares or tree.half_life_h:
        configuration: dict[str, Any] = {"apiVersion": "config.kueue.x-k8s.io/v1beta1", "kind": "Configuration"}
        if tree.shares:
            configuration["fairSharing"] = {
                "enable": True,
                "preemptionStrategies": [each.value for each in tree.shares],
            }
        if tree.half_life_h:
            configuration["admissionFairSharing"] = {"usageHalfLifeTime": f"{round(tree.half_life_h * 3600)}s"}
        documents.append(configuration)
    return "---\n".join(_as_yaml(document) for document in documents), tuple(untranslated)


def _kubernetes(kind: str, name: str, spec: Mapping[str, Any], namespace: str = "") -> dict[str, Any]:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": f"{KUEUE}v1beta1", "kind": kind, "metadata": metadata, "spec": dict(spec)}


def _fair(weight: float) -> dict[str, Any]:
    return {} if weight == 1 else {"fairSharing": {"weight": f"{weight:.9f}".rstrip("0").rstrip(".")}}


def _written(milli: int) -> Any:
    """Return an amount of GPUs as Kubernetes writes it."""
    return milli // MILLI if milli % MILLI == 0 else f"{milli}m"


def _kueue_spec(tree: QuotaTree, node: int) -> dict[str, Any]:
    parent, rules = int(tree.parent[node]), tree.rules[node]
    is_queue = bool(tree.is_queue[node])
    spec: dict[str, Any] = {}
    if parent >= 0:
        spec["cohort" if is_queue else "parent"] = tree.names[parent]
    flavors = []
    for at in np.flatnonzero(tree.covers[node]).tolist():
        quota = {"name": "nvidia.com/gpu", "nominalQuota": _written(int(tree.nominal[node, at]))}
        for key, limit in (("borrowingLimit", tree.borrowing), ("lendingLimit", tree.lending)):
            if limit[node, at] < UNLIMITED:
                quota[key] = _written(int(limit[node, at]))
        flavors.append({"name": tree.flavors[at], "resources": [quota]})
    if flavors:
        spec["resourceGroups"] = [{"coveredResources": ["nvidia.com/gpu"], "flavors": flavors}]
    spec |= _fair(float(tree.weight[node]))
    if not is_queue:
        return spec
    spec["namespaceSelector"] = {}
    spec["queueingStrategy"] = rules.queueing.value
    spec["preemption"] = {"reclaimWithinCohort": rules.reclaim.value, "withinClusterQueue": rules.within.value}
    if rules.borrow_within:
        threshold = {} if rules.borrow_max_priority is None else {"maxPriorityThreshold": rules.borrow_max_priority}
        spec["preemption"]["borrowWithinCohort"] = {"policy": Reclaim.LOWER_PRIORITY.value} | threshold
    if rules.is_held:
        spec["stopPolicy"] = "Hold"
    if rules.by_usage:
        spec["admissionScope"] = {"admissionMode": "UsageBasedFairSharing"}
    return spec


def _as_yaml(value: Any, indent: int = 0) -> str:
    """Return a mapping as block YAML; texts are quoted as JSON, which YAML reads."""
    pad, lines = " " * indent, []
    for key, each in value.items():
        if isinstance(each, dict) and each:
            lines.append(f"{pad}{key}:\n{_as_yaml(each, indent + 2)}")
        elif isinstance(each, list) and each and isinstance(each[0], dict):
            entries = [_as_yaml(entry, indent + 2) for entry in each]
            lines.append(f"{pad}{key}:\n" + "".join(f"{pad}- {entry[indent + 2 :]}" for entry in entries))
        else:
            lines.append(f"{pad}{key}: {json.dumps(each, ensure_ascii=False)}\n")
    return "".join(lines)
