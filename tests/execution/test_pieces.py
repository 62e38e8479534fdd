"""Running tasks in this process, and ordering their results."""

import os

import pytest

from optim.core.errors import NotAllowedError
from optim.core.progress import SilentProgress
from optim.core.stopping import Interruption
from optim.execution import AbstractTask, ProcessExecutor, SerialExecutor, in_order, local_engine, run_in_order
from tests.support.sample_tasks import RecordedProgress, Squares


def here(pieces, stop=None, progress=None):
    return SerialExecutor().run(Squares(), pieces, stop or Interruption(), progress or SilentProgress())


class Mute(Squares):
    """Squares whose results can't report that they are lost."""

    lost = AbstractTask.lost


def test_a_piece_that_is_lost_ends_the_run_with_its_name_where_results_cannot_say_so():
    with pytest.raises(NotAllowedError, match=r"squares: die is lost: .* exit code 7; use --processes 1"):
        list(run_in_order(Mute(), [1, "die"], ProcessExecutor(2)))


def test_yields_each_result_with_its_position():
    assert list(here([3, 1, 2])) == [(0, 9), (1, 1), (2, 4)]


def test_runs_nothing_once_asked_to_stop():
    stop = Interruption()
    finished = here([3, 1, 2], stop)
    assert next(finished) == (0, 9)
    stop.request()
    assert list(finished) == []


def test_raises_what_a_piece_raises_and_leaves_no_task_of_it_open():
    heard = RecordedProgress()
    with pytest.raises(ZeroDivisionError):
        list(here([1, "divide", 2], progress=heard))
    assert heard.news == ["start squares 3", "start 1 None", "finish", "update 1", "start divide None", "start inner 2", "finish", "finish"]  # fmt: skip


def test_ends_tasks_that_a_piece_left_open_and_no_other():
    heard = RecordedProgress()
    list(here(["open", "over"], progress=heard))
    assert heard.news.count("finish") == sum(news.startswith("start") for news in heard.news)
    assert heard.depth == 0
    assert heard.least == 0


@pytest.mark.parametrize(
    ("finished", "expected"),
    [
        ([], []),
        ([(1, "b"), (0, "a"), (2, "c")], ["a", "b", "c"]),
        ([(3, "d"), (0, "a"), (2, "c")], ["a", "c", "d"]),
    ],
    ids=["none", "early ones wait", "the omitted task is skipped"],
)
def test_puts_results_in_order(finished, expected):
    assert list(in_order(finished)) == expected


def test_gives_a_result_as_soon_as_those_before_it_are_there():
    taken = []

    def finished():
        for pair in [(1, "b"), (0, "a"), (2, "c")]:
            taken.append(pair)
            yield pair

    assert next(in_order(finished())) == "a"
    assert taken == [(1, "b"), (0, "a")]


def test_starts_no_process_where_one_is_enough():
    assert isinstance(local_engine(1), SerialExecutor)


@pytest.mark.parametrize("pieces", [[], ["deaf"]], ids=["none", "one"])
def test_a_single_piece_runs_here(pieces):
    task = Here()
    assert [result for _, result in local_engine(4).run(task, pieces, Interruption(), SilentProgress())] == [
        os.getpid() for _ in pieces
    ]


class Here(Squares):
    """Tasks that report where they run."""

    def do(self, piece, stop, progress):
        return os.getpid()


def test_takes_as_many_processes_as_it_may():
    assert local_engine(3) == ProcessExecutor(3)
