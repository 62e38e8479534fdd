"""The data of an auction: a tree of GPUs, some of them on offer, and a table of bids from every app.

Notation (Mahajan et al., NSDI 2020): app ``i``, bid (row) ``b``, machine ``m``. An app's value of a bid is
``V = 1 / rho`` with its finish-time fairness ``rho``; the auction maximises the product of values.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from optim.core.arrays import ComparesByValue, derived, freeze_arrays, read_only, whole_numbers
from optim.core.frames import frame_of

if TYPE_CHECKING:
    from pandas import DataFrame

    from optim.models.auction.building import MachineSlots, PlainBid

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

SERVED_STEP = 800.0
"""Log units by which serving one app more outweighs all values, where empty rows are worth nothing.

exp(-800) is 0 in doubles: an app whose presence keeps another one out gets the share 0 exactly."""


class Locality(IntEnum):
    """The smallest subtree that holds an allocation, best first; `NAMED` rows name their machines."""

    SLOT = 0
    MACHINE = 1
    RACK = 2
    CLUSTER = 3
    NAMED = 4


class Horizon(StrEnum):
    """For how long a bid's GPUs are assumed to stay: for ever, or for one lease and then a fair share."""

    HOLD = "hold"
    LEASE = "lease"


class EmptyValue(StrEnum):
    """What holding nothing is worth: 1 / rho of the empty row, or 0 with as many apps served as possible."""

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
        Shape (slots,): GPUs of the slot, and how many of them are on offer; the rest is held under leases.
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
        """R_C: all GPUs of the cluster."""
        return int(self.slot_gpus.sum())

    @property
    def num_free(self) -> int:
        """GPUs on offer."""
        return int(self.slot_free.sum())

    @property
    def num_racks(self) -> int:
        """Number of racks."""
        return int(self.machine_rack.max(initial=-1)) + 1

    @derived
    def machine_free(self) -> IntArray:
        """GPUs on offer on each machine, shape (machines,)."""
        return np.bincount(self.slot_machine, self.slot_free, self.num_machines).astype(np.int64)

    @derived
    def rack_free(self) -> IntArray:
        """GPUs on offer in each rack, shape (racks,)."""
        return np.bincount(self.machine_rack, self.machine_free, self.num_racks).astype(np.int64)

    @derived
    def slot_rack(self) -> IntArray:
        """Rack of each slot, shape (slots,)."""
        return self.machine_rack[self.slot_machine]


