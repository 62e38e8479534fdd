"""Generator of containers of training jobs with known phases."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from optim.core.arrays import FloatArray, IntArray
from optim.core.errors import check_in
from optim.core.limits import check_drawn
from optim.models.containers.series import CPU, MEMORY, NETWORK, UNKNOWN_PHASE, ContainerSeries

MIN_GROWTH, MAX_GROWTH = 1.5, 3.0
"""Range of the factor by which memory grows in a growth phase."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Resource levels of a container.

    Attributes
    ----------
    cores
        CPU limit in cores.
    start_gib, set_gib
        Memory before and after the job loads its data, in GiB.
    busy_cores
        CPU in the stable phase, in cores.
    memory_limit_gib
        Memory limit in GiB.
    network_mb_per_s
        Network usage during gradient exchange.
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
        Name of the phase.
    length
        Number of samples.
    memory, target
        Memory at the beginning, and memory at the end of a load phase, in GiB.
    sizes
        Resource levels of the container.
    noise
        Factor on the standard deviation of all noise.
    rng
        Source of randomness.

    Returns
    -------
    tuple
        CPU, memory and network, shape (length, 3), and the noiseless memory level at the end.
    """
    unit = rng.normal(size=(3, length)) * noise
    cpu, level, network = _SHAPES[name](length, memory, target, sizes, unit, rng)
    values = np.stack([np.clip(cpu, 0.0, sizes.cores), np.maximum(level[0], 0.0), np.maximum(network, 0.0)], axis=1)
    return values, float(level[1])


def two_state_chain(is_high: bool, draws: FloatArray, *, rise: float, fall: float) -> NDArray[np.bool_]:
    """Return whether a two-state chain is in its upper state at each step; `is_high` is the state at the first step.

    Draw k decides the transition after step k: a draw below `rise` leaves the lower state, a draw below `fall` (larger) leaves the
    upper one. So a draw below both flips the state, a draw between them ends in the lower state in any case, and any other keeps
    the state. The parity of the flips since the last draw between them gives the state without a loop.
    """
    step = np.arange(len(draws))
    changes = np.concatenate([[0], np.cumsum(draws < rise)])[:-1]
    is_lowering = (draws >= rise) & (draws < fall)
    last = np.concatenate([[-1], np.maximum.accumulate(np.where(is_lowering, step, -1))])[:-1]
    before = np.where(last < 0, 0, changes[np.minimum(last + 1, len(draws) - 1)])
    return np.asarray(((changes - before) % 2 == 1) ^ ((last < 0) & is_high))


_Shape = tuple[FloatArray, tuple[FloatArray, float], FloatArray]


def _warmup(n: int, memory: float, _target: float, sizes: Sizes, unit: FloatArray, rng: np.random.Generator) -> _Shape:
    """Idle, with an occasional spike."""
    cpu = np.abs(0.05 + 0.05 * unit[0]) + 0.6 * (rng.random(n) < 0.2)
    return cpu, (memory * (1 + 0.02 * unit[1]), memory), 0.02 * sizes.network_mb_per_s * (1 + 0.3 * unit[2])


def _load(n: int, memory: float, target: float, sizes: Sizes, unit: FloatArray, _rng: np.random.Generator) -> _Shape:
    """Memory rises linearly to its target."""
    line = np.linspace(memory, target, n + 1)[1:]
    network = 2.0 * sizes.network_mb_per_s * (1 + 0.15 * unit[2])
    return 0.25 + 0.06 * unit[0], (line + 0.01 * sizes.set_gib * unit[1], target), network


def _burst(n: int, memory: float, _target: float, sizes: Sizes, unit: FloatArray, rng: np.random.Generator) -> _Shape:
    """CPU jumps between two levels of a two-state chain."""
    states = two_state_chain(bool(rng.random() < 0.5), rng.random(n), rise=0.35, fall=0.45)
    cpu = sizes.busy_cores * np.where(states, 1.1 + 0.1 * unit[0], 0.35 + 0.08 * unit[0])
    network = sizes.network_mb_per_s * np.where(states, 0.3, 1.5) * (1 + 0.15 * unit[2])
    return cpu, (memory * (1 + 0.01 * unit[1]), memory), network


def _stable(n: int, memory: float, _target: float, sizes: Sizes, unit: FloatArray, _rng: np.random.Generator) -> _Shape:
    """All resources stay constant, except for noise."""
    cpu = sizes.busy_cores * (1 + 0.03 * unit[0])
    return cpu, (memory * (1 + 0.004 * unit[1]), memory), sizes.network_mb_per_s * (1 + 0.05 * unit[2])


def _growth(n: int, memory: float, _target: float, sizes: Sizes, unit: FloatArray, rng: np.random.Generator) -> _Shape:
    """Memory grows linearly while CPU is at half of its busy level, with an occasional spike."""
    end = memory * rng.uniform(MIN_GROWTH, MAX_GROWTH)
    line = np.linspace(memory, end, n + 1)[1:]
    cpu = sizes.busy_cores * (0.55 * (1 + 0.08 * unit[0]) + 0.8 * (rng.random(n) < 0.08))
    return cpu, (line * (1 + 0.01 * unit[1]), float(end)), 0.5 * sizes.network_mb_per_s * (1 + 0.1 * unit[2])


_SHAPES = {"warmup": _warmup, "load": _load, "burst": _burst, "stable": _stable, "growth": _growth}

PHASE_NAMES = ("warmup", "load", "burst", "stable", "growth")

WARMUP, LOAD, BURST, STABLE, GROWTH = range(5)

SEQUENCES: tuple[tuple[float, tuple[int, ...]], ...] = (
    (0.35, (WARMUP, LOAD, BURST, STABLE, BURST, STABLE)),
    (0.20, (WARMUP, LOAD, GROWTH, STABLE)),
    (0.15, (WARMUP, LOAD, GROWTH, BURST, STABLE)),
    (0.10, (WARMUP, LOAD, BURST, STABLE, GROWTH, STABLE)),
    (0.20, (WARMUP, LOAD, BURST, STABLE)),
)
"""Sequences of phases, each with the share of containers that follow it."""

UNLOAD_SHARE = 0.6
"""Share of containers that release their memory at the end; this phase is labelled as a load."""

MEAN_SAMPLES = (3.0, 10.0, 24.0, 80.0, 50.0)

MAX_MEAN_SAMPLES = max(sum(MEAN_SAMPLES[phase] for phase in (*phases, LOAD)) for _, phases in SEQUENCES)
"""Mean number of samples of the longest sequence of phases."""

MIN_SAMPLES = (3, 5, 5, 5, 5)

DURATION_SHAPE = 4.0

IDLE_CORES_SHARE = 0.01
"""CPU of a container whose job has ended, as a share of its busy level."""

LIMIT_HEADROOM = 1.1
"""Memory limits are this factor times the memory after the largest growth, rounded up to a power of two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerOptions:
    """Options of the generator; the defaults give the simplest case.

    Attributes
    ----------
    num_containers
        Number of containers. Container k doesn't depend on this number.
    interval_s
        Seconds between samples.
    noise
        Factor on all noise within phases.
    size_spread
        Factor on the standard deviations of the logarithms of the containers' sizes.
    phase_length
        Factor on the mean lengths of the phases.
    missing
        Share of lost samples; above 0, time stamps are irregular.
    jitter
        Largest shift of a time stamp as a share of the interval, below 0.5; above 0, time stamps are irregular.
    drift
        Logarithm of a factor on CPU and memory levels, for data that differs from a model's training data. The constant
        CPU of warm-up and load phases isn't scaled, and no container exceeds its cores.
    idle_share
        Mean share of a container's life during which it idles after its job; these samples have no phase (-1).
    idle_memory
        Share of the memory allocated since its start that an idling container keeps.
    has_network
        Whether network is a third resource: downloads in load phases, gradient exchange in bursts.
    """

    num_containers: int = 400
    interval_s: float = 15.0
    noise: float = 1.0
    size_spread: float = 1.0
    phase_length: float = 1.0
    missing: float = 0.0
    jitter: float = 0.0
    drift: float = 0.0
    idle_share: float = 0.0
    idle_memory: float = 0.0
    has_network: bool = False

    def __post_init__(self) -> None:
        """Check ranges."""
        check_in("[1, inf)", self, "num_containers")
        check_in("[1e-6, 1e9]", self, "interval_s")
        check_in("(0, inf)", self, "phase_length")
        check_in("[0, 100]", self, "noise", "size_spread")
        check_in("[0, 1)", self, "missing", "idle_share")
        check_in("[0, 1]", self, "idle_memory")
        check_in("[0, 0.5)", self, "jitter")
        check_in("[-3, 3]", self, "drift")


