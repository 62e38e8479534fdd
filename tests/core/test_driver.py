"""The driver on methods small enough to be followed by hand."""

import pytest

from optim.core.driver import (
    EMPTY_STATE,
    AbstractIteration,
    AbstractSolver,
    Monitor,
    Outcome,
    PhaseClock,
    SolverState,
    run_iteration,
)
from optim.core.solution import CertificateKind, PointStatus, Sense, Termination
from optim.core.stopping import GapLimit, Interruption, IterationLimit, Never, TimeLimit


class Countdown(AbstractIteration[tuple[int, Termination | None]]):
    """Count steps up to an end, and record the calls."""

    def __init__(self, end: int, interruption: Interruption | None = None) -> None:
        self.end, self.count, self.begun = end, 0, 0
        self.interruption = interruption

    def init(self) -> None:
        self.begun += 1

    def is_done(self) -> bool:
        return self.count >= self.end

    def step(self) -> None:
        self.count += 1
        if self.interruption is not None and self.count == 2:
            self.interruption.request()

    def standing(self) -> SolverState:
        return SolverState(iterations=self.count, objective=float(self.count), bound=8.0, figures={"left": self.end})

    def finish(self, reason: Termination | None) -> tuple[int, Termination | None]:
        return self.count, reason


class News:
    """Progress that records its reports."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def start(self, task, total=None) -> None:
        self.told.append((task, total))

    def update(self, completed, values=None) -> None:
        self.told.append((completed, dict(values)))

    def finish(self) -> None:
        self.told.append("end")


class Stopped(PhaseClock):
    """A clock that shows a given second."""

    def __init__(self, elapsed_s: float) -> None:
        super().__init__()
        self._at = elapsed_s

    @property
    def elapsed_s(self) -> float:
        return self._at


def test_runs_to_the_natural_end_and_gives_no_reason():
    assert run_iteration(Countdown(3), Monitor()) == (3, None)


def test_a_natural_end_wins_over_a_limit_reached_at_the_same_time():
    assert run_iteration(Countdown(3), Monitor(IterationLimit(3))) == (3, None)


def test_stops_before_a_step_and_hands_on_the_reason():
    assert run_iteration(Countdown(9), Monitor(IterationLimit(4))) == (4, Termination.ITERATION_LIMIT)
    assert run_iteration(Countdown(9), Monitor(IterationLimit(0))) == (0, Termination.ITERATION_LIMIT)


def test_stops_at_a_gap_that_is_small_enough():
    assert run_iteration(Countdown(9), Monitor(GapLimit(1.0))) == (4, Termination.GAP_LIMIT)


def test_an_interruption_lets_the_step_end_that_it_came_in():
    interruption = Interruption()
    assert run_iteration(Countdown(9, interruption), Monitor(interruption)) == (2, Termination.INTERRUPTED)


def test_resumes_where_it_was_stopped_without_beginning_again():
    method = Countdown(9)
    run_iteration(method, Monitor(IterationLimit(4)))
    assert run_iteration(method, Monitor()) == (9, None)
    assert method.begun == 1


def test_tells_the_progress_each_step_with_the_gap_and_further_figures():
    news = News()
    run_iteration(Countdown(2), Monitor(progress=news), task="count", total=2.0)
    figures = {"bound": 8.0, "left": 2}
    assert news.told == [
        ("count", 2.0),
        (1, {"objective": 1.0, "gap": 7.0, **figures}),
        (2, {"objective": 2.0, "gap": 3.0, **figures}),
        "end",
    ]


def test_without_a_task_the_progress_hears_nothing():
    news = News()
    run_iteration(Countdown(2), Monitor(progress=news))
    assert news.told == []


def test_figures_that_are_not_known_are_told_as_none():
    news = News()
    Monitor(progress=news).show(SolverState(iterations=5, objective=2.0))
    assert news.told == [(5, {"objective": 2.0, "bound": None, "gap": None})]


def test_the_first_reason_stays():
    interruption = Interruption()
    monitor = Monitor(interruption)
    assert not monitor.is_over()
    interruption.request()
    assert monitor.is_over()
    monitor.stop = Never()
    assert monitor.is_over(EMPTY_STATE)
    assert monitor.reason is Termination.INTERRUPTED


def test_a_part_has_its_own_reason_and_a_share_of_the_time_left():
    monitor = Monitor(TimeLimit(10.0), clock=Stopped(2.0))
    part = monitor.part(share=0.25)
    assert part.remaining_s == pytest.approx(2.0)
    part.clock = Stopped(4.5)
    assert part.is_over()
    assert part.reason is Termination.TIME_LIMIT
    assert not monitor.is_over()
    assert monitor.part().remaining_s == pytest.approx(8.0)


class OtherClock:
    """A limit by a separate clock with a given number of seconds left."""

    left_s = 8.0

    def __call__(self, state):
        return None

    def remaining_s(self, elapsed_s):
        del elapsed_s
        return self.left_s


def test_a_share_of_the_time_left_is_counted_by_the_clock_of_the_rule():
    rule = OtherClock()
    part = Monitor(rule, clock=Stopped(2.0)).part(share=0.25)
    part.clock = Stopped(100.0)
    rule.left_s = 6.5
    assert part.remaining_s == 0.5
    assert not part.is_over()
    rule.left_s = 6.0
    assert part.is_over()
    assert part.reason is Termination.TIME_LIMIT


def test_a_part_may_have_rules_of_its_own():
    monitor = Monitor(IterationLimit(5))
    part = monitor.part(IterationLimit(2, Termination.NODE_LIMIT))
    assert run_iteration(Countdown(9), part) == (2, Termination.NODE_LIMIT)
    assert run_iteration(Countdown(9), monitor) == (5, Termination.ITERATION_LIMIT)


def test_a_part_of_a_run_without_a_clock_has_none_either():
    assert Monitor().part(share=0.25).remaining_s == float("inf")


class Named:
    """An instance that consists of a name only."""

    name = "nameless"


class Found(AbstractSolver[Named, object]):
    """Returns the outcome it was made with."""

    name, problem, summary = "found", "nothing", "a fixed outcome"
    options_type = Countdown

    def __init__(self, outcome: Outcome, sense: Sense = Sense.MAXIMISE) -> None:
        self.outcome = outcome
        type(self).sense = sense

    def run(self, instance, options, monitor, seed) -> Outcome:
        monitor.is_over(SolverState(iterations=1))
        return self.outcome


def solution_of(outcome: Outcome, sense: Sense = Sense.MAXIMISE, stop=None):
    solver = Found(outcome, sense)
    monitor = Monitor(stop, sense=sense)
    solver.run(Named(), None, monitor, 0)
    return solver.solution(Named(), outcome, options=Never(), seed=3, monitor=monitor)


def test_a_solver_warms_up_before_it_runs_and_that_is_timed_as_compiling():
    calls = []

    class Warm(Found):
        def warm_up(self, instance, options) -> None:
            calls.append("warm")

        def run(self, instance, options, monitor, seed) -> Outcome:
            calls.append("run")
            assert "compile" in monitor.clock.seconds
            return self.outcome

    solution = Warm(Outcome()).solve(Named(), options=Never(), stop=Never(), seed=0, progress=News())
    assert (calls, solution.stats.seconds["compile"] > 0) == (["warm", "run"], True)


def test_an_empty_outcome_claims_nothing():
    solution = solution_of(Outcome())
    assert (solution.primal, solution.dual) == (PointStatus.NONE, PointStatus.NONE)
    assert solution.certificate is None
    assert solution.termination is Termination.COMPLETED


def test_a_decision_without_a_bound_is_feasible_and_no_more():
    solution = solution_of(Outcome(decision="d", objective=2.0, statement="it fits"))
    assert (solution.primal, solution.dual) == (PointStatus.FEASIBLE, PointStatus.NONE)
    assert solution.certificate.kind is CertificateKind.FEASIBLE_ONLY


def test_a_bound_alone_is_no_decision():
    solution = solution_of(Outcome(bound=2.0, proof="p", statement="no more than 2"))
    assert (solution.primal, solution.dual) == (PointStatus.NONE, PointStatus.FEASIBLE)
    assert (solution.certificate.kind, solution.certificate.proof) == (CertificateKind.BOUND, "p")


@pytest.mark.parametrize(
    ("sense", "objective", "is_optimal"),
    [
        (Sense.MAXIMISE, 9.9, True),
        (Sense.MAXIMISE, 9.8, False),
        (Sense.MINIMISE, 10.05, True),
        (Sense.MINIMISE, 10.2, False),
    ],
)
def test_is_optimal_where_the_objective_attains_the_bound_to_the_tolerance(sense, objective, is_optimal):
    outcome = Outcome(
        decision="d", objective=objective, bound=10.0, statement="bounded", optimal_statement="attained", tol=0.0102
    )
    solution = solution_of(outcome, sense, IterationLimit(1))
    assert solution.termination is (Termination.OPTIMAL if is_optimal else Termination.ITERATION_LIMIT)
    assert solution.certificate.kind is (CertificateKind.OPTIMALITY if is_optimal else CertificateKind.BOUND)
    assert solution.certificate.statement == ("attained" if is_optimal else "bounded")


def test_never_claims_optimality_without_a_tolerance_or_a_rule_of_its_own():
    kept = Outcome(decision="d", objective=1.0, bound=1.0, statement="s")
    assert solution_of(kept).termination is Termination.COMPLETED
    told = Outcome(decision="d", objective=1.0, bound=2.0, statement="s", is_optimal=True)
    assert solution_of(told).termination is Termination.OPTIMAL
    assert solution_of(told).certificate.statement == "s"


def test_a_termination_that_is_given_wins_over_the_monitors_reason():
    outcome = Outcome(termination=Termination.NUMERICAL_ERROR)
    assert solution_of(outcome, stop=IterationLimit(0)).termination is Termination.NUMERICAL_ERROR
    assert solution_of(Outcome(), stop=IterationLimit(0)).termination is Termination.ITERATION_LIMIT


def test_statistics_name_every_phase_and_keep_what_the_run_counted():
    solution = solution_of(Outcome(iterations=7, counts={"nodes": 2.0}, decision_ms=(1.0,), message="m"))
    assert set(solution.stats.seconds) == {"build", "compile", "solve"}
    assert (solution.stats.iterations, solution.stats.counts, solution.stats.decision_ms) == (7, {"nodes": 2.0}, (1.0,))
    assert (solution.message, solution.seed, solution.instance) == ("m", 3, "nameless")
    assert solution.stats.memory_mb > 0


@pytest.mark.parametrize(
    ("sense", "bound", "stated"),
    [
        (Sense.MAXIMISE, 10.0 - 1e-14, 10.0),
        (Sense.MAXIMISE, 10.0 + 1e-14, 10.0 + 1e-14),
        (Sense.MINIMISE, 10.0 + 1e-14, 10.0),
        (Sense.MAXIMISE, 9.9, 9.9),  # no rounding error: the checker is to see it
        (Sense.MAXIMISE, None, None),
    ],
)
def test_a_bound_lies_on_the_right_side_of_the_objective_but_for_true_errors(sense, bound, stated):
    assert Outcome(objective=10.0, bound=bound).rounded(sense).bound == stated
