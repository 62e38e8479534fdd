"""Containers that run for a week, drawn in blocks, as many as one likes."""

from dataclasses import replace

import numpy as np

from optim.models.containers.series import ContainerSeries, FloatArray
from optim.workloads.containers import ContainerOptions, generate_containers

USUAL_SAMPLES = 183.0
"""Mean length of a generated container with the usual lengths of phases."""

LONGER = 0.75
"""Each of a container's two lives lasts so much of what is asked for, on average: together they are hardly ever too short."""

BLOCK_SEEDS = 1_000_003
"""Seeds of the blocks of one draw: no two draws of neighbouring seeds share a block."""


def drawn_block(number: int, size: int, num_samples: int, seed: int) -> ContainerSeries:
    """Return block `number` of containers of exactly so many samples at 15 s.

    A container's life is that of two generated ones, one after the other, cut to length; one that is too short begins again.

    Parameters
    ----------
    number, size
        Which block, and its containers.
    num_samples
        Samples of each container.
    seed
        Of all blocks.
    """
    options = ContainerOptions(num_containers=2 * size, phase_length=max(1.0, LONGER * num_samples / USUAL_SAMPLES))
    drawn = generate_containers(options, BLOCK_SEEDS * seed + number)
    lives = [drawn.values[rows] for rows in drawn.segments()]
    values = np.concatenate([_cut(lives[2 * k], lives[2 * k + 1], num_samples) for k in range(size)])
    limit = None if drawn.limit is None else np.maximum(drawn.limit[::2], drawn.limit[1::2])
    return replace(
        drawn,
        containers=tuple(f"container-{number * size + k}" for k in range(size)),
        lengths=np.full(size, num_samples, dtype=np.int64),
        values=values,
        time_s=np.tile(np.arange(num_samples) * options.interval_s, size),
        phase=None,
        phase_names=(),
        limit=limit,
    )


def _cut(first: FloatArray, second: FloatArray, num_samples: int) -> FloatArray:
    life = np.concatenate([first, second])
    return np.resize(life, (num_samples, life.shape[1]))
