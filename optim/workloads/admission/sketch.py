"""Jobs, servers and documents in a few words, for instances that are written by hand."""

from collections.abc import Sequence
from decimal import Decimal

from msgspec import UNSET

from optim.models.admission.document import (
    SCHEMA,
    AdmissionDocument,
    ConstantDocument,
    JobDocument,
    SegmentDocument,
    ServerClassDocument,
    SigmoidDocument,
    StepDocument,
    TableDocument,
)

UtilityDocument = ConstantDocument | SigmoidDocument | StepDocument | TableDocument

Quantities = tuple[str, ...]
"""One decimal a resource."""


def job(
    name: str,
    *,
    arrival: int = 0,
    epochs: int = 1,
    chunks: int = 1,
    slots_a_chunk: str = "1",
    worker: Quantities = ("1",),
    ps: Quantities = ("1",),
    rates: tuple[str, str] = ("1", "1"),
    later: Sequence[tuple[int, Quantities, Quantities]] = (),
    utility: UtilityDocument | None = None,
    speedup: Quantities = (),
) -> JobDocument:
    """Return a job of ``ceil(epochs chunks slots_a_chunk)`` worker-slots, where a slot lasts a second.

    Parameters
    ----------
    name
        Its id.
    arrival, epochs, chunks
        As in the file format.
    slots_a_chunk
        Slots that a worker takes for a chunk.
    worker, ps
        Demands.
    rates
        b and B; a PS serves B / b workers.
    later
        Further demand segments: start, worker, PS.
    utility
        What it is worth; None for a constant 1.
    speedup
        By workers; none for linear speed.
    """
    segments = [
        SegmentDocument(start=start, worker=_decimals(of_worker), ps=_decimals(of_ps))
        for start, of_worker, of_ps in ((0, worker, ps), *later)
    ]
    return JobDocument(
        id=name,
        arrival=arrival,
        epochs=epochs,
        chunks=chunks,
        minibatches=1,
        minibatch_s=Decimal(slots_a_chunk),
        gradient_mb=Decimal(0),
        worker_mbps=Decimal(rates[0]),
        ps_mbps=Decimal(rates[1]),
        utility=ConstantDocument(1.0) if utility is None else utility,
        worker=UNSET if later else segments[0].worker,
        ps=UNSET if later else segments[0].ps,
        segments=segments if later else UNSET,
        speedup=_decimals(speedup) or UNSET,
    )


def servers(*capacity: Quantities, count: int = 1) -> ServerClassDocument:
    """Return equal servers: one capacity for all slots, or one a slot."""
    rows = [_decimals(row) for row in capacity]
    whole: list[Decimal | list[Decimal]] = [*rows[0]] if len(rows) == 1 else [*rows]
    return ServerClassDocument(type="server", capacity=whole, count=count)


def document(
    name: str,
    jobs: list[JobDocument],
    worker_servers: list[ServerClassDocument],
    ps_servers: list[ServerClassDocument] | None,
    *,
    horizon: int,
    resources: tuple[str, ...] = ("units",),
    share: str | None = None,
    chunk_integral: bool = False,
) -> AdmissionDocument:
    """Return the document of an instance; without `ps_servers` the others are shared."""
    is_shared = ps_servers is None
    return AdmissionDocument(
        schema=SCHEMA,
        name=name,
        horizon=horizon,
        slot_s=Decimal(1),
        resources=list(resources),
        jobs=jobs,
        worker_servers=UNSET if is_shared else worker_servers,
        ps_servers=UNSET if ps_servers is None else ps_servers,
        shared_servers=worker_servers if is_shared else UNSET,
        max_share_per_server=None if share is None else Decimal(share),
        chunk_integral=chunk_integral,
    )


def _decimals(quantities: Quantities) -> list[Decimal]:
    return [Decimal(quantity) for quantity in quantities]
