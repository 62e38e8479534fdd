"""Error handling of the command line: exceptions become exit codes and one-line messages; Ctrl-C stops a solve."""

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
"""Global flags that are also accepted after a sub-command."""

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
    """The root command group: run a sub-command and exit with its exit code."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        for name in COMMANDS:
            self.add_command(stub(name))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Load only the sub-command that is called."""
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
        """Run the command line; a usage error prints one line on stderr and exits with code 2."""
        words = list(sys.argv[1:] if args is None else args)
        mine = words[: words.index("--")] if "--" in words else words
        first = [word for word in mine if word in ANYWHERE]
        words = [*first, *(word for word in mine if word not in ANYWHERE), *words[len(mine) :]]
        try:
            code = super().main(words, "optim", complete_var, False, windows_expand_args, **extra)
            sys.stdout.flush()
        except _UsageError as error:
            code = _usage_error(error)
        except SystemExit as error:  # rich and typer raise it when the pipe is closed
            if not isinstance(error.__context__, BrokenPipeError):
                raise
            code = _failed(error.__context__)
        except OSError as error:  # from printing help, version or completions during parsing
            code = _failed(error)
        code = ExitCode.DONE if code is None else code
        if not standalone_mode:
            return code
        sys.exit(int(code))

    def invoke(self, ctx: Any) -> Any:
        """Run the sub-command and turn its expected exceptions into exit codes."""
        try:
            code = super().invoke(ctx)
            sys.stdout.flush()
        except CertificateRefusedError as error:
            return error_exit(str(error), ExitCode.REFUSED)
        except OptimError as error:
            said, place = str(error), where_user_code_failed(error)
            if place is not None:
                LOGGER.debug("traceback:", exc_info=True)
                if not isinstance(error, InvalidOptionError) and place.partition(":")[0] not in said:
                    said = place  # the library rejected a value that user code returned
            return error_exit(said)
        except SystemExit as error:
            if (place := where_user_code_failed(error)) is None:
                raise
            LOGGER.debug("traceback:", exc_info=True)
            return error_exit(f"{place}; raise an error other than SystemExit")
        except (OverflowError, MemoryError, RecursionError) as error:
            LOGGER.debug("traceback:", exc_info=True)
            if (place := where_user_code_failed(error)) is not None:
                return error_exit(f"{place}; --verbose prints the traceback")
            return error_exit(f"a number in the input is too large, or its lists are nested too deeply ({error})")
        except KeyboardInterrupt:
            return error_exit("interrupted", ExitCode.INTERRUPTED)
        except OSError as error:
            return _failed(error)
        except Exception as error:
            if isinstance(error, (RuntimeError, AssertionError)) and _lacks_device():
                wanted = os.environ["JAX_PLATFORMS"]
                said = f"JAX finds no device for JAX_PLATFORMS={wanted}; unset it, or set JAX_PLATFORMS=cpu"
            elif (place := where_user_code_failed(error)) is not None:
                said = f"{place}; --verbose prints the traceback"
            else:
                raise
            LOGGER.debug("traceback:", exc_info=True)
            return error_exit(said)
        return code


def _usage_error(error: Any) -> ExitCode:
    """Print a usage error; a command without arguments has no message, because Typer has printed its help."""
    _normalise_message(error)
    message = error.format_message().strip().rstrip(".")
    if message:
        context = getattr(error, "ctx", None)
        path = context.command_path if context is not None else "optim"
        return error_exit(f"{message}; see '{path} --help'")
    return ExitCode.WRONG_USE


def _normalise_message(error: Any) -> None:
    """Give errors about numbers, choices and option names the same text under all releases of Typer."""
    message = getattr(error, "message", None)
    if not isinstance(message, str):
        return
    cause: Any = error.__cause__
    if callable(getattr(cause, "errors", None)):  # recent releases check with pydantic, whose message omits the value
        (first, *_) = cause.errors()
        kind, limits = first["type"], first.get("ctx") or {}
        if kind in _NUMBERS:
            message = f"{first['input']!r} is not {_NUMBERS[kind]}"
        elif kind in ("greater_than_equal", "less_than_equal"):
            message = _outside(first["input"], limits.get("ge"), limits.get("le"))
        else:
            message = message.removeprefix("Value error, ")
    elif wrong := re.fullmatch(r"(.*) is not a valid (integer|float)(?: range)?\.?", message, re.DOTALL):
        message = f"{wrong[1]} is not {_NUMBERS['int_type' if wrong[2] == 'integer' else 'float_type']}"
    elif wrong := re.fullmatch(r"(\S+) is not in the range (?:(\S+)<=)?x(?:>=(\S+?))?(?:<=(\S+?))?\.?", message):
        message = _outside(wrong[1], wrong[2] or wrong[3], wrong[4])
    elif near := getattr(error, "possibilities", None):
        message, error.possibilities = f"{message} (Possible options: {', '.join(sorted(near))})", None
    error.message = message


