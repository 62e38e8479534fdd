"""An auction instance: its data, their validation, and the construction from lists of bids."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from optim.core.errors import InvalidProblemError
from optim.core.frames import frame_of
from optim.models.auction.codec import MachineSlots, PlainBid, auction_document, bid_columns, instance_from_document
from optim.models.auction.data import AuctionData, Bids, Cluster, Locality

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True, kw_only=True, eq=False)
class AuctionInstance(AuctionData):
    """A one-shot auction: assign GPUs to apps so that the product of values is maximal.

    Parameters
    ----------
    name
        Name of the instance.
    cluster, apps, bids
        The GPUs, the bidders, and their bids.
    lease_min
        Length of a lease in minutes.
    horizon
        Horizon over which the bids were valued.
    empty_value
        Value of an app without GPUs.
    profiles
        Profiles from which the bids were generated (`optim.models.auction.fairness.AppProfile`), empty if
        unknown.

    Raises
    ------
    InvalidProblemError
        If a field is invalid; the message names field, value and remedy.
    """

    def __post_init__(self) -> None:
        validate(self)

    @classmethod
    def from_bids(
        cls,
        machines: Sequence[MachineSlots],
        bids: "Mapping[str, Sequence[PlainBid]] | DataFrame",
        *,
        empty_rho: float | Mapping[str, float],
        free: Sequence[MachineSlots] | None = None,
        racks: Sequence[int] | None = None,
        gangs: Mapping[str, int] | None = None,
        name: str = "auction",
        lease_min: float = 20.0,
        empty_value: str = "positive",
    ) -> Self:
        """Build an auction from lists of bids.

        Parameters
        ----------
        machines
            Number of GPUs of each machine, or a list with the number of each of its slots.
        bids
            Rows by app, as (GPUs, locality, rho) or as ({machine: GPUs}, rho). The locality is ``"slot"``,
            ``"machine"``, ``"rack"`` or ``"cluster"``; machines are numbered from 0. Alternatively a pandas
            frame with columns ``app``, ``gpus``, ``locality``, ``rho`` and, for bids that name machines,
            ``machines``.
        empty_rho
            rho without a GPU of this auction: one number, or one number per app.
        free
            Free GPUs, in the form of `machines` (default: all).
        racks
            Rack of each machine (default: one rack).
        gangs
            Gang size by app: bundles are multiples of it (default 1).
        name, lease_min, empty_value
            The fields of these names in `AuctionInstance`.

        Raises
        ------
        InvalidProblemError
            If the lists contradict each other, or a value is invalid.

        Examples
        --------
        >>> bids = {"a": [(4, "machine", 0.5)], "b": [({0: 2, 1: 2}, 0.8), (2, "slot", 0.9)]}
        >>> AuctionInstance.from_bids([8, [4, 4]], bids, empty_rho=2.0).num_apps
        2
        """
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
            ),
            cls,
        )

    def to_frame(self) -> "DataFrame":
        """Return the bids as a pandas frame: columns app, gpus, locality, rho and machines; `from_bids` reads it.

        Raises
        ------
        MissingDependencyError
            If pandas is not installed.
        """
        return frame_of(bid_columns(self))


MAX_GPUS = 10**6
"""Largest number of GPUs of a slot; sums then fit 64 bits, and tables over GPUs fit in memory."""


def validate(instance: AuctionData) -> None:
    """Raise an error if the instance violates the definitions of the problem.

    Raises
    ------
    InvalidProblemError
        If a field is invalid; the message names the path of the first such field, its value and the remedy.
    """
    if not 0 < instance.lease_min < np.inf:
        raise InvalidProblemError(f"lease_min must be positive, got {instance.lease_min}")
    _validate_cluster(instance.cluster)
    _validate_apps(instance)
    _validate_bids(instance, instance.bids)


def _validate_cluster(cluster: Cluster) -> None:
    racks, machines = cluster.machine_rack, cluster.slot_machine
    if len(racks) == 0:
        raise InvalidProblemError(
            "at least one machine is required, got none; list all machines, with and without free GPUs"
        )
    if racks.min() < 0 or len(np.unique(racks)) != racks.max() + 1:
        raise InvalidProblemError(
            f"machines: racks must be numbered 0, 1, ... without gaps, got {sorted(set(racks.tolist()))}"
        )
    if (
        len(machines) == 0
        or (np.diff(machines) < 0).any()
        or not np.array_equal(np.unique(machines), np.arange(len(racks)))
    ):
        raise InvalidProblemError(
            "machines: every machine needs at least one slot, and slots must be sorted by machine"
        )
    for s in np.flatnonzero((cluster.slot_gpus < 1) | (cluster.slot_gpus > MAX_GPUS))[:1]:
        raise InvalidProblemError(
            f"machines[{machines[s]}].slots must be 1 to {MAX_GPUS} GPUs, got {cluster.slot_gpus[s]}"
        )
    for s in np.flatnonzero((cluster.slot_free < 0) | (cluster.slot_free > cluster.slot_gpus))[:1]:
        raise InvalidProblemError(
            f"machines[{machines[s]}].free must be between 0 and the slot's {cluster.slot_gpus[s]} GPUs, got {cluster.slot_free[s]}"
        )


def _validate_apps(instance: AuctionData) -> None:
    apps = instance.apps
    if len(set(apps.ids)) != len(apps):
        twice = next(name for name in apps.ids if apps.ids.count(name) > 1)
        raise InvalidProblemError(f"apps: id {twice!r} is used twice; give every app a unique id")
    for name, least, is_open in (
        ("empty_rho", 0, True),
        ("gang", 1, False),
        ("elapsed_min", 0, False),
        ("work_min", 0, True),
        ("ideal_min", 0, True),
    ):
        values = getattr(apps, name)
        if values.shape != (len(apps),):
            raise InvalidProblemError(f"apps.{name} must hold one number per app, got shape {values.shape}")
        bad = ~np.isfinite(values) | (values < least) | ((values <= least) & is_open)
        for i in np.flatnonzero(bad)[:1]:
            raise InvalidProblemError(
                f"apps[{i}].{name} must be finite and {'above' if is_open else 'at least'} {least}, got {values[i]}"
            )
    if instance.profiles and len(instance.profiles) != len(apps):
        raise InvalidProblemError(
            f"profiles must hold one entry per app or none, got {len(instance.profiles)} for {len(apps)}"
        )


def _validate_bids(instance: AuctionData, bids: Bids) -> None:
    if len({len(bids.app), len(bids.gpus), len(bids.locality), len(bids.rho)}) > 1:
        raise InvalidProblemError("bids: app, gpus, locality and rho must have one entry per row")
    if len(bids) and ((np.diff(bids.app) < 0).any() or bids.app[0] < 0 or bids.app[-1] >= instance.num_apps):
        raise InvalidProblemError(f"bids.app must be ascending, from 0 to at most {instance.num_apps - 1}")
    for b in np.flatnonzero(bids.gpus < 1)[:1]:
        raise InvalidProblemError(
            f"apps[{bids.app[b]}].bids must ask for at least 1 GPU, got {bids.gpus[b]}; give rho without GPUs as empty_rho"
        )
    gang = instance.apps.gang[bids.app]
    for b in np.flatnonzero(bids.gpus % gang)[:1]:
        raise InvalidProblemError(
            f"apps[{bids.app[b]}].bids must be for complete gangs of {gang[b]} GPUs, got {bids.gpus[b]}; "
            "ask for a multiple, or correct gang"
        )
    for b in np.flatnonzero(~((bids.rho > 0) & np.isfinite(bids.rho)))[:1]:
        raise InvalidProblemError(f"apps[{bids.app[b]}].bids: rho must be positive and finite, got {bids.rho[b]}")
    empty = instance.apps.empty_rho[bids.app]
    for b in np.flatnonzero(bids.rho >= empty)[:1]:
        raise InvalidProblemError(
            f"apps[{bids.app[b]}].bids: rho {bids.rho[b]} of {bids.gpus[b]} GPUs must be below empty_rho {empty[b]}; "
            "leave out bids that are no better than having no GPUs"
        )
    if len(bids) and not set(np.unique(bids.locality).tolist()) <= {int(level) for level in Locality}:
        raise InvalidProblemError(f"bids.locality must be one of {[level.name.lower() for level in Locality]}")
    _validate_named(instance, bids)


def _validate_named(instance: AuctionData, bids: Bids) -> None:
    if (
        len({len(bids.named_row), len(bids.named_machine), len(bids.named_gpus)}) > 1
        or (np.diff(bids.named_row) < 0).any()
    ):
        raise InvalidProblemError(
            "bids: named_row must be ascending, and named_machine and named_gpus must have the same length"
        )
    outside = (bids.named_machine < 0) | (bids.named_machine >= instance.cluster.num_machines)
    for e in np.flatnonzero(outside)[:1]:
        raise InvalidProblemError(
            f"bids: machine {bids.named_machine[e]} is named, but there are {instance.cluster.num_machines}, numbered from 0"
        )
    if len(set(zip(bids.named_row.tolist(), bids.named_machine.tolist(), strict=True))) < len(bids.named_row):
        raise InvalidProblemError("bids: a row names a machine twice; give the sum of its GPUs")
    total = np.bincount(bids.named_row, bids.named_gpus, len(bids)).astype(np.int64)
    is_named = bids.locality == Locality.NAMED
    if (bids.named_gpus < 1).any() or (total[~is_named] > 0).any() or (total[is_named] != bids.gpus[is_named]).any():
        raise InvalidProblemError(
            "bids: in a row that names machines, each must have at least 1 GPU, and their GPUs must add up to the row's"
        )
