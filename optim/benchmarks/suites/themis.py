"""The study `themis`: what its knobs do round after round, and how rivals fare on the same apps."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from optim.benchmarks.spec import FULL, SMALL
from optim.benchmarks.studies.themis_rounds import WorldOptions, measured
from optim.benchmarks.study import AbstractStudy, Finding, StudySubject, register_study
from optim.core.clock import PhaseClock
from optim.core.intervals import with_halves
from optim.core.progress import Progress
from optim.core.stopping import StoppingCriterion

FAIRNESS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
LEASES_MIN = (5.0, 10.0, 20.0, 40.0)
RIVALS = ("themis-greedy", "drf", "tiresias", "las", "srtf", "srsf", "fifo")

SIZES: Mapping[str, WorldOptions] = MappingProxyType(
    {
        SMALL: WorldOptions(apps=5, draws=2, shrink=60.0),
        FULL: WorldOptions(apps=24, machines=4, gpus=8, draws=5, shrink=10.0),
    }
)


@dataclass(frozen=True, kw_only=True)
class ThemisWork(AbstractStudy):
    """Play the worlds under one policy with one setting."""

    options_type = WorldOptions
    is_stoppable = False

    def measure(self, stop: StoppingCriterion, progress: Progress) -> Finding:
        """Play, and sum up."""
        del stop
        clock, labels = PhaseClock(), self.labels
        settings = {name: labels[name] for name in ("fairness", "lease_min") if name in labels}
        progress.start(f"{labels['policy']} {settings or ''}", None)
        with clock.phase("solve"):
            rival = "themis" if labels["case"] == "rival" else None
            found = measured(self.chosen, str(labels["policy"]), settings, self.seed, beside=rival)
        progress.finish()
        return Finding(findings=with_halves(found), seconds=clock.seconds, iterations=self.chosen.draws)


def _subject(options: WorldOptions, name: str, seed: int) -> StudySubject:
    sizes = {"apps": options.apps, "gpus": options.machines * options.gpus, "machines": options.machines}
    return StudySubject(name=f"{name}-{options.apps}-{seed}", topic="auction", drawn_from=options, parameters=sizes)


def _settings(options: WorldOptions, seed: int) -> Iterator[tuple[StudySubject, Mapping[str, Any]]]:
    subject = _subject(options, "apps", seed)
    yield subject, {"case": "default", "policy": "themis"}
    for fairness in FAIRNESS:
        yield subject, {"case": "f", "policy": "themis", "fairness": fairness}
    for lease in LEASES_MIN:
        yield subject, {"case": "lease", "policy": "themis", "lease_min": lease}
    for rival in RIVALS:
        yield subject, {"case": "rival", "policy": rival}


SPEC = register_study(
    "themis",
    "auction",
    "Themis round after round: f, leases, and rivals on the same apps (95 % intervals, Student's t)",
    kind=ThemisWork,
    sizes=SIZES,
    subjects=_settings,
    ways=("simulation",),
    others="the study plays the policies itself",
    columns=(
        *("case", "policy", "fairness", "lease_min", "rho_max", "rho_max_half", "gpu_hours", "gpu_hours_half"),
        *("app_hours", "times_fairer", "times_fairer_half", "gpu_time", "gpu_time_half"),
    ),
)
