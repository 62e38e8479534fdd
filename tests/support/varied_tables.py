"""What readers say of small tables with one cell changed, a column left out, or rows in another order."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.support.kept import outcome, short

CELLS = ("", "7.5")

Table = Sequence[Sequence[Any]]


def with_cells(path: Path, read: Callable[[Path], Any], rows: Table, separator: str = ",") -> dict[str, Any]:
    """Return in short what is read of a table as it is, and with one cell of its second row changed.

    Parameters
    ----------
    path
        Where to write the table; its folder is left out of what is said.
    read
        The reader.
    rows
        The header first.
    """

    def said(table: Table) -> Any:
        path.write_text("\n".join(separator.join(map(str, row)) for row in table) + "\n")
        answer = outcome(read, path)
        return (
            answer.replace(str(path.parent), "") if isinstance(answer, str) else short(answer, without=str(path.parent))
        )

    found = {"as it is": said(rows)}
    for column, name in enumerate(rows[0]):
        for cell in CELLS:
            changed = [cell if place == column else old for place, old in enumerate(rows[1])]
            found[f"{name} {cell}"] = said([rows[0], changed, *rows[2:]])
        found[f"without {name}"] = said([[old for place, old in enumerate(row) if place != column] for row in rows])
    found["no rows"], found["turned"] = said(rows[:1]), said([rows[0], *rows[:0:-1]])
    return found
