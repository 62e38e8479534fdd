"""What a planning policy is: the contract between it and the engine.

The engine calls `plan` after each instant at which something happened (a submission, an end), or at the times that the
policy asked for. It hands over a `View`, which shows what the policy's real counterpart would see, and takes a `Plan`:
which jobs are to run from now on, and on which GPUs. A job that runs and isn't in the plan is stopped; one whose GPUs
change is stopped and started; one whose GPUs stay goes on undisturbed. A plan that breaks a rule ends the run by a
`BrokenRuleError`, which names event, job and rule.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

from optim.core.errors import InvalidProblemError
from optim.core.registry import SUPPORTED, Support
from optim.models.cluster.log import Event
from optim.models.cluster.rules import Rules
from optim.models.cluster.utility import Worth
from optim.models.cluster.workload import Workload
from optim.models.cluster.world import Cluster, FloatArray
from optim.simulation.cluster.options import EngineOptions

if TYPE_CHECKING:
    from optim.simulation.cluster.planning.view import View

Gpus = tuple[int, ...]
"""GPUs by number: those of machine 0 first. The order says nothing."""


class Sight(StrEnum):
    """What of a job a policy may see that a real scheduler wouldn't; declared, printed, and shown only then."""

    RUN_TIMES = "the run times"


class BrokenRuleError(InvalidProblemError):
    """A policy's plan breaks a rule; the text names event, job and rule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a policy decides.

    Parameters
    ----------
    gpus
        GPUs of every job that is to run from now on, by the job's number; jobs start in this order.
    again_us
        When to be called again at the latest, after now; None for at the next event.
    leave
        Jobs that are sent away for good, whether they run or wait: refused, or given up.
    steps
        Stops (`Event.PREEMPT`) and starts (`Event.START`) in the order in which they happen, for policies to which it matters: a
        job that is stopped and started on the same GPUs starts anew. What isn't named is stopped before, or started after.
    """

    gpus: Mapping[int, Gpus]
    again_us: int | None = None
    leave: Sequence[int] = field(default=())
    steps: Sequence[tuple[Event, int]] = field(default=())


class PlanningPolicy(ABC):
    """A policy that plans. One object serves one run after the other: `begin` clears all that it remembers.

    Parameters
    ----------
    name, source, completed
        Who, by whom, and what the source leaves open with how it is filled here.
    sees
        What it sees that a real scheduler wouldn't; empty if nothing.
    reads_losses
        Whether it follows the losses that jobs report, so that it needs loss curves.
    places_itself
        Whether it brings its own placement, so that the engine's rule and wrappers around placement don't reach it.
    may_spread
        Whether it lets gangs spread over machines where the engine's rule doesn't.
    knows_quotas
        Whether it goes by quotas of the virtual clusters, so that jobs may wait for theirs.
    quota
        GPUs of each virtual cluster, which `begin` sets where it goes by quotas: figures and checker go by them, too.
    plans_at_events
        Whether it is called at submissions and ends, too, or only at the times that it asked for (a round-based policy:
        then a job that ends leaves its GPUs idle until the round is over). Where it asked for none, the next event calls.
    """

    name: ClassVar[str] = ""
    source: ClassVar[str] = ""
    completed: ClassVar[str] = ""
    sees: ClassVar[tuple[Sight, ...]] = ()
    reads_losses: ClassVar[bool] = False
    places_itself: ClassVar[bool] = False
    may_spread: ClassVar[bool] = False
    knows_quotas: ClassVar[bool] = False
    quota: "Sequence[float] | FloatArray" = ()
    plans_at_events: bool = True

    @property
    def needs(self) -> str:
        """What it sees that a real scheduler wouldn't, for people; empty if nothing."""
        return ", ".join(self.sees)

    def rules(self, options: EngineOptions) -> Rules:
        """Return what its runs may do and what starts cost: whole gangs, one job a GPU, the engine's overhead unless it says so.

        Quotas are those of the run that was begun last.
        """
        return Rules(
            restart_us=options.overhead_us,
            move_us=options.overhead_us,
            is_shared=options.sharing,
            neighbour_ppm=options.neighbour_ppm,
            knows_quotas=self.knows_quotas,
            quotas=tuple(map(float, self.quota)) if self.knows_quotas else (),
        )

    def supports(self, jobs: Workload, cluster: Cluster) -> Support:
        """Tell whether it can serve such jobs on such a cluster, and if not, why."""
        del cluster
        if self.reads_losses and not jobs.loss.shape[1]:
            return Support(False, "it follows loss curves, and these jobs have none")
        return SUPPORTED

    def begin(self, cluster: Cluster, seed: int) -> None:
        """Forget earlier runs; called before the first `plan` of each. Random numbers come from `seed` alone."""
        del cluster, seed

    @abstractmethod
    def plan(self, view: "View") -> Plan:
        """Decide which jobs run from now on, and where."""

    def worth(self) -> Worth | None:
        """Return what jobs were worth by when they ended, if the policy goes by that: logged, and recomputed by the checker."""
        return None

    def figures(self) -> Mapping[str, float]:
        """Return what it has to say of the run that ended: conflicts, refusals, rounds; numbers by name."""
        return {}
