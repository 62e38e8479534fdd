"""The study `replications`: published results compared with ours, and the reasons for differences."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from optim.benchmarks.study import AbstractStudy, Finding, StudySubject, register_study
from optim.benchmarks.suite import FULL, SMALL
from optim.core.driver import PhaseClock
from optim.core.errors import InvalidOptionError
from optim.core.progress import Progress
from optim.core.stopping import StoppingCriterion
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.metrics import measure
from optim.models.cluster.philly import DELAYED_JOBS, FAILURES, STATUS_SHARES
from optim.models.cluster.run_file import LoggedRun
from optim.models.cluster.workload import US, Workload
from optim.simulation.cluster.catalogue import make_policy
from optim.simulation.cluster.engine import simulate
from optim.simulation.cluster.options import EngineOptions
from optim.simulation.cluster.philly_study import philly_study
from optim.workloads.cluster.generator import REASON_NAMES, PhillyOptions, draw_jobs, draw_outcomes
from optim.workloads.cluster.jobs import Oversized, Selection, cluster_jobs
from optim.workloads.cluster.themis_apps import ThemisOptions, draw_apps
from optim.workloads.traces.formats import read_jobs
from optim.workloads.traces.job_table import ReadOptions

SAME = "the same"
AGREE = 0.01
"""Relative tolerance for equal results."""
HOURS_US = 3600.0 * US
FREE = EngineOptions(overhead_s=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationOptions:
    """Options of the replications.

    Parameters
    ----------
    data
        Folder with the folders `philly` and `tiresias` of public traces; without it, results that need a trace are left out.
    jobs, apps
        Numbers of jobs and apps to draw, for results from generated workloads.

    Raises
    ------
    InvalidOptionError
        If the folder does not exist.
    """

    data: Path | None = None
    jobs: int = 20_000
    apps: int = 1000

    def __post_init__(self) -> None:
        """Look for the folder."""
        if self.data is not None and not self.data.is_dir():
            raise InvalidOptionError(f"data {self.data} isn't a folder; give the folder with the traces")


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A published result.

    Parameters
    ----------
    value, source
        The published value, and the publication.
    ours
        Function that computes our value.
    why
        Reason why our value differs, if it does.
    needs_data
        Whether a public trace is needed.
    """

    value: float
    source: str
    ours: Callable[[ReplicationOptions, int], float]
    why: str = ""
    needs_data: bool = False


def _example(name: str, settings: Mapping[str, Any], options: ReplicationOptions, seed: int) -> float:
    """Return the mean completion time in seconds of Tiresias' worked example: two GPUs and three jobs."""
    del options
    rows = np.array([(0, 2, 2), (0, 1, 8), (0, 2, 6)])
    jobs = Workload(submit_us=rows[:, 0] * US, gpus=rows[:, 1], duration_us=rows[:, 2] * US)
    run = simulate(jobs, Cluster.grid("1x2"), make_policy(name, jobs, settings), FREE, seed)
    return float(np.mean(run.end_us)) / US if run is not None else float("nan")


def _list(
    file: str, form: str, gpus: str, settings: Mapping[str, Any], unit: float, options: ReplicationOptions, seed: int
) -> float:
    """Return the mean completion time of a public list of jobs, first come, first served, without overhead."""
    assert options.data is not None
    cluster = Cluster.grid(gpus)
    jobs = cluster_jobs(read_jobs(options.data / file, form, ReadOptions()), Selection(), cluster)
    run = simulate(jobs, cluster, make_policy("fifo", jobs, settings), FREE, seed)
    return float((run.end_us - jobs.submit_us).mean()) / unit if run is not None else float("nan")


def _apps(figure: str, options: ReplicationOptions, seed: int) -> float:
    """Return a statistic of generated apps."""
    jobs = draw_apps(ThemisOptions(apps=options.apps), seed)
    hours = np.bincount(jobs.app, weights=jobs.gpus * jobs.duration_us) / HOURS_US
    figures = {
        "trials": np.median(np.bincount(jobs.app)),
        "hours": np.median(hours),
        "most": hours.max(),
        "task": np.median(jobs.duration_us) / (60 * US),
    }
    return float(figures[figure])


def _outcome(figure: str, options: ReplicationOptions, seed: int) -> float:
    """Return a statistic of the outcomes of generated jobs."""
    table = draw_jobs(PhillyOptions(jobs=options.jobs), seed)
    outcomes = draw_outcomes(table.workers, np.rint(table.duration_s * US).astype(np.int64), seed)
    time = table.workers * table.duration_s
    if figure == "killed":
        return float(time[outcomes.status == 1].sum() / time.sum())
    return float((outcomes.reason == REASON_NAMES.index(figure)).sum() / (outcomes.reason >= 0).sum())


def _fragmentation(gang: str, options: ReplicationOptions, seed: int) -> float:
    """Return the share of delayed jobs of a gang size that wait because of fragmentation, under quotas as in Philly."""
    cluster = Cluster.grid("40x8")
    table = draw_jobs(PhillyOptions(jobs=min(options.jobs, 3000), cap_s=2 * 86400.0), seed)
    jobs = cluster_jobs(table, Selection(oversized=Oversized.DROP), cluster)
    run = simulate(jobs, cluster, make_policy("yarn-cs", jobs), EngineOptions(), seed)
    if run is None:
        return float("nan")
    logged = LoggedRun(policy=run.policy, log=run.log, metrics=measure(jobs, cluster, run), rules=run.rules)
    study_table = philly_study(jobs, cluster, logged)[0]
    row = next(dict(zip(study_table.header, row, strict=True)) for row in study_table.rows if row[0] == gang)
    share = row["fragmentation_share"]
    return float(share) if isinstance(share, float) else float("nan")


