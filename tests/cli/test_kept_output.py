"""What commands print for small inputs, and how their words are read, compared with what is kept: whatever the terminal's width."""

import re
from dataclasses import fields
from pathlib import Path

import pytest
from typer.testing import CliRunner

from optim.benchmarks.compare import Selection, compare, strip
from optim.benchmarks.suite import SUITES, Skipped
from optim.cli import bench, parameters
from optim.cli.commands import COMMANDS as COMMANDS_BY_NAME
from optim.cli.commands import instance_names, load, matching, policies, problems, suite_names
from optim.cli.inputs import on_demand_of, split_time
from optim.cli.main import app
from optim.cli.messages import one_line
from optim.cli.output import OutputFormat, print_fields, print_one, print_rows, print_table, show
from optim.cli.run import _print_summary, _shown
from optim.core.registry import describe_options
from optim.core.text import printable
from optim.models.auction.problem import PROBLEM as AUCTION
from optim.models.bidding.problem import PROBLEM as BIDDING
from optim.models.catalogue import problem_names
from optim.profiling.job_profile import ProfileOptions
from optim.simulation.cluster.options import EngineOptions
from optim.simulation.emulation.auction_run import LeaseRow
from optim.simulation.emulation.job_run import PlanOptions
from optim.solvers.solve import solver_named, solver_names
from optim.workloads.admission.generator import GeneratorOptions as Admission
from optim.workloads.admission.traces import TraceOptions
from optim.workloads.auction.generator import GeneratorOptions as Auction
from optim.workloads.bidding.generator import CapacityOptions
from optim.workloads.bidding.generator import GeneratorOptions as Bidding
from optim.workloads.cluster.generator import PhillyOptions
from optim.workloads.cluster.themis_apps import ThemisOptions
from optim.workloads.containers import ContainerOptions
from optim.workloads.prices.price_generator import PriceOptions
from tests.support.admission.seeded import seeded_instance
from tests.support.auction.seeded import seeded_auction
from tests.support.bidding.small_markets import published_vector
from tests.support.kept import assert_kept, outcome, parts
from tests.support.random_records import random_records

KEPT = Path(__file__).parent / "kept"
COMMANDS = """
instance describe tiny-0
instance describe tiny-0 --format json
instance describe auction.json
instance describe bidding.json --format json
instance convert tiny-0
instance convert auction.json --out again.json
instance convert tiny-0 --out tiny.lp
instance generate admission --jobs 3 --slots 4 --worker-servers 2 --ps-servers 1 --seed 2
instance generate auction --apps 3 --gpus 8 --machines 2 --seed 1
instance generate nothing
instance generate admission --jobs x
instance generate admission --jobs 3 --instance-option none=1
instance describe nothing
solvers
solvers admission
solvers --format json
solvers nothing
verify tiny-0 nothing.json
solve tiny-0 --solver online --seed 3 --out s.json --format json
verify tiny-0 s.json
verify tiny-0 s.json --format json
verify auction.json s.json
solve tiny-0 --solver none
solve tiny-0 --solver online --option price=none
solve tiny-0 --solver online --time-limit -1
solve nothing --solver online
bench nothing
bench admission --option none=1
bench admission --instance nothing
simulate cluster --policy none
simulate nothing
simulate packing --policy none
simulate packing --rows x
simulate spot --policy none
""".strip().splitlines()
TIMED = re.compile(r"seconds|_s\b|_ms\b|memory|elapsed|version|python|numpy|took|finished", re.IGNORECASE)
"""Lines that tell of this machine or its clock."""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Work in a folder with an auction and a decision of bidding."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "140")
    (tmp_path / "auction.json").write_bytes(AUCTION.write_instance(seeded_auction(7)))
    (tmp_path / "bidding.json").write_bytes(BIDDING.write_instance(published_vector()))
    return tmp_path


def told(text, folder):
    """Return a text without what depends on machine, clock and width."""
    lines = text.replace(str(folder), "").splitlines()
    return " ".join(" ".join(line.split()) for line in lines if not TIMED.search(line))


def test_what_commands_print(folder):
    found = {}
    for command in COMMANDS:
        result = CliRunner().invoke(app, command.split())
        is_own = not re.match("(solvers|bench|simulate)( nothing| --format json)?$", command)
        found[command] = [
            result.exit_code,
            *((told(result.stdout, folder), told(result.stderr, folder)) if is_own else ()),
        ]
    assert_kept(KEPT / "commands.json", found)


