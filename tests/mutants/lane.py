"""A copy of the working tree in which one fault at a time is planted, and tests are run."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue

from tests.mutants.faults import Fault
from tests.mutants.rounds import Round

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Lane:
    """A copy of the working tree and a process that runs tests in it."""

    root: Path
    limit_s: float
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

    def ask(self, tests: list[str], how: Round, share: float = 1.0) -> dict[str, str]:
        """Run tests up to the first failure, in a share of the time that they may take."""
        options = ["-x", "-q", "-p", "no:cacheprovider", "--no-header", "--hypothesis-seed=0", *how.profile]
        limit_s = share * self.limit_s * how.patience
        self.server.stdin.write(json.dumps({"arguments": [*options, *tests], "limit_s": limit_s}) + "\n")
        self.server.stdin.flush()
        return json.loads(self.server.stdout.readline())

    def write(self, path: str, source: bytes) -> None:
        """Write a module with a time of its own, so that no stale byte code is taken for it."""
        self.stamp += 2
        (self.root / path).write_bytes(source)
        os.utime(self.root / path, (self.stamp, self.stamp))

    def is_caught(self, fault: Fault, tests: list[str], how: Round) -> str:
        """Return the test that fails with a fault, again when asked alone, and passes without it, or nothing."""
        source = (ROOT / fault.path).read_bytes()
        self.write(fault.path, fault.planted(source))
        answer = self.ask(tests, how)
        blamed = (answer["test"],) if answer["test"] else tuple(tests)
        is_luck = answer["test"] != "" and self.ask(list(blamed), how)["outcome"] == "passed"
        self.write(fault.path, source)
        if answer["outcome"] == "passed":
            return ""
        asked = (how.name, *blamed)
        if asked not in self.honest:  # whoever blames a fault for the time taken must be far from that without it
            self.honest[asked] = self.ask(list(blamed), how, share=0.5)["outcome"] == "passed"
        if is_luck or not self.honest[asked]:
            print(f"passes alone, or fails without any fault, too: {' '.join(blamed)}", file=sys.stderr)
            rest = [test for test in tests if not blamed[0].startswith(test)]
            return self.is_caught(fault, rest, how) if rest and answer["test"] else ""
        return answer["test"] or f"{answer['outcome']} in {tests[0]}"

    def meet(self, fault: Fault, tests: list[str], how: Round) -> str:
        """Return the first test of a round's files that catches a fault, or nothing."""
        for start in range(0, len(tests), how.files):
            test = self.is_caught(fault, tests[start : start + how.files], how)
            if test:
                return test
        return ""

    def close(self) -> None:
        """End the process."""
        self.server.terminate()
        self.server.wait()


class Lanes:
    """Several copies of the working tree, below a folder, and a thread for each."""

    def __init__(self, folder: Path, count: int, limit_s: float):
        self.held = [Lane(folder / str(number), limit_s) for number in range(count)]
        self.free: SimpleQueue[Lane] = SimpleQueue()
        for lane in self.held:
            self.free.put(lane)
        self.pool = ThreadPoolExecutor(count)

    def __enter__(self) -> "Lanes":
        return self

    def __exit__(self, *error: object) -> None:
        self.pool.shutdown(cancel_futures=True)
        for lane in self.held:
            lane.close()

    def map(self, work: Callable[[Lane, Fault], None], faults: list[Fault]) -> None:
        """Do a piece of work for each fault, in whichever copy is free."""
        list(self.pool.map(lambda fault: self._do(work, fault), faults))

    def _do(self, work: Callable[[Lane, Fault], None], fault: Fault) -> None:
        lane = self.free.get()
        try:
            work(lane, fault)
        finally:
            self.free.put(lane)
