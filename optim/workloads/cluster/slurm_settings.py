"""Slurm's priority settings: slurm.conf, and the output of `sacctmgr -P show associations` and `show qos`."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from optim.core.arrays import TextArray
from optim.core.errors import InvalidProblemError
from optim.core.files import naming, read_bytes
from optim.core.limits import check_limit
from optim.models.cluster.fair_share import ROOT, AssociationTree
from optim.workloads.cluster.hierarchies import parents_first
from optim.workloads.csv_columns import header_of, read_columns, refuse, require_all_fields

SEPARATOR = "|"
ASSOCIATIONS_COMMAND = "sacctmgr -P show associations format=Account,ParentName,User,Fairshare"
QOS_COMMAND = "sacctmgr -P show qos format=Name,Priority,Preempt,PreemptExemptTime,UsageFactor"
MAX_HOURS = 1e6

_SPAN = re.compile(
    r"(?:(?P<days>\d{1,6})-(?P<dh>\d{1,6})(?::(?P<dm>\d{1,6})(?::(?P<ds>\d{1,6}))?)?|(?P<hours>\d{1,6}):(?P<minutes>\d{1,6}):(?P<seconds>\d{1,6})"
    r"|(?P<only>\d{1,9})(?::(?P<rest>\d{1,6}))?)"
)
_TOKEN = re.compile(r"(\w+)\s*=\s*(\"[^\"]*\"|\S+)")


def parse_span_s(text: str) -> int | None:
    """Return the seconds of a time in Slurm's notation, None for other texts.

    The forms are minutes, minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes and days-hours:minutes:seconds.

    Examples
    --------
    >>> [parse_span_s(text) for text in ("5", "0:30", "1:00:00", "7-0", "1-2:3", "soon")]
    [300, 30, 3600, 604800, 93780, None]
    """
    match = _SPAN.fullmatch(text.strip())
    if match is None:
        return None
    part = {name: int(value or 0) for name, value in match.groupdict().items()}
    days = 86400 * part["days"] + 3600 * part["dh"] + 60 * part["dm"] + part["ds"]
    return days + 3600 * part["hours"] + 60 * (part["minutes"] + part["only"]) + part["seconds"] + part["rest"]


def format_span(seconds: int) -> str:
    """Return seconds as Slurm's days-hours:minutes:seconds.

    Examples
    --------
    >>> format_span(93785)
    '1-02:03:05'
    """
    days, rest = divmod(seconds, 86400)
    return f"{days}-{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPriority:
    """Terms of a partition in its jobs' priority: ``PriorityJobFactor`` and ``PriorityTier``, both 1 by default."""

    job_factor: int = 1
    tier: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PrioritySettings:
    """Priority settings of slurm.conf.

    Parameters
    ----------
    options
        Options of the policy ``multifactor``, by name, with Slurm's defaults for absent parameters.
    partitions
        Partitions by name.
    ignored
        Names of parameters of priority, preemption and scheduling that have no effect in the simulation.
    scheduler
        The file's ``SchedulerType`` in lower case, "" if absent; Slurm's default is `BACKFILL`.
    """

    options: Mapping[str, Any]
    partitions: Mapping[str, PartitionPriority] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    scheduler: str = ""


