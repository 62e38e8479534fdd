"""Ways to damage a file: bytes, fields of JSON, cells of tables, and paths that aren't files."""

import gzip
import io
import json
import random
import struct
import warnings
import zipfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

DEEP = 20_000
WIDE = 200_000
BOMB_BYTES = 200_000_000

STRANGE: tuple[str, ...] = (
    "null", "true", "false", '""', '"\\u001b[31mred"', '"\\ud800"', '"' + "x" * 5000 + '"', "-1", "0", "1", "2", "-0.0",
    "0.5", "1.5", "1e-320", "1e308", "-1e308", "1e400", "NaN", "Infinity", "-Infinity", "1e-7", "0.1234567", "1000000",
    "100000000", "2147483648", "4294967296", "9007199254740993", "9223372036854775807", "9223372036854775808",
    "18446744073709551616", "-9223372036854775809", "1" + "0" * 400, "1e1000000", "[]", "{}", "[[]]", '{"a": 1}',
    "[1, 2, 3]", '"1"', '"NaN"', "[" * 100 + "]" * 100, "[" * DEEP + "]" * DEEP, '{"a":' * DEEP + "1" + "}" * DEEP,
    "[" + "0," * 100_000 + "0]", '"2015-03-11T16:54:38Z"', '"0000-00-00"', '"v100"', "3.0", "1e0",
)  # fmt: skip
"""Values, as JSON writes them (and some that it doesn't allow)."""

NUMBERS: tuple[str, ...] = (
    "0", "1", "2", "3", "7", "10", "-1", "0.5", "1e-9", "1e6", "1e12", "1e100", "1e300", "1.7976931348623157e308", "5e-324",
    "65536", "100000", "1000000", "2147483647", "9007199254740991", "4611686018427387904", "9223372036854775807", "-2", "1e-300",
)  # fmt: skip
"""Numbers that a numeric field may accept at first."""

NUMBERS_OF_ARRAYS = (np.nan, np.inf, -np.inf, -1.0, 0.0, -0.0, 0.5, 1.0, 2.0, 1e9, 1e30, 1e100, 1e300, -1e300, 1e-320, 2.0**31,
                     2.0**62)  # fmt: skip

CELLS: tuple[str, ...] = (
    "", "x", "nan", "inf", "-inf", "-1", "0", "1e308", "1e-320", "1e400", "9223372036854775808", "1" + "0" * 400, "1.5",
    "true", "\x1b[31mred", "\x00", '"', '"a""b"', '"two\nlines"', "é", "2015-13-45", "9999-12-31T23:59:59Z",
    "0001-01-01", "1e9", "1", "2", "3", "1e15", "1e300", "100000", "x" * 5000, " 7 ", "1_000", "0x10", "--", "1;2",
)  # fmt: skip

ARRAY_HEADERS: tuple[str, ...] = (
    "{'descr': '<f8', 'fortran_order': False, 'shape': (1,)",
    "{'descr': '<f8', 'fortran_order': False, 'shape': 1,), }",
    "{[1]: 2}", "{'descr", "(" * 300, "-" * 9_000, "\n  {1:2}\n x", "\\x00", "'\\ud800'", "None", "1+", "{1, 2}", "{}",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000000,), }",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (-1,), }",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (9223372036854775808,), }",
    "{'descr': '<f8', 'fortran_order': 2, 'shape': (1,), }",
    "{'descr': '<f8', 'fortran_order': False, 'shape': ('a',), }",
    "{'descr': 'q9', 'fortran_order': False, 'shape': (1,), }",
    "{'descr': 'O', 'fortran_order': False, 'shape': (1,), }",
    "{'descr': None, 'fortran_order': False, 'shape': (1,), }",
    "{'descr': [1], 'fortran_order': False, 'shape': (1,), }",
    "{'descr': [('a', '<f8', -3)], 'fortran_order': False, 'shape': (1,), }",
    "{'descr': '<U9999999999', 'fortran_order': False, 'shape': (1,), }",
)  # fmt: skip
"""Bytes at the beginning of an array in an archive that describe the rest; none of these can be read."""

