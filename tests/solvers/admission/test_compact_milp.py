"""The solver `compact-milp`: its plans, claims and stopping."""

import _thread
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from optim.core.errors import InvalidOptionError, UnsupportedProblemError
from optim.core.progress import SilentProgress
from optim.core.solution import CertificateKind, PointStatus, Solution, Termination
from optim.core.stopping import GapLimit, Interruption, IterationLimit
from optim.models.admission.compact_index import compact_size
from optim.models.admission.compact_programme import compact_model
from optim.models.files import verify
from optim.models.reference import reference_instance
from optim.solvers.solve import solve, solver_named
from tests.support.admission.small_clusters import SEGMENTS, crowd, instance, job, servers, violations

NAME = "compact-milp"


class Recorder(SilentProgress):
    """Record the reports."""

    def __init__(self) -> None:
        self.told: list[Mapping[str, float | None]] = []
        self.has_finished = False

    def update(self, completed: float, values: Mapping[str, float | None] | None = None) -> None:
        self.told.append(values or {})

    def finish(self) -> None:
        self.has_finished = True


class Impatient(Recorder):
    """Progress that sends Ctrl-C once, when a solution is reported."""

    def __init__(self) -> None:
        super().__init__()
        self.has_pressed = False

    def update(self, completed: float, values: Mapping[str, float | None] | None = None) -> None:
        if not self.has_pressed and values is not None and (values["objective"] or 0) > 0:
            self.has_pressed = True
            _thread.interrupt_main()


TRAITS = {
    "two jobs": instance(job(), job("b", arrival=1), worker_servers=servers([2], [1])),
    "by slot": instance(job(), job("b"), worker_servers=servers([[1], [2]], count=2), ps_servers=servers([2])),
    "segments": instance(job(segments=SEGMENTS[-1]), job("b"), worker_servers=servers([2], count=2)),
    "chunks": instance(job(minibatch_s=7, epochs=2), chunk_integral=True, horizon=3, worker_servers=servers([2])),
    "capped": instance(job(), job("b"), worker_servers=servers([2], count=2), max_share_per_server=0.5),
    "shared": instance(job(), job("b", worker=[2]), shared_servers=servers([3], [2])),
    "shared and capped": instance(
        job(), job("b", worker=[2]), shared_servers=servers([3], count=3), max_share_per_server=0.5
    ),
    "crowd": crowd(6),
}  # fmt: skip
"""One instance for each way in which instances differ."""


@pytest.mark.parametrize("trait", TRAITS)
def test_proves_what_it_claims(trait: str):
    solution = solve(TRAITS[trait], NAME)
    assert solution.objective > 0
    assert solution.objective == pytest.approx(solution.stats.counts["milp_objective"], abs=1e-6)
    assert solution.objective == pytest.approx(solution.stats.counts["claimed_bound"], abs=1e-4)
    assert violations(TRAITS[trait], solution.decision) == []
    assert verify(TRAITS[trait], solution).violations == ()


@pytest.mark.parametrize(
    ("name", "best"), [("tiny-0", 63.885), ("tiny-1", 168.34535773057462), ("tiny-2", 307.838127568622)]
)
def test_finds_the_known_optima_and_states_highs_bound_as_a_count_only(name: str, best: float):
    tiny = reference_instance(name)
    solution = solve(tiny, NAME)
    assert solution.objective == pytest.approx(best, rel=1e-9)
    assert solution.termination is Termination.COMPLETED
    assert solution.stats.counts["claimed_bound"] == pytest.approx(best, rel=1e-6)
    assert solution.bound > best * 1.01
    assert solution.certificate.kind is CertificateKind.BOUND
    assert "without a proof" in solution.message
    assert verify(tiny, solution).raise_unless_ok().objective == pytest.approx(best)


@pytest.mark.parametrize("scale", [1e-5, 1e-9])
@pytest.mark.parametrize("name", ["tiny-0", "tiny-2"])
def test_finds_what_it_finds_where_worths_are_tiny(name: str, scale: float):
    tiny = reference_instance(name)
    utilities = tuple(_times(utility, scale) for utility in tiny.jobs.utilities)
    small = replace(tiny, jobs=replace(tiny.jobs, utilities=utilities))
    usual, found = solve(tiny, NAME), solve(small, NAME)
    assert found.objective == pytest.approx(usual.objective * scale, rel=1e-6, abs=0)
    for count in ("milp_objective", "claimed_bound"):
        assert found.stats.counts[count] == pytest.approx(usual.stats.counts[count] * scale, rel=2e-6, abs=0)
    assert f"{found.stats.counts['claimed_bound']:.9g}" in found.message
    assert verify(small, found).is_ok


@pytest.mark.parametrize("seed", [2**31, 2**40])
def test_large_seeds_are_seeds(seed: int):
    alone = instance(job())
    assert solve(alone, NAME, seed=seed).objective == solve(alone, NAME).objective


def test_says_optimal_where_prices_prove_it():
    alone = instance(job())
    solution = solve(alone, NAME)
    assert solution.termination is Termination.OPTIMAL
    assert solution.certificate.kind is CertificateKind.OPTIMALITY
    assert solution.bound == pytest.approx(8)
    assert verify(alone, solution).is_ok


def test_refuses_every_job_when_there_is_no_time():
    small = crowd()
    solution = solve(small, NAME, time_limit_s=0.0)
    assert solution.termination is Termination.TIME_LIMIT
    assert solution.objective == 0
    assert solution.decision.admitted.tolist() == []
    assert verify(small, solution).is_ok


