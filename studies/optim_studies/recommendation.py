"""The study `recommendation`: requests for many containers, generated in blocks."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from optim.benchmarks.study import AbstractStudy, Finding, StudySubject, register_study
from optim.benchmarks.suite import FULL, SMALL
from optim.core.arrays import FloatArray
from optim.core.driver import PhaseClock
from optim.core.errors import check_in
from optim.core.limits import peak_memory
from optim.core.options import options_as_dict
from optim.core.progress import Progress
from optim.core.stopping import SolveState, StoppingCriterion
from optim.models.containers.series import ContainerSeries
from optim.rightsizing.recommendation import Recommendation, Recommender, RecommendOptions
from optim.workloads.containers import ContainerOptions, generate_containers

USUAL_SAMPLES = 183.0
"""Mean length of a generated container with the default lengths of phases."""

LONGER = 0.75
"""Mean length of each of a container's two generated series, relative to the required length; their sum is rarely too short."""

BLOCK_SEEDS = 1_000_003
"""Step between the blocks' seeds, so that draws of neighbouring seeds share no block."""


def drawn_block(number: int, size: int, num_samples: int, seed: int) -> ContainerSeries:
    """Return block `number`, of containers with exactly `num_samples` samples at 15 s.

    A container's series consists of two generated series, one after the other, cut to length, or repeated if too short.

    Parameters
    ----------
    number, size
        Index of the block, and number of its containers.
    num_samples
        Samples of each container.
    seed
        Seed of all blocks.
    """
    options = ContainerOptions(num_containers=2 * size, phase_length=max(1.0, LONGER * num_samples / USUAL_SAMPLES))
    generated = generate_containers(options, BLOCK_SEEDS * seed + number)
    lives = [generated.values[rows] for rows in generated.segments()]
    values = np.concatenate([_cut(lives[2 * k], lives[2 * k + 1], num_samples) for k in range(size)])
    limit = None if generated.limit is None else np.maximum(generated.limit[::2], generated.limit[1::2])
    return replace(
        generated,
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


LEARNED_BLOCK = 900_000
"""Index of the block for training and calibration, beyond all other blocks."""

CHECKED = 3
"""Number of containers of the first block that get a second recommendation, each without the others, as a check."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleOptions:
    """Sizes of the study.

    Parameters
    ----------
    containers, samples
        Number of containers to recommend for, and of samples of each at 15 s: 40,320 are a week.
    block
        Number of containers in memory at once.
    learned
        Number of other containers to learn from and to tune on.
    cycle_minutes
        Validity of a recommendation in minutes.
    """

    containers: int = 40
    samples: int = 960
    block: int = 20
    learned: int = 40
    cycle_minutes: float = 60.0

    def __post_init__(self) -> None:
        check_in("[1, inf)", self, "containers", "samples", "block")
        check_in("[2, inf)", self, "learned")
        check_in("(0, inf)", self, "cycle_minutes")


SIZES: Mapping[str, ScaleOptions] = MappingProxyType(
    {SMALL: ScaleOptions(), FULL: ScaleOptions(containers=10_000, samples=40_320, block=50, learned=200)}
)


@dataclass(frozen=True, kw_only=True)
class ScaleWork(AbstractStudy):
    """Learn once, then recommend block by block."""

    options_type = ScaleOptions

    def measure(self, stop: StoppingCriterion, progress: Progress) -> Finding:
        """Generate each block, recommend requests for it, and check them."""
        options, clock, tally = self.chosen, PhaseClock(), _Tally()
        with clock.phase("build"):
            known = drawn_block(LEARNED_BLOCK, options.learned, options.samples, self.seed)
            recommender = Recommender(known, RecommendOptions(cycle_s=60.0 * options.cycle_minutes), self.seed)
            del known
        progress.start("containers", options.containers)
        blocks = -(-options.containers // options.block)
        for number in range(blocks):
            size = min(options.block, options.containers - number * options.block)
            with clock.phase("transform"):
                series = drawn_block(number, options.block, options.samples, self.seed)
                series = series.select(np.arange(size)) if size < options.block else series
            with clock.phase("solve"):
                recommendations = list(recommender.recommend(series))
            with clock.phase("verify"):
                tally.add(series, recommendations, recommender if number == 0 else None)
            progress.update(tally.containers)
            if stop(SolveState(elapsed_s=clock.elapsed_s, iterations=number + 1)) is not None:
                break
        progress.finish()
        return Finding(
            findings=tally.findings(),
            measures={
                "samples": tally.containers * options.samples,
                "ms_a_container": 1e3 * clock.seconds["solve"] / tally.containers,
                "process_peak_gb": peak_memory() / 2**30,
            },
            seconds=clock.seconds,
            problems=tally.problems,
            iterations=tally.containers,
            is_whole=tally.containers == options.containers,
        )


class _Tally:
    """Sums over recommendations, and errors found in them."""

    def __init__(self) -> None:
        self.containers = 0
        self.problems: list[str] = []
        self._requests: dict[str, float] = {}
        self._savings: dict[str, float] = {}
        self._digest = hashlib.sha256()

    def add(self, series: ContainerSeries, recommendations: list[Recommendation], again: Recommender | None) -> None:
        """Add a block; check that each container has one recommendation, in order, with requests within its limits."""
        if [recommendation.container for recommendation in recommendations] != list(series.containers):
            self.problems.append(
                f"{series.containers[0]} and the containers after it: not one recommendation per container"
            )
        for place, recommendation in enumerate(recommendations):
            for column, name in enumerate(series.names):
                amount = recommendation.amounts[name]
                most = np.inf if series.limit is None else float(series.limit[place, column])
                if not 0 < amount.request <= most:
                    self.problems.append(
                        f"{recommendation.container}: request {amount.request:g} of {name}, limit {most:g}"
                    )
                self._requests[name] = self._requests.get(name, 0.0) + amount.request
                self._savings[name] = self._savings.get(name, 0.0) + amount.saving
                self._digest.update(f"{amount.request:.6g} ".encode())
        for place in range(CHECKED if again is not None else 0):
            alone = (
                [] if again is None or place >= len(recommendations) else list(again.recommend(series.select([place])))
            )
            if alone and alone[0] != recommendations[place]:
                self.problems.append(
                    f"{recommendations[place].container}: its recommendation differs without the other containers"
                )
        self.containers += len(recommendations)

    def findings(self) -> dict[str, Any]:
        """Return means over containers, and a digest of all requests to six digits."""
        number = max(self.containers, 1)
        means = {f"{name}_request": total / number for name, total in self._requests.items()}
        savings = {f"{name}_saving": total / number for name, total in self._savings.items()}
        return {"containers": self.containers, **means, **savings, "digest": self._digest.hexdigest()[:16]}


def _subjects(options: ScaleOptions, seed: int) -> Iterator[tuple[StudySubject, Mapping[str, Any]]]:
    sizes = {"containers": options.containers, "samples": options.samples}
    name = f"containers-{options.containers}-{options.samples}-{seed}"
    yield StudySubject(name=name, topic="phases", drawn_from=options_as_dict(options), parameters=sizes), {}


SPEC = register_study(
    "recommendation",
    "phases",
    "time and memory to recommend requests for many long-running containers, in blocks",
    kind=ScaleWork,
    sizes=SIZES,
    subjects=_subjects,
    ways=("knn",),
    columns=("containers", "samples", "ms_a_container", "process_peak_gb", "cpu_request", "memory_request"),
)
