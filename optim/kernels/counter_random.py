"""Random words and a shuffle as functions of a counter: no state is stored, and each element can be computed independently.

Threefry is written out round by round, so that the compiler fuses it with the operations on its results and vectorises
both. JAX's generator loops over the rounds on CPUs, which prevents this fusion.
"""

import jax
import jax.numpy as jnp

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA
SHUFFLE_ROUNDS = 6

_HALF_WORD = 1 << 16


def seed_words(key: jax.Array, count: int) -> jax.Array:
    """Return `count` words derived from a key of any of JAX's generators; uint32, shape (count,)."""
    return jax.random.bits(key, (count,), jnp.uint32)


def threefry(seed: jax.Array, low: jax.Array, high: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return two random words for each counter: Threefry-2x32 with 20 rounds.

    Parameters
    ----------
    seed
        Shape (2,), uint32: the cipher's key.
    low, high
        Lower and upper words of the counters, uint32, of one shape; `high` may be a scalar.

    Returns
    -------
    tuple
        Two arrays of the counters' shape, uint32.

    References
    ----------
    Salmon, Moraes, Dror and Shaw (2011). Parallel random numbers: as easy as 1, 2, 3. doi:10.1145/2063384.2063405,
    section 3.3.
    """
    schedule = (seed[0], seed[1], seed[0] ^ seed[1] ^ jnp.uint32(PARITY))
    x, y = low + schedule[0], high + schedule[1]
    for group in range(5):
        for rotation in ROTATIONS[group % 2]:
            x = x + y
            y = ((y << rotation) | (y >> (32 - rotation))) ^ x
        x = x + schedule[(group + 1) % 3]
        y = y + schedule[(group + 2) % 3] + jnp.uint32(group + 1)
    return x, y


def bernoulli(seed: jax.Array, draw: jax.Array, probability: jax.Array) -> jax.Array:
    """Return ones with the given probabilities, zeros otherwise, in the probabilities' dtype.

    Parameters
    ----------
    seed
        Shape (2,), uint32: the seed.
    draw
        Scalar uint32: number of the draw for this seed. Different draws use different random words.
    probability
        Shape (rows, columns), fewer than 2^32 elements: probability of a one. The random word of an element depends on its
        row, its column and the number of columns, so that further rows of padding change no element.

    Notes
    -----
    Probabilities are resolved to 2^-24.
    """
    rows, columns = probability.shape
    below = drawn(seed, draw, rows, columns).astype(probability.dtype)
    return (below < probability * jnp.asarray(1 << 24, probability.dtype)).astype(probability.dtype)


def drawn(seed: jax.Array, draw: jax.Array, rows: int, columns: int) -> jax.Array:
    """Return the words below 2^24 that `bernoulli` compares with 2^24 times the probabilities; uint32, (rows, columns)."""
    half = -(-columns // 2)
    counter = jnp.arange(rows * half, dtype=jnp.uint32).reshape(rows, half)
    words = jnp.concatenate(threefry(seed, counter, draw), axis=1)[:, :columns]
    return words >> 8


def shuffled(seed: jax.Array, index: jax.Array, outer: int, inner: int) -> jax.Array:
    """Return the image of each index under a pseudo-random permutation of ``0, ..., outer * inner - 1``.

    An index is split into two digits. Each round shifts one digit, modulo its base, by a hash of the other. Every round
    has an inverse, so their composition is a permutation, and each element can be computed alone.

    Parameters
    ----------
    seed
        Shape (`SHUFFLE_ROUNDS`,), uint32: one word per round.
    index
        Indices below ``outer * inner``, int32 or uint32, of any shape.
    outer, inner
        Bases of the two digits; their product is below 2^31.

    References
    ----------
    Black and Rogaway (2002). Ciphers with arbitrary finite domains. doi:10.1007/3-540-45760-7_9, section 5 (the
    generalised Feistel construction).
    """
    base = (jnp.uint32(outer), jnp.uint32(inner))
    index = index.astype(jnp.uint32)
    digits = [index // base[1], index % base[1]]
    for turn in range(SHUFFLE_ROUNDS):
        digit, other = turn % 2, 1 - turn % 2
        moved = digits[digit] + _hash_below(digits[other] ^ seed[turn], (outer, inner)[digit])
        digits[digit] = jnp.where(moved >= base[digit], moved - base[digit], moved)
    return (digits[0] * base[1] + digits[1]).astype(jnp.int32)


def _hash_below(word: jax.Array, limit: int) -> jax.Array:
    """Return a hash of each word in ``0, ..., limit - 1``."""
    word = (word ^ (word >> 16)) * jnp.uint32(0x7FEB352D)
    word = (word ^ (word >> 15)) * jnp.uint32(0x846CA68B)
    if limit > _HALF_WORD:
        return (word ^ (word >> 16)) % jnp.uint32(limit)
    # A product and a shift vectorise; a remainder doesn't.
    return ((word >> 16) * jnp.uint32(limit)) >> 16
