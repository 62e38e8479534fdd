"""Job tables with something dropped, doubled, renamed, rewritten or reordered: the right total, or one line; never another figure
without a word.

The correct total is computed here from the generated rows, by code that shares no code with the readers.
"""

import random
from dataclasses import dataclass, replace

import pytest

from optim.workloads.traces.formats import read_jobs
from optim.workloads.traces.job_table import ReadOptions
from tests.support.snapshots import answer
from tests.support.trace_files import gavel_file

EXPECTED = ("job steps (parts of their jobs)", "repeated rows")
"""Reasons to leave rows out that the right total knows."""


@dataclass(frozen=True)
class Case:
    """A table: names of its columns, and rows of texts; `hours` gives the GPU-hours of rows that represent entire jobs."""

    name: str
    trace_format: str
    separator: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    is_told: bool = True

    def text(self):
        lines = [self.separator.join(self.header)] if self.is_told else []
        return "\n".join([*lines, *(self.separator.join(row) for row in self.rows)]) + "\n"


SACCT = ("JobID", "User", "Partition", "Submit", "ElapsedRaw", "AllocTRES", "State", "JobName")


def _sacct(number, gpus, seconds, state="COMPLETED", submit="2025-03-01T00:00:00", name="x", more=""):
    tres = f"billing=8,cpu=8,{more}gres/gpu={gpus},mem=64G,node=1"
    return (str(number), "u1", "gpu", submit, str(seconds), tres, state, name)


CASES = (
    Case(
        "names with quotation marks", "sacct", "|", SACCT,
        tuple(_sacct(n, 2, 3600, submit=f"2025-03-01T00:{n}:00", name=('"a', "b", 'end"', "c")[n % 4]) for n in range(10, 15)),
    ),
    Case(
        "attempts", "sacct", "|", SACCT,
        (
            _sacct(7, 4, 3889, "REQUEUED"), _sacct(7, 4, 4473, "PREEMPTED", "2025-03-01T01:10:00"),
            _sacct(7, 4, 6122, "NODE_FAIL", "2025-03-01T02:40:00"), _sacct(7, 4, 2153, submit="2025-03-01T04:30:00"),
        ),
    ),
    Case(
        "components and steps", "sacct", "|", SACCT,
        (
            _sacct("9+0", 8, 3600, more="gres/gpu:a100=8,"), _sacct("9+1", 8, 3600, more="gres/gpu:a100=8,"),
            _sacct("9+0.batch", 8, 3600), _sacct("10_1", 1, 7200), _sacct("10_1.extern", 1, 7200), _sacct("10_2", 1, 60),
        ),
    ),
    Case(
        "one's own", "csv", ",", ("submit", "duration", "gpus", "user", "vc", "id"),
        tuple(
            (str(10 * n), str(seconds), str(gpus), f"u{n % 3}", "ab"[n % 2], f"job{n}")
            for n, (seconds, gpus) in enumerate(((3600, 8), (7200, 4), (3600, 8), (1800, 2), (3600, 4), (600, 1)))
        ),
    ),
    Case(
        "tabs", "gavel", "\t", ("type", "command", "argument", "data", "steps", "arrival", "gpus"),
        tuple(("A", 'cd "x', "-step", "1", str(3600 * (n + 1)), f"{6 * n}.0", "1") for n in range(5)), False,
    ),
)  # fmt: skip


def hours(case):
    """Return the GPU-hours of a case's rows; duplicates count once if rows have names."""
    at = {name: place for place, name in enumerate(case.header)}
    total = 0.0
    for row in dict.fromkeys(case.rows) if case.trace_format != "gavel" else case.rows:
        if case.trace_format == "sacct":
            if "." not in row[at["JobID"]]:
                tres = dict(part.split("=") for part in row[at["AllocTRES"]].split(","))
                total += float(tres["gres/gpu"]) * float(row[at["ElapsedRaw"]])
        elif case.trace_format == "csv":
            total += float(row[at["duration"]]) * float(row[at["gpus"]])
        else:
            total += float(row[at["gpus"]]) * float(row[at["steps"]]) / 2  # two steps a second, in `gavel_file`
    return total / 3600


def _drop(case, rng):
    kind = rng.choice(("row", "column", "field"))
    rows = list(case.rows)
    if kind == "row":
        del rows[rng.randrange(len(rows))]
        return replace(case, rows=tuple(rows)), True
    place = rng.randrange(len(case.header))
    if kind == "column":
        cut = tuple(row[:place] + row[place + 1 :] for row in rows)
        return replace(case, header=case.header[:place] + case.header[place + 1 :], rows=cut), True
    number = rng.randrange(len(rows))
    rows[number] = rows[number][:place] + rows[number][place + 1 :]
    return replace(case, rows=tuple(rows)), False