def _whole(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 10 and int(text) < 2**32 else None


def _yes(text: str) -> bool | None:
    return {"yes": True, "no": False}.get(text.casefold())


def _hours(text: str) -> float | None:
    seconds = parse_span_s(text)
    return None if seconds is None or seconds > MAX_HOURS * 3600 else seconds / 3600


def _minutes(text: str) -> float | None:
    seconds = parse_span_s(text)
    return None if not seconds or seconds > MAX_HOURS * 3600 else seconds / 60


PARAMETERS: Mapping[str, tuple[str, Callable[[str], Any], str]] = {
    "priorityweightage": ("weight_age", _whole, "an integer below 2^32"),
    "priorityweightfairshare": ("weight_fair_share", _whole, "an integer below 2^32"),
    "priorityweightjobsize": ("weight_job_size", _whole, "an integer below 2^32"),
    "priorityweightpartition": ("weight_partition", _whole, "an integer below 2^32"),
    "priorityweightqos": ("weight_qos", _whole, "an integer below 2^32"),
    "priorityfavorsmall": ("favor_small", _yes, "YES or NO"),
    "prioritymaxage": ("max_age_h", _hours, "a time such as 7-0"),
    "prioritydecayhalflife": ("half_life_h", _hours, "a time such as 7-0"),
    "prioritycalcperiod": ("calc_period_min", _minutes, "minutes above 0"),
    "fairsharedampeningfactor": ("damping", _whole, "an integer"),
    "preemptexempttime": ("exempt_s", parse_span_s, "a time such as 0:30:00"),
}
"""Parameters of slurm.conf, in lower case: the policy's option, the parser, and the expected form."""

DEFAULTS: Mapping[str, Any] = {
    **{f"weight_{name}": 0 for name in ("age", "fair_share", "job_size", "partition", "qos")},
    "max_age_h": 168.0,
    "half_life_h": 168.0,
}
"""Slurm's defaults where they differ from those of the policy's options: weights of 0, and 7 days for the times."""

DECIDED = {"prioritytype": "priority/multifactor", "preempttype": "preempt/qos", "preemptmode": "requeue"}
"""Parameters for which only the simulated value is allowed."""

BACKFILL, BUILTIN = "sched/backfill", "sched/builtin"
"""Values of ``SchedulerType``."""

FLAGS = {"no_fair_tree": ("fair_tree", False)}
ABOUT = ("priority", "preempt", "fairshare", "scheduler")
"""Prefixes of the parameters that are listed as ignored if the simulation doesn't use them."""


def read_priority_settings(path: str | Path) -> PrioritySettings:
    """Read the priority settings of a slurm.conf: lines ``Priority...=``, and factor and tier of ``PartitionName=``.

    Raises
    ------
    InvalidProblemError
        If the file or a value can't be read, or it selects another plug-in than multifactor, or another preemption than by
        quality of service.
    """
    data = read_bytes(path)
    check_limit("rows", data.count(b"\n"), f"{path}: lines")
    options: dict[str, Any] = {}
    partitions: dict[str, PartitionPriority] = {}
    ignored: dict[str, None] = {}
    scheduler = ""
    for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), start=1):
        pairs = _TOKEN.findall(line.partition("#")[0])
        keys = {key.casefold(): value.strip('"') for key, value in pairs}
        where = f"{path}: line {number}"
        if "partitionname" in keys:
            partitions[keys["partitionname"]] = _partition(where, keys)
            continue
        scheduler = keys.get("schedulertype", scheduler).casefold()
        for key, value in pairs:
            _take(where, key, value.strip('"'), options, ignored)
    if not options and not partitions:
        raise InvalidProblemError(
            f"{path}: the file has no priority parameter, such as PriorityWeightAge=1000; give a slurm.conf"
        )
    return PrioritySettings(
        options={**DEFAULTS, **options}, partitions=partitions, ignored=tuple(ignored), scheduler=scheduler
    )


def _partition(where: str, keys: Mapping[str, str]) -> PartitionPriority:
    found = {}
    for key, name in (("priorityjobfactor", "job_factor"), ("prioritytier", "tier")):
        if key in keys:
            value = _whole(keys[key])
            if value is None or value > 65533:
                raise InvalidProblemError(f"{where}: {key} must be an integer up to 65533, got {keys[key][:40]!r}")
            found[name] = value
    return PartitionPriority(**found)


def _take(where: str, key: str, value: str, options: dict[str, Any], ignored: dict[str, None]) -> None:
    """Add one parameter to `options` if the simulation uses it, else to `ignored`."""
    name = key.casefold()
    if name in PARAMETERS:
        option, read, due = PARAMETERS[name]
        options[option] = read(value)
        if options[option] is None:
            raise InvalidProblemError(f"{where}: {key[:40]} must be {due}, got {value[:40]!r}")
    elif name == "priorityflags":
        for flag in value.split(","):
            known = FLAGS.get(flag.casefold())
            if known is None:
                ignored[f"PriorityFlags={flag[:40]}"] = None
            else:
                options[known[0]] = known[1]
    elif name in DECIDED:
        if DECIDED[name] not in [part.casefold() for part in value.split(",")]:
            raise InvalidProblemError(
                f"{where}: {key[:40]} must be {DECIDED[name]}, the only simulated value, got {value[:40]!r}"
            )
    elif name.startswith(ABOUT) and name != "schedulertype":
        ignored[key[:40]] = None


def _texts(
    path: str | Path, wanted: Mapping[str, tuple[str, ...]], needed: tuple[str, ...], command: str
) -> dict[str, TextArray]:
    """Return columns of a table separated by bars, by the keys of `wanted`; spaces and case of the header don't matter."""
    header = header_of(path, SEPARATOR)
    there = {name.replace(" ", "").casefold(): name for name in header}
    found = {
        ours: next(there[name] for name in names if name in there)
        for ours, names in wanted.items()
        if any(name in there for name in names)
    }
    for name in needed:
        if name not in found:
            raise InvalidProblemError(
                f"{path}: column {wanted[name][0]!r} is missing; this command prints all: {command}"
            )
    columns = read_columns(path, (), tuple(found.values()), SEPARATOR)
    require_all_fields(path, SEPARATOR)
    return {ours: columns[name] for ours, name in found.items()}


