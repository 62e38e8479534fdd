"""What the shapes of a model's arrays say of it."""

import jax.numpy as jnp
import pytest

from optim.kernels.hidden_markov.model import HmmParameters


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
