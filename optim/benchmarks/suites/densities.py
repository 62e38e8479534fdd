"""The study `densities`: what comes next as a density, by machine, linear and switching autoregression, scored by CRPS."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np

from optim.benchmarks.spec import FULL, SMALL
from optim.benchmarks.studies.density_scores import (
    CONTINUATIONS,
    DensityOptions,
    Moments,
    density_scores,
    moments_to_forecast,
)
from optim.benchmarks.studies.given_series import series_name
from optim.benchmarks.study import AbstractStudy, Finding, StudySubject, register_study
from optim.core.clock import PhaseClock
from optim.core.options import options_as_dict
from optim.core.progress import Progress
from optim.core.stopping import StoppingCriterion

HORIZONS = (1, 4, 10, 20, 40)
"""Samples ahead that have a column; `mean` is over all horizons, and `by_horizon` has each."""

SIZES: Mapping[str, DensityOptions] = MappingProxyType(
    {SMALL: DensityOptions(), FULL: DensityOptions(containers=500, moments=500, paths=100)}
)


@dataclass(frozen=True, kw_only=True)
class DensityWork(AbstractStudy):
    """Fit and score in one way, which `solver` names."""

    options_type = DensityOptions
    is_stoppable = False

    def measure(self, stop: StoppingCriterion, progress: Progress) -> Finding:
        """Fit, draw, score."""
        del stop, progress
        options, clock = self.chosen, PhaseClock()
        with clock.phase("build"):
            given = _drawn(options, self.seed)
        with clock.phase("solve"):
            scores = density_scores(self.solver, given, options, self.seed)
        by_horizon = scores.mean(axis=1)
        shown = {f"crps_{step}": float(by_horizon[step - 1]) for step in HORIZONS if step <= options.steps}
        problems = [] if np.isfinite(scores).all() else ["a score isn't finite"]
        return Finding(
            findings={**shown, "mean": float(by_horizon.mean())},
            measures={"by_horizon": by_horizon.tolist(), "by_resource": scores.mean(axis=0).tolist()},
            parameters={"moments": len(given.ends)},
            seconds=clock.seconds,
            problems=problems,
        )


@lru_cache(maxsize=1)
def _drawn(options: DensityOptions, seed: int) -> Moments:
    """Return the moments; ways that follow each other share them."""
    return moments_to_forecast(options, seed)


def _subjects(options: DensityOptions, seed: int) -> Iterator[tuple[StudySubject, Mapping[str, Any]]]:
    what = series_name(options.series, options.containers)
    yield StudySubject(name=f"{what}-{seed}", topic="phases", drawn_from=options_as_dict(options)), {}


SPEC = register_study(
    "densities",
    "phases",
    "forecast densities of containers by CRPS: the machine beside linear and switching autoregressions, 1 to 40 samples ahead",
    kind=DensityWork,
    sizes=SIZES,
    subjects=_subjects,
    ways=tuple(CONTINUATIONS),
    columns=("moments", *(f"crps_{step}" for step in HORIZONS), "mean"),
)