def generate_containers(options: ContainerOptions, seed: int) -> ContainerSeries:
    """Generate containers with the true phase of each sample.

    Containers pass through warm-up, load, bursts, stable running and growth; CPU is in cores, memory in GiB.

    Parameters
    ----------
    options
        Options of the generator.
    seed
        Equal options and seeds give equal series.

    Returns
    -------
    ContainerSeries
        `phase` indexes `PHASE_NAMES`; `limit` has the cores and a memory limit of each container. Samples are on a grid of
        `interval_s`, unless samples are missing or jittered.

    Raises
    ------
    InvalidOptionError
        If the size exceeds the limits on input files (`ReadLimits`).

    Examples
    --------
    >>> series = generate_containers(ContainerOptions(num_containers=3), seed=0)
    >>> series.num_segments, series.values.shape[1], series.interval_s
    (3, 2, 15.0)
    """
    check_drawn("count", options.num_containers, "num_containers")
    samples = options.num_containers * MAX_MEAN_SAMPLES * options.phase_length / (1.0 - options.idle_share)
    check_drawn("rows", samples, "samples of num_containers of this phase_length")
    streams = np.random.SeedSequence(seed).spawn(options.num_containers)
    containers = [_container(options, np.random.default_rng(stream)) for stream in streams]
    is_regular = options.missing == 0 and options.jitter == 0
    return ContainerSeries(
        resources=(CPU, MEMORY, NETWORK) if options.has_network else (CPU, MEMORY),
        containers=tuple(f"container-{k}" for k in range(options.num_containers)),
        lengths=np.array([len(times) for times, *_ in containers], dtype=np.int64),
        values=np.concatenate([values for _, values, *_ in containers]),
        time_s=np.concatenate([times for times, *_ in containers]),
        interval_s=options.interval_s if is_regular else None,
        phase=np.concatenate([phase for _, _, phase, _ in containers]),
        phase_names=PHASE_NAMES,
        limit=np.stack([limit for *_, limit in containers]),
    )


