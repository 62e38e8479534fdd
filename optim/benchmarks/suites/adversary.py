"""The adversary: for each price function the worst instance that a search finds, beside the theorem's ratio.

A row tells the online plan's value and the optimum of the worst instance found, and `worst_ratio`, what the online rule lost
there. `promised` is the competitive ratio of the rule's theorem on that instance: `proven` where the theorem's conditions hold,
otherwise the theorem's limit for ever smaller jobs, which coarse jobs may exceed. Both plans are verified.

The reference instances ``adversary-*`` are the worst that this suite finds at size ``full`` with seed 0.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from optim.benchmarks.pictures.plots import INK, PALETTE, Gallery, name_rows
from optim.benchmarks.record import Record
from optim.benchmarks.spec import FULL, SMALL, Figure
from optim.benchmarks.studies.adversary import RANGES, RULES, AdversaryOptions, found_name, search
from optim.benchmarks.studies.sketch import draw_sketch
from optim.benchmarks.study import AbstractStudy, Finding, register_study
from optim.benchmarks.work import Subject
from optim.core.clock import PhaseClock
from optim.core.options import options_as_dict
from optim.core.progress import Progress
from optim.core.solution import Solution
from optim.core.status import PointStatus, Sense, Termination
from optim.core.stopping import StoppingCriterion
from optim.models.admission.instance import AdmissionInstance
from optim.models.admission.plan import AdmissionPlan
from optim.models.files import verify
from optim.solvers.admission.warm_up import compile_online

SOLVER = "online"

SIZES: Mapping[str, AdversaryOptions] = MappingProxyType(
    {SMALL: AdversaryOptions(restarts=2, moves=40), FULL: AdversaryOptions(restarts=12, moves=300)}
)


@dataclass(frozen=True, kw_only=True)
class AdversaryWork(AbstractStudy):
    """Search for an instance on which one rule does badly; the record is about the instance found.

    The subject is the sketch from which the search starts; labels name rule and kind of jobs.
    """

    options_type = AdversaryOptions

    def measure(self, stop: StoppingCriterion, progress: Progress) -> Finding:
        """Search, then verify the online plan and the best one."""
        rule = str(self.labels["rule"])
        clock = PhaseClock()
        with clock.phase("compile"):
            compile_online(is_shared=False)
        progress.start(f"adversary of {rule}", None)
        with clock.phase("solve"):
            found = search(rule, str(self.labels["jobs"]), self.chosen, np.random.default_rng(self.seed), stop)
        progress.finish()
        plans = ((found.run.plan, found.objective), (found.offline_plan, found.optimum))
        with clock.phase("verify"):
            claims = [_claim(found.instance, plan, value) for plan, value in plans]
            problems = [str(violation) for claim in claims for violation in verify(found.instance, claim).violations]
        promised, is_proven = found.promise
        subject = Subject(found.instance)
        return Finding(
            findings={
                "found_digest": subject.digest,
                "online": found.objective,
                "optimum": found.optimum,
                "worst_ratio": found.ratio,
                "promised": promised,
                "proven": is_proven,
            },
            measures={
                "found": subject.parameters,
                "waves": [options_as_dict(wave) for wave in found.sketch.in_order()],
            },
            seconds=clock.seconds,
            problems=problems,
            iterations=found.evaluations,
            is_whole=found.evaluations == self.chosen.restarts * (self.chosen.moves + 1),
        )


def _claim(instance: AdmissionInstance, plan: AdmissionPlan, value: float) -> Solution:
    """Return the claim that a plan is feasible and worth so much."""
    return Solution(
        problem="admission",
        instance=instance.name,
        solver=SOLVER,
        sense=Sense.MAXIMISE,
        termination=Termination.COMPLETED,
        primal=PointStatus.FEASIBLE,
        decision=plan,
        objective=value,
    )


def _subjects(options: AdversaryOptions, seed: int) -> Iterator[tuple[Subject, Mapping[str, Any]]]:
    """Yield the sketch from which a search starts, for each kind of jobs and each rule."""
    del options
    for kind, ranges in RANGES.items():
        for rule in RULES:
            sketch = draw_sketch(ranges, np.random.default_rng(seed))
            yield Subject(sketch.instance(found_name(rule, kind))), {"rule": rule, "jobs": kind}


def figures(records: Sequence[Record]) -> list[Figure]:
    """Draw the worst ratios found beside the ratios promised."""
    shown = [record for record in records if record.findings.get("worst_ratio") is not None]
    if not shown:
        return []
    gallery = Gallery()
    caption = (
        "Bars: the worst ratio found. Ticks: the ratio that the rule's theorem promises on that instance. Blue "
        "where its conditions hold; elsewhere the tick is the limit for ever smaller jobs, which may be exceeded."
    )
    title, height = "Worst ratio found, and promised", 0.9 + 0.34 * len(shown)
    with gallery.picture("adversary", title, caption, 9, height) as (panel,):
        for y, record in enumerate(reversed(shown)):
            found = record.findings
            panel.barh(y, found["worst_ratio"], color=PALETTE[0 if found["proven"] else 1], height=0.62)
            if found["promised"] is not None:
                panel.plot(found["promised"], y, "|", color=INK, markersize=14, markeredgewidth=1.8)
        name_rows(panel, [f"{record.labels['rule']}, {record.labels['jobs']} jobs" for record in shown])
        panel.set(xscale="log", xlabel="optimum / online")
        panel.set_xlim(left=0.9)
    return gallery


SPEC = register_study(
    "adversary",
    "admission",
    "the worst instances that a search finds for each price function, beside the theorems' ratios",
    kind=AdversaryWork,
    sizes=SIZES,
    subjects=_subjects,
    ways=(SOLVER,),
    others="the adversary attacks the online rule only",
    columns=("rule", "jobs", "online", "optimum", "worst_ratio", "promised", "proven"),
    figures=figures,
)