Mutation = Callable[[random.Random, bytes], bytes]


class _Raw(str):
    """JSON text to insert unchanged."""


def truncate(rng: random.Random, content: bytes) -> bytes:
    """Cut the end off."""
    return content[: rng.randrange(len(content) + 1)]


def flip(rng: random.Random, content: bytes) -> bytes:
    """Change some bits."""
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 8, 64))):
        if changed:
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def splice(rng: random.Random, content: bytes) -> bytes:
    """Remove, repeat or move a piece, or insert noise."""
    first, last = sorted(rng.randrange(len(content) + 1) for _ in range(2))
    piece = rng.choice(
        (b"", content[first:last] * 2, rng.randbytes(rng.randrange(1, 40)), content[:first], b"\n", b"\x00")
    )
    return content[:first] + piece + content[last:]


def encode(rng: random.Random, content: bytes) -> bytes:
    """Write the text in another encoding, or with other ends of lines."""
    text = content.decode("utf-8", errors="replace")
    kinds: tuple[Callable[[], bytes], ...] = (
        lambda: text.encode("utf-16"), lambda: text.encode("utf-32"), lambda: b"\xef\xbb\xbf" + content,
        lambda: text.replace("\n", "\r\n").encode(), lambda: text.replace("\n", "\r").encode(),
        lambda: text.encode("cp1252", errors="replace") + b"\xe9\xff", lambda: content.replace(b" ", b"\xc2\xa0"),
        lambda: content[::-1], lambda: text.upper().encode(),
    )  # fmt: skip
    return rng.choice(kinds)()


def pack(rng: random.Random, content: bytes) -> bytes:
    """Compress the content, completely or damaged, or compress many zeros."""
    packed = gzip.compress(content)
    kind = rng.randrange(6)
    if kind == 0:
        return packed
    if kind == 1:
        return truncate(rng, packed)
    if kind == 2:
        return flip(rng, packed)
    if kind == 3:
        return gzip.compress(packed)
    if kind == 4:
        return packed + rng.randbytes(20)
    return gzip.compress(
        rng.choice((b"\x00", b" ", b"[", b"0", b"\n", b"1,1\n", b"{}")) * rng.choice((10**5, 10**7, BOMB_BYTES))
    )


def replace_all(rng: random.Random, content: bytes) -> bytes:
    """Replace the content by something else."""
    del content
    return rng.choice((b"", b"\n", b"[]", b"{}", b"null", b"0", b'"x"', b"[1, 2]", b"PK\x03\x04", b"\x1f\x8b", b"\x00" * 1000,
                       b"a,b\n1,2\n", b'{"schema": 1}', b'{"schema": "optim/solution/1"}', b"[" * DEEP, b"a = 1\n",
                       (",".join(f"c{n}" for n in range(WIDE)) + "\n").encode(), b"x" * 3_000_000,
                       b"PK\x05\x06" + b"\x00" * 18, rng.randbytes(rng.randrange(1, 3000))))  # fmt: skip


def spoil_json(rng: random.Random, content: bytes) -> bytes:
    """Change fields of a JSON document."""
    try:
        document: Any = json.loads(content)
    except ValueError:
        return spoil_lines(rng, content)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        document = _spoil(rng, document)
    return _dump(document).encode("utf-8", errors="surrogatepass")


