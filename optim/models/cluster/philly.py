"""Published statistics of Microsoft's Philly cluster, and classification of failures by log text.

Jeon et al., "Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads", USENIX ATC 2019, tables 2 to 7.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

BUCKETS = ((1, 1), (2, 4), (5, 8), (9, 2**20))
"""Smallest and largest number of GPUs of the study's job sizes."""

BUCKET_NAMES = ("1 GPU", "2-4 GPU", "5-8 GPU", ">8 GPU")

DELAYED_JOBS: Mapping[str, tuple[int, int]] = {
    "2-4 GPU": (5168, 7567),
    "5-8 GPU": (3793, 10928),
    ">8 GPU": (66, 3117),
}
"""Table 2: number of jobs delayed by fair share, and by fragmentation, by job size."""

FRAGMENTATION_SHARE_OF_WAITING = 0.8
"""Share of all waiting time that is due to fragmentation, from the text of the study."""

STATUSES = ("passed", "killed", "unsuccessful")

STATUS_SHARES: Mapping[str, tuple[float, float]] = {
    "passed": (0.693, 0.4453),
    "killed": (0.135, 0.3769),
    "unsuccessful": (0.172, 0.1778),
}
"""Table 6: shares of jobs and of GPU-time by final status; the GPU-time shares are rounded to add up to 1."""

UTILISATION: Mapping[str, tuple[float, float, float, float]] = {
    "1 GPU": (53.51, 37.02, 62.82, 52.38),
    "4 GPU": (51.13, 34.39, 50.95, 45.18),
    "8 GPU": (51.09, 60.63, 64.34, 58.99),
    "16 GPU": (44.88, 36.98, 39.02, 40.39),
    "all": (52.43, 42.98, 60.43, 52.32),
}
"""Table 3: mean GPU utilisation in per cent by job size, for passed, killed, unsuccessful and all jobs."""

SPREAD_UTILISATION: Mapping[int, tuple[float, float, float, float]] = {
    2: (43.66, 43.69, 91.77, 97.06),
    4: (40.94, 39.85, 83.28, 91.97),
    8: (28.56, 25.71, 65.68, 78.85),
}
"""Table 5: GPU utilisation of 16-GPU jobs in per cent by number of servers: mean, and 50, 90 and 95 % quantiles."""

PLACEMENT_IMAGES_S: Mapping[str, float] = {"same server": 114.8, "different servers": 98.0}
"""Table 4, rows that differ only in placement: images per second of ResNet-50 on two GPUs."""

LAST_TENTH_PERCENT: Mapping[str, float] = {"passed": 0.62, "killed": 0.56}
"""Figure 8: share of a job's GPU-time spent on the last 0.1 % of the loss, by final status."""


class FailureClass(StrEnum):
    """Origin of a failure."""

    INFRASTRUCTURE = "infrastructure"
    ENGINE = "AI engine"
    USER = "user"


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureReason:
    """A row of table 7.

    Parameters
    ----------
    name
        The reason.
    trials
        Number of failed trials.
    jobs
        Number of jobs with failed trials.
    p50_min, p90_min, p95_min
        Quantiles of the run time to failure in minutes; None if the table has too few samples.
    time_share, gpu_time_share
        The reason's share of all run time to failure, and of all GPU-time to failure.
    by_size
        Numbers of trials on 1, on 2 to 4, and on more GPUs; None if the source doesn't split them.
    kind
        Origin of the failure.
    is_transient
        Whether a retry helps.
    """

    name: str
    trials: int
    jobs: int
    p50_min: float | None
    p90_min: float | None
    p95_min: float | None
    time_share: float | None
    gpu_time_share: float | None
    kind: FailureClass
    is_transient: bool
    by_size: tuple[int, int, int] | None = None

    @property
    def log_normal(self) -> tuple[float, float] | None:
        """Mean and standard deviation of the logarithm of the minutes to failure, from the 50 and 90 % quantiles."""
        if self.p50_min is None or self.p90_min is None:
            return None
        return math.log(self.p50_min), math.log(self.p90_min / self.p50_min) / NORMAL_90


NORMAL_90 = 1.2816
"""The 90 % quantile of a standard normal variable."""

_I, _E, _U = FailureClass.INFRASTRUCTURE, FailureClass.ENGINE, FailureClass.USER

