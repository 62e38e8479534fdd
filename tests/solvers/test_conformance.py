"""The conformance checks accept an honest solver, and each rejects the fault that it tests."""

from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
from optim_studies.stress import saturated

from optim.core.solution import PointStatus, Sense, Solution, Stats, Termination
from optim.models.admission.decision import AdmissionPlan
from optim.solvers.conformance import CHECKS, ConformanceError, Trial, failures

NOBODY = AdmissionPlan.from_rows([], [])

TAMPERINGS = {
    "verifies": lambda s: replace(s, objective=s.objective + 1.0),
    "identity": lambda s: replace(s, seed=s.seed + 1),
    "statuses": lambda s: replace(s, termination=Termination.OPTIMAL, bound=s.objective + 1.0),
    "bound_not_crossed": lambda s: replace(s, bound=s.objective - 1.0),
    "not_worse_than_nothing": lambda s: replace(s, objective=-1.0),
    "same_seed_same_answer": lambda s: replace(s, decision=NOBODY),
    "round_trip": lambda s: replace(s, objective=s.objective + 1.0),
    "phases": lambda s: replace(s, stats=Stats(seconds={"solve": -1.0})),
}
"""For each check, a falsified answer that it must reject."""


def honest() -> Trial:
    """Return a trial of the online solver on an instance on which it rejects some jobs."""
    return Trial(saturated(), "online")


def tampered(trial: Trial, name: str, solution: Solution) -> Trial:
    """Return the trial with another solution."""
    trial.__dict__[name] = solution
    return trial


def test_an_honest_solver_fails_no_check():
    assert failures(honest()) == ()


@pytest.mark.parametrize("check", TAMPERINGS)
def test_each_check_refuses_the_dishonest_answer_that_it_is_for(check):
    trial = honest()
    dishonest = TAMPERINGS[check](trial.solution)
    with pytest.raises(ConformanceError):
        CHECKS[check](tampered(trial, "solution", dishonest))


@pytest.mark.parametrize(("above", "is_refused"), [(0.0, False), (1e-3, True)])
def test_an_optimum_has_next_to_no_gap(above, is_refused):
    trial = honest()
    bound = trial.solution.objective * (1 + above)
    claimed = replace(trial.solution, termination=Termination.OPTIMAL, bound=bound)
    with pytest.raises(ConformanceError, match="gap of at most") if is_refused else nullcontext():
        CHECKS["statuses"](tampered(trial, "solution", claimed))


def test_refuses_a_hurried_solver_that_says_it_was_interrupted():
    trial = honest()
    dishonest = replace(trial.zero_time, termination=Termination.INTERRUPTED)
    with pytest.raises(ConformanceError, match="by its time limit, complete"):
        CHECKS["without_time"](tampered(trial, "zero_time", dishonest))


def test_refuses_a_hurried_solver_that_claims_too_much():
    trial = honest()
    dishonest = replace(trial.zero_time, objective=1e6, primal=PointStatus.FEASIBLE, decision=NOBODY)
    with pytest.raises(ConformanceError, match="only make correct claims"):
        CHECKS["without_time"](tampered(trial, "zero_time", dishonest))


def test_refuses_a_solver_that_writes_into_the_instance():
    trial = honest()
    changed = np.where(np.arange(len(trial.instance.jobs)) == 0, 0.5, trial.instance.jobs.min_utility)
    object.__setattr__(trial.instance.jobs, "min_utility", changed)
    with pytest.raises(ConformanceError, match="must not change the instance"):
        CHECKS["instance_untouched"](trial)


def test_names_every_failed_check_in_one_line_each():
    trial = honest()
    dishonest = replace(trial.solution, sense=Sense.MINIMISE, objective=-1.0)
    told = failures(tampered(trial, "solution", dishonest))
    assert {line.partition(":")[0] for line in told} >= {"identity", "verifies", "not_worse_than_nothing"}


@pytest.mark.parametrize(
    "lie",
    [
        {"objective": None},
        {"primal": PointStatus.NONE},
        {"decision": None},
        {"bound": None},
        {"certificate": None},
    ],
    ids=lambda lie: next(iter(lie)),
)
def test_what_belongs_together_is_refused_when_any_one_of_it_is_missing(lie):
    trial = honest()
    dishonest = replace(trial.solution, **lie)
    with pytest.raises(ConformanceError, match="must come together"):
        CHECKS["statuses"](tampered(trial, "solution", dishonest))


@pytest.mark.parametrize(("share", "is_refused"), [(1.0, False), (0.99, True)])
def test_a_solver_that_is_not_reproducible_owes_the_same_optimum(share, is_refused, monkeypatch):
    trial = Trial(saturated(), "branch-and-price")
    assert trial.solution.termination is Termination.OPTIMAL
    monkeypatch.setattr(type(trial.solver), "is_reproducible", False)
    other = replace(trial.solution, decision=NOBODY, objective=share * trial.solution.objective)
    found = failures(tampered(trial, "repetition", other))
    assert any(text.startswith("same_seed") for text in found) == is_refused
