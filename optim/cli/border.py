"""The border between library and shell: exceptions become exit codes and single lines, Ctrl-C included."""

import errno
import logging
import os
import re
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any

import typer
from typer.core import TyperGroup

from optim.cli.commands import COMMANDS, load, stub
from optim.cli.messages import ExitCode, info, one_line
from optim.core.errors import CertificateRefusedError, InvalidOptionError, OptimError
from optim.core.stopping import Interruption
from optim.core.user_code import where_user_code_failed

# Typer has its own copy of click in recent releases and uses the installed one in others.
_UsageError: type[Any] = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")

WRONG_PATH = (errno.EACCES, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOENT, errno.ENOTDIR, errno.ENXIO)

TOO_MANY_OPEN = (errno.EMFILE, errno.ENFILE)

ANYWHERE = ("--quiet", "-q", "--verbose", "-v")
"""Flags of the root that may stand behind a sub-command."""

LOGGER = logging.getLogger(__name__)

_WHOLE, _NUMBER = "a whole number", "a number"

_NUMBERS = {
    "int_parsing": _WHOLE,
    "int_type": _WHOLE,
    "int_from_float": _WHOLE,
    "int_parsing_size": "a whole number of this size",
}

_NUMBERS |= {"float_parsing": _NUMBER, "float_type": _NUMBER, "finite_number": "a finite number"}


class OptimGroup(TyperGroup):
    """The root of the command: runs a sub-command and ends the process with its exit code."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        for name in COMMANDS:
            self.add_command(stub(name))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Load the sub-command that is called, and no other."""
        if args and args[0] in COMMANDS:
            self.add_command(load(args[0]), args[0])
        return super().resolve_command(ctx, args)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run the command line; a usage error is one line on stderr, exit code 2. `ANYWHERE` may stand anywhere."""
        words = list(sys.argv[1:] if args is None else args)
        mine = words[: words.index("--")] if "--" in words else words
        first = [word for word in mine if word in ANYWHERE]
        words = [*first, *(word for word in mine if word not in ANYWHERE), *words[len(mine) :]]
        try:
            code = super().main(words, "optim", complete_var, False, windows_expand_args, **extra)
            sys.stdout.flush()
        except _UsageError as error:
            code = _usage_error(error)
        except SystemExit as error:  # what prints tables and help ends so where its reader went away
            if not isinstance(error.__context__, BrokenPipeError):
                raise
            code = _failed(error.__context__)
        except OSError as error:  # of help, version and names for shells: printed while words are read
            code = _failed(error)
        code = ExitCode.DONE if code is None else code
        if not standalone_mode:
            return code
        sys.exit(int(code))

    def invoke(self, ctx: Any) -> Any:
        """Run the sub-command and turn what it raises on purpose into an exit code."""
        try:
            code = super().invoke(ctx)
            sys.stdout.flush()
        except CertificateRefusedError as error:
            return error_exit(str(error), ExitCode.REFUSED)
        except OptimError as error:
            said, place = str(error), where_user_code_failed(error)
            if place is not None:
                LOGGER.debug("what was raised:", exc_info=True)
                if not isinstance(error, InvalidOptionError) and place.partition(":")[0] not in said:
                    said = place  # the library refused what the user's code gave it
            return error_exit(said)
        except SystemExit as error:
            if (place := where_user_code_failed(error)) is None:
                raise
            LOGGER.debug("what was raised:", exc_info=True)
            return error_exit(f"{place}; let it raise another error")
        except (OverflowError, MemoryError, RecursionError) as error:
            LOGGER.debug("what was raised:", exc_info=True)
            if (place := where_user_code_failed(error)) is not None:
                return error_exit(f"{place}; mend it, or see all of it with --verbose")
            return error_exit(f"a number given is too large, or lists are nested too deeply ({error}); correct it")
        except KeyboardInterrupt:
            return error_exit("interrupted", ExitCode.INTERRUPTED)
        except OSError as error:
            return _failed(error)
        except Exception as error:
            if isinstance(error, (RuntimeError, AssertionError)) and _lacks_device():
                wanted = os.environ["JAX_PLATFORMS"]
                said = f"JAX has no device of JAX_PLATFORMS={wanted} here; unset it, or set JAX_PLATFORMS=cpu"
            elif (place := where_user_code_failed(error)) is not None:
                said = f"{place}; mend it, or see all of it with --verbose"
            else:
                raise
            LOGGER.debug("what was raised:", exc_info=True)
            return error_exit(said)
        return code


def _usage_error(error: Any) -> ExitCode:
    """Print a usage error; where help was asked for by saying nothing, it is printed already."""
    _put_plainly(error)
    message = error.format_message().strip().rstrip(".")
    if message:
        context = getattr(error, "ctx", None)
        path = context.command_path if context is not None else "optim"
        return error_exit(f"{message}; see '{path} --help'")
    return ExitCode.WRONG_USE


def _put_plainly(error: Any) -> None:
    """Word a wrong number, choice or name of an option in one way, whichever release of typer found it."""
    told = getattr(error, "message", None)
    if not isinstance(told, str):
        return
    cause: Any = error.__cause__
    if callable(getattr(cause, "errors", None)):  # recent releases leave the check to pydantic, which omits the value
        (first, *_) = cause.errors()
        kind, limits = first["type"], first.get("ctx") or {}
        if kind in _NUMBERS:
            told = f"{first['input']!r} is not {_NUMBERS[kind]}"
        elif kind in ("greater_than_equal", "less_than_equal"):
            told = _outside(first["input"], limits.get("ge"), limits.get("le"))
        else:
            told = told.removeprefix("Value error, ")
    elif wrong := re.fullmatch(r"(.*) is not a valid (integer|float)(?: range)?\.?", told, re.DOTALL):
        told = f"{wrong[1]} is not {_NUMBERS['int_type' if wrong[2] == 'integer' else 'float_type']}"
    elif wrong := re.fullmatch(r"(\S+) is not in the range (?:(\S+)<=)?x(?:>=(\S+?))?(?:<=(\S+?))?\.?", told):
        told = _outside(wrong[1], wrong[2] or wrong[3], wrong[4])
    elif near := getattr(error, "possibilities", None):
        told, error.possibilities = f"{told} (Possible options: {', '.join(sorted(near))})", None
    error.message = told


def _outside(given: Any, least: Any, most: Any) -> str:
    """Say which end of its range a number is beyond, one of which may be open."""
    if least is not None and float(given) < float(least):
        return f"{given} is less than {least}"
    return f"{given} is more than {most}"


def error_exit(message: str, code: ExitCode = ExitCode.WRONG_USE) -> ExitCode:
    """Print one line on stderr and return the exit code."""
    print(one_line(f"optim: error: {message}"), file=sys.stderr)  # noqa: T201 - the command's own voice
    return code


def _failed(error: OSError) -> ExitCode:
    """Say what the system refused, but nothing of a reader that went away; what stdout doesn't take is left unsaid."""
    if isinstance(error, BrokenPipeError):
        _close_stdout()
        return ExitCode.CLOSED_PIPE
    try:
        sys.stdout.flush()
    except OSError:
        _close_stdout()
    where = f"{error.filename}: " if error.filename else ""
    if error.errno in WRONG_PATH:
        return error_exit(f"{where}{error.strerror}; check the path")
    if error.errno in TOO_MANY_OPEN:
        return error_exit(
            f"{where}{error.strerror}; allow more with 'ulimit -n 1024', or use fewer processes", ExitCode.NOTHING
        )
    return error_exit(f"{where}{error.strerror or error}; free some space or choose another place", ExitCode.NOTHING)


