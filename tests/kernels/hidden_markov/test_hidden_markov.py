"""Filtering, smoothing and expected transitions against enumeration of all state sequences; fitting by its properties."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.core.errors import InvalidOptionError
from optim.kernels import hidden_markov
from optim.kernels.hidden_markov import HmmParameters, fitting, inference
from optim.kernels.hidden_markov.model import log_emission

TOL = 2e-5


def random_model(rng, num_states, num_features, is_autoregressive):
    initial = rng.dirichlet(np.ones(num_states))
    transition = rng.dirichlet(np.ones(num_states), size=num_states)
    regression = 0.7 * rng.standard_normal((num_states, 1 + is_autoregressive * num_features, num_features))
    root = rng.standard_normal((num_states, num_features, num_features))
    covariance = np.eye(num_features) * 0.3 + root @ root.transpose(0, 2, 1)
    return initial, transition, regression, covariance


def as_kernel(model):
    initial, transition, regression, covariance = model
    return HmmParameters(
        *(jnp.asarray(one, jnp.float32) for one in (np.log(initial), np.log(transition), regression, covariance))
    )


def density(model, state, series, time):
    """Density of a sample in a state; an autoregression's first sample has no density."""
    _, _, regression, covariance = model
    if regression.shape[1] > 1 and time == 0:
        return 1.0
    inputs = np.concatenate([[1.0], series[time - 1]])[: regression.shape[1]]
    error = series[time] - inputs @ regression[state]
    scale = np.sqrt(np.linalg.det(2 * np.pi * covariance[state]))
    return np.exp(-0.5 * error @ np.linalg.solve(covariance[state], error)) / scale


def joint(model, series):
    """Joint density of the series and each sequence of states."""
    initial, transition, *_ = model
    table = {}
    for states in itertools.product(range(initial.size), repeat=len(series)):
        value = initial[states[0]]
        for time, state in enumerate(states):
            value *= transition[states[time - 1], state] if time else 1.0
            value *= density(model, state, series, time)
        table[states] = value
    return table


@pytest.mark.parametrize(
    ("num_states", "num_features", "is_autoregressive"),
    [
        *(pytest.param(*each, marks=pytest.mark.prove) for each in ((2, 1, False), (2, 1, True), (3, 2, False))),
        (3, 2, True),
    ],
)
def test_filter_and_smoother_equal_enumeration_of_all_state_sequences(num_states, num_features, is_autoregressive):
    rng = np.random.default_rng(num_states)
    model = random_model(rng, num_states, num_features, is_autoregressive)
    lengths = [5, 3, 1]
    series = rng.standard_normal((3, 5, num_features))
    padded = jnp.asarray(series, jnp.float32)
    filtered, log_likelihood = hidden_markov.filter(as_kernel(model), padded, jnp.asarray(lengths))
    surprise = hidden_markov.negative_log_likelihood(as_kernel(model), padded, jnp.asarray(lengths))
    smoothed = hidden_markov.smooth(as_kernel(model), padded, jnp.asarray(lengths))
    for i, length in enumerate(lengths):
        whole = joint(model, series[i, :length])
        total = sum(whole.values())
        assert float(log_likelihood[i]) == pytest.approx(np.log(total), rel=1e-4, abs=1e-4)
        assert float(surprise[i].sum()) == pytest.approx(-np.log(total), rel=1e-4, abs=1e-4)
        for time in range(length):
            past = joint(model, series[i, : time + 1])
            for state in range(num_states):
                now = sum(value for states, value in past.items() if states[time] == state) / sum(past.values())
                later = sum(value for states, value in whole.items() if states[time] == state) / total
                assert float(filtered[i, time, state]) == pytest.approx(now, abs=TOL)
                assert float(smoothed[i, time, state]) == pytest.approx(later, abs=TOL)


