"""The study `lessons`: GPU-hours that each lesson of the Philly study saves."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optim.benchmarks.study import AbstractStudy, Finding, StudySubject, register_study
from optim.benchmarks.suite import FULL, SMALL
from optim.core.arrays import FloatArray
from optim.core.driver import PhaseClock
from optim.core.errors import check_in
from optim.core.progress import Progress
from optim.core.stopping import StoppingCriterion
from optim.models.auction.data import NETWORK_BOUND
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.log import Run
from optim.models.cluster.workload import PPM, US, Workload
from optim.simulation.cluster.catalogue import make_policy
from optim.simulation.cluster.engine import simulate
from optim.simulation.cluster.options import EngineOptions, RetryRule
from optim.statistics import Interval, with_halves
from optim.workloads.cluster.generator import PhillyOptions, draw_jobs
from optim.workloads.cluster.jobs import Failures, Oversized, Selection, cluster_jobs
from optim.workloads.cluster.themis_apps import levels_ppm
from optim.workloads.cluster.topology import read_cluster

LESSONS: Mapping[str, str] = MappingProxyType(
    {
        "wait for locality": "patience",
        "isolate wide gangs": "isolate",
        "fail early": "fail-early",
        "retry by class": "",
        "stop at no gain": "stop-at-gain",
    }
)
"""Policy wrapper of each lesson; retrying by class is an engine option."""

CLOSE, CLOSE_MEDIAN, CLOSE_SIGMA = 0.001, 0.15, 1.36
"""A job's loss is within 0.1 % of its minimum after a share of its work. This share is log-normal with the study's median; its
deviation makes later work take about the same share of GPU time as in the study (Jeon et al., section 4.1, figure 8)."""

LOSS_POINTS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class LessonOptions:
    """Jobs and cluster of a workload.

    Parameters
    ----------
    jobs, gpus
        Number of jobs, drawn like Philly's with outcomes from tables 6 and 7 of the study; and machines x GPUs.
    load
        Arrival rate relative to Philly's list.
    cap_h
        Cap of run times, in hours.
    network_share
        Share of the jobs that the network slows down when they spread over machines; the slowdown (`NETWORK_BOUND`) is an
        assumption.
    neighbour
        Slowdown of a job by other jobs on its machine, also an assumption.
    draws
        Number of generated workloads; results are means over them with 95 % intervals (Student's t).

    Raises
    ------
    InvalidOptionError
        If a value is outside its range.
    """

    jobs: int = 300
    gpus: str = "8x8"
    load: float = 1.0
    cap_h: float = 72.0
    network_share: float = 0.4
    neighbour: float = 1.05
    draws: int = 5

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_in("[2, 1000000]", self, "jobs")
        check_in("(0, 1e6]", self, "load")
        check_in("(0, 1e5]", self, "cap_h")
        check_in("[0, 1]", self, "network_share")
        check_in("[1, 100]", self, "neighbour")
        check_in("[2, 10]", self, "draws")

    @property
    def cluster(self) -> Cluster:
        """The machines."""
        return read_cluster(self.gpus)

    def workload(self, seed: int) -> Workload:
        """Draw jobs with their outcomes, slowdowns by spreading, and loss curves."""
        table = draw_jobs(PhillyOptions(jobs=self.jobs, load=self.load, cap_s=self.cap_h * 3600), seed)
        selection = Selection(oversized=Oversized.DROP, failures=Failures.STUDY, seed=seed)
        jobs = cluster_jobs(table, selection, self.cluster)
        slow_rng, loss_rng = map(np.random.default_rng, np.random.SeedSequence(seed).spawn(2))
        is_slow = slow_rng.random(len(jobs)) < self.network_share
        levels = np.where(is_slow[:, None], levels_ppm(NETWORK_BOUND), PPM)
        return replace(jobs, slowdown_ppm=levels, loss=falling_losses(len(jobs), loss_rng))


def falling_losses(count: int, rng: np.random.Generator) -> FloatArray:
    """Draw loss curves that fall exponentially from 2 towards 1, shape (count, points).

    Each curve is within 0.1 % of 1 after a random share of the work.
    """
    close = np.clip(rng.lognormal(np.log(CLOSE_MEDIAN), CLOSE_SIGMA, count), 0.01, 1.0)
    share = np.linspace(0.0, 1.0, LOSS_POINTS)
    losses: FloatArray = 1 + np.exp(np.log(CLOSE) * share / close[:, None])
    return losses


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """Effect of a lesson on one workload.

    Parameters
    ----------
    gpu_hours, share
        Reduction of the GPU-hours allocated to jobs, and its share.
    delay_h, delay_share
        Mean delay of jobs that succeed in both runs, in hours and relative to their mean completion time.
    given_up
        Fraction of the jobs that succeed without the lesson and are rejected or stopped with it.
    """

    gpu_hours: float
    share: float
    delay_h: float
    delay_share: float
    given_up: float

    @classmethod
    def of(cls, jobs: Workload, plain: Run, taught: Run) -> "Saving":
        """Compare a run with one without the lesson."""
        good = ends_well(jobs, plain)
        both = good & ends_well(jobs, taught)
        before, after = ((run.end_us - jobs.submit_us)[both] / (3600 * US) for run in (plain, taught))
        delay = float((after - before).mean()) if len(before) else 0.0
        saved = plain.allocated_gpu_us - taught.allocated_gpu_us
        return cls(
            gpu_hours=saved / (3600 * US),
            share=saved / plain.allocated_gpu_us,
            delay_h=delay,
            delay_share=delay / float(before.mean()) if len(before) else 0.0,
            given_up=1 - float(both.sum()) / max(int(good.sum()), 1),
        )


def ends_well(jobs: Workload, run: Run) -> NDArray[np.bool_]:
    """Return whether each job does all of its work and doesn't fail in the trace, shape (jobs,)."""
    return np.asarray(run.is_done & (jobs.fails_us < 0))


def runs_of(options: LessonOptions, lesson: str, policy: str, seed: int) -> tuple[Workload, Run, Run]:
    """Simulate a workload without and with a lesson."""
    jobs, wrapper = options.workload(seed), LESSONS[lesson]
    rules = (RetryRule.AS_RUN, RetryRule.AS_RUN) if wrapper else (RetryRule.BLIND, RetryRule.BY_CLASS)
    runs = []
    for name, retries in zip((policy, f"{wrapper}+{policy}" if wrapper else policy), rules, strict=True):
        engine = EngineOptions(neighbour=options.neighbour, retries=retries)
        run = simulate(jobs, options.cluster, make_policy(name, jobs, {}), engine, seed)
        assert run is not None, "no stop is requested"
        runs.append(run)
    return jobs, runs[0], runs[1]


def savings(options: LessonOptions, lesson: str, policy: str, seed: int) -> dict[str, Interval]:
    """Return the effect of a lesson over a seed's workloads, with 95 % intervals of the paired differences."""
    all_savings = [
        Saving.of(*runs_of(options, lesson, policy, seed * options.draws + draw)) for draw in range(options.draws)
    ]
    return {name: Interval.of([getattr(each, name) for each in all_savings]) for name in Saving.__dataclass_fields__}


AROUND = ("yarn-cs", "fifo")
"""Policies that the lessons are added to: Philly's scheduler, and the simplest queue."""

SIZES: Mapping[str, LessonOptions] = MappingProxyType(
    {
        SMALL: LessonOptions(jobs=100, gpus="4x8", load=0.05, draws=2),
        FULL: LessonOptions(jobs=1000, gpus="40x8", load=0.35),
    }
)


@dataclass(frozen=True, kw_only=True)
class LessonWork(AbstractStudy):
    """Simulate the workloads with and without a lesson."""

    options_type = LessonOptions
    is_stoppable = False

    def measure(self, stop: StoppingCriterion, progress: Progress) -> Finding:
        """Simulate, and summarise the savings."""
        del stop
        clock, labels = PhaseClock(), self.labels
        progress.start(f"{labels['lesson']}, {labels['policy']}", None)
        with clock.phase("solve"):
            intervals = savings(self.chosen, str(labels["lesson"]), str(labels["policy"]), self.seed)
        progress.finish()
        return Finding(findings=with_halves(intervals), seconds=clock.seconds, iterations=self.chosen.draws)


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
    "savings of each lesson of the Philly study, and delay of good jobs (95 % intervals, Student's t, over workloads)",
    kind=LessonWork,
    sizes=SIZES,
    subjects=_settings,
    ways=("simulation",),
    others="the study simulates policies without a solver",
    columns=(
        *("lesson", "policy", "gpu_hours", "gpu_hours_half", "share", "share_half", "delay_h", "delay_h_half"),
        *("delay_share", "given_up", "given_up_half"),
    ),
)
