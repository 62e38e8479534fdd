"""Running pieces on Dask workers: the same results, and what is lost is done again or said."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

distributed = pytest.importorskip("distributed")

from optim.benchmarks.golden import row_order, strip  # noqa: E402
from optim.benchmarks.registry import choose_suites  # noqa: E402
from optim.benchmarks.runner import plan_work, run_work  # noqa: E402
from optim.benchmarks.spec import BenchRequest  # noqa: E402
from optim.core.errors import EngineError, InvalidProblemError  # noqa: E402
from optim.core.execution import dask_engine, dask_session, local_engine  # noqa: E402
from optim.core.execution.dask_engine import dask_cluster  # noqa: E402
from optim.core.execution.parcels import SentOnce  # noqa: E402
from optim.core.progress import SilentProgress  # noqa: E402
from optim.core.stopping import Interruption  # noqa: E402
from tests.support.pieces import Heard, Squares  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


@pytest.fixture(scope="module")
def cluster():
    with dask_cluster(num_processes=2) as engine:
        yield engine


def run(engine, pieces, *, task=None, stop=None, progress=None):
    return engine.run(task or Squares(), pieces, stop or Interruption(), progress or SilentProgress())


def test_gives_every_result_once_and_counts_on(cluster):
    heard = Heard()
    pieces = [*range(500), "deaf"]
    results = dict(run(cluster, pieces, progress=heard))
    assert results == {**{n: n * n for n in range(500)}, 500: "heard nothing"}
    assert heard.news[0] == "start squares, Dask 501"
    assert heard.news[-2:] == ["update 501", "finish"]


def test_what_a_piece_raises_ends_the_run_and_leaves_the_cluster_usable(cluster):
    with pytest.raises(ZeroDivisionError):
        list(run(cluster, [1, "divide", 2]))
    assert sorted(run(cluster, [3, 4])) == [(0, 9), (1, 16)]


def test_asked_to_stop_begins_no_piece_and_stops_those_that_run(cluster, tmp_path):
    stop = Interruption()

    def stop_once_both_wait():
        while len(list(tmp_path.iterdir())) < 2:
            time.sleep(0.02)
        stop.request()

    threading.Thread(target=stop_once_both_wait, daemon=True).start()
    results = dict(run(cluster, ["wait"] * 40, task=Squares(tmp_path), stop=stop))
    assert set(results.values()) == {"stopped, 0 s left"}
    assert 2 <= len(results) < 40


class Table(SentOnce):
    """A hundred thousand bytes that pieces share."""

    def __init__(self):
        self.value = os.urandom(100_000)

    def __mul__(self, other):
        return len(self.value)


def test_what_pieces_share_reaches_a_worker_once(cluster):
    shared, before = Table(), cluster.sent_bytes
    results = [result for _, result in run(cluster, [shared] * 60)]
    assert results == [100_000] * 60
    sent = cluster.sent_bytes - before
    assert 100_000 < sent < 2 * 101_000, "once to each of two workers at most, and the task is small"


def test_a_piece_that_cannot_be_sent_is_named(cluster):
    with pytest.raises(InvalidProblemError, match=r"<lambda>.* can't be sent to another process"):
        list(run(cluster, [1, lambda: 0]))


def test_other_versions_are_refused_before_anything_runs(cluster, monkeypatch):
    monkeypatch.setattr(dask_session, "identity", lambda: {"python": "2.7", "code": "another"})
    with pytest.raises(EngineError, match=r"worker tcp://.* has other versions: python 3.* there, 2\.7 here; code"):
        list(run(cluster, [1]))


def test_a_scheduler_that_does_not_answer_is_one_line(monkeypatch):
    monkeypatch.setattr(dask_engine, "CONNECT_S", 0.3)
    with (
        pytest.raises(EngineError, match=r"no Dask scheduler answers at 'tcp://127.0.0.1:9'"),
        dask_cluster("tcp://127.0.0.1:9"),
    ):
        pass


@pytest.mark.prove
def test_a_piece_that_takes_its_workers_with_it_is_given_up_and_no_other(cluster):
    results = [result for _, result in sorted(run(cluster, [2, 3, "die", 4, 5]))]
    assert results[:2] + results[3:] == [4, 9, 16, 25]
    assert "each worker that ran it was lost" in results[2]


@pytest.mark.prove
@pytest.mark.parametrize("seed", range(5))
def test_workers_killed_at_random_moments_cost_no_result_and_double_none(seed):
    """Ten kills a seed: pieces are long enough to be hit in the middle."""
    import random

    rng = random.Random(seed)
    with dask_cluster(num_processes=2) as engine:
        over = threading.Event()

        def kill():
            for _ in range(10):
                if over.wait(rng.uniform(0.2, 1.5)):
                    return
                if (keeper := rng.choice(list(engine.client.cluster.workers.values()))).pid:
                    os.kill(keeper.pid, signal.SIGKILL)

        thread = threading.Thread(target=kill, daemon=True)
        thread.start()
        results = list(run(engine, list(range(400)), task=Slow()))
        over.set()
        thread.join()
    assert sorted(results) == [(n, n * n) for n in range(400)]


class Slow(Squares):
    """Squares that take their time."""

    def do(self, piece, stop, progress):
        time.sleep(0.04)
        return super().do(piece, stop, progress)


@pytest.mark.prove
def test_a_scheduler_that_is_killed_ends_the_run_with_a_line_and_keeps_what_came(tmp_path):
    file = tmp_path / "scheduler.json"
    scheduler = start("scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", file)
    worker = start("worker", "--scheduler-file", file, "--nthreads", "1", "--no-dashboard")
    try:
        while not file.exists():
            time.sleep(0.05)
        with dask_cluster(json.loads(file.read_text())["address"]) as engine:
            finished = run(engine, list(range(400)), task=Slow())
            came = [next(finished) for _ in range(20)]
            scheduler.kill()
            with pytest.raises(EngineError, match=r"connection to the Dask scheduler .* is lost; what is finished"):
                came += list(finished)
        assert all(result == position**2 for position, result in came)
    finally:
        for process in (worker, scheduler):
            process.kill()
            process.wait()


def start(what, *args):
    """Start a Dask process."""
    return subprocess.Popen([sys.executable, "-m", f"distributed.cli.dask_{what}", *args], stderr=subprocess.DEVNULL)


@pytest.mark.prove
def test_records_of_a_benchmark_are_those_that_processes_of_this_machine_make(cluster, tmp_path):
    work = plan_work(choose_suites(("admission",)), BenchRequest(solvers=("online", "fifo"))).work
    here, there = (
        sorted(map(strip, run_work(work, tmp_path / name, engine=engine)), key=row_order)
        for name, engine in (("here", local_engine(2)), ("there", cluster))
    )
    assert here == there
    assert len(here) == len(work) > 0
