"""What a mini-batch of the phase encoder costs, by its sizes."""

import numpy as np

from optim.workloads.profiles.document import CrbmCost
from optim.workloads.profiles.fitting import fit_times
from optim.workloads.profiles.speed import intervals
from optim.workloads.profiles.timing import Clock, time_interleaved

SHAPES = tuple(
    (batch, delays, visible, hidden)
    for batch in (256, 1024)
    for delays in (3, 10)
    for visible, hidden in ((2, 10), (2, 40), (8, 10), (8, 40))
)
"""Windows a batch, delays, visibles, hiddens."""

BATCHES = 8
"""Mini-batches of a timed epoch."""


def measure_crbm(clock: Clock, *, repeats: int = 7) -> CrbmCost:
    """Time epochs of contrastive divergence of several sizes, and fit ``a0 + a1 B n nv (nv + nh)`` a mini-batch."""
    import jax
    import jax.numpy as jnp

    from optim.kernels.crbm import Rates, initial_parameters, initial_state, train, window_ends

    seconds = []
    for batch, delays, visible, hidden in SHAPES:
        length = batch * BATCHES + delays
        series = jnp.asarray(np.random.default_rng(0).standard_normal((length, visible)), jnp.float32)
        ends = jnp.asarray(window_ends([length], delays))
        key = jax.random.key(0)
        state = initial_state(initial_parameters(key, num_visible=visible, num_hidden=hidden, num_delays=delays))
        held = [state]

        def epoch(held=held, series=series, ends=ends, key=key, batch=batch) -> None:  # type: ignore[no-untyped-def]
            held[0], errors = train(held[0], series, ends, Rates(), key, num_epochs=1, batch_size=batch)
            errors.block_until_ready()

        (timing,) = time_interleaved([epoch], repeats=repeats, clock=clock)
        seconds.append(timing.median / BATCHES)
    shapes = np.array(SHAPES, dtype=np.float64)
    work = shapes[:, 0] * shapes[:, 1] * shapes[:, 2] * (shapes[:, 2] + shapes[:, 3])
    fit = fit_times(np.stack([np.ones_like(work), work], axis=1), np.array(seconds))
    return CrbmCost(coefficients=intervals(fit), error=fit.error)
