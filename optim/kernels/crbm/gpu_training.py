"""The batches of an epoch on a card: many in one launch where they are small, a launch each where one fills the card.

Such a small machine, its velocity and the statistics of a batch fit into the registers of one block of threads.
Launched batch by
batch, an epoch of small batches would be spent on launches. One block visits all batches in order, with machine and
velocity in its registers. It loads the next batch while it computes with the present one.

Here rows and columns of P are turned so that visibles come first among both (columns: sample, history, one), and P is filled
up with zeros to a square. Then bias, reconstruction and error of a visible have the same row.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from optim.kernels import gpu
from optim.kernels.counter_random import drawn

FULL = lax.Precision.HIGHEST

MIN_SIDE, MAX_SIDE = 16, 64
"""Sides of the square: the least that a product of blocks takes, and the largest that is tried to be kept in registers."""

TILE, WARPS = 128, 4
"""Windows that a block of threads takes at a time, and groups of 32 threads that share them."""

MAX_VISIBLES = 8
"""Most visibles that the kernel treats one by one."""

LARGEST_BATCH = 512
"""Windows of a batch up to which all batches go through one block; larger ones are cut into tiles, a block each."""

LAUNCH_WINDOWS = 1 << 20
"""Windows for which random words are made at once, before the launch that takes them."""


class Sizes(NamedTuple):
    """Numbers that a kernel is compiled for."""

    num_visible: int
    num_delays: int
    num_hidden: int
    batch: int
    num_gibbs_steps: int
    is_drawn: bool
    interpret: bool

    @property
    def length(self) -> int:
        """Entries of a history."""
        return self.num_delays * self.num_visible

    @property
    def side(self) -> int:
        """Side of the square."""
        needed = max(self.num_visible + self.num_hidden, self.length + self.num_visible + 1)
        return max(MIN_SIDE, gpu.power_of_two(needed))

    @property
    def tile(self) -> int:
        """Windows of a tile."""
        return min(TILE, max(MIN_SIDE, gpu.power_of_two(self.batch)))

    @property
    def tiles(self) -> int:
        """Tiles of a batch."""
        return -(-self.batch // self.tile)


class Steps(NamedTuple):
    """Arguments of a step other than the machine: squares of the shape of P, or numbers.

    Attributes
    ----------
    support, step, decay, sparsity
        Where there are parameters, their rates, their decays, and the pushes of the hiddens' biases per unit of activity.
    numbers
        Shape (3,): momentum, largest norm of a gradient, and the hiddens' target.
    """

    support: jax.Array
    step: jax.Array
    decay: jax.Array
    sparsity: jax.Array
    numbers: jax.Array


def fits(num_visible: int, num_delays: int, num_hidden: int) -> bool:
    """Return whether a machine is small enough."""
    sizes = Sizes(num_visible, num_delays, num_hidden, 1, 1, False, False)
    return num_visible <= MAX_VISIBLES and sizes.side <= MAX_SIDE


def squared(packed: jax.Array, sizes: Sizes) -> jax.Array:
    """Return P as a kernel holds it."""
    length = sizes.length
    turned = jnp.concatenate([packed[:, length:-1], packed[:, :length], packed[:, -1:]], axis=1)
    return jnp.pad(turned, ((0, sizes.side - turned.shape[0]), (0, sizes.side - turned.shape[1])))


def unsquared(square: jax.Array, sizes: Sizes) -> jax.Array:
    """Return P from the square of a kernel."""
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
    """Make a step for each batch; return machine, velocity, and the squared errors (V,) summed over all windows.

    Parameters
    ----------
    square, velocity
        See `squared`.
    series
        Shape (T, V).
    order
        Shape (batches, batch), int32: ends of windows, negative where there is none.
    seed
        Shape (2,), uint32, of all draws.
    steps, sizes
        Arguments of a step.
    """
    num_batches = order.shape[0]
    at_once = max(1, min(num_batches, LAUNCH_WINDOWS // sizes.batch)) if sizes.batch <= LARGEST_BATCH else 1
    make = partial(_batches_in_one_block, series.ravel(), seed, steps, sizes)
    if sizes.batch > LARGEST_BATCH:
        make = partial(_batch_in_many_blocks, series.ravel(), seed, steps, sizes)
    full, rest = divmod(num_batches, at_once)

    def launch(carry: Any, inputs: tuple[jax.Array, jax.Array]) -> tuple[Any, None]:
        return make(carry, *inputs), None

    carry = (square, velocity, jnp.zeros((sizes.side,), square.dtype))
    cut = order[: full * at_once].reshape(full, at_once, sizes.batch)
    carry, _ = lax.scan(launch, carry, (cut, jnp.arange(full, dtype=jnp.uint32) * jnp.uint32(at_once)))
    if rest:
        carry = make(carry, order[full * at_once :], jnp.uint32(full * at_once))
    square, velocity, error = carry
    return square, velocity, error[: sizes.num_visible]


def _batches_in_one_block(
    series: jax.Array, seed: jax.Array, steps: Steps, sizes: Sizes, carry: Any, ends: jax.Array, first: jax.Array
) -> Any:
    """Make the steps of some batches in one launch of one block."""
    count, tiles, _tile, side = ends.shape[0], sizes.tiles, sizes.tile, sizes.side

    def kernel(*references: Any) -> None:
        ends, words, series, support, step, decay, sparsity, numbers, square, velocity, error, *written = references
        plan = Steps(support[...], step[...], decay[...], sparsity[...], numbers)
        read = partial(_read_tile, ends, words, series, sizes)

        def batch(number: jax.Array, carry: Any) -> Any:
            square, velocity, error, ahead = carry

            def one(place: jax.Array, carry: Any) -> Any:
                gradient, activity, error, counted, ahead = carry
                following = number * tiles + place + 1
                inputs, ahead = ahead, read(jnp.minimum(following, count * tiles - 1))
                statistics = _statistics(square, inputs, sizes)
                more = (
                    gradient + statistics[0],
                    activity + statistics[1],
                    error + statistics[2],
                    counted + statistics[3],
                )
                return *more, ahead

            nothing = (jnp.zeros((side, side), jnp.float32), jnp.zeros((side,), jnp.float32))
            start = (*nothing, error, jnp.zeros((), jnp.float32), ahead)
            gradient, activity, error, counted, ahead = (
                one(jnp.int32(0), start) if tiles == 1 else lax.fori_loop(0, tiles, one, start)
            )
            return *_stepped(square, velocity, gradient, activity, counted, plan, sizes), error, ahead

        start = (square[...], velocity[...], error[...], read(jnp.int32(0)))
        state = lax.fori_loop(0, count, batch, start)
        for reference, value in zip(written, state[:3], strict=True):
            reference[...] = value

    operands = (_padded(ends, sizes), _words(seed, first, count, sizes), series, *steps, *carry)
    shapes = [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in carry]
    return tuple(gpu.call(kernel, operands, shapes, grid=(1,), warps=WARPS, interpret=sizes.interpret))


def _batch_in_many_blocks(
    series: jax.Array, seed: jax.Array, steps: Steps, sizes: Sizes, carry: Any, ends: jax.Array, first: jax.Array
) -> Any:
    """Make the step of one batch: a block for each tile, and the sum over tiles in their order."""
    square, velocity, error = carry
    tiles, side = sizes.tiles, sizes.side

    def kernel(*references: Any) -> None:
        from jax.experimental import pallas

        ends, words, series, square, gradient, activity, error, counted = references
        place = pallas.program_id(0)
        statistics = _statistics(square[...], _read_tile(ends, words, series, sizes, place), sizes)
        gradient[place], activity[place], error[place], counted[place] = statistics

    shapes = [(tiles, side, side), (tiles, side), (tiles, side), (tiles,)]
    parts = gpu.call(
        kernel,
        (_padded(ends, sizes), _words(seed, first, 1, sizes), series, square),
        [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes],
        grid=(tiles,),
        warps=WARPS,
        interpret=sizes.interpret,
    )
    gradient, activity, more, counted = (jnp.sum(part, axis=0) for part in parts)
    return *_stepped(square, velocity, gradient, activity, counted, steps, sizes), error + more


def _padded(ends: jax.Array, sizes: Sizes) -> jax.Array:
    """Return ends of windows, batch by batch, filled up to whole tiles."""
    return jnp.pad(ends, ((0, 0), (0, sizes.tiles * sizes.tile - sizes.batch)), constant_values=-1)


def _words(seed: jax.Array, first: jax.Array, count: int, sizes: Sizes) -> jax.Array:
    """Return the words of so many batches' draws, shape (batches, k, H, windows), float32: the same as one by one."""
    if not sizes.is_drawn:
        return jnp.zeros((1,), jnp.float32)
    draws = (first + jnp.arange(count, dtype=jnp.uint32))[:, None] * jnp.uint32(sizes.num_gibbs_steps)
    draws = draws + jnp.arange(sizes.num_gibbs_steps, dtype=jnp.uint32)[None]
    one = partial(drawn, seed, rows=sizes.num_hidden, columns=sizes.batch)
    words = jax.vmap(jax.vmap(one))(draws).astype(jnp.float32)
    return jnp.pad(words, ((0, 0), (0, 0), (0, 0), (0, sizes.tiles * sizes.tile - sizes.batch)))


