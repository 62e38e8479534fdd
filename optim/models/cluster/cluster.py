"""A cluster as racks of machines with GPUs, and the file format of its topology."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from optim.core.arrays import ComparesByValue
from optim.core.documents import Count, Name, PositiveInt, decode
from optim.core.errors import InvalidProblemError
from optim.core.files import read_bytes
from optim.core.limits import check_limit
from optim.models.cluster.columns import check_ranges, column, columns_of, fill_columns, form

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

GRID = re.compile(r"(\d+)(?:x(\d+))?")
MAX_MACHINES, MAX_GPUS = 100_000, 1_024
MAX_CARDS = 2**20
"""Largest number of GPUs per machine, equal to the largest gang."""

MAX_ROOM, MAX_RACK = 2.0**50, 2**53
UNSTATED = MAX_ROOM
"""Value for a machine's vCPU or memory if it is not given; large enough for any jobs."""
MACHINES_A_RACK = 16
"""Machines per rack if a cluster is given as machines x GPUs."""

UNNAMED = ("gpu",)
"""`Cluster.kinds` if the type of the GPUs is unknown."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Cluster(ComparesByValue):
    """Machines, one row per machine.

    Parameters
    ----------
    gpus
        GPUs of each machine, at least 1; shape (machines,).
    rack
        Number of each machine's rack, at least 0; shape (machines,).
    kind
        Index in `kinds` of the type of each machine's GPUs; shape (machines,).
    kinds
        Names of the types of GPU, all different.
    gpu_types
        Name of each type's GPUs in job tables; default: `kinds`. The two differ if machines with the same GPUs are in
        different partitions.
    partitions
        Partitions of each type's machines; empty if the cluster has no partitions.
    cpus, memory_gb
        vCPU and memory of each machine, at least 0; by default enough for any jobs; shape (machines,).

    Raises
    ------
    InvalidProblemError
        If there is no machine, a machine has no GPU, array lengths differ, or a number or name is invalid.
    """

    gpus: IntArray = field(metadata=form(least=1, most=MAX_CARDS))
    rack: IntArray = column(lambda machines: np.arange(len(machines.gpus)) // MACHINES_A_RACK, least=0, most=MAX_RACK)
    kind: IntArray = column(0)
    kinds: tuple[str, ...] = UNNAMED
    gpu_types: tuple[str, ...] = ()
    partitions: tuple[tuple[str, ...], ...] = ()
    cpus: FloatArray = column(UNSTATED, dtype=np.float64, least=0, most=MAX_ROOM, since=1)
    memory_gb: FloatArray = column(UNSTATED, dtype=np.float64, least=0, most=MAX_ROOM, since=1)

    def __post_init__(self) -> None:
        """Fill in defaults and check all columns."""
        gpus = np.asarray(self.gpus)
        if gpus.ndim != 1 or not len(gpus) or gpus.min() < 1:
            raise InvalidProblemError("a cluster must have at least one machine, and every machine at least one GPU")
        fill_columns(self, len(gpus), "machine")
        if {len(self.gpu_types), len(self.partitions)} - {0, len(self.kinds)}:
            raise InvalidProblemError(
                "gpu_types and partitions must have one entry for each entry of kinds, or be omitted"
            )
        if len(set(self.kinds)) < len(self.kinds) or "" in self.kinds:
            raise InvalidProblemError("kinds must be distinct, non-empty names; rename duplicate types of GPU")
        check_ranges(self)
        if self.kind.min() < 0 or self.kind.max() >= len(self.kinds):
            most = len(self.kinds) - 1
            raise InvalidProblemError(f"kind must lie in 0..{most}, got {self.kind.min()}..{self.kind.max()}")
        check_limit("gpus", self.num_gpus, "GPUs of a cluster")

    @property
    def names_of_gpus(self) -> tuple[str, ...]:
        """Name of each type's GPUs in job tables."""
        return self.gpu_types or self.kinds

    @property
    def num_machines(self) -> int:
        """Number of machines."""
        return len(self.gpus)

    @property
    def num_gpus(self) -> int:
        """Number of GPUs."""
        return int(self.gpus.sum())

    @classmethod
    def grid(cls, text: str) -> "Cluster":
        """Return a cluster of equal machines from `MACHINESxGPUS`, such as ``60x8``; ``32`` means 32 machines of one GPU.

        Raises
        ------
        InvalidProblemError
            If the text doesn't have this form, or a number is 0 or too large.
        """
        match = GRID.fullmatch(text.strip())
        if match is None:
            raise InvalidProblemError(f"a cluster must be MACHINESxGPUS, such as 60x8, got {text[:40]!r}")
        machines, gpus = int(match[1]), int(match[2] or 1)
        if not (1 <= machines <= MAX_MACHINES and 1 <= gpus <= MAX_GPUS):
            raise InvalidProblemError(
                f"a cluster must have 1 to {MAX_MACHINES} machines of 1 to {MAX_GPUS} GPUs, got {machines}x{gpus}"
            )
        return cls(gpus=np.full(machines, gpus, np.int64))

    def to_networkx(self) -> Any:
        """Return the tree cluster > rack > machine > GPU as a networkx graph; nodes carry `level`."""
        import networkx as nx

        tree = nx.DiGraph()
        tree.add_node("cluster", level="cluster")
        for machine, (gpus, rack, kind) in enumerate(
            zip(self.gpus.tolist(), self.rack.tolist(), self.kind.tolist(), strict=True)
        ):
            tree.add_node(f"rack {rack}", level="rack")
            tree.add_edge("cluster", f"rack {rack}")
            tree.add_node(f"machine {machine}", level="machine")
            tree.add_edge(f"rack {rack}", f"machine {machine}")
            for gpu in range(gpus):
                tree.add_node(f"gpu {machine}.{gpu}", level="gpu", kind=self.kinds[kind])
                tree.add_edge(f"machine {machine}", f"gpu {machine}.{gpu}")
        return tree