def _double(case, rng):
    rows, place = list(case.rows), rng.randrange(len(case.header))
    if rng.random() < 0.5:
        rows.insert(rng.randrange(len(rows) + 1), rng.choice(rows))
        return replace(case, rows=tuple(rows)), True
    doubled = tuple(row[: place + 1] + row[place:] for row in rows)
    return replace(case, header=case.header[: place + 1] + case.header[place:], rows=doubled), False


def _rename(case, rng):
    place = rng.randrange(len(case.header))
    name = case.header[place]
    other = rng.choice((name.lower(), name.upper(), f"{name}2", name[:-1], "other", ""))
    return replace(case, header=(*case.header[:place], other, *case.header[place + 1 :])), True


def _unit(case, rng):
    """Write every value of a column in another way that means the same."""
    if case.trace_format == "sacct":
        kind = rng.choice(("elapsed", "memory", "submit", "minutes"))
        at = {name: place for place, name in enumerate(case.header)}
        header, rows = list(case.header), [list(row) for row in case.rows]
        for row in rows:
            if kind == "memory":
                row[at["AllocTRES"]] = row[at["AllocTRES"]].replace("mem=64G", "mem=65536M")
            elif kind == "submit":
                row[at["Submit"]] += "+01:00"
            else:
                seconds = int(row[at["ElapsedRaw"]])
                text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
                row[at["ElapsedRaw"]] = text if kind == "elapsed" or seconds >= 3600 else text[3:]
        if kind in ("elapsed", "minutes"):
            header[at["ElapsedRaw"]] = "Elapsed"
        changed = replace(case, header=tuple(header), rows=tuple(map(tuple, rows)))
        return changed, False
    at = {name: place for place, name in enumerate(case.header)}
    rows = [list(row) for row in case.rows]
    kind = rng.choice(("float", "span", "epoch", "some"))
    for number, row in enumerate(rows):
        if case.trace_format == "gavel" or kind == "float":
            row[at["gpus"]] += ".0"
        elif kind == "span":
            seconds = int(row[at["duration"]])
            row[at["duration"]] = f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        elif kind == "epoch" or number % 2:
            row[at["submit"]] = str(1_774_749_570_000 + 1000 * int(row[at["submit"]]))
    return replace(case, rows=tuple(map(tuple, rows))), False


def _order(case, rng):
    if case.is_told and rng.random() < 0.5:
        places = rng.sample(range(len(case.header)), len(case.header))
        rows = tuple(tuple(row[place] for place in places) for row in case.rows)
        return replace(case, header=tuple(case.header[place] for place in places), rows=rows), True
    return replace(case, rows=tuple(rng.sample(case.rows, len(case.rows)))), True


CHANGE = {"drop": _drop, "double": _double, "rename": _rename, "unit": _unit, "order": _order}


def _right(case, changed, counts_anew):
    """Return the correct total of a changed case: computed again if rows were added or removed, else that of the case."""
    try:
        return hours(changed) if counts_anew else hours(case)
    except (KeyError, ValueError, IndexError):
        return hours(case)


@pytest.mark.parametrize("count", [25, pytest.param(200, marks=pytest.mark.prove)])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_changed_table_gives_the_right_total_or_one_line(case, count, tmp_path):
    gavel_file(tmp_path, [])
    path = tmp_path / "changed.table"
    rng, read = random.Random(38), dict.fromkeys(CHANGE, 0)
    for number in range(count):
        what = list(CHANGE)[number % len(CHANGE)]
        changed, counts_anew = CHANGE[what](case, rng)
        path.write_text(changed.text())
        table = answer(read_jobs, path, case.trace_format, ReadOptions())
        if isinstance(table, str):
            assert table.startswith("InvalidProblemError: ")
            assert "\n" not in table
            continue
        read[what] += 1
        found = float(table.workers @ table.duration_s) / 3600
        said = any(count for reason, count in table.dropped.items() if reason not in EXPECTED)
        right = _right(case, changed, counts_anew)
        assert found == pytest.approx(right, rel=0.01) or said, (
            f"{what} {number}: {found}, right {right}\n{changed.text()}"
        )
    assert read["order"] >= count // len(CHANGE) // 2
    assert read["unit"] > 0
