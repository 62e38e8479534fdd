"""Running tasks on Dask workers: the same results; lost tasks run again or are reported."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

distributed = pytest.importorskip("distributed")

from distributed.security import Security

from optim.benchmarks.compare import row_order, strip
from optim.benchmarks.records import read_records
from optim.benchmarks.runner import plan_work, run_work
from optim.benchmarks.suite import (
    BenchRequest,
    choose_suites,
)
from optim.core.errors import EngineError, InvalidProblemError
from optim.core.progress import SilentProgress
from optim.core.stopping import Interruption
from optim.execution import dask_cluster as dask_module
from optim.execution import local_engine
from optim.execution.dask_cluster import dask_cluster
from optim.execution.tasks import Broadcast
from tests.support.sample_tasks import RecordedProgress, Squares

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


@pytest.fixture(
    scope="module", params=[pytest.param(1, id="a worker"), pytest.param(2, id="two workers", marks=pytest.mark.prove)]
)
def cluster(request):
    with dask_cluster(num_processes=request.param) as engine:
        engine.client.wait_for_workers(request.param)
        yield engine


def run(engine, pieces, *, task=None, stop=None, progress=None):
    return engine.run(task or Squares(), pieces, stop or Interruption(), progress or SilentProgress())


def test_gives_every_result_once_and_counts_on(cluster):
    heard = RecordedProgress()
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
    stop, num_workers = Interruption(), len(cluster.client.nthreads())

    def stop_once_all_wait():
        while len(list(tmp_path.iterdir())) < num_workers:
            time.sleep(0.02)
        stop.request()

    threading.Thread(target=stop_once_all_wait, daemon=True).start()
    results = dict(run(cluster, ["wait"] * 40, task=Squares(tmp_path), stop=stop))
    assert set(results.values()) == {"stopped, 0 s left"}
    assert num_workers <= len(results) < 40


class Table(Broadcast):
    """A value of 100,000 bytes that all pieces use."""

    def __init__(self):
        self.value = os.urandom(100_000)

    def __mul__(self, other):
        return len(self.value)


def test_what_pieces_share_reaches_a_worker_once(cluster):
    shared, before = Table(), cluster.sent_bytes
    results = [result for _, result in run(cluster, [shared] * 60)]
    assert results == [100_000] * 60
    sent = cluster.sent_bytes - before
    most = len(cluster.client.nthreads()) * 101_000
    assert 100_000 < sent < most, "once to each worker at most, and the task is small"


def test_a_piece_that_cannot_be_sent_is_named(cluster):
    with pytest.raises(InvalidProblemError, match=r"<lambda>.* cannot be sent to another process"):
        list(run(cluster, [1, lambda: 0]))


def test_other_versions_are_refused_before_anything_runs(cluster, monkeypatch):
    monkeypatch.setattr(dask_module, "identity", lambda: {"python": "2.7", "code": "another"})
    with pytest.raises(
        EngineError, match=r"worker t[cl][ps]://.* has other versions: python 3.* instead of 2\.7; code"
    ):
        list(run(cluster, [1]))


def test_a_scheduler_that_does_not_answer_is_one_line(monkeypatch):
    monkeypatch.setattr(dask_module, "CONNECT_S", 0.3)
    with (
        pytest.raises(EngineError, match=r"no Dask scheduler answers at 'tcp://127.0.0.1:9'"),
        dask_cluster("tcp://127.0.0.1:9"),
    ):
        pass


def listening(pids):
    """Return the addresses at which processes wait for connections, as the system writes them."""
    links = set()
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                links.add(os.readlink(link))
    found = []
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in links:
                found.append(fields[1].split(":")[0])
    return found


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs Linux")
def test_a_cluster_of_this_machine_waits_for_nobody_from_elsewhere(cluster):
    addresses = listening([os.getpid(), *cluster.client.run(os.getpid).values()])
    assert len(addresses) >= 2
    assert set(addresses) == {"0100007F"}


def test_a_cluster_of_this_machine_lets_nobody_in_without_its_certificates(cluster):
    pytest.importorskip("cryptography")
    address = cluster.client.scheduler.address
    assert address.startswith("tls://127.0.0.1:")
    assert all(worker.startswith("tls://127.0.0.1:") for worker in cluster.client.nthreads())
    for security in (None, Security.temporary()):
        with pytest.raises((OSError, TypeError)):
            distributed.Client(address, timeout=2, security=security, set_as_default=False)


def test_without_the_package_for_certificates_a_line_says_what_that_means(monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "cryptography", None)
    assert dask_module.own_security() is None
    assert "other users of this machine can use this Dask cluster" in caplog.text
    assert "pip install 'mlcluster-optim[dask]'" in caplog.text


@pytest.mark.prove
def test_a_piece_that_takes_its_workers_with_it_is_given_up_and_no_other(cluster):
    results = [result for _, result in sorted(run(cluster, [2, 3, "die", 4, 5]))]
    assert results[:2] + results[3:] == [4, 9, 16, 25]
    assert "each worker that ran it was lost" in results[2]


@pytest.mark.prove
def test_a_piece_that_outgrows_its_worker_is_recorded_as_such_and_the_others_are_done():
    import logging

    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=":0", memory_limit="1200MB",
            silence_logs=logging.CRITICAL,
        ) as own,
        distributed.Client(own) as client,
    ):  # fmt: skip
        results = dict(run(dask_module.DaskExecutor(client), [2, "hog", 3, "die", 4]))
    assert (results[0], results[2], results[4]) == (4, 9, 16)
    assert "it ran out of memory" in results[1]
    assert "out of memory, or killed by another process" in results[3]


@pytest.mark.prove
def test_a_cluster_whose_keeper_has_given_up_gets_another_one():
    """The only keeper is closed, and its worker with it, while pieces wait."""
    with dask_cluster(num_processes=1) as engine:
        own = engine.client.cluster
        results = run(engine, list(range(20)), task=Slow())
        first = [next(results) for _ in range(3)]
        (keeper,) = own.workers.values()
        own.sync(keeper.close)
        assert sorted([*first, *results]) == [(n, n * n) for n in range(20)]
        (other,) = own.workers.values()
        assert other is not keeper


@pytest.mark.prove
@pytest.mark.parametrize("seed", range(5))
def test_workers_killed_at_random_moments_cost_no_result_and_double_none(seed):
    """Ten kills per seed; pieces are long enough for a kill in the middle of one."""
    import random

    rng = random.Random(seed)
    with dask_cluster(num_processes=2) as engine:
        over = threading.Event()

        def kill():
            for _ in range(10):
                if over.wait(rng.uniform(0.2, 1.5)):
                    return
                keepers = list(engine.client.cluster.workers.values())
                if keepers and (keeper := rng.choice(keepers)).pid:
                    with suppress(ProcessLookupError):  # it has just ended
                        os.kill(keeper.pid, signal.SIGKILL)

        thread = threading.Thread(target=kill, daemon=True)
        thread.start()
        results = list(run(engine, list(range(400)), task=Slow()))
        over.set()
        thread.join()
    assert sorted(results) == [(n, n * n) for n in range(400)]


class Interrupted:
    """A client that loses a worker while its workers receive a run, a given number of times."""

    def __init__(self, losses, status="running"):
        self.losses, self.status, self.told, self.scheduler = losses, status, 0, None

    def register_plugin(self, plugin, name):
        self.told += 1
        if self.told <= self.losses:
            raise distributed.comm.core.CommClosedError("Stream is closed")


@pytest.mark.parametrize("losses", [0, 3])
def test_workers_are_told_again_where_one_is_lost_while_they_are_told(losses, monkeypatch):
    monkeypatch.setattr(dask_module, "RETRY_S", 0.0)
    client = Interrupted(losses)
    dask_module.DaskSession(client).open()
    assert client.told == losses + 1


@pytest.mark.parametrize(("status", "told", "what"), [("closed", 1, "connection"), ("running", 20, "cannot join")])
def test_a_scheduler_that_is_gone_or_a_worker_that_never_answers_is_one_line(status, told, what, monkeypatch):
    monkeypatch.setattr(dask_module, "RETRY_S", 0.0)
    client = Interrupted(100, status)
    with pytest.raises(EngineError, match=what):
        dask_module.DaskSession(client).open()
    assert client.told == told


class Deserted:
    """A client whose workers ended before its scheduler: it reports neither results nor lost batches."""

    status, scheduler = "closed", None

    def nthreads(self):
        return {}


class Impatient(SilentProgress):
    def update(self, completed, values=None):
        raise AssertionError("waits for workers that can't come any more")


def test_a_scheduler_that_is_lost_while_nothing_runs_ends_the_run(monkeypatch):
    monkeypatch.setattr(dask_module, "POLL_S", 0.01)
    waiting = dask_module._Run(Deserted(), Squares(), [1, 2])
    with pytest.raises(EngineError, match="connection to the Dask scheduler"):
        list(waiting.results(Interruption(), Impatient()))


class Slow(Squares):
    """Squares that take their time."""

    def do(self, piece, stop, progress):
        time.sleep(0.04)
        return super().do(piece, stop, progress)


@pytest.mark.prove
def test_a_scheduler_that_is_killed_ends_the_run_with_a_line_and_keeps_what_came(tmp_path):
    with processes(tmp_path / "scheduler.json") as (address, scheduler), dask_cluster(address) as engine:
        finished = run(engine, list(range(400)), task=Slow())
        came = [next(finished) for _ in range(20)]
        scheduler.kill()
        with pytest.raises(EngineError, match=r"connection to the Dask scheduler .* is lost; finished results"):
            came += list(finished)
    assert all(result == position**2 for position, result in came)


@pytest.mark.prove
def test_a_driver_that_is_killed_keeps_what_came_and_the_same_command_goes_on(tmp_path):
    command = [
        sys.executable,
        *["-m", "optim", "bench", "admission", "--instance", "tiny-0,tiny-1,tiny-2", "--no-report"],
    ]
    command += ["--solver", "online,fifo,drf,rrh,compact-milp", "--seed", "0,1,2,3", "--format", "json"]
    undisturbed, killed = tmp_path / "undisturbed.jsonl", tmp_path / "killed.jsonl"
    with processes(tmp_path / "scheduler.json") as (address, _):
        where = ["--scheduler", address, "--results", str(killed)]
        driver = subprocess.Popen([*command, *where], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not killed.exists() or killed.read_bytes().count(b"\n") < 3:
            assert driver.poll() is None, "ended before it could be killed"
            time.sleep(0.01)
        driver.kill()
        driver.wait()
        kept = killed.read_bytes()
        kept = kept[: kept.rindex(b"\n") + 1]
        subprocess.run([*command, *where], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([*command, "--results", str(undisturbed)], check=True, stdout=subprocess.DEVNULL)
    assert killed.read_bytes().startswith(kept)
    one, other = (sorted(map(strip, read_records(file)), key=row_order) for file in (undisturbed, killed))
    assert len(kept.splitlines()) < len(one)
    assert one == other


@pytest.mark.prove
@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
def test_a_worker_whose_network_is_cut_costs_no_result(tmp_path):
    """The worker runs in a network namespace; the scheduler notices its silence and reassigns its pieces."""
    space, own, far = "optim-cut", "10.213.77.1", "10.213.77.2"
    with suppress(subprocess.CalledProcessError):  # unless a run that was killed left it
        ip("netns delete", space)
    ip("netns add", space)
    try:
        ip("link add optim-near type veth peer name optim-far netns", space)
        ip("addr add", f"{own}/24", "dev optim-near")
        ip("link set optim-near up")
        inside = ["ip", "netns", "exec", space]
        for what in (f"addr add {far}/24 dev optim-far", "link set optim-far up", "link set lo up"):
            subprocess.run([*inside, "ip", *what.split()], check=True)
        with processes(tmp_path / "scheduler.json", host=own, ttl="2s", num_workers=1) as (address, _):
            cut_off = start("worker", address, *PLAIN_WORKER, before=inside)
            try:
                with dask_cluster(address) as engine:
                    engine.client.wait_for_workers(2, timeout=60)
                    finished = run(engine, list(range(400)), task=Slow())
                    came = [next(finished) for _ in range(20)]
                    ip("link set optim-near down")
                    came += list(finished)
                    assert len(engine.client.scheduler_info(n_workers=-1)["workers"]) == 1
            finally:
                cut_off.kill()
                cut_off.wait()
    finally:
        ip("netns delete", space)
    assert sorted(came) == [(n, n * n) for n in range(400)]


PLAIN_WORKER = ("--nthreads", "1", "--no-dashboard", "--nworkers", "1")


@contextmanager
def processes(file, *, host="127.0.0.1", ttl="5 minutes", num_workers=2):
    """Give the address and the process of a scheduler with workers, all in separate processes."""
    environment = {**os.environ, "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": ttl}
    own = [
        start("scheduler", *f"--host {host} --port 0 --no-dashboard --scheduler-file {file}".split(), env=environment)
    ]
    try:
        own += [start("worker", "--scheduler-file", str(file), *PLAIN_WORKER) for _ in range(num_workers)]
        while not file.exists():
            time.sleep(0.05)
        yield json.loads(file.read_text())["address"], own[0]
    finally:
        for process in own:
            process.kill()
            process.wait()


def start(what, *args, before=(), env=None):
    """Start a Dask process."""
    command = [*before, sys.executable, "-m", f"distributed.cli.dask_{what}", *args]
    return subprocess.Popen(command, stderr=subprocess.DEVNULL, env=env)


def ip(what, *names):
    """Change the network's devices."""
    words = [word for part in (what, *names) for word in part.split()]
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.mark.prove
def test_records_of_a_benchmark_are_those_that_processes_of_this_machine_make(cluster, tmp_path):
    work = plan_work(choose_suites(("admission",)), BenchRequest(solvers=("online", "fifo"))).work
    here, there = (
        sorted(map(strip, run_work(work, tmp_path / name, engine=engine)), key=row_order)
        for name, engine in (("here", local_engine(2)), ("there", cluster))
    )
    assert here == there
    assert len(here) == len(work) > 0


@pytest.mark.parametrize(
    ("seconds", "waiting", "expected"),
    [
        (None, 100, 1),
        (1e-9, 100, 17),
        (1e-9, 7, 2),
        (1e-9, 1, 1),
        (1e-9, 10**6, dask_module.MAX_PIECES),
        (1e3, 100, 1),
    ],
)
def test_a_batch_has_a_fair_part_of_what_waits(seconds, waiting, expected):
    """Two batches per thread: 100 pieces for three threads are six batches of at most 17."""
    own = SimpleNamespace(
        _seconds_a_piece=seconds, _waiting=range(waiting), _session=SimpleNamespace(threads=lambda: {"a": 1, "b": 2})
    )
    assert dask_module._Run._batch_size(own) == expected