def _container(
    options: ContainerOptions, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray, IntArray, FloatArray]:
    """Return time stamps, values, phases and limits of one container."""
    sizes = _sizes(options, rng)
    sequence = list(SEQUENCES[rng.choice(len(SEQUENCES), p=[share for share, _ in SEQUENCES])][1])
    is_unloaded = bool(rng.random() < UNLOAD_SHARE)
    memory, parts, labels = sizes.start_gib, [], []
    for place, phase in enumerate([*sequence, LOAD] if is_unloaded else sequence):
        mean = MEAN_SAMPLES[phase] * options.phase_length
        length = max(MIN_SAMPLES[phase], round(rng.gamma(DURATION_SHAPE, mean / DURATION_SHAPE)))
        target = sizes.start_gib if place == len(sequence) else sizes.set_gib
        values, memory = draw_phase(PHASE_NAMES[phase], length, memory, target, sizes, options.noise, rng)
        parts.append(values)
        labels.append(np.full(length, phase, dtype=np.int64))
    if options.idle_share > 0:
        parts.append(_idle_tail(options, sizes, memory, sum(map(len, labels)), rng))
        labels.append(np.full(len(parts[-1]), UNKNOWN_PHASE, dtype=np.int64))
    values, phases = np.concatenate(parts), np.concatenate(labels)
    limit = np.array([sizes.cores, sizes.memory_limit_gib, np.nan])
    if not options.has_network:
        values, limit = values[:, :2], limit[:2]
    times: FloatArray = np.arange(len(phases), dtype=np.float64) * options.interval_s
    if options.jitter > 0:
        times = times + rng.uniform(-options.jitter, options.jitter, len(times)) * options.interval_s
        times -= min(times[0], 0.0)
    is_present = np.ones(len(times), dtype=bool)
    if options.missing > 0:
        is_present = rng.random(len(times)) >= options.missing
        is_present[0] = True
    return times[is_present], values[is_present], phases[is_present], limit


def _idle_tail(
    options: ContainerOptions, sizes: Sizes, memory: float, busy_samples: int, rng: np.random.Generator
) -> FloatArray:
    """Draw CPU, memory and network of the samples after a container's job, shape (samples, 3)."""
    mean = busy_samples * options.idle_share / (1.0 - options.idle_share)
    length = round(rng.gamma(DURATION_SHAPE, mean / DURATION_SHAPE))
    memory_kept = sizes.start_gib + options.idle_memory * (memory - sizes.start_gib)
    unit = rng.normal(size=(2, length)) * options.noise
    cpu = np.clip(IDLE_CORES_SHARE * sizes.busy_cores * np.abs(1.0 + 0.5 * unit[0]), 0.0, sizes.cores)
    return np.stack([cpu, np.maximum(memory_kept * (1.0 + 0.002 * unit[1]), 0.0), np.zeros(length)], axis=1)


def _sizes(options: ContainerOptions, rng: np.random.Generator) -> Sizes:
    """Draw a container's resource levels, fixed for its life."""
    cores = float(rng.choice([1, 2, 4]))
    start, settled, level = rng.normal(size=3) * options.size_spread * np.array([0.4, 0.35, 0.2])
    moved = np.exp(options.drift)
    set_gib = float(1.0 * moved * np.exp(settled))
    max_memory = MAX_GROWTH * LIMIT_HEADROOM * set_gib
    return Sizes(
        cores=cores,
        start_gib=float(0.05 * moved * np.exp(start)),
        set_gib=set_gib,
        busy_cores=float(min(cores, 0.9 * moved * np.exp(level))),
        memory_limit_gib=float(2.0 ** np.ceil(np.log2(max_memory))),
        network_mb_per_s=float(20.0 * np.exp(0.3 * options.size_spread * rng.normal())),
    )