@dataclass(frozen=True, kw_only=True, eq=False)
class Bids(ComparesByValue):
    """All apps' bid tables as one list of rows, the apps' rows one after the other.

    Parameters
    ----------
    app
        Shape (rows,): the app that bids, ascending.
    gpus
        Shape (rows,): GPUs of the bundle.
    locality
        Shape (rows,): `Locality` of the bundle.
    rho
        Shape (rows,): finish-time fairness with the bundle, positive.
    named_row, named_machine, named_gpus
        Shape (entries,): the machines of `NAMED` rows and the GPUs on each, by row.
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
    """All apps, one array a field.

    Parameters
    ----------
    ids
        Unique names.
    empty_rho
        Shape (apps,): finish-time fairness with no GPU of this auction; larger than that of any bid.
    gang
        Shape (apps,): GPUs come in multiples of this number.
    elapsed_min, work_min, ideal_min
        Shape (apps,): minutes since submission, serial GPU minutes left, and the ideal time: the terms of
        ``rho = (elapsed + work / speed) / ideal`` (0, 1, 1 where only bids are known: then the value is
        proportional to the speed).
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
class AuctionInstance(ComparesByValue):
    """A one-shot auction: which app gets which GPUs so that the product of values is largest.

    Parameters
    ----------
    name
        Name of the instance, for records.
    cluster, apps, bids
        What is on offer, who bids, and the bids.
    lease_min
        Length of a lease in minutes.
    horizon
        How the bids were valued.
    empty_value
        What an app without GPUs is worth.
    profiles
        What the apps made their bids from (`optim.models.auction.fairness.AppProfile`), empty where unknown.

    Raises
    ------
    InvalidProblemError
        If any field contradicts the definitions; the text names field, value and remedy.
    """

    name: str
    cluster: Cluster
    apps: Apps
    bids: Bids
    lease_min: float = 20.0
    horizon: Horizon = Horizon.HOLD
    empty_value: EmptyValue = EmptyValue.POSITIVE
    profiles: tuple[object, ...] = ()

    def __post_init__(self) -> None:
        from optim.models.auction.validation import validate

        validate(self)

    @classmethod
    def from_bids(
        cls,
        machines: "Sequence[MachineSlots]",
        bids: "Mapping[str, Sequence[PlainBid]] | DataFrame",
        *,
        empty_rho: float | Mapping[str, float],
        free: "Sequence[MachineSlots] | None" = None,
        racks: Sequence[int] | None = None,
        gangs: Mapping[str, int] | None = None,
        name: str = "auction",
        lease_min: float = 20.0,
        empty_value: str = "positive",
    ) -> "AuctionInstance":
        """Build an auction from lists of bids.

        Parameters
        ----------
        machines
            GPUs of each machine: a number, or one for each of its slots.
        bids
            By app its rows: (GPUs, ``"slot"``, ``"machine"``, ``"rack"`` or ``"cluster"``, rho), or
            ({machine: GPUs}, rho) where they name machines, numbered from 0. Or a pandas frame with columns ``app``,
            ``gpus``, ``locality`` and ``rho``, and where bids name machines ``machines``.
        empty_rho
            rho without a GPU of this auction: one number, or one an app.
        free
            What is on offer, shaped as `machines`; all unless given.
        racks
            Rack of each machine; one rack unless given.
        gangs
            By app the number that its GPUs come in multiples of; 1 unless given.
        name, lease_min, empty_value
            As in the instance.

        Raises
        ------
        InvalidProblemError
            If the lists contradict one another or the definitions.

        Examples
        --------
        >>> bids = {"a": [(4, "machine", 0.5)], "b": [({0: 2, 1: 2}, 0.8), (2, "slot", 0.9)]}
        >>> AuctionInstance.from_bids([8, [4, 4]], bids, empty_rho=2.0).num_apps
        2
        """
        from optim.models.auction.building import auction_document
        from optim.models.auction.reading import instance_from_document

        return instance_from_document(
            auction_document(
                machines,
                bids,
                empty_rho=empty_rho,
                free=free,
                racks=racks,
                gangs=gangs or {},
                name=name,
                lease_min=lease_min,
                empty_value=empty_value,
            )
        )

    def to_frame(self) -> "DataFrame":
        """Return the bids as a pandas frame: columns app, gpus, locality, rho and machines; `from_bids` reads it.

        Raises
        ------
        MissingDependencyError
            If pandas isn't installed.
        """
        from optim.models.auction.building import bid_columns

        return frame_of(bid_columns(self))

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
        """Log welfare that each row adds to the app's empty row, shape (rows,); positive.

        Positive convention: ``log(rho_empty / rho)``. Zero convention: the value is ``V = 1/rho - 1/rho_empty``
        and the weight ``K + log V``, with K so large that serving one app more outweighs all products of the apps
        served: the lexicographic rule as one number.
        """
        empty = self.apps.empty_rho[self.bids.app]
        if self.empty_value is EmptyValue.POSITIVE:
            with np.errstate(over="ignore"):
                ratio = empty / self.bids.rho
            far = np.log(empty) - np.log(self.bids.rho)  # where the quotient is beyond the largest double
            return np.where(np.isfinite(ratio), np.log(ratio), far)
        # The difference of the rhos is exact where they are close; their reciprocals might overflow.
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