_ROWS: tuple[tuple[str, tuple[float | None, ...], FailureClass, bool, tuple[int, int, int] | None], ...] = (
    ("CPU out of memory", (12076, 2803, 13.45, 17.73, 33.97, 6.62, 8.05), _U, False, None),
    ("incorrect inputs", (9690, 4936, 1.87, 404.83, 2095.73, 30.43, 24.21), _U, False, (5844, 2638, 1208)),
    ("semantic error", (2943, 2049, 2.72, 376.0, 1436.88, 9.22, 17.06), _U, False, (1603, 494, 846)),
    ("core dump", (2912, 1784, 0.85, 72.75, 431.65, 3.35, 3.02), _U, False, None),
    ("invalid memory access", (2602, 1235, 1.03, 403.5, 1357.38, 3.82, 4.75), _U, False, None),
    ("model checkpoint error", (1995, 948, 181.67, 3728.93, 8196.02, 21.73, 16.33), _I, True, None),
    ("CUDA failure", (1484, 571, 1.32, 19.87, 82.17, 0.62, 0.72), _E, False, None),
    ("syntax error", (1132, 883, 0.58, 5.02, 12.0, 0.19, 0.26), _U, False, None),
    ("traceback from crash", (777, 271, 1.02, 894.33, 1394.07, 2.34, 1.74), _U, False, None),
    ("MPI error", (634, 166, 1.62, 3015.27, 5143.98, 3.70, 1.24), _E, False, None),
    ("GPU out of memory", (487, 261, 18.53, 353.62, 2740.28, 1.08, 2.10), _U, False, None),
    ("MPI runtime failure", (478, 420, 1389.48, 13778.6, 18090.88, 14.63, 15.34), _I, True, (240, 141, 97)),
    ("permission error", (299, 151, 1.0, 8.15, 15.85, 0.07, 0.03), _U, False, None),
    ("import error", (148, 148, 0.67, 4.58, 10.73, 0.06, 0.02), _U, False, None),
    ("job preempted", (147, 95, 559.08, 2682.85, 5892.23, 1.66, 4.73), _I, True, None),
    ("CUDA initialisation failed", (141, 69, 1.08, 2.18, 4.63, 0.03, 0.13), _I, True, None),
    ("model diverged", (84, 30, None, None, None, None, None), _U, False, None),
    ("CUDA version mismatch", (49, 49, None, None, None, None, None), _E, False, None),
    ("GPU ECC error", (10, 10, 26.82, 671.92, 2035.02, None, None), _I, True, None),
    ("output node error", (3, 3, None, None, None, None, None), _E, False, None),
    ("cannot load libraries", (1, 1, None, None, None, None, None), _E, False, None),
    ("no signature", (1684, 698, 1.87, 28.0, 95.17, 0.42, 0.21), _U, False, None),
)

NO_SIGNATURE = "no signature"

FAILURES: Mapping[str, FailureReason] = {
    name: FailureReason(
        name=name,
        trials=int(row[0] or 0),
        jobs=int(row[1] or 0),
        p50_min=row[2],
        p90_min=row[3],
        p95_min=row[4],
        time_share=None if row[5] is None else row[5] / 100,
        gpu_time_share=None if row[6] is None else row[6] / 100,
        kind=kind,
        is_transient=is_transient,
        by_size=by_size,
    )
    for name, row, kind, is_transient, by_size in _ROWS
}
"""Table 7 by reason. `is_transient` follows the study's text; a reason without a class in the text has its likeliest class."""


def bucket_of(gpus: int) -> int:
    """Return the index of a job's size in `BUCKETS`."""
    return next(number for number, (least, most) in enumerate(BUCKETS) if least <= gpus <= most)