def test_tables_and_fields(capsys):
    def printed(call, *arguments, **options):
        answer = outcome(call, *arguments, **options)
        shown = capsys.readouterr()
        return [answer if isinstance(answer, str) else None, " ".join(shown.out.split()), " ".join(shown.err.split())]

    rows = [
        ("a", 1, 2.5, None, True),
        ("b" * 30, -3, 1e-9, float("nan"), False),
        ("c", 10**7, 123456.789, float("inf"), "x\x1b[31m"),
    ]
    fields = {"a": 1, "b": {"c": 2.5, "d": {"e": None}}, "f": [1, 2], "g": "text", "h": float("nan")}
    records, skipped = (
        random_records(),
        [Skipped(suite="admission", instance=f"i{n}", solver="s", reason="no") for n in range(3)],
    )
    changed = compare(records[::2], [strip(one) for one in records], Selection(suites=("admission",), seeds=(0, 1)))
    found = {
        "table": printed(print_table, ["v", "w", "x", "y", "z"], rows), "rows": [printed(print_rows, ["v", "w"], [one[:2] for one in rows], output) for output in OutputFormat],
        "fields": [printed(print_fields, fields), printed(print_fields, fields, "title")], "one": [printed(print_one, fields, output) for output in OutputFormat],
        "values": [show(value) for value in (None, True, 1, 2.5, 1e-12, 1e12, float("nan"), float("inf"), "x", [1], (1, 2), {"a": 1})],
        "printable": [printable(text) for text in ("x", "\x1b[31m", "a\nb", "é", "\x00")], "line": [one_line("a\n b " * count, most) for count in (1, 50) for most in (20, 100)],
        "bench": printed(bench.print_bench_tables, [SUITES.get("admission")], records, skipped), "differences": printed(bench.tell_differences, changed),
    }  # fmt: skip
    assert_kept(KEPT / "tables.json", found)


def test_what_is_told_of_plans_that_were_run(capsys):
    found = {}
    for problem, instance in (("admission", seeded_instance(0)), ("auction", seeded_auction(7))):
        for done in (True, False):
            rows = []
            for number in range(3):
                realised = 4.0 + 2 * number if done or number else None
                told = {
                    "job": f"j{number}", "application": "a", "planned_slots": 3.0 + number, "realised_slots": realised,
                    "error": realised and realised / (3.0 + number) - 1, "planned_utility": 2.0, "realised_utility": 1.5 * number,
                    "planned_rho": 1.25, "realised_rho": realised and 1.5 + number, "clocks": 7, "changes": 1,
                }  # fmt: skip
                rows.append(LeaseRow(**{one.name: told.get(one.name, number) for one in fields(LeaseRow)}))
            _print_summary(instance, problem, rows, PlanOptions())
            found[f"{problem} {done}"] = [" ".join(capsys.readouterr().err.split()), [_shown(row) for row in rows]]
    assert_kept(KEPT / "runs.json", found)


def test_how_words_are_read(tmp_path):
    read = {
        "list": [outcome(parameters.split_list, given) for given in (None, ["a,b", "c"], ["a,,b"], [" a , b "])],
        "seeds": [outcome(parameters.split_seeds, given) for given in (None, ["0:3"], ["1,5"], ["0:2,7"], ["3:1"], ["x"], ["-1"], ["1", "1"])],
        "number": [outcome(parameters.whole_number, text, "--n") for text in ("3", "-3", "1e3", "x", "", "1" * 40)],
        "options": [outcome(parameters.split_options, given) for given in (None, ["a=1"], ["a=1", "b=x=y"], ["a"], ["=1"], ["a=1", "a=2"])],
        "out": [str(outcome(parameters.check_out, path)).replace(str(tmp_path), "") for path in (None, tmp_path / "x.json", tmp_path / "no" / "x.json", tmp_path)],
        "limit": [outcome(parameters.check_time_limit, given) for given in (None, 1.0, 0.0, -1.0, float("nan"), float("inf"))],
        "problem": [outcome(parameters.split_problem, words, ("admission", "auction")) for words in ((), ("admission",), ("admission", "x"), ("x", "y"))],
        "checked": [outcome(parameters.check_problem, given, "admission", "tiny-0") for given in (None, "admission", "auction")],
        "prices": [outcome(on_demand_of, text) for text in (None, "3.5", "-1", "x", "nothing.csv")],
        "times": [outcome(split_time, text) for text in (None, "2015-03-11T16:54:38Z", "2015-03-11", "x")],
        "names": [len(instance_names()) > 10, problems(), suite_names()[:3], policies("cluster")[:5], matching(lambda: ["abc", "abd", "x"])("ab")],
    }  # fmt: skip
    assert_kept(KEPT / "words.json", read)


def test_every_default_of_every_command_and_of_every_options_class():
    found = {}

    def walk(command, path):
        for one in command.params:
            default = one.default() if callable(one.default) else one.default
            told = [str(default).replace(str(Path.cwd()), ""), one.required, getattr(one, "multiple", None), one.nargs]
            found[f"{path} {one.opts[0]}"] = told
        for name, below in getattr(command, "commands", {}).items():
            walk(below, f"{path} {name}")

    for name in COMMANDS_BY_NAME:
        walk(load(name), name)
    for problem in problem_names():
        for name in solver_names(problem):
            solver = solver_named(problem, name)
            if type(solver).__module__.startswith("optim."):
                found[f"{problem} {name}"] = describe_options(solver)
    for options in (
        Admission,
        Auction,
        Bidding,
        PriceOptions,
        CapacityOptions,
        TraceOptions,
        PhillyOptions,
        ThemisOptions,
        ContainerOptions,
        EngineOptions,
        ProfileOptions,
    ):
        found[f"{options.__module__} {options.__name__}"] = parts(options())
    assert_kept(KEPT / "defaults.json", found)
