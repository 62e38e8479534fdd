"""Server types of the paper's simulation: Amazon EC2 instances, GPU types for workers, C4 for PSs."""

from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from optim.core.errors import InvalidOptionError
from optim.models.admission.instance import MICRO, IntArray, ServerClasses

RESOURCES = ("gpu", "vcpu", "memory_gb", "storage_gb")
"""Resource types of generated instances."""

HOUR_S = 3600
DAY_HOURS = (8, 20)
"""Hours of the day (begin, end) in which night-only servers serve somebody else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerType:
    """What one server of a type has, in the order of `RESOURCES`."""

    gpu: int
    vcpu: int
    memory_gb: float
    storage_gb: int

    @property
    def capacity(self) -> IntArray:
        """Capacity in 1e-6 units, shape (resources,)."""
        quantities = (self.gpu, self.vcpu, self.memory_gb, self.storage_gb)
        return np.array([round(quantity * MICRO) for quantity in quantities], dtype=np.int64)


def _type(gpu: int, vcpu: int, memory_gb: float, storage_gb: int) -> ServerType:
    return ServerType(gpu=gpu, vcpu=vcpu, memory_gb=memory_gb, storage_gb=storage_gb)


SERVER_TYPES = MappingProxyType(
    {
        "p2.xlarge": _type(1, 4, 61, 200),
        "p2.8xlarge": _type(8, 32, 488, 800),
        "p2.16xlarge": _type(16, 64, 732, 1600),
        "g3.4xlarge": _type(1, 16, 122, 200),
        "g3.8xlarge": _type(2, 32, 244, 400),
        "g3.16xlarge": _type(4, 64, 488, 800),
        "c4.large": _type(0, 2, 3.75, 50),
        "c4.xlarge": _type(0, 4, 7.5, 100),
        "c4.2xlarge": _type(0, 8, 15, 200),
        "c4.4xlarge": _type(0, 16, 30, 400),
        "c4.8xlarge": _type(0, 36, 60, 800),
    }
)
"""GPUs, vCPUs and memory are the vendor's; these types have no disks of their own, so storage is attached."""

GPU_TYPES = ("p2.xlarge", "p2.8xlarge", "p2.16xlarge", "g3.4xlarge", "g3.8xlarge", "g3.16xlarge")
CPU_TYPES = ("c4.2xlarge", "c4.4xlarge", "c4.8xlarge")
"""Default PS hosts: the smaller C4 types hold less than one PS of the usual demands."""


def check_types(name: str, types: tuple[str, ...]) -> None:
    """Raise InvalidOptionError unless there is a type, and all are known."""
    unknown = [kind for kind in types if kind not in SERVER_TYPES]
    if not types or unknown:
        found = repr(unknown[0]) if unknown else "none"
        raise InvalidOptionError(f"{name} must be among {', '.join(SERVER_TYPES)}, at least one, got {found}")


def is_day(num_slots: int, slot_s: float) -> IntArray:
    """Tell which slots begin in the daytime, the horizon starting at midnight; shape (slots,), 0 or 1."""
    hour = np.arange(num_slots) * slot_s / HOUR_S % 24
    return ((hour >= DAY_HOURS[0]) & (hour < DAY_HOURS[1])).astype(np.int64)


def draw_servers(
    types: tuple[str, ...], num_servers: int, night_only_share: float, day: IntArray, rng: np.random.Generator
) -> ServerClasses:
    """Draw each server's type uniformly; of each type a share has no capacity by day.

    Parameters
    ----------
    types
        Types to draw from.
    num_servers
        Number of servers.
    night_only_share
        Share of the servers of each type (rounded) that are lent at night only.
    day
        Which slots are by day, shape (slots,).
    rng
        Source of chance.
    """
    drawn = np.bincount(rng.integers(len(types), size=num_servers), minlength=len(types))
    names, counts, capacities = [], [], []
    for name, number in zip(types, drawn.tolist(), strict=True):
        at_night = round(night_only_share * number)
        whole = np.tile(SERVER_TYPES[name].capacity, (len(day), 1))
        for label, count, capacity in (
            (name, number - at_night, whole),
            (f"{name} (night)", at_night, whole * (1 - day)[:, None]),
        ):
            if count:
                names.append(label)
                counts.append(count)
                capacities.append(capacity)
    return ServerClasses(
        types=tuple(names),
        capacity=np.array(capacities, dtype=np.int64),
        count=np.array(counts, dtype=np.int64),
    )


def merged(first: ServerClasses, second: ServerClasses) -> ServerClasses:
    """Return one pool of servers that both workers and PSs may use."""
    return ServerClasses(
        types=first.types + second.types,
        capacity=np.concatenate([first.capacity, second.capacity]),
        count=np.concatenate([first.count, second.count]),
    )
