"""Allocated and idle GPUs: answers of Prometheus and tables, against sums by pandas of the same samples."""

import gzip
import json

import numpy as np
import pandas as pd
import pytest

from optim.core.errors import InvalidProblemError
from optim.models.containers.gpu_use import Holder, IdleOptions, job_uses, use_rows
from optim.workloads.containers import gpu_series
from optim.workloads.containers.gpu_series import read_gpu_use

STEP = 60


def answer(*series, **more):
    result = [
        {"metric": {"__name__": "DCGM_FI_DEV_GPU_UTIL", **labels}, "values": [[t, str(v)] for t, v in samples]}
        for labels, samples in series
    ]
    return {"status": "success", "data": {"resultType": "matrix", "result": result}, **more}


def labels(gpu, pod=None, namespace="research", **more):
    held = {} if pod is None else {"exported_pod": pod, "exported_namespace": namespace}
    return (
        {"UUID": f"GPU-{gpu}", "Hostname": "n0", "gpu": "0", "pod": "dcgm-exporter-x", "namespace": "gpu"} | held | more
    )


def write(path, document, **options):
    path.write_text(json.dumps(document, **options))
    return path


def by_holder(path, options=None):
    uses, _ = read_gpu_use(path, options or IdleOptions())
    assert len(dict(uses)) == len(uses)
    return dict(uses)


def test_hand_worked_hour(tmp_path):
    # Two GPUs of one job, a sample each ten minutes. GPU a: 90 0 0 0 0 80; GPU b: 50 50 0 0 0 0. A free GPU c.
    times = range(0, 3600, 600)
    a, b = zip(times, (90, 0, 0, 0, 0, 80), strict=True), zip(times, (50, 50, 0, 0, 0, 0), strict=True)
    given = answer(
        (labels("a", "bert-worker-0"), a), (labels("b", "bert-worker-1"), b), (labels("c"), [(0, 0), (600, 0)])
    )
    uses, remarks = read_gpu_use(write(tmp_path / "a.json", given), IdleOptions(after_min=(10.0, 30.0)))
    assert remarks == ()
    found = {holder.gpu: use for holder, use in uses}
    assert found["GPU-a"].held_s == found["GPU-b"].held_s == 3600
    assert found["GPU-a"].idle_s == [2400.0]
    assert found["GPU-b"].idle_s == [2400.0]
    assert found["GPU-a"].busy_s == 600 * 1.7
    assert found["GPU-c"].held_s == 1200
    (row,) = use_rows(uses, "job")
    assert (row.name, row.gpus, row.held_h) == ("research/bert", 2, 2.0)
    assert row.idle_h == (pytest.approx(4800 / 3600),)
    assert row.utilisation == pytest.approx((1.7 + 1.0) / 12 * 100)
    assert row.longest_idle_h == pytest.approx(2400 / 3600)
    (job,) = job_uses(uses)
    # a is idle from 600 to 3000 s, b from 1200 to 3600 s: the job from 1200 to 3000 s.
    assert job.idle.tolist() == [[1200.0, 3000.0]]
    assert (job.gpus, job.begin_s, job.end_s) == (2, 0.0, 3600.0)
    assert job.reclaimed(10).tolist() == [[1800.0, 3000.0]]
    assert job.pieces(10).tolist() == [[0.0, 1800.0], [3000.0, 3600.0]]
    assert job.freed_s(10) == 2 * 1200.0
    assert job.freed_s(30) == 0.0


def oracle(frame, below, max_gap_s, step_s):
    """Return allocated, busy and idle seconds by GPU and owner, from a table with one row per sample."""
    rows = []
    for key, part in frame.groupby(["gpu", "job"], sort=False):
        length = part.time_s.shift(-1) - part.time_s
        length = length.where(length <= max_gap_s, step_s)
        idle = part.utilisation < below
        spell = (idle != idle.shift()).cumsum()[idle]
        gap_before = (part.time_s - part.time_s.shift() > max_gap_s).cumsum()[idle]
        longest = length[idle].groupby([spell, gap_before]).sum().max() if idle.any() else 0.0
        rows.append((*key, length.sum(), (length * part.utilisation).sum() / 100, length[idle].sum(), longest))
    return pd.DataFrame(rows, columns=["gpu", "job", "held", "busy", "idle", "longest"])


