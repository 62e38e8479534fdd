"""Plant faults, one at a time, and see which tests notice: `python -m tests.mutants.campaign`, or `make mutants`.

Faults are drawn over the rooms of the package in proportion to their lines of code. Each is planted in a copy of the
working tree. All meet the tests that mirror their module, then those that nothing has noticed meet those of its folder,
then those of modules that import it soon, then all others; with `--prove` the first three rounds are followed by the
same tests, and all others, with 200 examples a property and the long ones. Within a round the first failure ends it. A
test that fails counts only if it passes without the fault. With `--least` the campaign ends as soon as that share is
caught for certain, whatever further tests would notice.

What is known already is kept in `.mutants/` until the module or, for what passed, any test changes: a campaign goes on
where it was cut.

Where `make map` has written which test files run which lines (`line_map`), those that never run the faulted line are
left out: they can't notice. The others of a round then come in the order of what they cost.
"""

import argparse
import random
import sys
import tempfile
import time
import tomllib
from collections import Counter
from pathlib import Path

from tests.architecture.code_lines import code_lines
from tests.mutants.faults import Fault, faults_of
from tests.mutants.findings import EQUIVALENT, SURVIVED, Notebook, caught_share, room_of, suite_digest, table
from tests.mutants.lane import ROOT, Lane, Lanes
from tests.mutants.line_map import MAP, LineMap
from tests.mutants.nearness import Nearness
from tests.mutants.rounds import STAGES, Round, counted, planned

EQUIVALENTS = Path(__file__).with_name("equivalents.toml")


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


class Campaign:
    """Faults drawn, and what is known of each: the round that noticed it, "survived" so far, or "equivalent"."""

    def __init__(self, drawn: list[Fault], notebook: Notebook, rounds: list[Round], least: float):
        known = equivalents()
        self.stages = {fault: EQUIVALENT if place_of(fault) in known else SURVIVED for fault in drawn}
        self.notebook, self.least = notebook, least
        for fault, one in ((fault, one) for fault in self.left for one in reversed(rounds)):
            if notebook.find(fault, one):
                self.stages[fault] = one.name

    @property
    def left(self) -> list[Fault]:
        """The faults that nothing has noticed."""
        return [fault for fault, stage in self.stages.items() if stage == SURVIVED]

    @property
    def is_decided(self) -> bool:
        """Whether enough is caught for certain."""
        return 0 < self.least <= caught_share(Counter(self.stages.values()))

    def hold(self, how: Round, tests_of: dict[Fault, list[str]], lanes: Lanes) -> None:
        """Let all faults that are left meet the tests of a round, several at a time."""
        print(f"{how.name}: {len(self.left)} of {len(self.stages)} faults are left", flush=True)
        lanes.map(lambda lane, fault: self.meet(fault, tests_of[fault], how, lane), self.left)

    def meet(self, fault: Fault, tests: list[str], how: Round, lane: Lane) -> None:
        """Let a fault meet the tests of a round, unless that is known, or is needless."""
        if self.is_decided:
            return
        start = time.monotonic()
        test = self.notebook.find(fault, how)
        if test is None:
            test = lane.meet(fault, tests, how)
            self.notebook.add(fault, how, test)
        if test:
            self.stages[fault] = how.name
        text = fault.name.replace(": ", f":{fault.line}: {fault.kind}: ", 1)
        print(f"{time.monotonic() - start:.0f} s {self.stages[fault]}: {text}\n    {test}".rstrip(), flush=True)


def run(arguments: argparse.Namespace) -> dict[Fault, str]:
    """Judge the faults drawn, round by round, and return what is known of each."""
    notebook = Notebook(ROOT / ".mutants" / "findings.jsonl", suite_digest())
    drawn = draw(ROOT, arguments.room, arguments.count, arguments.seed)
    campaign = Campaign(drawn, notebook, counted(arguments.reach, arguments.prove), arguments.least)
    nearness, line_map = Nearness(ROOT), LineMap.load(ROOT / MAP, ROOT)
    with (
        tempfile.TemporaryDirectory(prefix="mutants-") as folder,
        Lanes(Path(folder), arguments.processes, arguments.timeout) as lanes,
    ):
        for how in planned(arguments.reach, arguments.prove):
            tests_of = {fault: nearness.stages(fault.path)[STAGES.index(how.stage)] for fault in campaign.left}
            if not how.is_prove and how.stage != STAGES[0]:  # more examples run more lines
                tests_of = {
                    fault: line_map.noticing(ROOT, fault.path, fault.line).pick(tests)
                    for fault, tests in tests_of.items()
                }
            campaign.hold(how, tests_of, lanes)
    return campaign.stages


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
    stages = run(arguments)
    share = caught_share(Counter(stages.values()))
    print("\n" + table(stages, [one.name for one in counted(arguments.reach, arguments.prove)]))
    survivors = sorted(fault for fault, stage in stages.items() if stage == SURVIVED)
    if survivors:
        lines = [f"- {one.path}:{one.line}: {one.name.split(': ', 1)[1]}" for one in survivors]
        is_cut = 0 < arguments.least <= share
        head = "Survivors, that no further test was asked about" if is_cut else "Survivors"
        print(f"\n{head}:\n" + "\n".join(lines))
    return 0 if share >= arguments.least else 1


if __name__ == "__main__":
    sys.exit(main())
