"""Trade waiting for locality: a gang insists on a good place for a while, and then takes any."""

from dataclasses import dataclass, replace

from optim.core.ranges import check_in
from optim.models.cluster.workload import PPM, US, Workload
from optim.simulation.cluster.planning.policy import Plan, PlanningPolicy
from optim.simulation.cluster.planning.room import Room
from optim.simulation.cluster.planning.view import View
from optim.simulation.cluster.wrappers.wrapper import Wrapper, earliest


@dataclass(frozen=True, slots=True, kw_only=True)
class PatienceOptions:
    """Options.

    Parameters
    ----------
    wait_s
        How long a job waits, for each GPU of its gang.
    most_slowdown
        Slowdown of places that it takes before.

    Raises
    ------
    InvalidOptionError
        If a value is outside its range.
    """

    wait_s: float = 60.0
    most_slowdown: float = 1.05

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_in("[0, 1000000]", self, "wait_s")
        check_in("[1, 1000]", self, "most_slowdown")


class Patience(Wrapper):
    """Starts at a slowdown above `most_slowdown` wait until the job has waited `wait_s` a GPU; then any GPUs will do."""

    wrap = "patience"
    may_spread = True

    def __init__(self, options: PatienceOptions, inner: PlanningPolicy, jobs: Workload) -> None:
        super().__init__(inner)
        self.options = options
        del jobs

    def _until(self, view: View, job: int) -> int:
        """Return until when a job insists: from its submission, or from when it last lost its GPUs."""
        since = max(int(view.submit_us[job]), int(view.stopped_us[job]))
        return since + round(self.options.wait_s * US) * int(view.gpus[job])

    def plan(self, view: View) -> Plan:
        """Let jobs that waited long enough spread, and hold back the others' bad places."""

        def prepare(room: Room) -> None:
            room.loosen(lambda job: view.now_us >= self._until(view, job))

        view.prepare.append(prepare)
        plan = self.inner.plan(view)
        most = round(self.options.most_slowdown * PPM)
        gpus = {
            job: held
            for job, held in plan.gpus.items()
            if view.running.get(job) == held
            or view.slowdown_ppm[job, view.level(held)] <= most
            or view.now_us >= self._until(view, job)
        }
        ends = [self._until(view, int(job)) for job in view.waiting if int(job) not in gpus and view.gpus[job] > 1]
        again = earliest(plan.again_us, *(end for end in ends if end > view.now_us))
        return replace(plan, gpus=gpus, again_us=again)
