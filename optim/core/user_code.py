"""Loading of users' classes, given as `./file.py:Class` or by an entry point, and descriptions of the errors that they raise."""

import ast
import hashlib
import importlib.util
import pickle
import sys
import traceback
from numbers import Real
from pathlib import Path
from types import ModuleType
from typing import Any

from optim.core.errors import InvalidOptionError
from optim.core.optional import find_plugin, load_plugin

ENDING = ".py"

SEPARATOR = f"{ENDING}:"

PREFIX = "optim_own_"
"""Beginning of the names of modules that are loaded from users' files."""

MAX_QUOTED = 120
"""Maximum length of a path, a name or another error's text in an error message."""

MAX_TEXT = 400
"""Maximum length of an error's text; a longer text is cut and ends in "..."."""

MAX_NAMES = 8
"""Maximum number of a file's classes in an error message."""

PLACE = "_place_in_user_code"
"""Attribute of an error from another process: the result of `where_user_code_failed` in that process."""


def shortened(text: str, max_length: int = MAX_TEXT) -> str:
    """Return a text in one line; a text longer than `max_length` is cut and ends in "..."."""
    text = " ".join(text.split())
    return text if len(text) <= max_length else f"{text[:max_length]}..."


def format_exception_line(error: BaseException) -> str:
    """Return an error's type and text, and where the user's code raised it, in one line."""
    frames = traceback.extract_tb(error.__traceback__)
    last = frames[-1] if frames else None
    where = f" ({Path(last.filename).name}:{last.lineno} in {last.name})" if last else ""
    text = shortened(str(error))
    return f"{type(error).__name__}: {text}{where}"


def where_user_code_failed(error: BaseException) -> str | None:
    """Return one line on an error that a user's file raised, with file and line; None for any other error."""
    seen: BaseException | None = error
    while seen is not None:
        if PLACE in vars(seen):
            return str(vars(seen)[PLACE])
        frames = [
            frame
            for frame in traceback.walk_tb(seen.__traceback__)
            if frame[0].f_globals.get("__name__", "").startswith(PREFIX)
        ]
        if frames:
            frame, line = frames[-1]
            text = shortened(str(seen))
            code = frame.f_code
            return f"{code.co_filename}:{line} in {code.co_name}: {type(seen).__name__}: {text}"
        seen = seen.__cause__ or seen.__context__
    return None


def sendable(error: BaseException) -> Exception:
    """Return an error that can be pickled. For an error in a user's file, a note keeps the traceback, which pickling loses.

    An error that would end the other process, or can't be unpickled, becomes a RuntimeError with its type and text.
    """
    place, trace = where_user_code_failed(error), traceback.format_exception(error)
    sent = error if isinstance(error, Exception) else None
    try:
        pickle.loads(pickle.dumps(sent))
    except Exception:  # foreign classes may raise anything here
        sent = None
    if sent is None:
        sent = RuntimeError(f"{type(error).__name__}: {shortened(str(error))}")
    if place is not None:
        vars(sent)[PLACE] = place
        sent.add_note("".join(trace))
    return sent


def who_answers(owner: Any, *methods: str) -> str:
    """Return the origin of a method's result: file, line and method of a user's class, otherwise the name of the object.

    Parameters
    ----------
    owner
        The object.
    methods
        Name of the method, preceded by those of methods that it calls; the first that is in a user's file is reported.
    """
    kind = type(owner)
    for method in methods:
        function = getattr(kind, method, None)
        code = getattr(function, "__code__", None)
        if code is not None and getattr(function, "__globals__", {}).get("__name__", "").startswith(PREFIX):
            return f"{code.co_filename}:{code.co_firstlineno} in {kind.__name__}.{method}"
    return f"{getattr(owner, 'name', kind.__name__)!r}"


def whole(value: Any) -> int | None:
    """Return an integral number of any type as an int; None for anything else."""
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    return int(value) if is_number and float(value).is_integer() else None


def is_file_reference(name: str) -> bool:
    """Return whether a name has the form ``./mine.py:MyPolicy``, or only ``./mine.py``, which `load_class_from_file` rejects."""
    return SEPARATOR in name or name.endswith(ENDING)


def load_class_from_file(name: str, base: type[Any], what: str) -> type[Any]:
    """Return a class of a file, given as ``./mine.py:MyPolicy``.

    Parameters
    ----------
    name
        Path and class.
    base
        Required base class.
    what
        Description for error messages: "a policy of simulate cluster".

    Raises
    ------
    InvalidOptionError
        If the file or class is missing, the file fails, or the class has another base.
    """
    path, _, attribute = (name, "", "") if name.endswith(ENDING) else name.rpartition(":")
    file = Path(path)
    if not file.is_file():
        raise InvalidOptionError(f"there is no file {path[:MAX_QUOTED]!r}; give {what} as ./mine.py:MyPolicy")
    key = (str(file.resolve()), file.stat().st_mtime_ns)
    if key not in _MODULES:
        _MODULES[key] = _module_of(file, path)
    if not hasattr(_MODULES[key], attribute):
        raise InvalidOptionError(_no_such_class(_MODULES[key], file, attribute, base, what))
    return _check_class(getattr(_MODULES[key], attribute), f"{path[:MAX_QUOTED]}:{attribute[:MAX_QUOTED]}", base, what)


