"""Messages on a terminal: one short line, without control characters."""

import errno
import logging
import os
import shlex
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from typer.testing import CliRunner

from optim.cli import main
from optim.cli.border import _failed
from optim.cli.main import app
from optim.cli.messages import MAX_CHARACTERS, one_line, show_logs


def test_an_error_line_is_short_and_keeps_cause_and_remedy():
    assert one_line("a\n b\t c") == "a b c"
    assert one_line("x" * MAX_CHARACTERS) == "x" * MAX_CHARACTERS
    cut = one_line("cause " + "x" * MAX_CHARACTERS + " remedy")
    assert len(cut) == MAX_CHARACTERS
    assert cut.startswith("cause xxx")
    assert cut.endswith("xxx remedy")
    assert "x...x" in cut


def test_a_long_list_is_cut_between_its_names():
    names = [f"instance-{number}" for number in range(100)]
    cut = one_line(f"there are: {', '.join(names)}")
    assert len(cut) <= MAX_CHARACTERS
    first, last = cut.removeprefix("there are: ").split("...")
    assert {*first.split(", "), *last.strip().split(", ")} - {""} < set(names)


def test_nothing_in_a_line_steers_the_terminal():
    assert one_line("a\x1b[2Jb\x9bc\u202ed\x00") == "a\\x1b[2Jb\\x9bc\\u202ed\\x00"
    result = CliRunner().invoke(app, ["solve", "\x1b[31mname" + "y" * 5000, "--solver", "x"])
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert "\\x1b[31mname" in line
    assert len(line) <= MAX_CHARACTERS


def test_limits_are_raised_on_the_command_line(tmp_path):
    path = tmp_path / "big.json"
    path.write_text('{"schema": "optim/admission/1"}')
    result = CliRunner().invoke(app, ["--limit", "document_bytes=30", "instance", "describe", str(path)])
    assert result.exit_code == 2
    assert "more than 30 bytes" in result.stderr
    assert "'optim --limit document_bytes=N'" in result.stderr
    result = CliRunner().invoke(app, ["--limit", "document_bytes=31", "instance", "describe", str(path)])
    assert "missing required field" in result.stderr


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("instance generate admission --jobs x", "value for '--jobs': 'x' is not a whole number; see"),
        ("instance generate admission --jobs 1.5", "value for '--jobs': '1.5' is not a whole number; see"),
        ("instance generate admission --jobs 0", "value for '--jobs': 0 is less than 1; see"),
        ("instance generate admission --jobs -5", "value for '--jobs': -5 is less than 1; see"),
        ("bench admission --processes 1001", "value for '--processes': 1001 is more than 1000; see"),
        ("simulate spot --starts 0", "value for '--starts': 0 is less than 1; see"),
        ("solve heavy-0 --time-limit x", "value for '--time-limit': 'x' is not a number; see"),
        ("info --format x", "value for '--format': 'x' is not one of 'table', 'json'; see"),
        ("simulate packing --job x", "No such option: --job (Possible options: --jobs); see"),
    ],
)
def test_wrong_words_are_told_alike_by_all_releases_of_typer(command, said):
    """Some messages omit both the word and its range, some break the list of options."""
    result = CliRunner().invoke(app, command.split())
    assert result.exit_code == 2
    told = result.stderr.strip()
    assert said in told
    assert told.count("\n") == 0


@pytest.mark.parametrize(
    ("text", "named"),
    [("size=1", "unknown limit 'size'"), ("rows=x", "--limit must be a whole number"), ("rows", "NAME=VALUE"),
     ("rows=0", "at least 1"), ("rows=" + "9" * 19, "whole number")],
)  # fmt: skip
def test_a_limit_that_makes_no_sense_is_wrong_use(text, named):
    result = CliRunner().invoke(app, ["--limit", text, "info"])
    assert result.exit_code == 2
    assert named in result.stderr


LIKE_THESE = [["--help"], [], ["solve", "--help"], ["instance"], ["solvers", "bidding"]]
PRINTING = [
    ["--version"],
    ["--show-completion", "bash"],
    ["instance", "schema", "auction"],
    *(pytest.param(words, marks=pytest.mark.prove) for words in LIKE_THESE),
]
"""Words that are answered while they are read, and others."""


def printing(words, stdout, **environment):
    """Run a command in a separate process, and return its exit code and lines of stderr."""
    command = [sys.executable, "-m", "optim", *words]
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    named = {
        "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"
    }  # the shell is the one named, whichever runs the tests
    env = {**kept, "PYTHONPATH": str(Path(__file__).parents[2]), **named, **environment}
    done = subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True, env=env, check=False, timeout=60)
    return done.returncode, done.stderr.splitlines()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a full disk is played by /dev/full")
@pytest.mark.parametrize("words", PRINTING)
def test_what_finds_no_room_ends_in_one_line(words):
    with open("/dev/full", "w") as full:
        code, lines = printing(words, full)
    assert (code, lines) == (1, ["optim: error: No space left on device; free some space or choose another path"])


