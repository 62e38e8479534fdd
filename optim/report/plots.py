"""Plots of reports: a style for light and dark pages, and compact SVG.

In the SVG, coordinates are rounded to screen precision, repeated styles become classes, and groups, ids and shapes without
effect are removed.
"""

import hashlib
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from typing import TYPE_CHECKING, Any
from xml.etree.ElementTree import Element, fromstring, tostring

from optim.core.optional import import_extra
from optim.core.text import keep_texts_plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A picture of a report.

    Parameters
    ----------
    title, caption
        Title, and explanation of the picture.
    svg
        SVG element made by `as_svg`.
    """

    title: str
    caption: str
    svg: str


INK = "#0a0b0c"
"""Placeholder of the page's text colour; `as_svg` replaces it by ``currentColor``."""

PALETTE = (
    "#3b82c4", "#e0803a", "#3f9b5f", "#c4504f", "#8a6fc0", "#a0744f",
    "#d170a8", "#7d8a96", "#b0a02c", "#2fa5b0", "#5f6fd6", "#cf9a6a",
)  # fmt: skip
"""Mid-tone colours that are distinguishable on white and on black."""

_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.alpha": 0.18,
    "grid.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "legend.frameon": False,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}


@contextmanager
def canvas(width: float, height: float, rows: int = 1, columns: int = 1) -> Iterator[tuple["Canvas", list["Axes"]]]:
    """Yield a canvas (width and height in inches) and its panels; inside the block the report's style applies."""
    mpl = import_extra("matplotlib", "a picture")
    new_canvas = import_extra("matplotlib.figure", "a picture").Figure

    with mpl.rc_context(_STYLE):
        drawing = new_canvas(figsize=(width, height), layout="constrained")
        yield drawing, list(drawing.subplots(rows, columns, squeeze=False).flat)


class FigureList(list[Figure]):
    """The pictures of a page in drawing order; none is drawn wider than `widest` inches."""

    def __init__(self, widest: float = math.inf) -> None:
        super().__init__()
        self.widest = widest

    @contextmanager
    def picture(
        self, name: str, title: str, caption: str, width: float, height: float, rows: int = 1, columns: int = 1
    ) -> Iterator[list["Axes"]]:
        """Yield the panels of a new picture; after the block, append the picture to the list."""
        with canvas(min(width, self.widest), height, rows, columns) as (drawing, panels):
            yield panels
            self.append(Figure(title=title, caption=caption, svg=as_svg(drawing, name)))


def legend_beside(panel: "Axes") -> None:
    """Put a panel's legend to its right."""
    panel.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))


def as_svg(drawing: "Canvas", name: str) -> str:
    """Return a canvas as an ``<svg>`` element for a page; call inside a `canvas` block.

    Text has the page's colour, ids are unique on a page, and name spaces and metadata, which contain foreign addresses,
    are removed.
    """
    mpl = import_extra("matplotlib", "a picture")

    keep_texts_plain(drawing)
    buffer = StringIO()
    with mpl.rc_context({"svg.hashsalt": name}):
        drawing.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", text)
    text = text.replace("xlink:href", "href").replace(INK, "currentColor")
    text = re.sub(r'(<svg[^>]*?)\swidth="[^"]*"', r"\1", text, count=1)
    return compact_svg(re.sub(r'(<svg[^>]*?)\sheight="[^"]*"', r'\1 role="img"', text, count=1).strip())


def name_rows(panel: "Axes", names: Sequence[str]) -> None:
    """Label the rows of a panel from the top, with a margin of half a row above and below."""
    panel.set_yticks(range(len(names)), list(reversed(names)))
    panel.set_ylim(-0.6, len(names) - 0.4)


FINE_BELOW = 20.0
"""Absolute value below which coordinates have two decimals instead of one, because markers have coordinates around 0."""

DIGEST_LETTERS = 5

_FAMILY = re.compile(r"font-family:[^;]*;?")

_NUMBER = re.compile(r"-?\d+\.?\d*(?:e-?\d+)?")

