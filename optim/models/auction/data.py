"""The data of an auction: a tree of GPUs, some of them free, and a table of bids.

Notation (Mahajan et al., NSDI 2020): app ``i``, bid (row) ``b``, machine ``m``. An app's value of a bid is
``V = 1 / rho`` with its finish-time fairness ``rho``; the auction maximises the product of values.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from types import MappingProxyType

import numpy as np

from optim.core.arrays import ComparesByValue, FloatArray, IntArray, derived, freeze_arrays, read_only, whole_numbers
from optim.core.errors import InvalidProblemError

SERVED_STEP = 800.0
"""Part of each served app's log weight if an app without GPUs has the value 0 (see `AuctionData.weight`).

exp(-800) is 0 in doubles, so an app whose presence excludes another app gets the share 0 exactly.
"""


class Locality(IntEnum):
    """Level of the smallest subtree that contains an allocation, best first; `NAMED`: the row names its machines."""

    SLOT = 0
    MACHINE = 1
    RACK = 2
    CLUSTER = 3
    NAMED = 4


class Horizon(StrEnum):
    """Assumed period of a bid's allocation: unlimited, or one lease followed by a fair share."""

    HOLD = "hold"
    LEASE = "lease"


class EmptyValue(StrEnum):
    """Value of an app without GPUs: 1 / `empty_rho`, or 0 with as many apps served as possible."""

    POSITIVE = "positive"
    ZERO = "zero"


@dataclass(frozen=True, kw_only=True, eq=False)
class Cluster(ComparesByValue):
    """A tree rack > machine > slot > GPU.

    Parameters
    ----------
    machine_rack
        Shape (machines,): the rack of each machine, numbered from 0 without gaps.
    slot_machine
        Shape (slots,): the machine of each slot (an island of fast links), ascending.
    slot_gpus, slot_free
        Shape (slots,): numbers of all GPUs and of free GPUs of each slot; the other GPUs are leased.
    """

    machine_rack: IntArray
    slot_machine: IntArray
    slot_gpus: IntArray
    slot_free: IntArray

    def __post_init__(self) -> None:
        freeze_arrays(self)

    @property
    def num_machines(self) -> int:
        """Number of machines."""
        return len(self.machine_rack)

    @property
    def num_gpus(self) -> int:
        """R_C: number of all GPUs of the cluster."""
        return int(self.slot_gpus.sum())

    @property
    def num_free(self) -> int:
        """Number of free GPUs."""
        return int(self.slot_free.sum())

    @property
    def num_racks(self) -> int:
        """Number of racks."""
        return int(self.machine_rack.max(initial=-1)) + 1

    @derived
    def machine_free(self) -> IntArray:
        """Number of free GPUs of each machine, shape (machines,)."""
        return np.bincount(self.slot_machine, self.slot_free, self.num_machines).astype(np.int64)

    @derived
    def rack_free(self) -> IntArray:
        """Number of free GPUs of each rack, shape (racks,)."""
        return np.bincount(self.machine_rack, self.machine_free, self.num_racks).astype(np.int64)

    @derived
    def slot_rack(self) -> IntArray:
        """Rack of each slot, shape (slots,)."""
        return self.machine_rack[self.slot_machine]


@dataclass(frozen=True, kw_only=True, eq=False)
class Bids(ComparesByValue):
    """The bid tables of all apps as one list of rows, ordered by app.

    Parameters
    ----------
    app
        Shape (rows,): the app that bids, ascending.
    gpus
        Shape (rows,): number of GPUs of the bundle.
    locality
        Shape (rows,): `Locality` of the bundle.
    rho
        Shape (rows,): finish-time fairness with the bundle, positive.
    named_row, named_machine, named_gpus
        Shape (entries,): row, machine and number of GPUs of each entry of the `NAMED` rows, sorted by row.
    """

    app: IntArray
    gpus: IntArray
    locality: IntArray
    rho: FloatArray
    named_row: IntArray
    named_machine: IntArray
    named_gpus: IntArray

    def __post_init__(self) -> None:
        freeze_arrays(self)

    def __len__(self) -> int:
        return len(self.app)


