"""From the text of a failed job's log to the reason of its failure: ordered patterns, the root cause before what it entails."""

import re
from collections.abc import Iterable

from optim.models.cluster.philly_tables import FAILURES, NO_SIGNATURE, FailureReason

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
"""The first pattern that is found anywhere counts: hardware and the cluster first, then memory, then what a program says of
itself by name, then what libraries say, and at last that it crashed at all."""

PATTERNS = tuple((name, re.compile(pattern, re.IGNORECASE)) for name, pattern in _ORDERED)

MOST_CHARACTERS = 2_000_000
"""Looked at, from the end of a log: causes are told last."""


def classify_log(text: str | Iterable[str]) -> FailureReason:
    r"""Return the reason that a failed job's log tells, with its class and whether a retry helps.

    Parameters
    ----------
    text
        The log, or its lines.

    Returns
    -------
    FailureReason
        The row of the study's table 7; "no signature" where no pattern is found.

    Examples
    --------
    >>> classify_log("Traceback (most recent call last):\n  ...\nImportError: No module named torch").name
    'import error'
    """
    whole = text if isinstance(text, str) else "\n".join(text)
    tail = whole[-MOST_CHARACTERS:]
    name = next((name for name, pattern in PATTERNS if pattern.search(tail)), NO_SIGNATURE)
    return FAILURES[name]
