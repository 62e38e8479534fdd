"""The header of a run on disk: a typed JSON document, in which nothing is given twice, unknown or of another type."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from optim.core.documents import Name, convert, decode
from optim.core.errors import InvalidProblemError
from optim.core.limits import check_limit
from optim.models.cluster.metrics import NOT_TOLD, Metrics
from optim.models.cluster.policy_names import why_no_names
from optim.models.cluster.proof import IntervalProof, LoadProof
from optim.models.cluster.rules import Rules
from optim.models.cluster.workload import LABELS, LATEST_US

SCHEMA, FIRST_SCHEMA = "optim/cluster-run/2", "optim/cluster-run/1"
"""The second has prices over slots of any length, and keys that begin with a digest of jobs and cluster."""

Time = Annotated[int, Meta(ge=0, le=LATEST_US)]
Bound = Annotated[float, Meta(ge=0)]
Key = Annotated[str, Meta(pattern=r"^.+:[0-9a-f]{32}\Z")]
OLD_NAME, FIGURES_SINCE = "queue_mean_h", {"first_start_mean_h", "wait_mean_h"}
"""What the wait to the first start was called, and the figures that came in its place."""

LATER = ("preempt_checkpoint_us", "may_spread", "knows_quotas", "quotas", "wait_order_share")
"""Rules and figures that came later: where a file doesn't tell a rule, there was none, and a figure, it is `NOT_TOLD`."""

RECORDS: Mapping[str, type[Any]] = {"metrics": Metrics, "rules": Rules, "load": LoadProof, "interval": IntervalProof}
"""Fields that hold one or more of a class, whose fields are all that may be in them."""

METRICS_OF_FIRST = frozenset(
    ["jct_mean_h", "jct_p50_h", "jct_p95_h", "jct_p99_h", "makespan_h", "queue_mean_h", "slowdown_mean", "slowdown_max", "rho_max", "rho_p50", "rho_min", "rho_share_above_1", "rho_space_max", "rho_space_p50", "rho_space_min", "rho_space_share_above_1", "jain", "gpu_hours", "overhead_gpu_hours", "goodput", "placement_score", "utilisation", "wait_fair_share", "wait_fragmented_share", "preemptions", "machine_failures", "crashes", "lost_gpu_hours", "down_gpu_hours", "failed_tries", "failed", "left", "unfinished"]
)  # fmt: skip
RULES_OF_FIRST = frozenset(
    ["restart_us", "move_us", "is_elastic", "is_shared", "jobs_a_gpu", "neighbour_ppm", "may_refuse", "checkpoint_us", "retries", "most_retries", "retry_wait_us"]
)  # fmt: skip
OF_FIRST: Mapping[str, frozenset[str]] = {"metrics": METRICS_OF_FIRST, "rules": RULES_OF_FIRST}
"""What a file of the first schema may tell of these; whatever came later it doesn't tell, and needn't.

A figure that is added later is `NOT_TOLD` by default, so that files of the first schema are read without it. A file of the
second holds all fields that there are.
"""


class NamesDocument(Struct, forbid_unknown_fields=True):
    """Names that columns of jobs hold numbers into."""

    groups: list[str]
    users: list[str]
    models: list[str]
    statuses: list[str]
    reasons: list[str]


class WorthDocument(Struct, forbid_unknown_fields=True):
    """What a run earned, and what no schedule can, as claimed."""

    slot_us: Time
    utility: float
    bound: float


