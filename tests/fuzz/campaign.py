"""Bad input by the thousand: ``python tests/fuzz/campaign.py --count 20000 --seed 1 --folder FOLDER``, or ``make fuzz``.

Each input depends on (seed, number) only: a valid file of one type is damaged, and a command that reads it runs in this
process. It must end with exit code 0, 1, 2 or 3 within 10 processor seconds and 1 GB. An error must have one line of at
most 700 characters, never a traceback. Workers are replaced when one dies or hangs. FOLDER/journal.jsonl contains the
finished inputs, and the same command resumes from there.
"""

import argparse
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))

MOST_SECONDS = 10.0
MOST_BYTES = 10**9
MAX_CHARACTERS = 700
PATIENCE_S = 60.0
"""Seconds after which a worker counts as hanging."""
CODES = (0, 1, 2, 3)
NOT_FILES = ("folder", "nothing", "pipe", "unreadable name")
OPTION_VALUES = (
    "-1",
    "0",
    "1e308",
    "nan",
    "inf",
    "x",
    "",
    "9223372036854775808",
    "1e400",
    "\x1b[31m",
    "1,2",
    "=",
    "a=b",
    "0.5",
)


def draw(kinds: list[Any], seed: int, number: int) -> tuple[Any, bytes | str, str, str, list[str]]:
    """Return the type, the content (or a stand-in for a file), its name, its fault, and the command's words."""
    from corpus import FILE
    from mutations import mutation_for

    rng = random.Random(f"{seed}/{number}")
    kind = rng.choice(kinds)
    words = rng.choice(kind.commands).split()
    content: bytes | str
    if rng.random() < 0.02:
        content = rng.choice(NOT_FILES)
        how = content
    elif rng.random() < 0.05:
        content, how = kind.content, "options"
        place = rng.randrange(1, len(words) + 1)
        words[place - 1 : place] = [words[place - 1] if FILE in words[place - 1] else rng.choice(OPTION_VALUES)]
    else:
        mutation = mutation_for(rng, kind.content)
        content, how = mutation(rng, kind.content), mutation.__name__
        if kind.seal and rng.random() < 0.8:
            content = kind.seal(content)
    path = kind.named or f"spoilt{rng.choice(('', '.json', '.csv', '.gz'))}"
    path = path if content != "unreadable name" else "n" * 300
    return kind, content, path, how, [word.replace(FILE, path) for word in words]


def place(content: bytes | str, path: Path) -> None:
    """Write the input to the file that the command reads."""
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content == "folder":
        path.mkdir()
    elif content == "pipe":
        os.mkfifo(path)


def peak_bytes() -> int:
    """Return the highest resident memory since the input was placed, in bytes."""
    from optim.core.limits import own_memory

    return own_memory("VmHWM") or 0


def judge(
    code: int, stderr: str, error: BaseException | None, seconds: float, grown: int, codes: tuple[int, ...] = CODES
) -> list[str]:
    """Return the faults in a command's exit code, messages, time and memory."""
    faults = []
    if error is not None and not isinstance(error, SystemExit):
        faults.append(f"{type(error).__name__} came through")
    if code not in codes:
        faults.append(f"exit code {code}")
    lines = stderr.splitlines()
    errors = [line for line in lines if line.startswith("optim: error: ")]
    if code in (2, 3) and len(errors) != 1:
        faults.append(f"{len(errors)} error lines")
    faults += [f"a line of {len(line)} characters" for line in lines if len(line) > MAX_CHARACTERS][:1]
    faults += [f"a line that isn't the command's: {line[:80]!r}" for line in lines if not line.startswith("optim: ")][
        :1
    ]
    if not stderr.replace("\n", "").isprintable():
        faults.append("steers the terminal")
    if seconds > MOST_SECONDS:
        faults.append("too slow")
    if grown > MOST_BYTES:
        faults.append("too much memory")
    return faults


