"""Words against published answers, shuffles against the definition of a permutation, draws against their probability."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from optim.kernels import counter_random
from optim.kernels.counter_random import SHUFFLE_ROUNDS, seed_words

# As the kernels call them, and compiled at once instead of operation by operation.
bernoulli, threefry = jax.jit(counter_random.bernoulli), jax.jit(counter_random.threefry)
shuffled = jax.jit(counter_random.shuffled, static_argnums=(2, 3))


@pytest.mark.parametrize(
    ("key", "counter", "words"),
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_threefry_gives_the_published_answers(key, counter, words):
    # Known answers of the Random123 library, threefry2x32 with 20 rounds.
    found = threefry(jnp.asarray(key, jnp.uint32), *(np.uint32(one) for one in counter))
    assert tuple(int(word) for word in found) == words


@pytest.mark.parametrize(("outer", "inner"), [(1, 1), (1, 9), (7, 1), (2, 2), (13, 32), (196, 1024), (70000, 3)])
def test_a_shuffle_is_a_permutation(outer, inner):
    seed = seed_words(jax.random.key(outer), SHUFFLE_ROUNDS)
    found = shuffled(seed, np.arange(outer * inner, dtype=np.int32), outer, inner)
    np.testing.assert_array_equal(np.sort(found), np.arange(outer * inner))


def published_hash(word):
    """The best known two-round function of Wellons' hash prospector (2018), "lowbias32"."""
    word = (word ^ word >> 16) * 0x7FEB352D % 2**32
    word = (word ^ word >> 15) * 0x846CA68B % 2**32
    return word ^ word >> 16


@pytest.mark.parametrize(("outer", "inner"), [(13, 32), (70000, 3), (2, 65537)])
def test_a_shuffle_shifts_each_digit_by_the_published_hash_of_the_other(outer, inner):
    seed = seed_words(jax.random.key(5), SHUFFLE_ROUNDS)
    index = np.linspace(0, outer * inner - 1, 200).astype(np.int32)
    found = shuffled(seed, jnp.asarray(index), outer, inner)
    for before, after in zip(index.tolist(), found.tolist(), strict=True):
        digits = list(divmod(before, inner))
        for turn, word in enumerate(seed.tolist()):
            limit = (outer, inner)[turn % 2]
            mixed = published_hash(digits[1 - turn % 2] ^ word)
            shift = mixed % limit if limit > 2**16 else (mixed >> 16) * limit >> 16
            digits[turn % 2] = (digits[turn % 2] + shift) % limit
        assert digits[0] * inner + digits[1] == after


def test_a_shuffle_spreads_neighbours_over_the_batches():
    outer, inner = 64, 256
    order = np.asarray(
        shuffled(seed_words(jax.random.key(1), SHUFFLE_ROUNDS), np.arange(outer * inner, dtype=np.int32), outer, inner)
    )
    batch_of = np.empty(outer * inner, np.int64)
    batch_of[order] = np.arange(outer * inner) // inner
    same = np.mean(batch_of[:-1] == batch_of[1:])
    assert same == pytest.approx(1 / outer, abs=5 * np.sqrt(1 / outer / order.size))
    # Chi-squared of where the first quarter of the windows goes: 63 degrees of freedom.
    counts = np.bincount(batch_of[: order.size // 4], minlength=outer)
    assert np.sum((counts - inner / 4) ** 2 / (inner / 4)) < 63 + 5 * np.sqrt(126)


@pytest.mark.parametrize("columns", [1, 2, 999, 1000])
def test_draws_have_their_probabilities_and_do_not_depend_on_padding(columns):
    probability = np.broadcast_to(np.array([0.0, 0.1, 0.5, 0.9, 1.0], np.float32)[:, None], (5, columns))
    seed = seed_words(jax.random.key(4), 2)
    draws = np.stack([np.asarray(bernoulli(seed, np.uint32(draw), probability)) for draw in range(20)])
    np.testing.assert_allclose(draws.mean(axis=(0, 2)), probability[:, 0], atol=5 * 0.5 / np.sqrt(20 * columns))
    assert set(np.unique(draws)) <= {0.0, 1.0}
    assert (draws[:, 0] == 0).all()
    assert (draws[:, 4] == 1).all()
    fewer = np.asarray(bernoulli(seed, np.uint32(3), probability[:2]))
    np.testing.assert_array_equal(fewer, draws[3][:2])
