"""What campaigns have found: which tests notice which faults."""

import hashlib
import json
import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from tests.mutants.faults import Fault
from tests.mutants.lane import ROOT
from tests.mutants.rounds import Round

SURVIVED, EQUIVALENT = "survived", "equivalent"


class Notebook:
    """What this and earlier campaigns found, a line each."""

    def __init__(self, path: Path, suite: str):
        path.parent.mkdir(exist_ok=True)
        self.path, self.suite, self.lock = path, suite, threading.Lock()
        lines = map(json.loads, path.read_text().splitlines() if path.exists() else ())
        self.known = {(*one["key"], one["round"]): one for one in lines if "round" in one}

    @staticmethod
    def key(fault: Fault) -> tuple[str, str]:
        """Return what a finding holds for: the fault, and the module it is planted in."""
        return fault.name, hashlib.sha256(f"{fault.start}".encode() + (ROOT / fault.path).read_bytes()).hexdigest()

    def find(self, fault: Fault, how: Round) -> str | None:
        """Return the test of a round that notices a fault, "" if none does, None if that isn't known.

        That none does is known as long as the tests are the same.
        """
        one = self.known.get((*self.key(fault), how.name))
        return None if one is None or (not one["test"] and one["suite"] != self.suite) else one["test"]

    def add(self, fault: Fault, how: Round, test: str) -> None:
        """Write a finding down."""
        line = {"key": self.key(fault), "suite": self.suite, "round": how.name, "test": test}
        with self.lock, self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")
            self.known[(*self.key(fault), how.name)] = line


def suite_digest() -> str:
    """Return a digest of all tests."""
    digest = hashlib.sha256()
    for path in sorted((ROOT / "tests").rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def caught_share(counts: Counter[str]) -> float:
    """Return the share that is caught of the faults that aren't equivalent."""
    judged = counts.total() - counts[EQUIVALENT]
    return (judged - counts[SURVIVED]) / max(judged, 1)


def room_of(path: str) -> str:
    """Return the room of a module: its folder, two below the package at most."""
    return "/".join(Path(path).parts[1:-1][:2]) or "."


def table(stages: Mapping[Fault, str], names: list[str]) -> str:
    """Return the findings room by room, in Markdown."""
    columns = (*names, SURVIVED, EQUIVALENT)
    rows: dict[str, Counter[str]] = {}
    for fault, stage in stages.items():
        rows.setdefault(room_of(fault.path), Counter())[stage] += 1
    rows = dict(sorted(rows.items())) | {"all rooms": sum(rows.values(), Counter())}
    lines = [f"| room | {' | '.join(columns)} | caught |", "|---" * (len(columns) + 2) + "|"]
    for room, counts in rows.items():
        lines.append(
            f"| {room} | {' | '.join(str(counts[column]) for column in columns)} | {caught_share(counts):.0%} |"
        )
    return "\n".join(lines)