class BoundsDocument(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What no schedule beats, as claimed: those bounds that have a proof."""

    jct_mean_h: Bound | UnsetType = UNSET
    makespan_h: Bound | UnsetType = UNSET
    slowdown_max: Bound | UnsetType = UNSET


class HeaderDocument(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """All of a file that isn't an array; files of earlier versions lack what is unset."""

    schema: Literal["optim/cluster-run/1", "optim/cluster-run/2"]
    overhead_us: Time
    settings: dict[str, Any]
    policies: list[Name]
    metrics: list[Metrics]
    bounds: BoundsDocument
    load: LoadProof | None
    interval: IntervalProof | None
    slot_us: Time | UnsetType | None = UNSET
    names: NamesDocument | UnsetType = UNSET
    kinds: list[Name] | UnsetType = UNSET
    rules: list[Rules] | UnsetType = UNSET
    figures: list[dict[Name, float]] | UnsetType = UNSET
    worth: list[WorthDocument | None] | UnsetType = UNSET
    ids: list[str] | UnsetType = UNSET
    most_by_prices_h: Bound | UnsetType = UNSET

    def __post_init__(self) -> None:
        """Check that all runs have their parts; whoever decodes names the field."""
        if (self.slot_us is UNSET) != (self.schema == SCHEMA):
            raise ValueError(f"slot_us belongs into files of schema {FIRST_SCHEMA!r}, and into these alone")
        for name in ("metrics", "rules", "figures", "worth"):
            said = getattr(self, name)
            if said is not UNSET and len(said) != len(self.policies):
                raise ValueError(f"{name} has {len(said)} entries for {len(self.policies)} policies; give one a policy")

    def names_of(self, column: str, most: int) -> tuple[str, ...]:
        """Return the names that a column of jobs holds numbers into, up to `most`; of files of earlier versions the numbers.

        Raises
        ------
        InvalidProblemError
            If there are more numbers than are read.
        """
        if isinstance(self.names, NamesDocument):
            return tuple(getattr(self.names, LABELS[column]))
        check_limit("count", most, f"numbers in jobs.{column}")
        return tuple(map(str, range(most + 1)))

    def rules_of(self, run: int) -> Rules:
        """Return what a run was played by: in files of earlier versions, whole gangs."""
        if isinstance(self.rules, UnsetType):
            return Rules(restart_us=self.overhead_us, move_us=self.overhead_us)
        return self.rules[run]

    def figures_of(self, run: int) -> dict[str, float]:
        """Return what a policy says of itself."""
        return {} if isinstance(self.figures, UnsetType) else self.figures[run]

    def worth_of(self, run: int) -> WorthDocument | None:
        """Return what a run's jobs are said to be worth in all."""
        return None if isinstance(self.worth, UnsetType) else self.worth[run]

    def bounds_by_name(self) -> dict[str, float]:
        """Return the bounds that are claimed."""
        return {name: value for name, value in msgspec.structs.asdict(self.bounds).items() if value is not UNSET}


def decode_header(data: bytes, *, is_whole: bool) -> HeaderDocument:
    """Return the header.

    Parameters
    ----------
    data
        JSON.
    is_whole
        Whether figures and rules must be told in full even in a file of the first schema, as its last versions did.

    Raises
    ------
    InvalidProblemError
        Naming the path of the bad field.
    """
    data = _of_this_version(data)
    header = decode(data, HeaderDocument)
    plain = json.loads(data, parse_int=float)
    for name, record in RECORDS.items():
        entries = plain.get(name) or []
        for number, entry in enumerate(entries if isinstance(entries, list) else [entries]):
            where = f"{name}[{number}]" if isinstance(entries, list) else name
            known = [field.name for field in fields(record)]
            first = OF_FIRST.get(name, frozenset(known))
            due = known if header.schema == SCHEMA else [each for each in known if is_whole and each in first]
            _check_fields(where, entry, known, due)
    if "keys" in header.settings:
        keys = convert(header.settings["keys"], list[Key], "settings.keys")
        _check_keys(keys, header.policies)
    if why := why_no_names(header.policies):
        raise InvalidProblemError(f"policies: {why}")
    return header


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object whose names are all different, or raise ValueError."""
    if len(found := dict(pairs)) < len(pairs):
        raise ValueError("given twice")
    return found


def _of_this_version(data: bytes) -> bytes:
    """Return a header with the figures of earlier versions under their present names."""
    try:
        plain = json.loads(data, object_pairs_hook=_once)
        entries = plain["metrics"] if plain["schema"] == FIRST_SCHEMA else []
        old = [entry for entry in entries if OLD_NAME in entry and not FIGURES_SINCE & entry.keys()]
    except (ValueError, TypeError, KeyError, RecursionError):
        return data  # the decoder says what is wrong
    for entry in old:
        entry["first_start_mean_h"] = entry.pop(OLD_NAME)
        entry["wait_mean_h"] = NOT_TOLD
    return json.dumps(plain).encode() if old else data


def _check_fields(where: str, entry: Mapping[str, Any], known: Sequence[str], due: Sequence[str]) -> None:
    for unknown in entry.keys() - set(known):
        raise InvalidProblemError(f"{where}: has no field {unknown[:40]!r}; remove it or correct its spelling")
    missing = [name for name in due if name not in entry and name not in LATER]
    if missing:
        raise InvalidProblemError(f"{where}: lacks the field {missing[0]!r}; add it")


def _check_keys(keys: Sequence[str], policies: Sequence[str]) -> None:
    if len(keys) != len(policies) or len(set(keys)) < len(keys):
        raise InvalidProblemError(
            f"settings.keys: must be one a policy, each another one, for {len(policies)} policies"
        )
