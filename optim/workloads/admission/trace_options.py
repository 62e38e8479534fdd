"""How jobs of a trace become admission jobs, with defaults for lists of GPU jobs."""

from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

from optim.core.errors import InvalidOptionError
from optim.core.ranges import check_in
from optim.models.admission.instance import MICRO
from optim.workloads.admission.utility_mix import UtilityMix, check_range
from optim.workloads.traces.job_table import ReadOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceOptions:
    """What to take from a trace, and what the trace doesn't say.

    Parameters
    ----------
    num_jobs
        Size of the sample; all jobs of the window where it holds fewer.
    num_slots, slot_minutes
        Horizon in slots, and the length of a slot.
    num_worker_servers, num_ps_servers
        Numbers of servers; None for a cluster sized by `cluster_share` and `ps_per_gpu`.
    cluster_share
        GPU-slots of the cluster over those of all of the sample's jobs. None for the trace's own ratio of GPUs to
        jobs: the most GPUs that the trace's jobs held at once, for as many jobs as the window has submissions.
    ps_per_gpu
        PSs that the default cluster can host for each GPU: a job of one GPU that runs its two workers
        needs one.
    gpus_per_server, pss_per_server
        Workers (PSs) that fit on one of the default cluster's servers.
    chunks_per_gpu
        N over the GPUs that the job held: how much faster it may run than it did.
    workers_per_ps
        B / b: workers that one PS serves.
    worker_gpu, worker_vcpu, worker_memory_gb, ps_vcpu, ps_memory_gb
        Demands of one worker and one PS, where the trace doesn't state them.
    target_delay
        Range of theta3 over the job's shortest duration, uniform.
    utilities
        Classes of utilities and their shares.
    max_duration_s
        Longer run times are cut to this; None for no cut. Run times of the Philly list include failed
        attempts, and 48 hours and 60 days are common cuts.
    window_start_s
        First submission time of the window; None for the window with the most submissions.
    virtual_cluster
        Take only this virtual cluster's jobs; None for all.
    min_schedulable
        Least share of the sample that must be able to finish alone in the cluster.
    gpu_type
        Column of Gavel's throughput table.
    throughputs, nodes
        Files beside the trace: Gavel's throughput table, Alibaba's node list. None to look for the
        published name in the trace's folder.

    Raises
    ------
    InvalidOptionError
        If an option is out of its range.
    """

    num_jobs: int = 100
    num_slots: int = 96
    slot_minutes: float = 15.0
    num_worker_servers: int | None = None
    num_ps_servers: int | None = None
    cluster_share: float | None = None
    ps_per_gpu: float = 0.5
    gpus_per_server: int = 2
    pss_per_server: int = 2
    chunks_per_gpu: float = 2.0
    workers_per_ps: int = 4
    worker_gpu: float = 1.0
    worker_vcpu: float = 4.0
    worker_memory_gb: float = 16.0
    ps_vcpu: float = 2.0
    ps_memory_gb: float = 8.0
    target_delay: tuple[float, float] = (1.0, 4.0)
    utilities: UtilityMix = field(default_factory=UtilityMix)
    max_duration_s: float | None = None
    window_start_s: float | None = None
    virtual_cluster: str | None = None
    min_schedulable: float = 0.5
    gpu_type: str = "v100"
    throughputs: Path | None = None
    nodes: Path | None = None

    def __post_init__(self) -> None:
        check_in("[1, inf)", self, "num_jobs", "num_slots", "num_worker_servers", "num_ps_servers")
        check_in("[1, inf)", self, "gpus_per_server", "pss_per_server", "workers_per_ps")
        check_in("(0, inf)", self, "slot_minutes", "cluster_share", "ps_per_gpu", "chunks_per_gpu")
        check_in("(0, inf)", self, "worker_gpu", "max_duration_s")
        check_in("[0, inf)", self, "worker_vcpu", "worker_memory_gb", "ps_vcpu", "ps_memory_gb")
        check_in("[0, 1]", self, "min_schedulable")
        if self._exact_slot.denominator != 1:
            raise InvalidOptionError(f"slot_minutes must be whole micro-seconds, got {self.slot_minutes}")
        check_range("target_delay", self.target_delay, least=0.0)

    @property
    def reading(self) -> ReadOptions:
        """What the readers of traces need to know of it."""
        return ReadOptions(
            virtual_cluster=self.virtual_cluster,
            gpu_type=self.gpu_type,
            throughputs=self.throughputs,
            nodes=self.nodes,
        )

    @property
    def slot_s(self) -> float:
        """Length of a slot in seconds."""
        return self.slot_micro_s / MICRO

    @property
    def slot_micro_s(self) -> int:
        """Length of a slot in 1e-6 seconds, a whole number."""
        return int(self._exact_slot)

    @property
    def _exact_slot(self) -> Fraction:
        """Length of a slot in 1e-6 seconds, read as the decimal that the option was written as."""
        return Fraction(str(self.slot_minutes)) * 60 * MICRO
