"""Join results of several machines: each piece of work once, and no two that contradict each other."""

from collections.abc import Sequence
from pathlib import Path

from optim.benchmarks.golden import strip
from optim.benchmarks.record import Record
from optim.benchmarks.results_file import open_results, read_records
from optim.core.errors import InvalidProblemError
from optim.core.status import Termination

MOST_SHOWN = 3
"""Contradictions that an error lists; all the others are counted."""

LAST_RANK = 2


def merge_results(sources: Sequence[Path], path: Path) -> list[Record]:
    """Write the records of several results files into one, and return them.

    Of two records of the same work the one with an answer stays, then the one that was finished first.

    Parameters
    ----------
    sources
        Results files.
    path
        The results file to write. What it holds already takes part.

    Raises
    ------
    InvalidProblemError
        If records of the same work say different things, though no clock cut either; or were made by different code.
    """
    files = dict.fromkeys([*sources, *([path] if path.exists() else [])])
    found = [(source, record) for source in files for record in read_records(source)]
    codes = {record.code for _, record in found}
    if len(codes) > 1:
        holders = "; ".join(sorted({f"{source} {record.code}" for source, record in found}))
        raise InvalidProblemError(f"results of different code can't be joined ({holders}); run them with one version")
    chosen: dict[str, tuple[Path, Record]] = {}
    contradictions = []
    for source, record in sorted(found, key=lambda entry: (_rank(entry[1]), entry[1].finished)):
        if record.key not in chosen:
            chosen[record.key] = source, record
            continue
        first, other = chosen[record.key]
        if _rank(record) == _rank(other) == 0 and strip(record) != strip(other):
            contradictions.append(_contradiction(first, other, source, record))
    if contradictions:
        more = len(contradictions) - MOST_SHOWN
        listed = "; ".join(contradictions[:MOST_SHOWN]) + (f"; and {more} more" if more > 0 else "")
        raise InvalidProblemError(
            f"{len(contradictions)} records contradict one another: {listed}; find out which machine errs"
        )
    with open_results(path) as results:
        for _, record in chosen.values():
            if record.key not in results.records:
                results.append(record)
        return list(results.records.values())


def _rank(record: Record) -> int:
    """Return 0 for an answer that comes out again anywhere, 1 where a clock had a say, 2 after an error."""
    if record.error is not None:
        return LAST_RANK
    return int(record.termination == Termination.TIME_LIMIT)


def _contradiction(first: Path, one: Record, second: Path, other: Record) -> str:
    """Say which record differs, and in what."""
    mine, theirs = strip(one), strip(other)
    field = next(name for name in mine.__slots__ if getattr(mine, name) != getattr(theirs, name))
    return (
        f"{one.solver} on {one.instance}, seed {one.seed}: {field} {getattr(mine, field)} in {first}, "
        f"{getattr(theirs, field)} in {second}"
    )
