"""Code blocks of the README and the site's pages, and how they are run.

A comment before a block selects its treatment; `make prove` runs blocks without a comment:

    <!-- run: quick -->                  by `make test` as well, with `optim` in this process
    <!-- run: traces -->                 by `make prove` if the public traces are available
    <!-- run: no, needs two machines --> never, for that reason
    <!-- file: mine.csv -->              the block is that file's content
    <!-- output -->                      the block is the output of the preceding block of code

Blocks of a page run in order in one folder; Python blocks share their names. The folder contains the page's files from the
start, and small sample files in place of readers' files such as `metrics.csv`.

Shown output is compared with standard output word by word. Numbers with a decimal point may differ by 0.1 %. `...` stands
for any words within a line, or for any lines if it is on a separate line.
"""

import contextlib
import io
import math
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pytest

from tests.support.public_traces import TRACE_DIR
from tests.support.sample_files import SAMPLES

ROOT = Path(__file__).parents[2]
CELL = "{code-cell}"
"""Python that the site runs as well, to show its plots."""

RUN = ("python", "bash", CELL)
FENCE = re.compile(r"^(?:<!-- (?P<told>[^\n]*) -->\n)?```(?P<language>[^\n]*)\n(?P<code>.*?)^```$", re.M | re.S)
TOLD = re.compile(r"run: (?P<run>quick|traces|no, .+)|file: (?P<file>[\w.-]+)|(?P<output>output)")
ELLIPSIS = "..."
Item = TypeVar("Item")
SHOWN_TOL = 1e-3
"""Relative difference of decimals in shown output: they are rounded, and last digits depend on the processor."""

WIDTH = "120"
"""Columns of the terminal for which pages show tables."""

LIMIT_S = 540
"""Most seconds that a block of shell commands may take on a busy machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A block: its place, language, code, and the directive of its comment."""

    page: Path
    line: int
    language: str
    code: str
    when: str = "prove"
    file: str | None = None
    is_output: bool = False


def pages() -> list[Path]:
    """Return all documents that have code blocks, generated ones and notebooks apart."""
    found = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    return sorted(path for path in found if "api" not in path.parts and "```" in path.read_text())


def blocks_of(page: Path) -> list[Block]:
    """Return a page's blocks in their order.

    Raises
    ------
    ValueError
        If a comment before a block is no valid directive.
    """
    text = page.read_text()
    return [_block(page, text, found) for found in FENCE.finditer(text)]


def _block(page: Path, text: str, found: re.Match[str]) -> Block:
    line = text.count("\n", 0, found.start("code"))
    told = TOLD.fullmatch(found["told"]) if found["told"] else None
    if found["told"] and told is None:
        raise ValueError(f"{page.name}:{line}: comment {found['told']!r} before a block; see {Path(__file__).name}")
    return Block(
        page=page, line=line, language=found["language"], code=found["code"],
        when=(told and told["run"]) or "prove", file=told and told["file"],
        is_output=bool(told and told["output"]),
    )  # fmt: skip