def _read_tile(ends: Any, words: Any, series: Any, sizes: Sizes, number: jax.Array) -> tuple[jax.Array, ...]:
    """Return the windows of a tile as columns (side, tile), which of them there are, and the words of their draws."""
    parts, visible, side = gpu.triton(), sizes.num_visible, sizes.side
    tiles = jnp.int32(sizes.tiles)
    batch, row = lax.div(number, tiles), lax.iota(jnp.int32, side)
    lane = lax.rem(number, tiles) * sizes.tile + lax.iota(jnp.int32, sizes.tile)
    end = ends[batch, lane]
    begin = jnp.maximum(end - sizes.num_delays, 0) * visible
    offset = jnp.where(row < visible, sizes.length + row, row - visible)
    is_read = row < visible + sizes.length
    place = jnp.where(is_read, offset, 0)[:, None] + begin[None, :]
    read = parts.load(series.at[place], mask=jnp.broadcast_to(is_read[:, None], place.shape), other=0.0)
    columns = jnp.where((row == visible + sizes.length)[:, None], 1.0, read)
    is_window = (end >= 0).astype(jnp.float32)
    if not sizes.is_drawn:
        return columns, is_window
    hidden = row - visible
    is_hidden = (hidden >= 0) & (hidden < sizes.num_hidden)
    mask = jnp.broadcast_to(is_hidden[:, None], place.shape)
    safe = jnp.broadcast_to(jnp.where(is_hidden, hidden, 0)[:, None], place.shape)
    column = jnp.broadcast_to(lane[None, :], place.shape)
    draws = (
        parts.load(words.at[batch, step, safe, column], mask=mask, other=0.0) for step in range(sizes.num_gibbs_steps)
    )
    return columns, is_window, *draws


