"""What the core says of every combination of claims, of values in and out of range, of texts and of rows, compared with what is kept."""

import json
import math
from dataclasses import dataclass
from decimal import Decimal
from itertools import product
from pathlib import Path

import msgspec
import numpy as np

from optim.core.archives import read_arrays, write_arrays
from optim.core.claims import AbstractClaims, Recomputed
from optim.core.documents import Numbering, convert, decode, distinct, encode, encode_line, json_schema, peek_schema
from optim.core.errors import check_choices, check_in, did_you_mean
from optim.core.files import read_bytes, write_bytes
from optim.core.frames import frame_of, rows_of
from optim.core.limits import check_limit, current_limits, read_limits, remedy, working_set
from optim.core.options import OptionText, build_options, options_as_dict, read_options
from optim.core.registry import AbstractProblem
from optim.core.solution import (
    Certificate,
    CertificateKind,
    PointStatus,
    Sense,
    Solution,
    Stats,
    Termination,
    Verification,
    relative_gap,
    violation,
)
from optim.core.stopping import AnyOf, GapLimit, IterationLimit, Never, SolveState, TimeLimit
from optim.core.text import Cell, grid
from optim.core.user_code import format_exception_line, is_file_reference, load_class_from_file
from optim.execution.tasks import in_order
from tests.support.kept import assert_kept, outcome, parts, short, verdict

KEPT = Path(__file__).parent / "kept"


class Toy(AbstractClaims):
    """A problem whose decision is its objective's terms, and whose proof is its bound's terms."""

    problem, sense, decision_type, proof_types = "toy", Sense.MAXIMISE, list, (tuple,)
    sentences = {  # noqa: RUF012 - a test's own
        CertificateKind.FEASIBLE_ONLY: ("it fits",), CertificateKind.BOUND: ("nothing beats {bound} in {leaves} leaves",),
        CertificateKind.OPTIMALITY: ("it attains {bound} to {tol}",),
    }  # fmt: skip
    objective_text, bound_text, optimality_text = "it earns {}", "nothing earns more than {}", "it is the best"

    def check_decision(self, decision):
        return ([violation("row", "bad", where="here", amount="2")] if decision == [0.0] else []), Recomputed.total(
            decision
        )

    def check_proof(self, proof):
        return ([violation("proof", "bad")] if not proof else []), Recomputed.total(proof)

    def why_feasible(self):
        return "nothing is asked for"

    def counts(self):
        return {"terms": float(len(self.solution.decision or ())), "leaves": 3.0}

    def figures(self):
        return {"leaves": 3.0}


class Dear(Toy):
    """The same, minimised; an absolute gap of 1 is no optimum."""

    sense, max_gap = Sense.MINIMISE, 0.5


def claims():
    """Yield every combination of what a solution may claim."""
    statements = (
        "",
        "it fits",
        "nothing beats 10.0 in 3 leaves",
        "nothing beats 10 in 4 leaves",
        "it attains 10.0 to 1e-06",
        "it attains 10.0 to 0.5",
        "no decision is better than 10.0",
        "the decision is feasible; no bound is claimed",
    )
    for kind, decision, proof in product(
        (None, *CertificateKind), (None, [5.0, 4.0], [4.0, 6.0], [0.0], "x"), (None, (6.0, 4.0), (), 3)
    ):
        for ended in (Termination.OPTIMAL, Termination.COMPLETED, Termination.INFEASIBLE, Termination.DUAL_INFEASIBLE):
            yield {"kind": kind, "decision": decision, "proof": proof, "termination": ended}
    for kind, text in product(CertificateKind, statements):
        for bound, objective in (
            (10.0, 9.0),
            (10.0, 10.0),
            (9.9, 9.0),
            (11.0, 9.0),
            (None, None),
            (math.nan, math.inf),
        ):
            yield {"kind": kind, "statement": text, "bound": bound, "objective": objective}
    for primal, dual in product(PointStatus, PointStatus):
        yield {"kind": CertificateKind.BOUND, "primal": primal, "dual": dual}
    for name, value in (
        ("problem", "other"),
        ("instance", "two"),
        ("sense", Sense.MINIMISE),
        ("stats", Stats(counts={"terms": 1.0})),
        ("stats", Stats(counts={"terms": 2.0, "leaves": 3.0, "x": 9.0})),
        ("stated", {"gap": 0.5}),
        ("stated", {"gap": 1 / 9}),
    ):
        yield {"kind": CertificateKind.BOUND, name: value}


