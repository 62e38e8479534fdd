"""What plain loops and options of kernels come to on a few numbers, compared with what is kept; loops run as Python."""

from pathlib import Path

import numpy as np
from optim_studies.kernels import baselines
from optim_studies.kernels.baselines import KernelOptions, TrapOptions, _installed, furthest
from optim_studies.kernels.server import _num_bytes

from tests.support.kept import assert_kept, outcome, parts
from tests.support.variants import option_variants

KEPT = Path(__file__).parent / "kept"
F = np.float32


def plain(compiled):
    """Return a loop as it is written."""
    return getattr(compiled, "py_func", compiled)


def arrays(*shapes):
    rng = np.random.default_rng(3)
    return [rng.standard_normal(shape).astype(F) for shape in shapes]


def told(*values):
    return [[f"{float(number):.4f}" for number in np.ravel(one)] for one in values]


def test_loops():
    found = {}
    w, m, v, *pushes = arrays(6, 6, 6, 6, 6)
    v = np.abs(v)
    for name, more in {
        "dense_sgd": (F(0.1),),
        "dense_adam": None,
        "dense_momentum": (F(0.1), F(0.9)),
        "dense_adagrad": (F(0.1), F(1e-3)),
    }.items():
        state = [one.copy() for one in (w, m, v)]
        if name == "dense_adam":
            plain(baselines.dense_adam)(*state, tuple(pushes), F(0.1), F(0.9), F(0.99), F(1e-3), 3, 1, 5)
        elif name == "dense_sgd":
            plain(baselines.dense_sgd)(state[0], tuple(pushes), *more, 1, 5)
        else:
            plain(getattr(baselines, name))(state[0], state[2], tuple(pushes), *more, 1, 5)
        found[name] = told(*state)
    rows, (table, values) = np.array([1, 3, 1]), arrays((5, 2), (3, 2))
    one = table.copy()
    plain(baselines.sparse_sgd)(one, rows, values, F(0.5))
    two, squares = table.copy(), np.abs(table.copy())
    plain(baselines.sparse_adagrad)(two, squares, rows, values, F(0.5), F(1e-3), np.full(5, -1), np.zeros((3, 2), F))
    out, target, total = np.zeros((3, 2), F), np.zeros(6, F), w.copy()
    plain(baselines.pull)(table, rows, out)
    plain(baselines.copy)(w, target)
    plain(baselines.push)(total, m, F(0.25))
    within, damped, sent, left = w.copy(), w.copy(), w.copy(), m.copy()
    plain(baselines.in_place)(within, 1, 4)
    plain(baselines.damped_sgd)(damped, np.stack(pushes), np.array([0.5, 0.25], F), F(0.1))
    noise = np.random.default_rng(1).random(6).astype(F)
    plain(baselines.push_int8)(sent, left, 3 * v, noise, F(4.0))
    found |= {
        "sparse": told(one, two, squares),
        "moved": told(out, target, total, within, damped),
        "int8": told(sent, left),
    }
    assert_kept(KEPT / "loops.json", found)


def test_options_and_sides():
    found = {
        f"{kind.__name__} {what}": outcome(lambda kind=kind, given=given: parts(kind(**given)))
        for kind in (KernelOptions, TrapOptions)
        for what, given in option_variants(kind)
    }
    found["furthest"] = [furthest(np.zeros(3), np.array([0.0, -2.0, 1.0])), furthest(np.zeros(2), np.zeros(2))]
    found["bytes"] = [_num_bytes(count, size) for count in (0, 1, 4) for size in (1, 16, 17, 1000)]
    sides = _installed(
        {"json": lambda module, *data: lambda: (module.__name__, data), "not_installed_at_all": lambda *_: None}, 1, 2
    )
    found["sides"] = {name: side() for name, side in sides.items()}
    assert_kept(KEPT / "options.json", found)
