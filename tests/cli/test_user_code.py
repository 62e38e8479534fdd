"""Classes of a user's file on the command line: they run, and an error in them is one line with file and line."""

import json
import re

import pytest
from typer.testing import CliRunner

import optim
from optim.cli.main import app
from optim.core.errors import InvalidOptionError

SPOT = ["simulate", "spot", "--starts", "2", "--job-hours", "2"]
WORLDS = {
    "cluster": (
        "from optim.simulation.cluster.planning.policy import PlanningPolicy\n\n\n"
        "class Mine(PlanningPolicy):\n    def plan(self, view):\n        return view.nothing_of_this_name\n",
        ["simulate", "cluster", "--generate", "philly", "--jobs", "5", "--gpus", "1x8", "--policy"],
        "in plan: AttributeError",
    ),
    "containers": (
        "from optim.rightsizing.policy import AbstractPolicy\n\n\n"
        "class Mine(AbstractPolicy):\n    def estimate(self, view):\n        return 1 / 0\n",
        ["simulate", "containers", "--generate", "20", "--policy"],
        "in estimate: ZeroDivisionError: division by zero",
    ),
    "spot": (
        "from optim.simulation.spot.policy import Policy\n\n\n"
        "def bid():\n    return {}['bid']\n\n\nclass Mine(Policy):\n    def decide(self, view):\n        return bid()\n",
        [*SPOT, "--policy"],
        "in bid: KeyError: 'bid'",
    ),
    "spot, made": (
        "from optim.simulation.spot.policy import Policy\n\n\n"
        "class Mine(Policy):\n    def __init__(self, world):\n        world.of_no_such_name\n\n"
        "    def decide(self, view):\n        return None\n",
        [*SPOT, "--policy"],
        "in __init__: AttributeError: 'World' object has no attribute 'of_no_such_name'",
    ),
    "solver": (
        "from optim.core.driver import AbstractSolver, Outcome\nfrom optim.solvers.admission.fifo import FifoOptions\n\n"
        "class Mine(AbstractSolver):\n    summary, options_type = 'mine', FifoOptions\n\n"
        "    def run(self, instance, options, monitor, seed):\n        return [][0]\n",
        ["solve", "tiny-0", "--solver"],
        "in run: IndexError: list index out of range",
    ),
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch, registry):
    """Work in an empty folder, and let no solver stay registered."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def typed(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.mark.parametrize("world", WORLDS)
def test_an_error_in_a_users_class_is_one_line_with_its_file_and_line(folder, world):
    content, words, said = WORLDS[world]
    (folder / "mine.py").write_text(content)
    line = next(n for n, text in enumerate(content.splitlines(), 1) if "return view.n" in text or "1 / 0" in text
                or "['bid']" in text or "no_such_name" in text or "[][0]" in text)  # fmt: skip
    result = typed(*words, "./mine.py:Mine")
    assert result.exit_code == 2, result.exception
    (error,) = [text for text in result.stderr.splitlines() if "error" in text]
    assert f"mine.py:{line} {said}" in error
    assert "Traceback" not in result.stderr
    shown = typed("--verbose", *words, "./mine.py:Mine")
    assert "Traceback" in shown.stderr
    assert said.partition(": ")[2].partition(":")[0] in shown.stderr
    assert f'mine.py", line {line}, in' in shown.stderr, "the whole trace, also its middle"


@pytest.mark.parametrize("world", WORLDS)
def test_a_file_without_its_class_is_told_which_to_name(folder, world):
    content, words, _ = WORLDS[world]
    (folder / "mine.py").write_text(content)
    result = typed(*words, "./mine.py")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "mine.py is a file: also name one of its classes (./mine.py:Mine); it has Mine" in result.stderr


def test_what_the_library_refuses_in_a_users_class_has_file_and_line_too(folder):
    content = WORLDS["solver"][0].replace("return [][0]", "return AdmissionPlan.from_rows([(0, 0, 0, 0.5)], [])")
    (folder / "mine.py").write_text(f"from optim.models.admission.decision import AdmissionPlan\n{content}")
    result = typed("solve", "tiny-0", "--solver", "./mine.py:Mine")
    assert result.exit_code == 2
    (error,) = [text for text in result.stderr.splitlines() if "error" in text]
    assert "mine.py:9 in run: InvalidProblemError: a plan's rows" in error


IN_PROCESSES = {
    "cluster": ["simulate", "cluster", "--generate", "philly", "--jobs", "5", "--gpus", "1x8", "--policy", "fifo"],
    "containers": ["simulate", "containers", "--generate", "20"],
    "spot": ["simulate", "spot", "--starts", "8", "--job-hours", "2"],
    "spot, made": ["simulate", "spot", "--starts", "8", "--job-hours", "2"],
}


@pytest.mark.prove
@pytest.mark.parametrize(
    "world", [pytest.param(one, marks=[] if one == "cluster" else pytest.mark.prove) for one in IN_PROCESSES]
)
def test_an_error_in_another_process_is_the_same_line(folder, world):
    content, words, said = WORLDS[world]
    (folder / "mine.py").write_text(content)
    result = typed(*IN_PROCESSES[world], words[-1], "./mine.py:Mine", "--processes", "2")
    assert result.exit_code == 2, result.exception
    (error,) = [text for text in result.stderr.splitlines() if "error" in text]
    assert "mine.py:" in error
    assert said in error
    assert "Traceback" not in result.stderr


ERRORS = {
    "of the file": ("class Odd(Exception):\n    pass\n", "raise Odd('so odd')", "Odd: so odd"),
    "with other arguments": (
        "class Odd(Exception):\n    def __init__(self, one, two):\n        super().__init__(one)\n",
        "raise Odd('so', 'odd')", "Odd: so",
    ),
    "that holds what isn't sent": ("", "raise ValueError(lambda: 0)", "ValueError: <function"),
}  # fmt: skip


@pytest.mark.prove
@pytest.mark.parametrize("kind", ERRORS)
def test_errors_of_any_class_come_through(folder, kind):
    begin, line, said = ERRORS[kind]
    content = f"from optim.simulation.cluster.planning.policy import PlanningPolicy\n\n\n{begin}\n\n"
    content += f"class Mine(PlanningPolicy):\n    def plan(self, view):\n        {line}\n"
    (folder / "mine.py").write_text(content)
    number = 1 + content.splitlines().index(f"        {line}")
    result = typed("--verbose", *IN_PROCESSES["cluster"], "--policy", "./mine.py:Mine", "--processes", "2")
    assert result.exit_code == 2, result.exception
    *trace, error = result.stderr.splitlines()
    assert f"mine.py:{number} in plan: {said}" in error
    assert any(f'mine.py", line {number}, in plan' in line for line in trace), "that of the other process"


ENDS_SOLVE = (
    "from optim.core.driver import AbstractSolver\nfrom optim.solvers.admission.fifo import FifoOptions\n\n\n"
    "class Mine(AbstractSolver):\n    summary, options_type = 'mine', FifoOptions\n\n"
    "    def run(self, instance, options, monitor, seed):\n        raise {error}\n"
)
ENDS_PLAN = (
    "from optim.simulation.cluster.planning.policy import PlanningPolicy\n\n\n"
    "class Mine(PlanningPolicy):\n    def plan(self, view):\n        raise {error}\n"
)
ENDS_SPOT = (
    "from optim.simulation.spot.policy import Policy\n\n\n"
    "class Mine(Policy):\n    def decide(self, view):\n        raise {error}\n"
)
ENDINGS = {
    "SystemExit(7)": "SystemExit: 7",
    "SystemExit": "SystemExit: ",
    "KeyboardInterrupt": "KeyboardInterrupt: ",
    "RecursionError('deep')": "RecursionError: deep",
}
"""Exceptions that end a process, or exhaust its stack, raised in a worker process by a user's class."""


