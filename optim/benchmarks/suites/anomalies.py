"""The study `anomalies`: what detectors find of injected faults, all at the same false alarms a day on containers without any."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

from optim.benchmarks.spec import FULL, SMALL
from optim.benchmarks.studies.fault_detection import (
    DETECTORS,
    SUMMED,
    DetectionOptions,
    faulty_containers,
    fitted_detector,
)
from optim.benchmarks.study import AbstractStudy, Finding, StudySubject, register_study
from optim.core.clock import PhaseClock
from optim.core.options import options_as_dict
from optim.core.progress import Progress
from optim.core.stopping import StoppingCriterion
from optim.workloads.containers.faults import FaultKind

SIZES: Mapping[str, DetectionOptions] = MappingProxyType(
    {SMALL: DetectionOptions(), FULL: DetectionOptions(containers=300, usual=500, tested=300)}
)


@dataclass(frozen=True, kw_only=True)
class DetectionWork(AbstractStudy):
    """Find the faults of the kind that the label names with one detector, which `solver` names."""

    options_type = DetectionOptions
    is_stoppable = False

    def measure(self, stop: StoppingCriterion, progress: Progress) -> Finding:
        """Fit, set the threshold, and count."""
        del stop, progress
        options, clock = self.chosen, PhaseClock()
        with clock.phase("build"):
            faulty = faulty_containers(str(self.labels["fault"]), options, self.seed)
        with clock.phase("solve"):
            detector = fitted_detector(self.solver, options, self.seed)
            found = detector.detection(faulty)
        return Finding(
            findings=asdict(found),
            parameters={"faults": int((faulty.onset >= 0).sum())},
            seconds=clock.seconds,
        )


def _subjects(options: DetectionOptions, seed: int) -> Iterator[tuple[StudySubject, Mapping[str, Any]]]:
    for kind in FaultKind:
        name = f"{kind}-{options.tested}-{seed}"
        yield StudySubject(name=name, topic="phases", drawn_from=options_as_dict(options)), {"fault": str(kind)}


SPEC = register_study(
    "anomalies",
    "phases",
    "injected faults that detectors find, all at the same false alarms a day: the machine beside plain residuals",
    kind=DetectionWork,
    sizes=SIZES,
    subjects=_subjects,
    ways=DETECTORS,
    small_ways=("residual", f"residual{SUMMED}", "neighbours"),
    columns=("fault", "faults", "recall", "precision", "delay_min", "false_per_day"),
)
