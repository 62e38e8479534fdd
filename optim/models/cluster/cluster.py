"""A cluster: racks of machines that hold GPUs."""

import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optim.core.arrays import ComparesByValue
from optim.core.errors import InvalidProblemError
from optim.core.limits import check_limit

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

GRID = re.compile(r"(\d+)(?:x(\d+))?")
MAX_MACHINES, MAX_GPUS = 100_000, 1_024
MAX_CARDS = 2**20
"""GPUs of a machine, however it is described: as many as a gang may ask for."""

MAX_ROOM, MAX_RACK = 2.0**50, 2**53
UNSTATED = MAX_ROOM
"""Host room of a machine of which it isn't told: it never binds."""
MACHINES_A_RACK = 16
"""Machines that share a switch where a cluster is given as machines x GPUs."""

UNNAMED = ("gpu",)
"""Types of a cluster of which nobody says what its GPUs are."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Cluster(ComparesByValue):
    """Machines, one row a machine.

    Parameters
    ----------
    gpus
        GPUs of each machine, at least 1; shape (machines,).
    rack
        Number of each machine's rack, at least 0; shape (machines,).
    kind
        Type of each machine's GPUs, as a number into `kinds`; shape (machines,).
    kinds
        Names of the types, each once.
    gpu_types
        Name of each type's GPUs as job tables write it; the names in `kinds` unless given, which differ where machines of one
        GPU are in different partitions.
    partitions
        For each type the partitions its machines are in; empty if nothing is said of partitions.
    cpus, memory_gb
        Host room of each machine, at least 0; where it isn't given it never binds; shape (machines,).

    Raises
    ------
    InvalidProblemError
        If there is no machine, an array has another length, a machine has no GPU, or a number or name can't be one.
    """

    gpus: IntArray
    rack: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    kind: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    kinds: tuple[str, ...] = UNNAMED
    gpu_types: tuple[str, ...] = ()
    partitions: tuple[tuple[str, ...], ...] = ()
    cpus: FloatArray = field(default_factory=lambda: np.zeros(0))
    memory_gb: FloatArray = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        """Fill what was left out, and check the rest."""
        gpus = np.ascontiguousarray(self.gpus, np.int64)
        count = len(gpus)
        if gpus.ndim != 1 or not count or gpus.min() < 1:
            raise InvalidProblemError("a cluster has at least one machine, and every machine at least one GPU")
        filled = {
            "gpus": gpus,
            "rack": self.rack if len(self.rack) else np.arange(count) // MACHINES_A_RACK,
            "kind": self.kind if len(self.kind) else np.zeros(count, np.int64),
            "cpus": self.cpus if len(self.cpus) else np.full(count, UNSTATED),
            "memory_gb": self.memory_gb if len(self.memory_gb) else np.full(count, UNSTATED),
        }
        for name, values in filled.items():
            if len(values) != count:
                raise InvalidProblemError(f"{name} has {len(values)} entries for {count} machines; give one a machine")
            dtype = np.float64 if name in ("cpus", "memory_gb") else np.int64
            object.__setattr__(self, name, np.ascontiguousarray(values, dtype))
        self._check_ranges()

    def _check_ranges(self) -> None:
        if {len(self.gpu_types), len(self.partitions)} - {0, len(self.kinds)}:
            raise InvalidProblemError("gpu_types and partitions must have an entry for each of kinds, or be left out")
        if len(set(self.kinds)) < len(self.kinds) or "" in self.kinds:
            raise InvalidProblemError("kinds must be names, each once; give every type of GPU one of its own")
        most = {
            "gpus": MAX_CARDS,
            "rack": MAX_RACK,
            "kind": len(self.kinds) - 1,
            "cpus": MAX_ROOM,
            "memory_gb": MAX_ROOM,
        }
        for name, limit in most.items():
            values = getattr(self, name)
            if not (values.min() >= 0 and values.max() <= limit):  # not a number is neither
                raise InvalidProblemError(f"{name} must lie in 0..{limit:g}, got {values.min()}..{values.max()}")
        check_limit("gpus", self.num_gpus, "GPUs of a cluster")

    @property
    def names_of_gpus(self) -> tuple[str, ...]:
        """Name of each type's GPUs as job tables write it."""
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
        """Return a cluster of equal machines from `MACHINESxGPUS`, such as ``60x8``; ``32`` alone is that many of one GPU.

        Raises
        ------
        InvalidProblemError
            If the text isn't of that form, or a number is 0 or too large.
        """
        match = GRID.fullmatch(text.strip())
        if match is None:
            raise InvalidProblemError(f"a cluster is given as machines x GPUs, such as 60x8, got {text[:40]!r}")
        machines, gpus = int(match[1]), int(match[2] or 1)
        if not (1 <= machines <= MAX_MACHINES and 1 <= gpus <= MAX_GPUS):
            raise InvalidProblemError(
                f"a cluster has 1 to {MAX_MACHINES} machines of 1 to {MAX_GPUS} GPUs, got {machines}x{gpus}"
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
