"""Every field of a solution file is recomputed or rejected: one field is changed at a time, and no false claim passes.

Fields that describe how a solution came about, and prove nothing, are listed with the reason why they are free. If a
changed file claims the same, or a weaker true statement, the test shows it: the claims recomputed from the changed file
are no stronger.
"""

import copy
import json
import re
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest

import optim
from optim.core.errors import InvalidProblemError
from optim.core.solution import Termination
from optim.models.files import read_solution, write_solution

FREE = {
    "solver": "who found it: no claim rests on it",
    "seed": "needed to run it again",
    "options": "needed to run it again",
    "versions": "needed to run it again",
    "message": "a remark for readers: its content is in other fields",
    "stats/seconds": "cost of the solve",
    "stats/iterations": "cost of the solve",
    "stats/memory_mb": "cost of the solve",
    "stats/decision_ms": "cost of the solve",
    "termination": "reason for the end, stated by the writer, unless the file contradicts it",
}
"""Fields that may be anything, with the reason."""

OWN_COUNTERS = {
    "master", "lp_gap", "columns", "moves", "open", "rounds", "schedules", "cuts", "unsplittable",
    "running_dual", "largest_step_ratio", "ratios", "leaves", "rows", "by_count", "by_tree", "unplaced",
}  # fmt: skip
"""Counters of a solver's work."""

WHOLE = OWN_COUNTERS - {"master", "lp_gap", "running_dual", "largest_step_ratio"}

CUT_SHORT = {Termination.COMPLETED, *(end for end in Termination if end.endswith("_limit")), Termination.INTERRUPTED}
"""Ends of a run that proved no optimality; the author of the file states the reason."""

PROOF = ("certificate", "proof")
"""Any numbers of a proof give some bound: a changed proof must still prove the stated bound, or be rejected."""

LIES = (1e-3, -1e-3)


@dataclass(frozen=True)
class Subject:
    """A solution file as plain values, with its instance."""

    instance: Any
    document: dict[str, Any]


SUBJECTS = {
    **dict.fromkeys(("tiny-0", "tiny-1", "tiny-2")),
    "adversary-zero-start-strict-small": ("online", {"strict": True}),
    "auction-tiny-0": ("exact", {}),
    "auction-named-0": ("exact", {}),
    "auction-held-0": ("greedy", {}),
    "spot-vector": ("dinkelbach", {}),
    "spot-tiny-windows": ("dinkelbach", {}),
    "spot-tiny-market": ("greedy", {}),
}
"""Reference instances: the shipped solution, or one by a solver."""

NAMES = [pytest.param(name, marks=pytest.mark.prove if name in ("tiny-1", "tiny-2") else ()) for name in SUBJECTS]
"""The first shipped solution of each problem, in every run."""

LARGE = {"light-0": 60, "medium-0": 14, "small-0": 9, "small-1": 4, "small-2": 6}
"""Shipped solutions whose files take the checker 0.4 to 6 s: how many of their fields are changed, other ones in every run."""


@cache
def subject(name: str) -> Subject:
    """Return the reference solution, or a solver's, as a file has it."""
    instance = optim.reference_instance(name)
    how = SUBJECTS.get(name)
    solution = (
        optim.reference_solution(name) if how is None else optim.solve(instance, solver=how[0], options=how[1], seed=0)
    )
    return Subject(instance, json.loads(write_solution(solution, instance)))


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of every number, text, truth value and null."""
    if isinstance(value, dict):
        return [leaf for key, child in value.items() for leaf in leaves(child, (*path, key))]
    if isinstance(value, list):
        return [leaf for at, child in enumerate(value) for leaf in leaves(child, (*path, at))]
    return [path]


def containers(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of every list that isn't empty."""
    if isinstance(value, dict):
        return [found for key, child in value.items() for found in containers(child, (*path, key))]
    if isinstance(value, list) and value:
        return [path, *(found for at, child in enumerate(value) for found in containers(child, (*path, at)))]
    return []


def why_free(path: tuple[Any, ...]) -> str | None:
    """Return the reason why a field may have any value, None if it may not."""
    words = [str(step) for step in path]
    if words[:2] == ["stats", "counts"] and words[2] in OWN_COUNTERS:
        return "a counter of the solver's work"
    return FREE.get(words[0]) or FREE.get("/".join(words[:2]))


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        value = value[step]
    return value


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """Return a document with another value at a path; objects outside the path are shared."""
    if not path:
        return new
    result = copy.copy(value)
    result[path[0]] = changed(value[path[0]], path[1:], new)
    return result


