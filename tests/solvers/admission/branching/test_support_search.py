"""Plans in the support of an LP point, compared with the packing of all schedules that the support leaves."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st
from optim_studies.peers import family_instance
from optim_studies.stress import KNOWN_OPTIMA, STRESS_INSTANCES
from scipy.optimize import LinearConstraint, milp

import optim
from optim.core.solution import Termination
from optim.models.admission.compact_index import CompactIndex
from optim.solvers.admission.branching import support_search as module
from optim.solvers.admission.branching.support_search import (
    CompactProgramme,
    RestrictedProgramme,
    Support,
    SupportSearch,
)
from optim.solvers.admission.pricing.classes import JobTables, PricedSchedules
from tests.support.admission.oracle import Layout, enumerate_job
from tests.support.admission.strategies import tiny_instances


def never():
    return False


def optimum_in(instance, support):
    """Return the best value in a support by enumeration of schedules; None if there is no such plan."""
    layout = Layout(instance=instance)
    columns = []
    for job in range(instance.num_jobs):
        allowed = np.flatnonzero(support.is_allowed[job])
        for schedule in enumerate_job(layout, job):
            later = allowed[allowed >= schedule.completion]
            if len(later):
                columns.append((job, float(instance.value[job, later[0]]), schedule.usage))
    if not columns:
        return None if support.is_required.any() else 0.0
    jobs, value, usage = (np.array(part) for part in zip(*columns, strict=True))
    of_job = (jobs == np.arange(instance.num_jobs)[:, None]).astype(float)
    result = milp(
        -value,
        constraints=[
            LinearConstraint(usage.T, -np.inf, layout.capacity),
            LinearConstraint(of_job, support.is_required.astype(float), 1.0),
        ],
        integrality=np.ones(len(value)),
        options={"mip_rel_gap": 0.0, "presolve": False},
    )
    return None if result.status == 2 else float(-result.fun)


@given(st.data())
def test_its_optimum_is_that_of_all_schedules_in_the_support(data):
    kinds = data.draw(st.tuples(st.booleans(), st.booleans(), st.booleans()))
    instance = data.draw(tiny_instances(is_shared=kinds[0], has_segments=kinds[1], is_chunk_integral=kinds[2]))
    flags = st.lists(st.booleans(), min_size=instance.num_jobs, max_size=instance.num_jobs)
    is_allowed = np.array([data.draw(flags) for _ in range(instance.horizon)], dtype=bool).T & (instance.value > 0)
    has_variables = np.isin(np.arange(instance.num_jobs), list(CompactIndex.of(instance).windows))
    is_required = np.array(data.draw(flags)) & is_allowed.any(axis=1) & has_variables & data.draw(st.booleans())
    support = Support(is_required=is_required, is_allowed=is_allowed)
    try:
        optimum = optimum_in(instance, support)
    except OverflowError:
        reject()  # too many schedules to list
    programme = CompactProgramme(instance)
    if not programme.compiled().columns:
        return
    outcome = RestrictedProgramme(programme).run(support, -1.0, never, options={})
    if optimum is None:
        assert outcome.termination is Termination.INFEASIBLE
        return
    assert outcome.objective == pytest.approx(optimum, rel=1e-6, abs=1e-9)
    plan = programme.plan_of(outcome.values)
    assert plan.objective(instance) >= optimum - 1e-6 * max(1.0, abs(optimum))
    assert set(plan.admitted.tolist()) <= set(np.flatnonzero(is_allowed.any(axis=1)).tolist())


@pytest.mark.parametrize("name", sorted(set(KNOWN_OPTIMA) & set(STRESS_INSTANCES)))
def test_the_support_of_all_slots_contains_the_optimum(name):
    instance = STRESS_INSTANCES[name]()
    programme = CompactProgramme(instance)
    if not programme.compiled().columns:
        assert KNOWN_OPTIMA[name] == 0
        return
    everything = Support(is_required=np.zeros(instance.num_jobs, dtype=bool), is_allowed=instance.value > 0)
    restricted = RestrictedProgramme(programme)
    outcome = restricted.run(everything, 0.0, never, options={})
    plan = programme.plan_of(outcome.values)
    assert plan.objective(instance) == pytest.approx(KNOWN_OPTIMA[name], rel=1e-9)
    above = restricted.run(everything, 1.001 * KNOWN_OPTIMA[name] + 0.001, never, options={})
    assert above.termination is Termination.INFEASIBLE
    # A later run isn't affected by the cutoff of an earlier one.
    assert restricted.run(everything, 0.0, never, options={}).objective == pytest.approx(outcome.objective)


def test_a_support_is_what_the_weights_use():
    instance = optim.reference_instance("tiny-0")
    schedules = PricedSchedules.blank(JobTables.build(instance), np.array([0, 0, 1, 2, 2]))
    schedules.completion[:] = [3, 4, 2, 1, 1]
    support = Support.of(schedules, np.array([0.5, 0.5, 0.4, 0.0, 1e-9]), instance.num_jobs)
    assert np.flatnonzero(support.is_required).tolist() == [0]
    assert np.argwhere(support.is_allowed).tolist() == [[0, 3], [0, 4], [1, 2]]
    other = Support.of(schedules, np.array([0.5, 0.4, 0.4, 0.0, 0.0]), instance.num_jobs)
    assert other.key != support.key


class Runs:
    """Stand in for HiGHS: note the cutoffs, and return an outcome without a point."""

    def __init__(self, termination, iterations):
        self.cutoffs, self.termination, self.iterations = [], termination, iterations

    def __call__(self, programme):
        return self

    def run(self, support, cutoff, should_stop, *, options):
        self.cutoffs.append(cutoff)
        return module.HighsOutcome(
            termination=self.termination,
            values=None,
            objective=None,
            bound=None,
            nodes=1,
            simplex_iterations=self.iterations,
        )


def supports(instance):
    """Yield different supports."""
    for job in range(instance.num_jobs):
        is_required = np.arange(instance.num_jobs) == job
        yield Support(is_required=is_required, is_allowed=instance.value > 0)


def test_searches_without_success_take_a_share_of_the_trees_iterations(monkeypatch):
    instance = optim.reference_instance("tiny-2")
    runs, unfinished = Runs(Termination.NODE_LIMIT, 1_000), []
    monkeypatch.setattr(module, "RestrictedProgramme", runs)
    search = SupportSearch(CompactProgramme(instance), lambda support, cutoff: unfinished.append(cutoff))
    first, second, third = list(supports(instance))[:3]
    limit = int(1_000 / module.MAX_SHARE)
    assert search.better_plan(first, 1.0, 0, never) is None
    assert search.better_plan(first, 2.0, 10 * limit, never) is None, "a support is searched once"
    assert search.better_plan(second, 3.0, limit - 1, never) is None
    assert runs.cutoffs == unfinished == [1.0]
    search.better_plan(second, 3.0, limit, never)
    search.better_plan(third, 4.0, limit, never)
    assert runs.cutoffs == unfinished == [1.0, 3.0]


def test_a_finished_search_hands_nothing_over(monkeypatch):
    instance = optim.reference_instance("tiny-2")
    monkeypatch.setattr(module, "RestrictedProgramme", Runs(Termination.INFEASIBLE, 10))
    search = SupportSearch(CompactProgramme(instance), lambda *_: pytest.fail("it came to its end"))
    assert search.better_plan(next(supports(instance)), 1.0, 0, never) is None


def test_a_success_frees_the_effort_of_the_next_search():
    instance = optim.reference_instance("tiny-1")
    optimum = optim.solve(instance, "exact").objective
    search = SupportSearch(CompactProgramme(instance))
    everything = Support(is_required=np.zeros(instance.num_jobs, dtype=bool), is_allowed=instance.value > 0)
    plan = search.better_plan(everything, 0.5 * optimum, 0, never)
    assert plan.objective(instance) > 0.5 * optimum
    assert search._spent == 0


def test_the_tree_finds_a_plan_that_dives_and_moves_miss(monkeypatch):
    """Without searches in supports this instance takes more than a hundred nodes."""
    instance = family_instance("16", "light", 3)
    nodes = []
    for size in (module.MAX_PROGRAMME, 0):
        monkeypatch.setattr(module, "MAX_PROGRAMME", size)
        solution = optim.solve(instance, "branch-and-price", options={"max_nodes": 10})
        nodes.append((solution.termination, solution.stats.counts["nodes"]))
    assert nodes[0] == ("optimal", 1)
    assert nodes[1][0] == "node_limit"


def test_an_interrupted_search_ends_the_run(monkeypatch):
    instance = optim.reference_instance("tiny-0")

    class Aborted(Runs):
        def run(self, *args, **kwargs):
            return replace(super().run(*args, **kwargs), is_aborted=True)

    monkeypatch.setattr(module, "RestrictedProgramme", Aborted(Termination.INTERRUPTED, 0))
    with pytest.raises(KeyboardInterrupt):
        SupportSearch(CompactProgramme(instance)).better_plan(next(supports(instance)), 0.0, 0, never)
