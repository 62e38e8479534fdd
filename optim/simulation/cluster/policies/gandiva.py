"""Gandiva: place jobs by affinity, time-slice full nodes, and try packing, migration and growth."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from optim.core.errors import check_in
from optim.core.policies import policy
from optim.core.registry import Support
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.rules import Rules
from optim.models.cluster.workload import US, Workload
from optim.simulation.cluster.options import EngineOptions
from optim.simulation.cluster.planning.free_gpus import Gpus
from optim.simulation.cluster.planning.placing import WITHOUT_HOSTS
from optim.simulation.cluster.planning.policy import Plan, PlanningPolicy, View

WITHOUT_TYPES = "the policy ignores GPU types, but some of these jobs can't run on every GPU of the cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class GandivaOptions:
    """Options.

    Parameters
    ----------
    quantum_s
        Length in seconds of a job's time slice on shared GPUs, and of the measurement of a trial packing.
    switch_s, move_s
        Seconds lost by suspending and resuming a job on the same GPUs, and by moving it to other GPUs.
    packs, migrates, grows
        Whether to try packing jobs onto the same GPUs, migrating them, and giving them more GPUs.

    Raises
    ------
    InvalidOptionError
        If a value is outside its range.
    """

    quantum_s: float = 60.0
    switch_s: float = 1.0
    move_s: float = 3.0
    packs: bool = True
    migrates: bool = True
    grows: bool = True

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_in("[1, 86400]", self, "quantum_s")
        check_in("[0, 3600]", self, "switch_s", "move_s")


@dataclass(slots=True)
class _Node:
    """A machine: its GPUs, number of GPUs without a job (0 while the machine is down), number of assignments, and jobs.

    `label` is the gang size for which the machine has an affinity, None while it has no jobs.
    """

    gpus: range
    idle: int
    given: int = 0
    label: int | None = None
    jobs: list[int] = field(default_factory=list)
    is_up: bool = True


@dataclass(slots=True)
class _Trial:
    """A trial packing of two jobs: its start, and the progress of both at that time."""

    since_us: int
    served_us: tuple[int, int]
    is_kept: bool = False


@policy(
    "gandiva",
    world="cluster",
    options=GandivaOptions,
    summary="Place jobs by affinity, time-slice shared GPUs, and try packing, migration and growth.",
    source="Xiao et al., Gandiva: Introspective Cluster Scheduling for Deep Learning, OSDI 2018, sections 3 and 4",
)
class Gandiva(PlanningPolicy):
    """Assign GPUs at once to every job that fits on a machine; jobs share GPUs in turns if there are too few."""

    assumptions = (
        "a job is assigned the GPUs of its node with the fewest jobs; the job that ran least recently gets the next time slice; gangs wider "
        "than a machine wait for empty machines, first come, first served; the policy tries to pack the two jobs of a GPU set with the "
        "lowest utilisation, and keeps the packing if both together progress more than by time-slicing; only jobs whose max_gpus exceeds the gang grow"
    )

    places_itself = True

    def __init__(self, options: GandivaOptions, jobs: Workload) -> None:
        del jobs
        self.options = options

    def supports(self, jobs: Workload, cluster: Cluster) -> Support:
        """Return whether the jobs demand no vCPUs or memory, and every job can run on all GPU types."""
        if jobs.gpu_type_slowdown_ppm.shape[1] and not jobs.gpu_type_slowdown_ppm[:, cluster.kind].all():
            return Support(False, WITHOUT_TYPES)
        return Support(not jobs.strains_hosts(cluster, 2 if self.options.packs else 1), WITHOUT_HOSTS)

    def rules(self, options: EngineOptions) -> Rules:
        """Return rules with the costs of switching and up to two jobs per GPU."""
        return Rules(
            restart_us=round(self.options.switch_s * US),
            move_us=round(self.options.move_s * US),
            is_elastic=self.options.grows,
            jobs_a_gpu=2 if self.options.packs else 1,
            neighbour_ppm=options.neighbour_ppm,
        )

    def begin(self, cluster: Cluster, seed: int) -> None:
        """Empty all nodes."""
        del seed
        first = 0
        self.nodes: list[_Node] = []
        for size in cluster.gpus.tolist():
            self.nodes.append(_Node(range(first, first + size), size))
            first += size
        self.largest = int(cluster.gpus.max())
        self.load = [0] * first
        self.num_crowded = 0
        self.node_of = [number for number, node in enumerate(self.nodes) for _ in node.gpus]
        self.home: dict[int, Gpus] = {}
        self.trials: dict[frozenset[int], _Trial] = {}
        self.refused: set[frozenset[int]] = set()
        self.last_run: dict[int, int] = {}
        self.counts = {"packings_kept": 0, "packings_undone": 0, "migrations": 0}

    def plan(self, view: View) -> Plan:
        """Assign GPUs to new jobs, then choose the jobs that run."""
        quantum = round(self.options.quantum_s * US)
        is_tick = view.now_us % quantum == 0
        active = view.jobs.tolist()
        there = set(active)
        for job in [job for job in self.home if job not in there]:
            self._leave(job)
        self._heed_failures(view)
        waiting_wide = [job for job in active if job not in self.home and not self._enter(view, job)]
        if is_tick:
            if self.options.migrates:
                self._migrate(view, waiting_wide)
            if self.options.packs:
                self._judge(view)
        gpus = self._turns(view, is_tick)
        if self.options.grows and (view.max_gpus > view.gpus).any():
            self._grow(view, gpus)
        for job in gpus:
            self.last_run[job] = view.now_us
        is_crowded = self.num_crowded > 0 or bool(waiting_wide and self.options.migrates and self.home)
        return Plan(gpus=gpus, again_us=(view.now_us // quantum + 1) * quantum if is_crowded else None)

    def _heed_failures(self, view: View) -> None:
        """Remove the jobs of failed machines, so that they are assigned again, and restore repaired machines."""
        for number, node in enumerate(self.nodes):
            if node.is_up and not view.is_up[number]:
                for job in list(node.jobs):
                    self._leave(job)
                node.is_up, node.idle = False, 0
            elif not node.is_up and view.is_up[number]:
                node.is_up, node.idle = True, len(node.gpus)

    def _enter(self, view: View, job: int) -> bool:
        """Assign GPUs to a job by affinity; return False if it has to wait."""
        width = int(view.gpus[job])
        if width > self.largest:
            return self._enter_wide(job, width)
        nodes = [node for node in self.nodes if len(node.gpus) >= width and node.is_up]
        for candidates in (
            [node for node in nodes if node.label == width and node.idle >= width],
            [node for node in nodes if node.label is None and node.idle >= width],
            [node for node in nodes if node.idle >= width],
            [node for node in nodes if node.label == width],
            nodes,
        ):
            if candidates:
                node = min(candidates, key=lambda node: node.given / len(node.gpus))
                node.label = width if node.label is None else node.label
                self._settle(job, tuple(sorted(sorted(node.gpus, key=lambda gpu: (self.load[gpu], gpu))[:width])))
                return True
        return False

    def _enter_wide(self, job: int, width: int) -> bool:
        """Assign empty nodes to a gang wider than a machine."""
        free = [node for node in sorted(self.nodes, key=lambda node: -len(node.gpus)) if not node.jobs and node.is_up]
        gpus: list[int] = []
        for node in free:
            gpus.extend(list(node.gpus)[: width - len(gpus)])
        if len(gpus) < width:
            return False
        self._settle(job, tuple(sorted(gpus)))
        return True

    def _settle(self, job: int, gpus: Gpus) -> None:
        self.home[job] = gpus
        self._count(gpus, 1)
        for number in {self.node_of[gpu] for gpu in gpus}:
            self.nodes[number].jobs.append(job)

    def _leave(self, job: int) -> None:
        gpus = self.home.pop(job)
        self._count(gpus, -1)
        for number in {self.node_of[gpu] for gpu in gpus}:
            node = self.nodes[number]
            node.jobs.remove(job)
            node.label = node.label if node.jobs else None
        for pair in [pair for pair in self.trials if job in pair]:
            del self.trials[pair]

    def _count(self, gpus: Gpus, sign: int) -> None:
        """Update the number of jobs assigned to each GPU."""
        for gpu in gpus:
            node, before = self.nodes[self.node_of[gpu]], self.load[gpu]
            self.load[gpu] = before + sign
            node.given += sign
            node.idle += (before + sign == 0) - (before == 0)
            self.num_crowded += (before + sign > 1) - (before > 1)

    def _turns(self, view: View, is_tick: bool) -> dict[int, Gpus]:
        """Return the jobs to run: at a tick, jobs that ran longest ago first; between ticks, running jobs first."""
        partner = {job: other for pair in self.trials for job, other in (tuple(pair), tuple(pair)[::-1])}
        taken: dict[int, int] = {}
        gpus: dict[int, Gpus] = {}
        running = view.running
        alone = [job for job in running if job in self.home and all(self.load[gpu] == 1 for gpu in self.home[job])]
        for job in alone:
            gpus[job] = self.home[job]
        crowded = [job for job in self.home if job not in gpus]
        if is_tick:
            crowded.sort(key=lambda job: (self.last_run.get(job, -1), job))
        else:
            crowded.sort(key=lambda job: (job not in running, self.last_run.get(job, -1), job))
        for job in crowded:
            owners = {taken.get(gpu) for gpu in self.home[job]}
            if owners <= {None, partner.get(job)}:
                gpus[job] = self.home[job]
                for gpu in self.home[job]:
                    taken[gpu] = job
        return gpus

    def _judge(self, view: View) -> None:
        """End trial packings in which jobs progress no faster than in time slices, and start new trials."""
        served = view.served_us
        for pair, trial in list(self.trials.items()):
            if trial.is_kept:
                continue
            one, other = sorted(pair)
            done = int(served[one]) - trial.served_us[0] + int(served[other]) - trial.served_us[1]
            if done > view.now_us - trial.since_us - round(self.options.switch_s * US):
                trial.is_kept = True
                self.counts["packings_kept"] += 1
            else:
                del self.trials[pair]
                self.refused.add(pair)
                self.counts["packings_undone"] += 1
        packed = {job for pair in self.trials for job in pair}
        by_home: dict[Gpus, list[int]] = {}
        for job, gpus in self.home.items():
            if job not in packed and self.load[gpus[0]] > 1:
                by_home.setdefault(gpus, []).append(job)
        for jobs in by_home.values():
            pair = frozenset(sorted(jobs, key=lambda job: (view.busy_milli[job], job))[:2])
            if len(pair) == 2 and pair not in self.refused:
                one, other = sorted(pair)
                self.trials[pair] = _Trial(view.now_us, (int(served[one]), int(served[other])))

    def _migrate(self, view: View, waiting: list[int]) -> None:
        """Move time-sharing jobs to idle GPUs, and consolidate small jobs if a wide gang waits."""
        most = max(node.idle for node in self.nodes)
        if most and self.num_crowded:
            shared = [job for job, gpus in self.home.items() if any(self.load[gpu] > 1 for gpu in gpus)]
            for job in sorted(shared, key=lambda job: (self.last_run.get(job, -1), job)):
                if len(self.home[job]) <= most and any(self.load[gpu] > 1 for gpu in self.home[job]):
                    self._move(job, None)
                    most = max(node.idle for node in self.nodes)
        if waiting and not self.num_crowded:
            partly = [node for node in self.nodes if node.jobs and node.idle]
            if partly:
                emptiest = max(partly, key=lambda node: node.idle)
                for job in sorted(emptiest.jobs, key=lambda job: (len(self.home[job]), job)):
                    self._move(job, emptiest)

    def _move(self, job: int, away_from: _Node | None) -> bool:
        """Move a job to idle GPUs of one node, preferably of the same label; if it vacates a node, only to a node in use."""
        width = len(self.home[job])
        fits = [
            node
            for node in self.nodes
            if node is not away_from and (away_from is None or node.jobs) and node.idle >= width
        ]
        if not fits:
            return False
        node = min(fits, key=lambda node: (node.label != width, node.idle))
        self._leave(job)
        node.label = width if node.label is None else node.label
        self._settle(job, tuple(gpu for gpu in node.gpus if self.load[gpu] == 0)[:width])
        self.counts["migrations"] += 1
        return True

    def _grow(self, view: View, gpus: dict[int, Gpus]) -> None:
        """Lend a node's idle GPUs to its jobs that can use more than their gang, until the GPUs are assigned to another job."""
        for job in sorted(gpus):
            more = int(view.max_gpus[job]) - len(gpus[job])
            nodes = {self.node_of[gpu] for gpu in gpus[job]}
            if more > 0 and len(nodes) == 1 and all(self.load[gpu] == 1 for gpu in gpus[job]):
                busy = {gpu for held in gpus.values() for gpu in held}
                idle = [gpu for gpu in self.nodes[nodes.pop()].gpus if self.load[gpu] == 0 and gpu not in busy]
                gpus[job] = tuple(sorted((*gpus[job], *idle[:more])))

    def figures(self) -> Mapping[str, float]:
        """Return the numbers of packings and moves."""
        return {name: float(count) for name, count in self.counts.items()}
