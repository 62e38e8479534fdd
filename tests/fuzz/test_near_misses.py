"""A hundred of the campaign's nearest misses, as fast tests: each ends with a code and one line, or is still valid."""

import gzip
import json
import os
import random
import time
import zipfile

import pytest
from typer.testing import CliRunner

from optim.cli.main import app
from optim.models.catalogue import problem_of
from optim.models.reference import reference_instance
from tests.fuzz.campaign import judge
from tests.fuzz.mutations import (
    ARRAY_HEADERS,
    CELLS,
    STRANGE,
    _dump,
    _places,
    _Raw,
    archive_of,
    array_of,
    encrypted,
)

PHILLY = "job_id,submit_s,num_gpus,duration_s,vc\n" + "".join(
    f"application_{n},{600 * n},{1 + n % 4},{3000 + 500 * (n % 9)},vc1\n" for n in range(60)
)
CONVERT = "instance convert --trace {} --trace-format philly --jobs 5 --slots 48 --slot-minutes 30"
NAMES = ("tiny-0", "auction-tiny-0", "spot-tiny-windows")


def every_second(count):
    """Number the cases of a test: half of them in every run, all in `make prove`."""
    numbers = [pytest.param(number, marks=pytest.mark.prove if number % 2 else ()) for number in range(count)]
    return pytest.mark.parametrize("number", numbers)


@pytest.fixture(scope="module")
def documents():
    """Give three small instances as JSON."""
    instances = {name: reference_instance(name) for name in NAMES}
    return {name: problem_of(instance).write_instance(instance) for name, instance in instances.items()}


def assert_ends_well(folder, monkeypatch, command, content):
    """Run a command on a file, and return its exit code and output."""
    monkeypatch.chdir(folder)
    (folder / "spoilt").write_bytes(content)
    begun = time.process_time()
    result = CliRunner().invoke(app, command.replace("{}", "spoilt").split())
    assert judge(result.exit_code, result.stderr, result.exception, time.process_time() - begun, 0) == []
    return result.exit_code, result.stderr


@every_second(len(STRANGE))
def test_any_value_in_any_place_of_an_instance(tmp_path, monkeypatch, documents, number):
    rng = random.Random(number)
    for name in NAMES:
        document = json.loads(documents[name])
        holder, key = rng.choice(_places(document))
        holder[key] = _Raw(STRANGE[number])
        content = _dump(document).encode("utf-8", errors="surrogatepass")
        assert assert_ends_well(tmp_path, monkeypatch, "instance describe {}", content)[0] in (0, 2)


@every_second(len(CELLS))
def test_any_cell_in_any_column_of_a_table(tmp_path, monkeypatch, number):
    rows = [line.split(",") for line in PHILLY.splitlines()]
    rows[1 + number][number % 5] = CELLS[number]
    content = "\n".join(map(",".join, rows)).encode("utf-8", errors="surrogateescape")
    assert assert_ends_well(tmp_path, monkeypatch, CONVERT, content)[0] in (0, 2)


FILES = {
    "nothing": b"",
    "white space": b" \n\n ",
    "a list": b"[]",
    "a number": b"0",
    "two documents": b"{}{}",
    "deep lists": b"[" * 20_000,
    "deep fields": b'{"schema":' * 20_000,
    "a byte order mark": b"\xef\xbb\xbf{}",
    "a byte order mark and no more": b"\xef\xbb\xbf",
    "another encoding": '{"schema": "é"}'.encode("utf-16"),
    "no text": bytes(range(256)),
    "a gzip header": b"\x1f\x8b",
    "gzip twice": gzip.compress(gzip.compress(b"{}")),
    "a bomb of zeros": gzip.compress(bytes(30_000_000)),
    "a bomb of lists": gzip.compress(b"[" * 30_000_000),
    "an archive": b"PK\x05\x06" + bytes(18),
    "a wide header": (",".join(f"c{number}" for number in range(200_000)) + "\n").encode(),
    "a long line": b"x" * 3_000_000,
    "escapes": b'{"schema": "\\u001b[2J\\u009b"}',
    "a lone surrogate": b'{"schema": "\\ud800"}',
    "a name of half a character": b'{"\\udfff": 1, "schema": "\\udfff"}',
    "rows of more fields than the header": b"a,b\n1,2,\n",
    "a column twice": b"a,a\n1,2\n",
    "quotes without an end": b'"a,b\n1,2\n',
    "a number of 5,000 digits": b'{"schema": ' + b"9" * 5_000 + b"}",
}
COMMANDS = (
    "solve {} --solver online", "verify tiny-0 {}", "verify spot-tiny-windows {}", CONVERT,
    "simulate spot --prices {} --on-demand {} --processes 1 --starts 1", "simulate containers --input {}",
    "simulate spot --availability {} --zone a --deadline-hours 1 --starts 1", "phases graph {}",
    "solve tiny-0 --solver fifo --options-file {}", "bench admission --profile {} --no-report",
    "bench admission --instance tiny-0 --solver fifo --no-report --compare {}",
)  # fmt: skip


