"""Failing attempts: the treatment of each class of reasons, in both engines, by hand."""

import numpy as np
import pytest

from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.log import Event
from optim.models.cluster.metrics import measure
from optim.models.cluster.rules import Rules, tries_of
from optim.models.cluster.workload import US
from optim.simulation.cluster.catalogue import make_policy
from optim.simulation.cluster.engine import simulate
from optim.simulation.cluster.options import EngineOptions
from optim.workloads.cluster.generator import PhillyOptions, draw_jobs
from optim.workloads.cluster.jobs import Failures, Selection, cluster_jobs
from tests.support.small_clusters import workload

START, END, FAULT, GIVE_UP = Event.START, Event.END, Event.FAULT, Event.GIVE_UP


def _failing(reason, tries=2, good=0, fails=3):
    """A job of 10 s of which some tries fail after 3 s, and one of 4 s behind it."""
    columns = {"fails_us": (fails, -1), "tries": (tries, 1), "good_us": (good, -1)}
    scale = {"fails_us": US, "tries": 1, "good_us": US}
    told = {name: np.array([v * scale[name] if v >= 0 else v for v in values]) for name, values in columns.items()}
    return workload([(0, 1, 10), (1, 1, 4)], reason=np.array([1, 0]), reasons=("", reason), **told)


def _play(jobs, is_planned=False, **options):
    options = {"overhead_s": 1, "retry_wait_min": 2 / 60, **options}
    options |= {"neighbour": 1.5} if is_planned else {}
    return simulate(jobs, Cluster.grid("1x1"), make_policy("fifo", jobs), EngineOptions(**options))


@pytest.mark.parametrize("is_planned", [False, True])
@pytest.mark.parametrize(
    ("rule", "reason", "good", "events"),
    [
        ("as-run", "syntax error", 0, [(0, START, 0), (10, END, 0), (10, START, 1), (14, END, 1)]),
        ("by-class", "syntax error", 0, [(0, START, 0), (3, GIVE_UP, 0), (3, START, 1), (7, END, 1)]),
        ("blind", "syntax error", 0,
         [(0, START, 0), (3, FAULT, 0), (3, START, 1), (7, END, 1), (7, START, 0), (11, GIVE_UP, 0)]),
        ("by-class", "GPU ECC error", 4,
         [(0, START, 0), (3, FAULT, 0), (3, START, 1), (7, END, 1), (7, START, 0), (11, FAULT, 0), (13, START, 0), (18, END, 0)]),
    ],
)  # fmt: skip
def test_a_failed_try_is_queued_again_as_its_class_says(rule, reason, good, events, is_planned):
    """Attempts fail after 3 s, and starts except the first cost 1 s; after a failure a job waits 2 s, in which the other one starts."""
    run = _play(_failing(reason, good=good), is_planned, retries=rule)
    assert [(time // US, kind, job) for time, kind, job, _ in run.log.rows()] == events


@pytest.mark.parametrize("is_planned", [False, True])
def test_failed_tries_are_counted_and_nothing_of_them_is_useful(is_planned):
    jobs = _failing("job preempted", good=4)
    run = _play(jobs, is_planned, retries="by-class")
    found = measure(jobs, Cluster.grid("1x1"), run)
    assert (found.failed_attempts, found.failed, found.unfinished) == (2, 0, 0)
    assert (run.lost_us.tolist(), run.executed_us.tolist()) == ([6 * US, 0], [10 * US, 4 * US])
    assert found.goodput == pytest.approx((4 + 4) / 16)
    assert found.lost_gpu_hours == pytest.approx(6 / 3600)


def test_a_try_is_repeated_so_often_by_its_class():
    for most in (0, 1, 5):
        run = _play(_failing("GPU ECC error", tries=4, fails=1), retries="by-class", max_retries=most)
        kinds = [kind for _, kind, job, _ in run.log.rows() if job == 0 and kind != START]
        assert kinds == [FAULT] * min(most, 3) + [GIVE_UP]


def test_what_a_job_has_left_is_told_by_its_last_attempt_or_what_its_tries_leave():
    jobs = _failing("", tries=2, good=-1)
    tries = tries_of(jobs, Rules(retries=1))
    assert (tries.good[0], tries.last[0] > 2) == (6 * US, True)
    assert tries_of(jobs, Rules()).failing.tolist() == [0, 0]
    with pytest.raises(InvalidProblemError, match="good_us"):
        _failing("", good=11)


def test_drawn_failures_are_played_by_class():
    table = draw_jobs(PhillyOptions(jobs=300), 0)
    jobs = cluster_jobs(table, Selection(failures=Failures.STUDY))
    cluster = Cluster.grid("40x8")
    runs = {
        rule: simulate(jobs, cluster, make_policy("fifo", jobs), EngineOptions(retries=rule))
        for rule in ("as-run", "blind", "by-class")
    }
    found = {rule: measure(jobs, cluster, run) for rule, run in runs.items()}
    failing = jobs.fails_us >= 0
    assert found["as-run"].failed_attempts == 0
    assert found["blind"].failed_attempts == jobs.tries[failing].sum()
    assert [found[rule].failed for rule in runs] == [0, failing.sum(), failing.sum()]
    served = found["blind"].gpu_hours - found["blind"].overhead_gpu_hours
    assert served == pytest.approx(found["as-run"].gpu_hours, rel=1e-9)
    assert found["by-class"].gpu_hours < served


def test_ranges_are_told():
    with pytest.raises(InvalidOptionError, match="retries must be one of as-run"):
        EngineOptions(retries="always")
    with pytest.raises(InvalidOptionError, match="retry_wait_min"):
        EngineOptions(retry_wait_min=-1)