def lies(value: Any) -> list[Any]:
    """Return other values of the same type, near and far."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, value - 1, 0 if value else 7, 2**62, 1e308, -value or -3]
    if isinstance(value, float):
        return [value * (1 + share) + share * 1e-3 for share in LIES] + [0.0 if value else 1.0, 1e308, -value or -1.0]
    if value is None:
        return [1.0, "text"]
    return [*_texts(value)]


def _texts(text: str) -> list[str]:
    digits = [k for k, letter in enumerate(text) if letter.isdigit()]
    swapped = {"holds": "fails", "fails": "holds", "no ": "every ", "more": "less", "worker": "ps", "floor": "none"}
    found = [text.replace(old, new) for old, new in swapped.items() if old in text]
    found += [text[:k] + str((int(text[k]) + 1) % 10) + text[k + 1 :] for k in (digits[:1] + digits[-1:])]
    return [*found, text + "x", ""]


CLOSED = {
    "sense": ["maximise", "minimise"],
    "primal": ["none", "feasible", "nearly_feasible", "infeasible", "certificate"],
    "dual": ["none", "nearly_feasible", "infeasible", "certificate"],
    "kind": ["feasible_only", "bound", "optimality"],
    "problem": ["admission", "auction", "bidding"],
}
"""Other members of closed choices."""


def is_verified(subject: Subject, document: dict[str, Any]) -> bool:
    """Return whether a file is read and verified; if so, compare objectives and bounds with those of the honest file."""
    try:
        solution = read_solution(json.dumps(document).encode(), subject.instance)
    except InvalidProblemError:
        return False
    if not optim.verify(subject.instance, solution).is_ok:
        return False
    honest = subject.document
    sign = 1 if honest["sense"] == "maximise" else -1
    for objective, bound in ((solution.objective, honest["bound"]), (honest["objective"], solution.bound)):
        if objective is not None and bound is not None:
            assert sign * (bound - objective) >= -1e-8 * abs(objective), (
                "two claims that exclude each other were verified"
            )
    return True


def is_true_anyway(subject: Subject, path: tuple[Any, ...], new: Any) -> bool:
    """Return whether a changed field of the claims states the same, or a weaker true statement, by a separate reading."""
    honest = subject.document
    old = at(honest, path)
    if path == ("certificate", "statement"):
        ratio = re.search(r"more than (\S+) times", new)
        is_ratio_true = ratio is None or float(ratio[1]) * honest["objective"] >= honest["bound"]
        return new == "" or (is_ratio_true and _wording(new) == _wording(old))
    if path[:2] == ("certificate", "conditions"):  # the run's own prices; only their verdict is claimed
        return new[:2] in ("C2", "C3", "C5") and FIGURE.sub("#", new) == FIGURE.sub("#", old)
    if path[:1] == ("bound",):
        return False
    return path[0] == "decision"  # another decision, of which all that is claimed was found to hold


FIGURE = re.compile(r"\d[\d.e+-]*")


def _wording(sentence: str) -> str:
    """Return a sentence without the figures that may be others and still true: a tolerance, a ratio."""
    return re.sub(r"(?<= to )\S+$|(?<=more than )\S+(?= times)", "#", sentence)


def outside_the_proof(document: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [path for path in leaves(document) if path[:2] != PROOF and why_free(path) is None]


def sampled(paths: list[tuple[Any, ...]], number: int, seed: int = 0) -> list[tuple[Any, ...]]:
    rng = np.random.default_rng(seed)
    return [paths[k] for k in rng.permutation(len(paths))[:number]]


def assert_no_lie_passes(name: str, paths: list[tuple[Any, ...]]) -> None:
    honest = subject(name)
    for path in paths:
        value = at(honest.document, path)
        others = CLOSED.get(path[-1], []) if isinstance(path[-1], str) and isinstance(value, str) else []
        for new in [*others, *lies(value)]:
            if new != value and not (path == ("gap",) and isinstance(new, float) and abs(new - value) < 1e-9):
                document = changed(honest.document, path, new)
                is_proof = path[:2] == PROOF
                assert not is_verified(honest, document) or is_proof or is_true_anyway(honest, path, new), (path, new)


@pytest.mark.parametrize("name", NAMES)
def test_the_honest_file_is_accepted(name: str) -> None:
    honest = subject(name)
    solution = read_solution(json.dumps(honest.document).encode(), honest.instance)
    assert optim.verify(honest.instance, solution).is_ok


@pytest.mark.parametrize("name", NAMES)
def test_no_field_outside_the_proof_can_lie(name: str) -> None:
    paths = outside_the_proof(subject(name).document)
    assert_no_lie_passes(name, sampled(paths, 6 if name.startswith("adversary") else 20))


@pytest.mark.parametrize("name", NAMES)
def test_no_counter_can_be_what_it_never_is(name: str) -> None:
    """Counters of solvers: non-negative, and integral where they count."""
    honest = subject(name)
    for counter in honest.document["stats"]["counts"].keys() & OWN_COUNTERS:
        for new in (-1.0, -1e308, *((0.5, 1e308) if counter in WHOLE else ())):
            assert not is_verified(honest, changed(honest.document, ("stats", "counts", counter), new)), (counter, new)


@pytest.mark.parametrize("name", NAMES)
def test_a_termination_can_not_contradict_the_certificate(name: str) -> None:
    honest = subject(name)
    is_optimal = honest.document["termination"] == "optimal"
    for ended in Termination:
        can_be = ended is Termination.OPTIMAL if is_optimal else ended in CUT_SHORT
        document = changed(honest.document, ("termination",), ended.value)
        assert not is_verified(honest, document) or can_be, ended


@pytest.mark.parametrize("name", NAMES)
def test_no_number_of_a_proof_can_lie(name: str) -> None:
    paths = [path for path in leaves(subject(name).document) if path[:2] == PROOF]
    assert_no_lie_passes(name, sampled(paths, 5 if name.startswith("adversary") else 12))


@pytest.mark.prove
@pytest.mark.parametrize("name", SUBJECTS)
def test_no_field_at_all_can_lie(name: str) -> None:
    assert_no_lie_passes(name, [path for path in leaves(subject(name).document) if why_free(path) is None])


@pytest.mark.prove
@pytest.mark.parametrize("name", LARGE)
def test_no_field_of_a_large_file_can_lie(name: str, request: pytest.FixtureRequest) -> None:
    """Half of the fields are drawn from outside the proof, because they are few among hundreds of thousands of numbers."""
    seed = int(request.config.getoption("hypothesis_seed"))
    paths = [path for path in leaves(subject(name).document) if why_free(path) is None]
    others = [path for path in paths if path[:2] != PROOF]
    half = LARGE[name] // 2
    assert_no_lie_passes(name, sampled(others, half, seed) + sampled(paths, LARGE[name] - half, seed))


@pytest.mark.parametrize("name", NAMES)
def test_what_is_listed_twice_is_refused_or_says_the_same(name: str) -> None:
    honest = subject(name)
    paths = [path for path in containers(honest.document) if why_free(path) is None]
    for path in sampled(paths, 10):
        rows = at(honest.document, path)
        for new in ([*rows, rows[0]], rows[1:], rows[::-1]):
            document = changed(honest.document, path, new)
            in_order = path == ("certificate", "conditions") and new == rows
            is_set = path[:2] == PROOF or path[0] == "decision"  # the order of these has no meaning
            assert new == rows or not is_verified(honest, document) or is_set or in_order, (path, rows[0])


@pytest.mark.parametrize("name", ["tiny-0", "auction-tiny-0", "spot-vector"])
def test_a_field_given_twice_is_refused(name: str) -> None:
    honest = subject(name)
    text = json.dumps(honest.document)
    twice = text.replace('"objective":', '"objective": 1.0, "objective":', 1)
    with pytest.raises(InvalidProblemError, match="'objective' is given twice"):
        read_solution(twice.encode(), honest.instance)


@pytest.mark.parametrize("name", NAMES)
def test_free_fields_are_few_and_each_has_a_reason(name: str) -> None:
    free = {path for path in leaves(subject(name).document) if why_free(path) is not None}
    roots = {path[0] for path in free}
    assert roots <= {"solver", "seed", "options", "versions", "message", "stats", "termination"}
    assert not any(path[:2] == ("stats", "counts") and path[2] not in OWN_COUNTERS for path in free)