SCHEMA = "optim/cluster/1"


class MachineDocument(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """`count` equal machines; machines without a rack fill new racks in order; omitted vCPU and memory suffice for any jobs."""

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


def read_topology(path: Path) -> Cluster:
    """Return the cluster of a file ``optim/cluster/1``.

    Raises
    ------
    InvalidProblemError
        If the file doesn't follow the format, or lists no machine.
    """
    try:
        document = decode(read_bytes(path), TopologyDocument)
    except InvalidProblemError as error:
        raise InvalidProblemError(f"{path}: {error}") from error
    entries = document.machines
    check_limit("count", sum(entry.count for entry in entries), f"{path}: machines")
    check_limit("gpus", sum(entry.count * entry.gpus for entry in entries), f"{path}: GPUs of a cluster")
    count = np.array([entry.count for entry in entries], np.int64)
    optional = {name: column.fill for name, column in columns_of(Cluster).items() if column.dtype is np.float64}
    for number, entry in enumerate(entries):
        given = [getattr(entry, name) for name in optional]
        if entry.gpus > MAX_GPUS or any(value is not None and not 0 <= value < np.inf for value in given):
            raise InvalidProblemError(
                f"{path}: machines[{number}] must have at most {MAX_GPUS} GPUs, and cpus and memory_gb of at least 0"
            )
    named_partitions = [tuple(sorted(set(entry.partitions))) for entry in entries]
    if any(named_partitions) and not all(named_partitions):
        raise InvalidProblemError(
            f"{path}: machines[{named_partitions.index(())}] has no partitions, but others do; give every machine its partitions"
        )
    classes = [(entry.kind, names) for entry, names in zip(entries, named_partitions, strict=True)]
    kinds = tuple(dict.fromkeys(classes))
    filled = np.arange(int(count.sum()) if len(count) else 0) // document.machines_a_rack
    named = np.repeat([-1 if entry.rack is None else entry.rack for entry in entries], count)
    largest = max((entry.rack for entry in entries if entry.rack is not None), default=-1)
    gpus = np.repeat([entry.gpus for entry in entries], count).astype(np.int64)
    numbers = {
        name: np.repeat([fill if (given := getattr(entry, name)) is None else given for entry in entries], count)
        for name, fill in optional.items()
    }
    return Cluster(
        gpus=gpus,
        rack=np.where(named >= 0, named, largest + 1 + filled).astype(np.int64),
        kind=np.repeat([kinds.index(each) for each in classes], count).astype(np.int64),
        kinds=tuple(f"{kind} in {', '.join(names)}" if names else kind for kind, names in kinds) or UNNAMED,
        gpu_types=tuple(kind for kind, _ in kinds) if any(named_partitions) else (),
        partitions=tuple(names for _, names in kinds) if any(named_partitions) else (),
        **numbers,
    )
