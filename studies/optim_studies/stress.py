"""Small admission instances, each with a property that has broken an algorithm, a proof or a format.

They are constructed by hand, so that the optimum is obvious: `STRESS_INSTANCES` are the instances to test a
solver on, `KNOWN_OPTIMA` their optimal values.
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from types import MappingProxyType
from typing import ParamSpec

from msgspec import UNSET

from optim.models.admission.codec import (
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
from optim.models.admission.instance import AdmissionInstance, instance_from_document

UtilityDocument = ConstantDocument | SigmoidDocument | StepDocument | TableDocument

Quantities = tuple[str, ...]
"""One decimal per resource."""


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
    """Return a job of ``ceil(epochs chunks slots_a_chunk)`` worker-slots, with slots of one second.

    Parameters
    ----------
    name
        Id of the job.
    arrival, epochs, chunks
        As in the file format.
    slots_a_chunk
        Slots that a worker takes per chunk.
    worker, ps
        Demands of a worker and of a PS.
    rates
        b and B; a PS serves B / b workers.
    later
        Further demand segments: start, worker, PS.
    utility
        Utility of the job; None for a constant 1.
    speedup
        Speed-up by number of workers; empty for linear speed.
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
    """Return equal servers: one capacity for all slots, or one per slot."""
    rows = [_decimals(row) for row in capacity]
    capacities: list[Decimal | list[Decimal]] = [*rows[0]] if len(rows) == 1 else [*rows]
    return ServerClassDocument(type="server", capacity=capacities, count=count)


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
    """Return the document of an instance; without `ps_servers` workers and PSs share the servers."""
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


NEGLIGIBLE = ("0.000001",)
"""Demand of a PS in instances where PSs are irrelevant."""

Arguments = ParamSpec("Arguments")

_INSTANCES: dict[str, Callable[..., AdmissionInstance]] = {}

_OPTIMA: dict[str, float] = {}

STRESS_INSTANCES: Mapping[str, Callable[..., AdmissionInstance]] = MappingProxyType(_INSTANCES)
"""Stress instances for tests of solvers, by name."""

KNOWN_OPTIMA: Mapping[str, float] = MappingProxyType(_OPTIMA)
"""The optimum of each stress instance with its default parameters."""


def _stress(
    *, optimum: float
) -> Callable[[Callable[Arguments, AdmissionDocument]], Callable[Arguments, AdmissionInstance]]:
    """Register a function's document as a stress instance under the function's name."""

    def register(build: Callable[Arguments, AdmissionDocument]) -> Callable[Arguments, AdmissionInstance]:
        @functools.wraps(build)
        def instance(*args: Arguments.args, **kwargs: Arguments.kwargs) -> AdmissionInstance:
            return instance_from_document(build(*args, **kwargs))

        name = build.__name__.replace("_", "-")
        _INSTANCES[name], _OPTIMA[name] = instance, optimum
        return instance

    return register


@_stress(optimum=400.0)
def density_ladder(
    *, steps: int = 3, factor: float = 10.0, per_server: int = 4, num_servers: int = 1, horizon: int = 1
) -> AdmissionDocument:
    """Return waves of equal jobs, each wave filling the cluster and worth `factor` times the previous one.

    An online algorithm must neither sell everything to the first wave nor wait for the last: for many fine
    steps no deterministic algorithm is better than (1 + ln(factor^(steps - 1)))-competitive. A job takes
    1 / per_server of one server in one slot. The optimum is the last wave:
    ``per_server num_servers horizon factor^(steps - 1)``.

    References
    ----------
    Zhou, Chakrabarty, Lukose, "Budget constrained bidding in keyword auctions and online knapsack problems",
    WINE 2008.
    """
    jobs = [
        job(f"wave-{step}-{copy}", ps=NEGLIGIBLE, utility=ConstantDocument(factor**step))
        for step in range(steps)
        for copy in range(per_server * num_servers * horizon)
    ]
    cluster = [servers((str(per_server),), count=num_servers)]
    return document(f"ladder-{steps}-{factor:g}-{per_server}", jobs, cluster, cluster, horizon=horizon)


