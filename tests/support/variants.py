"""Documents that differ from a valid one in a single place, in every way that a checker or reader should detect."""

import json
from collections.abc import Iterator
from typing import Any

MORE, HALF, NEGATIVE, OTHER, DROPPED, TWICE = "one more", "half", "negative", "other", "dropped", "twice"


def variants(document: Any, most: int = 3) -> Iterator[tuple[str, str, Any]]:
    """Yield (place without numbers, change, document) for every place; of long lists only some entries.

    The document is the same object every time, changed in place: use it before asking for the next.

    Parameters
    ----------
    document
        As `json.loads` gives it; unchanged at the end.
    most
        Entries of a list that are changed: the first, the last and some between.
    """
    yield from _below(document, document, "", most)


def _below(root: Any, holder: Any, path: str, most: int) -> Iterator[tuple[str, str, Any]]:
    for key in _keys(holder, most):
        value = holder[key]
        place = f"{path}.{key}" if isinstance(holder, dict) else f"{path}[]"
        for what, changed in _changes(value):
            holder[key] = changed
            yield place, what, root
        holder[key] = value
        yield from _without(root, holder, key, place)
        if isinstance(value, dict | list):
            yield from _below(root, value, place, most)


def _keys(holder: Any, most: int) -> list[Any]:
    if isinstance(holder, dict):
        return list(holder)
    size = len(holder)
    return sorted({index * (size - 1) // max(most - 1, 1) for index in range(most)}) if size else []


def _changes(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, bool):
        yield OTHER, not value
    elif isinstance(value, int | float):
        yield MORE, value + 1
        yield HALF, value // 2 if isinstance(value, int) else value / 2
        yield NEGATIVE, -value or -1
    elif isinstance(value, str):
        yield OTHER, value + "x"
    elif value is None:
        yield OTHER, 1
    elif value:
        yield "empty", type(value)()


def _without(root: Any, holder: Any, key: Any, place: str) -> Iterator[tuple[str, str, Any]]:
    if isinstance(holder, dict):
        kept = dict(holder)
        del holder[key]
        yield place, DROPPED, root
        holder.clear()
        holder.update(kept)
    elif key == len(holder) - 1:
        last = holder.pop()
        yield place, DROPPED, root
        holder += [last, json.loads(json.dumps(last))]
        yield place, TWICE, root
        holder.pop()
