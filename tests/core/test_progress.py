"""Printed progress, and the messages while loops are compiled."""

import io
import re

import jax
import jax.numpy as jnp
import pytest

import optim
import optim.kernels  # has JAX watched
from optim.core.progress import COMPILING, XLA, Compiling, PrintedProgress, SilentProgress, listener_of


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


def test_whoever_listens_hears_of_each_beginning_and_end():
    compiling, heard = Compiling(), []
    compiling.begin("unheard")
    compiling.on_change = heard.append
    compiling.begin("inner")
    compiling.end("inner")
    compiling.end("never begun")
    compiling.end("unheard")
    assert heard == [True, True, False]


def test_what_ends_takes_along_what_began_within_it_and_never_ended():
    compiling = Compiling()
    for name in ("outer", "inner", "outer", "failed", "failed within"):
        compiling.begin(name)
    compiling.end("outer")  # the inner one of that name
    assert compiling.name == "inner"
    compiling.end("inner")
    assert compiling.name == "outer"
    compiling.end("outer")
    assert compiling.name is None
    assert compiling.done == 3


def test_what_jax_compiles_is_told(monkeypatch):
    names = []
    monkeypatch.setattr(COMPILING, "on_change", lambda _: names.append(COMPILING.name))
    done = COMPILING.done
    step = jax.jit(lambda x: jnp.sin(x) * 3.25)
    argument = jnp.arange(7.0)
    names.clear()
    step(argument)
    assert names == [XLA, None]
    assert COMPILING.done > done
    step(argument)
    assert names == [XLA, None], "reported again without compiling"


def test_what_fails_to_compile_is_forgotten(monkeypatch):
    @jax.jit
    def fails(x):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails(1.0)
    assert COMPILING.name is None