POLLUX, TIRESIAS = "philly/pollux_philly_82k.csv.gz", "tiresias/60_job.csv"
INCONSISTENT = "the paper's distributions are inconsistent, so our trials are shorter"
OTHER_LOAD = "load, machines and relaxation differ; the longer delay counts"

FIGURES: Mapping[str, Published] = MappingProxyType(
    {
        "worked example, SRSF": Published(value=28 / 3, source="Gu et al., NSDI 2019", ours=partial(_example, "srsf", {})),
        "worked example, 2D-LAS": Published(
            value=35 / 3, source="Gu et al., NSDI 2019", ours=partial(_example, "las", {"quantum_s": 1})
        ),
        "worked example, 2D-Gittins": Published(
            value=10.0,
            source="Gu et al., NSDI 2019, table of appendix C",
            ours=partial(_example, "tiresias-gittins", {}),
            why="the supremum ends them at 2, 10, 16; the paper's table at 2, 12, 16",
        ),
        "trials per app, median": Published(
            value=80, source="Mahajan et al., NSDI 2020, figure 2", ours=partial(_apps, "trials"),
            why="half have at most 80, the others more",
        ),
        "GPU-hours per app, median": Published(
            value=250, source="Mahajan et al., NSDI 2020, figure 3", ours=partial(_apps, "hours"), why="a random draw",
        ),
        "GPU-hours per app, maximum": Published(
            value=730, source="Mahajan et al., NSDI 2020, figure 3", ours=partial(_apps, "most")
        ),
        "minutes per trial, median": Published(
            value=240, source="Mahajan et al., NSDI 2020, figure 4", ours=partial(_apps, "task"), why=INCONSISTENT
        ),
        "GPU-time of killed jobs": Published(
            value=STATUS_SHARES["killed"][1], source="Jeon et al., ATC 2019, table 6", ours=partial(_outcome, "killed"),
            why="met in expectation; few jobs hold most GPU-time",
        ),
        "failures by incorrect inputs": Published(
            value=FAILURES["incorrect inputs"].jobs / sum(FAILURES[name].jobs for name in REASON_NAMES),
            source="Jeon et al., ATC 2019, table 7", ours=partial(_outcome, "incorrect inputs"),
            why="drawn by the likelihood of the jobs' run times",
        ),
        **{
            f"delayed by fragmentation, {gang}": Published(
                value=lost / (fair + lost), source="Jeon et al., ATC 2019, table 2", ours=partial(_fragmentation, gang),
                why=OTHER_LOAD,
            )
            for gang, (fair, lost) in DELAYED_JOBS.items()
        },
        "60 jobs on 32x4, seconds": Published(
            value=178.4, source="a public simulator's output", needs_data=True,
            ours=partial(_list, TIRESIAS, "tiresias", "32x4", {}, float(US)),
        ),
        "Pollux' list on 60x8, hours": Published(
            value=300.48, source="an independent prototype", needs_data=True,
            ours=partial(_list, POLLUX, "pollux", "60x8", {}, HOURS_US),
        ),
        "Pollux' list on 60x8 skipping, hours": Published(
            value=38.46, source="an independent prototype", needs_data=True,
            ours=partial(_list, POLLUX, "pollux", "60x8", {"backfill": True}, HOURS_US),
        ),
        "Pollux' list on 352x8, hours": Published(
            value=3.65, source="an independent prototype", needs_data=True,
            ours=partial(_list, POLLUX, "pollux", "352x8", {}, HOURS_US),
        ),
    }
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ReplicationWork(AbstractStudy):
    """Reproduce one published result."""

    options_type = ReplicationOptions
    is_stoppable = False

    def measure(self, stop: StoppingCriterion, progress: Progress) -> Finding:
        """Compute our value."""
        del stop
        clock, figure = PhaseClock(), FIGURES[str(self.labels["figure"])]
        progress.start(str(self.labels["figure"]), None)
        with clock.phase("solve"):
            ours = figure.ours(self.chosen, self.seed)
        progress.finish()
        is_same = abs(ours - figure.value) <= AGREE * abs(figure.value)
        why = SAME if is_same else figure.why or "the values should be equal"
        return Finding(
            findings={"published": figure.value, "ours": ours, "why": why, "source": figure.source},
            seconds=clock.seconds,
            problems=() if is_same or figure.why else [f"ours is {ours:.6g}, published {figure.value:.6g}"],
        )


def _subjects(options: ReplicationOptions, seed: int) -> Iterator[tuple[StudySubject, Mapping[str, Any]]]:
    for name, figure in FIGURES.items():
        if options.data is not None or not figure.needs_data:
            yield StudySubject(name=name, topic="cluster", drawn_from=(name, options)), {"figure": name}


SIZES: Mapping[str, ReplicationOptions] = MappingProxyType(
    {SMALL: ReplicationOptions(jobs=2000, apps=300), FULL: ReplicationOptions()}
)

SPEC = register_study(
    "replications",
    "cluster",
    "published figures of GPU clusters compared with ours, and reasons for differences",
    kind=ReplicationWork,
    sizes=SIZES,
    subjects=_subjects,
    ways=("simulation",),
    others="the study simulates the policy of each figure",
    columns=("published", "ours", "why"),
)