def solution(*, kind=CertificateKind.BOUND, statement="", conditions=(), **fields):
    decision, proof = fields.pop("decision", [5.0, 4.0]), fields.pop("proof", (6.0, 4.0))
    known = {
        "problem": "toy", "instance": "one", "solver": "hand", "sense": Sense.MAXIMISE, "termination": Termination.COMPLETED,
        "primal": PointStatus.NONE if decision is None else PointStatus.FEASIBLE, "dual": PointStatus.NONE if proof is None else PointStatus.FEASIBLE,
        "decision": decision, "objective": sum(decision) if isinstance(decision, list) else None,
        "bound": sum(proof) if isinstance(proof, tuple) else None,
        "certificate": None if kind is None else Certificate(kind=kind, statement=statement, proof=proof, conditions=conditions),
    }  # fmt: skip
    return Solution(**known | fields)


def test_every_combination_of_claims():
    found = {"toy": [], "dear": []}
    for given in claims():
        for name, kind in (("toy", Toy), ("dear", Dear)):
            said = outcome(lambda one=given, of=kind: verdict(of("one", solution(**one)).check()))
            found[name].append([str(sorted(given)), said])
    found["conditions"] = verdict(Toy("one", solution(conditions=("C1 holds",))).check())
    rows = [violation("a", "b", amount=str(k)) for k in range(5)]
    found["raised"] = [
        outcome(lambda n=n: bool(Verification(violations=tuple(rows[:n])).raise_unless_ok())) for n in range(6)
    ]
    assert_kept(KEPT / "claims.json", {name: [short(one) for one in said] for name, said in found.items()})


def test_solutions_and_stopping():
    gaps = [
        relative_gap(objective, bound, sense)
        for objective in (None, 0.0, 2.0, -4.0)
        for bound in (None, 0.0, 3.0, -5.0)
        for sense in Sense
    ]
    shown = [solution(), solution(decision=None), solution(proof=None, bound=None)]
    states = [
        SolveState(elapsed_s=time, iterations=count, objective=objective, bound=bound)
        for time in (0.0, 1.0, 2.5)
        for count in (0, 3, 4)
        for objective, bound in ((None, None), (9.0, 10.0), (10.0, 10.0))
    ]
    rules = {
        "never": Never(),
        "time": TimeLimit(1.0),
        "count": IterationLimit(3),
        "gap": GapLimit(0.1),
        "any": AnyOf(IterationLimit(4), TimeLimit(2.0)),
    }
    found = {
        "gaps": gaps, "solutions": [[parts(one), one.gap, one._repr_html_() if hasattr(one, "_repr_html_") else "", outcome(lambda one=one: one.raise_unless_optimal().solver), outcome(one.to_frame)] for one in shown],
        "rules": {name: [rule(state) for state in states] for name, rule in rules.items()}, "left": {name: [rule.remaining_s(time) for time in (0.0, 1.5, 9.0)] for name, rule in rules.items()},
        "wrong": [outcome(kind, value) for kind in (TimeLimit, IterationLimit, GapLimit) for value in (-1, 0, math.nan, math.inf, 3)],
    }  # fmt: skip
    assert_kept(KEPT / "solutions.json", found)


class Document(msgspec.Struct, forbid_unknown_fields=True):
    """A document of all kinds of fields."""

    schema: str
    number: Decimal
    rows: list[tuple[int, float]] = []
    more: dict[str, bool] = {}


@dataclass(frozen=True)
class Options:
    """Options of all kinds."""

    count: int = 3
    share: float = 0.5
    name: str = "a"
    flag: bool = False
    pair: tuple[int, int] = (1, 2)
    maybe: float | None = None

    def __post_init__(self) -> None:
        check_in("[0, 10)", self, "count")
        check_in("(0, 1]", self, "share", "maybe")
        check_choices(self, {"name": ("a", "b")})