def read_associations(path: str | Path) -> AssociationTree:
    """Read accounts and users with their shares, as ``sacctmgr -P show associations`` prints them.

    Raises
    ------
    InvalidProblemError
        If a column is missing, shares aren't numbers, an account's parent is missing, or accounts form a cycle.
    """
    wanted = {
        "account": ("account",),
        "parent": ("parentname", "parname"),
        "user": ("user",),
        "shares": ("share", "fairshare", "rawshares"),
        "cluster": ("cluster",),
    }
    columns = _texts(path, wanted, ("account", "parent", "user", "shares"), ASSOCIATIONS_COMMAND)
    clusters = sorted(set(columns["cluster"].tolist())) if "cluster" in columns else []
    if len(clusters) > 1:
        raise InvalidProblemError(
            f"{path}: the file has {len(clusters)} clusters; print one, with cluster={clusters[0][:40]!r}"
        )
    is_parent = columns["shares"] == "parent"
    shares = np.array(
        [_whole(text) if text else 1 for text in np.where(is_parent, "0", columns["shares"]).tolist()], object
    )
    refuse(path, "Share", shares == None, "expected an integer number of shares, or parent", columns["shares"])  # noqa: E711
    account, user = columns["account"].tolist(), columns["user"].tolist()
    of_accounts: dict[str, int] = {}
    of_users: dict[tuple[str, str], int] = {}
    for row, (name, who) in enumerate(zip(account, user, strict=True)):
        if who:
            of_users.setdefault((name, who), row)
        else:
            of_accounts.setdefault(name, row)
    parent = {name: columns["parent"][row] or ROOT for name, row in of_accounts.items() if name != ROOT}
    with naming(path):
        order = parents_first(parent, "account", ROOT)
    missing = next(((name, who) for name, who in of_users if name not in {ROOT, *parent}), None)
    if missing:
        raise InvalidProblemError(f"{path}: account {missing[0][:40]!r} of user {missing[1][:40]!r} has no row; add it")
    number = {name: at for at, name in enumerate([ROOT, *order])}
    rows = [of_accounts[name] for name in order] + list(of_users.values())
    count = 1 + len(rows)
    return AssociationTree(
        names=(ROOT, *order, *(who for _, who in of_users)),
        parent=np.array(
            [-1, *(number[parent[name]] for name in order), *(number[name] for name, _ in of_users)], np.int64
        ),
        shares=np.array([1, *(int(shares[row]) for row in rows)], np.int64),
        is_user=np.arange(count) > len(order),
        takes_parent=np.array([False, *(bool(is_parent[row]) for row in rows)]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityOfService:
    """A quality of service.

    Parameters
    ----------
    name
        Name by which jobs refer to it.
    priority
        Term in its jobs' priority, at least 0.
    preempts
        Names of the qualities of service whose jobs it may preempt.
    exempt_s
        Minimum run time of its jobs before preemption; None to use slurm.conf's.
    usage_factor
        Factor on its jobs' usage.
    """

    name: str
    priority: int = 0
    preempts: tuple[str, ...] = ()
    exempt_s: int | None = None
    usage_factor: float = 1.0


def read_qualities_of_service(path: str | Path) -> tuple[QualityOfService, ...]:
    """Read qualities of service, as ``sacctmgr -P show qos`` prints them.

    Raises
    ------
    InvalidProblemError
        If a column is missing, a number can't be read, a name appears twice, or a quality of service that another one
        preempts is missing.
    """
    wanted = {
        "name": ("name",),
        "priority": ("priority",),
        "preempt": ("preempt",),
        "exempt": ("preemptexempttime",),
        "factor": ("usagefactor",),
    }
    columns = _texts(path, wanted, ("name", "priority"), QOS_COMMAND)
    empty = np.full(len(columns["name"]), "", object)
    preempt, exempt, factor = (columns.get(name, empty).tolist() for name in ("preempt", "exempt", "factor"))
    names = columns["name"].tolist()
    found = []
    for row, name in enumerate(names):
        priority, shortest, times = (
            _whole(columns["priority"][row] or "0"),
            parse_span_s(exempt[row]),
            _factor(factor[row]),
        )
        if priority is None or times is None or (exempt[row] and shortest is None):
            raise InvalidProblemError(
                f"{path}: quality of service {name[:40]!r} has an unreadable priority, exempt time or usage factor; correct it"
            )
        others = tuple(each for each in preempt[row].split(",") if each)
        unknown = [each for each in others if each not in names]
        if unknown or names.count(name) > 1:
            said = f"preempts {unknown[0][:40]!r}, which isn't in the file" if unknown else "appears twice"
            raise InvalidProblemError(f"{path}: quality of service {name[:40]!r} {said}; correct it")
        found.append(
            QualityOfService(name=name, priority=priority, preempts=others, exempt_s=shortest, usage_factor=times)
        )
    return tuple(found)


def _factor(text: str) -> float | None:
    try:
        value = float(text or "1")
    except ValueError:
        return None
    return value if 0 <= value <= 1e6 else None
