"""The queue's gain from reclaimed GPUs: an hour by hand, and cut jobs that keep their work."""

import numpy as np
import pytest

from optim.core.errors import InvalidProblemError
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.workload import US, Workload
from optim.models.containers.gpu_use import GpuUse, Holder, IdleOptions, JobUse, job_uses
from optim.simulation.cluster.comparison import PolicyRequest
from optim.simulation.cluster.options import EngineOptions
from optim.simulation.cluster.reclaim import Queue, cut_jobs, jobs_of_uses, matched, reclaim_rows

MINUTE = 60 * US


def use_of(job, begin_min, percents, step_s=600.0, namespace=""):
    use = GpuUse(options=IdleOptions(after_min=(10.0,)), step_s=step_s)
    use.add(60.0 * begin_min + step_s * np.arange(len(percents)), np.array(percents, float))
    use.finish()
    return Holder(namespace, "", job, f"gpu of {job}"), use


def workload(*rows):
    submit, gpus, minutes, ids = zip(*rows, strict=True)
    return Workload(
        submit_us=np.array(submit) * MINUTE, gpus=np.array(gpus), duration_us=np.array(minutes) * MINUTE, ids=ids
    )


def test_hour_by_hand():
    # On one GPU: a holds it for 60 min and is idle from 10 to 50; b (20 min) is submitted at minute 5, c (10 min) at 6.
    jobs = workload((0, 1, 60, "a"), (5, 1, 20, "b"), (6, 1, 10, "c"))
    uses = job_uses([use_of("a", 100, [90, 0, 0, 0, 0, 90])])
    queue = Queue(
        jobs=jobs,
        cluster=Cluster.grid("1x1"),
        request=PolicyRequest(name="fifo"),
        options=EngineOptions(overhead_s=0),
    )
    held_wait, (ten, forty) = (0 + 55 + 74) / 3 / 60, reclaim_rows(uses, (10.0, 40.0), queue)
    # Reclaimed after 10 idle minutes: a ends at 20, b runs to 40, c to 50, and a returns at 50 for ten minutes.
    assert (ten.freed_gpu_h, ten.jobs_reclaimed, ten.returns) == (pytest.approx(0.5), 1, 1)
    assert ten.wait_held_h == pytest.approx(held_wait)
    assert ten.wait_mean_h == pytest.approx((0 + 15 + 34) / 3 / 60)
    assert ten.wait_others_held_h == pytest.approx((55 + 74) / 2 / 60)
    assert ten.wait_others_h == pytest.approx((15 + 34) / 2 / 60)
    assert (forty.freed_gpu_h, forty.jobs_reclaimed, forty.wait_mean_h) == (0.0, 0, pytest.approx(held_wait))


def test_pieces_keep_all_work_but_what_is_reclaimed():
    rng = np.random.default_rng(0)
    parts = [use_of(f"j{k}", 7 * k, np.where(rng.random(40) < 0.5, 0, 90)) for k in range(6)]
    uses = job_uses(parts)
    jobs = jobs_of_uses(uses)
    assert jobs.submit_us.tolist() == [7 * k * MINUTE for k in range(6)]
    pieces, owner = cut_jobs(jobs, matched(jobs, uses), 20.0)
    assert (np.diff(pieces.submit_us) >= 0).all()
    assert len(set(pieces.ids)) == len(pieces) > len(jobs)
    for row, use in enumerate(uses):
        spans = use.reclaimed(20.0)
        kept = pieces.duration_us[owner == row].sum()
        assert kept == jobs.duration_us[row] - int((spans[:, 1] - spans[:, 0]).sum()) * US
        assert use.freed_s(20.0) == pytest.approx((spans[:, 1] - spans[:, 0]).sum())
    assert (jobs.gpus[owner] == pieces.gpus).all()


def test_names_match_with_and_without_namespace_and_longer_runs_stay_busy():
    uses = job_uses([use_of("a", 0, [90, 0, 0, 90], namespace="ml"), use_of("b", 0, [0, 0, 0, 0], namespace="ml")])
    jobs = workload((0, 2, 100, "ml/a"), (0, 1, 40, "b"), (0, 1, 40, "other"))
    found = matched(jobs, uses)
    assert {row: use.holder.job for row, use in found.items()} == {0: "a", 1: "b"}
    pieces, owner = cut_jobs(jobs, found, 10.0)
    minutes = [(row, int(us) // MINUTE) for row, us in zip(owner.tolist(), pieces.duration_us.tolist(), strict=True)]
    assert sorted(minutes) == [(0, 20), (0, 70), (1, 10), (2, 40)]


def test_no_job_is_told():
    with pytest.raises(InvalidProblemError, match="no GPU has a pod or job"):
        jobs_of_uses(job_uses([use_of("", 0, [0, 0])]))


def test_gpus_at_once_count_those_handed_on_once():
    first, later = use_of("a", 0, [90, 90]), use_of("a", 20, [90])
    (job,) = job_uses([first, later])
    assert isinstance(job, JobUse)
    assert (job.gpus, job.begin_s, job.end_s) == (1, 0.0, 1800.0)