@dataclass(slots=True)
class PageRun:
    """A page's folder and names while its blocks run."""

    folder: Path
    names: dict[str, object] = field(default_factory=lambda: {"__name__": "a_page"})

    def give(self, blocks: Iterable[Block]) -> None:
        """Write the files that blocks are."""
        for block in blocks:
            if block.file is not None:
                (self.folder / block.file).write_text(block.code)

    def run(self, block: Block) -> str:
        """Run a block, and return its output.

        Raises
        ------
        AssertionError
            If a command ends with another exit code than 0.
        """
        for name, write in SAMPLES.items():
            if name.replace(".py", ":") in block.code and not (self.folder / name).exists():
                write(self.folder / name)
        if block.language in ("python", CELL):
            return self._python(block)
        return self._commands(block) if block.when == "quick" else self._shell(block)

    def _python(self, block: Block) -> str:
        shown = io.StringIO()
        plain = re.sub(r"^%.*", "", block.code)  # a word to the notebook, not to Python
        code = compile("\n" * block.line + plain, str(block.page), "exec")
        with contextlib.chdir(self.folder), contextlib.redirect_stdout(shown):
            exec(code, self.names)
        return shown.getvalue()

    def _commands(self, block: Block) -> str:
        from optim.cli.main import app

        shown = io.StringIO()
        for line in block.code.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if not words:
                continue
            assert words[0] == "optim", f"a quick block has commands of optim alone, not {line!r}"
            with contextlib.chdir(self.folder), contextlib.redirect_stdout(shown):
                code = app(words[1:], standalone_mode=False)
            assert not code, f"{block.page.name}:{block.line}: {line!r} ended with exit code {code}"
        return shown.getvalue()

    def _shell(self, block: Block) -> str:
        commands = self.folder / ".bin"
        for name, words in {"optim": "-m optim", "python": ""}.items():
            commands.mkdir(exist_ok=True)
            (commands / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
            (commands / name).chmod(0o755)
        env = {
            **os.environ,
            "COLUMNS": WIDTH,
            "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
        }
        shell = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", block.code],
            cwd=self.folder, env=env, text=True, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        try:
            shown, said = shell.communicate(timeout=LIMIT_S)
        except BaseException:
            os.killpg(shell.pid, signal.SIGKILL)  # the shell's commands too
            raise
        where = f"{block.page.name}:{block.line}"
        assert shell.returncode == 0, f"{where} ended with exit code {shell.returncode}: {said[-2000:]}"
        return shown


def shown_after(blocks: Sequence[Block], block: Block) -> str | None:
    """Return the output that the page shows of a block, None where it shows none."""
    after = blocks[blocks.index(block) + 1 :][:1]
    return after[0].code if after and after[0].is_output else None


def fits(wanted: str, shown: str) -> bool:
    """Return whether printed text is the text that a page shows."""
    lines = [[line.split() for line in text.splitlines() if line.strip()] for text in (wanted, shown)]
    return _match(lines[0], lines[1], [ELLIPSIS], lambda one, other: _match(one, other, ELLIPSIS, _same_word))


def _match(wanted: list[Item], shown: list[Item], any_number: Item, same: Callable[[Item, Item], bool]) -> bool:
    if not wanted:
        return not shown
    if wanted[0] == any_number:
        return any(_match(wanted[1:], shown[skipped:], any_number, same) for skipped in range(len(shown) + 1))
    return bool(shown) and same(wanted[0], shown[0]) and _match(wanted[1:], shown[1:], any_number, same)


def _same_word(wanted: str, shown: str) -> bool:
    numbers = [re.split(r"(-?\d+\.\d+(?:e[+-]?\d+)?)", word) for word in (wanted, shown)]
    return len(numbers[0]) == len(numbers[1]) and all(
        one == other if place % 2 == 0 else math.isclose(float(one), float(other), rel_tol=SHOWN_TOL)
        for place, (one, other) in enumerate(zip(*numbers, strict=True))
    )


def run_all(run: PageRun, blocks: Sequence[Block], *when: str) -> None:
    """Run the due blocks in order, and compare their output with the page.

    Raises
    ------
    AssertionError
        If a block fails or prints other output.
    """
    for block in due(blocks, *when):
        shown, wanted = run.run(block), shown_after(blocks, block)
        where = f"{block.page.name}:{block.line}"
        assert wanted is None or fits(wanted, shown), f"{where}: the page shows\n{wanted}\nit prints\n{shown}"


def run_page(page: Path, folder: Path, *when: str) -> None:
    """Run a page's due blocks in a separate process, so that their registrations and imports end with it."""
    words = [sys.executable, "-m", "tests.support.code_blocks", str(page), str(folder), *when]
    done = subprocess.run(words, cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, f"{page.name}: {done.stderr[-3000:]}"


def due(blocks: Iterable[Block], *when: str) -> list[Block]:
    """Return the blocks that are run then."""
    return [block for block in blocks if block.file is None and block.language in RUN and block.when in when]


def bring_traces(block: Block, folder: Path) -> None:
    """Link the public traces that a block names into a folder, or skip the test."""
    for name in set(re.findall(r"[\w.-]+\.(?:csv|json)\.gz", block.code)):
        found = sorted(TRACE_DIR.rglob(name))
        if not found:
            pytest.skip(f"the public trace {name} is not there; set OPTIM_TRACE_DIR to the folder that has it")
        if not (folder / name).exists():
            (folder / name).symlink_to(found[0])


if __name__ == "__main__":
    of_page = blocks_of(Path(sys.argv[1]))
    page_run = PageRun(Path(sys.argv[2]))
    page_run.give(of_page)
    sys.path.insert(0, sys.argv[2])  # a reader's Python imports from the present folder
    run_all(page_run, of_page, *sys.argv[3:])