@_stress(optimum=1000.0)
def coarse_pair(*, late_value: float = 1000.0) -> AdmissionDocument:
    """Return two jobs of which only one fits, so that admitting the first excludes the second.

    Each worker takes 0.6 of the only server. Exponential prices accept the first job (value 1). From a `late_value` of
    10 on, the optimum is then more than 2 ln(U / L) times the online value: the guarantee is only for small jobs.
    Optimum: `late_value`.
    """
    jobs = [
        job(name, worker=("0.6",), ps=NEGLIGIBLE, utility=ConstantDocument(value))
        for name, value in (("early", 1.0), ("late", late_value))
    ]
    cluster = [servers(("1",))]
    return document("coarse-pair", jobs, cluster, cluster, horizon=1)


@_stress(optimum=101.0)
def blockade(*, burst: int = 2) -> AdmissionDocument:
    """Return long jobs of low value, just before time-critical jobs that need the same slots.

    Optimum: the burst in slot 1, worth 50 per job, and one long job in slots 0, 2, 3 and 4, worth 1.
    """
    urgent = StepDocument(value=50.0, max_delay=0)
    jobs = [job(f"long-{i}", epochs=4, chunks=burst) for i in range(2)]
    jobs += [job(f"urgent-{i}", arrival=1, utility=urgent) for i in range(burst)]
    cluster = [servers((str(burst),))]
    return document("blockade", jobs, cluster, cluster, horizon=5)


@_stress(optimum=9.0)
def stranded_cpus() -> AdmissionDocument:
    """Return a cluster short of GPUs with idle vCPUs: using all GPUs for few vCPUs strands the rest.

    Optimum 9: three jobs of one GPU and value 3 each, rather than the job of three GPUs and value 5.
    """
    jobs = [
        job("all-gpus", worker=("3", "1"), ps=("0", "1"), utility=ConstantDocument(5.0)),
        *(job(f"one-gpu-{i}", worker=("1", "4"), ps=("0", "1"), utility=ConstantDocument(3.0)) for i in range(3)),
        job("no-gpu", worker=("0", "30"), ps=("0", "1"), utility=ConstantDocument(0.5)),
    ]
    worker_servers, ps_servers = [servers(("3", "32"))], [servers(("0", "8"))]
    return document("stranded-cpus", jobs, worker_servers, ps_servers, horizon=1, resources=("gpu", "vcpu"))


@_stress(optimum=3.0)
def ps_bound() -> AdmissionDocument:
    """Return jobs whose every worker needs a separate PS (b = B), where PSs are scarce.

    Six workers fit in a slot, two are served. Optimum 3: three jobs of two worker-slots.
    """
    jobs = [job(f"job-{i}", chunks=2) for i in range(4)]
    worker_servers, ps_servers = [servers(("3",), count=2)], [servers(("1",), count=2)]
    return document("ps-bound", jobs, worker_servers, ps_servers, horizon=3)


@_stress(optimum=6.5)
def unit_work() -> AdmissionDocument:
    """Return jobs of a single worker-slot (W = 1) with five chunks.

    Optimum 6.5: the first two on arrival, the fourth in the last slot.
    """
    jobs = [
        job(
            f"job-{i}",
            arrival=i % 2,
            chunks=5,
            slots_a_chunk="0.2",
            utility=TableDocument([3.0 - i / 2, 1.0]),
        )
        for i in range(4)
    ]
    cluster = [servers(("1",))]
    return document("unit-work", jobs, cluster, cluster, horizon=3)


@_stress(optimum=5.0 + 20.0 / (1.0 + math.exp(-0.5)))
def single_worker() -> AdmissionDocument:
    """Return jobs of one chunk (N = 1), whose duration doesn't depend on the free capacity.

    All three could finish in slot 2, which has capacity for two. Optimum: the last to arrive waits until slot 3.
    """
    utility = SigmoidDocument(theta1=10.0, theta2=0.5, theta3=2.0)
    jobs = [job(f"job-{i}", arrival=i, epochs=3 - i, utility=utility) for i in range(3)]
    cluster = [servers(("2",))]
    return document("single-worker", jobs, cluster, cluster, horizon=4)