def test_expected_transitions_equal_enumeration():
    rng = np.random.default_rng(7)
    model, series, lengths = random_model(rng, 3, 2, False), rng.standard_normal((2, 5, 2)), [5, 3]
    expected = np.zeros((3, 3))
    for i, length in enumerate(lengths):
        table = joint(model, series[i, :length])
        for states, value in table.items():
            for pair in itertools.pairwise(states):
                expected[pair] += value / sum(table.values())
    kernel = as_kernel(model)

    @jax.jit
    def transitions(kernel, series, lengths):
        emission = log_emission(kernel, series, lengths)
        filtered, predicted, _ = inference.forward(kernel, emission)
        return inference.backward(kernel, filtered, predicted, lengths)[1]

    pairs = transitions(kernel, jnp.asarray(series, jnp.float32), jnp.asarray(lengths))
    np.testing.assert_allclose(pairs, expected, atol=1e-4)


@pytest.mark.parametrize("is_autoregressive", [pytest.param(False, marks=pytest.mark.prove), True])
def test_advancing_sample_by_sample_equals_filtering(is_autoregressive):
    rng = np.random.default_rng(8)
    kernel = as_kernel(random_model(rng, 3, 2, is_autoregressive))
    series = jnp.asarray(rng.standard_normal((1, 6, 2)), jnp.float32)
    filtered, log_likelihood = hidden_markov.filter(kernel, series, jnp.asarray([6]))
    _, first = hidden_markov.filter(kernel, series[:, :1], jnp.asarray([1]))
    belief, total = filtered[0, 0], float(first[0])
    for time in range(1, 6):
        belief, gain = hidden_markov.advance(kernel, belief, series[0, time], series[0, time - 1])
        total += float(gain)
        np.testing.assert_allclose(belief, filtered[0, time], atol=TOL)
    assert total == pytest.approx(float(log_likelihood[0]), rel=1e-4)


def simulated(rng, model, num_series, length):
    initial, transition, regression, covariance = model
    series = np.zeros((num_series, length, regression.shape[2]))
    states = np.zeros((num_series, length), int)
    for i in range(num_series):
        for time in range(length):
            odds = transition[states[i, time - 1]] if time else initial
            state = states[i, time] = rng.choice(initial.size, p=odds)
            last = series[i, time - 1] if time else np.zeros(series.shape[2])
            inputs = np.concatenate([[1.0], last])[: regression.shape[1]]
            series[i, time] = rng.multivariate_normal(inputs @ regression[state], covariance[state])
    return series, states


def known_model(is_autoregressive):
    """Two states that stay for about ten samples and differ clearly in mean, or in how they continue."""
    transition = np.array([[0.9, 0.1], [0.1, 0.9]])
    if is_autoregressive:
        regression = np.array([[[0.0], [0.95]], [[0.0], [-0.8]]])
        return np.array([0.5, 0.5]), transition, regression, np.array([[[0.05]], [[0.05]]])
    return np.array([0.5, 0.5]), transition, np.array([[[-1.0]], [[1.0]]]), np.array([[[0.1]], [[0.2]]])


@pytest.mark.prove
@given(
    seed=st.integers(0, 2**32 - 1),
    is_autoregressive=st.booleans(),
    noise=st.sampled_from([0.0, 1e-4, 1e-2, 1.0]),
    stickiness=st.sampled_from([0.0, 30.0]),
)
def test_no_iteration_lowers_what_is_maximised(seed, is_autoregressive, noise, stickiness):
    """Levels with next to no noise are where a variance that is floored after the step lowers the likelihood."""
    rng = np.random.default_rng(seed)
    levels = rng.normal(size=(3, 2))[np.cumsum(rng.random((4, 40)) < 0.1, axis=1) % 3]
    with jax.enable_x64(True):  # in 32 bits sums are rounded by more than the last iterations gain
        found = hidden_markov.fit(
            jnp.asarray(levels + noise * rng.normal(size=levels.shape)), jnp.array([40, 40, 25, 40]),
            jax.random.key(seed), num_states=3, num_restarts=2, max_iterations=15, is_autoregressive=is_autoregressive,
            stickiness=stickiness,
        )  # fmt: skip
    history = np.asarray(found.history[: int(found.num_iterations)])
    assert np.isfinite(np.asarray(found.log_likelihood))
    assert (np.diff(history) >= -1e-7 * np.abs(history[1:])).all()