def _lacks_device() -> bool:
    """Tell whether JAX finds none of the devices that it was asked for; its own errors say so only of some."""
    jax = sys.modules.get("jax")
    if jax is None or not os.environ.get("JAX_PLATFORMS"):
        return False
    try:
        jax.devices()
    except (RuntimeError, AssertionError):
        return True
    return False


def have_streams() -> None:
    """See to it that there are all standard streams, or a file that is opened would get the number of one.

    Who has closed stderr wants to hear nothing; without stdout there is nowhere to put results.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # it gets the lowest number that is free
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115 - it stays open as long as the process
    if sys.stdout is None:
        sys.exit(int(error_exit("stdout is closed; leave it open, or send it to a file or to /dev/null")))


def _close_stdout() -> None:
    """Let nothing more be written to where nothing can be, not even by the interpreter's last flush."""
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, sys.stdout.fileno())
    os.close(sink)


GRACE_S = 1.0
"""How long a second Ctrl-C waits for the main thread, which may be inside a solver's compiled code."""

SHOW_CURSOR = b"\x1b[?25h"


@contextmanager
def listening(hint: str) -> Iterator[Interruption]:
    """Give a stopping rule that the first Ctrl-C triggers; a second one within the block aborts.

    Python runs signal handlers only between two of its own instructions, never while a solver's
    compiled code runs. So a thread reads the signals from a pipe, which the system fills at once.

    Parameters
    ----------
    hint
        What the first Ctrl-C prints: what happens next.
    """
    interruption = Interruption()
    with _reading_signals(partial(_watch, interruption=interruption, hint=hint), _SecondRaises()):
        yield interruption


@contextmanager
def ending_at_once() -> Iterator[None]:
    """Let the first Ctrl-C end the command, where there is nothing to keep yet.

    It ends without cleaning up: libraries that are interrupted while they load or compile may crash in that.
    """
    with _reading_signals(_end, _ignore):
        yield


@contextmanager
def _reading_signals(read: Callable[[int], None], handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Have a thread read signals from the end of a pipe; the handler is what the main thread does besides."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    watcher = threading.Thread(target=read, args=(read_end,), daemon=True)
    old_descriptor = signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    old_handler = signal.signal(signal.SIGINT, handler)
    watcher.start()
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, old_handler)
        signal.set_wakeup_fd(old_descriptor)
        os.close(write_end)
        watcher.join()
        os.close(read_end)


def _ignore(number: int, frame: FrameType | None) -> None:
    """Leave a signal to the thread that reads it."""


def _end(read_end: int) -> None:
    """End the process at the first Ctrl-C, unless the pipe is closed before."""
    while received := os.read(read_end, 1):
        if received[0] == signal.SIGINT:
            info("interrupted")
            if sys.stderr.isatty():
                os.write(2, SHOW_CURSOR)  # bars hide it
            os._exit(ExitCode.INTERRUPTED)


class _SecondRaises:
    """Handle SIGINT in the main thread: nothing at first (the watcher acts), then KeyboardInterrupt."""

    def __init__(self) -> None:
        self._count = 0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self._count += 1
        if self._count > 1:
            raise KeyboardInterrupt


def _watch(read_end: int, interruption: Interruption, hint: str) -> None:
    """Read signals until the pipe is closed."""
    while received := os.read(read_end, 1):
        if received[0] != signal.SIGINT:
            continue
        if not interruption.is_requested:
            interruption.request()
            info(f"stopping; {hint} (Ctrl-C again to abort)")
            continue
        is_over, _, _ = select.select([read_end], [], [], GRACE_S)
        if not is_over:
            info("aborted")
            os._exit(ExitCode.INTERRUPTED)