def _spoil(rng: random.Random, value: Any) -> Any:
    places = _places(value)
    if not places:
        return _Raw(rng.choice(STRANGE))
    holder, key = rng.choice(places)
    kind = rng.randrange(14)
    if kind > 9 and isinstance(holder[key], int | float) and not isinstance(holder[key], bool):
        holder[key] = _Raw(rng.choice(NUMBERS))
    elif kind < 5:
        holder[key] = _Raw(rng.choice(STRANGE))
    elif kind == 5:
        del holder[key]
    elif kind == 6 and isinstance(holder, dict):
        holder[str(key) + rng.choice(("x", "\x1b[2J", " ", ""))] = holder.pop(key)
    elif kind == 7 and isinstance(holder, dict):
        holder[_Raw(json.dumps(key) + ":" + rng.choice(STRANGE) + "," + json.dumps(key))] = holder[key]
    elif kind == 8 and isinstance(holder, list):
        holder[key : key + 1] = [holder[key]] * rng.choice((2, 3, 1000))
    elif isinstance(holder[key], int | float) and not isinstance(holder[key], bool):
        try:
            holder[key] = rng.choice((holder[key] + 1, holder[key] - 1, -holder[key], holder[key] * 1e6, holder[key] / 3,
                                      str(holder[key]), [holder[key]], holder[key] * 10**18))  # fmt: skip
        except OverflowError:
            holder[key] = 0
    else:
        other, place = rng.choice(places)
        if isinstance(other, dict | list) and (place in other if isinstance(other, dict) else place < len(other)):
            holder[key] = json.loads(_dump(other[place])) if not _has_raw(other[place]) else 0
    return value


def _has_raw(value: Any) -> bool:
    if isinstance(value, dict):
        return any(isinstance(key, _Raw) or _has_raw(child) for key, child in value.items())
    return any(map(_has_raw, value)) if isinstance(value, list) else isinstance(value, _Raw)


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Return every field and entry as (holder, key)."""
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting:
        holder = waiting.pop()
        entries = holder.items() if isinstance(holder, dict) else enumerate(holder) if isinstance(holder, list) else ()
        for key, child in entries:
            found.append((holder, key))
            waiting.append(child)
    return found


def _dump(value: Any) -> str:
    """Return JSON, raw texts as they are."""
    if isinstance(value, _Raw):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{key if ':' in key and isinstance(key, _Raw) else json.dumps(str(key))}:{_dump(child)}"
                              for key, child in value.items()) + "}"  # fmt: skip
    if isinstance(value, list):
        return "[" + ",".join(map(_dump, value)) + "]"
    return json.dumps(value)


def spoil_lines(rng: random.Random, content: bytes) -> bytes:
    """Change cells, columns and rows of a table, or words of a text."""
    text = content.decode("utf-8", errors="surrogateescape")
    separator = next((mark for mark in "|," if mark in text.split("\n", 1)[0]), " ")
    rows = [line.split(separator) for line in text.split("\n")]
    for _ in range(rng.choice((1, 1, 1, 3, 10))):
        row = rng.randrange(len(rows))
        column = rng.randrange(max(1, len(rows[row])))
        kind = rng.randrange(11)
        if kind < 5 and column < len(rows[row]):
            rows[row][column] = rng.choice(CELLS)
        elif kind == 5 and rows[0]:
            rows[0][min(column, len(rows[0]) - 1)] = rng.choice(CELLS)
        elif kind == 6:
            rows = [line[:column] + line[column + 1 :] for line in rows]
        elif kind == 7:
            rows = [[*line[:column], *line[column : column + 1] * 2, *line[column + 1 :]] for line in rows]
        elif kind == 8:
            rows[row : row + 1] = [rows[row]] * rng.choice((0, 2, 50))
            rows = rows or [[]]
        elif kind == 9:
            rng.shuffle(rows)
        else:
            rows[row] += [rng.choice(CELLS)] * rng.choice((1, 10, WIDE // 100))
    return "\n".join(separator.join(line) for line in rows).encode("utf-8", errors="surrogateescape")


def spoil_member(rng: random.Random, content: bytes) -> bytes:
    """Change a byte of an archive's directory, or of a member and its checksum's neighbourhood."""
    changed = bytearray(content)
    for _ in range(rng.choice((1, 4, 16))):
        place = rng.choice((rng.randrange(len(changed)), len(changed) - 1 - rng.randrange(min(600, len(changed)))))
        changed[place] = rng.randrange(256)
    return bytes(changed)


def spoil_archive(rng: random.Random, content: bytes) -> bytes:
    """Change an array's header in an archive, or pack the archive in ways that NumPy never does."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as packed:
            entries = {name: packed.read(name) for name in packed.namelist()}
    except (ValueError, zipfile.BadZipFile):
        return spoil_member(rng, content)
    kind = rng.randrange(4)
    if kind == 0:
        return encrypted(content)
    if kind == 1:
        method = rng.choice((zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))
        return spoil_member(rng, archive_of(entries, method))
    name = rng.choice(list(entries))
    entries[name] = array_of(rng.choice(ARRAY_HEADERS), entries[name][-rng.randrange(1, 100) :])
    return archive_of(entries)


