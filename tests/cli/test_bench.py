"""`optim bench` as a command: its output, its files, and its exit codes."""

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

import optim
from optim.benchmarks.suite import SUITES
from optim.cli.bench import print_scoreboard
from optim.cli.main import app
from tests.support.random_records import SOLVERS, random_records

TINY = ["bench", "admission", "--instance", "tiny-0,tiny-1", "--instance", "tiny-2.json.gz"]


@pytest.fixture(autouse=True)
def folder(dummies, tmp_path, monkeypatch):
    """Register the dummy solvers, work in an empty folder, and draw no plots: tests of the report do that."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("optim.benchmarks.report.standard_figures", lambda records: [])
    return tmp_path


def bench(*arguments):
    return CliRunner().invoke(app, [*TINY, *arguments])


def rows_of(result):
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_prints_one_json_object_a_line_and_nothing_else():
    result = bench("--solver", "idle,tiny-only", "--format", "json")
    assert result.exit_code == 0
    rows = rows_of(result)
    assert [(row["instance"], row["solver"]) for row in rows] == [
        (f"tiny-{number}", solver) for number in range(3) for solver in ("idle", "tiny-only")
    ]
    for row in rows:
        assert row["suite"] == "admission"
        assert row["seed"] == 0
        assert row["verified"] is True
        assert row["gap"] == pytest.approx(row["bound"] / 1e-9)
        assert set(row["seconds"]) >= {"build", "compile", "solve", "verify"}
        assert row["decision_ms"]["median"] <= row["decision_ms"]["p99"]
        assert 0 <= row["load"]["tight_rows"] <= 1


def test_leaves_records_and_report_in_the_results_folder(folder):
    result = bench("--solver", "idle")
    assert result.exit_code == 0
    assert sorted(path.name for path in (folder / "results").iterdir()) == ["bench.html", "bench.jsonl"]
    assert "3 records in results/bench.jsonl, report in results/bench.html" in result.stderr


def test_writes_where_it_is_told_to(folder):
    result = bench("--solver", "idle", "--results", "a/r.jsonl", "--report", "b/page.html")
    assert result.exit_code == 0
    assert sorted(str(path.relative_to(folder)) for path in folder.rglob("*.*")) == [
        "a/r.jsonl",
        "b/page.html",
    ]


def test_prints_a_table_with_the_seed_and_every_solver():
    result = bench("--solver", "idle,crash", "--seed", "3")
    assert "(seed 3)" in result.stdout
    for shown in (
        "tiny-0",
        "idle",
        "crash",
        "completed",
        "error",
        "failed: crash on tiny-0, crash on tiny-1, crash on tiny-2: RuntimeError",
    ):
        assert shown in result.stdout


def test_gives_the_same_records_again_without_solving():
    first = rows_of(bench("--solver", "idle", "--format", "json"))
    assert rows_of(bench("--solver", "idle", "--format", "json")) == first
    again = rows_of(bench("--solver", "idle", "--format", "json", "--no-resume"))
    assert [row["key"] for row in again] == [row["key"] for row in first]
    assert again != first


@pytest.mark.parametrize(
    ("solvers", "code"),
    [("idle", 0), ("idle,crash", 1), ("idle,nothing", 1), ("idle,crash,liar", 3)],
)
def test_exit_code_is_the_gravest_of_what_happened(solvers, code):
    assert bench("--solver", solvers).exit_code == code


def test_tells_why_a_solver_was_left_out():
    result = CliRunner().invoke(app, ["bench", "admission", "--instance", "small-0", "--solver", "tiny-only,idle"])
    assert result.exit_code == 0
    assert "skipped: tiny-only on small-0: more than 6 jobs" in result.stdout


def test_fails_if_nothing_at_all_could_be_run():
    result = CliRunner().invoke(app, ["bench", "admission", "--instance", "small-0", "--solver", "tiny-only"])
    assert result.exit_code == 1


def test_draws_an_instance_of_the_sizes_given_for_each_seed():
    sizes = ["--jobs", "8", "--slots", "6", "--worker-servers", "2", "--ps-servers", "2", "--seed", "1,2"]
    result = CliRunner().invoke(app, ["bench", "admission", *sizes, "--solver", "idle", "--format", "json"])
    assert result.exit_code == 0
    rows = rows_of(result)
    assert [row["seed"] for row in rows] == [1, 2]
    assert rows[0]["instance_digest"] != rows[1]["instance_digest"]
    assert rows[0]["parameters"]["jobs"] == 8


def test_samples_a_trace_and_says_what_was_taken(folder):
    rows = [f"{i},{60 * i},{1 + i % 2},{1800 + 60 * i}," for i in range(40)]
    (folder / "jobs.csv").write_text("\n".join(["job_id,submit_s,num_gpus,duration_s,vc", *rows, ""]))
    trace = ["--trace", "jobs.csv", "--trace-format", "philly", "--jobs", "20", "--slots", "24"]
    more = ["--slot-minutes", "15", "--instance-option", "workers_per_ps=2"]
    result = CliRunner().invoke(app, ["bench", "admission", *trace, *more, "--solver", "idle", "--format", "json"])
    assert result.exit_code == 0
    (row,) = rows_of(result)
    assert (row["parameters"]["jobs"], row["parameters"]["slots"]) == (20, 24)
    assert row["parameters"]["slot_s"] == 900
    assert "20 sampled" in result.stderr


def test_options_and_time_limit_reach_the_solver():
    row = rows_of(bench("--solver", "idle", "--option", "number=5", "--time-limit", "9", "--format", "json"))[0]
    assert row["options"]["number"] == 5
    assert row["time_limit_s"] == 9.0


def test_comparing_with_its_own_golden_results_passes():
    assert bench("--solver", "idle", "--write-golden", "golden.jsonl").exit_code == 0
    result = bench("--solver", "idle", "--compare", "golden.jsonl", "--no-resume")
    assert result.exit_code == 0
    assert "compared: 3 same" in result.stderr


def test_a_regression_is_named_and_exits_with_4(folder):
    bench("--solver", "idle", "--write-golden", "golden.jsonl")
    lines = (folder / "golden.jsonl").read_text().splitlines()
    worse = json.loads(lines[1])
    worse["objective"] = 1.0
    (folder / "golden.jsonl").write_text("\n".join([lines[0], json.dumps(worse), lines[2], ""]))
    result = bench("--solver", "idle", "--compare", "golden.jsonl")
    assert result.exit_code == 4
    assert "tiny-1, idle, seed 0: worse: objective 0, was 1" in result.stderr


def test_a_missing_row_is_named_and_exits_with_4(folder):
    dummy = ["bench", "dummy", "--solver", "idle"]
    CliRunner().invoke(app, [*dummy, "--write-golden", "golden.jsonl"])
    lines = (folder / "golden.jsonl").read_text().splitlines()
    vanished = json.loads(lines[0]) | {"instance": "vanished"}
    (folder / "golden.jsonl").write_text("\n".join([*lines, json.dumps(vanished), ""]))
    result = CliRunner().invoke(app, [*dummy, "--compare", "golden.jsonl"])
    assert result.exit_code == 4
    assert "dummy: vanished, idle, seed 0, number 0: missing" in result.stderr


def test_a_row_that_was_not_asked_for_is_not_missing():
    bench("--solver", "idle,tiny-only", "--write-golden", "golden.jsonl")
    for asked, told in ((["--solver", "idle"], "1 same"), (["--solver", "idle", "--seed", "1"], "no rows")):
        command = ["bench", "admission", "--instance", "tiny-0", *asked, "--compare", "golden.jsonl"]
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 0
        assert f"compared: {told}" in result.stderr


def test_refuses_to_share_a_results_file_with_another_run(folder):
    from optim.benchmarks.records import open_results

    with open_results(folder / "results" / "bench.jsonl"):
        result = bench("--solver", "idle")
    assert result.exit_code == 2
    assert "in use by another run" in result.stderr


def test_joins_results_of_several_runs(folder):
    bench("--solver", "idle", "--results", "a.jsonl", "--no-report")
    bench("--solver", "tiny-only", "--results", "b.jsonl", "--no-report")
    result = CliRunner().invoke(
        app, ["bench", "--merge", "a.jsonl", "b.jsonl", "--results", "all.jsonl", "--no-report"]
    )
    assert result.exit_code == 0
    assert "6 records of 2 files in all.jsonl" in result.stderr
    assert len((folder / "all.jsonl").read_text().splitlines()) == 6


def test_two_values_of_an_option_are_compared_by_joining_two_runs(folder, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    once = bench("--solver", "online", "--option", "price=linear", "--option", "price=exponential")
    assert once.exit_code == 2
    assert "each with its own --results FILE, then join the files with --merge" in once.stderr
    for price in ("zero-start", "exponential"):
        done = bench("--solver", "online", "--option", f"price={price}", "--results", f"{price}.jsonl", "--no-report")
        assert done.exit_code == 0
        assert "price=" not in done.stdout
    files = ("zero-start.jsonl", "exponential.jsonl", "--results", "all.jsonl", "--no-report")
    joined = CliRunner().invoke(app, ["bench", "--merge", *files])
    assert joined.stdout.count("online (price=zero-start)* ") == 3
    assert joined.stdout.count("online (price=exponential)* ") == 3
    assert "online (price=exponential)*: bounds=oracle" in joined.stdout
    rows = [json.loads(line)["solver"] for line in (folder / "all.jsonl").read_text().splitlines()]
    assert rows == ["online"] * 6
    monkeypatch.setattr("optim.cli.bench.MAX_ROWS", 0)
    board = CliRunner().invoke(app, ["bench", "--merge", *files]).stdout
    assert board.count("online (price=zero-start)*") >= 1
    assert board.count("online (price=exponential)*") >= 1


def test_joining_makes_the_folders_of_what_it_writes(folder):
    bench("--solver", "idle", "--results", "a.jsonl", "--no-report")
    command = ["bench", "--merge", "a.jsonl", "--results", "new/all.jsonl", "--out", "other"]
    assert CliRunner().invoke(app, command).exit_code == 0
    assert (folder / "new" / "all.jsonl").is_file()
    assert (folder / "other" / "bench.html").is_file()


@pytest.fixture
def apart():
    """Results of two runs, of three records each."""
    for name, solver in (("a.jsonl", "idle"), ("b.jsonl", "tiny-only")):
        bench("--solver", solver, "--results", name, "--no-report")


def merge(*words):
    return CliRunner().invoke(app, ["bench", "--merge", "a.jsonl", *words, "--results", "all.jsonl", "--no-report"])


def test_joined_results_are_compared_with_a_solver_by_pairs(apart):
    result = merge("b.jsonl", "--compare", "idle")
    assert result.exit_code == 0
    assert "compared with idle" in result.stdout
    assert any(line.split()[:2] == ["tiny-only", "3"] for line in result.stdout.splitlines())


def test_joined_results_are_printed_stored_and_compared(folder, apart):
    stored = merge("b.jsonl", "--write-golden", "new/golden.jsonl", "--format", "json")
    assert stored.exit_code == 0
    assert [row["solver"] for row in rows_of(stored)] == ["idle"] * 3 + ["tiny-only"] * 3
    same = merge("b.jsonl", "--compare", "new/golden.jsonl")
    assert same.exit_code == 0
    assert "compared: 6 same" in same.stderr
    assert same.stdout.count("tiny-only") == 3


def test_a_regression_of_joined_results_exits_with_4(folder, apart):
    merge("b.jsonl", "--write-golden", "golden.jsonl")
    lines = (folder / "golden.jsonl").read_text().splitlines()
    worse = json.loads(lines[0]) | {"objective": 1.0}
    (folder / "golden.jsonl").write_text("\n".join([json.dumps(worse), *lines[1:], ""]))
    result = merge("b.jsonl", "--compare", "golden.jsonl")
    assert result.exit_code == 4
    assert "tiny-0, idle, seed 0: worse: objective 0, was 1" in result.stderr


def test_a_machine_whose_results_were_not_joined_is_missed(folder, apart):
    merge("b.jsonl", "--write-golden", "golden.jsonl")
    (folder / "all.jsonl").unlink()
    result = merge("--compare", "golden.jsonl")
    assert result.exit_code == 4
    assert "tiny-0, tiny-only, seed 0: missing: it was not run" in result.stderr
    assert merge("--compare", "nowhere.jsonl").exit_code == 2


@pytest.mark.parametrize(
    "words",
    [("--solver", "idle"), ("--suite", "admission"), ("--size", "full"), ("--jobs", "3"), ("--profile", "published"),
     ("--trace", "x.csv"), ("--instance-option", "x=1"), ("--processes", "2"), ("--no-resume",), ("--histories", "0")],
)  # fmt: skip
def test_joining_runs_nothing_and_refuses_what_says_how(apart, words):
    result = merge("b.jsonl", *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--merge runs no solvers" in result.stderr


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (("--no-report", "--report", "page.html"), "exclude each other; give one"),
        (("--size", "full"), "--size applies only to built-in instances"),
        (("--histories", "2"), "add --solver online-learned"),
        (("--histories", "2", "--history", "x.json", "--solver", "online-learned"), "exclude each other; give one"),
    ],
)
def test_options_that_would_change_nothing_are_refused(folder, words, cause):
    result = bench("--solver", "idle", *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert cause in result.stderr
    assert list(folder.iterdir()) == []


def test_earlier_days_are_of_the_suite_that_learns_from_them():
    result = CliRunner().invoke(app, ["bench", "dummy", "--solver", "idle", "--histories", "2"])
    assert result.exit_code == 2
    assert "--histories applies only to the suite 'admission'" in result.stderr


def test_a_single_suite_with_many_records_becomes_one_row_per_solver(capsys):
    records = random_records()
    print_scoreboard([SUITES.get("admission")], records, [])
    printed = capsys.readouterr().out
    rows = {cells[0]: cells[1:] for line in printed.splitlines() if (cells := line.split()) and cells[0] in SOLVERS}
    assert sorted(rows) == sorted(SOLVERS)
    for name, cells in rows.items():
        mine = [record for record in records if record.solver == name]
        assert cells[:2] == [str(len(mine)), str(sum(record.verified for record in mine))]
        gaps = [max(record.gap, 0.0) for record in mine if record.gap is not None and record.verified]
        assert cells[4] == "-" if not gaps else float(cells[4]) == pytest.approx(100 * max(gaps), rel=1e-3)
    assert "refused: search on instance-2: (4) capacity: 1 < 2" in printed
    assert "--rows prints all 24 rows" in printed


def test_several_suites_become_one_row_each_with_the_solver_of_the_smallest_gap(capsys):
    one, two = random_records(), random_records(1, suite="bidding", problem="bidding")
    solved = [replace(record, gap=0.0 if record.solver == "online" else 0.5) for record in one]
    print_scoreboard([SUITES.get("admission"), SUITES.get("bidding")], [*solved, *two], [])
    printed = capsys.readouterr().out.splitlines()
    (row,) = [line.split() for line in printed if line.split()[:1] == ["admission"]]
    assert row[1:5] == ["6", "4", "24", str(sum(record.verified for record in one))]
    assert row[5:7] == ["online", "0"]
    assert sum(line.split()[:1] == ["bidding"] for line in printed) == 1


def test_a_scoreboard_of_all_suites_with_many_failures_has_at_most_60_lines(capsys):
    specs = list(SUITES)
    records = [replace(one, suite=spec.name) for spec in specs for one in random_records()]
    failing = [replace(one, error=f"RuntimeError: {n}", verified=False) for n, one in enumerate(records)]
    print_scoreboard(specs, failing, [])
    printed = capsys.readouterr().out
    assert len(printed.splitlines()) <= 60
    assert "more such lines" in printed


def test_rows_prints_every_row_of_many():
    many = ("--solver", "idle", "--seed", ",".join(str(seed) for seed in range(11)))
    board = bench(*many)
    assert "--rows prints all 33 rows" in board.stdout
    assert board.stdout.count("tiny-1") == 0
    assert bench(*many, "--rows").stdout.count(" tiny-1 ") == 11


def test_compares_with_a_solver_of_the_run():
    result = bench("--solver", "idle,tiny-only", "--compare", "idle")
    assert result.exit_code == 0
    assert "admission: compared with idle, in percentage points of the bound" in result.stdout
    (row,) = [line.split() for line in result.stdout.splitlines() if line.split()[:1] == ["tiny-only"] and "3" in line][
        -1:
    ]
    assert row[:5] == ["tiny-only", "3", "0", "3", "0"]


@pytest.mark.parametrize(("bounds", "is_marked"), [("oracle", True), ("seen", False)])
def test_a_rule_that_is_told_something_of_the_future_is_marked_in_the_table(folder, bounds, is_marked):
    arguments = ["--instance", "tiny-0", "--solver", "online", "--option", f"online.bounds={bounds}"]
    result = CliRunner().invoke(app, ["bench", "admission", *arguments], env={"COLUMNS": "220"})
    assert result.exit_code == 0
    assert (" online* " in result.stdout) == is_marked
    assert (
        "online*: bounds=oracle: U and the lower scale come from jobs that arrive later" in result.stdout
    ) == is_marked
    assert ("come from jobs that arrive later" in (folder / "results" / "bench.html").read_text()) == is_marked


PLAIN = """
from optim.core.driver import AbstractSolver, Outcome
from optim.solvers.admission.fifo import FifoOptions
from optim.solvers.solve import solve


