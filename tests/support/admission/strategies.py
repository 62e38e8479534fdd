"""Hypothesis strategies for admission instances, and the small builders that make them readable.

Instances come from `st.builds(make_instance, ...)`, so that a failing example is printed as the call
that makes it: copy it into a test.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cache

from hypothesis import strategies as st
from msgspec import UNSET

from optim.models.admission.codec import (
    AdmissionDocument,
    ConstantDocument,
    JobDocument,
    SegmentDocument,
    ServerClassDocument,
    SigmoidDocument,
    StepDocument,
    TableDocument,
)
from optim.models.admission.instance import AdmissionInstance, instance_from_document

Utility = ConstantDocument | SigmoidDocument | StepDocument | TableDocument
Numbers = Sequence[float | str]


@dataclass(frozen=True, kw_only=True)
class JobSketch:
    """A job with a slot of one second: W = ceil(epochs * chunks * chunk_slots) worker-slots.

    `workers_per_ps` is B / b. `segments` are (start, worker, ps) after the first; `copies` equal jobs
    arrive one after the other.
    """

    arrival: int = 0
    epochs: int = 1
    chunks: int = 1
    chunk_slots: str = "1"
    worker: tuple[str, ...] = ("1",)
    ps: tuple[str, ...] = ("1",)
    workers_per_ps: str = "1"
    utility: Utility = field(default_factory=lambda: ConstantDocument(1.0))
    min_utility: float | None = None
    segments: tuple[tuple[int, tuple[str, ...], tuple[str, ...]], ...] = ()
    copies: int = 1
    speedup: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ServerSketch:
    """`count` equal servers; `capacity` is one list over the resources, or one such list per slot."""

    capacity: tuple[str | tuple[str, ...], ...]
    count: int = 1


def make_instance(
    *,
    jobs: Sequence[JobSketch],
    worker_servers: Sequence[ServerSketch],
    ps_servers: Sequence[ServerSketch] | None,
    horizon: int,
    share: str | None = None,
    chunk_integral: bool = False,
    min_utility: str = "0.01",
    name: str = "sketch",
) -> AdmissionInstance:
    """Build an instance; without `ps_servers`, workers and PSs share `worker_servers`."""
    sides = [[_server(f"{c}", sketch) for c, sketch in enumerate(side)] for side in (worker_servers, ps_servers or ())]
    is_shared = ps_servers is None
    num_resources = len(jobs[0].worker) if jobs else len(_first_row(worker_servers[0]))
    singles = [sketch for sketch in jobs for _ in range(sketch.copies)]
    return instance_from_document(
        AdmissionDocument(
            schema="optim/admission/1",
            name=name,
            horizon=horizon,
            slot_s=Decimal(1),
            resources=[f"r{r}" for r in range(num_resources)],
            jobs=[_job(f"j{i}", sketch) for i, sketch in enumerate(singles)],
            worker_servers=UNSET if is_shared else sides[0],
            ps_servers=UNSET if is_shared else sides[1],
            shared_servers=sides[0] if is_shared else UNSET,
            min_utility=Decimal(min_utility),
            max_share_per_server=None if share is None else Decimal(share),
            chunk_integral=chunk_integral,
        )
    )


def _first_row(sketch: ServerSketch) -> Sequence[str]:
    first = sketch.capacity[0]
    return first if isinstance(first, tuple) else sketch.capacity  # type: ignore[return-value]


def _server(kind: str, sketch: ServerSketch) -> ServerClassDocument:
    capacity = [[*map(Decimal, row)] if isinstance(row, tuple) else Decimal(row) for row in sketch.capacity]
    return ServerClassDocument(type=kind, capacity=capacity, count=sketch.count)


def _job(name: str, sketch: JobSketch) -> JobDocument:
    first = (0, sketch.worker, sketch.ps)
    segments = [
        SegmentDocument(start=start, worker=[*map(Decimal, worker)], ps=[*map(Decimal, ps)])
        for start, worker, ps in (first, *sketch.segments)
    ]
    return JobDocument(
        id=name,
        arrival=sketch.arrival,
        epochs=sketch.epochs,
        chunks=sketch.chunks,
        minibatches=1,
        minibatch_s=Decimal(sketch.chunk_slots),
        gradient_mb=Decimal(0),
        worker_mbps=Decimal(1),
        ps_mbps=Decimal(sketch.workers_per_ps),
        utility=sketch.utility,
        worker=UNSET if sketch.segments else segments[0].worker,
        ps=UNSET if sketch.segments else segments[0].ps,
        segments=segments if sketch.segments else UNSET,
        min_utility=UNSET if sketch.min_utility is None else sketch.min_utility,
        speedup=[*map(Decimal, sketch.speedup)] or UNSET,
    )


@st.composite
def tables(draw: st.DrawFn) -> TableDocument:
    """Non-increasing tables of utilities, which may end before the horizon."""
    values = draw(st.lists(st.sampled_from([0.0, 1.0, 2.0, 5.0, 100.0]), min_size=1, max_size=4))
    return TableDocument(sorted(values, reverse=True))


@cache
def utilities() -> st.SearchStrategy[Utility]:
    """Constants, steps, tables, and sigmoids from flat to a cliff that underflows within the horizon."""
    return st.one_of(
        st.builds(ConstantDocument, st.sampled_from([1.0, 2.0, 10.0, 100.0, 1e6])),
        st.builds(
            StepDocument,
            value=st.sampled_from([1.0, 10.0]),
            max_delay=st.integers(0, 3),
            late_value=st.sampled_from([0.0, 1e-3, 0.5, 1.0]),
        ),
        tables(),
        st.builds(
            SigmoidDocument,
            theta1=st.sampled_from([1.0, 10.0, 100.0]),
            theta2=st.sampled_from([0.0, 0.01, 1.0, 6.0, 700.0]),
            theta3=st.sampled_from([1.0, 2.0, 15.0]),
        ),
    )


@cache
def _vectors(values: tuple[str, ...], num_resources: int) -> st.SearchStrategy[tuple[str, ...]]:
    return st.tuples(*[st.sampled_from(values)] * num_resources)


@st.composite
def segmented(draw: st.DrawFn, sketch: JobSketch, num_resources: int) -> JobSketch:
    """Give a job further demand segments, starting within its work."""
    starts = draw(st.lists(st.integers(1, 3), min_size=1, max_size=2, unique=True))
    demands = _vectors(("0", "0.3", "1", "2"), num_resources)
    return replace(sketch, segments=tuple((start, draw(demands), draw(demands)) for start in sorted(starts)))


@cache
def _demands(num_resources: int) -> st.SearchStrategy[tuple[str, ...]]:
    small = _vectors(("1", "0.3", "0.5"), num_resources)
    return st.one_of(small, small, _vectors(("1", "0.1", "0", "2", "3"), num_resources))


@cache
def _room(num_resources: int) -> st.SearchStrategy[tuple[str, ...]]:
    roomy = _vectors(("2", "3", "1"), num_resources)
    return st.one_of(roomy, roomy, _vectors(("1", "0.3", "2", "0"), num_resources))


CURVES = (("1", "1.5", "1.8"), ("1", "1.95"), ("1", "1", "3.05"), ("1",))
"""Speed-ups that diminish, that end, that wait for a third worker, and none at all."""

# Created once: creating them again for each job costs more than drawing from them.
CHUNK_SLOTS = st.sampled_from(["1", "0.5", "0.5", "0.3", "0.7", "0.3", "1.2", "0"])
WORKERS_PER_PS = st.sampled_from(["1", "2", "3", "1.5", "10"])
MIN_UTILITIES = st.sampled_from([None, None, 0.0, 0.5])
SPEEDUPS = st.sampled_from([(), (), (), *CURVES])
ONE_IN_THREE = st.sampled_from([False, False, True])
SHARES = st.sampled_from([None, None, None, "1", "0.5", "0.34"])
LEAST_UTILITIES = st.sampled_from(["0.01", "0.01", "0.01", "0", "1"])


@st.composite
def coarse_jobs(draw: st.DrawFn, *, horizon: int, num_resources: int, has_segments: bool = False) -> JobSketch:
    """Jobs of which few fit on a server, some of them on none."""
    demands = _demands(num_resources)
    sketch = JobSketch(
        arrival=draw(st.integers(0, horizon - 1)),
        epochs=draw(st.integers(1, 2)),
        chunks=draw(st.integers(1, 3)),
        chunk_slots=draw(CHUNK_SLOTS),
        worker=draw(demands),
        ps=draw(demands),
        workers_per_ps=draw(WORKERS_PER_PS),
        utility=draw(utilities()),
        min_utility=draw(MIN_UTILITIES),
        speedup=draw(SPEEDUPS),
    )
    return draw(segmented(sketch, num_resources)) if has_segments and draw(st.booleans()) else sketch


@st.composite
def coarse_servers(draw: st.DrawFn, *, horizon: int, num_resources: int) -> ServerSketch:
    """Servers that hold few workers; their capacity may change by slot, and lack a resource."""
    rows = _room(num_resources)
    if draw(ONE_IN_THREE):
        return ServerSketch(capacity=tuple(draw(rows) for _ in range(horizon)), count=draw(st.integers(1, 2)))
    return ServerSketch(capacity=draw(rows), count=draw(st.integers(1, 2)))


@cache
def _coarse_sides(horizon: int, num_resources: int) -> st.SearchStrategy[list[ServerSketch]]:
    return st.lists(coarse_servers(horizon=horizon, num_resources=num_resources), min_size=1, max_size=2)


@cache
def _coarse_jobs(horizon: int, num_resources: int, has_segments: bool) -> st.SearchStrategy[JobSketch]:
    return coarse_jobs(horizon=horizon, num_resources=num_resources, has_segments=has_segments)


@st.composite
def tiny_instances(
    draw: st.DrawFn,
    *,
    is_shared: bool = False,
    has_segments: bool = False,
    is_chunk_integral: bool = False,
    max_jobs: int = 4,
    max_horizon: int = 3,
) -> AdmissionInstance:
    """Coarse instances whose schedules can be enumerated: few jobs, slots and servers."""
    horizon = draw(st.integers(1, max_horizon))
    num_resources = draw(st.integers(1, 2))
    servers = _coarse_sides(horizon, num_resources)
    job = _coarse_jobs(horizon, num_resources, has_segments)
    jobs = st.lists(job, min_size=draw(st.sampled_from([2, 1, 3])), max_size=max_jobs)
    if draw(ONE_IN_THREE):  # ties: one kind of server, one kind of job
        servers = servers.map(lambda side: side[:1])
        jobs = jobs.map(lambda several: [replace(job, copies=2) for job in several[:1]])
    return draw(
        st.builds(
            make_instance,
            jobs=jobs,
            worker_servers=servers,
            ps_servers=st.none() if is_shared else servers,
            horizon=st.just(horizon),
            share=SHARES,
            chunk_integral=st.just(is_chunk_integral),
            min_utility=LEAST_UTILITIES,
        )
    )


@cache
def _roomy_sides(num_resources: int) -> st.SearchStrategy[list[ServerSketch]]:
    capacity = _vectors(("10", "20", "7.5"), num_resources)
    server = st.builds(ServerSketch, capacity=capacity, count=st.integers(1, 2))
    return st.lists(server, min_size=1, max_size=2)


@cache
def _small_jobs(horizon: int, num_resources: int, max_copies: int) -> st.SearchStrategy[JobSketch]:
    demands = _vectors(("1", "0.5", "0.3"), num_resources)
    return st.builds(
        JobSketch,
        arrival=st.integers(0, horizon - 1),
        epochs=st.integers(1, 2),
        chunks=st.integers(1, 2),
        chunk_slots=st.sampled_from(["1", "0.5", "0.7"]),
        worker=demands,
        ps=demands,
        workers_per_ps=st.sampled_from(["1", "2", "4"]),
        utility=utilities(),
        copies=st.integers(1, max_copies),
    )


@st.composite
def small_job_instances(draw: st.DrawFn, *, is_shared: bool = False, max_copies: int = 12) -> AdmissionInstance:
    """Waves of jobs that each take a small share of any server, as the theorems ask: eps at most 1/5.

    Several waves fill the cluster, so that prices rise and jobs are rejected.
    """
    horizon = draw(st.integers(1, 3))
    num_resources = draw(st.integers(1, 2))
    servers = _roomy_sides(num_resources)
    job = _small_jobs(horizon, num_resources, max_copies)
    return draw(
        st.builds(
            make_instance,
            jobs=st.lists(job, min_size=1, max_size=4),
            worker_servers=servers,
            ps_servers=st.none() if is_shared else servers,
            horizon=st.just(horizon),
            share=st.sampled_from(["0.1", "0.2"]),
        )
    )


def density_ladder(
    *, steps: int, factor: float, per_server: int, horizon: int = 1, servers: int = 1, waves: int = 1
) -> AdmissionInstance:
    """Waves of equal jobs, each able to fill the cluster, with `factor` times the value of the wave before.

    The first waves tempt an algorithm to sell the capacity for which the last waves pay most. eps = 1 / per_server; PSs
    are plentiful.
    """
    copies = per_server * servers * horizon * waves
    jobs = [JobSketch(utility=ConstantDocument(factor**step), copies=copies, ps=("0.001",)) for step in range(steps)]
    return make_instance(
        jobs=jobs,
        worker_servers=[ServerSketch(capacity=(str(per_server),), count=servers)],
        ps_servers=[ServerSketch(capacity=(str(per_server),), count=servers)],
        horizon=horizon,
        name=f"ladder-{steps}-{factor:g}-{per_server}",
    )


def ladders() -> st.SearchStrategy[AdmissionInstance]:
    """Density ladders with eps at most 1/100 and values that span a factor of at least 100."""
    return st.builds(
        density_ladder,
        steps=st.sampled_from([2, 3]),
        factor=st.sampled_from([100.0, 1000.0]),
        per_server=st.just(100),
    )
