"""Small files, numbers, proofs and logs with large requirements end each command in one line, before memory is large."""

import inspect
import json
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import typer

import optim
from optim.cli.commands import COMMANDS as SUB_COMMANDS
from optim.models.files import write_solution

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
    "starts": ("simulate spot --starts 1000000000000", "--starts: at most 100000 are generated"),
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
"""One input of each type (a file, a grid of machines, an option); before a release all are run."""


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
    """Return every integer option of every command, and its description in Typer."""
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
"""Options that are no counts accept one number only."""
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
"""Options whose values are compared with data that is read later, and that data."""


def test_every_option_that_counts_has_a_most():
    unbounded = {words.rsplit(" ", 1)[1] for words, info in whole_numbers() if info.max is None} - NAMES
    assert unbounded == set(COUNTED_LATER)


LONG = pytest.mark.prove
MOST_S = 20.0
"""Processor seconds, twice the ten that are promised: two processes that share a core take up to twice as long."""
MIB = 2**20
RUN_ON_PROOF = """
import resource, subprocess, sys
done = subprocess.run(sys.argv[1:], capture_output=True, text=True, timeout=300)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(done.returncode, used.ru_maxrss // 1024, used.ru_utime + used.ru_stime)
sys.stderr.write(done.stderr)
"""


def solution(name: str, solver: str) -> dict:
    """Return a solution as a document."""
    instance = optim.reference_instance(name)
    return json.loads(write_solution(optim.solve(instance, solver), instance))


def with_nodes(document: dict, holder: dict, nodes: list, size: int = 0) -> str:
    """Return a solution with other nodes in its tree, repeated up to a number of bytes if a size is given."""
    text = json.dumps(nodes)[1:-1]
    holder["nodes"] = "NODES"
    repeated = max(1, size // (len(text) + 2))
    return json.dumps(document).replace('"NODES"', f"[{', '.join([text] * repeated)}]")


def admission(size: int, depth: int) -> str:
    document = solution("tiny-0", "branch-and-price")
    tree = document["certificate"]["proof"]
    branch = {"kind": "completion", "job": "j0001", "value": 3}
    leaf = next(node for node in tree["nodes"] if "proof" in node)
    if size:
        return with_nodes(document, tree, [{"branch": branch, "low": 1, "high": 2}, leaf, leaf], size)
    nodes = [each for k in range(depth) for each in ({"branch": branch, "low": 2 * k + 1, "high": 2 * k + 2}, {})]
    return with_nodes(document, tree, [*nodes, {}])


def auction(size: int, depth: int) -> str:
    document = solution("auction-tiny-0", "exact")
    tree = document["certificate"]["proof"]["welfare"] = {"kind": "tree"}
    leaf = {"proof": {"kind": "prices", "kinds": [], "row_price": [], "supply_price": []}}
    if size:
        return with_nodes(
            document, tree, [{"split": {"level": 0, "size": 1, "value": 0}, "low": 1, "high": 2}, leaf, leaf], size
        )
    nodes = [
        each
        for k in range(depth)
        for each in ({"split": {"level": 0, "size": 1 + k, "value": 0}, "low": 2 * k + 1, "high": 2 * k + 2}, leaf)
    ]
    return with_nodes(document, tree, [*nodes, leaf])


def bidding(size: int, depth: int) -> str:
    document = solution("spot-tiny-windows", "exchange")
    tree = document["certificate"]["proof"]
    if size:
        return with_nodes(document, tree, [[0, 0, 1, 2], [0], [1]], size)
    nodes = [each for k in range(depth) for each in ([0, k, 2 * k + 1, 2 * k + 2], [0])]
    return with_nodes(document, tree, [*nodes, [0]])


def run_log(path: Path, change) -> None:
    """Write the log of a run whose arrays, and header, are changed."""
    if not path.exists():
        words = [
            "simulate",
            "cluster",
            "--generate",
            "themis",
            "--apps",
            "2",
            "--gpus",
            "2x4",
            "--policy",
            "oasis,fifo",
            "--log",
            "run.npz",
        ]
        subprocess.run([OPTIM, *words], cwd=path.parent, check=True, capture_output=True)
    with np.load(path) as archive:
        arrays = {name: archive[name] for name in archive.files}
    change(arrays)
    np.savez_compressed(path, **arrays)


def many_gpus(arrays) -> None:
    arrays |= {name: array[:1].repeat(100) for name, array in arrays.items() if name.startswith("cluster.")}
    arrays["cluster.gpus"] = np.full(100, 2**20)


def many_prices(arrays) -> None:
    arrays["price"] = np.linspace(1.0, 2.0, 200_000) * 1e-6
    arrays["price_end_us"] = np.arange(1, 200_001) * 1_000_000


def many_slots(arrays) -> None:
    worth = next(name.partition(".")[0] for name in arrays if name.startswith("worth"))
    header = json.loads(arrays["header"].tobytes())
    header["worth"][int(worth[5:])]["slot_us"] = 1
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    arrays["jobs.duration_us"] = np.maximum(arrays["jobs.duration_us"], 100_000)
    arrays[f"{worth}.price"] = np.linspace(1.0, 2.0, 100_010)


TREES = {"tiny-0": admission, "auction-tiny-0": auction, "spot-tiny-windows": bidding}
SIZES = {"40 MB": (40 * MIB, 0), "51 MB": (51 * MIB, 0), "a chain of 10,000 splits": (0, 10_000)}
LOGS = {
    "100 machines of 2^20 GPUs": (many_gpus, "GPUs of a cluster: at most 1000000 are read, got 104857600"),
    "200,000 prices": (many_prices, ""),
    "100,000 slots of run time": (many_slots, ""),
}


def verified(folder: Path, *words: object) -> tuple[int, str]:
    """Run `verify` in a separate process, with limits on memory and time; return its exit code and errors."""
    done = subprocess.run(
        [sys.executable, "-c", RUN_ON_PROOF, OPTIM, "verify", *map(str, words)],
        cwd=folder, capture_output=True, text=True, check=True,
    )  # fmt: skip
    code, mib, seconds = done.stdout.split()
    assert "Traceback" not in done.stderr
    assert (int(mib) < MOST_MIB, float(seconds) < MOST_S) == (True, True), (mib, seconds, code, done.stderr[-300:])
    return int(code), done.stderr


@LONG
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", TREES)
def test_a_large_tree_is_verified_or_refused_within_memory_and_time(tmp_path, name, size):
    (tmp_path / "s.json").write_text(TREES[name](*SIZES[size]))
    assert (tmp_path / "s.json").stat().st_size > 0.9 * SIZES[size][0]
    code, errors = verified(tmp_path, name, "s.json")
    assert code in {2, 3}, errors  # none of these is a valid tree with the claimed bound
    (line,) = [each for each in errors.splitlines() if each.startswith("optim: error: ")]
    assert len(line) < 400


@LONG
@pytest.mark.parametrize("name", LOGS)
def test_a_log_that_asks_for_much_is_verified_or_refused_within_memory_and_time(tmp_path, name):
    change, said = LOGS[name]
    run_log(tmp_path / "run.npz", change)
    code, errors = verified(tmp_path, "run.npz")
    assert code in {2, 3}, errors
    (line,) = [each for each in errors.splitlines() if each.startswith("optim: error: ")]
    assert said in line
