"""Faults planted in a module's text."""

import ast
from collections import Counter
from pathlib import Path

import pytest

from tests.mutants.campaign import draw, equivalents, place_of
from tests.mutants.faults import faults_of
from tests.mutants.findings import room_of
from tests.mutants.lane import ROOT
from tests.mutants.nearness import Nearness

SOURCE = '''
"""Ünicode before the place."""
LIMIT = 3

def plan(a, b, most=5):
    """Return 1 + 1."""
    if not a < b and most >= LIMIT:
        raise ValueError(f"{a + b} is too much", 7)
    for i in range(2, b):
        a.rows[i] = a.rows[:b] - 1.5e-9
        a.add(b, i)
    total: int = 4
    total += b  # größer
    return max(a, total), any(a), True, "text" + "text"
'''


def planted():
    return {(fault.kind, fault.old, fault.new) for fault in faults_of("optim/plan.py", SOURCE.encode())}


@pytest.mark.parametrize(
    "fault",
    [
        ("comparison", "a < b", "(a <= b)"),
        ("comparison", "most >= LIMIT", "(most > LIMIT)"),
        ("dropped not", "not a < b", "(a < b)"),
        ("operator", "not a < b and most >= LIMIT", "(not a < b or most >= LIMIT)"),
        ("dropped term", "a.rows[:b] - 1.5e-9", "(a.rows[:b])"),
        ("operator", "a.rows[:b] - 1.5e-9", "(a.rows[:b] + 1.5e-09)"),
        ("off by one", "range(2, b)", "range(2, b - 1)"),
        ("off by one", ":b", ":b + 1"),
        ("constant", "2", "3"),
        ("constant", "4", "5"),
        ("constant", "True", "False"),
        ("swapped arguments", "a.add(b, i)", "a.add(i, b)"),
        ("dropped statement", "a.add(b, i)", "pass"),
        ("dropped statement", "a.rows[i] = a.rows[:b] - 1.5e-9", "pass"),
        ("operator", "total += b", "total -= b"),
        ("operator", "max(a, total)", "min(a, total)"),
        ("operator", "any(a)", "all(a)"),
    ],
)
def test_plants(fault):
    assert fault in planted()


def test_leaves_alone_whether_lengths_are_asserted_to_agree():
    source = b"def pairs(a, b, c):\n    return zip(a, b, strict=True), c.sort(reverse=True)\n"
    assert [fault.new for fault in faults_of("optim/pairs.py", source) if fault.kind == "constant"] == ["False"]


def test_leaves_texts_errors_defaults_tolerances_and_constants_of_the_module_alone():
    touched = {old for _, old, _ in planted()}
    assert not touched & {"3", "5", "7", "a + b", "1.5e-9", '"text" + "text"', "max(a, total), any(a), True"}
    assert ("swapped arguments", "max(a, total)", "max(total, a)") not in planted()


def test_changes_the_place_it_names_and_nothing_else():
    for fault in faults_of("optim/plan.py", SOURCE.encode()):
        text = fault.planted(SOURCE.encode()).decode()
        ast.parse(text)
        changed = [i for i, (x, y) in enumerate(zip(SOURCE.splitlines(), text.splitlines(), strict=True), 1) if x != y]
        assert changed == [fault.line], fault


def test_draws_the_same_faults_from_a_seed_in_proportion_to_the_code(tmp_path):
    for name in ("auction/plan.py", "bidding/plan.py", "bidding/tree/plan.py"):
        path = tmp_path / "optim" / "models" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(SOURCE)
    drawn = draw(tmp_path, "models/b", 12, 3)
    assert drawn == draw(tmp_path, "models/b", 12, 3) != draw(tmp_path, "models/b", 12, 4)
    assert len(set(drawn)) == 12
    assert {room_of(fault.path) for fault in drawn} == {"models/bidding"}
    rooms = Counter(room_of(fault.path) for fault in draw(tmp_path, "models", 12, 3))
    assert rooms == {"models/auction": 4, "models/bidding": 8}


@pytest.mark.prove
def test_a_module_meets_its_own_tests_first_and_every_test_in_the_end():
    nearness = Nearness(ROOT)
    own, beside, near, rest = nearness.stages("optim/models/bidding/market/evictions.py")
    assert own == ["tests/models/bidding/test_eviction.py"]
    assert {Path(name).parent for name in beside} == {Path("tests/models/bidding")}
    assert sorted([*own, *beside, *near, *rest]) == nearness.tests


def test_each_equivalent_fault_can_still_be_planted_and_has_a_reason():
    for (name, line), reason in equivalents().items():
        path = name.split(": ")[0]
        assert (ROOT / path).exists(), f"{name}: the module is gone; drop the entry"
        places = {place_of(fault) for fault in faults_of(path, (ROOT / path).read_bytes())}
        assert (name, line) in places, f"{name}: no line reads {line!r}; drop the entry"
        assert len(reason.split()) >= 4, f"{name}: say why nothing changes"
