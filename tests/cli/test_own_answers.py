"""Invalid answers of a user's class: one line that names the file, the answer, and the expected form."""

import pytest
from typer.testing import CliRunner

import optim
from optim.cli.main import app
from optim.core.errors import OptimError

ZONES = "from optim.simulation.spot.zones import DeadlineGuard, Offer\n\n\nclass Mine(DeadlineGuard):\n"
PRICES = "from optim.simulation.spot.policy import Policy, Recovery, Request\n\n\nclass Mine(Policy):\n"
CHECKPOINTS = (
    "    recovery = Recovery.CHECKPOINT\n\n    def decide(self, view):\n        n = view.on_demand_room\n"
    "        return Request(market=0, count=n, bid_micro=None) if n else None\n\n"
    "    def checkpoint_every_s(self, leases):\n"
)
SOLVER = (
    "from optim.core.driver import AbstractSolver, Outcome\nfrom optim.models.admission.decision import AdmissionPlan\n"
    "from optim.solvers.admission.fifo import FifoOptions\n\n\nclass Mine(AbstractSolver):\n"
)
RUN = "    summary, options_type = 'mine', FifoOptions\n\n    def run(self, instance, options, monitor, seed):\n"

ANSWERS = {
    "zone, None": (ZONES + "    def choose(self, view):\n        return None\n", "mine.py:5 in Mine.choose"),
    "zone, bare": (ZONES + "    def choose(self, view):\n        return Offer(0, True)\n", "mine.py:5 in Mine.choose"),
    "zone, text": (ZONES + "    def choose(self, view):\n        return ('a',)\n", "mine.py:5 in Mine.choose"),
    "zone, 7": (
        ZONES + "    def choose(self, view):\n        return (Offer(7, True),)\n",
        "requests zone 7, expected a number from 0 to 1",
    ),
    "zone, -1": (ZONES + "    def choose(self, view):\n        return [Offer(-1, True)]\n", "requests zone -1"),
    "price, tuple": (PRICES + "    def decide(self, view):\n        return 0, 1, 5\n", "got (0, 1, 5)"),
    "price, market": (
        PRICES + "    def decide(self, view):\n        return Request(market=99, count=1, bid_micro=1)\n",
        "requests market 99",
    ),
    "price, half": (
        PRICES + "    def decide(self, view):\n        return Request(market=0, count=1.5, bid_micro=10)\n",
        "count must be an integer, got 1.5",
    ),
    "price, bid": (
        PRICES + "    def decide(self, view):\n        return Request(market=0, count=1, bid_micro=0.5)\n",
        "bid_micro must be an integer, got 0.5",
    ),
    "price, often": (PRICES + CHECKPOINTS + "        return 'often'\n", "mine.py:11 in Mine.checkpoint_every_s"),
    "price, 0.0": (PRICES + CHECKPOINTS + "        return 0.0\n", "must return seconds above 0, got 0.0"),
    "price, nan": (PRICES + CHECKPOINTS + "        return float('nan')\n", "must return seconds above 0, got nan"),
    "solver, None": (SOLVER + RUN + "        return None\n", "mine.py:9 in Mine.run"),
    "solver, text": (
        SOLVER + RUN + "        return Outcome(decision=AdmissionPlan.from_rows([], []), objective='zero')\n",
        "objective must be a number or None, got 'zero'",
    ),
    "solver, options": (
        SOLVER + RUN.replace("options_type", "option_type") + "        return Outcome()\n",
        "Mine lacks options_type",
    ),
    "solver, summary": (SOLVER + RUN.replace("summary", "summry") + "        return Outcome()\n", "Mine lacks summary"),
    "solver, recursion": (
        SOLVER + RUN + "        return self.run(instance, options, monitor, seed)\n",
        "RecursionError",
    ),
    "solver, exit": (SOLVER + RUN + "        raise SystemExit(3)\n", "SystemExit: 3"),
    "policy, exit": (PRICES + "    def decide(self, view):\n        raise SystemExit(3)\n", "SystemExit: 3"),
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch, registry):
    """Work in an empty folder with two zones' availability, and let no solver stay registered."""
    monkeypatch.chdir(tmp_path)
    rows = [
        f"{tick},2023-02-{1 + tick // 144:02} {tick // 6 % 24:02}:{tick % 6}0:00,z-{zone},1,0.9"
        for tick in range(300)
        for zone in "ab"
    ]
    (tmp_path / "av.csv").write_text("\n".join(["tick,timestamp_local,zone,available,price_usd_per_hour", *rows, ""]))
    return tmp_path


def typed(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def command_for(kind: str) -> list[str]:
    """Return the command that runs ./mine.py:Mine."""
    if kind.startswith("zone"):
        market = [
            "--availability",
            "av.csv",
            "--zone",
            "z-a,z-b",
            "--on-demand",
            "3.06",
            "--job-hours",
            "5",
            "--deadline-hours",
            "8",
        ]
        return ["simulate", "spot", *market, "--starts", "2", "--policy", "./mine.py:Mine"]
    if kind.startswith(("price", "policy")):
        return ["simulate", "spot", "--starts", "2", "--job-hours", "2", "--policy", "./mine.py:Mine"]
    return ["solve", "tiny-0", "--solver", "./mine.py:Mine"]


@pytest.mark.parametrize("kind", ANSWERS)
def test_a_wrong_answer_is_one_line_that_names_the_file(folder, kind):
    code, said = ANSWERS[kind]
    (folder / "mine.py").write_text(code)
    result = typed(*command_for(kind))
    assert (result.exit_code, result.stdout) == (2, "")
    lines = result.stderr.splitlines()
    assert [line.startswith("optim: error: ") for line in lines] == [False] * (len(lines) - 1) + [True]
    assert all(line.startswith("optim: ") for line in lines)  # remarks on the market come first
    assert "mine.py" in lines[-1]
    assert said in lines[-1]


def test_a_solver_that_ends_the_process_is_a_record_of_a_bench_and_an_error_in_python(folder):
    (folder / "mine.py").write_text(ANSWERS["solver, exit"][0])
    with pytest.raises(OptimError, match=r"mine.py:10 in run: SystemExit: 3; a solver must not end the process"):
        optim.solve(optim.reference_instance("tiny-0"), "./mine.py:Mine")
    result = typed("bench", "admission", "--instance", "tiny-0", "--solver", "./mine.py:Mine,fifo")
    assert "fifo" in result.stdout
    assert result.exit_code not in (0, 3)


def test_a_whole_number_of_another_type_is_taken(folder):
    ask = "        n = view.on_demand_room\n        return Request(market=0.0, count=float(n), bid_micro=None) if n else None\n"
    (folder / "mine.py").write_text(f"{PRICES}    def decide(self, view):\n{ask}")
    floats = typed(*command_for("price"), "--format", "json")
    (folder / "mine.py").write_text(
        f"{PRICES}    def decide(self, view):\n{ask.replace('0.0', '0').replace('float', '')}"
    )
    assert floats.exit_code == 0, floats.stderr
    assert floats.stdout == typed(*command_for("price"), "--format", "json").stdout