@pytest.mark.prove
@pytest.mark.parametrize("error", ENDINGS)
def test_a_policy_that_ends_its_process_is_one_line_with_its_file_and_line(folder, error):
    (folder / "mine.py").write_text(ENDS_PLAN.format(error=error))
    result = typed(*IN_PROCESSES["cluster"], "--policy", "./mine.py:Mine,las", "--processes", "2")
    assert result.exit_code == 2, result.stderr
    (line,) = [text for text in result.stderr.splitlines() if "error" in text]
    assert f"mine.py:6 in plan: {ENDINGS[error]}" in line
    assert "Traceback" not in result.stderr


@pytest.mark.prove
@pytest.mark.parametrize("error", ENDINGS)
def test_a_policy_of_spot_markets_that_ends_its_process_says_where(folder, error):
    (folder / "mine.py").write_text(ENDS_SPOT.format(error=error))
    result = typed(*IN_PROCESSES["spot"], "--policy", "on-demand", "--policy", "./mine.py:Mine", "--processes", "2")
    assert result.exit_code == (1 if error == "KeyboardInterrupt" else 2), result.stderr
    lines = [text for text in result.stderr.splitlines() if "mine.py:6 in decide: " in text]
    assert len(lines) == (8 if error == "KeyboardInterrupt" else 1)  # a line a start that is lost
    assert all(ENDINGS[error].strip() in text for text in lines)
    assert "Traceback" not in result.stderr