def test_documents_and_options(tmp_path):
    texts = [
        '{"schema": "s", "number": 0.10}', '{"schema": "s", "number": 1e400, "rows": [[1, 2.5]]}', '{"schema": "s"}', '{"number": 1, "schema": 3}', "[]", "", "{", '{"schema": "s", "number": 1, "schema": "t"}',
        '{"schema": "s", "number": NaN}', '{"schema": "s", "number": 1, "rows": [[1, Infinity]]}', '{"schema": "s", "number": 1, "x": 2}', '{"schema": "s", "number": "1"}', '{"schema": "s", "number": 1, "rows": [[1]]}', "\ufeff{}", "nul", '{"a": {"b": [1, {"schema": 2}]}}',
    ]  # fmt: skip
    values = {
        "count": ("4", 4, "x", 10, -1, 4.0, True),
        "share": ("0.25", 1, 0.0, "nan", 1.5),
        "name": ("b", "c", 3),
        "flag": ("true", "false", "1", "x", True),
        "pair": ("3,4", "3", [5, 6], "x,y", (1, 2, 3)),
        "maybe": ("0.5", "none", None, "x"),
        "cuont": (1,),
    }
    (tmp_path / "o.toml").write_text('count = 4\nname = "b"\n[more]\nx = 1\n')
    (tmp_path / "bad.toml").write_text("count = ")
    files = [outcome(read_options, tmp_path / name) for name in ("o.toml", "bad.toml", "none.toml")]
    number = Numbering(["a", "b"], "job")
    found = {
        "decoded": [outcome(decode, text.encode(), Document) for text in texts], "schema": [outcome(peek_schema, text.encode()) for text in texts],
        "converted": [outcome(convert, value, list[int], "rows") for value in ([1, 2], ["a"], {"a": 1}, [1.5], None)], "encoded": [encode(Document(schema="s", number=Decimal("0.10"), rows=[(1, 2.0)])), encode_line({"a": math.nan, "b": [math.inf, 1]})],
        "distinct": [outcome(distinct, entries, "job") for entries in ([("a", 1), ("b", 2)], [("a", 1), ("a", 2)])], "numbers": [len(number), number["b"], outcome(lambda: number["c"])],
        "json schema": json.dumps(json_schema(Document, "s")), "files": [one.replace(str(tmp_path), "") if isinstance(one, str) else one for one in files],
        "options": {name: [parts(made) if not isinstance(made := outcome(build_options, Options, {name: OptionText(value) if isinstance(value, str) else value}), str) else made for value in given] for name, given in values.items()},
        "plain": [options_as_dict(Options()), outcome(build_options, Options, None), outcome(build_options, Options, Options(count=1))],
        "intervals": [outcome(check_in, interval, Options(count=1, share=1.0), "count", "share", "maybe") for interval in ("[1, 1]", "(1, 2]", "[0, 1)", "(0, inf)", "[0.5, 1e6]")],
    }  # fmt: skip
    assert_kept(KEPT / "documents.json", found)


def test_files_frames_limits_and_texts(tmp_path):
    write_arrays(tmp_path / "a.npz", {"x": np.arange(4), "y": np.array([["a"]])})
    (tmp_path / "text").write_bytes(b"PK no archive")
    write_bytes(tmp_path / "z.gz", b"abc" * 100)
    (tmp_path / "cut.gz").write_bytes((tmp_path / "z.gz").read_bytes()[:-9])
    (tmp_path / "mine.py").write_text("class Mine(Exception):\n    pass\nclass Other:\n    pass\nbroken = 1\n")
    names = [
        f"{tmp_path}/mine.py:Mine",
        f"{tmp_path}/mine.py:Other",
        f"{tmp_path}/mine.py:None",
        f"{tmp_path}/mine.py:broken",
        f"{tmp_path}/no.py:Mine",
        "srtf",
        "./x.py:",
    ]

    def own(text):
        return text.replace(str(tmp_path), "") if isinstance(text, str) else text

    limits = {}
    with read_limits(rows=5, document_bytes=10):
        limits["inside"] = [
            current_limits(),
            outcome(check_limit, "rows", 6, "rows"),
            outcome(check_limit, "rows", 5, "rows"),
            own(outcome(read_bytes, tmp_path / "z.gz")),
        ]
    frame = frame_of({"a": [1, 2], "b": ["x", None]})
    found = {
        "arrays": [own(outcome(read_arrays, tmp_path / name, "an archive", "make one")) for name in ("a.npz", "text", "none.npz", "z.gz")], "bytes": [own(outcome(read_bytes, tmp_path / name)) for name in ("z.gz", "cut.gz", "text", "none")],
        "own": [is_file_reference(name) for name in ("./a.py:B", "a:B", "a.py", "/x/y.py:Z")], "loaded": [own(one if isinstance(one := outcome(load_class_from_file, name, Exception, "policy"), str) else one.__name__) for name in names],
        "line": format_exception_line(ValueError("a\nb")), "limits": limits, "after": [current_limits().rows, remedy("rows"), [outcome(lambda name=name, value=value: read_limits(**{name: value}).__enter__() and None) for name, value in (("rows", 0), ("none", 3))]],
        "frames": [rows_of(frame, "jobs"), rows_of([{"a": 1}], "jobs"), outcome(rows_of, 3, "jobs"), outcome(rows_of, [1], "jobs"), outcome(rows_of, {"a": [1, 2], "b": [3, 4]}, "jobs")],
        "near": [did_you_mean(word, ("fifo", "srtf", "las", "gandiva")) for word in ("fif", "strf", "zzz", "", "gandva")], "working": [working_set(cache, allowed) for cache in (10**6, 10**8) for allowed in (10**6, 10**9, 10**11)],
        "grid": [grid([f"r{k}" for k in range(count)], [Cell(k % max(count, 1), 3 * k, 0.5, f"<{k}>") for k in range(count)], "slots", "a & b") for count in (0, 1, 5, 90)],
        "order": [list(in_order(given)) for given in ([(0, "a"), (1, "b")], [(1, "b"), (0, "a"), (2, "c")], [(2, "c"), (1, "b")])],
        "problem": sorted(name for name in vars(AbstractProblem) if not name.startswith("_")),
    }  # fmt: skip
    assert_kept(KEPT / "others.json", found)
