"""What is compiled is told while it is."""

import jax
import jax.numpy as jnp
import pytest

import optim.kernels  # noqa: F401  # has JAX watched
from optim.core.progress import COMPILING, XLA, Compiling


def test_whoever_listens_hears_of_each_beginning_and_end():
    compiling, heard = Compiling(), []
    compiling.begin("unheard")
    compiling.tell = heard.append
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
    monkeypatch.setattr(COMPILING, "tell", lambda _: names.append(COMPILING.name))
    done = COMPILING.done
    step = jax.jit(lambda x: jnp.sin(x) * 3.25)
    argument = jnp.arange(7.0)
    names.clear()
    step(argument)
    assert names == [XLA, None]
    assert COMPILING.done > done
    step(argument)
    assert names == [XLA, None], "told again without compiling"


def test_what_fails_to_compile_is_forgotten(monkeypatch):
    @jax.jit
    def fails(x):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails(1.0)
    assert COMPILING.name is None