@pytest.mark.prove
@pytest.mark.parametrize("error", ENDINGS)
def test_a_solver_that_ends_its_process_costs_its_own_record_alone(folder, error):
    (folder / "mine.py").write_text(ENDS_SOLVE.format(error=error))
    words = ["bench", "admission", "--instance", "tiny-0", "--no-report", "--processes", "2"]
    result = typed(*words, "--solver", "fifo,./mine.py:Mine,drf", "--results", "r.jsonl")
    assert result.exit_code == 1, result.stderr
    records = [json.loads(line) for line in (folder / "r.jsonl").read_text().splitlines()]
    found = {record["solver"]: record["error"] for record in records}
    assert (found["fifo"], found["drf"]) == (None, None)
    assert ENDINGS[error].strip() in found["./mine.py:Mine"]
    assert re.search(r"mine\.py:9 |line 9 of mine\.py", found["./mine.py:Mine"])
    assert "exit code" not in found["./mine.py:Mine"]


def test_an_error_of_our_own_is_no_users(folder, monkeypatch):
    monkeypatch.setattr("optim.benchmarks.suite.SolveWork.attempt", lambda *_: 1 / 0)
    assert isinstance(typed("solve", "tiny-0", "--solver", "online").exception, ZeroDivisionError)


def test_a_file_that_fails_as_it_is_read_says_in_which_line(folder):
    (folder / "mine.py").write_text("x = 1\n\ny = x / 0\n")
    result = typed(*SPOT, "--policy", "./mine.py:Mine")
    assert result.exit_code == 2
    assert "./mine.py fails in line 3 with ZeroDivisionError: division by zero; correct the file" in result.stderr
    (folder / "mine.py").write_text("x = 1\nclass\n")
    assert "fails in line 2 with SyntaxError" in typed(*SPOT, "--policy", "./mine.py:Mine").stderr


SOLVER = """
from dataclasses import dataclass

from optim.core.driver import AbstractSolver, Outcome
from optim.core.registry import register
from optim.models.admission.decision import AdmissionPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    number: int = 0

{decorator}
class Nobody(AbstractSolver):
    summary, options_type = "refuses every job", Options

    def run(self, instance, options, monitor, seed):
        return Outcome(decision=AdmissionPlan.from_rows([], []), objective=0.0)
"""


@pytest.mark.parametrize("name", ["", "nobody-of-a-file"])
def test_a_solver_of_a_file_solves_and_is_verified_by_every_command(folder, name):
    path = folder / f"mine{len(name)}.py"
    path.write_text(SOLVER.format(decorator=f'@register("{name}", problem="admission")' if name else ""))
    asked = f"./{path.name}:Nobody"
    solved = typed("solve", "tiny-0", "--solver", asked, "--out", "s.json")
    assert solved.exit_code == 0, solved.stderr
    assert typed("verify", "tiny-0", "s.json").exit_code == 0
    bench = typed("bench", "admission", "--instance", "tiny-0", "--solver", f"{asked},fifo")
    assert bench.exit_code == 0, bench.stderr
    instance = optim.reference_instance("tiny-0")
    for _ in range(2):  # a file runs once, so its registrations happen once
        solution = optim.solve(instance, asked, options={"number": 3})
        assert optim.verify(instance, solution).is_ok
    assert solution.solver == (name or asked)


