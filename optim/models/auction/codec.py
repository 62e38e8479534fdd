"""Convert auctions from and to documents of format ``optim/auction/1``, and from Python lists."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import asdict as fields_of

from optim.core.documents import Count, Name, PositiveInt, convert
from optim.core.errors import InvalidProblemError
from optim.core.frames import is_frame, rows_of
from optim.core.limits import check_limit
from optim.models.auction.bids import BidTable, bid_table, with_allocation
from optim.models.auction.data import (
    PRESETS,
    Apps,
    AuctionData,
    Bids,
    Cluster,
    EmptyValue,
    Horizon,
    Locality,
    Slowdown,
    as_floats,
    as_ints,
)
from optim.models.auction.fairness import AppProfile, Combine, Estimator, IdealTime, Trial, ideal_minutes

if TYPE_CHECKING:
    from pandas import DataFrame

SCHEMA = "optim/auction/1"

Instance = TypeVar("Instance", bound=AuctionData)

LocalityName = Literal["slot", "machine", "rack", "cluster"]


class MachineDocument(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Equal machines of a rack.

    Parameters
    ----------
    rack
        Number of the rack.
    slots
        Number of GPUs of each slot; a slot is a group of GPUs with fast links.
    free
        Number of free GPUs of each slot (default: all).
    count
        Number of machines.
    """

    rack: Count
    slots: list[PositiveInt]
    free: list[Count] | UnsetType = UNSET
    count: PositiveInt = 1


