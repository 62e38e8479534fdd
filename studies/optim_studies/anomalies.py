"""The study `anomalies`: detectors on injected faults, at equal rates of false alarms."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from optim.benchmarks.study import AbstractStudy, Finding, StudySubject, register_study
from optim.benchmarks.suite import FULL, SMALL
from optim.core.arrays import FloatArray
from optim.core.driver import PhaseClock
from optim.core.errors import check_in
from optim.core.options import options_as_dict
from optim.core.progress import Progress
from optim.core.stopping import StoppingCriterion
from optim.models.containers.series import ContainerSeries
from optim.phases.anomalies import DELAYS, LinearForecast
from optim.phases.encoders.base import Spread, WindowStatisticsEncoder, WindowStatisticsOptions
from optim.phases.encoders.crbm import CrbmEncoder, CrbmOptions
from optim.phases.encoders.hmm import HmmEncoder, HmmOptions
from optim.phases.preprocessing import ScaledSeries, Scaling
from optim.workloads.containers import PHASE_NAMES, ContainerOptions, generate_containers
from optim_studies.alarms import Detection, accumulated, alarms, mute_samples, score_alarms, threshold_for
from optim_studies.faults import FaultKind, Faulty, inject

SUMMED = "-sum"

NEIGHBOUR = 10
"""The score of a window is its distance to the tenth nearest window of the training containers."""

LEAST_DISTANCE = 1e-6

CALIBRATION, TEST = 1_000_000, 2_000_000
"""Added to the seed for the containers on which thresholds are set, and for the containers with faults."""

Scorer = Callable[[ScaledSeries], FloatArray]
"""Function from scaled series to the score of each sample with three earlier samples, shape (n,); faults score high."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectionOptions:
    """Sizes of the study.

    Parameters
    ----------
    containers, usual, tested
        Number of generated containers to fit detectors on, to set thresholds on, and to test detectors on.
    faulty
        Share of the tested containers with a fault.
    false_per_day
        Alarms per fault-free container-day to which every detector's threshold is set.
    """

    containers: int = 60
    usual: int = 100
    tested: int = 60
    faulty: float = 0.5
    false_per_day: float = 1.0

    def __post_init__(self) -> None:
        check_in("[5, inf)", self, "containers", "usual", "tested")
        check_in("(0, 1]", self, "faulty")
        check_in("(0, inf)", self, "false_per_day")


def _residual(training: ScaledSeries, seed: int) -> Scorer:
    del seed
    return LinearForecast.fit(training).scores


def _free_energy(training: ScaledSeries, seed: int) -> Scorer:
    return CrbmEncoder(CrbmOptions()).fit(training, len(PHASE_NAMES), seed).free_energy


def _switching(training: ScaledSeries, seed: int) -> Scorer:
    model = HmmEncoder(HmmOptions()).fit(training, len(PHASE_NAMES), seed)
    return lambda series: model.nll(series)[series.place[series.ends(model.num_delays)] >= DELAYS]


def _neighbours(training: ScaledSeries, seed: int) -> Scorer:
    encoder = WindowStatisticsEncoder(WindowStatisticsOptions(spread=Spread.STANDARDISED)).fit(training, 0, seed)
    tree = cKDTree(encoder.encode(training))

    def score(series: ScaledSeries) -> FloatArray:
        far = tree.query(encoder.encode(series), k=[NEIGHBOUR])[0][:, 0]
        return np.asarray(np.log(np.maximum(far, LEAST_DISTANCE)))

    return score


_FITTED: Mapping[str, Callable[[ScaledSeries, int], Scorer]] = MappingProxyType(
    {"residual": _residual, "free-energy": _free_energy, "switching": _switching, "neighbours": _neighbours}
)