@pytest.mark.parametrize("is_autoregressive", [pytest.param(False, marks=pytest.mark.prove), True])
def test_fitting_finds_a_known_model_again(is_autoregressive):
    rng = np.random.default_rng(9)
    model = known_model(is_autoregressive)
    series, states = simulated(rng, model, 20, 100)
    lengths = jnp.full(20, 100)
    padded = jnp.asarray(series, jnp.float32)
    found = hidden_markov.fit(
        padded, lengths, jax.random.key(0), num_states=2, is_autoregressive=is_autoregressive, num_restarts=4
    )
    _, true = hidden_markov.filter(as_kernel(model), padded, lengths)
    assert float(found.log_likelihood) > float(jnp.sum(true)) - 5
    belief, _ = hidden_markov.filter(found.parameters, padded, lengths)
    agreement = np.mean(np.argmax(np.asarray(belief), axis=2) == states)
    assert max(agreement, 1 - agreement) > 0.85
    history = np.asarray(found.history[: int(found.num_iterations)])
    assert (np.diff(history) > -1e-2).all()
    np.testing.assert_allclose(np.exp(found.parameters.log_transition).sum(axis=1), 1.0, rtol=1e-5)


def test_padding_changes_nothing_in_a_fit():
    rng = np.random.default_rng(10)
    series, _ = simulated(rng, known_model(False), 4, 30)
    lengths = np.array([30, 20, 10, 30])
    longer = np.concatenate([series, np.full((4, 7, 1), 99.0)], axis=1)
    for i, length in enumerate(lengths):
        longer[i, length:] = 99.0
    beliefs = [np.eye(2, dtype=np.float32)[(one[:, :, 0].T > 0).astype(int)] for one in (series, longer)]
    pairs = np.ones((2, 2), np.float32)
    maximise = jax.jit(fitting._maximise, static_argnums=5)  # at once instead of operation by operation
    first, second = (
        maximise(
            jnp.asarray(one.swapaxes(0, 1), jnp.float32),
            (np.arange(one.shape[1])[:, None] < lengths[None]).astype(np.float32),
            belief,
            pairs,
            jnp.float32(0),
            False,
        )
        for one, belief in zip((series, longer), beliefs, strict=True)
    )
    for one, other in zip(first, second, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_series_are_padded_in_order():
    padded = hidden_markov.pad_series(np.arange(10.0).reshape(5, 2), np.array([3, 0, 2]))
    assert padded.shape == (3, 3, 2)
    np.testing.assert_array_equal(padded[0], np.arange(6.0).reshape(3, 2))
    np.testing.assert_array_equal(padded[2, :2], np.arange(6.0, 10.0).reshape(2, 2))
    assert (padded[1] == 0).all()


def test_refuses_impossible_counts():
    with pytest.raises(InvalidOptionError, match="num_states must be at least 1"):
        hidden_markov.fit(jnp.zeros((1, 5, 1)), jnp.asarray([5]), jax.random.key(0), num_states=0)


@pytest.mark.parametrize("shape", [(1, 2, 1), (5, 1)])
def test_refuses_fewer_samples_than_states_and_what_is_no_set_of_series(shape):
    with pytest.raises(InvalidOptionError, match="at least num_states = 3 samples"):
        hidden_markov.fit(jnp.zeros(shape), jnp.asarray([2]), jax.random.key(0), num_states=3)


def test_a_sample_far_from_every_state_leaves_probabilities():
    kernel = as_kernel(
        (
            np.array([1 - 1e-9, 1e-9]),
            np.array([[1 - 1e-9, 1e-9], [1e-9, 1 - 1e-9]]),
            np.array([[[-1.0]], [[1.0]]]),
            np.full((2, 1, 1), 0.01),
        )
    )
    series = jnp.asarray([[[-1.0], [80.0], [1.0], [1.0]]], jnp.float32)
    belief, log_likelihood = hidden_markov.filter(kernel, series, jnp.asarray([4]))
    np.testing.assert_allclose(np.asarray(belief).sum(axis=2), 1.0, rtol=1e-5)
    assert np.isfinite(float(log_likelihood[0]))
    assert np.isfinite(np.asarray(hidden_markov.smooth(kernel, series, jnp.asarray([4])))).all()


@pytest.mark.parametrize("stickiness", [0.0, 3.0])
def test_the_priors_are_those_of_a_plain_account(stickiness):
    rng, num_states, num_features = np.random.default_rng(5), 3, 2
    model = as_kernel(random_model(rng, num_states, num_features, True))
    found = float(jax.jit(fitting.log_prior)(model, jnp.float32(stickiness)))
    initial, transition, regression, covariance = (np.asarray(array, dtype=np.float64) for array in model)
    expected = initial.sum() / num_states
    for state in range(num_states):
        for after in range(num_states):
            expected += (1 / num_states + stickiness * (state == after)) * transition[state, after]
        own = fitting.RIDGE * regression[state].T @ regression[state]
        own += fitting.PRIOR_SAMPLES * fitting.PRIOR_VARIANCE * np.eye(num_features)
        spread = np.linalg.eigvalsh(covariance[state])
        expected -= 0.5 * fitting.PRIOR_SAMPLES * np.log(spread).sum()
        expected -= 0.5 * np.sum(np.linalg.inv(covariance[state]) * own)
    assert found == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    ("num_states", "length"), [*(pytest.param(*each, marks=pytest.mark.prove) for each in ((1, 5), (3, 1))), (5, 200)]
)
def test_by_doubling_series_say_what_they_say_sample_by_sample(num_states, length):
    rng = np.random.default_rng(11)
    kernel = as_kernel(random_model(rng, num_states, 2, False))
    series = rng.standard_normal((3, length, 2))
    series[0, length // 2] = 60.0  # which no state allows
    lengths = jnp.asarray([length, max(1, length // 2), length])
    emission = log_emission(kernel, jnp.asarray(series, jnp.float32), lengths)
    forward = [jax.jit(way)(kernel, emission) for way in (inference.forward_by_sample, inference.forward_by_doubling)]
    for one, other in zip(*forward, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=TOL)
    filtered, predicted, _ = forward[0]
    if length > 1:
        ways = (inference.smoothed_by_sample, inference.smoothed_by_doubling)
        (smoothed, ratio), (again, same) = (jax.jit(way)(kernel, filtered, predicted) for way in ways)
        np.testing.assert_allclose(smoothed, again, atol=TOL)
        np.testing.assert_allclose(ratio, same, rtol=1e-3, atol=1e-4)


def test_restarts_at_once_find_what_they_find_one_after_another(monkeypatch):
    series, _ = simulated(np.random.default_rng(9), known_model(False), 3, 40)
    given = jnp.asarray(series, jnp.float32), jnp.full(3, 40), jax.random.key(0)
    options = {"num_states": 2, "num_restarts": 3, "max_iterations": 20}
    alone = hidden_markov.fit(*given, **options)
    fitting._fit.clear_cache()
    with monkeypatch.context() as patch:
        patch.setattr(jax, "default_backend", lambda: "gpu")
        together = hidden_markov.fit(*given, **options)
    fitting._fit.clear_cache()
    assert float(together.log_likelihood) == pytest.approx(float(alone.log_likelihood), rel=1e-5)
    np.testing.assert_allclose(together.parameters.regression, alone.parameters.regression, atol=1e-3)


@pytest.mark.parametrize("states", [1, 3])
@pytest.mark.parametrize("is_autoregressive", [False, True])
def test_regressors_and_not_states_make_a_model_autoregressive_and_parameters_are_counted(states, is_autoregressive):
    features = 2
    regressors = 1 + is_autoregressive * features
    model = HmmParameters(
        log_initial=jnp.zeros(states),
        log_transition=jnp.zeros((states, states)),
        regression=jnp.zeros((states, regressors, features)),
        covariance=jnp.zeros((states, features, features)),
    )
    assert model.is_autoregressive is is_autoregressive
    # Rows of chances add up to 1; a covariance of two features has three numbers.
    expected = {(1, False): 5, (1, True): 9, (3, False): 8 + 15, (3, True): 8 + 27}
    assert model.num_free == expected[states, is_autoregressive]
