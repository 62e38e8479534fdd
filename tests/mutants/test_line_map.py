"""Which test files run which lines."""

import ast
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.mutants.line_map import (
    LineMap,
    Traced,
    compiled_lines,
    digest,
    read,
    sources_of,
    statement_lines,
    written,
)

MODULE = "optim/plan.py"
SOURCE = """
def plan(a):
    if (a and
            a > 2):
        return add(
            a,
            2)
    try:
        return a
    except ValueError:
        return [x
                for x in a]

@compiled(parallel=True)
def loop(a):
    return a

def by(a):
    @cache.inner
    def within(b):
        return b
    return within
"""


@given(st.sets(st.integers(1, 300)))
def test_numbers_of_lines_survive_being_written_as_ranges(lines):
    assert read(written(lines)) == lines


def test_ranges_are_short():
    assert written({9, 3, 4, 5, 7}) == "3-5 7 9"


@pytest.mark.parametrize(
    ("line", "lines"),
    [(4, {3, 4}), (5, {5, 6, 7}), (7, {5, 6, 7}), (9, {9}), (8, {8}), (12, {11, 12}), (10, {10}), (2, {2})],
)
def test_a_statement_has_its_lines_but_not_those_of_statements_within(line, lines):
    assert statement_lines(ast.parse(SOURCE), line) == lines


def test_loops_that_are_compiled_are_told_by_their_decorators():
    assert compiled_lines(ast.parse(SOURCE)) == {*range(14, 17), *range(19, 22)}


@pytest.fixture
def tree(tmp_path):
    """A working tree with a module and four test files, of which the last two share a helper."""
    for name, text in {
        MODULE: SOURCE,
        "tests/test_first.py": "1",
        "tests/test_second.py": "2",
        "tests/test_third.py": "from tests.support import helper\n3",
        "tests/deep/test_fourth.py": "import tests.support.helper\n4",
        "tests/support/helper.py": "helper = 1",
        "tests/conftest.py": "",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


TESTS = ["tests/test_first.py", "tests/test_second.py", "tests/test_third.py", "tests/deep/test_fourth.py"]


@pytest.fixture
def line_map(tree):
    """Of the second and the fourth it is known that they run the first return, the third starts other processes."""
    lines = [{9}, {3, 5}, set(), {2, 3, 6}]
    seconds = [0.5, 4.0, 3.0, 2.0]
    traced = {
        name: Traced(digest(*sources_of(tree, name)), cost, index != 2, {MODULE: held} if held else {})
        for index, (name, cost, held) in enumerate(zip(TESTS, seconds, lines, strict=True))
    }
    LineMap({MODULE: digest(tree / MODULE)}, {MODULE: {2, 8, 9}}, traced).write(tree / "held" / "map.json")
    return tree / "held" / "map.json"


def pick(line_map, tree, line):
    return LineMap.load(line_map, tree).noticing(tree, MODULE, line).pick(TESTS)


def test_a_fault_meets_the_tests_that_run_its_line_and_those_that_nobody_could_watch(tree, line_map):
    _, second, third, fourth = TESTS
    assert pick(line_map, tree, 7) == [fourth, third, second]


@pytest.mark.parametrize("line", [16, 11, 9])
def test_all_tests_meet_a_fault_in_a_loop_in_what_no_test_was_seen_to_run_and_in_what_importing_runs(
    tree, line_map, line
):
    assert pick(line_map, tree, line) == TESTS


def test_all_tests_meet_a_fault_in_a_module_that_has_changed(tree, line_map):
    (tree / MODULE).write_text(SOURCE + "\n")
    assert pick(line_map, tree, 7) == TESTS


def test_a_test_file_that_has_changed_meets_every_fault(tree, line_map):
    (tree / TESTS[0]).write_text("new")
    assert pick(line_map, tree, 7) == [TESTS[0], TESTS[3], TESTS[2], TESTS[1]]


def test_a_test_file_changes_with_its_helpers(tree, line_map):
    (tree / "tests" / "support" / "helper.py").write_text("helper = 2")
    assert set(LineMap.load(line_map, tree).tests) == set(TESTS[:2])


def test_a_test_file_changes_with_the_fixtures_of_its_folder_but_not_with_the_settings_of_all(tree, line_map):
    (tree / "tests" / "conftest.py").write_text("pass")
    assert set(LineMap.load(line_map, tree).tests) == set(TESTS)
    (tree / "tests" / "deep" / "conftest.py").write_text("pass")
    assert set(LineMap.load(line_map, tree).tests) == set(TESTS[:3])


def test_without_a_map_all_tests_meet_every_fault(tree):
    assert pick(tree / "none.json", tree, 7) == TESTS


def test_a_map_is_read_as_it_was_written(tree, line_map):
    once = LineMap.load(line_map, tree)
    assert set(once.tests) == set(TESTS)
    once.write(line_map)
    assert LineMap.load(line_map, tree) == once
    assert json.loads(line_map.read_text())["tests"][TESTS[1]]["lines"] == {MODULE: "3 5"}
