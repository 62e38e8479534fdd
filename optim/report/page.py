"""Parts of self-contained HTML pages: frame, tables and pictures."""

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import TypeGuard

from optim.report.plots import Figure

SORTED_DIGITS = 9
"""Number of significant digits that the sorting of a table uses; a cell shows five digits."""

_RULES = re.compile(r"(<svg[^>]*>)<style>(.*?)</style>")
_PICTURE = re.compile(r"<svg .*?</svg>", re.DOTALL)
_ID = re.compile(r' id="(f[0-9a-f]+)-')
_RULE = re.compile(r"\.s\w+\{[^}]*\}")


def page(title: str, body: Iterable[str]) -> str:
    """Return an HTML page, whose head has the style rules of all pictures, each once."""
    style, script = (
        (files("optim.benchmarks") / f"report.{kind}").read_text(encoding="utf-8") for kind in ("css", "js")
    )
    text = _with_own_ids("".join(body))
    rules = dict.fromkeys(rule for found in _RULES.finditer(text) for rule in _RULE.findall(found[2]))
    text = _RULES.sub(r"\1", text)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>optim: {escape(title)}</title><style>{style}{''.join(rules)}</style></head>\n"
        f"<body><main>{text}</main><script>{script}</script></body></html>\n"
    )


def _with_own_ids(text: str) -> str:
    """Make the ids of identical pictures on a page distinct."""
    seen: dict[str, int] = {}

    def numbered(found: re.Match[str]) -> str:
        first = _ID.search(found[0])
        if first is None:
            return found[0]
        number = seen[first[1]] = seen.get(first[1], -1) + 1
        return found[0].replace(f"{first[1]}-", f"{first[1]}{'x' * number}-") if number else found[0]

    return _PICTURE.sub(numbered, text)


def figure_element(figure: Figure, rank: int = 3) -> str:
    """Return a picture with title and caption; the title is a heading of `rank`, and a label for screen readers."""
    title = escape(figure.title)
    svg = figure.svg.replace("<svg ", f'<svg aria-label="{title}" ', 1)
    caption = f"<figcaption>{escape(figure.caption)}</figcaption>"
    frame = f'<div class="picture" tabindex="0" role="group" aria-label="Picture: {title}">{svg}</div>'
    return f"<figure><h{rank}>{title}</h{rank}>{frame}{caption}</figure>"


def table(
    header: Sequence[str],
    rows: Iterable[Sequence[object]],
    kind: str = "sortable",
    *,
    caption: str = "",
    marks: Sequence[Mapping[str, str]] = (),
) -> str:
    """Return a table with right-aligned numbers and escaped texts.

    Parameters
    ----------
    header, rows
        Column names, and cells.
    kind
        ``sortable``: buttons in the column headings sort the table by value; ``prose``: texts wrap.
    caption
        Label of the table for screen readers.
    marks
        Data of each row for filters, with the keys ``solver`` and ``instance``.
    """
    filled = [list(row) for row in rows]
    cell = "<button>{}</button>" if kind == "sortable" else "{}"
    head = "".join(
        f'<th scope="col"{" class=n" if any(_is_number(row[column]) for row in filled) else ""}>'
        f"{cell.format(escape(name))}</th>"
        for column, name in enumerate(header)
    )
    body = "".join(
        f"<tr{_data(marks[number]) if marks else ''}>{''.join(_cell(value) for value in row)}</tr>"
        for number, row in enumerate(filled)
    )
    name = escape(caption) or "Table"
    whole = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    return (
        f'<div class="wide" tabindex="0" role="group" aria-label="{name}"><table class="{kind}" aria-label="{name}">'
        f"{whole}</table></div>"
    )


def _data(marks: Mapping[str, str]) -> str:
    return "".join(f' data-{name}="{escape(value)}"' for name, value in marks.items())


def _cell(value: object) -> str:
    if value is None:
        return '<td class="none">&ndash;</td>'
    if isinstance(value, bool):
        return '<td class="yes">yes</td>' if value else '<td class="no">no</td>'
    if _is_number(value):
        shown, exact = f"{value:.5g}", f"{value:.{SORTED_DIGITS}g}"
        return f"<td class=n{'' if exact == shown else f' data-v={exact}'}>{shown}</td>"
    return f"<td>{escape(str(value))}</td>"


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
