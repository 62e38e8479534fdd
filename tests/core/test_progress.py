"""Progress that is printed: a line at each improvement."""

import io
import re

import pytest

import optim
from optim.core.progress import PrintedProgress, SilentProgress, listener_of


def test_a_line_is_printed_when_objective_or_bound_moved():
    stream = io.StringIO()
    told = PrintedProgress(stream)
    told.start("search", 10)
    told.update(1, {"objective": None, "bound": 20.0, "gap": None})
    told.update(2, {"objective": None, "bound": 20.0, "gap": None})
    told.update(3, {"objective": 10.0, "bound": 20.0, "gap": 1.0, "columns": 5.0})
    told.update(4, {"objective": 10.0000001, "bound": 20.0, "gap": 1.0})
    told.update(5, {"objective": 0.0, "bound": 20.0})
    told.finish()
    told.finish()
    told.update(6, {"objective": 1.0})
    lines = [line[12:] for line in stream.getvalue().splitlines()]
    assert lines == [
        "search, 10 steps",
        "search: step 1, bound 20",
        "search: step 3, objective 10, bound 20, gap 1, columns 5",
        "search: step 5, objective 0, bound 20",
        "solve: step 6, objective 1",
    ]
    assert all(re.match(r" +\d+\.\d s  ", line) for line in stream.getvalue().splitlines())


@pytest.mark.prove
def test_true_prints_and_the_default_is_silent(capsys):
    instance = optim.reference_instance("small-0")
    optim.solve(instance, "online")
    assert capsys.readouterr() == ("", "")
    optim.solve(instance, "search", options={"num_moves": 500}, progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "objective" in err
    assert "bound" in err
    assert len(err.splitlines()) >= 3


def test_who_listens_is_chosen_by_what_is_given():
    own = SilentProgress()
    assert listener_of(own) is own
    assert isinstance(listener_of(True), PrintedProgress)
    assert [type(listener_of(silent)) for silent in (False, None)] == [SilentProgress, SilentProgress]
