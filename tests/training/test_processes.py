"""Machines as processes: a kill is real, and no process remains."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from multiprocessing import util
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import numpy as np
import pytest

from optim.core.errors import NotAllowedError
from optim.kernels.parameter_server import Adagrad, Sgd
from optim.training.applications import LogisticRegression
from optim.training.drill import DrillOptions, kill_servers
from optim.training.messages import Compute
from optim.training.processes import Processes, _pinned_env
from optim.training.stages import ClusterOptions, Fixed, Stage
from optim.training.trainer import Action, Event, Trainer, run_alone
from tests.support.training.process_report import ReportsProcess
from tests.support.training.tells_tracing import TellsTracing

ROOT = Path(__file__).parents[2]
APPLICATION = LogisticRegression(num_observations=80, num_features=6, num_classes=3, num_partitions=4)
PATIENCE_S = 240

RUNNING = """
import signal
from optim.kernels.parameter_server import Sgd
from optim.training.applications import LogisticRegression
from optim.training.stages import ClusterOptions
from optim.training.processes import Processes
from optim.training.trainer import Action, Event, Trainer

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job would ignore it
    application = LogisticRegression(num_observations=80, num_features=6, num_classes=3, num_partitions=4)
    options = ClusterOptions(num_shards=1)
    events = [Event(clock=0, action=Action.ADD_TRANSIENT, machines=("a", "b"))]
    with Processes(application, options) as transport:
        trainer = Trainer(application, Sgd(learning_rate=0.1), options, transport)
        trainer.run(2, events)
        print(*transport.process_ids.values(), flush=True)
        trainer.run(10**9)
"""


def is_running(process_id):
    try:
        state = Path(f"/proc/{process_id}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def wait_until(condition):
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


@pytest.mark.prove
def test_machines_are_forked_from_what_has_imported_all_they_need_and_see_their_controllers_surroundings(monkeypatch):
    application = ReportsProcess(1, 4)
    for told in (3.0, 7.0):  # the second time the fork server exists already
        monkeypatch.setenv("OPTIM_TOLD", str(told))
        with Processes(application, ClusterOptions()) as transport:
            transport.start("a")
            assert transport.receive().machine == "a"
            view = application.initial_parameters()
            transport.send("a", Compute(generation=0, partition=0, clock=0, read_clock=0, parameters=view))
            assert transport.receive().loss == told + 0.5


def test_a_machine_is_spawned_when_what_it_was_to_be_forked_from_is_killed_just_then(monkeypatch):
    def lost(process):
        raise EOFError("unexpected EOF")

    monkeypatch.setattr(ForkServerProcess, "_Popen", staticmethod(lost))
    with Processes(APPLICATION, ClusterOptions()) as transport:
        transport.start("a")
        assert transport.receive(PATIENCE_S).machine == "a"


@pytest.mark.prove
def test_what_machines_are_forked_from_has_not_started_jax_whose_threads_a_fork_would_lose():
    code = "import os, optim.training.preloaded; assert len(os.listdir('/proc/self/task')) == 1"
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"})


def test_a_machine_that_was_told_to_end_is_not_told_of_as_lost_and_one_that_was_killed_is():
    with Processes(APPLICATION, ClusterOptions()) as transport:
        for machine in ("a", "b"):
            transport.start(machine)
            assert transport.receive().machine == machine
        transport.stop("a")
        transport.kill("b")
        assert transport.receive().machine == "b"
        assert transport.receive() is None
        assert transport.process_ids == {}


def test_a_message_is_waited_for_as_long_as_is_said():
    with Processes(APPLICATION, ClusterOptions()) as transport:
        transport.start("a")
        assert transport.receive(PATIENCE_S).machine == "a"
        begun = time.monotonic()
        assert transport.receive(0.05) is None
        assert time.monotonic() - begun >= 0.05


@pytest.mark.prove
@pytest.mark.parametrize(("kills", "replay_mb"), [(1, 0.0), (6, 0.0), (6, 1.0)])
def test_killed_servers_leave_the_losses_of_an_undisturbed_run(kills, replay_mb):
    options = ClusterOptions(num_shards=2, sync_every=3, replay_mb=replay_mb)
    before = set(os.listdir("/dev/shm")) if Path("/dev/shm").exists() else set()
    rows = list(kill_servers(APPLICATION, Adagrad(learning_rate=0.1), options, DrillOptions(kills=kills, transient=2)))
    assert [row.is_equal for row in rows] == [True] * kills
    # A backup gets every third clock; that it has the last of them may still be on its way when the server dies.
    assert all(row.to_clock <= row.from_clock < row.to_clock + 2 * 3 for row in rows)
    assert all(row.replayed_to == (row.from_clock if replay_mb else row.to_clock) for row in rows)
    # All repeated clocks and four more; one further clock may have been in progress.
    assert {row.clocks_compared - (row.from_clock - row.to_clock) for row in rows} <= {4, 5}
    assert not any(is_running(row.process_id) for row in rows)
    assert set(os.listdir("/dev/shm")) <= before if before else True


def test_processes_compute_the_bits_of_this_process_also_when_workers_die_leave_or_stand_still():
    options = ClusterOptions(num_shards=2, silence_s=1.0)
    start = [
        Event(clock=0, action=Action.ADD_RELIABLE, machines=("r0", "r1")),
        Event(clock=0, action=Action.ADD_TRANSIENT, machines=("t0", "t1")),
    ]
    changes = [
        Event(clock=3, action=Action.KILL, machines=("t0",), after_messages=1),
        Event(clock=6, action=Action.EVICT, machines=("r1",)),
    ]
    expected = Trainer(APPLICATION, Sgd(learning_rate=0.5), options).run(12, start)
    with Processes(APPLICATION, options) as transport:
        trainer = Trainer(APPLICATION, Sgd(learning_rate=0.5), options, transport)
        trainer.run(8, [*start, *changes])
        os.kill(transport.process_ids["t1"], signal.SIGSTOP)  # it neither works nor dies
        record = trainer.run(12)
        assert trainer.controller.machines.staying == ("r0",)
        survivors = transport.process_ids
    assert record.losses == expected.losses
    assert np.array_equal(record.parameters, expected.parameters)
    assert not any(is_running(process_id) for process_id in survivors.values())


@pytest.mark.prove
@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.prove)])
def test_no_process_outlives_an_interrupted_or_killed_controller(number, tmp_path):
    script = tmp_path / "running.py"
    script.write_text(RUNNING, encoding="utf-8")
    running = subprocess.Popen(
        [sys.executable, str(script)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    children = [int(word) for word in running.stdout.readline().split()]
    assert len(children) == 2
    if number == signal.SIGINT:
        os.killpg(running.pid, number)  # as from a terminal: all processes of the group get the signal
    else:
        os.kill(running.pid, number)
    _, errors = running.communicate(timeout=PATIENCE_S)
    wait_until(lambda: not any(is_running(child) for child in children))
    assert "leaked" not in errors
    assert running.returncode != 0


ENDLESS = """
import os, signal, time
from optim.kernels.parameter_server import Sgd
from optim.training.applications import LogisticRegression
from optim.training.stages import ClusterOptions
from optim.training.processes import Processes
from optim.training.trainer import Action, Event, Trainer