def run_one(kinds: list[Any], seed: int, number: int) -> dict[str, Any]:
    """Run one input in an empty folder, and return the outcome."""
    from typer.testing import CliRunner

    from optim.cli.main import app

    kind, content, path, how, words = draw(kinds, seed, number)
    folder = Path(f"input-{number}")
    folder.mkdir()
    home = os.getcwd()
    os.chdir(folder)
    try:
        for beside, data in kind.beside.items():
            Path(beside).write_bytes(data)
        place(content, Path(path))
        before = _resident()
        Path("/proc/self/clear_refs").write_text("5")
        begun = time.process_time()  # other work on the machine must make no difference
        result = CliRunner().invoke(app, words)
        seconds = time.process_time() - begun
        # A golden file may be valid and differ from the output: a regression.
        codes = (*CODES, 4) if "--compare" in words else CODES
        faults = judge(result.exit_code, result.stderr, result.exception, seconds, peak_bytes() - before, codes)
        trace = ""
        if faults and result.exception is not None:
            trace = "".join(traceback.format_exception(result.exception)[-6:])[-1500:]
    finally:
        os.chdir(home)
        shutil.rmtree(folder, ignore_errors=True)
    return {
        "number": number, "kind": kind.name, "how": how, "words": words, "code": result.exit_code, "seconds": round(seconds, 2),
        "grown_mb": round((peak_bytes() - before) / 1e6), "faults": faults, "stderr": result.stderr[:400] if faults else "",
        "trace": trace,
    }  # fmt: skip


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def work(seed: int, folder: Path) -> None:
    """Run the inputs whose numbers come on stdin, one line of JSON each."""
    from corpus import all_kinds
    from typer.testing import CliRunner

    import optim.core.files
    from optim.cli.main import app

    optim.core.files.PATIENCE_S = 0.2
    scratch = folder / f"worker-{os.getpid()}"
    scratch.mkdir(parents=True)
    os.chdir(scratch)
    kinds = all_kinds(scratch, lambda command: CliRunner().invoke(app, command.split()))
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(run_one(kinds, seed, int(line))), flush=True)


class Worker:
    """A process that runs inputs one by one."""

    def __init__(self, seed: int, folder: Path) -> None:
        command = [sys.executable, __file__, "--work", "--seed", str(seed), "--folder", str(folder)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        if self.process.stdout.readline().strip() != "ready":
            raise RuntimeError("the worker could not make the valid inputs")

    def do(self, number: int) -> dict[str, Any]:
        """Return the outcome, also if the process died or hung."""
        import select

        process = self.process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{number}\n")
        process.stdin.flush()
        if not select.select([process.stdout], [], [], PATIENCE_S)[0]:
            self.end()
            return {"number": number, "faults": ["hangs"]}
        line = process.stdout.readline()
        if not line:
            return {"number": number, "faults": [f"the process died, exit code {process.wait()}"]}
        found: dict[str, Any] = json.loads(line)
        return found

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def end(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()


def main() -> int:
    """Run the inputs that the journal lacks, and print the faults."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=Path(".fuzz"))
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so many; go on another time")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    folder = given.folder.resolve()
    if given.work:
        work(given.seed, folder)
        return 0
    folder.mkdir(parents=True, exist_ok=True)
    journal = folder / "journal.jsonl"
    known = [json.loads(line) for line in journal.read_text().splitlines()] if journal.exists() else []
    results = {entry["number"]: entry for entry in known if entry["seed"] == given.seed}
    begun = time.monotonic()
    worker: Worker | None = None
    with journal.open("a") as file:
        for number in range(given.first, given.first + given.count):
            if number in results or time.monotonic() - begun > given.seconds:
                continue
            if worker is None or not worker.is_alive:
                worker = Worker(given.seed, folder)
            entry = results[number] = {"seed": given.seed, **worker.do(number)}
            file.write(json.dumps(entry) + "\n")
            file.flush()
            if entry["faults"] or number % 500 == 0:
                print(number, entry["faults"], entry.get("kind"), " ".join(entry.get("words", ()))[:150], flush=True)
    if worker is not None:
        worker.end()
    for left in folder.glob("worker-*"):
        shutil.rmtree(left, ignore_errors=True)
    wrong = [entry for entry in results.values() if entry["faults"]]
    print(f"{len(results)} inputs of seed {given.seed}, {len(wrong)} ended badly")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
