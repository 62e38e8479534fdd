"""Solutions of `fifo`, `drf`, `rrh` and `dorm`: plans that verify, bounds, counts, terminations."""

import pytest

import optim
from optim.core.solution import CertificateKind, PointStatus, Termination
from optim.core.stopping import IterationLimit
from tests.support.admission.slot_runs import cluster, job, plan_faults, seeded_instance
from tests.support.admission.strategies import ServerSketch

RIVALS = ["fifo", "drf", "rrh", "dorm"]


@pytest.mark.parametrize("name", ["tiny-0", "tiny-1", "tiny-2", "small-0"])
@pytest.mark.parametrize("solver", RIVALS)
def test_plan_and_bound_verify(name: str, solver: str) -> None:
    instance = optim.reference_instance(name)
    solution = optim.solve(instance, solver, seed=3)
    verification = optim.verify(instance, solution).raise_unless_ok()
    assert solution.termination is Termination.COMPLETED
    assert solution.certificate.kind is CertificateKind.BOUND
    assert verification.objective == pytest.approx(solution.objective, rel=1e-9)
    assert 0 < solution.objective <= solution.bound
    assert plan_faults(instance, solution.decision) == []
    assert solution.stats.counts["admitted"] == len(solution.decision.admitted)


@pytest.mark.parametrize("solver", RIVALS)
def test_treats_shared_servers(solver: str) -> None:
    sketch = job(2, 2, ps=("1",), workers_per_ps="2")
    instance = cluster([sketch], ServerSketch(capacity=("3",)), ps_servers=None)
    solution = optim.solve(instance, solver, options={"min_workers": 2} if solver in ("fifo", "rrh") else {})
    optim.verify(instance, solution).raise_unless_ok()
    assert solution.objective == 1.0
    assert solution.bound >= 1.0


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("solver", RIVALS)
def test_verifies_on_clusters_of_every_form(solver: str, seed: int) -> None:
    """Shared and separate servers, segments, integral chunks, capacities by slot, shares of a server."""
    instance = seeded_instance(seed)
    solution = optim.solve(instance, solver)
    assert optim.verify(instance, solution).raise_unless_ok().objective == pytest.approx(solution.objective)


@pytest.mark.parametrize("solver", ["fifo", "rrh"])
def test_another_seed_draws_other_numbers_of_workers(solver: str) -> None:
    instance = optim.reference_instance("medium-0")
    plans = [optim.solve(instance, solver, seed=seed, stop=IterationLimit(20)).decision for seed in (1, 2)]
    assert plans[0].workers.tolist() != plans[1].workers.tolist()


@pytest.mark.parametrize("solver", RIVALS)
def test_a_run_that_is_cut_short_keeps_what_is_complete_and_claims_no_bound(solver: str) -> None:
    instance = optim.reference_instance("small-0")
    solution = optim.solve(instance, solver, stop=IterationLimit(4))
    assert solution.termination is Termination.ITERATION_LIMIT
    assert (solution.bound, solution.dual) == (None, PointStatus.NONE)
    assert solution.certificate.kind is CertificateKind.FEASIBLE_ONLY
    assert solution.stats.iterations == 4
    assert optim.verify(instance, solution).is_ok


@pytest.mark.parametrize("solver", RIVALS)
def test_no_jobs_are_no_trouble(solver: str) -> None:
    instance = cluster([], ServerSketch(capacity=("1",)), ps_servers=(ServerSketch(capacity=("1",)),))
    solution = optim.solve(instance, solver)
    assert (solution.objective, solution.bound) == (0.0, 0.0)