@dataclass(frozen=True, kw_only=True, eq=False)
class Apps(ComparesByValue):
    """All apps, one array per field.

    Parameters
    ----------
    ids
        Unique names.
    empty_rho
        Shape (apps,): finish-time fairness without a GPU from this auction; larger than the rho of every bid of the app.
    gang
        Shape (apps,): every bundle is a multiple of this number of GPUs.
    elapsed_min, work_min, ideal_min
        Shape (apps,): minutes since submission, remaining serial GPU minutes, and ideal time in minutes. They
        are the terms of ``rho = (elapsed + work / speed) / ideal``. If only bids are known they are 0, 1, 1,
        so that the value is proportional to the speed.
    """

    ids: tuple[str, ...]
    empty_rho: FloatArray
    gang: IntArray
    elapsed_min: FloatArray
    work_min: FloatArray
    ideal_min: FloatArray

    def __post_init__(self) -> None:
        freeze_arrays(self)

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, kw_only=True, eq=False)
class AuctionData(ComparesByValue):
    """The fields of an `AuctionInstance` (documented and checked there) and the arrays derived from them."""

    name: str
    cluster: Cluster
    apps: Apps
    bids: Bids
    lease_min: float = 20.0
    horizon: Horizon = Horizon.HOLD
    empty_value: EmptyValue = EmptyValue.POSITIVE
    profiles: tuple[object, ...] = ()

    @property
    def num_apps(self) -> int:
        """Number of apps."""
        return len(self.apps)

    @derived
    def row_offset(self) -> IntArray:
        """Shape (apps + 1,): the rows of app i are ``row_offset[i]:row_offset[i+1]``."""
        return np.searchsorted(self.bids.app, np.arange(self.num_apps + 1)).astype(np.int64)

    @derived
    def named_offset(self) -> IntArray:
        """Shape (rows + 1,): the named machines of row b are ``named_offset[b]:named_offset[b+1]``."""
        return np.searchsorted(self.bids.named_row, np.arange(len(self.bids) + 1)).astype(np.int64)

    @derived
    def weight(self) -> FloatArray:
        """Log welfare of each row relative to the app's empty row, shape (rows,); positive.

        If `empty_value` is positive, the weight is ``log(rho_empty / rho)``. If it is zero, the value is ``V
        = 1/rho - 1/rho_empty`` and the weight ``K + log V``. K is so large that serving one more app
        outweighs every product of values: the weight expresses the lexicographic rule as one number.
        """
        empty = self.apps.empty_rho[self.bids.app]
        if self.empty_value is EmptyValue.POSITIVE:
            with np.errstate(over="ignore"):
                ratio = empty / self.bids.rho
            far = np.log(empty) - np.log(self.bids.rho)  # the quotient may exceed the largest double
            return np.where(np.isfinite(ratio), np.log(ratio), far)
        # The difference of close rhos is exact; reciprocals of rhos might overflow.
        value = np.log(empty - self.bids.rho) - np.log(empty) - np.log(self.bids.rho)
        least, most = np.zeros(self.num_apps), np.zeros(self.num_apps)
        np.minimum.at(least, self.bids.app, value)
        np.maximum.at(most, self.bids.app, value)
        return np.asarray(float((most - least).sum()) + SERVED_STEP + value)


def as_ints(values: object) -> IntArray:
    """Return a read-only int64 array."""
    array: IntArray = read_only(whole_numbers(values, "an instance's counts"))
    return array


def as_floats(values: object) -> FloatArray:
    """Return a read-only float64 array."""
    array: FloatArray = read_only(np.array(values, dtype=np.float64))
    return array