def _statistics(square: jax.Array, inputs: tuple[jax.Array, ...], sizes: Sizes) -> tuple[jax.Array, ...]:
    """Return sums over a tile: of the gradient (side, side), of first hiddens, of squared errors, and of windows."""
    columns, is_window, *draws = inputs
    row = lax.iota(jnp.int32, sizes.side)[:, None]
    is_visible = row < sizes.num_visible
    is_hidden = (row >= sizes.num_visible) & (row < sizes.num_visible + sizes.num_hidden)

    def probability_of(activation: jax.Array) -> jax.Array:
        return jnp.where(is_hidden, 1.0 / (1.0 + jnp.exp(-activation)), 0.0)

    activations = jnp.dot(square, columns, precision=FULL)
    first = probability = probability_of(activations)
    visible = range(sizes.num_visible)
    column = lax.iota(jnp.int32, sizes.side)[None, :]
    # Visibles are few: the inputs of the hiddens from each, (side, 1), and the errors of each, (1, tile), are separate
    # arrays.
    weights = [jnp.sum(jnp.where(is_hidden & (column == one), square, 0.0), axis=1)[:, None] for one in visible]
    errors: list[jax.Array] = []
    for step in range(sizes.num_gibbs_steps):
        hidden = probability
        if sizes.is_drawn:
            hidden = jnp.where(is_hidden & (draws[step] < probability * float(1 << 24)), 1.0, 0.0)
        parts = [jnp.where(row == one, columns - activations, -weights[one] * hidden) for one in visible]
        errors = [jnp.sum(part, axis=0)[None, :] for part in parts]
        probability = probability_of(activations - sum(weights[one] * errors[one] for one in visible))
    counts = is_window[None, :]
    error = jnp.zeros_like(columns)
    rest = jnp.zeros_like(square)
    for one in visible:
        errors[one] = errors[one] * counts
        error = jnp.where(row == one, errors[one], error)
        rest = jnp.where(column == one, jnp.sum(probability * errors[one], axis=1)[:, None], rest)
    change = jnp.where(is_visible, error, (first - probability) * counts)
    gradient = jnp.dot(change, columns.T, precision=FULL) + rest
    return gradient, jnp.sum(first * counts, axis=1), jnp.sum(error * error, axis=1), jnp.sum(is_window)


def _stepped(
    square: jax.Array,
    velocity: jax.Array,
    gradient: jax.Array,
    activity: jax.Array,
    counted: jax.Array,
    steps: Steps,
    sizes: Sizes,
) -> tuple[jax.Array, jax.Array]:
    """Return machine and velocity after the step along a batch's statistics."""
    momentum, limit, target = (steps.numbers[place] for place in range(3))
    scale = 1.0 / jnp.maximum(counted, 1.0)
    gradient = scale * gradient * steps.support
    norm = jnp.sqrt(jnp.sum(gradient * gradient))
    gradient = gradient * jnp.minimum(1.0, limit / jnp.maximum(norm, 1e-30))
    gradient = gradient + steps.sparsity * (target - scale * activity)[:, None]
    velocity = momentum * velocity + steps.step * (gradient - steps.decay * square)
    return square + velocity, velocity
