"""Update rules compared with their formulas in float64, and the ranges of their options."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from optim.core.errors import InvalidOptionError
from optim.kernels.parameter_server import (
    Adagrad,
    Adam,
    AdamW,
    Momentum,
    RowLayout,
    Sgd,
    WarmupCosine,
    apply_pushes,
    initial_rows,
    pull_rows,
    push_sparse,
)
from optim.kernels.parameter_server.blocks import BLOCK

RNG = np.random.default_rng(0)
START, GRADIENTS = RNG.standard_normal(7), RNG.standard_normal((5, 7))


def plain(rule):
    """Parameters after each of the gradients."""
    w, first, second = START.copy(), np.zeros(7), np.zeros(7)
    for step, g in enumerate(GRADIENTS, 1):
        if isinstance(rule, Adam):
            first = rule.first_decay * first + (1 - rule.first_decay) * g
            second = rule.second_decay * second + (1 - rule.second_decay) * g**2
            mean, square = first / (1 - rule.first_decay**step), second / (1 - rule.second_decay**step)
            w = w - rule.learning_rate * (
                mean / (np.sqrt(square) + rule.epsilon) + getattr(rule, "weight_decay", 0.0) * w
            )
        elif isinstance(rule, Adagrad):
            second = second + g**2
            w = w - rule.learning_rate * g / np.sqrt(second + rule.epsilon)
        else:
            first = getattr(rule, "decay", 0.0) * first + g
            w = w - rule.learning_rate * (g + rule.decay * first if getattr(rule, "nesterov", False) else first)
        yield w


@pytest.mark.parametrize(
    "rule",
    [
        Sgd(learning_rate=0.3),
        Momentum(learning_rate=0.3, decay=0.7),
        Momentum(learning_rate=0.3, decay=0.7, nesterov=True),
        AdamW(learning_rate=0.3, first_decay=0.8, second_decay=0.9, epsilon=0.2, weight_decay=0.1),
        Adagrad(learning_rate=0.3, epsilon=0.2),
        Adam(learning_rate=0.3, first_decay=0.8, second_decay=0.9, epsilon=0.2),
    ],
)
def test_each_step_is_the_stated_one(rule):
    w = jnp.asarray(START, jnp.float32)
    slots = rule.initial_slots(w)
    assert len(slots) == rule.num_slots
    for step, expected in enumerate(plain(rule), 1):
        w, slots = rule.update(w, slots, jnp.asarray(GRADIENTS[step - 1], jnp.float32), jnp.int32(step))
        assert np.asarray(w) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("rule", [Sgd(learning_rate=0.3), Adagrad(learning_rate=0.3), Momentum(learning_rate=0.3), Adam(learning_rate=0.3)])  # fmt: skip
def test_only_rules_that_rest_leave_everything_at_a_gradient_of_zero(rule):
    w = jnp.asarray(START, jnp.float32)
    before = rule.update(w, rule.initial_slots(w), jnp.ones(7), jnp.int32(1))
    after = rule.update(*before, jnp.zeros(7), jnp.int32(2))
    is_same = all(np.array_equal(a, b) for a, b in zip((before[0], *before[1]), (after[0], *after[1]), strict=True))
    assert is_same is rule.zero_grad_is_noop


@pytest.mark.parametrize(
    ("kind", "name", "allowed", "refused"),
    [
        (Sgd, "learning_rate", 1e-9, 0.0),
        (Momentum, "learning_rate", 1e-9, 0.0),
        (Adagrad, "learning_rate", 1e-9, 0.0),
        (Adam, "learning_rate", 1e-9, 0.0),
        (Momentum, "decay", 0.0, 1.0),
        (Adagrad, "epsilon", 1e-30, 0.0),
        (Adam, "first_decay", 0.0, 1.0),
        (Adam, "second_decay", 0.0, 1.0),
        (Adam, "epsilon", 1e-30, 0.0),
    ],
)
def test_options_are_in_their_ranges(kind, name, allowed, refused):
    assert getattr(kind(**{"learning_rate": 0.1, name: allowed}), name) == allowed
    with pytest.raises(InvalidOptionError, match=f"^{name} must be"):
        kind(**{"learning_rate": 0.1, name: refused})


@pytest.mark.parametrize("kind", [Sgd, Momentum, Adagrad, Adam])
def test_the_learning_rate_may_be_traced(kind):
    def moved(rate):
        rule, start = kind(learning_rate=rate), jnp.asarray(START, jnp.float32)
        gradient = jnp.asarray(GRADIENTS[0], jnp.float32)
        return rule.update(start, rule.initial_slots(start), gradient, jnp.asarray(1))[0]

    np.testing.assert_allclose(jax.jit(moved)(0.1), moved(0.1), rtol=1e-6)
    slope = (moved(0.2) - moved(0.1)) / 0.1  # all rules are linear in the rate
    np.testing.assert_allclose(jax.jacfwd(moved)(0.1), slope, rtol=1e-4)


def _start(size=7):
    return jnp.asarray(np.resize(START, size), jnp.float32)


def _gradients(size=7):
    return jnp.asarray(np.resize(GRADIENTS, (5, size)), jnp.float32)


def _pushed(rule, size=7, count=2):
    weights, start = jnp.ones(count), _start(size)
    pushes = [_gradients(size)[number % 5] for number in range(count)]
    return apply_pushes(start, rule.initial_slots(start), pushes, weights, jnp.int32(0), optimiser=rule)[0]


def _rows(rule, method):
    layout, rows = RowLayout(width=7, optimiser=rule, method=method), jnp.array([1, 0, 1])
    table = initial_rows(jnp.stack([_start()] * 3), layout)
    return pull_rows(push_sparse(table, rows, _gradients()[:3], jnp.int32(0), layout=layout), rows)


UPDATES = {
    "pushed": _pushed,
    "pushed in groups": lambda rule: _pushed(rule, count=18),
    "pushed in blocks": lambda rule: _pushed(rule, size=2 * BLOCK + 5),
    "rows, loop": lambda rule: _rows(rule, "loop"),
    "rows, sort": lambda rule: _rows(rule, "sort"),
}


@pytest.mark.parametrize(
    "kind", [Adam, *(pytest.param(kind, marks=pytest.mark.prove) for kind in (Sgd, Momentum))]
)  # of two, none and one slots
@pytest.mark.parametrize("name", UPDATES)
def test_every_update_may_be_compiled_and_mapped_over_the_learning_rate(kind, name):
    """The rate isn't known while a caller's function is compiled, and the result equals that with a known rate."""

    def moved(rate):
        return UPDATES[name](kind(learning_rate=rate))

    found = jax.jit(jax.vmap(moved))(jnp.array([0.1, 0.2]))
    for rate, one in zip((0.1, 0.2), found, strict=True):
        np.testing.assert_allclose(one, moved(rate), rtol=1e-5, atol=1e-6)


@pytest.mark.prove
@pytest.mark.parametrize("name", UPDATES)
def test_every_update_is_differentiated_over_the_learning_rate(name):
    """SGD is linear in the rate where each gradient is applied once: its slope is the step at a rate of one."""

    def moved(rate):
        return UPDATES[name](Sgd(learning_rate=rate))

    slope = jax.jacfwd(moved)(0.25)
    np.testing.assert_allclose(slope, (moved(0.5) - moved(0.25)) / 0.25, rtol=1e-4, atol=1e-5)


def test_a_rate_from_an_array_is_its_number():
    assert Sgd(learning_rate=jnp.float32(0.5)) == Sgd(learning_rate=0.5)
    assert np.array_equal(_pushed(Sgd(learning_rate=jnp.float32(0.5))), _pushed(Sgd(learning_rate=0.5)))
    with pytest.raises(InvalidOptionError, match=r"learning_rate must be one number, got shape \(2,\); .*jax\.vmap"):
        Sgd(learning_rate=jnp.ones(2))
    with pytest.raises(InvalidOptionError, match="learning_rate must be positive"):
        Sgd(learning_rate=jnp.float32(-0.5))


@pytest.mark.parametrize(
    ("kind", "name"),
    [(Momentum, "decay"), (Adagrad, "epsilon"), (Adam, "first_decay"), (Adam, "epsilon")],
)
def test_no_other_option_may_be_traced(kind, name):
    with pytest.raises(InvalidOptionError, match=f"^{name} must be a number, got a traced value; .*only learning_rate"):
        jax.jit(lambda value: kind(learning_rate=0.1, **{name: value}) and value)(0.5)


def test_parameters_of_16_bits_are_refused():
    for bits in (jnp.bfloat16, jnp.float16):
        with pytest.raises(InvalidOptionError, match=r"parameters must be float32, got b?float16"):
            initial_rows(jnp.ones((2, 4), bits), RowLayout(width=4, optimiser=Sgd(learning_rate=0.1)))


RATE = WarmupCosine(peak=0.3, warmup_steps=2, num_steps=6)


@pytest.mark.parametrize("size", [7, 2 * BLOCK + 5])
@pytest.mark.parametrize(
    ("rule", "theirs"),
    [
        (Sgd(learning_rate=0.3), optax.sgd(0.3)),
        (Sgd(learning_rate=RATE), optax.sgd(optax.warmup_cosine_decay_schedule(0.0, 0.3, 2, 6))),
        (Momentum(learning_rate=0.3, decay=0.7), optax.sgd(0.3, momentum=0.7)),
        (Momentum(learning_rate=RATE, nesterov=True), optax.sgd(RATE, momentum=0.9, nesterov=True)),
        (Adagrad(learning_rate=0.3, epsilon=1e-7), optax.adagrad(0.3, 0.0, 1e-7)),
        (Adam(learning_rate=0.3), optax.adam(0.3)),
        (AdamW(learning_rate=RATE, weight_decay=0.1), optax.adamw(RATE, weight_decay=0.1)),
    ],
)
def test_pushes_move_parameters_as_optax_alone_does(rule, theirs, size):
    """Over more updates than the schedule's warm-up, in blocks and at once."""
    ours, slots = _start(size), rule.initial_slots(_start(size))
    alone, state = _start(size), theirs.init(_start(size))
    for number in range(5):
        gradient = _gradients(size)[number]
        ours, slots = apply_pushes(ours, slots, [gradient], jnp.ones(1), jnp.int32(number), optimiser=rule)
        updates, state = jax.jit(theirs.update)(gradient, state, alone)
        alone = optax.apply_updates(alone, updates)
        np.testing.assert_allclose(ours, alone, rtol=1e-5, atol=1e-6)
    arrays = [leaf for leaf in jax.tree.leaves(state) if leaf.shape == alone.shape]
    assert len(arrays) == rule.num_slots
    for slot, array in zip(slots, arrays, strict=True):
        np.testing.assert_allclose(slot, array, rtol=1e-5, atol=1e-6)


def test_a_schedule_ends_after_it_has_begun():
    with pytest.raises(InvalidOptionError, match="num_steps must be more than warmup_steps 3, got 3"):
        WarmupCosine(peak=0.1, warmup_steps=3, num_steps=3)
