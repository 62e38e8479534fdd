"""Small worlds of containers, by hand and at random."""

import numpy as np
from hypothesis import strategies as st

from optim.models.containers import ContainerSeries
from optim.models.containers.series import CPU, MEMORY
from optim.rightsizing import PhaseLabels, make_world

INTERVAL_S = 15.0


def series_of(arrays, resources=(CPU, MEMORY), limit=None, phase=None):
    """Series of arrays of shape (samples, R), or (samples,) for the same demand of all resources."""
    columns = [np.repeat(a[:, None], len(resources), axis=1) if a.ndim == 1 else a for a in map(np.asarray, arrays)]
    return ContainerSeries(
        resources=resources,
        containers=tuple(f"c{k}" for k in range(len(columns))),
        lengths=np.array([len(a) for a in columns], dtype=np.int64),
        values=np.concatenate(columns).astype(np.float64),
        time_s=np.concatenate([np.arange(len(a)) * INTERVAL_S for a in columns]),
        interval_s=INTERVAL_S,
        limit=limit,
        phase=phase,
    )


def world_of(arrays, *, training=None, cycle_samples=4, limit=None, labels=None, training_labels=None, num_phases=2):
    """A world of short cycles; without training series, the simulated series replace them."""
    series = series_of(arrays, limit=limit)
    known = series_of(arrays if training is None else training)
    phases = None
    if labels is not None:
        own = labels if training_labels is None else training_labels
        phases = PhaseLabels(labels=np.concatenate(labels), training=np.concatenate(own), num_phases=num_phases)
    return make_world(series, known, phases, cycle_s=cycle_samples * INTERVAL_S)


@st.composite
def drawn_worlds(draw, *, max_containers=4, max_samples=24, cycle_samples=4):
    """Levels that jump, with noise, ragged lengths and arbitrary phases."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    number = draw(st.integers(1, max_containers))
    arrays, labels = [], []
    for k in range(2 * number):
        # One sample is not enough to learn from; another test covers the policies' rejection.
        length = int(rng.integers(1 if k < number else 2, max_samples + 1))
        jumps = rng.integers(0, 4, (length // 5 + 1, 2)).repeat(5, axis=0)[:length]
        noise = rng.uniform(0, 0.3) * rng.random((length, 2))
        arrays.append(jumps * rng.uniform(0.2, 2.0) + noise)
        labels.append(jumps[:, 0] % 2)
    limit = np.full((number, 2), 9.0)
    return world_of(
        arrays[:number],
        training=arrays[number:],
        cycle_samples=cycle_samples,
        limit=limit,
        labels=labels[:number],
        training_labels=labels[number:],
    )


def drawn_series(seed, number, *, lengths=(20, 70)):
    """Draw pods of one or two containers whose levels jump between three phases, with noise, spikes and now and then a limit."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(*lengths, number)
    phase = np.concatenate([(rng.integers(0, 3, size // 7 + 1)).repeat(7)[:size] for size in sizes])
    scale = np.repeat(rng.uniform(0.3, 3.0, (number, 2)), sizes, axis=0)
    levels = np.array([[0.2, 1.0], [1.5, 2.0], [4.0, 2.5]])[phase]
    spikes = 1 + 3.0 * (rng.random(len(phase)) < 0.03)[:, None]
    values = scale * levels * (1 + 0.3 * rng.random((len(phase), 2))) * spikes
    values[::17] = 0.0
    names = tuple(f"c{seed}-{k}" for k in range(number))
    return ContainerSeries(
        resources=(CPU, MEMORY), containers=names, lengths=sizes, values=values, interval_s=INTERVAL_S,
        time_s=np.concatenate([INTERVAL_S * np.arange(size) for size in sizes]), phase=phase, phase_names=("low", "high", "most"),
        limit=np.where(rng.random((number, 2)) < 0.3, 9.0, np.inf), units={name: f"p{k // 2}" for k, name in enumerate(names) if k % 5},
    )  # fmt: skip
