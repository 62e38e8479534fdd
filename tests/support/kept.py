"""Figures of small inputs that are kept in files beside the tests: whoever changes what is computed has to see it.

`make kept`, or `KEPT=renew pytest PATH`, writes the files anew; the difference of the files is what a change does.
Numbers are compared to 1e-9, so that a file holds on every processor; long arrays and texts are kept as sums. What
another version of a library computes to fewer digits is kept whole, as `Near`, and compared to the tolerance it states.
"""

import hashlib
import json
import math
import os
import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from optim.core.errors import OptimError
from optim.core.solution import Verification

TOL = 1e-9
MAX_NUMBERS, MOST_LETTERS = 6, 120
"""Longer lists of numbers, and longer texts, are summed up."""
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?", re.IGNORECASE)
SHOWN = 5
SUMMED, LONG, NEAR = "numbers", "text", "near"


@dataclass(frozen=True, eq=False)
class Near:
    """Numbers that are compared to `tol`, absolutely, and never summed up."""

    values: Any
    tol: float


def assert_kept(path: Path, found: Mapping[str, Any], *, is_part: bool = False) -> None:
    """Compare figures with the file `path`, name by name; write it where the environment says so.

    Parameters
    ----------
    path
        The file, in a folder `kept` beside the tests.
    found
        Anything that `summary` can tell, by name.
    is_part
        Whether the file holds other names, too, which other tests compare.
    """
    summed = {str(name): summary(value) for name, value in found.items()}
    before = json.loads(path.read_text()) if path.exists() else {}
    if os.environ.get("KEPT") == "renew":
        before = {**before, **summed} if is_part else summed
        path.parent.mkdir(exist_ok=True)
        lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in sorted(before.items())]
        path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
        before = json.loads(path.read_text())
    summed = json.loads(json.dumps(summed))
    names = summed.keys() if is_part else before.keys() | summed.keys()
    wrong = {name: (before.get(name), summed.get(name)) for name in sorted(names)}
    wrong = {name: pair for name, pair in wrong.items() if not agrees(*pair)}
    first = "\n".join(f"{name}: kept {was}, found {now}" for name, (was, now) in list(wrong.items())[:SHOWN])
    assert not wrong, f"{len(wrong)} not as kept in {path}; where that is meant, renew it by `make kept`\n{first}"


def agrees(one: Any, other: Any) -> bool:
    """Tell whether two summaries are the same but for rounding errors."""
    if isinstance(one, bool) or isinstance(other, bool) or one is None or other is None:
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return one == other or math.isclose(one, other, rel_tol=TOL, abs_tol=TOL) or (one != one and other != other)
    if isinstance(one, str) and isinstance(other, str):
        return NUMBER.sub("#", one) == NUMBER.sub("#", other) and agrees(_numbers(one), _numbers(other))
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        if one[:1] == [SUMMED] and other[:1] == [SUMMED]:
            return one[1] == other[1] and all(
                abs(a - b) <= TOL * one[1] for a, b in zip(one[2:], other[2:], strict=True)
            )
        if one[:1] == [NEAR] and other[:1] == [NEAR]:
            return one[1] == other[1] and all(abs(a - b) <= one[1] for a, b in zip(one[2:], other[2:], strict=True))
        return all(map(agrees, one, other))
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return all(agrees(value, other[key]) for key, value in one.items())
    return False


def summary(value: Any) -> Any:
    """Return a value as JSON holds it, long ones summed up."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, np.generic):
        return summary(value.item())
    if isinstance(value, Enum):
        return summary(value.value)
    if isinstance(value, str | bytes):
        return _of_text(value if isinstance(value, str) else value.decode(errors="replace"))
    if isinstance(value, Near):
        return [NEAR, value.tol, *(float(f"{one:.9g}") for one in np.ravel(value.values).tolist())]
    if isinstance(value, np.ndarray):
        return (
            summary(value.tolist())
            if value.size <= MAX_NUMBERS
            else [list(value.shape), summary(value.ravel().tolist())]
        )
    if isinstance(value, Mapping):
        return {_key(key): summary(child) for key, child in value.items()}
    if isinstance(value, set | frozenset):
        return summary(sorted(value, key=repr))
    if isinstance(value, Iterable):
        return _of_list(list(value))
    return repr(value) if isinstance(value, Fraction) else parts(value)


def short(value: Any, *, without: str = "") -> Any:
    """Return a value in a few numbers, however large it is; a text such as a folder's name is left out of it."""
    text = json.dumps(summary(value))
    return _of_text(text.replace(without, "") if without else text)


def digest(numbers: Any) -> str:
    """Return a word that tells whole numbers from others to the last one."""
    return f"d{zlib.crc32(np.ascontiguousarray(numbers, '<i8').tobytes()):08x}"


def parts(value: Any) -> Any:
    """Return everything that an object tells without being asked for more: fields and properties."""
    names = (
        [one.name for one in fields(value)] if is_dataclass(value) else list(getattr(value, "__struct_fields__", ()))
    )
    told = [
        name
        for kind in reversed(type(value).__mro__)
        for name, one in vars(kind).items()
        if isinstance(one, property | cached_property) and not name.startswith("_")
    ]
    return {name: summary(_of_property(value, name)) for name in dict.fromkeys([*names, *told])}


def by_name(found: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return by name what several things tell under it, in their order."""
    told = [one if isinstance(one, Mapping) else parts(one) for one in found]
    return {name: [one.get(name) for one in told] for name in dict.fromkeys(name for one in told for name in one)}


def verdict(found: Verification) -> list[Any]:
    """Return all that a checker says, in short."""
    rows = [[one.row, one.amount, one.message] for one in found.violations]
    return [len(rows), str(rows), found.objective, found.bound, list(found.proven)]


def outcome(call: Any, *arguments: Any, **options: Any) -> Any:
    """Return what a call returns, or the error that it ends with: its text where it is this package's own."""
    try:
        return call(*arguments, **options)
    except OptimError as error:
        return f"{type(error).__name__}: {error}"
    except Exception as error:
        return type(error).__name__


def _of_property(value: Any, name: str) -> Any:
    return outcome(getattr, value, name)


def _of_list(value: list[Any]) -> Any:
    if len(value) > MAX_NUMBERS and all(isinstance(one, int | float | np.number | np.bool_) for one in value):
        return _sum(value)
    listed = [summary(one) for one in value]
    text = json.dumps(listed)
    return listed if len(text) <= MOST_LETTERS or f'["{NEAR}"' in text else [len(listed), _of_text(text)]


def _of_text(text: str) -> Any:
    if len(text) <= MOST_LETTERS:
        return text
    digest = hashlib.sha256(NUMBER.sub("#", text).encode()).hexdigest()[:8]
    return [LONG, digest, _sum(_numbers(text))]


def _sum(numbers: list[Any]) -> list[Any]:
    """Return how many numbers there are, and sums in which each counts by its relative size, otherwise than its neighbours."""
    weighted = [(1 + index * 0.6180339887498949 % 1, float(one)) for index, one in enumerate(numbers)]
    strange = math.fsum(weight * (1 + (one > 0)) for weight, one in weighted if not math.isfinite(one))
    total = math.fsum(weight * math.asinh(one) for weight, one in weighted if math.isfinite(one))
    return [SUMMED, len(numbers), float(f"{total:.14g}"), *([strange] if strange else [])]


def _numbers(text: str) -> list[float]:
    return [float(one) for one in NUMBER.findall(text)]


def _key(key: Any) -> str:
    return key if isinstance(key, str) else str(summary(key))