LONG = ("deep fields", "a bomb of lists", "a long line")
"""Files that resemble other cases and take longer to read."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.prove if name in LONG else ()) for name in FILES]
)
def test_a_file_of_something_else_is_refused_by_every_reader(tmp_path, monkeypatch, name):
    for command in COMMANDS:
        code, said = assert_ends_well(tmp_path, monkeypatch, command, FILES[name])
        is_settings = "options-file" in command and name in ("nothing", "white space", "a byte order mark")
        is_empty_golden = "compare" in command and not FILES[name].strip()
        assert code == 2 or (code, is_settings or is_empty_golden) in ((0, True), (4, True)), (command, said)


PLAIN = "{'descr': '<f8', 'fortran_order': False, 'shape': (%d,), }"
WELL_PACKED = {"header.npy": array_of(PLAIN % 200, bytes(1_600))}
ARCHIVES = {
    "encrypted": encrypted(archive_of(WELL_PACKED)),
    **{
        f"packed by method {method} and damaged": content[:60]
        + bytes(byte ^ 255 for byte in content[60:90])
        + content[90:]
        for method in (zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
        for content in (archive_of(WELL_PACKED, method),)
    },
    **{f"header {number}": archive_of({"header.npy": array_of(text)}) for number, text in enumerate(ARRAY_HEADERS)},
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_an_archive_of_what_is_no_array_is_refused_by_every_reader(tmp_path, monkeypatch, name):
    (tmp_path / "run.npz").write_bytes(ARCHIVES[name])
    for command, what in (
        ("phases graph spoilt", "a phase model"),
        ("verify run.npz", "a run of optim simulate cluster"),
    ):
        code, said = assert_ends_well(tmp_path, monkeypatch, command, ARCHIVES[name])
        assert code == 2
        assert said.startswith(f"optim: error: {command.split()[-1]}: not {what} (")


def test_a_table_from_a_pipe_is_refused_in_one_line(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe")  # no process writes to it, and none waits for it
    for command in (CONVERT, "simulate cluster --trace {} --trace-format csv --gpus 2x8 --policy fifo"):
        code, said = assert_ends_well(tmp_path, monkeypatch, command.replace("{}", "pipe"), b"")
        assert code == 2
        assert "pipe: a table is read more than once" in said


COUNTS = {
    "machines": ("auction-tiny-0", lambda fields: fields["machines"][0].update(count=1_000_000)),
    "racks": ("auction-tiny-0", lambda fields: fields["machines"][0].update(rack=10**12)),
    "GPUs": ("auction-tiny-0", lambda fields: fields["machines"][0].update(slots=[10**12])),
    "horizon": ("tiny-0", lambda fields: fields.update(horizon=100_000_000)),
    "servers": ("tiny-0", lambda fields: fields["worker_servers"][0].update(count=10**15)),
}


@pytest.mark.parametrize("what", COUNTS)
def test_counts_that_would_fill_the_memory_are_named_with_their_limit(tmp_path, monkeypatch, documents, what):
    name, change = COUNTS[what]
    fields = json.loads(documents[name])
    change(fields)
    code, said = assert_ends_well(tmp_path, monkeypatch, "instance describe {}", json.dumps(fields).encode())
    assert code == 2
    assert "--limit count=N" in said or "machines[0].free" in said


def test_a_gang_of_a_thousand_million_gpus_is_no_list_of_servers(tmp_path, monkeypatch):
    rows = PHILLY.splitlines()
    rows[7] = "application_6,3600,1000000000,6000,vc1"
    code, error = assert_ends_well(tmp_path, monkeypatch, CONVERT, "\n".join(rows).encode())
    assert code == 2
    assert "servers for a trace's jobs" in error
