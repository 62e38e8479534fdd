"""The file format ``optim/auction/1``: what a JSON document may hold."""

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from optim.core.documents import Count, Name, PositiveInt

SCHEMA = "optim/auction/1"

LocalityName = Literal["slot", "machine", "rack", "cluster"]


class MachineDocument(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """`count` equal machines of a rack: the GPUs of each slot, and how many of them are on offer (default: all)."""

    rack: Count
    slots: list[PositiveInt]
    free: list[Count] | UnsetType = UNSET
    count: PositiveInt = 1


class BidsDocument(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A bid table: rows [GPUs, locality, rho], and rows [[[machine, GPUs], ...], rho] that name their machines."""

    empty_rho: float
    rows: list[tuple[PositiveInt, LocalityName, float]] = []
    named: list[tuple[list[tuple[Count, PositiveInt]], float]] = []


class SlowdownDocument(Struct, forbid_unknown_fields=True):
    """Slowdown by locality, each at least 1."""

    slot: float = 1.0
    machine: float = 1.0
    rack: float = 1.0
    cluster: float = 1.0


class TrialDocument(Struct, forbid_unknown_fields=True):
    """A training job: serial GPU minutes left and in all, and the most GPUs it can use."""

    work_min: float
    total_work_min: float
    max_gpus: PositiveInt


class HeldDocument(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """GPUs held under leases that go on: where, as [slot, GPUs], or how many, and the smallest subtree that holds them."""

    gpus: Count | UnsetType = UNSET
    locality: LocalityName = "slot"
    places: list[tuple[Count, PositiveInt]] = []


class ProfileDocument(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What an app knows of itself; bids that aren't given follow from it."""

    elapsed_min: float
    active_apps: float
    trials: list[TrialDocument]
    slowdown: SlowdownDocument | str = "compute-bound"
    combine: Literal["all", "best"] = "all"
    ideal: Literal["time-share", "space-share"] = "time-share"
    estimator: Literal["aggregate", "split"] = "aggregate"
    held: HeldDocument | UnsetType = UNSET


class AppDocument(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """An app: its bids, or the profile they follow from, or both; the terms of rho where only bids are known."""

    id: Name
    gang: PositiveInt = 1
    bids: BidsDocument | UnsetType = UNSET
    profile: ProfileDocument | UnsetType = UNSET
    elapsed_min: float | UnsetType = UNSET
    work_min: float | UnsetType = UNSET
    ideal_min: float | UnsetType = UNSET


class AuctionDocument(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """An auction instance."""

    schema: str
    name: Name
    machines: list[MachineDocument]
    apps: list[AppDocument]
    lease_min: float = 20.0
    horizon: Literal["hold", "lease"] = "hold"
    empty_value: Literal["positive", "zero"] = "positive"
