"""What NumPy makes in place of a compiled operation is what the operation makes: values, type of numbers, and memory."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support.quick_arrays import BY_NUMPY, quick

NUMBERS = np.array([[1.5, -2.25, 1e-3], [3.1, 1e6, -0.0]], np.float32)
CASES = [
    ("stage", (NUMBERS,), {}),
    ("stage", (np.arange(5),), {}),  # of 64 bits, which JAX makes 32
    ("copy", (NUMBERS,), {}),
    ("convert_element_type", (NUMBERS.astype(float) / 3,), {"new_dtype": np.float32, "weak_type": False}),
    ("convert_element_type", (NUMBERS / 3,), {"new_dtype": jnp.bfloat16, "weak_type": False}),
    ("convert_element_type", (np.array([3, 0, -7]),), {"new_dtype": np.bool_, "weak_type": False}),
    ("convert_element_type", (np.array([3.7, np.nan, 1e20]),), {"new_dtype": np.int32, "weak_type": False}),
    ("convert_element_type", (np.array([3, 4]),), {"new_dtype": np.float32, "weak_type": True}),
    ("broadcast_in_dim", (NUMBERS[0],), {"shape": (3, 2), "broadcast_dimensions": (0,)}),
    ("broadcast_in_dim", (NUMBERS[:, :1],), {"shape": (2, 4, 3), "broadcast_dimensions": (0, 2)}),
    ("broadcast_in_dim", (np.float32(2),), {"shape": (4,), "broadcast_dimensions": ()}),
    ("dynamic_slice", (NUMBERS, np.int32(1), np.int32(0)), {"slice_sizes": (1, 2)}),
    ("dynamic_slice", (NUMBERS, np.int32(-1), np.int32(2)), {"slice_sizes": (2, 2)}),
    ("iota", (), {"dtype": np.dtype(np.int32), "shape": (2, 3), "dimension": 1}),
    ("reshape", (NUMBERS,), {"new_sizes": (3, 2), "dimensions": None}),
    ("squeeze", (NUMBERS[:, None],), {"dimensions": (1,)}),
    ("transpose", (NUMBERS[None],), {"permutation": (2, 0, 1)}),
]
UNPLACED = {"convert_element_type", "broadcast_in_dim", "iota", "reshape"}
"""Operations that may say where what they make shall lie."""


@pytest.mark.parametrize(("name", "operands", "settings"), CASES)
def test_an_operation_done_by_numpy_is_the_compiled_one(name, operands, settings):
    primitive = next((one for one in BY_NUMPY if one.name == name), None)
    if primitive is None:
        pytest.skip(f"this release of JAX has no {name!r}")
    if name in UNPLACED:
        settings = {**settings, "sharding": None}
    compiled = jax.jit(lambda *given: primitive.bind(*given, **settings))
    expected = compiled(*operands)
    for given in (operands, jax.device_put(operands)):
        found = quick(lambda *given, **_: compiled(*given), BY_NUMPY[primitive])(*given, **settings)
        assert found.dtype == expected.dtype
        assert found.weak_type == expected.weak_type
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("size", [1, 7, 1000, 100_000])
def test_what_is_made_has_memory_of_its_own_which_may_be_donated(size):
    own = np.zeros(size, np.float32)
    first = jnp.asarray(own)
    second = jnp.array(first)
    own[:] = 1.0
    place = second.unsafe_buffer_pointer()
    donated = jax.jit(lambda array: array + 2, donate_argnums=0)(second)
    assert donated.unsafe_buffer_pointer() == place
    assert not np.asarray(first).any()


def test_an_array_of_64_bits_stays_one_where_new_ones_have_32():
    with jax.enable_x64(True):
        wide = jnp.asarray(np.array([1 / 3, 2.0]))
    assert wide.reshape(2, 1).dtype == np.float64
    assert float(jnp.array(wide).reshape(1, 2)[0, 0]) == 1 / 3


def test_keys_are_laid_out_by_the_compiled_operation():
    keys = jax.random.split(jax.random.key(0), 4)
    assert keys.reshape(2, 2).dtype == keys.dtype
    assert (jax.random.key_data(keys.reshape(2, 2)).reshape(4, 2) == jax.random.key_data(keys)).all()
