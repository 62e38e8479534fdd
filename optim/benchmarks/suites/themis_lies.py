"""The study `themis-lies`: how often a lie pays across Themis' rounds, by payment rule and kind of world."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from optim.benchmarks.spec import FULL, SMALL
from optim.benchmarks.studies.themis_lies import CASES, LieOptions, search_lies, world_of
from optim.benchmarks.study import AbstractStudy, Finding, StudySubject, register_study
from optim.core.clock import PhaseClock
from optim.core.options import options_as_dict
from optim.core.progress import Progress
from optim.core.stopping import StoppingCriterion
from optim.models.auction.plan import PaymentRule

SIZES: Mapping[str, LieOptions] = MappingProxyType(
    {SMALL: LieOptions(draws=2, repeats=2, apps=4, shrink=120.0), FULL: LieOptions(draws=8, repeats=6)}
)


@dataclass(frozen=True, kw_only=True)
class LieWork(AbstractStudy):
    """Search lies under one payment rule."""

    options_type = LieOptions
    is_stoppable = False

    def measure(self, stop: StoppingCriterion, progress: Progress) -> Finding:
        """Play with the truth and with every lie."""
        del stop
        clock, rule = PhaseClock(), str(self.labels["rule"])
        progress.start(f"lies under {rule}", None)
        with clock.phase("solve"):
            found = search_lies(world_of(self.chosen, str(self.labels["case"])), rule, self.seed)
        progress.finish()
        return Finding(findings=options_as_dict(found), seconds=clock.seconds, iterations=found.lies)


def _rules(options: LieOptions, seed: int) -> Iterator[tuple[StudySubject, Mapping[str, Any]]]:
    for case in CASES:
        world = world_of(options, case)
        sizes = {"apps": world.apps, "gpus": world.machines * world.gpus, "machines": world.machines}
        name = f"liars-{case}-{world.apps}-{seed}"
        subject = StudySubject(name=name, topic="auction", drawn_from=world, parameters=sizes)
        for rule in PaymentRule:
            yield subject, {"case": case, "rule": rule.value}


SPEC = register_study(
    "themis-lies",
    "auction",
    "how often a lie pays across Themis' rounds under each payment rule (95 % intervals, Student's t; Wilson where worlds agree)",
    kind=LieWork,
    sizes=SIZES,
    subjects=_rules,
    ways=("simulation",),
    others="the study plays the policies itself",
    columns=(
        "case",
        "rule",
        "profitable",
        "low",
        "high",
        "harmful",
        "gain",
        "gain_half",
        "paid_gain",
        "paid_half",
        "best_gain",
    ),
)
