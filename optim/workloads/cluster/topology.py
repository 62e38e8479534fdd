"""Clusters as users give them: machines x GPUs, a topology file, Tiresias' specification, Alibaba's list of nodes."""

from pathlib import Path
from typing import Literal

import numpy as np
from msgspec import Struct

from optim.core.documents import Count, Name, PositiveInt, decode
from optim.core.errors import InvalidProblemError
from optim.core.files import read_bytes
from optim.core.limits import check_limit
from optim.models.cluster.cluster import GRID, MACHINES_A_RACK, MAX_GPUS, UNNAMED, UNSTATED, Cluster
from optim.workloads.csv_columns import header_of, read_columns, require_columns, require_whole
from optim.workloads.traces.alibaba import read_nodes

SCHEMA = "optim/cluster/1"
SPECIFICATION = ("num_switch", "num_node_p_switch", "num_gpu_p_node", "num_cpu_p_node", "mem_p_node")


class MachineDocument(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """`count` equal machines: GPUs, their type, rack (else filled in order), host room (else it never binds), partitions they are in."""

    gpus: PositiveInt
    count: PositiveInt = 1
    kind: Name = "gpu"
    rack: Count | None = None
    cpus: float | None = None
    memory_gb: float | None = None
    partitions: list[Name] = []


class TopologyDocument(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The file format ``optim/cluster/1``."""

    schema: Literal["optim/cluster/1"]
    machines: list[MachineDocument]
    machines_a_rack: PositiveInt = MACHINES_A_RACK


def read_cluster(text: str) -> Cluster:
    """Return the cluster that a text gives: `MACHINESxGPUS` such as ``60x8``, or a file.

    A file is a topology in JSON (``optim/cluster/1``), or a table: one of Tiresias' specifications, or Alibaba's list of nodes,
    whose nodes without GPUs are left out.

    Raises
    ------
    InvalidProblemError
        If it is none of these, or has no machine.
    """
    path = Path(text)
    if GRID.fullmatch(text.strip()) or not path.is_file():
        return Cluster.grid(text)
    if path.name.removesuffix(".gz").endswith(".json"):
        return _from_topology(path)
    header = header_of(path)
    if set(SPECIFICATION) <= set(header):
        return _from_specification(path)
    if {"sn", "gpu"} <= set(header):
        return _from_nodes(path)
    raise InvalidProblemError(
        f"{path}: not a cluster; give MACHINESxGPUS, a topology ({SCHEMA}, .json), or a table with {', '.join(SPECIFICATION)}"
    )


def _from_topology(path: Path) -> Cluster:
    try:
        document = decode(read_bytes(path), TopologyDocument)
    except InvalidProblemError as error:
        raise InvalidProblemError(f"{path}: {error}") from error
    entries = document.machines
    check_limit("count", sum(entry.count for entry in entries), f"{path}: machines")
    check_limit("gpus", sum(entry.count * entry.gpus for entry in entries), f"{path}: GPUs of a cluster")
    count = np.array([entry.count for entry in entries], np.int64)
    for number, entry in enumerate(entries):
        if entry.gpus > MAX_GPUS or any(
            room is not None and not 0 <= room < np.inf for room in (entry.cpus, entry.memory_gb)
        ):
            raise InvalidProblemError(
                f"{path}: machines[{number}] must have at most {MAX_GPUS} GPUs, and host room of at least 0"
            )
    named_partitions = [tuple(sorted(set(entry.partitions))) for entry in entries]
    if any(named_partitions) and not all(named_partitions):
        raise InvalidProblemError(
            f"{path}: machines[{named_partitions.index(())}] names no partitions, while others do; give every machine its own"
        )
    classes = [(entry.kind, names) for entry, names in zip(entries, named_partitions, strict=True)]
    kinds = tuple(dict.fromkeys(classes))
    filled = np.arange(int(count.sum()) if len(count) else 0) // document.machines_a_rack
    named = np.repeat([-1 if entry.rack is None else entry.rack for entry in entries], count)
    largest = max((entry.rack for entry in entries if entry.rack is not None), default=-1)
    gpus = np.repeat([entry.gpus for entry in entries], count).astype(np.int64)
    cpus = np.repeat([UNSTATED if e.cpus is None else e.cpus for e in entries], count)
    memory = np.repeat([UNSTATED if e.memory_gb is None else e.memory_gb for e in entries], count)
    return Cluster(
        gpus=gpus,
        rack=np.where(named >= 0, named, largest + 1 + filled).astype(np.int64),
        kind=np.repeat([kinds.index(each) for each in classes], count).astype(np.int64),
        kinds=tuple(f"{kind} in {', '.join(names)}" if names else kind for kind, names in kinds) or UNNAMED,
        gpu_types=tuple(kind for kind, _ in kinds) if any(named_partitions) else (),
        partitions=tuple(names for _, names in kinds) if any(named_partitions) else (),
        cpus=cpus,
        memory_gb=memory,
    )


def _from_specification(path: Path) -> Cluster:
    """Read racks x machines x GPUs from the first row."""
    columns = read_columns(path, SPECIFICATION)
    require_columns(path, columns, *SPECIFICATION, least=0.0)
    racks, machines, gpus = (int(require_whole(path, name, columns[name])[0]) for name in SPECIFICATION[:3])
    check_limit("count", racks * machines, f"{path}: machines")
    if gpus > MAX_GPUS:
        raise InvalidProblemError(f"{path}: a machine has at most {MAX_GPUS} GPUs, got {gpus}")
    check_limit("gpus", racks * machines * gpus, f"{path}: GPUs of a cluster")
    total = racks * machines
    return Cluster(
        gpus=np.full(total, gpus, np.int64),
        rack=np.arange(total, dtype=np.int64) // max(1, machines),
        cpus=np.full(total, columns["num_cpu_p_node"][0]),
        memory_gb=np.full(total, columns["mem_p_node"][0]),
    )


def _from_nodes(path: Path) -> Cluster:
    nodes = read_nodes(path)
    capacity = nodes.capacity[nodes.capacity[:, 0] > 0]
    if not len(capacity):
        raise InvalidProblemError(f"{path}: no node has a GPU; give a list with some")
    named = [kind.rpartition(" x ")[0] for kind, gpus in zip(nodes.kind, nodes.capacity[:, 0], strict=True) if gpus > 0]
    kinds = tuple(dict.fromkeys(named))
    return Cluster(
        gpus=np.rint(capacity[:, 0]).astype(np.int64),
        cpus=capacity[:, 1].copy(),
        memory_gb=capacity[:, 2].copy(),
        kind=np.array([kinds.index(name) for name in named], np.int64),
        kinds=kinds,
    )
