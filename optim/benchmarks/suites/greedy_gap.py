"""The study `greedy-gap`: how far greedy's welfare lies below the exact optimum, over many auctions."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from optim.benchmarks.record import Record, plain, provenance
from optim.benchmarks.registry import register_suite
from optim.benchmarks.spec import SMALL, BenchRequest, BenchSpec, Skipped
from optim.benchmarks.work import AbstractWork, Subject, describe_error
from optim.core.errors import InvalidOptionError
from optim.core.options import build_options, options_as_dict
from optim.core.progress import Progress
from optim.core.status import PointStatus, Termination
from optim.core.stopping import StoppingCriterion
from optim.models.files import verify
from optim.solvers.solve import package_versions, solve
from optim.workloads.auction.generator import GeneratorOptions, generate

PROBLEM = "auction"
FULL = "full"
SOLVER = "greedy"

FAMILIES: Mapping[str, GeneratorOptions] = MappingProxyType(
    {
        "free": GeneratorOptions(num_apps=24, num_gpus=96, num_machines=12),
        "any gangs": GeneratorOptions(num_apps=24, num_gpus=96, num_machines=12, gangs="any"),
        "one machine": GeneratorOptions(num_apps=24, num_gpus=96, num_machines=12, gangs="any", widest="machine"),
        "a third held": GeneratorOptions(num_apps=24, num_gpus=96, num_machines=12, held_share=0.3),
    }
)
"""Auctions drawn, by name."""

QUANTILES = (0.0, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class GapOptions:
    """Sizes of the study.

    Parameters
    ----------
    instances
        Auctions of each family.
    moves
        Moves of exchange of greedy.
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
class GapWork(AbstractWork):
    """Solve a family's auctions twice, by greedy and exactly; every answer is verified."""

    def resolved_options(self) -> dict[str, Any]:
        """Return the study's complete options."""
        return plain(options_as_dict(build_options(GapOptions, self.options)))

    def run(self, stop: StoppingCriterion, progress: Progress) -> Record:
        """Solve all of them and describe the gaps."""
        del stop
        try:
            return self._study(progress)
        except Exception as error:  # one family that fails must not end the others
            return self.failed(describe_error(error))

    def _study(self, progress: Progress) -> Record:
        options = build_options(GapOptions, self.options)
        gaps, relative, violations = [], [], []
        seconds = {"build": 0.0, "compile": 0.0, "solve": 0.0, "verify": 0.0}
        values, optima, proven = 0.0, 0.0, 0
        progress.start(f"greedy on {self.labels['family']}", options.instances)
        for k in range(options.instances):
            instance = generate(FAMILIES[str(self.labels["family"])], self.seed * options.instances + k)
            begun = time.perf_counter()
            greedy = solve(instance, SOLVER, options={"moves": options.moves}, seed=self.seed)
            seconds["solve"] += time.perf_counter() - begun
            exact = solve(instance, "exact", seed=self.seed)
            begun = time.perf_counter()
            for solution in (greedy, exact):
                violations += [str(violation) for violation in verify(instance, solution).violations]
            seconds["verify"] += time.perf_counter() - begun
            assert greedy.objective is not None
            assert exact.objective is not None
            proven += int(exact.termination is Termination.OPTIMAL)
            gaps.append(exact.objective - greedy.objective)
            relative.append(gaps[-1] / max(exact.objective, 1e-9))
            values += greedy.objective
            optima += exact.objective
            progress.update(k + 1)
        progress.finish()
        figures = {
            "gap_log": dict(zip(map(str, QUANTILES), np.quantile(gaps, QUANTILES).tolist(), strict=True)),
            "gap_share": dict(zip(map(str, QUANTILES), np.quantile(relative, QUANTILES).tolist(), strict=True)),
            "optimal": float(np.mean(np.array(gaps) <= 1e-9)),
            "exact_proven": proven / options.instances,
        }
        return Record(
            **self.identity()
            | {
                "parameters": {
                    **self.subject.parameters,
                    "median_gap": float(np.median(gaps)),
                    "p99_gap": float(np.quantile(gaps, 0.99)),
                    "optimal": figures["optimal"],
                    "exact_proven": figures["exact_proven"],
                }
            },
            **provenance(),
            versions=dict(package_versions()),
            termination=Termination.COMPLETED.value,
            primal=PointStatus.FEASIBLE.value,
            objective=values / options.instances,
            bound=optima / options.instances,
            gap=(optima - values) / values if values > 0 else None,
            load=plain(figures),
            seconds=seconds,
            verified=not violations,
            violations=violations[:5],
            iterations=options.instances,
        )


def build(request: BenchRequest) -> Iterator[AbstractWork | Skipped]:
    """Yield one piece of work for each family and seed.

    Raises
    ------
    InvalidOptionError
        If an option isn't one of `GapOptions`.
    """
    given = {**options_as_dict(SIZES[request.size]), **request.options}
    options = build_options(GapOptions, given)
    for seed in request.seeds:
        for family, drawn in FAMILIES.items():
            subject = Subject(generate(drawn, seed * options.instances))
            for solver in request.solvers or (SOLVER,):
                if solver != SOLVER:
                    reason = "the study is about greedy"
                    yield Skipped(suite=SPEC.name, instance=subject.name, solver=solver, reason=reason)
                    continue
                yield GapWork(
                    suite=SPEC.name,
                    subject=subject,
                    solver=SOLVER,
                    seed=seed,
                    options=given,
                    labels={"family": family},
                )


SPEC = register_suite(
    BenchSpec(
        name="greedy-gap",
        problem=PROBLEM,
        summary="greedy's welfare beside the exact optimum (bound), means and distribution of the gap in log units",
        build=build,
        sizes=(SMALL, FULL),
        columns=("family", "median_gap", "p99_gap", "optimal", "exact_proven"),
    )
)
