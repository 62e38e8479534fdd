"""The study `greedy-gap`: welfare gap of `greedy` to the exact solver over many auctions."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from optim.benchmarks.study import AbstractStudy, Finding, StudySubject, register_study
from optim.benchmarks.suite import FULL, SMALL
from optim.core.driver import PhaseClock
from optim.core.errors import InvalidOptionError
from optim.core.progress import Progress
from optim.core.solution import Solution, Termination
from optim.core.stopping import SolveState, StoppingCriterion
from optim.models.files import verify
from optim.solvers.solve import solve
from optim.workloads.auction.generator import GeneratorOptions, generate

GREEDY = "greedy"

FAMILIES: Mapping[str, GeneratorOptions] = MappingProxyType(
    {
        "free": GeneratorOptions(num_apps=24, num_gpus=96, num_machines=12),
        "any gangs": GeneratorOptions(num_apps=24, num_gpus=96, num_machines=12, gangs="any"),
        "one machine": GeneratorOptions(num_apps=24, num_gpus=96, num_machines=12, gangs="any", widest="machine"),
        "a third held": GeneratorOptions(num_apps=24, num_gpus=96, num_machines=12, allocated_share=0.3),
    }
)
"""Generator options of each family of auctions, by name."""

QUANTILES = (0.0, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class GapOptions:
    """Sizes of the study.

    Parameters
    ----------
    instances
        Number of auctions of each family.
    moves
        Number of exchange moves of greedy.
    """

    instances: int = 20
    moves: int = 500

    def __post_init__(self) -> None:
        if self.instances < 1 or self.moves < 0:
            raise InvalidOptionError(
                f"instances must be at least 1 and moves at least 0, got {self.instances} and {self.moves}"
            )


SIZES: Mapping[str, GapOptions] = MappingProxyType({SMALL: GapOptions(), FULL: GapOptions(instances=200)})


@dataclass(frozen=True, kw_only=True)
class GapWork(AbstractStudy):
    """Solve a family's auctions twice, by greedy and exactly; every answer is verified."""

    options_type = GapOptions

    def measure(self, stop: StoppingCriterion, progress: Progress) -> Finding:
        """Solve all auctions and describe the gaps."""
        family, number = str(self.labels["family"]), self.chosen.instances
        clock = PhaseClock()
        pairs: list[tuple[Solution, Solution]] = []
        problems: list[str] = []
        progress.start(f"greedy on {family}", number)
        for k in range(number):
            if pairs and stop(SolveState(elapsed_s=clock.elapsed_s, iterations=k)) is not None:
                break
            instance = generate(FAMILIES[family], self.seed * number + k)
            with clock.phase("solve"):
                greedy = solve(instance, GREEDY, options={"moves": self.chosen.moves}, seed=self.seed)
            with clock.phase("exact"):
                pairs.append((greedy, solve(instance, "exact", seed=self.seed)))
            with clock.phase("verify"):
                problems += [str(row) for solution in pairs[-1] for row in verify(instance, solution).violations]
            progress.update(k + 1)
        progress.finish()
        findings, measures = _described(pairs)
        return Finding(
            findings=findings,
            measures=measures,
            seconds=clock.seconds,
            problems=problems,
            iterations=len(pairs),
            is_whole=len(pairs) == number,
        )


def _described(pairs: list[tuple[Solution, Solution]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return means and shares, and the distributions of the gap in log units and as a share."""
    greedy, exact = np.array([[solution.objective for solution in pair] for pair in pairs], dtype=np.float64).T
    gaps = exact - greedy
    shares = gaps / np.maximum(exact, 1e-9)
    is_proven = [solution.termination is Termination.OPTIMAL for _, solution in pairs]
    findings = {
        "mean_greedy": float(greedy.mean()),
        "mean_exact": float(exact.mean()),
        "median_gap": float(np.median(gaps)),
        "p99_gap": float(np.quantile(gaps, 0.99)),
        "optimal": float(np.mean(gaps <= 1e-9)),
        "exact_proven": float(np.mean(is_proven)),
    }
    quantiles = {
        name: dict(zip(map(str, QUANTILES), np.quantile(values, QUANTILES).tolist(), strict=True))
        for name, values in (("gap_log", gaps), ("gap_share", shares))
    }
    return findings, quantiles


def _subjects(options: GapOptions, seed: int) -> Iterator[tuple[StudySubject, Mapping[str, Any]]]:
    for family, source_options in FAMILIES.items():
        name = f"auctions-{options.instances}-{seed}"
        yield StudySubject(name=name, topic="auction", drawn_from=source_options), {"family": family}


SPEC = register_study(
    "greedy-gap",
    "auction",
    "welfare of greedy compared with the exact solver: means, and the distribution of the gap in log units",
    kind=GapWork,
    sizes=SIZES,
    subjects=_subjects,
    ways=(GREEDY,),
    others="the study is about greedy",
    columns=("family", "mean_greedy", "mean_exact", "median_gap", "p99_gap", "optimal", "exact_proven"),
)