@_stress(optimum=6.0)
def ties() -> AdmissionDocument:
    """Return equal jobs on equal servers at equal prices, which need a rule to break ties.

    Three of the five jobs fit. Optimum 6.
    """
    jobs = [job(f"job-{i}", chunks=2, utility=ConstantDocument(2.0)) for i in range(5)]
    cluster = [servers(("1",), count=2), servers(("1",))]
    return document("ties", jobs, cluster, cluster, horizon=2)


@_stress(optimum=1.0)
def decimal_capacity() -> AdmissionDocument:
    """Return a job whose three demands of 0.1 fill 0.3, and whose 3 times 0.1 Mbps need three PSs of 0.1.

    In binary floating point 3 * 0.1 > 0.3 and 3 * 0.1 / 0.1 > 3. Optimum 1.
    """
    exact = job(
        "exact",
        chunks=3,
        worker=("0.1",),
        ps=("0.1",),
        rates=("0.1", "0.1"),
        utility=StepDocument(value=1.0, max_delay=0),
    )
    cluster = [servers(("0.3",))]
    return document("decimal-capacity", [exact], cluster, cluster, horizon=2)


@_stress(optimum=6.0)
def patient() -> AdmissionDocument:
    """Return jobs with constant utility, for which all completion slots have the same value.

    Optimum 6: one after the other, they fill the horizon.
    """
    jobs = [job(f"job-{i}", epochs=2, utility=ConstantDocument(2.0)) for i in range(3)]
    cluster = [servers(("1",))]
    return document("patient", jobs, cluster, cluster, horizon=6)


@_stress(optimum=11.5)
def deadlines() -> AdmissionDocument:
    """Return jobs whose utility drops to little or 0 after a maximum delay (steps).

    Optimum 11.5: `tight` in slot 0, `loose` in slot 1, `late` in slot 2 for its late value.
    """
    jobs = [
        job("loose", utility=StepDocument(value=5.0, max_delay=1)),
        job("tight", utility=StepDocument(value=6.0, max_delay=0)),
        job("late", utility=StepDocument(value=1.0, max_delay=1, late_value=0.5)),
    ]
    cluster = [servers(("1",))]
    return document("deadlines", jobs, cluster, cluster, horizon=3)


@_stress(optimum=4.0)
def last_slot() -> AdmissionDocument:
    """Return jobs that arrive in the last slot: one just finishes in it, the other can't finish at all.

    Optimum 4.
    """
    jobs = [
        job("just", arrival=2, chunks=2, utility=ConstantDocument(4.0)),
        job("too-long", arrival=2, epochs=2, utility=ConstantDocument(9.0)),
    ]
    cluster = [servers(("2",))]
    return document("last-slot", jobs, cluster, cluster, horizon=3)


@_stress(optimum=0.0)
def nothing_fits() -> AdmissionDocument:
    """Return jobs of which the worker, the PS, or the work doesn't fit. Optimum 0."""
    jobs = [job("large-worker", worker=("5",)), job("large-ps", ps=("5",)), job("long", epochs=100)]
    cluster = [servers(("1",))]
    return document("nothing-fits", jobs, cluster, cluster, horizon=3)


@_stress(optimum=0.0)
def no_jobs() -> AdmissionDocument:
    """Return a cluster without jobs. Optimum 0."""
    cluster = [servers(("1",))]
    return document("no-jobs", [], cluster, cluster, horizon=2)


@_stress(optimum=7.0)
def one_job() -> AdmissionDocument:
    """Return one job in an empty cluster: it should finish as early as it can, in slot 2. Optimum 7."""
    only = job("only", arrival=1, epochs=2, chunks=3, rates=("1", "2"), utility=TableDocument([9.0, 7.0, 5.0]))
    return document("one-job", [only], [servers(("3",))], [servers(("1",), count=2)], horizon=4)


@_stress(optimum=81.0)
def saturated() -> AdmissionDocument:
    """Return many more jobs than fit, with different values. Optimum 81: the six best jobs fill all slots."""
    jobs = [job(f"job-{i:02d}", arrival=i % 3, chunks=2, utility=ConstantDocument(16.0 - i)) for i in range(16)]
    cluster = [servers(("2",), count=2)]
    return document("saturated", jobs, cluster, cluster, horizon=3)


