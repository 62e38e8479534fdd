"""Plant faults, one at a time, and see which tests notice: `python -m tests.mutants.campaign`, or `make mutants`.

Faults are drawn over the rooms of the package in proportion to their lines of code. Each is planted in a copy of the
working tree and meets the tests that mirror its module, then those of that folder, then all others, the nearest by
imports first; the first failure ends it. A test that fails counts only if it passes without the fault. What is known
already is kept in `.mutants/` until the module or, for survivors, any test changes: a campaign goes on where it was cut.

Where `make map` has written which test files run which lines (`line_map`), those that never run the faulted line are
left out: they can't notice. The others of a stage then come in the order of what they cost.
"""

import argparse
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue

from tests.architecture.code_lines import code_lines
from tests.mutants.faults import Fault, faults_of
from tests.mutants.line_map import MAP, LineMap
from tests.mutants.nearness import Nearness

ROOT = Path(__file__).resolve().parents[2]
EQUIVALENTS = Path(__file__).with_name("equivalents.toml")
STAGES = ("own file", "own folder", "near", "all")
CHUNK = 20
"""Test files a run: a process that runs more grows large, and its time limit says less."""


def room_of(path: str) -> str:
    """Return the room of a module: its folder, two below the package at most."""
    return "/".join(Path(path).parts[1:-1][:2]) or "."


def draw(root: Path, prefix: str, count: int, seed: int) -> list[Fault]:
    """Draw faults below a path of the package, each room's number in proportion to its lines of code."""
    paths = sorted(path.relative_to(root).as_posix() for path in (root / "optim").rglob("*.py"))
    rooms: dict[str, list[str]] = {}
    for path in paths:
        if path.removeprefix("optim/").startswith(prefix):
            rooms.setdefault(room_of(path), []).append(path)
    lines = {room: sum(code_lines((root / path).read_text()) for path in held) for room, held in rooms.items()}
    shares = {room: count * lines[room] / max(sum(lines.values()), 1) for room in rooms}
    quotas = {room: int(share) for room, share in shares.items()}
    for room in sorted(rooms, key=lambda room: quotas[room] - shares[room])[: count - sum(quotas.values())]:
        quotas[room] += 1
    drawn = []
    for room, held in rooms.items():
        rng = random.Random(f"{seed} {room}")
        found = [fault for path in held for fault in faults_of(path, (root / path).read_bytes())]
        drawn += rng.sample(found, min(quotas[room], len(found)))
    random.Random(seed).shuffle(drawn)  # a campaign that is cut has met all rooms
    return drawn


def equivalents() -> dict[tuple[str, str], str]:
    """Return the faults known to change nothing that anyone can see, name and line, with the reason."""
    held = tomllib.loads(EQUIVALENTS.read_text()).get("equivalent", [])
    return {(one["fault"], one["line"]): one["reason"] for one in held}


def place_of(fault: Fault, root: Path = ROOT) -> tuple[str, str]:
    """Return a fault's name and the text of the line it is planted in: other lines may hold the same numbers."""
    return fault.name, (root / fault.path).read_text().splitlines()[fault.line - 1].strip()