DETECTORS = tuple(f"{name}{way}" for name in _FITTED for way in ("", SUMMED))
"""Detectors: each kind of score by itself, and cumulative sums of its excesses (Page 1954)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Detector:
    """A fitted detector with its alarm threshold."""

    scaling: Scaling
    scorer: Scorer
    mean: float
    deviation: float
    threshold: float
    is_summed: bool

    def scores(self, series: ContainerSeries) -> FloatArray:
        """Return the scores that the threshold applies to, shape (T,)."""
        plain = _plain(self.scaling, self.scorer, series)
        return accumulated(plain, series.lengths, self.mean, self.deviation) if self.is_summed else plain

    def detection(self, faulty: Faulty) -> Detection:
        """Return the detection metrics."""
        series, interval_s = faulty.series, faulty.series.interval_s or 0.0
        raised = alarms(self.scores(series), series.lengths, self.threshold, mute_samples(interval_s))
        return score_alarms(raised, series.lengths, faulty.onset, faulty.end, interval_s)


@lru_cache(maxsize=len(DETECTORS))
def fitted_detector(name: str, options: DetectionOptions, seed: int) -> Detector:
    """Fit a detector and set its threshold; the detector is cached, since it serves all types of fault."""
    scaling, scorer = _fitted(name.removesuffix(SUMMED), options.containers, seed)
    usual = generate_containers(ContainerOptions(num_containers=options.usual), CALIBRATION + seed)
    plain = _plain(scaling, scorer, usual)
    mean, deviation = float(np.nanmean(plain)), float(np.nanstd(plain))
    is_summed = name.endswith(SUMMED)
    judged = accumulated(plain, usual.lengths, mean, deviation) if is_summed else plain
    threshold = threshold_for(judged, usual.lengths, options.false_per_day, usual.interval_s or 0.0)
    return Detector(
        scaling=scaling, scorer=scorer, mean=mean, deviation=deviation, threshold=threshold, is_summed=is_summed
    )


@lru_cache(maxsize=len(DETECTORS))
def _fitted(name: str, containers: int, seed: int) -> tuple[Scaling, Scorer]:
    series = generate_containers(ContainerOptions(num_containers=containers), seed)
    scaling = Scaling.fit(series.values, has_logarithm=True)
    return scaling, _FITTED[name](scaling.scaled(series), seed)


def _plain(scaling: Scaling, scorer: Scorer, series: ContainerSeries) -> FloatArray:
    scaled = scaling.scaled(series)
    scores = np.full(series.num_samples, np.nan)
    scores[scaled.ends(DELAYS)] = scorer(scaled)
    return scores


def faulty_containers(kind: str, options: DetectionOptions, seed: int) -> Faulty:
    """Return the tested containers, some with a fault."""
    series = generate_containers(ContainerOptions(num_containers=options.tested), TEST + seed)
    return inject(series, kind, options.faulty, seed)


SIZES: Mapping[str, DetectionOptions] = MappingProxyType(
    {SMALL: DetectionOptions(), FULL: DetectionOptions(containers=300, usual=500, tested=300)}
)


@dataclass(frozen=True, kw_only=True)
class DetectionWork(AbstractStudy):
    """Detect the faults of one type (label `fault`) with one detector (`solver`)."""

    options_type = DetectionOptions
    is_stoppable = False

    def measure(self, stop: StoppingCriterion, progress: Progress) -> Finding:
        """Fit the detector, set its threshold, and score its alarms."""
        del stop, progress
        options, clock = self.chosen, PhaseClock()
        with clock.phase("build"):
            faulty = faulty_containers(str(self.labels["fault"]), options, self.seed)
        with clock.phase("solve"):
            detector = fitted_detector(self.solver, options, self.seed)
            detection = detector.detection(faulty)
        return Finding(
            findings=asdict(detection),
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
    "detection of injected faults at equal false alarms per day: CRBM compared with plain residuals",
    kind=DetectionWork,
    sizes=SIZES,
    subjects=_subjects,
    ways=DETECTORS,
    small_ways=("residual", f"residual{SUMMED}", "neighbours"),
    columns=("fault", "faults", "recall", "precision", "delay_min", "false_per_day"),
)