def test_a_class_that_is_no_solver_and_a_solver_of_another_problem_are_refused(folder):
    (folder / "mine.py").write_text("class Mine:\n    pass\n")
    with pytest.raises(InvalidOptionError, match="is not a solver of admission; derive the class from"):
        optim.solve(optim.reference_instance("tiny-0"), "./mine.py:Mine")
    (folder / "other.py").write_text(SOLVER.format(decorator='@register("of-another", problem="auction")'))
    with pytest.raises(InvalidOptionError, match="is a solver of 'auction', not of 'admission'"):
        optim.solve(optim.reference_instance("tiny-0"), "./other.py:Nobody")


NARROW = (
    "    def plan(self, view):\n        gpus, room = dict(view.running), view.room()\n"
    "        for job in view.waiting.tolist():\n            gpus[job] = room.place(job)\n"
    "        return Plan(gpus={job: held for job, held in gpus.items() if held})\n"
)
POLICY = "from optim.simulation.cluster.planning.policy import Plan, PlanningPolicy\n\n\nclass Mine(PlanningPolicy):\n"
PLANS = {
    "pairs": (
        "    def plan(self, view):\n        return Plan(gpus={int(view.jobs[0]): [(0, 1)]})\n",
        r"gpus maps job numbers to GPU numbers, machine 0 first, such as \{3: \(0, 1\)\} for job 3 on GPUs 0 "
        r"and 1; the plan has \{0: \[\(0, 1\)\]\} \(room.place\(job\) returns such numbers\)",
    ),
    "hidden": (
        "    def plan(self, view):\n        return view.remaining_us\n",
        r"policy 'Mine' at event 0 \(0 us\): it fails with .*mine.py:6 in plan: NotAllowedError: run times are hidden",
    ),
}


TWO_JOBS = [
    "simulate",
    "cluster",
    "--trace",
    "jobs.csv",
    "--gpus",
    "1x2",
    "--bound-steps",
    "0",
    "--policy",
    "./mine.py:Mine",
]


@pytest.mark.parametrize("plan", PLANS)
def test_what_is_wrong_with_a_plan_is_told_with_what_is_meant(folder, plan):
    body, said = PLANS[plan]
    (folder / "mine.py").write_text(POLICY + body)
    (folder / "jobs.csv").write_text("submit,duration,gpus\n0,3600,1\n0,3600,1\n")
    result = typed(*TWO_JOBS)
    assert (result.exit_code, result.stdout) == (2, "")
    assert re.search(said, result.stderr), result.stderr
    assert "..." not in result.stderr


def test_rows_are_played_anew_once_a_module_that_a_policy_imports_differs(folder, monkeypatch):
    monkeypatch.syspath_prepend(folder)
    (folder / "mine.py").write_text(f"import first_of_all\n{POLICY}{NARROW}")
    (folder / "first_of_all.py").write_text("SIGN = 1\n")
    (folder / "jobs.csv").write_text("submit,duration,gpus\n0,3600,1\n0,3600,1\n")
    said = [typed(*TWO_JOBS, "--results", "rows.jsonl").stderr for _ in range(2)]
    assert ["were reused from earlier runs" in text for text in said] == [False, True]
    (folder / "first_of_all.py").write_text("SIGN = -1\n")
    assert "were reused from earlier runs" not in typed(*TWO_JOBS, "--results", "rows.jsonl").stderr


@pytest.mark.prove
def test_a_benchmark_of_ones_own_solver_has_another_key_once_the_file_differs(folder):
    body = "from optim.solvers.admission.fifo import FifoSolver\n\n\nclass Mine(FifoSolver):\n    pass\n"
    words = ["bench", "admission", "--solver", "./mine.py:Mine", "--instance", "tiny-0", "--results", "rows.jsonl"]
    for more in ("", "", "# other\n"):
        (folder / "mine.py").write_text(body + more)
        assert typed(*words).exit_code == 0
    keys = [json.loads(line)["key"] for line in (folder / "rows.jsonl").read_text().splitlines()]
    assert len(keys) == len(set(keys)) == 2