@_stress(optimum=6.0)
def degenerate() -> AdmissionDocument:
    """Return jobs without demand, work or utility, and other jobs that make two resources tight at once.

    Two of the three equal jobs fit, with utility 2 each; the free and the idle job have utility 1 each. Optimum 6.
    """
    jobs = [
        *(job(f"equal-{i}", worker=("2", "4"), ps=("1", "2"), utility=ConstantDocument(2.0)) for i in range(3)),
        job("free", worker=("0", "0"), ps=("0", "0")),
        job("idle", slots_a_chunk="0", worker=("0", "0"), ps=("0", "0")),
        job("worthless", worker=("1", "1"), ps=("0", "0"), utility=ConstantDocument(0.0)),
    ]
    cluster = [servers(("2", "4"))]
    return document("degenerate", jobs, cluster, cluster, horizon=2, resources=("r", "twice-r"))


@_stress(optimum=1.0)
def shared_pair() -> AdmissionDocument:
    """Return two shared servers and a job whose worker must leave the larger server to its PS.

    The PS needs all of the first server, so a worker that is put there first strands the job. Optimum 1.
    """
    pair = job("pair", worker=("1",), ps=("2",))
    return document("shared-pair", [pair], [servers(("2",)), servers(("1",))], None, horizon=1)


@_stress(optimum=1.0)
def growing_demand() -> AdmissionDocument:
    """Return a job whose demands rise with the work done, so that it finishes earlier if it starts more slowly.

    Until three worker-slots are done, three workers fit, afterwards one. With three workers at first, the job ends in
    slot 3. With two, then three (their slot begins after two worker-slots), then one, it ends in slot 2, the deadline.
    Optimum 1.
    """
    growing = job(
        "growing",
        epochs=2,
        chunks=3,
        rates=("1", "3"),
        later=((3, ("3",), ("1",)),),
        utility=StepDocument(value=1.0, max_delay=2),
    )
    return document("growing-demand", [growing], [servers(("3",))], [servers(("1",))], horizon=4)


@_stress(optimum=5.0)
def night_only() -> AdmissionDocument:
    """Return a server that is available only in slots 0 and 3: longer jobs must pause in between. Optimum 5."""
    jobs = [
        job("over-night", epochs=2, utility=ConstantDocument(3.0)),
        job("first-night", utility=StepDocument(value=2.0, max_delay=1)),
        job("by-day", arrival=1, utility=StepDocument(value=9.0, max_delay=1)),
    ]
    lent = servers(("2",), ("0",), ("0",), ("2",))
    return document("night-only", jobs, [lent], [servers(("2",))], horizon=4)


@_stress(optimum=3.0)
def whole_chunks() -> AdmissionDocument:
    """Return a job of four indivisible chunks of 0.7 slots: it takes four slots, divisible work three. Optimum 3."""
    chunky = job("chunky", epochs=4, slots_a_chunk="0.7", utility=TableDocument([9.0, 7.0, 5.0, 3.0]))
    cluster = [servers(("1",))]
    return document("whole-chunks", [chunky], cluster, cluster, horizon=4, chunk_integral=True)


@_stress(optimum=9.0)
def diminishing_returns() -> AdmissionDocument:
    """Return a job with a speedup of only 1.75 by three workers, and a job that needs the third worker. Optimum 9."""
    slow = job("slow", chunks=3, rates=("1", "3"), speedup=("1", "1.5", "1.75"), utility=TableDocument([9.0, 7.0]))
    steady = job("steady", epochs=2, utility=StepDocument(value=2.0, max_delay=1))
    return document("diminishing-returns", [slow, steady], [servers(("3",))], [servers(("2",))], horizon=3)


@_stress(optimum=2.0)
def capped_share() -> AdmissionDocument:
    """Return a job that may use half of a server: its four workers need two of them. Optimum 2."""
    spread = job("spread", chunks=4, rates=("1", "4"), utility=StepDocument(value=2.0, max_delay=0))
    cluster = [servers(("4",), count=2)]
    return document("capped-share", [spread], cluster, cluster, horizon=1, share="0.5")


def worker_faster_than_ps() -> AdmissionDocument:
    """Return a document that must be rejected: b is just above B, so that rows (6) and (7) forbid any worker."""
    cluster = [servers(("1",))]
    return document("refused", [job("fast", rates=("1.000001", "1"))], cluster, cluster, horizon=1)
