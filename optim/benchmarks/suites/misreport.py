"""The study `misreport`: how often a lie pays under each payment rule, and how much."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from optim.benchmarks.record import Record, plain, provenance
from optim.benchmarks.registry import register_suite
from optim.benchmarks.spec import SMALL, BenchRequest, BenchSpec, Skipped
from optim.benchmarks.studies.misreport import MisreportOptions, divide, study, value_tables
from optim.benchmarks.work import AbstractWork, Subject, describe_error
from optim.core.options import build_options, options_as_dict
from optim.core.progress import Progress
from optim.core.status import PointStatus, Termination
from optim.core.stopping import StoppingCriterion
from optim.models.auction.instance import AuctionInstance, EmptyValue
from optim.models.auction.plan import PaymentRule
from optim.solvers.solve import package_versions, solve
from optim.workloads.auction.generator import GeneratorOptions, generate

PROBLEM = "auction"
FULL = "full"
SOLVER = "enumeration"
COMPARED = 5
"""Auctions whose payments are compared with those of the exact solver."""

SIZES: Mapping[str, MisreportOptions] = MappingProxyType(
    {SMALL: MisreportOptions(), FULL: MisreportOptions(instances=300)}
)


@dataclass(frozen=True, kw_only=True)
class MisreportWork(AbstractWork):
    """Search lies under one rule; the subject is the first auction, the label names the rule."""

    def resolved_options(self) -> dict[str, Any]:
        """Return the study's complete options."""
        return plain(options_as_dict(build_options(MisreportOptions, self.options)))

    def run(self, stop: StoppingCriterion, progress: Progress) -> Record:
        """Draw the auctions, search, and compare some payments with the exact solver's."""
        del stop
        try:
            return self._study(progress)
        except Exception as error:  # one rule that fails must not end the others
            return self.failed(describe_error(error))

    def _study(self, progress: Progress) -> Record:
        options = build_options(MisreportOptions, self.options)
        rule = PaymentRule(str(self.labels["rule"]))
        begun = time.perf_counter()
        instances = [draw(options, self.seed * options.instances + k) for k in range(options.instances)]
        drawn = time.perf_counter()
        progress.start(f"misreports under {rule}", None)
        finding = study(instances, rule, options, np.random.default_rng(self.seed))
        progress.finish()
        searched = time.perf_counter()
        violations = [text for instance in instances[:COMPARED] for text in disagreements(instance, rule, options)]
        figures = plain(options_as_dict(finding))
        return Record(
            **self.identity() | {"parameters": {**self.subject.parameters, **figures}},
            **provenance(),
            versions=dict(package_versions()),
            termination=Termination.COMPLETED.value,
            primal=PointStatus.FEASIBLE.value,
            objective=finding.profitable,
            load=figures,
            seconds={
                "build": drawn - begun,
                "compile": 0.0,
                "solve": searched - drawn,
                "verify": time.perf_counter() - searched,
            },
            verified=not violations,
            violations=violations,
            iterations=finding.lies,
        )


def draw(options: MisreportOptions, seed: int) -> AuctionInstance:
    """Draw an auction of one machine whose apps take any number of GPUs."""
    return generate(
        GeneratorOptions(num_apps=options.apps, num_gpus=options.gpus, num_machines=1, gangs="elastic"), seed
    )


def disagreements(instance: AuctionInstance, rule: PaymentRule, options: MisreportOptions) -> list[str]:
    """Say where the enumeration's shares and the exact solver's differ; bundles may differ where several are best."""
    is_zero = rule is PaymentRule.LOTTERY
    convention = EmptyValue.ZERO if is_zero else EmptyValue.POSITIVE
    plan = solve(replace(instance, empty_value=convention), "exact").decision
    table = value_tables(instance, options.gpus)
    found = divide((table - table[:, :1] if is_zero else table)[None], is_zero=is_zero)
    if plan.awarded_gpus(options.apps).tolist() != found.bundle[0].tolist():
        return []
    gap = float(np.abs(plan.share_high - found.share[0]).max())
    return [f"{instance.name}: shares differ by {gap:.3g}"] if gap > 1e-6 else []


def build(request: BenchRequest) -> Iterator[AbstractWork | Skipped]:
    """Yield one search for each rule and seed.

    Raises
    ------
    InvalidOptionError
        If an option isn't one of `MisreportOptions`.
    """
    given = {**options_as_dict(SIZES[request.size]), **request.options}
    options = build_options(MisreportOptions, given)
    for seed in request.seeds:
        subject = Subject(draw(options, seed * options.instances))
        for rule in PaymentRule:
            for solver in request.solvers or (SOLVER,):
                if solver != SOLVER:
                    reason = "the study goes through all divisions itself"
                    yield Skipped(suite=SPEC.name, instance=subject.name, solver=solver, reason=reason)
                    continue
                yield MisreportWork(
                    suite=SPEC.name,
                    subject=subject,
                    solver=SOLVER,
                    seed=seed,
                    options=given,
                    labels={"rule": rule.value},
                )


SPEC = register_suite(
    BenchSpec(
        name="misreport",
        problem=PROBLEM,
        summary="how often a lie pays under each payment rule (objective: share of auctions), and how much",
        build=build,
        sizes=(SMALL, FULL),
        columns=("rule", "profitable", "best_gain", "mean_gain", "leftover", "least_share"),
    )
)