def _no_such_class(module: ModuleType, file: Path, attribute: str, base: type[Any], what: str) -> str:
    """Return the error message for a file that lacks a class, with the file's classes that derive from `base`."""
    defined = [each for each in vars(module).values() if isinstance(each, type) and each.__module__ == module.__name__]
    candidates = [each.__name__ for each in defined if issubclass(each, base)]
    listed = ", ".join(candidates[:MAX_NAMES]) + ", ..." * (len(candidates) > MAX_NAMES)
    alternatives = (
        f"it has {listed}"
        if candidates
        else f"and none of its classes is {what}: derive one from {base.__module__}.{base.__name__}"
    )
    if not attribute:
        example = f" (./{file.name}:{candidates[0]})" if candidates else ""
        return f"{file.name} is a file: also name one of its classes{example}; {alternatives}"
    return f"{file.name} has no class {attribute[:MAX_QUOTED]}; {alternatives}"


def user_code_digest(path: str) -> str:
    """Return a digest of a user's file and of the modules that it imports from its folder or below.

    Imports are read from the source, so imports by a computed name are missed. The digest of a missing file is empty.
    """
    digest = hashlib.sha256()
    file = Path(path)
    if not file.is_file():
        return ""
    folder = file.resolve().parent
    todo, seen = [file.resolve()], set[Path]()
    while todo:
        module = todo.pop()
        if module in seen:
            continue
        seen.add(module)
        todo.extend(_imported(module, folder))
    for module in sorted(seen):
        content = module.read_bytes()
        digest.update(f"{module.relative_to(folder)}:{len(content)}:".encode() + content)
    return f"sha256:{digest.hexdigest()}"


def _imported(module: Path, folder: Path) -> list[Path]:
    """Return the files in a folder, or below it, that a module imports."""
    try:
        nodes = list(ast.walk(ast.parse(module.read_bytes())))
    except (SyntaxError, ValueError, RecursionError):  # running the module reports the error
        return []
    files: list[Path] = []
    paths = [Path(each).resolve() for each in sys.path if each]
    roots = {folder, *(each for each in paths if folder in each.parents and "site-packages" not in each.parts)}
    for node in nodes:
        if isinstance(node, ast.Import):
            names, bases = [each.name for each in node.names], roots
        elif isinstance(node, ast.ImportFrom):
            start = f"{node.module}." if node.module else ""
            names = [start + each.name for each in node.names]
            bases = {module.parents[node.level - 1]} & {folder, *module.parents} if node.level else roots
        else:
            continue
        files += [file for base in bases for name in names for file in _files_of(base, name.split("."))]
    return [file for file in files if folder in file.parents]


def _files_of(base: Path, parts: list[str]) -> list[Path]:
    """Return the files that importing a dotted name from a folder runs: packages, and the last module that exists."""
    files = []
    for depth in range(1, len(parts) + 1):
        stem = base.joinpath(*parts[:depth])
        files += [file.resolve() for file in (stem.with_suffix(".py"), stem / "__init__.py") if file.is_file()]
    return files


_MODULES: dict[tuple[str, int], ModuleType] = {}
"""Modules by file and time of writing: a file runs once, and so registers its classes once."""


def _module_of(file: Path, path: str) -> ModuleType:
    """Run a file and return its module."""
    # The name is the same in every process, so that a process can unpickle errors whose classes are in the file.
    module_name = (
        f"{PREFIX}{file.stem}_{hashlib.sha256(str(file.resolve()).encode(errors='surrogateescape')).hexdigest()[:16]}"
    )
    spec = importlib.util.spec_from_file_location(module_name, file)
    if spec is None or spec.loader is None:
        raise InvalidOptionError(f"{path[:MAX_QUOTED]} cannot be imported; give a file of Python code")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # a user's file may raise anything
        text = " ".join(str(error).split())[:MAX_QUOTED]
        raise InvalidOptionError(
            f"{path[:MAX_QUOTED]} fails{_line_of(error, module_name)} with {type(error).__name__}: {text}; "
            f"{_remedy(error, file)}"
        ) from error
    return module


def _remedy(error: BaseException, file: Path) -> str:
    """Return advice on an error of a user's file; its folder is not on the module path, since modules there could hide others."""
    missing = (getattr(error, "name", None) or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if missing and ((file.parent / f"{missing}{ENDING}").is_file() or (file.parent / missing).is_dir()):
        return f"its folder is not on the module path: set PYTHONPATH={str(file.parent)[:MAX_QUOTED]}"
    return "correct the file"


def _line_of(error: BaseException, module_name: str) -> str:
    """Return the line of a user's file that raised an error; a syntax error has no frame in the file."""
    if isinstance(error, SyntaxError):
        return f" in line {error.lineno}"
    frames = traceback.walk_tb(error.__traceback__)
    lines = [line for frame, line in frames if frame.f_globals.get("__name__") == module_name]
    return f" in line {lines[-1]}" if lines else ""


def load_installed(group: str, name: str, base: type[Any], what: str) -> type[Any] | None:
    """Return a class that another package names in an entry-point group, None if there is none.

    Raises
    ------
    InvalidOptionError
        If it cannot be imported, or has another base.
    """
    entry_point = find_plugin(group, name)
    return None if entry_point is None else _check_class(load_plugin(entry_point), entry_point.value, base, what)


def _check_class(loaded: Any, name: str, base: type[Any], what: str) -> type[Any]:
    if not isinstance(loaded, type) or not issubclass(loaded, base):
        raise InvalidOptionError(f"{name} is not {what}; derive the class from {base.__module__}.{base.__name__}")
    return loaded