class Plain(AbstractSolver):
    summary, options_type = "fifo's plan, without a bound", FifoOptions

    def run(self, instance, options, monitor, seed):
        found = solve(instance, "fifo")
        return Outcome(decision=found.decision, objective=found.objective)
"""


def test_a_solver_without_bounds_is_held_against_the_best_that_a_run_or_its_results_file_knows(folder, registry):
    """The results file stores the bound of `fifo`, and a later run without `fifo` uses it; without the file there is no bound."""
    optim.save(replace(optim.reference_instance("tiny-1"), name="mine"), "mine.json.gz")
    (folder / "plain.py").write_text(PLAIN)
    words = ["bench", "admission", "--instance", "mine.json.gz", "--no-report", "--solver"]
    both = CliRunner().invoke(app, [*words, "./plain.py:Plain,fifo"], env={"COLUMNS": "300"})
    assert both.exit_code == 0, both.output
    bound = optim.solve(optim.load("mine.json.gz"), "fifo")
    ratio = f"{bound.objective / bound.bound:.4f}".rstrip("0")
    lines = [line.split() for line in both.stdout.splitlines()]
    heads = next(line for line in both.stdout.splitlines() if "ratio to best known" in line)
    assert "min over ties" not in heads
    (own,) = [line for line in lines if "./plain.py:Plain" in line[:3]]
    (base,) = [line for line in lines if line[:2] == ["mine", "fifo"]]
    assert own[6:8] == ["1", ratio]
    assert base[6:8] == ["1", ratio]
    assert (
        f"mine: best known objective {bound.objective:.6g} by ./plain.py:Plain, tightest bound {bound.bound:.6g} by fifo"
        in both.stdout
    )
    later = CliRunner().invoke(app, [*words, "./plain.py:Plain"], env={"COLUMNS": "300"})
    assert f"tightest bound {bound.bound:.6g} by fifo" in later.stdout
    fresh = CliRunner().invoke(app, [*words, "./plain.py:Plain", "--results", "new.jsonl"], env={"COLUMNS": "300"})
    assert "tightest bound" not in fresh.stdout


def test_a_solver_to_compare_with_is_run_where_it_was_not_chosen(folder, registry):
    (folder / "plain.py").write_text(PLAIN)
    words = ["bench", "admission", "--instance", "tiny-1", "--no-report", "--solver", "./plain.py:Plain"]
    result = CliRunner().invoke(app, [*words, "--compare", "fifo"], env={"COLUMNS": "300"})
    assert result.exit_code == 0, result.output
    assert "also running fifo, the baseline of --compare" in result.stderr
    assert "compared with fifo, in percentage points of the bound" in result.stdout
    chosen = CliRunner().invoke(
        app, [*words[:-1], "./plain.py:Plain,fifo", "--compare", "fifo"], env={"COLUMNS": "300"}
    )
    assert "also running" not in chosen.stderr
    assert chosen.stdout == result.stdout
    absent = CliRunner().invoke(app, [*words, "--compare", "nobody"])
    assert "nobody: no such file, and no shipped golden results of that name" in absent.stderr


def test_options_of_a_solver_from_a_file_go_by_its_class_too(folder, registry):
    (folder / "plain.py").write_text(PLAIN)
    words = [
        "bench",
        "admission",
        "--instance",
        "tiny-1",
        "--no-report",
        "--format",
        "json",
        "--solver",
        "./plain.py:Plain",
    ]
    for owner in ("", "./plain.py:Plain.", "Plain."):
        (row,) = rows_of(CliRunner().invoke(app, [*words, "--option", f"{owner}max_workers=5"]))
        assert row["options"]["max_workers"] == 5
    wrong = CliRunner().invoke(app, [*words, "--option", "plain.max_workers=5"])
    assert "is not chosen; add --solver plain; for the chosen solver, use ./plain.py:Plain.max_workers" in wrong.stderr
