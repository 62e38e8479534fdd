"""Kernels on a GPU, checked in their lowering without a GPU: no transfer to the host, no double precision."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from optim.kernels import crbm, hidden_markov, k_means, min_plus
from optim.kernels import parameter_server as ps
from optim.kernels.parameter_server.sparse import sum_runs
from tests.support.lowering import BY_HAND, ROUND_TRIPS, doubles, lowered, racing_scatters

SIZE, WIDTH = 24, 4


def floats(*shape):
    return jnp.ones(shape, jnp.float32)


def whole(*shape):
    return jnp.zeros(shape, jnp.int32)


def pushed(rule, slots):
    layout = ps.RowLayout(optimiser=rule, width=WIDTH, method="sort")
    arrays = [floats(SIZE, WIDTH) for _ in range(1 + slots)]

    def push(arrays, rows, values, version):
        return ps.push_sparse(ps.Rows(arrays[0], tuple(arrays[1:])), rows, values, version, layout=layout)

    return push, (arrays, whole(8), floats(8, WIDTH), whole())


def applied(rule, slots):
    run = partial(ps.apply_pushes, optimiser=rule)
    pushes = [floats(SIZE) for _ in range(3)]
    return run, (floats(SIZE), tuple(floats(SIZE) for _ in range(slots)), pushes, floats(3), whole())


def trained():
    state = crbm.initial_state(crbm.initial_parameters(jax.random.key(0), num_visible=2, num_hidden=3, num_delays=2))
    run = partial(crbm.train, num_epochs=2, batch_size=4)
    return run, (state, floats(20, 2), jnp.arange(2, 18, dtype=jnp.int32), crbm.Rates(), jax.random.key(1))


RATE = {"learning_rate": 0.1}
SPARSE = {
    "sparse sgd": lambda: pushed(ps.Sgd(**RATE), 0),
    "sparse adagrad": lambda: pushed(ps.Adagrad(**RATE), 1),
}
QUICK = {
    **SPARSE,
    "sgd": lambda: applied(ps.Sgd(**RATE), 0),
    "adagrad": lambda: applied(ps.Adagrad(**RATE), 1),
    "adam": lambda: applied(ps.Adam(**RATE), 2),
    "pull": lambda: (ps.pull_rows, (ps.Rows(floats(SIZE, WIDTH), ()), whole(8))),
    "min plus": lambda: (
        partial(min_plus.best_payoffs, width=5),
        (floats(3, 4, 3), floats(3, 4), whole(3) + 2),
    ),
}
SLOW = {
    "crbm": trained,
    "k-means": lambda: (partial(k_means.fit, num_clusters=3), (floats(SIZE, 2), jax.random.key(0))),
    "hidden Markov": lambda: (
        partial(hidden_markov.fit, num_states=2),
        (floats(2, SIZE, 2), whole(2) + SIZE, jax.random.key(0)),
    ),
}


@pytest.mark.parametrize(
    "build",
    [
        *(pytest.param(build, id=name) for name, build in QUICK.items()),
        *(pytest.param(build, id=name, marks=pytest.mark.prove) for name, build in SLOW.items()),
    ],
)
def test_nothing_goes_back_to_the_host_and_nothing_is_reckoned_in_double_precision(build):
    kernel, arguments = build()
    with jax.enable_x64(True):
        text = lowered(kernel, arguments)
    assert ROUND_TRIPS.search(text) is None
    assert doubles(text) == []


@pytest.mark.parametrize("build", [pytest.param(build, id=name) for name, build in SPARSE.items()])
def test_sums_of_equal_rows_are_no_additions_that_race(build):
    text = lowered(*build())
    assert '"stablehlo.scatter"' in text or f"@{BY_HAND}" in text
    assert racing_scatters(text) == []
    assert "atomic" not in text


def test_what_asks_the_host_and_what_reckons_in_doubles_is_noticed():
    def asks(x):
        return jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    def goes(x):
        return jax.device_put(x + 1.0, jax.memory.Space.Host)

    # A callback has code for a single platform, and its code can't be cached.
    with pytest.raises((ValueError, NotImplementedError), match=r"lowering platform cuda|host_callbacks"):
        lowered(asks, (floats(3),))
    assert ROUND_TRIPS.search(lowered(goes, (floats(3),))) is not None
    with jax.enable_x64(True):
        assert doubles(lowered(lambda x: x.astype(jnp.float64) + 1.0, (floats(3),)))


def test_runs_add_up_on_an_accelerator_as_one_after_the_other():
    rng = np.random.default_rng(0)
    for count in (1, 50):
        rows = np.sort(rng.integers(0, 9, count))
        values = rng.normal(size=(count, WIDTH)).astype(np.float32)
        is_first = np.append(True, rows[1:] != rows[:-1])
        segment = np.cumsum(is_first) - 1
        expected = np.zeros((count, WIDTH))
        np.add.at(expected, segment, values.astype(np.float64))
        found = jax.jit(sum_runs)(jnp.array(is_first), jnp.array(segment), jnp.array(values))
        assert np.asarray(found) == pytest.approx(expected, abs=1e-5)


def test_min_plus_is_one_launch_on_a_card_and_one_loop_where_kernels_by_hand_are_missing():
    """A kernel by hand, once; else a loop over slots in whose body one reduction takes all counts, and on a CPU a loop in the loop."""
    few, many = ((floats(3, 4, largest + 1), floats(3, 4), whole(3) + 2) for largest in (3, 40))
    assert lowered(partial(min_plus.best_payoffs, width=5), few).count(f"@{BY_HAND}") == 1
    run = partial(min_plus._slot_by_slot, width=5)
    text = lowered(run, few)
    assert text.count("stablehlo.while") == 1
    assert text.count("applies stablehlo.minimum") == 1
    assert text.count("stablehlo.") == lowered(run, many).count("stablehlo."), "not an operation more for more counts"
    on_cpu = export.export(jax.jit(run), platforms=["cpu"])(*few).mlir_module()
    assert on_cpu.count("stablehlo.while") == 2


def machine(kernel, *more):
    parameters = crbm.initial_parameters(jax.random.key(0), num_visible=2, num_hidden=3, num_delays=2)
    return kernel, (parameters, *more)


ENDS = np.arange(2, 18, dtype=np.int32)
WITH_PRODUCTS = {
    **SLOW,
    "encode": lambda: machine(crbm.encode, floats(20, 2), ENDS),
    "free energy": lambda: machine(crbm.free_energy, floats(20, 2), ENDS),
    "forecast error": lambda: machine(crbm.forecast_error, floats(20, 2), ENDS),
    "roll out": lambda: machine(partial(crbm.roll_out, num_steps=2), floats(2, 2), jax.random.key(0)),
}


@pytest.mark.parametrize(
    "name",
    [*(name for name in WITH_PRODUCTS if name not in SLOW), *(pytest.param(n, marks=pytest.mark.prove) for n in SLOW)],
)
def test_products_are_those_of_single_precision_and_none_is_rounded_to_fewer_bits(name):
    """A GPU would use TensorFloat-32 for a product without a stated precision: ten bits, errors of 3e-4."""
    products = [line for line in lowered(*WITH_PRODUCTS[name]()).splitlines() if "stablehlo.dot_general" in line]
    assert products
    assert [line for line in products if "precision = [HIGHEST, HIGHEST]" not in line] == []