class Endless(LogisticRegression):
    def gradient(self, parameters, partition, clock):
        print(os.getpid(), flush=True)
        os.kill(int(os.environ["CONTROLLER"]), signal.SIGKILL)
        time.sleep(10**6)

if __name__ == "__main__":
    os.environ["CONTROLLER"] = str(os.getpid())
    application = Endless(num_observations=8, num_features=2, num_classes=2, num_partitions=2)
    options = ClusterOptions(num_shards=1)
    with Processes(application, options) as transport:
        trainer = Trainer(application, Sgd(learning_rate=0.1), options, transport)
        trainer.run(1, [Event(clock=0, action=Action.ADD_RELIABLE, machines=("a",))])
"""


@pytest.mark.prove
def test_a_machine_in_a_gradient_that_never_ends_ends_with_its_controller_and_no_file_is_left():
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # sockets need a short name
        _end_controller(Path(folder))


def _end_controller(tmp_path):
    temporary = tmp_path / "t"
    temporary.mkdir()
    script = tmp_path / "endless.py"
    script.write_text(ENDLESS, encoding="utf-8")
    told = tmp_path / "told"
    with told.open("w") as file:
        found = subprocess.run(
            [sys.executable, str(script)],
            env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(temporary)},
            stdout=file,
            check=False,
        )
    assert found.returncode == -signal.SIGKILL
    process_id = int(told.read_text(encoding="utf-8"))
    try:
        wait_until(lambda: not is_running(process_id))
        wait_until(lambda: not list(temporary.iterdir()))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process_id, signal.SIGKILL)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system doesn't report a process' signals")
def test_a_process_never_hears_ctrl_c_not_even_while_it_starts():
    with Processes(APPLICATION, ClusterOptions(num_shards=1), max_machines=1) as transport:
        transport.start("a")
        (process_id,) = transport.process_ids.values()
        told = Path(f"/proc/{process_id}/status").read_text(encoding="utf-8").splitlines()
        (blocked,) = (int(line.split()[1], 16) for line in told if line.startswith("SigBlk:"))
        assert blocked >> (signal.SIGINT - 1) & 1
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ()), "the controller does"


def test_more_machines_than_places_are_refused():
    options = ClusterOptions(num_shards=1)
    with Processes(APPLICATION, options, max_machines=1) as transport:
        transport.start("a")
        with pytest.raises(NotAllowedError, match="1 machines exist already"):
            transport.start("b")


class Telling(LogisticRegression):
    """An application whose loss is 1 where the machine has no platform but the CPU."""

    def gradient(self, parameters, partition, clock):
        import jax

        gradient, _ = super().gradient(parameters, partition, clock)
        is_alone = os.environ["JAX_PLATFORMS"] == "cpu" and jax.default_backend() == "cpu"
        return gradient, float(is_alone) * self.weight(partition)


def test_threads_that_start_machines_at_once_put_back_what_was_there_before_all_of_them(monkeypatch):
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    inside, may_go = threading.Event(), threading.Event()

    def first():
        with _pinned_env():
            inside.set()
            may_go.wait(PATIENCE_S)

    def second():
        with _pinned_env():
            entered.set()

    entered = threading.Event()
    threads = [threading.Thread(target=target) for target in (first, second)]
    threads[0].start()
    assert inside.wait(PATIENCE_S)
    threads[1].start()
    assert not entered.wait(0.05)
    may_go.set()
    for thread in threads:
        thread.join()
    assert "JAX_PLATFORMS" not in os.environ


def test_a_machine_that_joins_compiles_before_it_is_ready(monkeypatch, tmp_path):
    told = tmp_path / "told"
    monkeypatch.setenv("OPTIM_TOLD", str(told))
    application = TellsTracing(num_observations=80, num_features=6, num_classes=3, num_partitions=4)
    options = ClusterOptions(num_shards=1, policy=Fixed(fixed=Stage.TRADITIONAL))
    with Processes(application, options) as transport:
        trainer = Trainer(application, Sgd(learning_rate=0.5), options, transport)
        trainer.run(3, [Event(clock=0, action=Action.ADD_RELIABLE, machines=("first",))])
        trainer.apply(Event(clock=0, action=Action.ADD_RELIABLE, machines=("late",)))
        process_id = str(transport.process_ids["late"])
        while trainer.controller.machines.joining:
            trainer.step()
        times = told.read_text().split().count(process_id)
        trainer.run(6)
        assert set(trainer.controller.owners) == {"first", "late"}
    assert 1 <= times == told.read_text().split().count(process_id), "traced before it was ready, and never after"


@pytest.mark.prove
def test_a_machine_that_joins_finds_what_others_compiled_and_computes_the_same_bits(monkeypatch):
    monkeypatch.setenv("JAX_ENABLE_COMPILATION_CACHE", "true")
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    compiled = Path(util.get_temp_dir(), "compiled")
    options = ClusterOptions(num_shards=1, policy=Fixed(fixed=Stage.TRADITIONAL))
    with Processes(APPLICATION, options) as transport:
        trainer = Trainer(APPLICATION, Sgd(learning_rate=0.5), options, transport)
        trainer.run(3, [Event(clock=0, action=Action.ADD_RELIABLE, machines=("first",))])
        before = {path.name for path in compiled.iterdir()}
        trainer.run(6, [Event(clock=3, action=Action.ADD_RELIABLE, machines=("late",))])
        after = trainer.run(9)
        assert set(trainer.controller.owners) == {"first", "late"}
    assert len(before) == len(list(compiled.iterdir())) > 0
    assert after.equals(run_alone(APPLICATION, Sgd(learning_rate=0.5), 9))


def test_a_users_own_cache_is_shared(monkeypatch):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "/own")
    with _pinned_env():
        assert os.environ["JAX_COMPILATION_CACHE_DIR"] == "/own"
    assert os.environ["JAX_COMPILATION_CACHE_DIR"] == "/own"


def test_surroundings_are_put_back(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    with _pinned_env():
        assert (os.environ["OMP_NUM_THREADS"], os.environ["JAX_PLATFORMS"]) == ("1", "cpu")
    assert os.environ["OMP_NUM_THREADS"] == "3"
    assert "JAX_PLATFORMS" not in os.environ


@pytest.mark.prove
def test_machines_leave_a_gpu_to_others():
    application = Telling(num_observations=8, num_features=2, num_classes=2, num_partitions=2)
    options = ClusterOptions(num_shards=1)
    with Processes(application, options) as transport:
        trainer = Trainer(application, Sgd(learning_rate=0.5), options, transport)
        record = trainer.run(1, [Event(clock=0, action=Action.ADD_RELIABLE, machines=("r0",))])
    assert record.losses == (1.0,)