@pytest.mark.parametrize("words", PRINTING)
def test_what_nobody_reads_ends_quietly(words):
    reader, writer = os.pipe()
    os.close(reader)
    try:
        assert printing(words, writer) == (141, [])
    finally:
        os.close(writer)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a full disk is played by /dev/full")
def test_names_for_a_shell_that_find_no_room_end_in_one_line():
    shell = {"_OPTIM_COMPLETE": "complete_bash", "COMP_WORDS": "optim so", "COMP_CWORD": "1"}
    with open("/dev/full", "w") as full:
        code, lines = printing([], full, **shell)
    assert (code, len(lines)) == (1, 1)
    assert lines[0].startswith("optim: error: No space left on device")


@pytest.fixture
def logs():
    """Restore logging."""
    names = ("optim", "py.warnings", "optim.benchmarks", "optim.workloads")
    logging.captureWarnings(False)
    before = {name: (logging.getLogger(name).level, logging.getLogger(name).handlers[:]) for name in names}
    yield
    logging.captureWarnings(False)
    for name, (level, handlers) in before.items():
        logging.getLogger(name).setLevel(level)
        logging.getLogger(name).handlers = handlers


@pytest.mark.parametrize("is_verbose", [False, True])
def test_warnings_of_numpy_are_shown_where_everything_is(logs, capsys, is_verbose):
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        show_logs(is_verbose)
        show_logs(is_verbose)
        warnings.warn("overflow encountered", RuntimeWarning, stacklevel=1)
        logging.getLogger("optim.core").warning("a warning")
        logging.getLogger("optim.workloads").info("a remark")
        logging.getLogger("optim.core").debug("detail")
        logging.captureWarnings(False)
    lines = capsys.readouterr().err.splitlines()
    assert sum("overflow encountered" in line for line in lines) == is_verbose
    assert [line for line in lines if "overflow" not in line] == [
        "optim: a warning", "optim: a remark", *(["optim: detail"] if is_verbose else []),
    ]  # fmt: skip


def closed(*words, streams):
    """Run the command with streams closed."""
    command = shlex.join([str(Path(sys.executable).with_name("optim")), *words])
    redirected = " ".join(f"{number}>&-" for number in streams)
    return subprocess.run(["sh", "-c", f"exec {command} {redirected}"], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("words", [("--version",), ("--help",), ("solvers",), ("solve", "tiny-0", "--solver", "fifo")])
def test_without_stdout_one_line_says_so(words):
    done = closed(*words, streams=[1])
    assert done.returncode == 2
    assert done.stderr == "optim: error: stdout is closed; leave it open, or send it to a file or to /dev/null\n"
    assert closed(*words, streams=[1, 2]).returncode == 2


@pytest.mark.prove
def test_without_stderr_results_are_printed_all_the_same():
    done = closed("solve", "tiny-0", "--solver", "fifo", streams=[0, 2])
    assert done.returncode == 0
    assert "objective" in done.stdout
    wrong = closed("solve", "nothing.json", streams=[2])
    assert (wrong.returncode, wrong.stdout, wrong.stderr) == (2, "", "")


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_too_many_open_files_are_told_by_their_own_remedy(capsys, number):
    code = _failed(OSError(number, os.strerror(number)))
    assert code == 1
    assert capsys.readouterr().err.endswith("raise the limit with 'ulimit -n 1024', or use fewer processes\n")


@pytest.mark.prove
@pytest.mark.skipif(Path("/dev/nvidia0").exists(), reason="there is a device")
@pytest.mark.parametrize("name", ["cuda", "tpu"])
def test_a_device_that_is_not_there_is_one_line(name):
    words = [
        str(Path(sys.executable).with_name("optim")),
        "phases",
        "fit",
        "--generate",
        "10",
        "--encoder",
        "crbm",
        "--out",
        os.devnull,
    ]
    done = subprocess.run(words, env={**os.environ, "JAX_PLATFORMS": name}, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    line = f"optim: error: JAX finds no device for JAX_PLATFORMS={name}; unset it, or set JAX_PLATFORMS=cpu"
    assert done.stderr.splitlines()[-1] == line
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("flag", "said"), [("-q", "quiet"), ("--quiet", "quiet"), ("-v", "verbose"), ("--verbose", "verbose")]
)
def test_flags_of_the_root_may_stand_behind_a_command(monkeypatch, flag, said):
    told = {}
    monkeypatch.setattr(main, "be_quiet", lambda value: told.update(quiet=value))
    monkeypatch.setattr(main, "show_logs", lambda value: told.update(verbose=value))
    for words in ([flag, "info"], ["info", flag]):
        assert CliRunner().invoke(app, words).exit_code == 0
        assert told.pop(said) is True
    assert CliRunner().invoke(app, ["info", "--", flag]).exit_code == 2
    assert told[said] is False