def test_keeps_the_best_plan_at_a_limit_of_nodes():
    small = crowd(6)
    solution = solve(small, NAME, stop=IterationLimit(1))
    assert solution.termination is Termination.ITERATION_LIMIT
    assert solution.objective > 0
    assert solution.bound > solution.objective
    assert verify(small, solution).is_ok
    again = solve(small, NAME, stop=IterationLimit(1))
    assert _answer(again) == _answer(solution)


def test_stops_at_a_gap_by_highs_bound():
    solution = solve(crowd(), NAME, stop=GapLimit(0.5))
    assert solution.termination is Termination.GAP_LIMIT
    assert solution.stats.counts["claimed_bound"] <= 1.5 * solution.stats.counts["milp_objective"]


@pytest.mark.usefixtures("heeded_ctrl_c")
def test_ctrl_c_gives_the_best_plan_so_far():
    small = crowd()
    progress = Impatient()
    solution = solve(small, NAME, progress=progress, on_interrupt="return")
    assert solution.termination is Termination.INTERRUPTED
    assert solution.objective > 0
    assert (solution.bound, solution.certificate.kind) == (None, CertificateKind.FEASIBLE_ONLY)
    assert progress.has_finished
    assert verify(small, solution).is_ok


def test_ctrl_c_while_building_refuses_every_job(monkeypatch: pytest.MonkeyPatch):
    def press(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("optim.models.admission.compact_programme.compact_model", press)
    solution = solve(instance(job()), NAME)
    assert (solution.termination, solution.objective) == (Termination.INTERRUPTED, 0)


def test_an_interruption_requested_before_is_heeded():
    stop = Interruption()
    stop.request()
    assert solve(instance(job()), NAME, stop=stop).termination is Termination.INTERRUPTED


def test_a_point_that_highs_calls_infeasible_is_no_decision(monkeypatch: pytest.MonkeyPatch):
    """Rejecting every job is feasible, so such a claim can only have numerical causes."""
    import optim.solvers.admission.compact_milp as module

    honest = module.solve_with_highs

    def confused(*arguments: Any, **options: Any) -> Any:
        return replace(honest(*arguments, **options), termination=Termination.INFEASIBLE)

    monkeypatch.setattr(module, "solve_with_highs", confused)
    solution = solve(instance(job()), NAME)
    assert (solution.termination, solution.primal) == (Termination.NUMERICAL_ERROR, PointStatus.NONE)
    assert (solution.decision, solution.objective, solution.certificate) == (None, None, None)
    assert verify(instance(job()), solution).is_ok


def test_says_so_when_a_point_breaks_rows_in_exact_arithmetic(monkeypatch: pytest.MonkeyPatch):
    """Two jobs on one server that holds one of them, after HiGHS was given a capacity for both."""
    narrow = instance(*[job(f"j{i}", chunks=1, ps=[0.5]) for i in range(2)], horizon=1, worker_servers=servers([1]))
    wide = instance(*[job(f"j{i}", chunks=1, ps=[0.5]) for i in range(2)], horizon=1, worker_servers=servers([2]))
    monkeypatch.setattr(
        "optim.models.admission.compact_programme.compact_model", lambda _, **options: compact_model(wide)
    )
    solution = solve(narrow, NAME)
    assert (solution.objective, solution.stats.counts["milp_objective"]) == (8, 16)
    assert "less than HiGHS' point, 16: jobs that violate a row" in solution.message
    assert verify(narrow, solution).is_ok


def test_an_instance_without_jobs_is_worth_nothing_and_optimal():
    solution = solve(instance(), NAME)
    assert (solution.termination, solution.objective, solution.bound) == (Termination.OPTIMAL, 0, 0)


def test_refuses_programmes_that_are_too_large():
    large = reference_instance("large-0")
    support = solver_named("admission", NAME).supports(large)
    assert not support
    assert f"{compact_size(large)} variables, more than 400000" in support.reason
    with pytest.raises(UnsupportedProblemError, match="compact-milp"):
        solve(large, NAME)
    with pytest.raises(UnsupportedProblemError, match="66 variables, more than 65"):
        solve(reference_instance("tiny-0"), NAME, options={"max_variables": 65})


@pytest.mark.parametrize(
    "options", [{"mip_gap": -0.1}, {"mip_gap": 1.0}, {"max_variables": 0}, {"max_variables": 400_001}]
)
def test_refuses_options_out_of_range(options: dict[str, Any]):
    with pytest.raises(InvalidOptionError, match=next(iter(options))):
        solve(instance(job()), NAME, options=options)


def test_tells_objective_and_bound_while_it_runs_and_prints_nothing(capfd: pytest.CaptureFixture[str]):
    progress = Recorder()
    solve(reference_instance("tiny-2"), NAME, progress=progress)
    assert progress.has_finished
    assert {"objective", "bound", "gap"} == set(progress.told[-1])
    assert capfd.readouterr() == ("", "")


def _times(utility: Any, scale: float) -> Any:
    """Return a utility that is a multiple of another."""
    return replace(utility, theta1=utility.theta1 * scale)


def _answer(solution: Solution) -> tuple[Any, ...]:
    plan = solution.decision
    return plan.workers.tolist(), plan.ps.tolist(), solution.objective, solution.bound, solution.stats.iterations