_ORDERED: tuple[tuple[str, str], ...] = (
    ("GPU ECC error", r"uncorrectable ECC|double[- ]bit ECC|ECC error|NVRM: Xid.*\b(?:48|63|64|94|95)\b"),
    ("job preempted", r"\bpreempted\b|PREEMPTION|Container released on a \*lost\* node|Preempt(?:ing|ion) (?:container|job)"),
    ("CUDA version mismatch", r"CUDA driver version is insufficient|forward compatibility was attempted|"
     r"CUDA runtime version mismatch|compiled (?:with|for) CUDA .* but|libcud(?:art|nn).*version.*mismatch"),
    ("cannot load libraries", r"error while loading shared libraries|cannot open shared object file|undefined symbol:"),
    ("GPU out of memory", r"CUDA(?: error)?:? out of memory|CUDA_ERROR_OUT_OF_MEMORY|CUBLAS_STATUS_ALLOC_FAILED|"
     r"ResourceExhaustedError.*OOM when allocating|torch\.(?:cuda\.)?OutOfMemoryError|RESOURCE_EXHAUSTED: Out of memory"),
    ("CUDA initialisation failed", r"CUDA_ERROR_NOT_INITIALIZED|failed call to cuInit|initialization error.*CUDA|"
     r"CUDA(?: driver)? initiali[sz]ation (?:error|failed)|no CUDA-capable device|all CUDA-capable devices are busy"),
    ("CPU out of memory", r"Out of memory: Kill(?:ed)? process|oom[-_ ]kill|Cannot allocate memory|std::bad_alloc|\bMemoryError\b|"
     r"running beyond physical memory limits|DefaultCPUAllocator: (?:can't|not enough)|bus error.*shm|exceeded memory limit"),
    ("model diverged", r"loss (?:is|was|became|=|:) ?(?:nan|inf)|NaN loss|Model diverged|gradient (?:overflow|is nan)"),
    ("model checkpoint error", r"(?:fail|error|unable|could not)[^\n]{0,60}(?:save|sav|load|writ|restor|read)[^\n]{0,40}(?:checkpoint|\bmodel\b)|"
     r"checkpoint[^\n]{0,60}(?:corrupt|fail|not found|error)|hdfs[^\n]{0,60}(?:exception|error|fail)|No lease on /|"
     r"(?:Data loss|DataLossError).*checkpoint"),
    ("output node error", r"output node .*(?:not found|does not exist|invalid)|unknown output node"),
    ("syntax error", r"\b(?:SyntaxError|IndentationError|TabError)\b|unexpected EOF while parsing"),
    ("import error", r"\b(?:ImportError|ModuleNotFoundError)\b|No module named"),
    ("permission error", r"\bPermissionError\b|Permission denied|AccessControlException|Operation not permitted"),
    ("incorrect inputs", r"\bFileNotFoundError\b|No such file or directory|\bKeyError\b|\bUnicodeDecodeError\b|invalid (?:input|argument|data)|"
     r"(?:can't|cannot|unable to|failed to) (?:open|find|read|parse|load) (?:the )?(?:input|data|file|image|corpus)|"
     r"unrecognized arguments|corrupt(?:ed)? (?:record|file|data|image)|\bEOFError\b|JSONDecodeError|InvalidArgumentError"),
    ("semantic error", r"\b(?:AttributeError|NameError|TypeError|IndexError|AssertionError|ZeroDivisionError|UnboundLocalError)\b|"
     r"(?:shape|size|dimension)s? (?:mismatch|must match|do(?:es)? not match)|size mismatch|incompatible shapes"),
    ("CUDA failure", r"CUDA(?: runtime)? (?:error|failure)|device-side assert|illegal memory access was encountered|"
     r"unspecified launch failure|CUDNN_STATUS_|CUBLAS_STATUS_|NCCL (?:error|failure)|CUDA_ERROR_"),
    ("MPI runtime failure", r"ORTE (?:has lost|was unable)|orted .*(?:died|lost|failed)|mpirun (?:has exited|lost|was unable)|"
     r"(?:daemon|node) .*(?:lost|unreachable).*mpi|Connection (?:reset|refused|timed out).*(?:mpi|orte)"),
    ("MPI error", r"\bMPI_(?:ABORT|ERR|ERROR)\w*|Fatal error in P?MPI_|MPI_Abort"),
    ("invalid memory access", r"segmentation fault|\bSIGSEGV\b|signal 11\b|double free or corruption|invalid (?:pointer|memory access)|munmap_chunk"),
    ("core dump", r"core dumped|\bSIGABRT\b|signal 6\b|Aborted|terminate called after throwing"),
    ("traceback from crash", r"Traceback \(most recent call last\)|\bstack trace\b|panic:|Unhandled exception"),
)  # fmt: skip
"""Log patterns in order of precedence: hardware and cluster, memory, errors of the program, errors of libraries, crashes."""

PATTERNS = tuple((name, re.compile(pattern, re.IGNORECASE)) for name, pattern in _ORDERED)

MAX_CHARACTERS = 2_000_000
"""Number of characters searched at the end of a log, where causes are reported."""


def classify_log(text: str | Iterable[str]) -> FailureReason:
    r"""Return the reason of a job's failure from its log, with its class and whether a retry helps.

    Parameters
    ----------
    text
        The log, or its lines.

    Returns
    -------
    FailureReason
        The row of the study's table 7; "no signature" if no pattern matches.

    Examples
    --------
    >>> classify_log("Traceback (most recent call last):\n  ...\nImportError: No module named torch").name
    'import error'
    """
    whole = text if isinstance(text, str) else "\n".join(text)
    tail = whole[-MAX_CHARACTERS:]
    name = next((name for name, pattern in PATTERNS if pattern.search(tail)), NO_SIGNATURE)
    return FAILURES[name]
