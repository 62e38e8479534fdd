"""The study `likeness`: distance of generated from given containers, with default and with fitted generator parameters."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from optim.benchmarks.study import AbstractStudy, Finding, StudySubject, register_study
from optim.benchmarks.suite import FULL, SMALL
from optim.core.driver import PhaseClock
from optim.core.errors import check_in
from optim.core.options import options_as_dict
from optim.core.progress import Progress
from optim.core.stopping import StoppingCriterion
from optim.models.containers.series import ContainerSeries
from optim.phases.preprocessing import to_grid
from optim.workloads.containers import ContainerOptions
from optim_studies.generator_fit import PARAMETERS, TRAITS, Likeness, drawn_traits, fit_generator, summary_statistics
from optim_studies.series import GENERATED, given_series

USUAL, FITTED = "usual", "fitted"
OTHER_DRAW = 1_000_000
"""Seed offset of generated series that replace given ones, so that remaining differences are random."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LikenessOptions:
    """Options of the study.

    Parameters
    ----------
    series
        A file in a format of `read_containers`, or ``generated``.
    containers
        Number of generated containers per setting.
    interval_s, max_gap_s
        Interval of the grid and longest gap to interpolate, in seconds, for a file.
    """

    series: str = GENERATED
    containers: int = 12
    interval_s: float = 15.0
    max_gap_s: float = 60.0

    def __post_init__(self) -> None:
        check_in("[1, inf)", self, "containers")
        check_in("(0, inf)", self, "interval_s", "max_gap_s")


SIZES: Mapping[str, LikenessOptions] = MappingProxyType(
    {SMALL: LikenessOptions(), FULL: LikenessOptions(containers=60)}
)


@dataclass(frozen=True, kw_only=True)
class LikenessWork(AbstractStudy):
    """Compare traits of given and generated containers, with default or fitted parameters (`solver`)."""

    options_type = LikenessOptions
    is_stoppable = False

    def measure(self, stop: StoppingCriterion, progress: Progress) -> Finding:
        """Fit the generator if requested, generate new containers, and compare them."""
        del stop, progress
        options, clock = self.chosen, PhaseClock()
        with clock.phase("build"):
            series = matched_series(options, self.seed)
        with clock.phase("solve"):
            likeness = self._compared(series, options.containers)
        names = [f"{resource}_{trait}" for resource in ("cpu", "memory") for trait in TRAITS]
        shown = zip(names, likeness.target.ravel().tolist(), likeness.generated.ravel().tolist(), strict=True)
        knobs = {name: getattr(likeness.options, name) for name in PARAMETERS}
        return Finding(
            findings={
                "off": likeness.off,
                **knobs,
                **{name: [target_value, generated_value] for name, target_value, generated_value in shown},
            },
            seconds=clock.seconds,
        )

    def _compared(self, series: ContainerSeries, number: int) -> Likeness:
        """Return the comparison on new draws, since the draws of the fit would bias it."""
        if self.solver == FITTED:
            fitted = fit_generator(series, number, self.seed)
            knobs, target = fitted.options, fitted.target
        else:
            knobs, target = (
                ContainerOptions(num_containers=number),
                summary_statistics(series.select_resources(("cpu", "memory"))),
            )
        return Likeness(options=knobs, target=target, generated=drawn_traits(knobs, self.seed + 1))


def matched_series(options: LikenessOptions, seed: int) -> ContainerSeries:
    """Return the series to match, on a grid; generated series already have one."""
    series = given_series(options.series, options.containers, OTHER_DRAW + seed)
    return series if options.series == GENERATED else to_grid(series, options.interval_s, options.max_gap_s).series


def _subjects(options: LikenessOptions, seed: int) -> Iterator[tuple[StudySubject, Mapping[str, Any]]]:
    name = f"{Path(options.series).name}-{seed}"
    yield StudySubject(name=name, topic="phases", drawn_from=options_as_dict(options)), {}


SPEC = register_study(
    "likeness",
    "phases",
    "difference of generated from given containers in level, idling, autocorrelation and ramps, by default and fitted parameters",
    kind=LikenessWork,
    sizes=SIZES,
    subjects=_subjects,
    ways=(USUAL, FITTED),
    columns=("off", *PARAMETERS, "cpu_level", "cpu_idle", "memory_level", "memory_idle"),
)