def spoil_arrays(rng: random.Random, content: bytes) -> bytes:
    """Change numbers, shapes and types of an archive's arrays, which still is one."""
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (ValueError, OSError, zipfile.BadZipFile):
        return spoil_member(rng, content)
    for _ in range(rng.choice((1, 1, 1, 3))):
        name = rng.choice(list(arrays))
        array = arrays[name]
        kind = rng.randrange(8)
        if array.dtype == np.uint8 and kind < 6:  # a header
            arrays[name] = np.frombuffer(spoil_json(rng, array.tobytes()), np.uint8)
        elif kind < 4 and array.size and array.dtype.kind in "iuf":
            changed = array.copy()
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                number = np.float64(rng.choice(NUMBERS_OF_ARRAYS)).astype(array.dtype)
            changed[... if rng.random() < 0.2 else np.unravel_index(rng.randrange(array.size), array.shape)] = number
            arrays[name] = changed
        elif kind == 4:
            arrays[name] = rng.choice((array.T, array.ravel(), array[None], array[:0] if array.ndim else array, array[1:2]
                                       if array.ndim else array[None, None], np.concatenate([array] * 2) if array.ndim else array))  # fmt: skip
        elif kind == 5:
            with np.errstate(all="ignore"), suppress(ValueError, TypeError):
                arrays[name] = array.astype(
                    rng.choice(("f4", "f2", "c16", "i8", "u1", "?", "U9", "S4", "M8[s]", ">f8"))
                )
        elif kind == 6:
            del arrays[name]
        else:
            arrays[name + rng.choice(("x", "\x1b[2J", ""))] = arrays.pop(name)
        if not arrays:
            break
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


def archive_of(entries: Mapping[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    """Return an archive of files."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as packed:
        for name, content in entries.items():
            packed.writestr(name, content)
    return buffer.getvalue()


def array_of(header: str, content: bytes = bytes(8)) -> bytes:
    """Return a file of an array as NumPy writes it, but with any header."""
    text = header.encode("utf-8", errors="surrogatepass") + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + content


def encrypted(content: bytes) -> bytes:
    """Return an archive whose entries claim to be encrypted."""
    changed = bytearray(content)
    with zipfile.ZipFile(io.BytesIO(content)) as packed:
        for entry in packed.infolist():
            changed[entry.header_offset + 6] |= 1
        place = packed.start_dir
    while (place := changed.find(b"PK\x01\x02", place)) >= 0:
        changed[place + 8] |= 1
        place += 4
    return bytes(changed)


ANY: tuple[Mutation, ...] = (truncate, flip, splice, encode, pack, replace_all)


def mutation_for(rng: random.Random, content: bytes) -> Mutation:
    """Choose a mutation that fits the content: mostly one that keeps its form."""
    if rng.random() < 0.3:
        return rng.choice(ANY)
    head = content[:1]
    if content[:2] == b"PK":
        return rng.choice((spoil_member, spoil_archive, spoil_arrays, spoil_arrays))
    return spoil_json if head in b"{[" and head else spoil_lines
