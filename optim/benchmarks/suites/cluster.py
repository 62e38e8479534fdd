"""Cluster suite: policies on the same jobs over seeds, with replayed runs, bounds and plots."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from optim.benchmarks.records import Record
from optim.benchmarks.report import colours_of, solvers_in
from optim.benchmarks.study import AbstractStudy, Finding, StudySubject, register_study
from optim.benchmarks.suite import FULL, SMALL
from optim.core.driver import PhaseClock
from optim.core.errors import InvalidOptionError, check_choices, check_in
from optim.core.policies import default_names, shipped_names
from optim.core.progress import Progress
from optim.core.stopping import StoppingCriterion
from optim.models.cluster.check import check_runs
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.run_file import RunRecord
from optim.models.cluster.workload import Workload
from optim.report.plots import INK, Figure, FigureList, name_rows
from optim.simulation.cluster.comparison import Comparison, PolicyRequest, bound
from optim.simulation.cluster.options import EngineOptions
from optim.workloads.cluster.generator import PhillyOptions, draw_jobs
from optim.workloads.cluster.jobs import Oversized, Selection, cluster_jobs
from optim.workloads.cluster.themis_apps import ThemisOptions, draw_apps
from optim.workloads.cluster.topology import read_cluster
from optim.workloads.traces.formats import read_jobs
from optim.workloads.traces.job_table import ReadOptions

PANELS = (
    ("ratio_to_bound", "mean completion time / lower bound"),
    ("rho_max", "worst rho, shared in time"),
    ("rho_space_max", "worst rho, shared in space"),
)


def draw(records: Sequence[Record]) -> list[Figure]:
    """Return the pictures: one panel per metric, one row per policy, one dot per seed."""
    gallery = FigureList()
    names, colours = solvers_in(records), colours_of(records)
    if not names:
        return gallery
    caption = "One dot per seed; the bar is the median. Further left is better. Fairness rho has two definitions."
    height = 1.0 + 0.3 * len(names)
    with gallery.picture("policies", "Policies over seeds", caption, 11, height, 1, len(PANELS)) as panels:
        for panel, (field, label) in zip(panels, PANELS, strict=True):
            for row, name in enumerate(reversed(names)):
                values = [r.findings[field] for r in records if r.solver == name and r.findings.get(field) is not None]
                if values:
                    panel.plot(values, np.full(len(values), row), "o", color=colours[name], alpha=0.75, markersize=5)
                    panel.plot(np.median(values), row, "|", color=INK, markersize=12, markeredgewidth=1.6)
            panel.axvline(1, color=INK, linewidth=0.6, linestyle=":")
            panel.set(xscale="log", xlabel=label)
            name_rows(panel, names)
    return gallery


DRAWN = ("philly", "themis")

THREE_DAYS_S = 259_200.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterBenchOptions:
    """Options of the simulation.

    Parameters
    ----------
    gpus
        Machines x GPUs per machine, or a topology file.
    generate
        Generator of jobs without a trace: `philly` or `themis`.
    jobs, apps
        Number of generated jobs or apps, or of the first jobs of a trace.
    cap_s
        Maximum run time of generated jobs, so that no single job determines the makespan.
    trace, trace_format
        Trace of jobs, which replaces the generator.
    overhead_s
        As in the simulator's options.
    bound_steps
        Steps of the price search for the lower bound.

    Raises
    ------
    InvalidOptionError
        If a value is outside its range.
    """

    gpus: str = "24x8"
    generate: str = "philly"
    jobs: int = 1000
    apps: int = 20
    cap_s: float = THREE_DAYS_S
    trace: Path | None = None
    trace_format: str = "csv"
    overhead_s: float = 30.0
    bound_steps: int = 20

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_choices(self, {"generate": DRAWN})
        check_in("[1, 10000000]", self, "jobs", "apps")
        check_in("[0, 1000]", self, "bound_steps")
        if self.trace is not None and not self.trace.is_file():
            raise InvalidOptionError(f"trace {self.trace} is not a file; give the path of a trace")

    def load(self, seed: int) -> tuple[Workload, Cluster]:
        """Return jobs and cluster."""
        world = read_cluster(self.gpus)
        selection = Selection(first=self.jobs, oversized=Oversized.DROP, seed=seed)
        if self.trace is not None:
            return cluster_jobs(read_jobs(self.trace, self.trace_format, ReadOptions()), selection, world), world
        if self.generate == "themis":
            return draw_apps(ThemisOptions(apps=self.apps), seed), world
        return cluster_jobs(draw_jobs(PhillyOptions(jobs=self.jobs, cap_s=self.cap_s), seed), selection, world), world


SIZES: Mapping[str, ClusterBenchOptions] = MappingProxyType(
    {SMALL: ClusterBenchOptions(jobs=300, gpus="8x8"), FULL: ClusterBenchOptions(jobs=20_000, gpus="60x8")}
)


@dataclass(frozen=True, kw_only=True)
class ClusterWork(AbstractStudy):
    """Simulate one policy, and replay the run."""

    options_type = ClusterBenchOptions

    def measure(self, stop: StoppingCriterion, progress: Progress) -> Finding:
        """Simulate the policy, and let the checker replay the run."""
        chosen, clock = self.chosen, PhaseClock()
        with clock.phase("build"):
            jobs, world = chosen.load(self.seed)
            proven = bound(jobs, world, chosen.bound_steps)
        options = EngineOptions(overhead_s=chosen.overhead_s)
        task = Comparison(jobs, world, options, self.seed, proven["bounds"]["jct_mean_h"])
        with clock.phase("solve"):
            played = task.do(PolicyRequest(name=self.solver), stop, progress)
        if played is None:
            return Finding(seconds=clock.seconds, is_whole=False)
        record = RunRecord(jobs=jobs, cluster=world, overhead_us=options.overhead_us, runs=(played.logged,), **proven)
        with clock.phase("verify"):
            problems = [str(row) for _, verification in check_runs(record) for row in verification.violations]
        figures = asdict(played.row.metrics)
        return Finding(
            findings={**figures, "ratio_to_bound": played.row.ratio_to_bound, "bound_jct_mean_h": task.least_jct_h},
            parameters={"jobs": len(jobs), "gpus": world.num_gpus},
            seconds=clock.seconds,
            problems=problems,
            iterations=len(played.logged.log),
        )


def _subjects(options: ClusterBenchOptions, seed: int) -> Iterator[tuple[StudySubject, Mapping[str, Any]]]:
    source = options.trace.name if options.trace is not None else options.generate
    yield StudySubject(name=f"{source}-{options.gpus}-{seed}", topic="cluster", drawn_from=(options, seed)), {}


SPEC = register_study(
    "cluster",
    "cluster",
    "policies on a GPU cluster with the same jobs, every run replayed, compared with a lower bound",
    kind=ClusterWork,
    sizes=SIZES,
    subjects=_subjects,
    ways=shipped_names("cluster"),
    small_ways=default_names("cluster"),
    columns=("jct_mean_h", "ratio_to_bound", "rho_max", "rho_share_above_1", "rho_space_max", "rho_space_share_above_1",
             "utilisation", "wait_fragmented_share", "preemptions"),
    figures=draw,
)  # fmt: skip
