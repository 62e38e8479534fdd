"""The published tables add up, and failed jobs' logs give their reasons."""

import math

import pytest

from optim.models.cluster.philly import (
    BUCKETS,
    DELAYED_JOBS,
    FAILURES,
    PATTERNS,
    STATUS_SHARES,
    FailureClass,
    bucket_of,
    classify_log,
)


def test_failed_trials_are_those_of_the_table():
    assert sum(reason.trials for reason in FAILURES.values()) == pytest.approx(39_776, abs=2)
    for reason in FAILURES.values():
        assert reason.by_size is None or sum(reason.by_size) == pytest.approx(reason.trials, abs=1)


@pytest.mark.parametrize("column", ["time_share", "gpu_time_share"])
def test_shares_of_run_time_to_failure_add_up(column):
    assert math.fsum(getattr(reason, column) or 0.0 for reason in FAILURES.values()) == pytest.approx(1, abs=0.002)


def test_shares_of_statuses_add_up():
    assert [math.fsum(column) for column in zip(*STATUS_SHARES.values(), strict=True)] == pytest.approx([1, 1])


def test_shares_of_fragmentation_are_those_printed():
    shares = [lost / (lost + fair) for fair, lost in DELAYED_JOBS.values()]
    assert shares == pytest.approx([0.594, 0.742, 0.979], abs=5e-4)


def test_a_log_normal_goes_through_median_and_ninth_decile():
    mu, sigma = FAILURES["incorrect inputs"].log_normal
    assert (math.exp(mu), math.exp(mu + 1.2816 * sigma)) == pytest.approx((1.87, 404.83))
    assert FAILURES["model diverged"].log_normal is None


def test_sizes_of_jobs_are_the_studys():
    assert [bucket_of(gpus) for gpus in (1, 2, 4, 5, 8, 9, 128)] == [0, 1, 1, 2, 2, 3, 3]
    assert BUCKETS[0] == (1, 1)


TRACEBACK = "Traceback (most recent call last):\n  File 'train.py', line 3, in <module>\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("kernel: Out of memory: Kill process 4411 (python) score 967", "CPU out of memory"),
        (f"{TRACEBACK}MemoryError", "CPU out of memory"),
        (f"{TRACEBACK}RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB", "GPU out of memory"),
        (f"{TRACEBACK}torch.OutOfMemoryError: tried to allocate", "GPU out of memory"),
        (f"{TRACEBACK}FileNotFoundError: [Errno 2] No such file or directory: 'x.tsv'", "incorrect inputs"),
        (f"{TRACEBACK}AttributeError: 'Tensor' object has no attribute 'foo'", "semantic error"),
        (f"{TRACEBACK}RuntimeError: size mismatch, m1: [4 x 8], m2: [9 x 2]", "semantic error"),
        (f"{TRACEBACK}ImportError: No module named 'apex'", "import error"),
        ("  File 'a.py', line 3\n    x ==\n       ^\nSyntaxError: invalid syntax", "syntax error"),
        (f"{TRACEBACK}PermissionError: [Errno 13] Permission denied: '/data'", "permission error"),
        ("failed to save the checkpoint: hdfs write", "model checkpoint error"),
        ("org.apache.hadoop.hdfs.server: exception in write pipeline", "model checkpoint error"),
        ("RuntimeError: cuda runtime error (77): an illegal memory access was encountered", "CUDA failure"),
        ("failed call to cuInit: CUDA_ERROR_NO_DEVICE", "CUDA initialisation failed"),
        ("CUDA driver version is insufficient for CUDA runtime version", "CUDA version mismatch"),
        ("libcudnn.so.7: cannot open shared object file: No such file or directory", "cannot load libraries"),
        ("Fatal error in MPI_Allreduce: Other MPI error", "MPI error"),
        ("ORTE has lost communication with a remote daemon.", "MPI runtime failure"),
        ("Container preempted by scheduler", "job preempted"),
        ("NVRM: GPU 0: double bit ECC error detected", "GPU ECC error"),
        ("step 40: loss is nan, stopping", "model diverged"),
        ("*** Process received signal 11 (SIGSEGV) ***\nSegmentation fault (core dumped)", "invalid memory access"),
        ("terminate called without an active exception\nAborted (core dumped)", "core dump"),
        (f"{TRACEBACK}RuntimeError: stopped", "traceback from crash"),
        ("unknown output node 'softmax'", "output node error"),
        ("epoch 3 of 90, 0.31", "no signature"),
        ("", "no signature"),
    ],
)
def test_a_log_tells_its_reason(text, reason):
    assert classify_log(text).name == reason


def test_every_reason_of_the_table_has_one_pattern():
    assert sorted(name for name, _ in PATTERNS) == sorted(set(FAILURES) - {"no signature"})


def test_the_root_cause_counts_whichever_comes_first():
    noise = "Segmentation fault (core dumped)\n"
    for text in (f"CUDA out of memory\n{noise}", f"{noise}CUDA out of memory\n"):
        assert classify_log(text.splitlines()).name == "GPU out of memory"


def test_retries_help_only_for_transient_reasons():
    assert classify_log("preempted").is_transient
    assert not classify_log("SyntaxError").is_transient
    transient = {name for name, reason in FAILURES.items() if reason.is_transient}
    assert transient == {
        "model checkpoint error",
        "MPI runtime failure",
        "job preempted",
        "GPU ECC error",
        "CUDA initialisation failed",
    }
    assert {FAILURES[name].kind for name in transient} == {FailureClass.INFRASTRUCTURE}