@dataclass(frozen=True, slots=True, kw_only=True)
class Slowdown:
    """Slowdown S >= 1: step time divided by the step time in the best placement.

    Parameters
    ----------
    slot, machine, rack, cluster
        S if all GPUs are in one slot, one machine, one rack, or spread over racks.

    Raises
    ------
    InvalidProblemError
        If a slowdown is below 1 or not finite.
    """

    slot: float = 1.0
    machine: float = 1.0
    rack: float = 1.0
    cluster: float = 1.0

    def __post_init__(self) -> None:
        for name in ("slot", "machine", "rack", "cluster"):
            if not 1 <= getattr(self, name) < float("inf"):
                raise InvalidProblemError(f"slowdown.{name} must be at least 1 and finite, got {getattr(self, name)}")

    def at(self, locality: int) -> float:
        """Return S of a locality."""
        return (self.slot, self.machine, self.rack, self.cluster)[locality]

    def within(self, locality: int) -> float:
        """Return the worst S over all placements within a subtree of the locality."""
        return max((self.slot, self.machine, self.rack, self.cluster)[: locality + 1])

    @property
    def best(self) -> float:
        """S of the best locality."""
        return min(self.slot, self.machine, self.rack, self.cluster)


NETWORK_BOUND = Slowdown(slot=1.0, machine=1.05, rack=1.3, cluster=1.8)

COMPUTE_BOUND = Slowdown(slot=1.0, machine=1.0, rack=1.02, cluster=1.1)
"""Slowdown of compute-bound apps; the generator mixes them with `NETWORK_BOUND` apps."""


def _spread(ratio: float) -> Slowdown:
    """Return the slowdown of an app whose step over several machines takes `ratio` times its step on one machine."""
    return Slowdown(rack=max(1.0, ratio), cluster=max(1.0, ratio))


PRESETS: Mapping[str, Slowdown] = MappingProxyType(
    {
        "network-bound": NETWORK_BOUND,
        "compute-bound": COMPUTE_BOUND,
        # Mahajan et al. (Themis), NSDI 2020, table 1: images/s of 4 P100 GPUs on one server, and of 2 on each of two.
        "vgg16-themis": _spread(103.6 / 80.4),
        "inception3-themis": _spread(242.0 / 243.0),
        # Gu et al. (Tiresias), NSDI 2019, figure 3: throughput of 8 workers at random servers, relative to packed workers.
        "vgg19": _spread(1 / 0.72),
        "vgg16": _spread(1 / 0.73),
        "vgg11": _spread(1 / 0.77),
        "alexnet": _spread(1 / 0.80),
        "resnet152": _spread(1 / 1.04),
        "resnet101": _spread(1 / 1.06),
        "resnet50": _spread(1 / 1.08),
        "inception4": _spread(1 / 1.02),
        "inception3": _spread(1 / 1.06),
        "googlenet": _spread(1 / 1.07),
        # Jeon et al. (Philly), ATC 2019, table 4: images/s of ResNet-50 on 2 GPUs of one server, and of two servers.
        "resnet50-philly": _spread(114.8 / 98.0),
        # Qiao et al. (Pollux), OSDI 2021, published placement profiles, 4 GPUs: step time on two nodes of two GPUs
        # (rack) and on four nodes of one GPU (cluster), relative to one node; median over batch sizes.
        "bert-pollux": Slowdown(rack=2.83, cluster=1.77),
        "yolov3-pollux": Slowdown(rack=2.19, cluster=1.39),
        "ncf-pollux": Slowdown(rack=2.19, cluster=1.64),
        "imagenet-pollux": Slowdown(rack=1.32, cluster=1.03),
        "cifar10-pollux": Slowdown(rack=1.29, cluster=1.19),
        "deepspeech2-pollux": Slowdown(rack=1.23, cluster=1.07),
    }
)
"""Measured slowdowns by name. Those of Pollux fall from rack to cluster, since fewer GPUs per node share a network card."""

SCORES: Mapping[int, float] = MappingProxyType(
    {Locality.SLOT: 1.0, Locality.MACHINE: 0.75, Locality.RACK: 0.5, Locality.CLUSTER: 0.25}
)
"""Placement score of a locality: 1 for the best."""
