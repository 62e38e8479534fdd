"""The study `misreport`: how often a lie pays under each payment rule, and how much."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from optim.benchmarks.spec import FULL, SMALL
from optim.benchmarks.studies.misreport import MisreportOptions, divide, study, value_tables
from optim.benchmarks.study import AbstractStudy, Finding, StudySubject, register_study
from optim.core.clock import PhaseClock
from optim.core.options import options_as_dict
from optim.core.progress import Progress
from optim.core.stopping import StoppingCriterion
from optim.models.auction.instance import AuctionInstance, EmptyValue
from optim.models.auction.plan import PaymentRule
from optim.solvers.solve import solve
from optim.workloads.auction.generator import GeneratorOptions, generate

COMPARED = 5
"""Auctions whose payments are compared with those of the exact solver."""

SIZES: Mapping[str, MisreportOptions] = MappingProxyType(
    {SMALL: MisreportOptions(), FULL: MisreportOptions(instances=300)}
)


@dataclass(frozen=True, kw_only=True)
class MisreportWork(AbstractStudy):
    """Search lies under one rule, which the label names."""

    options_type = MisreportOptions
    is_stoppable = False

    def measure(self, stop: StoppingCriterion, progress: Progress) -> Finding:
        """Draw the auctions, search, and compare some payments with the exact solver's."""
        del stop
        options, rule = self.chosen, PaymentRule(str(self.labels["rule"]))
        clock = PhaseClock()
        with clock.phase("build"):
            instances = [draw(options, self.seed * options.instances + k) for k in range(options.instances)]
        progress.start(f"misreports under {rule}", None)
        with clock.phase("solve"):
            found = study(instances, rule, options, np.random.default_rng(self.seed))
        progress.finish()
        with clock.phase("verify"):
            problems = [text for instance in instances[:COMPARED] for text in disagreements(instance, rule, options)]
        return Finding(
            findings=options_as_dict(found),
            seconds=clock.seconds,
            problems=problems,
            iterations=found.lies,
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
    plan = solve(replace(instance, empty_value=convention), "exact", options={"payments": "closed"}).decision
    table = value_tables(instance, options.gpus)
    found = divide((table - table[:, :1] if is_zero else table)[None], is_zero=is_zero)
    if plan.awarded_gpus(options.apps).tolist() != found.bundle[0].tolist():
        return []
    gap = float(np.abs(plan.share_high - found.share[0]).max())
    return [f"{instance.name}: shares differ by {gap:.3g}"] if gap > 1e-6 else []


def _subjects(options: MisreportOptions, seed: int) -> Iterator[tuple[StudySubject, Mapping[str, Any]]]:
    sizes = {"apps": options.apps, "gpus": options.gpus, "machines": 1}
    name = f"auctions-{options.instances}-{seed}"
    for rule in PaymentRule:
        subject = StudySubject(name=name, topic="auction", drawn_from=(options.apps, options.gpus), parameters=sizes)
        yield subject, {"rule": rule.value}


SPEC = register_study(
    "misreport",
    "auction",
    "how often a lie pays under each payment rule (profitable: share of auctions), and how much",
    kind=MisreportWork,
    sizes=SIZES,
    subjects=_subjects,
    ways=("enumeration",),
    others="the study goes through all divisions itself",
    columns=("rule", "profitable", "best_gain", "mean_gain", "leftover", "least_share"),
)
