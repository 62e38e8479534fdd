"""Pictures in few bytes: what matplotlib writes as SVG, without what nobody sees.

Coordinates are rounded to what a screen shows, styles that come often become classes, and groups, ids and shapes without
effect are left out.
"""

import hashlib
import re
from collections.abc import Iterator
from xml.etree.ElementTree import Element, fromstring, tostring

FINE_BELOW = 20.0
"""Numbers below this keep two digits after the point, larger ones have one: markers are drawn around 0."""

DIGEST_LETTERS = 5

_FAMILY = re.compile(r"font-family:[^;]*;?")
_NUMBER = re.compile(r"-?\d+\.?\d*(?:e-?\d+)?")
_GEOMETRY = frozenset(
    {"d", "x", "y", "x1", "x2", "y1", "y2", "width", "height", "transform", "points", "viewBox", "r", "cx", "cy"}
)
_REFERENCE = re.compile(r"(?:url\(#|^#)([^)]+)")


def compact_svg(text: str) -> str:
    """Return an ``<svg>`` element that looks the same in fewer bytes.

    Ids begin with a digest of the picture, so that two on a page share none; classes are digests of their style, so that
    equal ones are equal throughout a page. The element holds its rules in a ``<style>`` of its own.

    Parameters
    ----------
    text
        A well-formed element without name spaces.

    Raises
    ------
    xml.etree.ElementTree.ParseError
        If the text isn't well-formed.
    """
    root = fromstring(text)
    for style in [entry for entry in root.iter("defs") if entry.find("style") is not None]:
        style.remove(style.find("style"))  # type: ignore[arg-type]  # it is there, or the line above had left it out
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
    """Take out shapes that nothing fills or strokes, empty groups, and groups that say nothing."""
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
    """Give ids short names that no other picture has."""
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
    """Return a text with its numbers rounded, and no space that it can do without."""

    def shorter(found: re.Match[str]) -> str:
        value = float(found[0])
        digits = 2 if abs(value) < FINE_BELOW else 1
        return f"{value:.{digits}f}".rstrip("0").rstrip(".").replace("-0.", "-.").replace("-0", "0") if value else "0"

    text = _NUMBER.sub(shorter, " ".join(text.split()))
    return re.sub(r" ?([A-Za-z(),]) ?", r"\1", text)


def _classes(root: Element) -> str:
    """Turn styles into classes, and return their rules."""
    names: dict[str, str] = {}
    for element in root.iter():
        style = element.attrib.pop("style", None)
        if style is not None:
            brief = _FAMILY.sub("", re.sub(r"\s*([:;,])\s*", r"\1", style.strip())).strip(";")
            element.set("class", names.setdefault(brief, f"s{_digest(brief)}"))
    return "".join(f".{name}{{{style}}}" for style, name in names.items())


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode()).hexdigest()[:DIGEST_LETTERS]
