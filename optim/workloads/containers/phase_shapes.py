"""How a container consumes in each phase."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from optim.models.containers.series import FloatArray

GROWTH_LEAST, GROWTH_MOST = 1.5, 3.0
"""Memory grows by a factor between these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What a container needs.

    Attributes
    ----------
    cores
        CPU limit.
    start_gib, set_gib
        Memory before data is loaded, and after.
    busy_cores
        CPU in stable running.
    memory_limit_gib
        Memory limit.
    network_mb_per_s
        Network while gradients are exchanged.
    """

    cores: float
    start_gib: float
    set_gib: float
    busy_cores: float
    memory_limit_gib: float
    network_mb_per_s: float


def draw_phase(
    name: str, length: int, memory: float, target: float, sizes: Sizes, noise: float, rng: np.random.Generator
) -> tuple[FloatArray, float]:
    """Draw one phase.

    Parameters
    ----------
    name
        The phase.
    length
        Samples.
    memory, target
        Memory at its start, and where a load leads, GiB.
    sizes
        The container.
    noise
        Factor on all deviations.
    rng
        Source of randomness.

    Returns
    -------
    tuple
        CPU, memory and network, shape (length, 3), and the memory level without noise at the end.
    """
    unit = rng.normal(size=(3, length)) * noise
    cpu, level, network = _SHAPES[name](length, memory, target, sizes, unit, rng)
    values = np.stack([np.clip(cpu, 0.0, sizes.cores), np.maximum(level[0], 0.0), np.maximum(network, 0.0)], axis=1)
    return values, float(level[1])


def two_state_chain(is_high: bool, draws: FloatArray, *, rise: float, fall: float) -> NDArray[np.bool_]:
    """Return whether a chain is in its upper state at each of n steps, the first one given.

    Draw k decides what follows step k: below `rise` it leaves the lower state, below `fall`, which is larger, the upper one. So a
    draw below both changes the state, one between them ends in the lower state whatever it was, and any other keeps it: the
    state is told by the number of changes since the last such draw, without a walk.
    """
    step = np.arange(len(draws))
    changes = np.concatenate([[0], np.cumsum(draws < rise)])[:-1]
    is_lowering = (draws >= rise) & (draws < fall)
    last = np.concatenate([[-1], np.maximum.accumulate(np.where(is_lowering, step, -1))])[:-1]
    before = np.where(last < 0, 0, changes[np.minimum(last + 1, len(draws) - 1)])
    return np.asarray(((changes - before) % 2 == 1) ^ ((last < 0) & is_high))


_Shape = tuple[FloatArray, tuple[FloatArray, float], FloatArray]


def _warmup(n: int, memory: float, _target: float, sizes: Sizes, unit: FloatArray, rng: np.random.Generator) -> _Shape:
    """Idle but for a spike now and then."""
    cpu = np.abs(0.05 + 0.05 * unit[0]) + 0.6 * (rng.random(n) < 0.2)
    return cpu, (memory * (1 + 0.02 * unit[1]), memory), 0.02 * sizes.network_mb_per_s * (1 + 0.3 * unit[2])


def _load(n: int, memory: float, target: float, sizes: Sizes, unit: FloatArray, _rng: np.random.Generator) -> _Shape:
    """Memory goes in a straight line to its target."""
    line = np.linspace(memory, target, n + 1)[1:]
    network = 2.0 * sizes.network_mb_per_s * (1 + 0.15 * unit[2])
    return 0.25 + 0.06 * unit[0], (line + 0.01 * sizes.set_gib * unit[1], target), network


def _burst(n: int, memory: float, _target: float, sizes: Sizes, unit: FloatArray, rng: np.random.Generator) -> _Shape:
    """CPU jumps between two levels, a chain with two states."""
    states = two_state_chain(bool(rng.random() < 0.5), rng.random(n), rise=0.35, fall=0.45)
    cpu = sizes.busy_cores * np.where(states, 1.1 + 0.1 * unit[0], 0.35 + 0.08 * unit[0])
    network = sizes.network_mb_per_s * np.where(states, 0.3, 1.5) * (1 + 0.15 * unit[2])
    return cpu, (memory * (1 + 0.01 * unit[1]), memory), network


def _stable(n: int, memory: float, _target: float, sizes: Sizes, unit: FloatArray, _rng: np.random.Generator) -> _Shape:
    """Everything stays where it is."""
    cpu = sizes.busy_cores * (1 + 0.03 * unit[0])
    return cpu, (memory * (1 + 0.004 * unit[1]), memory), sizes.network_mb_per_s * (1 + 0.05 * unit[2])


def _growth(n: int, memory: float, _target: float, sizes: Sizes, unit: FloatArray, rng: np.random.Generator) -> _Shape:
    """Memory grows in a straight line while CPU idles, with a spike now and then."""
    end = memory * rng.uniform(GROWTH_LEAST, GROWTH_MOST)
    line = np.linspace(memory, end, n + 1)[1:]
    cpu = sizes.busy_cores * (0.55 * (1 + 0.08 * unit[0]) + 0.8 * (rng.random(n) < 0.08))
    return cpu, (line * (1 + 0.01 * unit[1]), float(end)), 0.5 * sizes.network_mb_per_s * (1 + 0.1 * unit[2])


_SHAPES = {"warmup": _warmup, "load": _load, "burst": _burst, "stable": _stable, "growth": _growth}
