"""The batches of an epoch on a GPU: many small batches per launch, or one launch per large batch.

With one kernel launch per batch, launches would dominate an epoch of small batches. One block of threads therefore
processes all batches in order, one thread per window. The block loads the windows of the next batch while it computes
the current one. It reads the parameters from memory for each batch, and writes them back.

All sums over a batch are entries of one product of two matrices. Each row of a matrix is one quantity over all windows:

- left: errors of the visible units, then p_0 - p_k, p_k and p_0 (the hidden units' probabilities before and after the k Gibbs
  steps);
- right: samples and histories, ones, and errors of the visible units.

The parameters' matrix P (see `divergence`) is permuted so that visible units come first in its rows and in its columns
(sample, history, one), and is padded with zeros to a square.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from optim.kernels import gpu
from optim.kernels.counter_random import drawn

FULL = lax.Precision.HIGHEST
PRODUCT = lax.DotAlgorithmPreset.TF32_TF32_F32_X3
"""Precision of products of blocks: three TF32 products on tensor cores, whose sum equals float32 up to the last bits."""

MIN_SIDE, HEIGHT, LOG2_E = 16, 64, float(np.log2(np.e))
"""Minimum side of a matrix in a product of blocks; minimum height at which all warps share one product; log2(e)."""

TILE, WARPS = 128, 4
"""Number of windows that a block of threads processes at a time, and number of warps that share them."""

MAX_WEIGHTS = 512
"""Maximum number of entries of P, each of which is a separate variable in the kernel."""

LARGEST_BATCH = 256
"""Maximum number of windows per batch for the kernel with one block; larger batches are cut into tiles, one block per tile."""

BLOCKS, CHUNK, UNROLLED = 128, 4, 16
"""Maximum number of blocks that sum a batch, number of block sums read at a time, and launches per unrolled loop turn."""

LAUNCH_WINDOWS = 1 << 20
"""Number of windows for which random words are generated at once, before the launch that uses them."""


def _filled(least: int) -> int:
    return max(MIN_SIDE, gpu.power_of_two(least))


class Sizes(NamedTuple):
    """Compile-time constants of a kernel."""

    num_visible: int
    num_delays: int
    num_hidden: int
    batch: int
    num_gibbs_steps: int
    is_drawn: bool
    interpret: bool

    @property
    def length(self) -> int:
        """Number of entries of a window's history."""
        return self.num_delays * self.num_visible

    @property
    def num_inputs(self) -> int:
        """Number of P's columns without the biases: sample and history."""
        return self.num_visible + self.length

    @property
    def side(self) -> int:
        """Number of rows and columns of P after padding."""
        return _filled(max(self.num_visible + self.num_hidden, self.num_inputs + 1))

    @property
    def product(self) -> tuple[int, int]:
        """Shape of the product that contains all sums over a batch, with padding."""
        return max(HEIGHT, _filled(self.num_visible + 3 * self.num_hidden)), _filled(
            self.num_inputs + 1 + self.num_visible
        )

    @property
    def tile(self) -> int:
        """Number of windows per tile."""
        return min(TILE, max(MIN_SIDE, gpu.power_of_two(self.batch)))

    @property
    def tiles(self) -> int:
        """Number of tiles per batch."""
        return -(-self.batch // self.tile)


class Steps(NamedTuple):
    """Settings of a training step: arrays in the layout of `squared`, and numbers.

    Attributes
    ----------
    support, step, decay, sparsity
        For each parameter: whether it is trained, its learning rate, its weight decay, and, for a hidden unit's bias,
        the factor on the difference between target and activity in the gradient.
    numbers
        Momentum, maximum norm of a gradient, and the hidden units' target activity: shape (3,), or three numbers in a kernel.
    """

    support: jax.Array
    step: jax.Array
    decay: jax.Array
    sparsity: jax.Array
    numbers: Any


def fits(num_visible: int, num_delays: int, num_hidden: int) -> bool:
    """Return whether a CRBM is small enough for the kernels."""
    return (num_visible + num_hidden) * ((num_delays + 1) * num_visible + 1) <= MAX_WEIGHTS


def squared(packed: jax.Array, sizes: Sizes) -> jax.Array:
    """Return P in the layout of the kernels: permuted and padded to a square."""
    length = sizes.length
    turned = jnp.concatenate([packed[:, length:-1], packed[:, :length], packed[:, -1:]], axis=1)
    return jnp.pad(turned, ((0, sizes.side - turned.shape[0]), (0, sizes.side - turned.shape[1])))


def unsquared(square: jax.Array, sizes: Sizes) -> jax.Array:
    """Return P from the layout of the kernels; the inverse of `squared`."""
    visible, length = sizes.num_visible, sizes.length
    rows = square[: visible + sizes.num_hidden]
    last = visible + length
    return jnp.concatenate([rows[:, visible:last], rows[:, :visible], rows[:, last : last + 1]], axis=1)


def epoch(
    square: jax.Array,
    velocity: jax.Array,
    series: jax.Array,
    order: jax.Array,
    seed: jax.Array,
    steps: Steps,
    sizes: Sizes,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Perform one step per batch; return parameters, velocity, and the sum of squared errors over all windows, shape (V,).

    Parameters
    ----------
    square, velocity
        The parameters and the last step, in the layout of `squared`.
    series
        Shape (T, V): concatenated series.
    order
        Shape (batches, batch), int32: positions of the windows' last samples; negative entries are padding.
    seed
        Shape (2,), uint32: seed of all draws.
    steps, sizes
        Settings of the steps, and sizes of the kernels.
    """
    num_batches = order.shape[0]
    at_once = max(1, min(num_batches, LAUNCH_WINDOWS // sizes.batch))
    make = partial(_launches, series.ravel(), seed, steps, sizes)
    full, rest = divmod(num_batches, at_once)

    def launch(carry: Any, inputs: tuple[jax.Array, jax.Array]) -> tuple[Any, None]:
        return make(carry, *inputs), None

    carry = (square, velocity, jnp.zeros_like(square))
    cut = order[: full * at_once].reshape(full, at_once, sizes.batch)
    carry, _ = lax.scan(launch, carry, (cut, jnp.arange(full, dtype=jnp.uint32) * jnp.uint32(at_once)))
    if rest:
        carry = make(carry, order[full * at_once :], jnp.uint32(full * at_once))
    square, velocity, error = carry
    return square, velocity, jnp.diagonal(error)[: sizes.num_visible]


def _launches(
    series: jax.Array, seed: jax.Array, steps: Steps, sizes: Sizes, carry: Any, order: jax.Array, first: jax.Array
) -> Any:
    """Perform one step per batch of `order`; the number of its first batch in the epoch is `first`."""
    missing = sizes.tiles * sizes.tile - sizes.batch
    ends = jnp.pad(order, ((0, 0), (0, missing)), constant_values=-1)
    counts = jnp.sum(order >= 0, axis=1).astype(jnp.float32)
    inputs = (ends, counts, _words(seed, first, ends.shape[0], sizes), series)
    way = _in_one_block if sizes.batch <= LARGEST_BATCH else _in_many_blocks
    return way(inputs, steps, sizes, carry)


def _in_one_block(inputs: tuple[jax.Array, ...], steps: Steps, sizes: Sizes, carry: Any) -> Any:
    """Perform the steps of all given batches in one launch of one block."""
    count, tiles = inputs[0].shape[0], sizes.tiles
    last = count * tiles - 1

    def kernel(*references: Any) -> None:
        ends, counts, words, series, support, step, decay, sparsity, numbers, square, velocity, error = references[:12]
        machine, fast, errors, product = references[12:]
        plan = Steps(support[...], step[...], decay[...], sparsity[...], tuple(numbers[k] for k in range(3)))
        ends_of, read = partial(_read_ends, ends, sizes), partial(_read_tile, words, series, sizes)
        machine[...] = square[...]

        def batch(number: jax.Array, carry: Any) -> Any:
            velocity, error, *ahead = carry
            gpu.wait(sizes.interpret)
            weights, square, counted = _read_weights(machine, sizes), machine[...], counts[number]

            def one(place: jax.Array, carry: Any) -> Any:
                sums, inputs, end = carry
                # Prefetch for later turns: the inputs of the next tile, and the ends of the windows of the tile after
                # that.
                following = number * tiles + place + 1
                ahead = read(end, jnp.minimum(following, last)), ends_of(jnp.minimum(following + 1, last))
                return sums + _product(weights, inputs, sizes), *ahead

            start = (jnp.zeros(sizes.product, jnp.float32), *ahead)
            sums, *ahead = one(jnp.int32(0), start) if tiles == 1 else lax.fori_loop(0, tiles, one, start)
            product[...] = sums
            gpu.wait(sizes.interpret)
            machine[...], velocity, more = _stepped(square, velocity, product, counted, plan, sizes)
            return velocity, error + more, *ahead

        begin = jnp.int32(0)
        ahead = read(ends_of(begin), begin), ends_of(jnp.minimum(begin + 1, last))
        fast[...], errors[...], *_ = lax.fori_loop(0, count, batch, (velocity[...], error[...], *ahead))

    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in (*(array.shape for array in carry), sizes.product)]
    return tuple(
        gpu.call(kernel, (*inputs, *steps, *carry), shapes, grid=(1,), warps=WARPS, interpret=sizes.interpret)[:3]
    )


def _in_many_blocks(inputs: tuple[jax.Array, ...], steps: Steps, sizes: Sizes, carry: Any) -> Any:
    """Perform the steps with one launch per batch: each block performs the previous batch's step, then sums some tiles.

    All blocks compute the same parameters, and write them to the same memory. One more launch performs the last step.
    """
    count, tiles = inputs[0].shape[0], sizes.tiles
    blocks = min(tiles, BLOCKS)
    chunk = min(CHUNK, gpu.power_of_two(blocks))

    def kernel(is_last: bool, *references: Any) -> None:
        from jax.experimental import pallas

        which, ends, counts, words, series, support, step, decay, sparsity, numbers = references[:10]
        square, velocity, error, parts, machine, fast, errors, written, total = references[10:]
        plan = Steps(support[...], step[...], decay[...], sparsity[...], tuple(numbers[k] for k in range(3)))
        block, now = pallas.program_id(0), which[0]

        def chunk_sum(turn: jax.Array, sums: jax.Array) -> jax.Array:
            return sums + _sum_of_chunk(parts, blocks, chunk, turn, sizes)

        before = lax.fori_loop(0, -(-blocks // chunk), chunk_sum, jnp.zeros(sizes.product, jnp.float32))
        total[block, :, :] = before
        gpu.wait(sizes.interpret)
        old = square[...], velocity[...], jnp.zeros_like(plan.support)
        new = _stepped(*old[:2], total, counts[jnp.maximum(now - 1, 0)], plan, sizes, block)
        machine[...], fast[...], more = (jnp.where(now > 0, *pair) for pair in zip(new, old, strict=True))
        errors[...] = error[...] + more
        if is_last:
            return
        gpu.wait(sizes.interpret)
        weights = _read_weights(machine, sizes)

        def one(turn: jax.Array, sums: jax.Array) -> jax.Array:
            place = turn * blocks + block
            number = now * tiles + jnp.minimum(place, tiles - 1)
            end = jnp.where(place < tiles, _read_ends(ends, sizes, number), -1)
            return sums + _product(weights, _read_tile(words, series, sizes, end, number), sizes)

        nothing, turns = jnp.zeros(sizes.product, jnp.float32), -(-tiles // blocks)
        written[block, :, :] = one(jnp.int32(0), nothing) if turns == 1 else lax.fori_loop(0, turns, one, nothing)

    parts = jnp.zeros((blocks, *sizes.product), jnp.float32)
    shapes = [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in (*carry, parts, parts)]

    def batch(carry: Any, which: jax.Array, is_last: bool = False) -> tuple[Any, None]:
        operands, grid = (which[None], *inputs, *steps, *carry), (1 if is_last else blocks,)
        made = gpu.call(partial(kernel, is_last), operands, shapes, grid=grid, warps=WARPS, interpret=sizes.interpret)
        return tuple(made[:4]), None

    numbers = jnp.arange(count, dtype=jnp.int32)
    carry, _ = lax.scan(batch, (*carry, parts), numbers, unroll=min(count, UNROLLED))
    return batch(carry, jnp.int32(count), is_last=True)[0][:3]


def _sum_of_chunk(parts: Any, blocks: int, chunk: int, turn: jax.Array, sizes: Sizes) -> jax.Array:
    """Return the sum of the products of one chunk of blocks, added in the blocks' order."""
    rows, columns = (lax.iota(jnp.int32, length) for length in sizes.product)
    place = tuple(jnp.broadcast_to(each, sizes.product) for each in (rows[:, None], columns[None, :]))
    load, total = gpu.triton().load, jnp.zeros(sizes.product, jnp.float32)
    for each in range(chunk):
        block = turn * chunk + each
        mask = jnp.broadcast_to(block < blocks, sizes.product)
        total = total + load(parts.at[jnp.minimum(block, blocks - 1), *place], mask=mask, other=0.0)
    return total


def _words(seed: jax.Array, first: jax.Array, count: int, sizes: Sizes) -> jax.Array:
    """Return the random words of several batches, shape (batches, k, H, windows), float32.

    Each batch has the same words as in `contrastive_divergence`.
    """
    if not sizes.is_drawn:
        return jnp.zeros((1,), jnp.float32)
    draws = (first + jnp.arange(count, dtype=jnp.uint32))[:, None] * jnp.uint32(sizes.num_gibbs_steps)
    draws = draws + jnp.arange(sizes.num_gibbs_steps, dtype=jnp.uint32)[None]
    one = partial(drawn, seed, rows=sizes.num_hidden, columns=sizes.batch)
    words = jax.vmap(jax.vmap(one))(draws).astype(jnp.float32)
    return jnp.pad(words, ((0, 0), (0, 0), (0, 0), (0, sizes.tiles * sizes.tile - sizes.batch)))


def _place(sizes: Sizes, number: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the batch that contains a tile, and the positions of the tile's windows in the batch."""
    tiles = jnp.int32(sizes.tiles)
    return lax.div(number, tiles), lax.rem(number, tiles) * sizes.tile + lax.iota(jnp.int32, sizes.tile)


def _read_ends(ends: Any, sizes: Sizes, number: jax.Array) -> jax.Array:
    """Return the positions of the last samples of a tile's windows, shape (tile,)."""
    return ends[_place(sizes, number)]


def _read_tile(words: Any, series: Any, sizes: Sizes, end: jax.Array, number: jax.Array) -> tuple[Any, ...]:
    """Return a tile's inputs, mask of windows, and random words by step and hidden unit, of shape (1, tile) each."""
    batch, lane = (each if each.ndim == 0 else each[None, :] for each in _place(sizes, number))
    begin = (jnp.maximum(end - sizes.num_delays, 0) * sizes.num_visible)[None, :]
    offsets = (*range(sizes.length, sizes.num_inputs), *range(sizes.length))
    inputs = tuple(series[begin + offset] for offset in offsets)
    is_window = (end >= 0).astype(jnp.float32)[None, :]
    steps = range(sizes.num_gibbs_steps if sizes.is_drawn else 0)
    return (
        inputs,
        is_window,
        *(tuple(words[batch, step, hidden, lane] for hidden in range(sizes.num_hidden)) for step in steps),
    )


def _read_weights(machine: Any, sizes: Sizes) -> list[list[jax.Array]]:
    """Return the entries of P, row by row, without its block of zeros."""
    rows, columns = range(sizes.num_visible + sizes.num_hidden), range(sizes.num_inputs + 1)
    return [[machine[row, column] for column in columns if max(row, column) >= sizes.num_visible] for row in rows]


def _product(weights: list[list[jax.Array]], inputs: tuple[Any, ...], sizes: Sizes) -> jax.Array:
    """Return the sums over a tile's windows, of shape `Sizes.product`."""
    given, is_window, *draws = inputs
    split = sizes.num_visible

    def activation(row: list[jax.Array], values: tuple[jax.Array, ...]) -> jax.Array:
        *weights, total = row
        for weight, value in zip(weights, values, strict=True):
            total = total + weight * value
        return total

    def difference(start: jax.Array, row: list[jax.Array], values: list[jax.Array]) -> jax.Array:
        for weight, value in zip(row, values, strict=True):
            start = start - weight * value
        return start

    known = [value - activation(row, given[split:]) for row, value in zip(weights[:split], given[:split], strict=True)]
    activations = [activation(row, given) for row in weights[split:]]
    from_visible = [row[:split] for row in weights[split:]]
    from_hidden = [list(column) for column in zip(*from_visible, strict=True)]
    first = probability = [_sigmoid(each) for each in activations]
    errors: list[jax.Array] = []
    for step in range(sizes.num_gibbs_steps):
        hidden = probability
        if sizes.is_drawn:
            hidden = [
                (word < each * float(1 << 24)).astype(jnp.float32)
                for word, each in zip(draws[step], probability, strict=True)
            ]
        errors = [difference(start, row, hidden) for start, row in zip(known, from_hidden, strict=True)]
        probability = [
            _sigmoid(difference(start, row, errors)) for start, row in zip(activations, from_visible, strict=True)
        ]
    errors = [error * is_window for error in errors]
    change = [(one - other) * is_window for one, other in zip(first, probability, strict=True)]
    height, width = sizes.product
    left = _stacked((*errors, *change, *probability, *first), height, sizes)
    right = _stacked((*given, is_window, *errors), width, sizes)
    return jnp.dot(left, right.T, precision=FULL if sizes.interpret else PRODUCT)


def _sigmoid(activation: jax.Array) -> jax.Array:
    root = lax.rsqrt(1.0 + jnp.exp2(activation * -LOG2_E))  # two instructions on a GPU; a division takes many
    return root * root


def _stacked(rows: tuple[jax.Array, ...], height: int, sizes: Sizes) -> jax.Array:
    """Return rows of shape (1, tile) stacked into a matrix of `height` rows, padded with zeros."""
    number, stacked = lax.iota(jnp.int32, height)[:, None], jnp.zeros((height, sizes.tile), jnp.float32)
    for place, row in enumerate(rows):
        stacked = jnp.where(number == place, row, stacked)
    return stacked


def _stepped(
    square: jax.Array,
    velocity: jax.Array,
    product: Any,
    counted: jax.Array,
    steps: Steps,
    sizes: Sizes,
    *where: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return parameters and velocity after a batch's step, and a matrix with the squared errors on its diagonal."""
    visible, hidden, last = sizes.num_visible, sizes.num_hidden, sizes.num_inputs
    shape = (sizes.side, sizes.side)
    row, column = (
        jnp.broadcast_to(each, shape)
        for each in (lax.iota(jnp.int32, shape[0])[:, None], lax.iota(jnp.int32, shape[1])[None, :])
    )
    is_hidden = (row >= visible) & (row < visible + hidden)

    def entry(is_there: jax.Array, at_row: jax.Array, at_column: jax.Array) -> jax.Array:
        place = (*(jnp.broadcast_to(each, shape) for each in where), at_row, at_column)
        return gpu.triton().load(product.at[place], mask=is_there, other=0.0)

    gradient = entry((row < visible + hidden) & (column <= last), row, column)
    gradient = gradient + entry(is_hidden & (column < visible), row + hidden, column + last + 1)
    activity = entry(is_hidden & (column == last), row + 2 * hidden, column)
    error = entry((row < visible) & (column == row), row, column + last + 1)
    momentum, limit, target = steps.numbers
    scale = 1.0 / jnp.maximum(counted, 1.0)
    gradient = scale * gradient * steps.support
    norm = jnp.sqrt(jnp.sum(gradient * gradient))
    gradient = gradient * jnp.minimum(1.0, limit / jnp.maximum(norm, 1e-30))
    gradient = gradient + steps.sparsity * (target - scale * activity)
    velocity = momentum * velocity + steps.step * (gradient - steps.decay * square)
    return square + velocity, velocity, error
