"""The adversary: for each price function the worst instance that a search finds, beside the theorem's ratio.

A row's objective is the online plan's value, its bound the optimum of the worst instance found, its ratio
what the online rule lost there. `promised` is the competitive ratio of the rule's theorem on that instance:
`proven` where the theorem's conditions hold, otherwise the theorem's limit for ever smaller jobs, which
coarse jobs may exceed. Both plans are verified.

The reference instances ``adversary-*`` are the worst that this suite finds at size ``full`` with seed 0.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from optim.benchmarks.pictures.plots import INK, PALETTE, as_svg, canvas
from optim.benchmarks.record import Record, finite, plain, provenance
from optim.benchmarks.registry import register_suite
from optim.benchmarks.spec import SMALL, BenchRequest, BenchSpec, Figure, Skipped
from optim.benchmarks.studies.adversary import RANGES, RULES, AdversaryOptions, Finding, found_name, search
from optim.benchmarks.studies.sketch import draw_sketch
from optim.benchmarks.work import AbstractWork, Subject, describe_error
from optim.core.options import build_options, options_as_dict
from optim.core.progress import Progress
from optim.core.solution import Solution, relative_gap
from optim.core.status import PointStatus, Sense, Termination
from optim.core.stopping import AnyOf, StoppingCriterion, TimeLimit
from optim.models.admission.instance import AdmissionInstance
from optim.models.admission.plan import AdmissionPlan
from optim.models.files import verify
from optim.solvers.admission.warm_up import compile_online
from optim.solvers.solve import package_versions

FULL = "full"
SOLVER = "online"

SIZES: Mapping[str, AdversaryOptions] = MappingProxyType(
    {SMALL: AdversaryOptions(restarts=2, moves=40), FULL: AdversaryOptions(restarts=12, moves=300)}
)


@dataclass(frozen=True, kw_only=True)
class AdversaryWork(AbstractWork):
    """Search for an instance on which one rule does badly; the record is about the instance found.

    The subject is the sketch from which the search starts; labels name rule and kind of jobs.
    """

    def resolved_options(self) -> dict[str, Any]:
        """Return the search's complete options."""
        return plain(options_as_dict(build_options(AdversaryOptions, self.options)))

    def run(self, stop: StoppingCriterion, progress: Progress) -> Record:
        """Search, then verify the online plan and the best one."""
        try:
            return self._attempt(stop, progress)
        except Exception as error:  # one search that fails must not end the others
            return self.failed(describe_error(error))

    def _attempt(self, stop: StoppingCriterion, progress: Progress) -> Record:
        rule = str(self.labels["rule"])
        rules = AnyOf(stop, TimeLimit(self.time_limit_s)) if self.time_limit_s is not None else stop
        begun = time.perf_counter()
        compile_online(is_shared=False)
        compiled = time.perf_counter()
        options = build_options(AdversaryOptions, self.options)
        progress.start(f"adversary of {rule}", None)
        finding = search(rule, str(self.labels["jobs"]), options, np.random.default_rng(self.seed), rules)
        progress.finish()
        searched = time.perf_counter()
        violations = [
            str(violation)
            for plan, value in ((finding.run.plan, finding.objective), (finding.offline_plan, finding.optimum))
            for violation in verify(finding.instance, _claim(finding.instance, plan, value)).violations
        ]
        done = time.perf_counter()
        seconds = {"build": 0.0, "compile": compiled - begun, "solve": searched - compiled, "verify": done - searched}
        return self._record(finding, options, seconds, violations)

    def _record(
        self, finding: Finding, options: AdversaryOptions, seconds: dict[str, float], violations: list[str]
    ) -> Record:
        found = Subject(finding.instance)
        is_whole = finding.evaluations == options.restarts * (options.moves + 1)
        promised, is_proven = finding.promise
        identity = self.identity() | {
            "instance": found.name,
            "instance_digest": found.digest,
            "parameters": {
                **found.parameters,
                "promised": finite(promised),
                "proven": is_proven,
                "waves": [plain(options_as_dict(wave)) for wave in finding.sketch.in_order()],
            },
        }
        return Record(
            **identity,
            **provenance(),
            versions=dict(package_versions()),
            termination=(Termination.COMPLETED if is_whole else Termination.TIME_LIMIT).value,
            primal=PointStatus.FEASIBLE.value,
            dual=PointStatus.NONE.value,
            objective=finding.objective,
            bound=finding.optimum,
            gap=finite(relative_gap(finding.objective, finding.optimum, Sense.MAXIMISE)),
            ratio=finite(finding.ratio),
            seconds=seconds,
            verified=not violations,
            violations=violations,
            iterations=finding.evaluations,
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


def build(request: BenchRequest) -> Iterator[AbstractWork | Skipped]:
    """Yield one search for each kind of jobs, each rule and each seed.

    Raises
    ------
    InvalidOptionError
        If an option isn't one of `AdversaryOptions`.
    """
    options = {**options_as_dict(SIZES[request.size]), **request.options}
    build_options(AdversaryOptions, options)
    for kind, ranges in RANGES.items():
        for rule in RULES:
            name = found_name(rule, kind)
            for solver in request.solvers or (SOLVER,):
                if solver != SOLVER:
                    reason = "the adversary attacks the online rule only"
                    yield Skipped(suite=SPEC.name, instance=name, solver=solver, reason=reason)
                    continue
                for seed in request.seeds:
                    yield AdversaryWork(
                        suite=SPEC.name,
                        subject=Subject(draw_sketch(ranges, np.random.default_rng(seed)).instance(name)),
                        solver=SOLVER,
                        seed=seed,
                        time_limit_s=request.time_limit_s,
                        options=options,
                        labels={"rule": rule, "jobs": kind},
                    )


def figures(records: Sequence[Record]) -> list[Figure]:
    """Draw the worst ratios found beside the ratios promised."""
    shown = [record for record in records if record.ratio is not None and record.error is None]
    if not shown:
        return []
    with canvas(9, 0.9 + 0.34 * len(shown)) as (drawing, (panel,)):
        for y, record in enumerate(reversed(shown)):
            panel.barh(y, record.ratio or 1.0, color=PALETTE[0 if record.parameters.get("proven") else 1], height=0.62)
            promised = record.parameters.get("promised")
            if promised is not None:
                panel.plot(promised, y, "|", color=INK, markersize=14, markeredgewidth=1.8)
        names = [f"{record.labels['rule']}, {record.labels['jobs']} jobs" for record in reversed(shown)]
        panel.set_yticks(range(len(shown)), names)
        panel.set_xscale("log")
        panel.set_xlim(left=0.9)
        panel.set_xlabel("optimum / online")
        svg = as_svg(drawing, "adversary")
    caption = (
        "Bars: the worst ratio found. Ticks: the ratio that the rule's theorem promises on that instance. Blue "
        "where its conditions hold; elsewhere the tick is the limit for ever smaller jobs, which may be exceeded."
    )
    return [Figure(title="Worst ratio found, and promised", caption=caption, svg=svg)]


SPEC = register_suite(
    BenchSpec(
        name="adversary",
        problem="admission",
        summary="the worst instances that a search finds for each price function, beside the theorems' ratios",
        build=build,
        sizes=(SMALL, FULL),
        columns=("rule", "jobs", "promised", "proven"),
        figures=figures,
    )
)
