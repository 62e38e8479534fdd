"""A policy tuned on some containers and run on others, each a piece of work."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from optim.core.execution import AbstractTask
from optim.core.progress import Progress
from optim.core.stopping import SolveState, StoppingCriterion
from optim.models.containers.series import FloatArray
from optim.simulation.containers.catalogue import BOUNDS, HARMLESS, make_plan
from optim.simulation.containers.clairvoyant import clairvoyant
from optim.simulation.containers.metrics import Outcome, measure
from optim.simulation.containers.requirement import Requirement, requirement_on
from optim.simulation.containers.tuning import Tuned, tune
from optim.simulation.containers.world import Trial, World


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TunedRun:
    """A tuned policy on the test containers.

    `total` has shape (C, R), with what restarts cost where that is charged; `bound`, shape (R,), is what no plan is below.
    """

    tuned: Tuned
    outcome: Outcome
    total: FloatArray
    bound: FloatArray | None = None


@dataclass(frozen=True, kw_only=True)
class Contest(AbstractTask[str, tuple[str, TunedRun | None]]):
    """Tune policies and run them: pieces are their names."""

    trial: Trial
    wanted: Requirement
    seed: int

    @property
    def title(self) -> str:
        """What progress shows."""
        return "policies"

    def do(self, piece: str, stop: StoppingCriterion, progress: Progress) -> tuple[str, TunedRun | None]:
        """Tune and run a policy; None if it was stopped."""
        del progress
        try:
            return piece, run_policy(self.trial, piece, self.wanted, self.seed, stop)
        except _StoppedError:
            return piece, None


class _StoppedError(Exception):
    """A policy was told to stop."""


def run_policy(trial: Trial, name: str, wanted: Requirement, seed: int, stop: StoppingCriterion) -> TunedRun:
    """Tune a policy on the calibration containers and run it on the test containers; `stop` is asked in between."""

    def go_on() -> None:
        if stop(SolveState(elapsed_s=0.0)) is not None:
            raise _StoppedError

    def is_met(allocation: FloatArray) -> NDArray[np.bool_]:
        go_on()
        return required(allocation)

    go_on()
    if name in BOUNDS:
        return _bound(trial.test, wanted, is_harmless=name == HARMLESS)
    required = requirement_on(trial.calibration, wanted, seed)
    tuned = tune(make_plan(trial.calibration, name), is_met, len(trial.test.resources))
    plan = make_plan(trial.test, name)
    go_on()
    outcome = measure(trial.test, plan.allocate(tuned.multiplier), wanted.restarts)
    return TunedRun(tuned=tuned, outcome=outcome, total=charged_allocation(outcome, wanted))


def _bound(world: World, wanted: Requirement, *, is_harmless: bool) -> TunedRun:
    """Return the plan that attains a bound; of each resource alone, without what kills for lack of another one cost."""
    found = clairvoyant(world, wanted, is_harmless=is_harmless)
    met = np.ones(len(world.resources), dtype=np.bool_)
    return TunedRun(
        tuned=Tuned(multiplier=found.price, is_reached=met),
        outcome=measure(world, found.allocation, wanted.restarts),
        total=found.total,
        bound=found.bound,
    )


def charged_allocation(outcome: Outcome, wanted: Requirement) -> FloatArray:
    """Return the allocation of each container, shape (C, R), with what restarts cost where that is charged."""
    return outcome.allocation + (outcome.harm.charge if wanted.is_charged else 0.0)
