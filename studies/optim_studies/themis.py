"""The study `themis`: effects of its options over many rounds, and other policies on the same apps."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from optim.benchmarks.study import AbstractStudy, Finding, StudySubject, register_study
from optim.benchmarks.suite import FULL, SMALL
from optim.core.driver import PhaseClock
from optim.core.errors import check_in
from optim.core.progress import Progress
from optim.core.stopping import StoppingCriterion
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.log import Run
from optim.models.cluster.metrics import app_fairness
from optim.models.cluster.workload import US, Workload
from optim.simulation.cluster.catalogue import make_policy
from optim.simulation.cluster.engine import simulate
from optim.simulation.cluster.options import EngineOptions
from optim.statistics import Interval, with_halves
from optim.workloads.cluster.themis_apps import ThemisOptions as AppOptions
from optim.workloads.cluster.themis_apps import draw_apps


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldOptions:
    """Apps and cluster of a simulated workload.

    Parameters
    ----------
    apps, machines, gpus
        Number of apps, of machines (in racks of four), and of GPUs per machine.
    gap_min
        Mean minutes between arrivals.
    network_share, gang
        Share of the apps that the network slows down when they spread over machines, and number of GPUs of every trial;
        0 draws a number for each app.
    shrink
        Factor by which the apps' jobs are shorter than published.
    draws
        Number of workloads drawn; results are means over them with 95 % intervals (Student's t).
    """

    apps: int = 12
    machines: int = 4
    gpus: int = 4
    gap_min: float = 10.0
    network_share: float = 0.4
    gang: int = 0
    shrink: float = 20.0
    draws: int = 3

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_in("[2, 1000]", self, "apps", "machines")
        check_in("[1, 64]", self, "gpus")
        check_in("[0, 1e6]", self, "gap_min")
        check_in("[1, 1e4]", self, "shrink")
        check_in("[2, 10]", self, "draws")
        check_in("[0, 1]", self, "network_share")
        check_in("[0, 64]", self, "gang")

    @property
    def cluster(self) -> Cluster:
        """The machines."""
        racks = np.arange(self.machines) // 4
        return Cluster(gpus=np.full(self.machines, self.gpus), rack=racks)

    def jobs(self, seed: int) -> Workload:
        """Draw the apps of a workload."""
        apps = AppOptions(apps=self.apps, gap_min=self.gap_min, network_share=self.network_share, gang=self.gang)
        workload = draw_apps(apps, seed)
        return replace(workload, duration_us=np.maximum(US, (workload.duration_us / self.shrink).astype(np.int64)))


def run_policy(jobs: Workload, cluster: Cluster, policy: str, options: Mapping[str, Any], seed: int) -> Run:
    """Simulate a workload under a policy of the catalogue."""
    run = simulate(jobs, cluster, make_policy(policy, jobs, options), EngineOptions(), seed)
    assert run is not None, "no stop is requested"
    return run


def figures_of(jobs: Workload, cluster: Cluster, run: Run) -> dict[str, float]:
    """Return the statistics of the apps in a run."""
    fair = app_fairness(jobs, cluster, run)
    return {
        "rho_max": float(fair.rho.max()),
        "rho_share_above_1": float((fair.rho > 1).mean()),
        "rho_space_max": float(fair.rho_space.max()),
        "gpu_hours": run.allocated_gpu_us / 3600 / US,
        "app_hours": float(fair.seconds.mean()) / 3600,
    }


def measured(
    options: WorldOptions, policy: str, settings: Mapping[str, Any], seed: int, *, beside: str | None = None
) -> dict[str, Interval]:
    """Return the statistics of a policy over the workloads of a seed, with 95 % intervals.

    `beside` names a baseline policy on the same workloads: `times_fairer` is this policy's worst rho over the baseline's,
    `gpu_time` the baseline's GPU-time over this policy's.
    """
    rows = []
    for draw in range(options.draws):
        number = seed * options.draws + draw
        jobs, cluster = options.jobs(number), options.cluster
        row = figures_of(jobs, cluster, run_policy(jobs, cluster, policy, settings, number))
        if beside is not None:
            other = figures_of(jobs, cluster, run_policy(jobs, cluster, beside, {}, number))
            row["times_fairer"] = row["rho_max"] / other["rho_max"]
            row["gpu_time"] = other["gpu_hours"] / row["gpu_hours"]
        rows.append(row)
    return {name: Interval.of([row[name] for row in rows]) for name in rows[0]}


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
    """Simulate the workloads under one policy with its settings."""

    options_type = WorldOptions
    is_stoppable = False

    def measure(self, stop: StoppingCriterion, progress: Progress) -> Finding:
        """Simulate, and average."""
        del stop
        clock, labels = PhaseClock(), self.labels
        settings = {name: labels[name] for name in ("fairness", "lease_min") if name in labels}
        progress.start(f"{labels['policy']} {settings or ''}", None)
        with clock.phase("solve"):
            rival = "themis" if labels["case"] == "rival" else None
            intervals = measured(self.chosen, str(labels["policy"]), settings, self.seed, beside=rival)
        progress.finish()
        return Finding(findings=with_halves(intervals), seconds=clock.seconds, iterations=self.chosen.draws)


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
    "Themis over many rounds: effects of f and of the lease, and rivals on the same apps (95 % intervals, Student's t)",
    kind=ThemisWork,
    sizes=SIZES,
    subjects=_settings,
    ways=("simulation",),
    others="the study simulates the policies itself",
    columns=(
        *("case", "policy", "fairness", "lease_min", "rho_max", "rho_max_half", "gpu_hours", "gpu_hours_half"),
        *("app_hours", "times_fairer", "times_fairer_half", "gpu_time", "gpu_time_half"),
    ),
)