def _outside(given: Any, least: Any, most: Any) -> str:
    """Return the error text for a number below `least` or above `most`; each may be None, for no limit."""
    if least is not None and float(given) < float(least):
        return f"{given} is less than {least}"
    return f"{given} is more than {most}"


def error_exit(message: str, code: ExitCode = ExitCode.WRONG_USE) -> ExitCode:
    """Print one line on stderr and return the exit code."""
    print(one_line(f"optim: error: {message}"), file=sys.stderr)  # noqa: T201 - output of the command
    return code


def _failed(error: OSError) -> ExitCode:
    """Print an operating-system error and return its exit code; a closed pipe prints nothing."""
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
            f"{where}{error.strerror}; raise the limit with 'ulimit -n 1024', or use fewer processes", ExitCode.NOTHING
        )
    return error_exit(f"{where}{error.strerror or error}; free some space or choose another path", ExitCode.NOTHING)


def _lacks_device() -> bool:
    """Return whether JAX finds no device for JAX_PLATFORMS; JAX's messages name this cause only for some platforms."""
    jax = sys.modules.get("jax")
    if jax is None or not os.environ.get("JAX_PLATFORMS"):
        return False
    try:
        jax.devices()
    except (RuntimeError, AssertionError):
        return True
    return False


def open_missing_streams() -> None:
    """Open missing standard streams; otherwise the next file that the process opens would get the descriptor of one.

    A closed stdin or stderr becomes /dev/null; a closed stdout is an error.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free descriptor
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115 - stays open until the process ends
    if sys.stdout is None:
        sys.exit(int(error_exit("stdout is closed; leave it open, or send it to a file or to /dev/null")))


def _close_stdout() -> None:
    """Redirect stdout to /dev/null, so that the interpreter's final flush cannot fail."""
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, sys.stdout.fileno())
    os.close(sink)


GRACE_S = 1.0
"""Seconds that a second Ctrl-C waits for the main thread, which may be inside a solver's compiled code."""

SHOW_CURSOR = b"\x1b[?25h"


@contextmanager
def listening(hint: str) -> Iterator[Interruption]:
    """Yield a stopping rule that the first Ctrl-C triggers; a second Ctrl-C within the block aborts.

    Python runs signal handlers only between bytecode instructions, never while a solver's
    compiled code runs. Therefore a thread reads the signals from a wake-up pipe.

    Parameters
    ----------
    hint
        Text about the consequence of the first Ctrl-C; it is printed at that time.
    """
    interruption = Interruption()
    with _reading_signals(partial(_watch, interruption=interruption, hint=hint), _SecondRaises()):
        yield interruption


@contextmanager
def ending_at_once() -> Iterator[None]:
    """Let the first Ctrl-C end the command while there is no result to save.

    The process exits without clean-up, because libraries that were interrupted while loading or compiling may crash in it.
    """
    with _reading_signals(_end, _ignore):
        yield


@contextmanager
def _reading_signals(read: Callable[[int], None], handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Run `read` on the signal pipe in a thread; `handler` handles SIGINT in the main thread."""
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
    """Do nothing; the reading thread handles the signal."""


def _end(read_end: int) -> None:
    """End the process at the first Ctrl-C, unless the pipe is closed before."""
    while received := os.read(read_end, 1):
        if received[0] == signal.SIGINT:
            info("interrupted")
            if sys.stderr.isatty():
                os.write(2, SHOW_CURSOR)  # progress bars hide the cursor
            os._exit(ExitCode.INTERRUPTED)


class _SecondRaises:
    """Ignore the first SIGINT in the main thread, since `_watch` handles it; raise KeyboardInterrupt at the second."""

    def __init__(self) -> None:
        self._count = 0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self._count += 1
        if self._count > 1:
            raise KeyboardInterrupt


def _watch(read_end: int, interruption: Interruption, hint: str) -> None:
    """Request the interruption at the first SIGINT; exit if the block still runs `GRACE_S` after the second."""
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