def drawn(seed):
    rng = np.random.default_rng(seed)
    parts = []
    for gpu in range(5):
        for job in range(2):
            count = int(rng.integers(40, 90))
            time = 3000 * job * 3 + STEP * np.cumsum(rng.choice([1, 1, 1, 1, 12], count))
            busy = np.repeat(rng.random(count // 4 + 1) < 0.6, 4)[:count]
            parts.append(
                pd.DataFrame(
                    {
                        "time_s": time + (240_000 if job else 0),
                        "gpu": f"g{gpu}",
                        "utilisation": np.where(busy, rng.integers(5, 101, count), rng.integers(0, 5, count)),
                        "job": f"j{gpu // 2}-{job}",
                    }
                )
            )
    return pd.concat(parts, ignore_index=True)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("form", ["csv", "csv in order of time", "json"])
def test_sums_are_those_of_pandas(tmp_path, seed, form, monkeypatch):
    frame = drawn(seed)
    monkeypatch.setattr(gpu_series, "BLOCK_ROWS", 37)  # series continue from block to block
    monkeypatch.setattr(gpu_series, "READ_BYTES", 301)
    monkeypatch.setattr("optim.workloads.csv_columns.BLOCK_CELLS", 64)
    if form == "json":
        series = [
            ({"UUID": gpu, "hpc_job": job}, zip(part.time_s, part.utilisation, strict=True))
            for (gpu, job), part in frame.groupby(["gpu", "job"])
        ]
        path = write(
            tmp_path / "a.json",
            json.loads(
                json.dumps(
                    answer(
                        *[(m, [*map(tuple, s)]) for m, s in series],
                    ),
                    default=int,
                )
            ),
        )
    else:
        path = tmp_path / "a.csv"
        (frame.sort_values("time_s", kind="stable") if "order" in form else frame).to_csv(path, index=False)
    expected = oracle(frame, 5, 300, STEP).set_index(["gpu", "job"])
    found = by_holder(path, IdleOptions(after_min=(1.0,)))
    assert len(found) == len(expected) == 10
    for holder, use in found.items():
        row = expected.loc[holder.gpu, holder.job]
        assert use.held_s == pytest.approx(row.held)
        assert use.busy_s == pytest.approx(row.busy)
        assert use.idle_s == [pytest.approx(row.idle)]
        assert use.longest_s == pytest.approx(row.longest)
        assert (use.runs[:, 1] - use.runs[:, 0]).sum() == pytest.approx(row.held)
        assert (use.spells[:, 1] - use.spells[:, 0]).sum() == pytest.approx(row.idle)


def test_job_idles_only_while_every_gpu_that_it_holds_does(tmp_path):
    frame = drawn(7)
    frame["job"] = "one"
    frame = frame.drop_duplicates(["gpu", "time_s"])
    frame.to_csv(tmp_path / "a.csv", index=False)
    uses, _ = read_gpu_use(tmp_path / "a.csv", IdleOptions(after_min=(1.0,)))
    (job,) = job_uses(uses)
    # By minutes: busy where any GPU has a sample of 5 % or more that holds then.
    begin, end = int(frame.time_s.min()), int(job.end_s)
    busy, held = np.zeros((end - begin) // STEP, bool), np.zeros((end - begin) // STEP, int)
    for _, part in frame.groupby("gpu"):
        length = (part.time_s.shift(-1) - part.time_s).where(lambda gap: gap <= 300, STEP)
        for time, span, value in zip(part.time_s, length, part.utilisation, strict=True):
            rows = slice(int(time - begin) // STEP, int(time + span - begin) // STEP)
            busy[rows] |= value >= 5
            held[rows] += 1
    used = busy | (held == 0)  # nothing is known of a gap
    edges = np.flatnonzero(np.diff(np.concatenate([[True], used, [True]]).astype(int)))
    expected = begin + STEP * edges.reshape(-1, 2)
    np.testing.assert_allclose(job.idle, expected)
    assert job.gpus == held.max()
    freed = sum(held[(a - begin) // STEP + 10 : (b - begin) // STEP].sum() for a, b in expected.tolist())
    assert job.freed_s(10) == pytest.approx(STEP * freed)


def test_two_scrapes_of_one_gpu_count_once_and_a_later_exporter_goes_on(tmp_path):
    half, whole = [(60 * k, 0) for k in range(10)], [(60 * k, 0) for k in range(20)]
    late = [(60 * k, 0) for k in range(20, 30)]
    given = answer(
        (labels("a", "p", instance="x"), whole),
        (labels("a", "p", instance="y"), half),
        (labels("b", "p", instance="x"), late),
        (labels("b", "p", instance="y"), whole),
    )
    uses, remarks = read_gpu_use(write(tmp_path / "a.json", given), IdleOptions())
    held = {gpu: sum(use.held_s for who, use in uses if who.gpu == gpu) for gpu in ("GPU-a", "GPU-b")}
    assert held == {"GPU-a": 1200.0, "GPU-b": 1800.0}
    assert remarks == ("10 samples are left out: their GPU and holder already have one at that time",)
    (job,) = job_uses(uses)
    assert (job.gpus, job.end_s) == (2, 1800.0)


@pytest.mark.parametrize(
    ("metric", "holder"),
    [
        (labels("a", "x-0"), Holder("research", "", "x-0", "GPU-a")),
        (labels("a"), Holder("", "", "", "GPU-a")),
        ({"UUID": "u", "pod": "mine-master-0", "namespace": "ml"}, Holder("ml", "", "mine", "u")),
        ({"Hostname": "h", "gpu": "3", "hpc_job": "77", "user": "ann"}, Holder("", "ann", "77", "h/3")),
        ({"UUID": "u", "GPU_I_ID": "2", "exported_pod": "p"}, Holder("", "", "p", "u/2")),
    ],
)
def test_labels_name_the_holder(tmp_path, metric, holder):
    assert list(by_holder(write(tmp_path / "a.json", answer((metric, [(0, 1)]))))) == [holder]


def test_shares_become_per_cent_and_answers_may_be_pretty_or_packed(tmp_path):
    given = answer(
        ({"__name__": "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "UUID": 'a{"metric":', "pod": "p"}, [(0, 0.5), (60, 0.01)])
    )
    plain = by_holder(write(tmp_path / "a.json", given, indent=2))
    packed = tmp_path / "a.json.gz"
    packed.write_bytes(gzip.compress(json.dumps(given).encode()))
    for found in (plain, by_holder(packed)):
        (use,) = found.values()
        assert (use.busy_s, use.idle_s) == (pytest.approx(60 * 0.51), [60.0])


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"status": "error", "error": "no", "errorType": "bad_data"}, "answered with an error"),
        ({"status": "success", "data": {"resultType": "vector", "result": []}}, "with a 'vector'"),
        (answer(), "the response has no series"),
        (answer(({"__name__": "up", "UUID": "a"}, [(0, 1)])), "up isn't a GPU utilisation"),
        (answer(({"UUID": "a"}, [(0, 101)])), "must lie in 0..100 per cent, got 101"),
        (answer(({"UUID": "a"}, [(60, 1), (0, 1)])), "don't rise"),
        (answer(({"UUID": "a"}, [(0, "x")])), "not a Prometheus series"),
        (answer(({"UUID": "a"}, [(0, "NaN")])), "the file has no GPU samples"),
    ],
)
def test_bad_answers_are_told_in_a_line(tmp_path, document, message):
    with pytest.raises(InvalidProblemError, match=message):
        read_gpu_use(write(tmp_path / "a.json", document), IdleOptions())


@pytest.mark.parametrize("cut", [1, 2, 3, 12])
def test_answer_that_was_cut_is_refused(tmp_path, cut):
    path = tmp_path / "a.json"
    path.write_text(json.dumps(answer((labels("a", "p"), [(0, 1)]), (labels("b", "p"), [(0, 1)])))[:-cut])
    if cut <= 2:
        assert len(by_holder(path)) == 2  # only braces are missing
    else:
        with pytest.raises(InvalidProblemError, match="ends within"):
            read_gpu_use(path, IdleOptions())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("time_s,gpu,utilisation\n0,a,1\n", "no column for the holder"),
        ("gpu,utilisation,pod\na,1,p\n", "no column of times"),
        ("time_s,gpu,pod\n0,a,p\n", "no column of utilisation"),
        ("time_s,gpu,utilisation,pod\n60,a,1,p\n0,a,1,p\n", "go back in time"),
        ("time_s,gpu,utilisation,pod\n0,a,,p\n", "expected a number"),
    ],
)
def test_bad_tables_are_told_in_a_line(tmp_path, text, message):
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(InvalidProblemError, match=message):
        read_gpu_use(tmp_path / "a.csv", IdleOptions())


def test_dates_are_times(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("time,gpu,gpu_util,job\n2025-01-01 00:00:00,a,1,j\n2025-01-01 00:01:00,a,90,j\n")
    ((_, use),) = by_holder(path).items()
    assert (use.held_s, use.idle_s) == (120.0, [60.0])
    assert use.runs[0, 0] == pd.Timestamp("2025-01-01").timestamp()


def test_a_gap_is_neither_held_nor_idle_and_is_reported(tmp_path):
    """A GPU that is busy in every sample is never reclaimed, whatever the time between two samples."""
    path = tmp_path / "a.csv"
    path.write_text("time_s,gpu,utilisation,user,job\n" + "".join(f"{at},g,90,u,j\n" for at in (0, 600, 4200, 7800)))
    uses, remarks = read_gpu_use(path, IdleOptions(after_min=(30.0,)))
    (job,) = job_uses(uses)
    assert len(job.reclaimed(30.0)) == 0
    assert uses[0][1].held_s == 4 * 600
    assert "1.67 GPU-hours lie in gaps of more than 1200 s" in remarks[0]
    assert read_gpu_use(path, IdleOptions(after_min=(30.0,), max_gap_s=3600.0))[1] == ()
