"""What the generator of admission instances can be asked for, with the paper's ranges as defaults."""

from dataclasses import dataclass, field
from fractions import Fraction

from optim.core.errors import InvalidOptionError
from optim.core.ranges import check_in
from optim.models.admission.instance import MICRO
from optim.workloads.admission.server_types import CPU_TYPES, GPU_TYPES, check_types
from optim.workloads.admission.utility_mix import UtilityMix, check_range

MOST_CHUNKS = 100
LEAST_CHUNKS = 5
"""The paper's range of N, for clusters of ten servers or more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorOptions:
    """Sizes and distributions of a generated admission instance.

    Ranges are (low, high), both included, and uniform unless said otherwise.

    Parameters
    ----------
    num_jobs, num_slots, num_worker_servers, num_ps_servers
        Sizes.
    slot_s
        Length of a slot in seconds.
    chunks
        Range of N, the most workers of a job. None for the paper's 5 to 100, or on fewer than ten worker
        servers H for H to H^2 (at most the paper's limits), so that small clusters get small jobs.
    epochs, minibatches, gradient_mb, worker_mbps, ps_mbps
        Ranges of E, M, e, b, B. Where communication would take more than the share
        `communication` (a range) of the drawn time of a mini-batch, b is raised, then e lowered.
    worker_gpu, worker_vcpu, worker_memory_gb, ps_vcpu, ps_memory_gb, storage_gb
        Ranges of the demands, whole numbers.
    target_delay
        Range of theta3 in slots, whole numbers.
    duration_median, duration_sigma
        Shortest durations (all N workers always running, in slots) are log-normal, cut off below
        `shortest` and above what can finish within theta3, a third of the horizon, and the slots left.
    shortest
        Least shortest duration, in slots.
    utilities
        Classes of utilities and their shares.
    arrival_span
        Share of the horizon, from its start, in which jobs arrive.
    arrival_swing, arrival_burstiness
        Amplitude of the daily wave and variance of the slots' random rate (`draw_arrivals`).
    worker_types, ps_types
        Server types, each server's drawn uniformly.
    shared_servers
        Whether workers and PSs may use all servers.
    night_only_share
        Share of the servers of each type that serve somebody else by day.
    segments
        Demand segments a job; later ones redraw vCPUs and memory. Jobs of less work have fewer.
    chunk_integral, max_share_per_server, min_utility
        As in the instance.
    min_schedulable
        Jobs that can't finish even alone are redrawn until at least this share can.
    draw_work
        Of jobs from profiles that state their work: whether each makes as much of it as its drawn duration is of
        `duration_median`, and not all of it. None: as the profiles say (`is_work_drawn`); all of it, where they don't.

    Raises
    ------
    InvalidOptionError
        If an option is out of its range.

    Notes
    -----
    Ranges and classes are those of the paper's evaluation. Drawing E, M and tau from them independently
    makes most jobs last longer than the horizon, so the shortest duration is drawn and tau follows from it.
    The tail is that of the published run times: a log-normal's mean over its median is exp(sigma^2 / 2), and
    Philly's 18,006 s over 874 s gives sigma = 2.46 (Helios' 6,652 s over 206 s: 2.64; Acme-Seren's 1,414 s
    over 122 s: 2.21). What is cut off is the work that nobody could finish in time. The median is set so
    that the durations that remain resemble those of the reference instances.

    References
    ----------
    Bao, Peng, Wu, Li, INFOCOM 2018, DOI 10.1109/INFOCOM.2018.8486422 (ranges, classes, server types).
    Jeon et al., "Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads", USENIX ATC
    2019; Hu et al., "Characterization and Prediction of Deep Learning Workloads in Large-Scale GPU
    Datacenters", SC 2021, arXiv 2109.01313; Hu et al., "Characterization of Large Language Model
    Development in the Datacenter", NSDI 2024 (mean and median run times; daily wave of submissions).
    """

    num_jobs: int = 200
    num_slots: int = 100
    num_worker_servers: int = 50
    num_ps_servers: int = 50
    slot_s: float = 3600.0
    chunks: tuple[int, int] | None = None
    epochs: tuple[int, int] = (50, 200)
    minibatches: tuple[int, int] = (10, 100)
    gradient_mb: tuple[float, float] = (30.0, 575.0)
    worker_mbps: tuple[int, int] = (100, 5_000)
    ps_mbps: tuple[int, int] = (5_000, 20_000)
    communication: tuple[float, float] = (0.2, 0.6)
    worker_gpu: tuple[int, int] = (0, 4)
    worker_vcpu: tuple[int, int] = (1, 10)
    worker_memory_gb: tuple[int, int] = (2, 32)
    ps_vcpu: tuple[int, int] = (1, 10)
    ps_memory_gb: tuple[int, int] = (2, 32)
    storage_gb: tuple[int, int] = (5, 10)
    target_delay: tuple[int, int] = (1, 15)
    duration_median: float = 100.0
    duration_sigma: float = 2.46
    shortest: float = 0.9
    utilities: UtilityMix = field(default_factory=UtilityMix)
    arrival_span: float = 0.9
    arrival_swing: float = 0.55
    arrival_burstiness: float = 0.35
    worker_types: tuple[str, ...] = GPU_TYPES
    ps_types: tuple[str, ...] = CPU_TYPES
    shared_servers: bool = False
    night_only_share: float = 0.0
    segments: int = 1
    chunk_integral: bool = False
    max_share_per_server: float | None = None
    min_utility: float = 0.01
    min_schedulable: float = 0.6
    draw_work: bool | None = None

    def __post_init__(self) -> None:
        check_in("[0, inf)", self, "num_jobs", "arrival_burstiness")
        check_in("[1, inf)", self, "num_slots", "num_worker_servers", "num_ps_servers", "segments")
        check_in("(0, 1e9]", self, "slot_s")
        check_in("(0, inf)", self, "duration_median", "duration_sigma", "shortest")
        check_in("[0, 1]", self, "arrival_swing", "night_only_share", "min_utility", "min_schedulable")
        check_in("(0, 1]", self, "arrival_span", "max_share_per_server")
        for name in ("epochs", "minibatches", "gradient_mb", "worker_mbps", "ps_mbps", "target_delay"):
            check_range(name, getattr(self, name), least=0.0, is_open=True)
        demands = ("worker_gpu", "worker_vcpu", "worker_memory_gb", "ps_vcpu", "ps_memory_gb", "storage_gb")
        for name in (*demands, "communication"):
            check_range(name, getattr(self, name), least=0.0)
        if self.chunks is not None:
            check_range("chunks", self.chunks, least=1.0)
        if not self.communication[1] < 1:
            raise InvalidOptionError(f"communication must stay below 1, got {self.communication}")
        if (Fraction(str(self.slot_s)) * MICRO).denominator != 1:
            raise InvalidOptionError(f"slot_s must have at most 6 digits after the point, got {self.slot_s}")
        if self.worker_mbps[1] > self.ps_mbps[0]:
            raise InvalidOptionError(
                f"worker_mbps must not exceed ps_mbps anywhere, got {self.worker_mbps} and {self.ps_mbps}: "
                "a PS must serve at least one worker"
            )
        check_types("worker_types", self.worker_types)
        check_types("ps_types", self.ps_types)

    @property
    def chunk_range(self) -> tuple[int, int]:
        """Range of N for this many worker servers."""
        if self.chunks is not None:
            return self.chunks
        servers = self.num_worker_servers
        return min(LEAST_CHUNKS, servers), min(MOST_CHUNKS, servers * servers)