_GEOMETRY = frozenset(
    {"d", "x", "y", "x1", "x2", "y1", "y2", "width", "height", "transform", "points", "viewBox", "r", "cx", "cy"}
)

_REFERENCE = re.compile(r"(?:url\(#|^#)([^)]+)")


def compact_svg(text: str) -> str:
    """Return an ``<svg>`` element with the same appearance in fewer bytes.

    Ids begin with a digest of the picture, so that they are unique on a page. Classes are digests of their style, so
    that equal styles have equal classes on a page. The element contains its rules in a ``<style>``.

    Parameters
    ----------
    text
        A well-formed element without name spaces.

    Raises
    ------
    xml.etree.ElementTree.ParseError
        If the text is not well-formed.
    """
    root = fromstring(text)
    for style in [entry for entry in root.iter("defs") if entry.find("style") is not None]:
        style.remove(style.find("style"))  # type: ignore[arg-type]  # the list contains only elements with a style
    _prune(root)
    _rename(root, f"f{_digest(text)}")
    for element in root.iter():
        element.text, element.tail = _stripped(element), None
        for key in _GEOMETRY & element.attrib.keys():
            element.set(key, _rounded(element.attrib[key]))
    rules = _classes(root)
    svg = tostring(root, encoding="unicode", short_empty_elements=True).replace(" />", "/>")
    head = svg.index(">") + 1
    return f"{svg[:head]}<style>{rules}</style>{svg[head:]}"


def _stripped(element: Element) -> str | None:
    text = element.text
    return text if text and text.strip() else None


def _prune(root: Element) -> None:
    """Remove shapes without fill and stroke, empty groups, and groups without attributes."""
    used = set(_references(root))
    for element in root.iter():
        if element.attrib.get("id") not in used:
            element.attrib.pop("id", None)

    def kept(parent: Element) -> list[Element]:
        children: list[Element] = []
        for child in parent:
            child[:] = kept(child)
            if (
                child.tag == "path"
                and parent.tag not in ("defs", "clipPath")
                and child.get("style", "") == "fill: none"
            ):
                continue
            if child.tag in ("g", "defs") and len(child) == 0:
                continue
            if child.tag == "g" and not child.attrib:
                children.extend(child)
                continue
            children.append(child)
        return children

    root[:] = kept(root)


def _references(root: Element) -> Iterator[str]:
    for element in root.iter():
        for value in element.attrib.values():
            yield from _REFERENCE.findall(value)


def _rename(root: Element, prefix: str) -> None:
    """Replace ids by short names with a prefix unique to the picture."""
    short: dict[str, str] = {}
    for element in root.iter():
        if "id" in element.attrib:
            old = element.attrib["id"]
            element.set("id", short.setdefault(old, f"{prefix}-{len(short)}"))
    for element in root.iter():
        for key, value in element.attrib.items():
            if key != "id" and "#" in value:
                element.set(
                    key, _REFERENCE.sub(lambda found: found[0].replace(found[1], short.get(found[1], found[1])), value)
                )


def _rounded(text: str) -> str:
    """Round the numbers in a text, and remove optional spaces."""

    def shorter(found: re.Match[str]) -> str:
        value = float(found[0])
        digits = 2 if abs(value) < FINE_BELOW else 1
        return f"{value:.{digits}f}".rstrip("0").rstrip(".").replace("-0.", "-.").replace("-0", "0") if value else "0"

    text = _NUMBER.sub(shorter, " ".join(text.split()))
    return re.sub(r" ?([A-Za-z(),]) ?", r"\1", text)


def _classes(root: Element) -> str:
    """Replace styles by classes, and return the style rules."""
    names: dict[str, str] = {}
    for element in root.iter():
        style = element.attrib.pop("style", None)
        if style is not None:
            brief = _FAMILY.sub("", re.sub(r"\s*([:;,])\s*", r"\1", style.strip())).strip(";")
            element.set("class", names.setdefault(brief, f"s{_digest(brief)}"))
    return "".join(f".{name}{{{style}}}" for style, name in names.items())


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode()).hexdigest()[:DIGEST_LETTERS]