class BidsDocument(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A bid table.

    Parameters
    ----------
    empty_rho
        Finish-time fairness without GPUs.
    rows
        Bids `[number of GPUs, locality, rho]`.
    named
        Bids that name their machines, `[[[machine, number of GPUs], ...], rho]`.
    """

    empty_rho: float
    rows: list[tuple[PositiveInt, LocalityName, float]] = []
    named: list[tuple[list[tuple[Count, PositiveInt]], float]] = []


class SlowdownDocument(Struct, forbid_unknown_fields=True):
    """Slowdown by locality.

    Parameters
    ----------
    slot, machine, rack, cluster
        Slowdown of a job whose GPUs lie within one slot, machine, rack, or the cluster; at least 1.
    """

    slot: float = 1.0
    machine: float = 1.0
    rack: float = 1.0
    cluster: float = 1.0


class TrialDocument(Struct, forbid_unknown_fields=True):
    """A training job.

    Parameters
    ----------
    work_min
        Remaining serial GPU-minutes.
    total_work_min
        Total serial GPU-minutes.
    max_gpus
        Maximum number of GPUs.
    """

    work_min: float
    total_work_min: float
    max_gpus: PositiveInt


class HeldDocument(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """GPUs held under running leases.

    Parameters
    ----------
    gpus
        Number of these GPUs.
    locality
        Level of the smallest subtree that contains these GPUs.
    places
        The GPUs as `[slot, number of GPUs]` entries, which replace `gpus` and `locality`.
    """

    gpus: Count | UnsetType = UNSET
    locality: LocalityName = "slot"
    places: list[tuple[Count, PositiveInt]] = []


class ProfileDocument(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Data of an app from which its bids are generated.

    Parameters
    ----------
    elapsed_min
        Minutes since submission, queueing included.
    active_apps
        Time average of the number of active apps since the app's submission.
    trials
        The app's jobs.
    slowdown
        Slowdown by locality, or the name of a preset such as `vgg16-themis`.
    combine
        The app ends with its last job (`all`), or with its predicted winner (`best`).
    ideal
        In the ideal time the app has all GPUs for a share of the time (`time-share`), or always a share of them
        (`space-share`).
    estimator
        The app's time is estimated from totals (`aggregate`), or by the best split of the GPUs over its jobs (`split`).
    held
        GPUs that the app holds.
    """

    elapsed_min: float
    active_apps: float
    trials: list[TrialDocument]
    slowdown: SlowdownDocument | str = "compute-bound"
    combine: Literal["all", "best"] = "all"
    ideal: Literal["time-share", "space-share"] = "time-share"
    estimator: Literal["aggregate", "split"] = "aggregate"
    held: HeldDocument | UnsetType = UNSET


class AppDocument(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """An app: its bids, its profile, or both.

    Parameters
    ----------
    id
        Name.
    gang
        Gang size: numbers of GPUs are multiples of it.
    bids
        Bid table.
    profile
        Data from which bids are generated.
    elapsed_min, work_min, ideal_min
        Minutes since submission, remaining serial GPU-minutes and ideal time in minutes, the terms of rho (default:
        from the profile, or 0, 1, 1 without a profile).
    """

    id: Name
    gang: PositiveInt = 1
    bids: BidsDocument | UnsetType = UNSET
    profile: ProfileDocument | UnsetType = UNSET
    elapsed_min: float | UnsetType = UNSET
    work_min: float | UnsetType = UNSET
    ideal_min: float | UnsetType = UNSET


class AuctionDocument(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """An auction instance.

    Parameters
    ----------
    schema
        `optim/auction/1`.
    name
        Name of the instance.
    machines
        Machines and their free GPUs.
    apps
        The apps.
    lease_min
        Minutes per lease.
    horizon
        `hold`: an app keeps the GPUs of a bid for ever; `lease`: for one lease, and then it gets its fair share.
    empty_value
        Value of an app without GPUs. `positive`: 1 / `empty_rho`; `zero`: 0, and as many apps as possible get GPUs.
    """

    schema: str
    name: Name
    machines: list[MachineDocument]
    apps: list[AppDocument]
    lease_min: float = 20.0
    horizon: Literal["hold", "lease"] = "hold"
    empty_value: Literal["positive", "zero"] = "positive"


NAMES = {level: level.name.lower() for level in Locality}

LEVELS = {name: int(level) for level, name in NAMES.items()}


def instance_from_document(document: AuctionDocument, instance_type: type[Instance]) -> Instance:
    """Build a validated instance; missing bids are generated from the app's profile.

    Raises
    ------
    InvalidProblemError
        If a field contradicts the format; the message names its path, value and remedy.
    """
    cluster = cluster_from_documents(document.machines)
    horizon = Horizon(document.horizon)
    profiles = tuple(_profile(app, i, cluster) for i, app in enumerate(document.apps))
    tables = [
        _bids(app, profile, i, cluster, document.lease_min, horizon)
        for i, (app, profile) in enumerate(zip(document.apps, profiles, strict=True))
    ]
    return instance_type(
        name=document.name,
        cluster=cluster,
        apps=_apps(document.apps, tables, profiles, cluster),
        bids=join_bids(tables),
        lease_min=document.lease_min,
        horizon=horizon,
        empty_value=EmptyValue(document.empty_value),
        profiles=profiles if all(profile is not None for profile in profiles) else (),
    )


def document_from_instance(instance: AuctionData) -> AuctionDocument:
    """Return the document of an instance; reading it back gives equal data. Bids are always written out."""
    apps = instance.apps
    documents = []
    for i, name in enumerate(apps.ids):
        profile = instance.profiles[i] if instance.profiles else None
        documents.append(
            AppDocument(
                id=name,
                gang=int(apps.gang[i]),
                bids=_bids_document(instance, i),
                profile=_profile_document(profile) if isinstance(profile, AppProfile) else UNSET,
                elapsed_min=float(apps.elapsed_min[i]),
                work_min=float(apps.work_min[i]),
                ideal_min=float(apps.ideal_min[i]),
            )
        )
    return AuctionDocument(
        schema=SCHEMA,
        name=instance.name,
        machines=_machine_documents(instance.cluster),
        apps=documents,
        lease_min=instance.lease_min,
        horizon=instance.horizon.value,
        empty_value=instance.empty_value.value,
    )


def _bids_document(instance: AuctionData, app: int) -> BidsDocument:
    bids = instance.bids
    table = BidsDocument(empty_rho=float(instance.apps.empty_rho[app]))
    for b in range(int(instance.row_offset[app]), int(instance.row_offset[app + 1])):
        rho = float(bids.rho[b])
        if bids.locality[b] == Locality.NAMED:
            part = slice(int(instance.named_offset[b]), int(instance.named_offset[b + 1]))
            machines = list(zip(bids.named_machine[part].tolist(), bids.named_gpus[part].tolist(), strict=True))
            table.named.append((machines, rho))
        else:
            table.rows.append((int(bids.gpus[b]), NAMES[Locality(int(bids.locality[b]))], rho))  # type: ignore[arg-type]
    return table


def cluster_from_documents(machines: Sequence[MachineDocument]) -> Cluster:
    """Build a cluster; machines are numbered in order, `count` machines per entry."""
    racks: list[int] = []
    slots: list[tuple[int, int, int]] = []
    check_limit("count", sum(machine.count for machine in machines), "machines")
    check_limit("count", sum(machine.count * sum(machine.slots) for machine in machines), "machines: GPUs")
    check_limit("count", max((machine.rack for machine in machines), default=0), "machines: number of a rack")
    for m, machine in enumerate(machines):
        free = machine.slots if isinstance(machine.free, UnsetType) else machine.free
        if len(free) != len(machine.slots) or not machine.slots:
            raise InvalidProblemError(
                f"machines[{m}].free must list one number per slot, got {free} for slots {machine.slots}"
            )
        for _ in range(machine.count):
            slots += [(len(racks), size, offer) for size, offer in zip(machine.slots, free, strict=True)]
            racks.append(machine.rack)
    table = np.array(slots, dtype=np.int64).reshape(-1, 3)
    return Cluster(
        machine_rack=as_ints(racks),
        slot_machine=as_ints(table[:, 0]),
        slot_gpus=as_ints(table[:, 1]),
        slot_free=as_ints(table[:, 2]),
    )


def join_bids(tables: Sequence[BidsDocument]) -> Bids:
    """Return the rows of all apps as one list; each app's rows with named machines come last."""
    rows: list[tuple[int, int, int]] = []
    rho: list[float] = []
    named: list[tuple[int, int, int]] = []
    for i, table in enumerate(tables):
        rows += [(i, gpus, LEVELS[locality]) for gpus, locality, _ in table.rows]
        for machines, _ in table.named:
            named += [(len(rows), machine, count) for machine, count in sorted(machines)]
            rows.append((i, sum(count for _, count in machines), int(Locality.NAMED)))
        rho += [value for _, _, value in table.rows] + [value for _, value in table.named]
    columns = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    entries = np.array(named, dtype=np.int64).reshape(-1, 3)
    return Bids(
        app=as_ints(columns[0]),
        gpus=as_ints(columns[1]),
        locality=as_ints(columns[2]),
        rho=as_floats(rho),
        named_row=as_ints(entries[:, 0]),
        named_machine=as_ints(entries[:, 1]),
        named_gpus=as_ints(entries[:, 2]),
    )


def _bids(
    app: AppDocument, profile: AppProfile | None, i: int, cluster: Cluster, lease_min: float, horizon: Horizon
) -> BidsDocument:
    if not isinstance(app.bids, UnsetType):
        return app.bids
    if profile is None:
        raise InvalidProblemError(f"apps[{i}] needs bids, or a profile to generate bids from")
    return bids_document(bid_table(profile, cluster, lease_min=lease_min, horizon=horizon))


def bids_document(table: BidTable) -> BidsDocument:
    """Return the document of a bid table."""
    rows = [(k, NAMES[Locality(level)], rho) for k, level, rho in table.rows]
    named = [(list(machines), rho) for machines, rho in table.named]
    return BidsDocument(empty_rho=table.empty_rho, rows=rows, named=named)  # type: ignore[arg-type]


def _apps(
    documents: Sequence[AppDocument],
    tables: Sequence[BidsDocument],
    profiles: Sequence[AppProfile | None],
    cluster: Cluster,
) -> Apps:
    def terms(app: AppDocument, profile: AppProfile | None) -> tuple[float, float, float]:
        derived = (0.0, 1.0, 1.0)
        if profile is not None:
            derived = (profile.elapsed_min, profile.work_min, ideal_minutes(profile, cluster.num_gpus))
        stated = (app.elapsed_min, app.work_min, app.ideal_min)
        return tuple(g if isinstance(s, UnsetType) else s for g, s in zip(derived, stated, strict=True))  # type: ignore[return-value]

    facts = np.array([terms(*pair) for pair in zip(documents, profiles, strict=True)]).reshape(-1, 3)
    return Apps(
        ids=tuple(app.id for app in documents),
        empty_rho=as_floats([table.empty_rho for table in tables]),
        gang=as_ints([app.gang for app in documents]),
        elapsed_min=as_floats(facts[:, 0]),
        work_min=as_floats(facts[:, 1]),
        ideal_min=as_floats(facts[:, 2]),
    )


def _profile(app: AppDocument, i: int, cluster: Cluster) -> AppProfile | None:
    if isinstance(app.profile, UnsetType):
        return None
    document = app.profile
    if isinstance(document.slowdown, str):
        if document.slowdown not in PRESETS:
            raise InvalidProblemError(
                f"apps[{i}].profile.slowdown: unknown preset {document.slowdown!r}; there are: {', '.join(PRESETS)}"
            )
        slowdown = PRESETS[document.slowdown]
    else:
        slowdown = Slowdown(**fields_of(document.slowdown))
    try:
        profile = AppProfile(
            elapsed_min=document.elapsed_min,
            active_apps=document.active_apps,
            trials=tuple(Trial(**fields_of(trial)) for trial in document.trials),
            slowdown=slowdown,
            gang=app.gang,
            combine=Combine(document.combine),
            ideal=IdealTime(document.ideal),
            estimator=Estimator(document.estimator),
        )
        return profile if isinstance(document.held, UnsetType) else _holding(profile, document.held, cluster)
    except InvalidProblemError as error:
        raise InvalidProblemError(f"apps[{i}].profile: {error}") from error


def _holding(profile: AppProfile, holding: HeldDocument, cluster: Cluster) -> AppProfile:
    """Return the profile with the held GPUs that a document states."""
    stated = None if isinstance(holding.gpus, UnsetType) else holding.gpus
    if not holding.places:
        if stated is None:
            raise InvalidProblemError("held must have gpus or places")
        return replace(profile, held_gpus=stated, held_locality=LEVELS[holding.locality])
    slot_used = cluster.slot_gpus - cluster.slot_free
    for slot, count in holding.places:
        if not (slot < len(slot_used) and count <= slot_used[slot]):
            raise InvalidProblemError(
                f"held.places lists {count} GPUs of slot {slot}, but only "
                f"{slot_used[slot] if slot < len(slot_used) else 0} GPUs of that slot are allocated; "
                "correct the slot, or `free` of its machine"
            )
    if len({slot for slot, _ in holding.places}) < len(holding.places):
        raise InvalidProblemError("held.places lists a slot twice; give the sum of its GPUs")
    if stated is not None and stated != sum(count for _, count in holding.places):
        raise InvalidProblemError(
            f"held.gpus is {stated}, but the GPUs of held.places have another sum; omit gpus or places"
        )
    return with_allocation(profile, cluster, holding.places)


def _profile_document(profile: AppProfile) -> ProfileDocument:
    holding = (
        HeldDocument(places=list(profile.held_places))
        if profile.held_places
        else HeldDocument(gpus=profile.held_gpus, locality=NAMES[Locality(profile.held_locality)])  # type: ignore[arg-type]
    )
    return ProfileDocument(
        elapsed_min=profile.elapsed_min,
        active_apps=profile.active_apps,
        trials=[TrialDocument(**asdict(trial)) for trial in profile.trials],
        slowdown=SlowdownDocument(**asdict(profile.slowdown)),
        combine=profile.combine.value,
        ideal=profile.ideal.value,
        estimator=profile.estimator.value,
        held=holding if profile.held_gpus else UNSET,
    )


def _machine_documents(cluster: Cluster) -> list[MachineDocument]:
    """Return one document for each sequence of equal machines."""
    machines = []
    for m, rack in enumerate(cluster.machine_rack.tolist()):
        mine = cluster.slot_machine == m
        machines.append((rack, tuple(cluster.slot_gpus[mine].tolist()), tuple(cluster.slot_free[mine].tolist())))
    documents = []
    for (rack, slots, free), equal in groupby(machines):
        offer = UNSET if free == slots else list(free)
        documents.append(MachineDocument(rack=rack, slots=list(slots), free=offer, count=len(list(equal))))
    return documents


MachineSlots = int | Sequence[int]
"""Number of GPUs of a machine, or of each of its slots."""

PlainBid = tuple[int, str, float] | tuple[Mapping[int, int], float]
"""A bid: (GPUs, locality, rho), or ({machine: GPUs}, rho) if it names its machines."""


def auction_document(
    machines: Sequence[MachineSlots],
    bids: "Mapping[str, Sequence[PlainBid]] | DataFrame",
    *,
    empty_rho: float | Mapping[str, float],
    free: Sequence[MachineSlots] | None,
    racks: Sequence[int] | None,
    gangs: Mapping[str, int],
    name: str,
    lease_min: float,
    empty_value: str,
) -> AuctionDocument:
    """Return the document of an auction given as lists; `AuctionInstance.from_bids` describes the arguments."""
    tables: Mapping[str, Sequence[PlainBid]] = _of_frame(bids) if is_frame(bids) else bids
    offer = machines if free is None else free
    rack = [0] * len(machines) if racks is None else list(racks)
    for field, values in (("free", offer), ("racks", rack)):
        if len(values) != len(machines):
            raise InvalidProblemError(
                f"{field} must have one entry per machine, got {len(values)} for {len(machines)} machines"
            )
    for field, named in (("gangs", gangs), ("empty_rho", empty_rho)):
        unknown = sorted(set(named) - set(tables)) if isinstance(named, Mapping) else []
        if unknown:
            raise InvalidProblemError(
                f"{field} names {unknown[0]!r}, which has no bids; give it a list of bids, which may be empty"
            )
    if isinstance(empty_rho, Mapping) and len(empty_rho) < len(tables):
        raise InvalidProblemError("empty_rho must have one number per app, or be one number for all")
    document = {
        "schema": SCHEMA,
        "name": name,
        "machines": [
            {"rack": r, "slots": _slots(gpus), "free": _slots(free)}
            for r, gpus, free in zip(rack, machines, offer, strict=True)
        ],
        "apps": [
            {
                "id": app,
                "gang": gangs.get(app, 1),
                "bids": {
                    "empty_rho": empty_rho[app] if isinstance(empty_rho, Mapping) else empty_rho,
                    "rows": [list(row) for row in rows if len(row) != 2],
                    "named": [[[*map(list, row[0].items())], row[1]] for row in rows if len(row) == 2],
                },
            }
            for app, rows in tables.items()
        ],
        "lease_min": lease_min,
        "empty_value": empty_value,
    }
    converted: AuctionDocument = convert(document, AuctionDocument, "instance")
    return converted


def _slots(gpus: MachineSlots) -> list[int]:
    return [gpus] if isinstance(gpus, int) else list(gpus)


def bid_columns(instance: AuctionData) -> dict[str, list[Any]]:
    """Return the bids by column; `machines` is None for bids without named machines."""
    bids = instance.bids
    machines: list[dict[int, int] | None] = [
        {} if level == Locality.NAMED else None for level in bids.locality.tolist()
    ]
    entries = (bids.named_row.tolist(), bids.named_machine.tolist(), bids.named_gpus.tolist())
    for row, machine, gpus in zip(*entries, strict=True):
        named = machines[row]
        if named is not None:
            named[machine] = gpus
    return {
        "app": [instance.apps.ids[app] for app in bids.app.tolist()],
        "gpus": bids.gpus.tolist(),
        "locality": [Locality(level).name.lower() for level in bids.locality.tolist()],
        "rho": bids.rho.tolist(),
        "machines": machines,
    }


def _of_frame(frame: Any) -> dict[str, list[PlainBid]]:
    """Return the bids of a frame by app."""
    bids: dict[str, list[PlainBid]] = {}
    for number, row in enumerate(rows_of(frame, "bids")):
        wanted = ("app", "rho") if "machines" in row else ("app", "gpus", "locality", "rho")
        missing = [name for name in wanted if name not in row]
        if missing:
            raise InvalidProblemError(f"bids[{number}].{missing[0]} is missing; add the column")
        bid = (row["machines"], row["rho"]) if "machines" in row else (row["gpus"], row["locality"], row["rho"])
        bids.setdefault(str(row["app"]), []).append(bid)
    return bids
