"""The file format ``optim/admission/1``: what a JSON document may hold, with exact decimals.

Only the border uses these types; `optim.models.admission.reading` turns a document into an
`AdmissionInstance` and back. Every number of the resource arithmetic is a decimal with at most six
digits after the point, so that it is an exact integer of 1e-6 units.
"""

from decimal import Decimal
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType, field

from optim.core.documents import Count, Name, PositiveInt

SCHEMA = "optim/admission/1"

NonNegative = Annotated[Decimal, Meta(description="decimal >= 0 with at most 6 digits after the point")]
Positive = Annotated[Decimal, Meta(description="decimal > 0 with at most 6 digits after the point")]


class SigmoidDocument(Struct, tag_field="kind", tag="sigmoid", forbid_unknown_fields=True):
    """f(d) = theta1 / (1 + exp(theta2 (d - theta3)))."""

    theta1: float
    theta2: float
    theta3: float


class ConstantDocument(Struct, tag_field="kind", tag="constant", forbid_unknown_fields=True):
    """f(d) = value."""

    value: float


class StepDocument(Struct, tag_field="kind", tag="step", forbid_unknown_fields=True):
    """f(d) = value up to and including a delay of `max_delay` slots (in files: ``deadline``), then late_value."""

    value: float
    max_delay: Count = field(name="deadline")
    late_value: float = 0.0


class TableDocument(Struct, tag_field="kind", tag="table", forbid_unknown_fields=True):
    """f(d) = table[d], 0 beyond the table."""

    table: list[float]


UtilityDocument = SigmoidDocument | ConstantDocument | StepDocument | TableDocument


class SegmentDocument(Struct, forbid_unknown_fields=True):
    """Demands from `start` units of progress on until the next segment's start.

    Units are worker-slots; chunks if `chunk_integral`; else twentieths of worker-slots where the job has a `speedup`.
    """

    start: Count
    worker: list[NonNegative]
    ps: list[NonNegative]


class JobDocument(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One training job.

    Demands are either `worker` and `ps` (one list over the resources each) or `segments`.
    """

    id: Name
    arrival: Count
    epochs: PositiveInt
    chunks: PositiveInt
    minibatches: PositiveInt
    minibatch_s: NonNegative
    gradient_mb: NonNegative
    worker_mbps: Positive
    ps_mbps: Positive
    utility: UtilityDocument
    worker: list[NonNegative] | UnsetType = UNSET
    ps: list[NonNegative] | UnsetType = UNSET
    segments: list[SegmentDocument] | UnsetType = UNSET
    min_utility: float | UnsetType = UNSET
    speedup: list[Positive] | UnsetType = UNSET
    """How many times as fast as one worker 1, 2, ... are, in multiples of 0.05; the last entry holds for more workers."""


class ServerClassDocument(Struct, forbid_unknown_fields=True):
    """`count` identical servers; `capacity` is one list over the resources, or one such list a slot."""

    type: Name
    capacity: list[NonNegative | list[NonNegative]]
    count: PositiveInt


class AdmissionDocument(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """An admission instance. Servers are `worker_servers` and `ps_servers`, or `shared_servers`."""

    schema: str
    name: Name
    horizon: PositiveInt
    slot_s: Positive
    resources: list[Name]
    jobs: list[JobDocument]
    worker_servers: list[ServerClassDocument] | UnsetType = UNSET
    ps_servers: list[ServerClassDocument] | UnsetType = UNSET
    shared_servers: list[ServerClassDocument] | UnsetType = UNSET
    min_utility: Decimal = Decimal("0.01")
    max_share_per_server: Decimal | None = None
    chunk_integral: bool = False
