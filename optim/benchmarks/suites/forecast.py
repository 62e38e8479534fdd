"""The study `forecast`: what learned prices earn, against history, error and load, with the guard on and off."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from optim.benchmarks.pictures.forecast import draw
from optim.benchmarks.spec import FULL, SMALL
from optim.benchmarks.studies.forecast import AXES, ForecastStudyOptions, as_findings, curve
from optim.benchmarks.study import AbstractStudy, Finding, StudySubject, register_study
from optim.core.clock import PhaseClock
from optim.core.options import options_as_dict
from optim.core.progress import Progress
from optim.core.stopping import StoppingCriterion

SIZES: Mapping[str, ForecastStudyOptions] = MappingProxyType(
    {
        SMALL: ForecastStudyOptions(),
        FULL: ForecastStudyOptions(jobs=100, slots=48, servers=12, days=16, decades=2, moves=40),
    }
)


@dataclass(frozen=True, kw_only=True)
class ForecastWork(AbstractStudy):
    """One curve, of the axis that the label names."""

    options_type = ForecastStudyOptions
    is_stoppable = False

    def measure(self, stop: StoppingCriterion, progress: Progress) -> Finding:
        """Measure point by point."""
        del stop
        axis, clock = str(self.labels["axis"]), PhaseClock()
        progress.start(f"learned prices against {axis}", None)
        with clock.phase("solve"):
            points = list(curve(self.chosen, axis, self.seed))
        progress.finish()
        wrong = [
            f"{axis} = {point.x:g}: more than the bound was earned"
            for point in points
            for share in (point.unguarded, point.guarded, point.paper)
            if share is not None and share > 1 + 1e-9
        ]
        return Finding(findings=as_findings(points), seconds=clock.seconds, problems=wrong, iterations=len(points))


def _subjects(options: ForecastStudyOptions, seed: int) -> Iterator[tuple[StudySubject, Mapping[str, Any]]]:
    sizes = {"jobs": options.jobs, "slots": options.slots, "servers": options.servers}
    for axis in AXES:
        name = f"days-{options.jobs}-{options.slots}-{options.servers}-{seed}"
        drawn_from = options_as_dict(options)
        yield StudySubject(name=name, topic="admission", drawn_from=drawn_from, parameters=sizes), {"axis": axis}


SPEC = register_study(
    "forecast",
    "admission",
    "share of the bound that learned prices earn, against days of history, wrong forecasts and load, guard on and off",
    kind=ForecastWork,
    sizes=SIZES,
    subjects=_subjects,
    ways=("online-learned",),
    others="the study runs online-learned and the paper's rule itself",
    columns=("axis", "x", "unguarded", "guarded", "paper"),
    figures=draw,
)
