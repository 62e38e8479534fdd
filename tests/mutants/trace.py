"""Note which lines of the package each test file runs, and for how long: `python -m tests.mutants.trace`, or `make map`.

Each file runs by itself, in a process forked from one that has imported the package: nothing that an earlier file
compiled, cached or imported hides a line. What is known stays in `.mutants/traced/`, test by test, until the test file
or a module it runs changes: a run goes on where it was cut. A campaign of planted faults reads `.mutants/coverage.json`.
"""

import argparse
import gc
import json
import multiprocessing.util
import os
import signal
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.mutants.line_map import MAP, LineMap, Traced, digest, line_sets, modules_of, sources_of, texts
from tests.mutants.nearness import Nearness
from tests.mutants.server import IMPORTED

ROOT = Path(__file__).resolve().parents[2]
TRACED = ROOT / ".mutants" / "traced"
OPTIONS = ("-q", "-p", "no:cacheprovider", "--no-header", "--hypothesis-seed=0")
"""As the campaign runs them, so that random examples are drawn from the same seed."""
HARMLESS = ("git", "uname", "lscpu", "fc-list", "cc")
"""Commands that run no line of the package."""


@contextmanager
def watched_lines() -> Iterator[Any]:
    """Watch the lines of the package that run."""
    from coverage import Coverage

    watching = Coverage(data_file=None, config_file=False, source=[str(ROOT / "optim")], messages=False)
    watching.set_option("run:disable_warnings", ["no-data-collected", "module-not-measured"])
    watching.start()
    try:
        yield watching
    finally:
        watching.stop()


def seen(watching: Any) -> dict[str, dict[str, set[int]]]:
    """Return the lines seen by context and module."""
    data = watching.get_data()
    found: dict[str, dict[str, set[int]]] = {}
    for path in data.measured_files():
        name = str(Path(path).relative_to(ROOT))
        for line, contexts in data.contexts_by_lineno(path).items():
            for context in contexts:
                found.setdefault(context, {}).setdefault(name, set()).add(line)
    return found


def united(seen: dict[str, dict[str, set[int]]]) -> dict[str, set[int]]:
    """Return the lines seen by module."""
    found: dict[str, set[int]] = {}
    for held in seen.values():
        for path, lines in held.items():
            found.setdefault(path, set()).update(lines)
    return found


class Children:
    """Remembers the other Python that this process started first, whose lines nobody sees."""

    def __init__(self) -> None:
        self.started = ""
        sys.addaudithook(self._hear)
        spawn = multiprocessing.util.spawnv_passfds

        def heard(*arguments: Any) -> int:
            self._note("multiprocessing")
            return spawn(*arguments)

        multiprocessing.util.spawnv_passfds = heard

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "subprocess.Popen":
            command = arguments[1]
            name = command if isinstance(command, str | bytes | os.PathLike) else command[0]
            if Path(os.fsdecode(name)).name not in HARMLESS:
                self._note(os.fsdecode(name))
        elif event in {"os.fork", "os.forkpty", "os.posix_spawn"}:
            self._note(event)

    def _note(self, what: str) -> None:
        self.started = self.started or f"starts {what}"


class Notes:
    """Tells tests apart: the lines and the processor seconds of each."""

    def __init__(self, watching: Any) -> None:
        self.watching = watching
        self.seconds: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        """Note a test with its fixtures."""
        self.watching.switch_context(str(len(self.seconds)))
        start = sum(os.times()[:4])
        result = yield
        self.seconds[item.nodeid] = sum(os.times()[:4]) - start
        return result


def trace_here(test: str, goal: Path, options: tuple[str, ...]) -> None:
    """Run a test file in this process and note what it runs; never returns."""
    os.setpgid(0, 0)
    silent = os.open(os.environ.get("MUTANTS_LOG", os.devnull), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (0, 1, 2):
        os.dup2(silent, stream)
    children = Children()
    with watched_lines() as watching:
        notes = Notes(watching)
        arguments = ["-W", "ignore::pytest.PytestAssertRewriteWarning", *options, test]
        code = int(pytest.main(arguments, plugins=[notes]))
    found = seen(watching)
    told = {
        "unseen": children.started if code in {0, 5} else f"ends with {code}",
        "lines": texts(united(found)),
        "tests": {
            name: {"seconds": round(seconds, 3), "lines": texts(found.get(str(index), {}))}
            for index, (name, seconds) in enumerate(notes.seconds.items())
        },
    }
    goal.write_text(json.dumps(told))
    os._exit(0)


def trace(test: str, options: tuple[str, ...], limit_s: float) -> dict[str, Any]:
    """Run a test file in a child, at most so long, and return what it noted."""
    goal = TRACED / f"{os.getpid()}.part"
    child = os.fork()
    if child == 0:
        try:
            trace_here(test, goal, options)
        finally:
            os._exit(70)
    end = time.monotonic() + limit_s
    while True:
        ended, _, used = os.wait4(child, os.WNOHANG)
        if ended:
            break
        if time.monotonic() > end:
            os.killpg(child, signal.SIGKILL)
        time.sleep(0.01)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # what a test has left running
    told = json.loads(goal.read_text()) if goal.exists() else {"unseen": "ends early", "lines": {}, "tests": {}}
    goal.unlink(missing_ok=True)
    return told | {"seconds": used.ru_utime + used.ru_stime}


def import_package() -> dict[str, set[int]]:
    """Import every module of the package and return the lines which that runs."""
    with watched_lines() as watching:
        for path in modules_of(ROOT):
            if path.name != "__main__.py":
                name = path.relative_to(ROOT).with_suffix("").as_posix().removesuffix("/__init__").replace("/", ".")
                with suppress(ImportError):  # optional packages
                    import_module(name)
    return united(seen(watching))


def kept(test: str, modules: dict[str, str]) -> dict[str, Any] | None:
    """Return what was noted of a test file, if neither it nor a module it runs has changed since."""
    path = TRACED / f"{test.replace('/', '.')}.json"
    told = json.loads(path.read_text()) if path.exists() else None
    is_fresh = (
        told is not None
        and told["digest"] == digest(*sources_of(ROOT, test))
        and told["modules"] == {name: modules.get(name, "") for name in told["modules"]}
    )
    return told if is_fresh else None


def main() -> None:
    """Trace what has changed and write the map."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.trace", description="Which tests run which lines?")
    parser.add_argument("tests", nargs="*", help="only test files whose path starts so")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds a test file may take")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", message=".*fork.*")
    TRACED.mkdir(parents=True, exist_ok=True)
    modules = {path.relative_to(ROOT).as_posix(): digest(path) for path in modules_of(ROOT)}
    for name in IMPORTED:
        import_module(name)
    imported, found = import_package(), {}
    tests = Nearness(ROOT).tests
    gc.freeze()  # children needn't walk over it
    for index, test in enumerate(tests):
        told = kept(test, modules)
        if told is None and test.startswith(tuple(arguments.tests) or "tests"):
            sources = digest(*sources_of(ROOT, test))
            told = trace(test, OPTIONS, arguments.timeout)
            told |= {"digest": sources, "modules": {name: modules[name] for name in sorted(told["lines"])}}
            (TRACED / f"{test.replace('/', '.')}.json").write_text(json.dumps(told))
            print(f"[{index + 1}/{len(tests)}] {told['seconds']:.1f} s {test} {told['unseen']}".rstrip(), flush=True)
        if told is not None:
            found[test] = Traced(told["digest"], told["seconds"], not told["unseen"], line_sets(told["lines"]))
    LineMap(modules, imported, found).write(ROOT / MAP)


if __name__ == "__main__":
    main()
