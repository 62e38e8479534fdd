"""Count lines of code by folder: lines under `optim/` with a token other than a comment or a docstring.

Run it as `python tests/architecture/code_lines.py [FOLDER]`, or as `make lines`.
"""

import ast
import io
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

SILENT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def statements(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield a module and its statements with those within them, but no expression: a tenth of all nodes."""
    waiting: list[ast.AST] = [tree]
    for one in waiting:
        for field in ("body", "orelse", "handlers", "finalbody", "cases"):
            inner = getattr(one, field, ())
            waiting.extend(inner if isinstance(inner, list) else ())
        yield one


def docstring_lines(tree: ast.Module) -> set[int]:
    """Return the numbers of the lines that docstrings fill."""
    lines: set[int] = set()
    for node in statements(tree):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            text = node.body[0]
            lines.update(range(text.lineno, (text.end_lineno or text.lineno) + 1))
    return lines


def code_lines(source: str) -> int:
    """Return how many lines of a module hold a token other than a comment or a docstring."""
    told = docstring_lines(ast.parse(source))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in SILENT:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - told)


def count(folder: Path, depth: int = 2) -> Counter[str]:
    """Return the code lines of each folder, including its sub-folders from a given depth."""
    rooms: Counter[str] = Counter()
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder).parts[:-1][:depth]
        rooms["/".join(parts) or "."] += code_lines(path.read_text())
    return rooms


def main() -> None:
    """Print the table."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[2] / "optim"
    rooms = count(folder)
    for room, lines in sorted(rooms.items()):
        print(f"{lines:7,}  {room}")
    print(f"{sum(rooms.values()):7,}  in all")


if __name__ == "__main__":
    main()
