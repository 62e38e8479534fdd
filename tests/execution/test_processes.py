"""Running tasks in several processes: a dead process costs only its task, and no process remains."""

import multiprocessing
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from optim.core.progress import SilentProgress
from optim.core.stopping import Interruption
from optim.execution import ProcessExecutor, in_order
from optim.execution.processes import _Queue
from tests.support.default_signals import DEFAULT_SIGNALS
from tests.support.sample_tasks import HEARD, RecordedProgress, Squares

PATIENCE_S = 60.0


def run(pieces, processes=2, *, task=None, stop=None, progress=None):
    return ProcessExecutor(processes).run(
        task or Squares(), pieces, stop or Interruption(), progress or SilentProgress()
    )


def wait_until(is_so):
    """Wait until a condition holds, and fail if it doesn't in time."""
    until = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < until, "it never came to be so"
        time.sleep(0.01)


def test_one_that_dies_costs_its_own_piece_and_ctrl_c_reaches_none():
    heard = RecordedProgress()
    pieces = [2, "die", 3, "deaf", 4]
    results = list(in_order(run(pieces, progress=heard)))
    assert results == [4, "die: its process ended with exit code 7", 9, "heard nothing", 16]
    assert heard.news == ["start squares, 2 processes 5", *(f"update {n}" for n in range(1, 6)), "finish"]
    assert multiprocessing.active_children() == []


def test_a_process_that_died_is_replaced_where_there_is_more_to_do():
    assert list(in_order(run(["die", 2, "die", 3], processes=1)))[1::2] == [4, 9]
    assert multiprocessing.active_children() == []


def test_what_a_piece_raises_ends_the_run():
    with pytest.raises(ZeroDivisionError):
        list(run([1, "divide"]))
    assert multiprocessing.active_children() == []


class _HearsCompiling(RecordedProgress):
    """Let the processes continue once two of them report that they compile."""

    def __init__(self, folder):
        super().__init__()
        self.folder, self.told = folder, []

    def update(self, completed, values=None):
        super().update(completed, values)
        assert values["failed"] is None, "none has failed: no message to show"
        self.told.append(values["compiling"])
        if self.told[-1] == 2:
            (self.folder / HEARD).touch()


class _NoNines(Squares):
    """The result 9 counts as a failure."""

    def is_failure(self, result):
        return result == 9


def test_progress_tells_how_many_pieces_failed():
    told = []

    class Listening(SilentProgress):
        def update(self, completed, values=None):
            told.append(values["failed"])

    list(run([3, 2, 3], task=_NoNines(), progress=Listening()))
    assert told[-1] == 2


def test_progress_tells_how_many_processes_compile(tmp_path):
    heard = _HearsCompiling(tmp_path)
    results = list(in_order(run(["compile", "compile", 3], task=Squares(tmp_path), progress=heard)))
    assert results == ["compiled", "compiled", 9]
    assert 2 in heard.told


class Taker:
    """A worker that records what it is given, and runs nothing."""

    kind = None

    def give(self, position, piece):
        self.kind, self.position = piece[-1], position


def test_a_process_stays_with_a_kind_and_else_takes_one_that_no_other_is_at():
    queue = _Queue(Squares(), ["process a", "process a", "process b", "process c", "process b"])
    first, second = workers = [Taker(), Taker()]
    taken = []
    for worker in (first, second, first, first, second, first):
        queue.serve(worker, workers)
        taken.append(worker.position)
    # The last one finds no task left, and keeps its result.
    assert taken == [0, 2, 1, 3, 4, 3]
    assert not queue


def test_asked_to_stop_begins_no_piece_and_stops_those_that_run(tmp_path):
    stop = Interruption()
    finished = run(["wait", "wait", "wait"], task=Squares(tmp_path), stop=stop, progress=_Requests(stop, tmp_path))
    assert sorted(finished) == [(0, "stopped, 0 s left"), (1, "stopped, 0 s left")]


class _Requests(SilentProgress):
    """Request the stop from another thread once two pieces run."""

    def __init__(self, stop, folder):
        self.stop, self.folder = stop, folder

    def start(self, task, total=None):
        def request():
            wait_until(lambda: len(list(self.folder.iterdir())) == 2)
            self.stop.request()

        threading.Thread(target=request, daemon=True).start()


def test_hands_nothing_out_once_asked_to_stop_while_a_result_is_looked_at():
    stop = Interruption()
    finished = run([1, 2, 3, 4, 5, 6], stop=stop)
    next(finished)
    stop.request()
    assert len(list(finished)) == 1


def test_ends_processes_at_once_where_the_driver_gives_up(tmp_path):
    with closing(run([3, "wait"], task=Squares(tmp_path))) as finished:
        assert next(finished) == (0, 9)
        wait_until(lambda: any(tmp_path.iterdir()))
        begun = time.monotonic()
    assert time.monotonic() - begun < 4.0
    assert multiprocessing.active_children() == []


@pytest.mark.prove
@pytest.mark.parametrize("name", ["SIGTERM", "SIGKILL", "SIGHUP"])
def test_processes_end_with_a_driver_that_is_killed(name, tmp_path):
    code = (
        f"{DEFAULT_SIGNALS}\n"
        "import multiprocessing, os, signal, sys, threading, time\n"
        "from pathlib import Path\n"
        "from optim.execution import InProcesses\n"
        "from optim.core.progress import SilentProgress\n"
        "from optim.core.stopping import Interruption\n"
        "from tests.support.sample_tasks import Squares\n"
        "if __name__ != '__main__':\n"
        "    lock = multiprocessing.get_context('spawn').Lock()  # as libraries make some when they are imported\n"
        "else:\n"
        f"    folder = Path({str(tmp_path)!r})\n"
        "    def kill():\n"
        "        while len(list(folder.iterdir())) < 2:\n"
        "            time.sleep(0.01)\n"
        f"        os.kill(os.getpid(), signal.{name})\n"
        "    threading.Thread(target=kill, daemon=True).start()\n"
        "    list(InProcesses(2).run(Squares(folder), ['wait', 'wait'], Interruption(), SilentProgress()))\n"
    )
    program = tmp_path.with_suffix(".py")
    program.write_text(code)
    root = Path(__file__).parents[2]
    ended = subprocess.run(
        [sys.executable, str(program)],
        env={"PYTHONPATH": str(root)},
        timeout=PATIENCE_S,
        check=False,
        capture_output=True,
        text=True,
    )
    children = [int(path.name) for path in tmp_path.iterdir()]
    assert len(children) == 2
    wait_until(lambda: not any(Path(f"/proc/{child}").exists() for child in children))
    assert ended.stderr == "", "the driver leaves no semaphores that Python would report"