@dataclass
class Lane:
    """A copy of the working tree and a process that runs tests in it."""

    root: Path
    limit_s: float
    profile: tuple[str, ...]
    honest: dict[tuple[str, ...], bool] = field(default_factory=dict)
    stamp: int = 0

    def __post_init__(self) -> None:
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT, check=True, capture_output=True, text=True,
        )  # fmt: skip
        for name in filter(None, listed.stdout.split("\0")):
            goal = self.root / name
            goal.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError):  # deleted, but not yet in git
                shutil.copy2(ROOT / name, goal, follow_symlinks=False)
        compiled = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mlcluster-optim-mutants"
        environment = {**os.environ, "PYTHONPATH": str(self.root), "NUMBA_CACHE_DIR": str(compiled)}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        self.server = subprocess.Popen(
            [sys.executable, "-m", "tests.mutants.server"],
            cwd=self.root, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def ask(self, tests: list[str], share: float = 1.0) -> dict[str, str]:
        """Run tests up to the first failure, in a share of the time that they may take."""
        options = ["-x", "-q", "-p", "no:cacheprovider", "--no-header", "--hypothesis-seed=0", *self.profile]
        self.server.stdin.write(json.dumps({"arguments": [*options, *tests], "limit_s": share * self.limit_s}) + "\n")
        self.server.stdin.flush()
        return json.loads(self.server.stdout.readline())

    def write(self, path: str, source: bytes) -> None:
        """Write a module with a time of its own, so that no stale byte code is taken for it."""
        self.stamp += 2
        (self.root / path).write_bytes(source)
        os.utime(self.root / path, (self.stamp, self.stamp))

    def is_caught(self, fault: Fault, tests: list[str]) -> str:
        """Return the test that fails with a fault, again when asked alone, and passes without it, or nothing."""
        source = (ROOT / fault.path).read_bytes()
        self.write(fault.path, fault.planted(source))
        answer = self.ask(tests)
        blamed = (answer["test"],) if answer["test"] else tuple(tests)
        is_luck = answer["test"] != "" and self.ask(list(blamed))["outcome"] == "passed"
        self.write(fault.path, source)
        if answer["outcome"] == "passed":
            return ""
        if blamed not in self.honest:  # whoever blames a fault for the time taken must be far from that without it
            self.honest[blamed] = self.ask(list(blamed), share=0.5)["outcome"] == "passed"
        if is_luck or not self.honest[blamed]:
            print(f"passes alone, or fails without any fault, too: {' '.join(blamed)}", file=sys.stderr)
            rest = [test for test in tests if not blamed[0].startswith(test)]
            return self.is_caught(fault, rest) if rest and answer["test"] else ""
        return answer["test"] or f"{answer['outcome']} in {tests[0]}"

    def judge(self, fault: Fault, stages: list[list[str]]) -> tuple[str, str]:
        """Return the stage that catches a fault and the test; "survived" if none does."""
        for stage, tests in zip(STAGES, stages, strict=False):
            for start in range(0, len(tests), CHUNK):
                test = self.is_caught(fault, tests[start : start + CHUNK])
                if test:
                    return stage, test
        return "survived", ""


class Notebook:
    """What earlier campaigns found, a line each."""

    def __init__(self, path: Path, suite: str):
        path.parent.mkdir(exist_ok=True)
        self.path, self.suite, self.lock = path, suite, threading.Lock()
        lines = path.read_text().splitlines() if path.exists() else []
        self.known = {tuple(one["key"]): one for one in map(json.loads, lines)}

    def key(self, fault: Fault) -> tuple[str, str]:
        """Return what a finding holds for: the fault, and the module it is planted in."""
        return fault.name, hashlib.sha256(f"{fault.start}".encode() + (ROOT / fault.path).read_bytes()).hexdigest()

    def find(self, fault: Fault) -> tuple[str, str] | None:
        """Return an earlier finding; a survivor's only as long as the tests are the same."""
        one = self.known.get(self.key(fault))
        return (
            None
            if one is None or (one["stage"] == "survived" and one["suite"] != self.suite)
            else (one["stage"], one["test"])
        )

    def add(self, fault: Fault, stage: str, test: str) -> None:
        """Write a finding down."""
        with self.lock, self.path.open("a") as file:
            file.write(json.dumps({"key": self.key(fault), "suite": self.suite, "stage": stage, "test": test}) + "\n")


def suite_digest(*options: str) -> str:
    """Return a digest of all tests and of how they are run."""
    digest = hashlib.sha256(repr(options).encode())
    for path in sorted((ROOT / "tests").rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def table(found: dict[Fault, str]) -> str:
    """Return the findings room by room, in Markdown."""
    columns = (*STAGES, "survived", "equivalent")
    rows: dict[str, Counter[str]] = {}
    for fault, stage in found.items():
        rows.setdefault(room_of(fault.path), Counter())[stage] += 1
    rows = dict(sorted(rows.items())) | {"all rooms": sum(rows.values(), Counter())}
    lines = [f"| room | {' | '.join(columns)} | caught |", "|---" * (len(columns) + 2) + "|"]
    for room, counts in rows.items():
        lines.append(
            f"| {room} | {' | '.join(str(counts[column]) for column in columns)} | {caught_share(counts):.0%} |"
        )
    return "\n".join(lines)


def caught_share(counts: Counter[str]) -> float:
    """Return the share that is caught of the faults that aren't equivalent."""
    caught = sum(counts[stage] for stage in STAGES)
    return caught / max(caught + counts["survived"], 1)


def run(arguments: argparse.Namespace) -> dict[Fault, str]:
    """Judge the faults drawn, several at a time, and return the stage of each."""
    profile = ("--hypothesis-profile=prove", "-m", "prove or not prove") if arguments.prove else ()
    reach = STAGES.index(arguments.reach) + 1
    notebook = Notebook(ROOT / ".mutants" / "findings.jsonl", suite_digest(*profile, arguments.reach))
    known, nearness = equivalents(), Nearness(ROOT)
    line_map = LineMap() if arguments.prove else LineMap.load(ROOT / MAP, ROOT)  # more examples run more lines
    drawn = draw(ROOT, arguments.room, arguments.count, arguments.seed)
    found: dict[Fault, str] = {}
    lanes: SimpleQueue[Lane] = SimpleQueue()

    def settle(fault: Fault) -> None:
        start = time.monotonic()
        reason = known.get(place_of(fault), "")
        stage, test = ("equivalent", reason) if reason else notebook.find(fault) or ("", "")
        if not stage:
            lane = lanes.get()
            try:
                noticing = line_map.noticing(ROOT, fault.path, fault.line)
                stages = nearness.stages(fault.path)[:reach]
                stage, test = lane.judge(
                    fault, [tests if tests is stages[0] else noticing.pick(tests) for tests in stages]
                )
            finally:
                lanes.put(lane)
            notebook.add(fault, stage, test)
        found[fault] = stage
        text = fault.name.replace(": ", f":{fault.line}: {fault.kind}: ", 1)
        print(
            f"[{len(found)}/{len(drawn)}] {time.monotonic() - start:.0f} s {stage}: {text}\n    {test}".rstrip(),
            flush=True,
        )

    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, ThreadPoolExecutor(arguments.processes) as pool:
        opened = [Lane(Path(folder) / str(i), arguments.timeout, profile) for i in range(arguments.processes)]
        for lane in opened:
            lanes.put(lane)
        try:
            list(pool.map(settle, drawn))
        finally:
            pool.shutdown(cancel_futures=True)
            for lane in opened:
                lane.server.terminate()
                lane.server.wait()
    return found


def main() -> int:
    """Run a campaign and print its table."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants.campaign",
        description="Plant faults; see what notices.",
        epilog="`make map` first spares each fault the test files that never run its line.",
    )
    parser.add_argument("--count", type=int, default=300, help="faults drawn")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--room", default="", help="only modules whose path below optim/ starts so, as solvers/auction")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds a run of test files may take")
    parser.add_argument("--reach", choices=STAGES, default="all", help="the last tests that a survivor meets")
    parser.add_argument("--prove", action="store_true", help="run the long tests, too, with 200 examples a property")
    parser.add_argument("--least", type=float, default=0.0, help="exit with 1 if a smaller share is caught")
    arguments = parser.parse_args()
    found = run(arguments)
    print("\n" + table(found))
    survivors = [fault for fault, stage in sorted(found.items()) if stage == "survived"]
    if survivors:
        print(
            "\nSurvivors:\n" + "\n".join(f"- {one.path}:{one.line}: {one.name.split(': ', 1)[1]}" for one in survivors)
        )
    return 0 if caught_share(Counter(found.values())) >= arguments.least else 1


if __name__ == "__main__":
    sys.exit(main())
