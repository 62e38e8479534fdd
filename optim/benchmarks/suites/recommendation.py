"""The study `recommendation`: requests for many containers that have run for long, drawn in blocks and never all in memory."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from optim.benchmarks.spec import FULL, SMALL
from optim.benchmarks.studies.week import drawn_block
from optim.benchmarks.study import AbstractStudy, Finding, StudySubject, register_study
from optim.core.clock import PhaseClock
from optim.core.memory import peak_memory
from optim.core.options import options_as_dict
from optim.core.progress import Progress
from optim.core.ranges import check_in
from optim.core.stopping import SolveState, StoppingCriterion
from optim.models.containers.series import ContainerSeries
from optim.simulation.containers.recommendation import Recommendation, Recommender, RecommendOptions

LEARNED_BLOCK = 900_000
"""Number of the block that is learned from and tuned on: beyond all those that are recommended for."""

CHECKED = 3
"""Containers of the first block that are recommended for alone as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleOptions:
    """Sizes of the study.

    Parameters
    ----------
    containers, samples
        Containers to recommend for, and samples of each at 15 s: 40,320 are a week.
    block
        Containers in memory at once.
    learned
        Other containers to learn from and to tune on.
    cycle_minutes
        How long a recommendation is to hold.
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
        """Draw, recommend, and check each block."""
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
                found = list(recommender.recommend(series))
            with clock.phase("verify"):
                tally.add(series, found, recommender if number == 0 else None)
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
    """What was recommended, in sums, and what is wrong with it."""

    def __init__(self) -> None:
        self.containers = 0
        self.problems: list[str] = []
        self._requests: dict[str, float] = {}
        self._savings: dict[str, float] = {}
        self._digest = hashlib.sha256()

    def add(self, series: ContainerSeries, found: list[Recommendation], again: Recommender | None) -> None:
        """Take a block in: each of its containers once, in order, with requests within limits."""
        if [own.container for own in found] != list(series.containers):
            self.problems.append(f"{series.containers[0]} and those after it: not one recommendation each")
        for place, own in enumerate(found):
            for column, name in enumerate(series.names):
                amount = own.amounts[name]
                most = np.inf if series.limit is None else float(series.limit[place, column])
                if not 0 < amount.request <= most:
                    self.problems.append(f"{own.container}: request {amount.request:g} of {name}, limit {most:g}")
                self._requests[name] = self._requests.get(name, 0.0) + amount.request
                self._savings[name] = self._savings.get(name, 0.0) + amount.saving
                self._digest.update(f"{amount.request:.6g} ".encode())
        for place in range(CHECKED if again is not None else 0):
            alone = [] if again is None or place >= len(found) else list(again.recommend(series.select([place])))
            if alone and alone[0] != found[place]:
                self.problems.append(f"{found[place].container}: alone it is recommended something else")
        self.containers += len(found)

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
    "requests for many containers that have run for long, in blocks: time and memory",
    kind=ScaleWork,
    sizes=SIZES,
    subjects=_subjects,
    ways=("analogs",),
    columns=("containers", "samples", "ms_a_container", "process_peak_gb", "cpu_request", "memory_request"),
)
