"""The study `lessons`: GPU-hours that each lesson of the Philly study saves, and how much later good jobs end."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

from optim.benchmarks.spec import FULL, SMALL
from optim.benchmarks.studies.lessons import LESSONS, LessonOptions, savings
from optim.benchmarks.study import AbstractStudy, Finding, StudySubject, register_study
from optim.core.clock import PhaseClock
from optim.core.intervals import with_halves
from optim.core.progress import Progress
from optim.core.stopping import StoppingCriterion

AROUND = ("yarn-cs", "fifo")
"""Philly's own scheduler, and the plainest queue."""

SIZES: Mapping[str, LessonOptions] = MappingProxyType(
    {
        SMALL: LessonOptions(jobs=100, gpus="4x8", load=0.05, draws=2),
        FULL: LessonOptions(jobs=1000, gpus="40x8", load=0.35),
    }
)


@dataclass(frozen=True, kw_only=True)
class LessonWork(AbstractStudy):
    """Play the worlds with and without a lesson."""

    options_type = LessonOptions
    is_stoppable = False

    def measure(self, stop: StoppingCriterion, progress: Progress) -> Finding:
        """Play, and sum up."""
        del stop
        clock, labels = PhaseClock(), self.labels
        progress.start(f"{labels['lesson']}, {labels['policy']}", None)
        with clock.phase("solve"):
            found = savings(self.chosen, str(labels["lesson"]), str(labels["policy"]), self.seed)
        progress.finish()
        return Finding(findings=with_halves(found), seconds=clock.seconds, iterations=self.chosen.draws)


def _settings(options: LessonOptions, seed: int) -> Iterator[tuple[StudySubject, Mapping[str, Any]]]:
    subject = StudySubject(
        name=f"lessons-{options.jobs}-{options.gpus}-{seed}",
        topic="cluster",
        drawn_from=options,
        parameters=asdict(options),
    )
    for policy in AROUND:
        for lesson in LESSONS:
            yield subject, {"lesson": lesson, "policy": policy}


SPEC = register_study(
    "lessons",
    "cluster",
    "what each lesson of the Philly study saves, and how much later good jobs end (95 % intervals, Student's t, by world)",
    kind=LessonWork,
    sizes=SIZES,
    subjects=_settings,
    ways=("simulation",),
    others="the study plays the policies itself",
    columns=(
        *("lesson", "policy", "gpu_hours", "gpu_hours_half", "share", "share_half", "delay_h", "delay_h_half"),
        *("delay_share", "given_up", "given_up_half"),
    ),
)
