"""Small files and numbers that ask for much end each command in one line, before there is anything large in memory."""

import inspect
import json
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import pytest
import typer

from optim.cli.commands import COMMANDS as SUB_COMMANDS

OPTIM = Path(sys.executable).with_name("optim")
MOST_MIB = 1_000
RUN = """
import resource, subprocess, sys
done = subprocess.run(sys.argv[1:], capture_output=True, text=True, timeout=60)
print(done.returncode, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)
sys.stderr.write(done.stderr)
"""
TOPOLOGY = {"schema": "optim/cluster/1", "machines": [{"gpus": 1024, "count": 90000, "kind": "a"}]}
COMMANDS = {
    "chunks": ("solve big.json --solver fifo", "chunks: at most 100000 are read, got 1000000000"),
    "nodes": ("instance describe nodes.json", "JSON objects: at most 1000000 are read"),
    "topology": ("simulate cluster --generate themis --apps 4 --gpus topology.json", "at most 1000000 are read, got 92160000"),
    "grid": ("simulate cluster --generate themis --apps 4 --gpus 90000x1024", "at most 1000000 are read, got 92160000"),
    "starts": ("simulate spot --starts 1000000000000", "--starts: at most 100000 are drawn"),
    "clocks": ("simulate training --clocks 1000000000000", "1000000000000 is more than 1"),
    "workers": ("run --application matrix-factorisation --workers 1000000", "1000000 is more than 1"),
    "servers": ("simulate packing --servers 1000000000000", "1000000000000 is more than 1"),
    "histories": (
        "bench admission --instance tiny-0 --solver online-learned --histories 1000000000000",
        "1000000000000 is more than 1000",
    ),
    "resamples": ("simulate containers --generate 4 --resamples 1000000000000", "1000000000000 is more than 1"),
    "processes": ("bench admission --processes 1000000", "1000000 is more than 1"),
}  # fmt: skip
QUICK = ("chunks", "grid", "starts")
"""One of each way to ask for much; before a release all are run."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    from optim.models.files import save
    from optim.models.reference import reference_instance

    folder = tmp_path_factory.mktemp("sizes")
    save(reference_instance("tiny-0"), folder / "big.json")
    document = json.loads((folder / "big.json").read_bytes())
    for job in document["jobs"]:
        job["chunks"] = 10**9
    (folder / "big.json").write_text(json.dumps(document))
    (folder / "topology.json").write_text(json.dumps(TOPOLOGY))
    (folder / "nodes.json").write_bytes(b'{"schema": "optim/admission/1", "jobs": [' + b"{}," * 12_000_000 + b"{}]}")
    return folder


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.prove) for name in COMMANDS]
)
def test_what_asks_for_much_is_a_line(folder, name):
    words, line = COMMANDS[name]
    done = subprocess.run(
        [sys.executable, "-c", RUN, OPTIM, *words.split()], cwd=folder, capture_output=True, text=True, check=True
    )
    code, mib = map(int, done.stdout.split())
    assert code == 2, done.stderr
    assert line in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert mib < MOST_MIB


def whole_numbers() -> Iterator[tuple[str, Any]]:
    """Return every option of every command that is a whole number, and what Typer knows of it."""
    for name, listed in SUB_COMMANDS.items():
        found = getattr(import_module(listed.module), listed.attribute)
        is_group = isinstance(found, typer.Typer)
        functions = [each.callback for each in found.registered_commands] if is_group else [found]
        for function in functions:
            words = f"{name} {function.__name__}" if is_group else name
            for parameter in inspect.signature(function).parameters.values():
                kind, info = get_args(parameter.annotation)[:2]
                if isinstance(info, typer.models.OptionInfo) and int in {kind, *get_args(kind)}:
                    yield f"{words} {parameter.name}", info


NAMES = {"seed", "start"}
"""Of options that count nothing: one number is taken."""
COUNTED_LATER = {
    "jobs": "drawn: a limit of the generator; of a table: its rows are fewer",
    "apps": "a limit of the generator",
    "generate": "a limit of the generator",
    "learned": "a limit of the generator",
    "num_phases": "there must be as many windows",
    "smoothing": "a window is as long as its series at most",
    "order": "a node has as many phases as a series at most",
    "starts": "a limit of what is drawn",
    "volatile": "markets of a file, at most all",
    "types": "a range of the generator",
    "staleness": "a difference of clocks, which are bounded",
}
"""Options whose number is held against something that is known later only, and by what."""


def test_every_option_that_counts_has_a_most():
    unbounded = {words.rsplit(" ", 1)[1] for words, info in whole_numbers() if info.max is None} - NAMES
    assert unbounded == set(COUNTED_LATER)
