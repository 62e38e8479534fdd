"""Ctrl-C during `optim.solve`: the best result so far is returned, or carried by the exception."""

import signal
import threading
from dataclasses import replace

import pytest

import optim
from optim.core.driver import stopping_at_ctrl_c
from optim.core.errors import InvalidOptionError
from optim.core.solution import Termination

LONG = {"num_moves": 10**9}


class Pressing:
    """Progress that sends Ctrl-C at its first report, or a given number of times."""

    def __init__(self, times=1):
        self.times, self.news = times, 0

    def start(self, task, total=None):
        pass

    def update(self, completed, values=None):
        self.news += 1
        if self.times and self.news > 3:
            self.times -= 1
            signal.raise_signal(signal.SIGINT)

    def finish(self):
        pass


@pytest.fixture(autouse=True)
def default_handler():
    """Restore the default effect of Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)


def test_the_exception_carries_the_best_plan_so_far():
    instance = optim.reference_instance("small-0")
    with pytest.raises(optim.SolveInterrupted, match=r"'search' was interrupted; its solution so far") as caught:
        optim.solve(instance, "search", options=LONG, progress=Pressing())
    solution = caught.value.solution
    assert solution.termination.value == "interrupted"
    assert solution.objective > 0
    assert optim.verify(instance, solution).is_ok
    assert isinstance(caught.value, KeyboardInterrupt)  # a program that catches nothing ends as before
    assert not isinstance(caught.value, Exception)


@pytest.mark.parametrize(
    ("name", "solver", "options"),
    [
        ("small-0", "search", LONG),
        ("medium-0", "online", {}),
        pytest.param("medium-0", "column-generation", {}, marks=pytest.mark.prove),
        pytest.param("small-0", "dorm", {}, marks=pytest.mark.prove),
    ],
)
def test_on_request_the_solution_is_returned(name, solver, options):
    instance = optim.reference_instance(name)
    solution = optim.solve(instance, solver, options=options, progress=Pressing(), on_interrupt="return")
    assert solution.termination.value == "interrupted"
    assert optim.verify(instance, solution).is_ok


def test_a_second_ctrl_c_aborts_at_once():
    instance = optim.reference_instance("small-0")

    class Twice(Pressing):
        def update(self, completed, values=None):
            if self.times:
                self.times -= 2
                signal.raise_signal(signal.SIGINT)
                signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt) as caught:
        optim.solve(instance, "search", options=LONG, progress=Twice(2))
    assert not isinstance(caught.value, optim.SolveInterrupted)


def test_whoever_handles_ctrl_c_already_goes_on_doing_so():
    heard = []
    signal.signal(signal.SIGINT, lambda *_: heard.append(1))
    with stopping_at_ctrl_c() as interruption:
        signal.raise_signal(signal.SIGINT)
    assert (heard, interruption.is_requested) == ([1], False)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_solves_run_in_threads():
    found = []
    instance = optim.reference_instance("tiny-0")
    thread = threading.Thread(target=lambda: found.append(optim.solve(instance, "online").objective))
    thread.start()
    thread.join()
    assert found[0] > 0


def test_any_other_answer_is_refused():
    with pytest.raises(InvalidOptionError, match="on_interrupt must be 'raise' or 'return', got 'ignore'"):
        optim.solve(optim.reference_instance("tiny-0"), "online", on_interrupt="ignore")


def test_help_says_what_ctrl_c_does():
    assert "Ctrl-C" in optim.solve.__doc__
    assert "SolveInterrupted" in optim.solve.__doc__
    assert "True prints a line at each improvement" in optim.solve.__doc__


@pytest.mark.parametrize(
    ("end", "said"), [("completed", "finished after Ctrl-C; its"), ("interrupted", "was interrupted; its")]
)
def test_the_exception_tells_whether_the_solve_came_to_its_end(end, said):
    solution = optim.solve(optim.reference_instance("tiny-0"), "fifo")
    ended = replace(solution, termination=Termination(end))
    assert f"'fifo' {said} solution" in str(optim.SolveInterrupted(ended))
